// What a side shows and wants to see, for tests.
//
// Threads: one at a time. Lifetime: plain values. Errors: this is for tests, they are fatal.
#pragma once

#include <string>

#include "transport/security.h"
#include "transport/tls/testing/certificates.h"

namespace weft {

// A certificate that `authority` has signed; peers have to show one of the same.
inline SecurityOptions Certified(const TestAuthority& authority, const LeafOptions& leaf = {}) {
  const CertificateAndKey made = authority.Sign(leaf);
  SecurityOptions options;
  options.certificate_pem = made.certificate_pem;
  options.key_pem = made.key_pem;
  options.roots_pem = authority.certificate_pem();
  return options;
}

// A secret of this character.
inline SecurityOptions WithPsk(char secret = 's') {
  SecurityOptions options;
  options.psk_name = "fleet";
  options.psk_secret = std::string(kMinPskBytes, secret);
  return options;
}

}  // namespace weft
