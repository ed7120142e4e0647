#include "transport/identity.h"

#include "core/secret.h"
#include "core/strings.h"
#include "transport/security.h"

namespace weft {
namespace {

// Of each name: of what has room in a line. The names that a program compares are whole.
constexpr size_t kMaxNameBytes = 200;
// Further names are counted.
constexpr size_t kMostNames = 4;

std::string InAscii(const std::string& name) {
  std::string text = name.substr(0, kMaxNameBytes);
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return name.size() > kMaxNameBytes ? text + "..." : text;
}

std::string Names(const PeerIdentity& identity) {
  std::string text;
  size_t count = 0;
  for (const auto* const names : {&identity.dns_names, &identity.uris, &identity.ip_addresses}) {
    for (const std::string& name : *names) {
      if (++count > kMostNames) continue;
      text = StrCat(text, text.empty() ? ", names " : ", ", InAscii(name));
    }
  }
  return count > kMostNames ? StrCat(text, " and ", count - kMostNames, " more") : text;
}

}  // namespace

SecretString::~SecretString() { Wipe(this); }

std::string ProvedNames(const PeerIdentity& identity) {
  std::string text = StrCat(identity.dns_names.size(), " ", identity.uris.size());
  const auto add = [&text](const std::string& name) {
    text += StrCat(" ", name.size(), ":", name);
  };
  add(identity.subject);
  add(identity.psk_name);
  for (const std::string& name : identity.dns_names) add(name);
  for (const std::string& uri : identity.uris) add(uri);
  return text;
}

std::string_view AuthenticationName(Authentication authentication) {
  switch (authentication) {
    case Authentication::kNone:
      return "none";
    case Authentication::kCertificate:
      return "certificate";
    case Authentication::kPreSharedKey:
      return "pre_shared_key";
    case Authentication::kKernelCredentials:
      return "kernel_credentials";
  }
  return "unknown";
}

std::string IdentityText(const PeerIdentity& identity) {
  const bool sees_process = identity.process_id != 0;
  const std::string process =
      StrCat(sees_process ? StrCat("process ", identity.process_id, " of ") : "", "user ",
             identity.user_id);
  const std::string beside = sees_process ? StrCat("; ", process) : "";
  switch (identity.authentication) {
    case Authentication::kNone:
      break;
    case Authentication::kCertificate:
      return StrCat("certificate \"", InAscii(identity.subject), "\"", Names(identity), beside);
    case Authentication::kPreSharedKey:
      return StrCat("pre-shared key \"", InAscii(identity.psk_name), "\"", beside);
    case Authentication::kKernelCredentials:
      return StrCat(process, ", by the kernel's word");
  }
  return "nobody has proved who it is";
}

}  // namespace weft
