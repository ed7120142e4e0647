#include "tools/weft/cert.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "core/random.h"
#include "core/status.h"
#include "core/strings.h"
#include "tools/weft/command.h"
#include "tools/weft/private_folder.h"

namespace weft::tools {

const char kCertDetails[] =
    "DIR               where the files are, or will be; made for you alone if it is not there\n"
    "NAME              a certificate and its key, NAME.pem and NAME.key; server and client if "
    "none\n"
    "                  is given. It is for the names NAME and localhost, and for 127.0.0.1 and "
    "::1\n"
    "NAME=ALSO,...     and for these: host names, numeric addresses, URIs\n"
    "                  (kv=kv.example.org,10.0.0.7,spiffe://example.org/kv)\n"
    "--days=N          how long they hold, 90 if not given; 1 to 365\n"
    "--replace         make new certificates in the place of those that are there; servers and\n"
    "                  channels take them into use while they run\n"
    "\n"
    "Makes a certificate authority for development in DIR, ca.pem and ca.key, or uses the one "
    "that\n"
    "is there, and signs certificates for servers and clients alike. Prints the flags with which\n"
    "programs use them (--tls-certificate, --tls-key, --tls-roots). Nothing is overwritten unless\n"
    "--replace says so, and the authority never.\n"
    "Not for production: ca.key lies beside the rest, and nothing can be revoked.\n";

namespace {

constexpr int64_t kDayS = 86'400;
constexpr int64_t kDefaultDays = 90;
constexpr int64_t kMaxDays = 365;        // what nobody renews should not hold for ever
constexpr size_t kMaxCertificates = 64;  // of one command

constexpr mode_t kForMe = 0600;
constexpr mode_t kForAll = 0644;  // certificates are shown to whoever connects

constexpr char kAuthority[] = "ca";

std::string CertificateFile(const std::string& name) { return name + ".pem"; }
std::string KeyFile(const std::string& name) { return name + ".key"; }

bool IsNumeric(const std::string& text) {
  in6_addr address;
  return ::inet_pton(AF_INET, text.c_str(), &address) == 1 ||
         ::inet_pton(AF_INET6, text.c_str(), &address) == 1;
}

// Of the characters that host names are made of, which are harmless in file names, too.
bool IsHostName(const std::string& text) {
  return !text.empty() && text[0] != '.' && text[0] != '-' &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_';
         });
}

absl::Status AddName(const std::string& name, CertificateRequest* request) {
  if (name.find("://") != std::string::npos) {
    request->uris.push_back(name);
  } else if (IsNumeric(name)) {
    request->addresses.push_back(name);
  } else if (IsHostName(name.starts_with("*.") ? name.substr(2) : name)) {
    request->dns_names.push_back(name);
  } else {
    return absl::InvalidArgumentError(
        StrCat("\"", name, "\" is neither a host name, nor a numeric address, nor a URI"));
  }
  return absl::OkStatus();
}

// "NAME" or "NAME=ALSO,..."
absl::StatusOr<CertificateRequest> ParseName(const std::string& argument) {
  const size_t equals = argument.find('=');
  CertificateRequest request;
  request.common_name = argument.substr(0, equals);
  if (!IsHostName(request.common_name) || request.common_name == kAuthority ||
      request.common_name.size() > CertificateRequest::kMaxCommonNameBytes) {
    return absl::InvalidArgumentError(
        StrCat("\"", request.common_name, "\" cannot be a certificate's name: 1 to ",
               CertificateRequest::kMaxCommonNameBytes,
               " letters, digits, \".\", \"-\" and \"_\", and not \"", kAuthority, "\""));
  }
  request.dns_names = {request.common_name, "localhost"};
  request.addresses = {"127.0.0.1", "::1"};
  if (equals == std::string::npos) return request;
  for (const std::string& also :
       std::vector<std::string>(absl::StrSplit(argument.substr(equals + 1), ','))) {
    WEFT_RETURN_IF_ERROR(AddName(also, &request));
  }
  return request;
}

absl::StatusOr<int64_t> ParseDays(const std::string& text) {
  int64_t days = 0;
  if (absl::SimpleAtoi(text, &days) && days >= 1 && days <= kMaxDays) return days;
  return absl::InvalidArgumentError(
      StrCat("--days=", text, ": it must be a number, 1..", kMaxDays));
}

