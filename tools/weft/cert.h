// `weft cert`: an authority and certificates for development, so that trying TLS takes one command.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/certificate_authority.h"

namespace weft::tools {

extern const char kCertDetails[];

struct CertCommand {
  std::string folder;
  // Their common names are those of their files.
  std::vector<CertificateRequest> certificates;
  bool replace = false;
};

// INVALID_ARGUMENT names the argument and what it may be.
absl::StatusOr<CertCommand> ParseCert(const std::vector<std::string>& arguments);

// Makes the files; returns what there is to say of them. ALREADY_EXISTS, and nothing is written,
// where one of the files is there and is not to be replaced.
absl::StatusOr<std::string> MakeCertificates(const CertCommand& command);

int RunCert(const std::vector<std::string>& arguments);

}  // namespace weft::tools
