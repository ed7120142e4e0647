// Certificates for tests: an authority, and certificates that it signs.
//
// Threads: one at a time. Lifetime: as a plain value. Errors: this is for tests, they are fatal.
#pragma once

#include <cstdint>
#include <string>

#include "transport/certificate_authority.h"

namespace weft {

struct LeafOptions {
  // "DNS:localhost,IP:127.0.0.1,URI:spiffe://x/y".
  std::string alternative_names = "DNS:localhost,IP:127.0.0.1";
  std::string common_name = "a test";
  // From now, in seconds.
  int64_t valid_from = -3600;
  int64_t valid_until = 3600;
};

class TestAuthority {
 public:
  explicit TestAuthority(const std::string& name = "an authority for tests");

  CertificateAndKey Sign(const LeafOptions& options) const;
  const std::string& certificate_pem() const { return authority_.pem().certificate_pem; }

 private:
  const CertificateAuthority authority_;
};

}  // namespace weft