// The authority of the folder: the one that is there, or a new one, of which `*said` tells.
absl::StatusOr<CertificateAuthority> AuthorityOf(const PrivateFolder& folder,
                                                 const CertCommand& command, std::string* said) {
  const std::string certificate = CertificateFile(kAuthority), key = KeyFile(kAuthority);
  if (folder.Has(certificate) || folder.Has(key)) {
    CertificateAndKey pem;
    WEFT_ASSIGN_OR_RETURN(pem.certificate_pem, folder.Read(certificate));
    WEFT_ASSIGN_OR_RETURN(pem.key_pem, folder.Read(key));
    auto authority = CertificateAuthority::FromPem(pem);
    if (authority.ok()) return authority;
    return Annotate(authority.status(), StrCat(certificate, " and ", key));
  }
  // Two authorities of one name would be taken for each other until their keys are looked at.
  WEFT_ASSIGN_OR_RETURN(CertificateAuthority authority,
                        CertificateAuthority::Create(
                            absl::StrFormat("Weft development authority %016x", SecureRandom64()),
                            command.certificates.front().valid_until_s));
  WEFT_RETURN_IF_ERROR(folder.Write(key, kForMe, authority.pem().key_pem));
  WEFT_RETURN_IF_ERROR(folder.Write(certificate, kForAll, authority.pem().certificate_pem));
  *said = StrCat("made ", certificate, " and ", key, " in ", command.folder,
                 ", an authority for development: who has ", key,
                 " can be\nanybody to those who trust ", certificate, "\n");
  return authority;
}

std::string FlagsLine(const CertCommand& command, const std::string& name) {
  const std::string file = StrCat("=", command.folder, "/");
  return StrCat("  --tls-certificate", file, CertificateFile(name), " --tls-key", file,
                KeyFile(name), " --tls-roots", file, CertificateFile(kAuthority), "\n");
}

}  // namespace

absl::StatusOr<CertCommand> ParseCert(const std::vector<std::string>& arguments) {
  CertCommand command;
  int64_t days = kDefaultDays;
  std::vector<std::string> names;
  for (const std::string& argument : arguments) {
    if (argument == "--replace") {
      command.replace = true;
    } else if (argument.starts_with("--days=")) {
      WEFT_ASSIGN_OR_RETURN(days, ParseDays(argument.substr(7)));
    } else if (argument.empty() || argument[0] == '-') {
      return absl::InvalidArgumentError(StrCat("\"", argument, "\" is not understood"));
    } else if (command.folder.empty()) {
      command.folder = argument;
    } else {
      names.push_back(argument);
    }
  }
  if (command.folder.empty()) return absl::InvalidArgumentError("where to? A folder is needed");
  if (names.size() > kMaxCertificates) {
    return absl::InvalidArgumentError(StrCat("at most ", kMaxCertificates, " names at a time"));
  }
  if (names.empty()) names = {"server", "client"};
  for (const std::string& name : names) {
    WEFT_ASSIGN_OR_RETURN(CertificateRequest request, ParseName(name));
    request.valid_until_s = days * kDayS;
    for (const CertificateRequest& other : command.certificates) {
      if (other.common_name != request.common_name) continue;
      return absl::InvalidArgumentError(StrCat("\"", other.common_name, "\" is named twice"));
    }
    command.certificates.push_back(std::move(request));
  }
  return command;
}

absl::StatusOr<std::string> MakeCertificates(const CertCommand& command) {
  WEFT_ASSIGN_OR_RETURN(const PrivateFolder folder, PrivateFolder::Open(command.folder));
  for (const CertificateRequest& request : command.certificates) {
    for (const std::string& file :
         {CertificateFile(request.common_name), KeyFile(request.common_name)}) {
      if (command.replace || !folder.Has(file)) continue;
      return absl::AlreadyExistsError(StrCat(command.folder, "/", file,
                                             " is there already: --replace makes a new one, "
                                             "another name one more"));
    }
  }
  std::string said;
  WEFT_ASSIGN_OR_RETURN(const CertificateAuthority authority, AuthorityOf(folder, command, &said));
  const auto write = command.replace ? &PrivateFolder::Replace : &PrivateFolder::Write;
  for (const CertificateRequest& request : command.certificates) {
    const std::string& name = request.common_name;
    WEFT_ASSIGN_OR_RETURN(const CertificateAndKey made, authority.Sign(request));
    WEFT_RETURN_IF_ERROR((folder.*write)(KeyFile(name), kForMe, made.key_pem));
    WEFT_RETURN_IF_ERROR((folder.*write)(CertificateFile(name), kForAll, made.certificate_pem));
    said = StrCat(said, "made ", CertificateFile(name), " and ", KeyFile(name), "; use them with\n",
                  FlagsLine(command, name));
  }
  return said;
}

int RunCert(const std::vector<std::string>& arguments) {
  const absl::StatusOr<CertCommand> command = ParseCert(arguments);
  if (!command.ok()) {
    std::fprintf(stderr, "weft cert: %s (weft help cert)\n",
                 std::string(command.status().message()).c_str());
    return kUsage;
  }
  const absl::StatusOr<std::string> said = MakeCertificates(*command);
  if (!said.ok()) {
    std::fprintf(stderr, "weft cert: %s\n", std::string(said.status().message()).c_str());
    return kFailed;
  }
  std::fputs(said->c_str(), stdout);
  return kDone;
}

}  // namespace weft::tools
