// Makes certificates: an authority, and certificates that it signs, for servers and clients alike.
// EC P-256 keys, SHA-256, X.509 version 3 with the extensions that strict verifiers ask for.
//
// For development (`weft cert`) and for tests: the authority's key lies in a file or in memory, and
// nothing is ever revoked.
//
// Threads: a constant after it is made. Lifetime: as a plain value that is moved, not copied.
// Errors: INVALID_ARGUMENT for names that a certificate cannot have and PEM texts that are not an
//   authority; FAILED_PRECONDITION for an authority that has expired; INTERNAL with OpenSSL's
//   reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct evp_pkey_st;  // OpenSSL's EVP_PKEY
struct x509_st;      // OpenSSL's X509

namespace weft {

// Texts in PEM form.
struct CertificateAndKey {
  std::string certificate_pem;
  std::string key_pem;  // PKCS #8, not encrypted
};

struct CertificateRequest {
  std::string common_name;  // 1..kMaxCommonNameBytes
  // The names that others trust it by, at most kMaxNames of all kinds, each of printable ASCII.
  std::vector<std::string> dns_names = {};
  std::vector<std::string> addresses = {};  // numeric: "127.0.0.1", "::1"
  std::vector<std::string> uris = {};
  // Seconds from now. A certificate that would outlive its authority ends with it.
  int64_t valid_from_s = -kClockSkewS;
  int64_t valid_until_s = 0;

  // For the clocks of hosts that are behind the one that signs.
  static constexpr int64_t kClockSkewS = 3600;
  static constexpr size_t kMaxCommonNameBytes = 64;  // X.520's ub-common-name
  static constexpr size_t kMaxNameBytes = 255;       // of a DNS name, and enough for a URI
  static constexpr size_t kMaxNames = 64;            // a certificate of some KiB, not a directory
};

class CertificateAuthority {
 public:
  // A new one, with a new key; `name` as a common name.
  static absl::StatusOr<CertificateAuthority> Create(const std::string& name, int64_t valid_s);
  // One that was made before.
  static absl::StatusOr<CertificateAuthority> FromPem(const CertificateAndKey& pem);

  // A certificate with a new key, of which this object keeps nothing.
  absl::StatusOr<CertificateAndKey> Sign(const CertificateRequest& request) const;

  const CertificateAndKey& pem() const { return pem_; }

 private:
  struct Free {
    void operator()(x509_st* certificate) const;
    void operator()(evp_pkey_st* key) const;
  };
  using CertificatePtr = std::unique_ptr<x509_st, Free>;
  using KeyPtr = std::unique_ptr<evp_pkey_st, Free>;

  CertificateAuthority(CertificatePtr certificate, KeyPtr key, CertificateAndKey pem);

  CertificatePtr certificate_;
  KeyPtr key_;
  CertificateAndKey pem_;
};

}  // namespace weft
