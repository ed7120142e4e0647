#include "transport/tls/testing/certificates.h"

#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "core/check.h"

namespace weft {
namespace {

constexpr int64_t kAuthorityValidS = 7200;  // longer than LeafOptions::valid_until

template <class T>
T Checked(absl::StatusOr<T> made) {
  WEFT_CHECK(made.ok());
  return *std::move(made);
}

}  // namespace

TestAuthority::TestAuthority(const std::string& name)
    : authority_(Checked(CertificateAuthority::Create(name, kAuthorityValidS))) {}

CertificateAndKey TestAuthority::Sign(const LeafOptions& options) const {
  CertificateRequest request;
  request.common_name = options.common_name;
  request.valid_from_s = options.valid_from;
  request.valid_until_s = options.valid_until;
  for (const std::string& name : std::vector<std::string>(
           absl::StrSplit(options.alternative_names, ',', absl::SkipEmpty()))) {
    const std::pair<std::string, std::string> kind_and_value =
        absl::StrSplit(name, absl::MaxSplits(':', 1));
    const auto& [kind, value] = kind_and_value;
    WEFT_CHECK(kind == "DNS" || kind == "IP" || kind == "URI");
    (kind == "DNS"  ? request.dns_names
     : kind == "IP" ? request.addresses
                    : request.uris)
        .push_back(value);
  }
  return Checked(authority_.Sign(request));
}

}  // namespace weft
