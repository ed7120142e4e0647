// Certificates for tests: an authority, and certificates that it signs. EC P-256.
//
// Threads: one at a time. Lifetime: as a plain value. Errors: this is for tests, OpenSSL's are
//   fatal.
#pragma once

#include <openssl/evp.h>
#include <openssl/x509.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace weft {

struct CertificateAndKey {
  std::string certificate_pem;
  std::string key_pem;
};

struct LeafOptions {
  // In the syntax of OpenSSL's configuration: "DNS:localhost,IP:127.0.0.1,URI:spiffe://x/y".
  std::string alternative_names = "DNS:localhost,IP:127.0.0.1";
  std::string common_name = "a test";
  // From now, in seconds.
  long valid_from = -3600;
  long valid_until = 3600;
};

class TestAuthority {
 public:
  explicit TestAuthority(const std::string& name = "an authority for tests");

  CertificateAndKey Sign(const LeafOptions& options) const;
  const std::string& certificate_pem() const { return certificate_pem_; }

 private:
  struct Free {
    void operator()(X509* certificate) const { X509_free(certificate); }
    void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  };
  std::unique_ptr<X509, Free> certificate_;
  std::unique_ptr<EVP_PKEY, Free> key_;
  std::string certificate_pem_;
};

}  // namespace weft
