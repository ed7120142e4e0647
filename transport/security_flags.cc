#include "transport/security_flags.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <utility>

#include "core/status.h"
#include "core/strings.h"
#include "transport/descriptor.h"
#include "transport/read_file.h"

namespace weft {

const char kSecurityFlagsHelp[] =
    "TLS, on as soon as one of these is given (`weft cert` makes files to try it with):\n"
    "  --tls-certificate=FILE    what this side shows: its certificate, then intermediate ones\n"
    "  --tls-key=FILE            the key of it\n"
    "  --tls-roots=FILE          who may sign the other side's; clients without it: the system's\n"
    "  --tls-name=NAME           clients: the name that the server's certificate must have, if it\n"
    "                            is not the host that is dialed\n"
    "  --tls-uri=URI             the URI that the other side's must have: spiffe://example.org/kv\n"
    "  --tls-any-client          servers: serve clients without a certificate, too\n"
    "  --tls-psk-name=NAME       instead of certificates: the name of a secret that both have,\n"
    "  --tls-psk-file=FILE       and the file with it, 32 bytes or more; a last line feed is not "
    "of\n"
    "                            it (openssl rand -hex 32)\n"
    "  --tls-require-encryption  no one-sided access in the clear, also where a card would do it\n"
    "  --tls-kernel              over tcp the kernel makes the records, where it can (Linux "
    "6.14)\n";

namespace {

constexpr std::string_view kPrefix = "--tls-";

struct Given : SecurityOptions {
  std::string psk_file;  // read once all flags are known
};

struct ValueFlag {
  std::string_view name;
  std::string Given::*value;
};
constexpr ValueFlag kValueFlags[] = {
    {"--tls-certificate", &SecurityOptions::certificate_file},
    {"--tls-key", &SecurityOptions::key_file},
    {"--tls-roots", &SecurityOptions::roots_file},
    {"--tls-name", &SecurityOptions::server_name},
    {"--tls-uri", &SecurityOptions::expected_uri},
    {"--tls-psk-name", &SecurityOptions::psk_name},
    {"--tls-psk-file", &Given::psk_file},
};

struct SwitchFlag {
  std::string_view name;
  bool SecurityOptions::*value;
  bool set_to;
};
constexpr SwitchFlag kSwitchFlags[] = {
    {"--tls-any-client", &SecurityOptions::require_client_certificate, false},
    {"--tls-require-encryption", &SecurityOptions::require_encryption, true},
    {"--tls-kernel", &SecurityOptions::kernel_tls, true},
};

absl::Status Wrong(std::string_view flag, std::string_view why) {
  return absl::InvalidArgumentError(StrCat(flag, ": ", why));
}

absl::StatusOr<std::string> ReadSecret(const std::string& file) {
  // A pipe is waited for: the secret may come by one (/dev/fd/3).
  Descriptor descriptor(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  if (!descriptor.valid()) return StatusFromErrno(errno, StrCat("--tls-psk-file: open ", file));
  // A line feed, and one byte that is too much.
  WEFT_ASSIGN_OR_RETURN(std::string secret, ReadFile(descriptor.get(), kMaxPskBytes + 2,
                                                     StrCat("--tls-psk-file: read ", file)));
  if (secret.ends_with('\n')) secret.pop_back();
  if (secret.size() >= kMinPskBytes && secret.size() <= kMaxPskBytes) return secret;
  return Wrong("--tls-psk-file", StrCat(file, " must have ", kMinPskBytes, " to ", kMaxPskBytes,
                                        " bytes out of a random generator"));
}

// The flags of one command line, as they come.
class Flags {
 public:
  // `argument` begins with kPrefix; `next` is what follows it, or null. Sets `*uses_next` if that
  // is the flag's value.
  absl::Status Add(std::string_view argument, const char* next, bool* uses_next) {
    const size_t equals = argument.find('=');
    const std::string_view name = argument.substr(0, equals);
    for (const SwitchFlag& flag : kSwitchFlags) {
      if (flag.name != name) continue;
      if (equals != std::string_view::npos) return Wrong(name, "takes no value");
      given_.*flag.value = flag.set_to;
      any_ = true;
      return absl::OkStatus();
    }
    for (const ValueFlag& flag : kValueFlags) {
      if (flag.name != name) continue;
      *uses_next = equals == std::string_view::npos;
      if (*uses_next && next == nullptr) return Wrong(name, "a value is missing");
      const std::string_view value = *uses_next ? next : argument.substr(equals + 1);
      if (value.empty()) return Wrong(name, "its value is empty");
      if (!(given_.*flag.value).empty()) return Wrong(name, "given twice");
      given_.*flag.value = value;
      any_ = true;
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(StrCat("\"", name, "\" is not understood"));
  }

  absl::StatusOr<std::optional<SecurityOptions>> Options() && {
    if (!any_) return std::nullopt;
    if (given_.psk_name.empty() != given_.psk_file.empty()) {
      return absl::InvalidArgumentError("--tls-psk-name and --tls-psk-file belong together");
    }
    if (!given_.psk_file.empty()) {
      WEFT_ASSIGN_OR_RETURN(given_.psk_secret, ReadSecret(given_.psk_file));
    }
    return SecurityOptions(std::move(given_));
  }

 private:
  Given given_;
  bool any_ = false;
};

// Of arguments that lie one after the other. `keep(i)`: the i-th stays.
template <class Text, class Keep>
absl::StatusOr<std::optional<SecurityOptions>> Take(size_t count, Text text, Keep keep) {
  Flags flags;
  bool over = false;
  for (size_t i = 0; i < count; ++i) {
    const std::string_view argument = text(i);
    over = over || argument == "--";
    if (over || !argument.starts_with(kPrefix)) {
      keep(i);
      continue;
    }
    bool uses_next = false;
    WEFT_RETURN_IF_ERROR(flags.Add(argument, i + 1 < count ? text(i + 1) : nullptr, &uses_next));
    if (uses_next) ++i;
  }
  return std::move(flags).Options();
}

}  // namespace

absl::StatusOr<std::optional<SecurityOptions>> TakeSecurityFlags(
    std::vector<std::string>* arguments) {
  std::vector<std::string> kept;
  auto options = Take(
      arguments->size(), [&](size_t i) { return (*arguments)[i].c_str(); },
      [&](size_t i) { kept.push_back((*arguments)[i]); });
  *arguments = std::move(kept);
  return options;
}

absl::StatusOr<std::optional<SecurityOptions>> TakeSecurityFlags(int* argc, char** argv) {
  int kept = 0;
  auto options = Take(
      static_cast<size_t>(*argc), [&](size_t i) { return argv[i]; },
      [&](size_t i) { argv[kept++] = argv[i]; });
  if (kept < *argc) argv[kept] = nullptr;
  *argc = kept;
  return options;
}

}  // namespace weft
