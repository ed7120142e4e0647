// Who a certificate says that its holder is, for a fuzzer.
//
// The bytes are a certificate in DER. Whoever asks an authority for one chooses its names, so any
// certificate that OpenSSL can read may be a peer's: what it is called has no zero inside, is the
// same each time, and is never nothing, for all who are called nothing would be one. Nor is it that
// of a peer with other names.

#include <openssl/err.h>
#include <openssl/x509.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/check.h"
#include "transport/identity.h"
#include "transport/tls/certificate_identity.h"

namespace weft {
namespace {

void Check(const std::vector<std::string>& names) {
  for (const std::string& name : names) WEFT_CHECK(name.find('\0') == std::string::npos);
}

// `made`: other names out of the same letters, in the same order.
void CheckOther(const PeerIdentity& made, const PeerIdentity& identity) {
  WEFT_CHECK(ProvedNames(made) != ProvedNames(identity));
}

// Addresses tell nobody apart; any other name does.
void CheckProvedNames(const PeerIdentity& identity) {
  PeerIdentity made = identity;
  made.ip_addresses.clear();
  WEFT_CHECK(ProvedNames(made) == ProvedNames(identity));
  if (!identity.dns_names.empty()) {
    const std::string& last = identity.dns_names.back();
    made.dns_names.pop_back();
    made.uris.insert(made.uris.begin(), last);
    CheckOther(made, identity);
    made = identity;
    made.dns_names.back() = last.substr(0, last.size() / 2);
    made.dns_names.push_back(last.substr(last.size() / 2));
    CheckOther(made, identity);
  }
  if (!identity.subject.empty()) {
    made = identity;
    made.psk_name = made.subject.back() + made.psk_name;
    made.subject.pop_back();
    CheckOther(made, identity);
  }
}

void Run(const X509* certificate) {
  const PeerIdentity identity = IdentityOf(certificate);
  WEFT_CHECK(identity.authentication == Authentication::kCertificate);
  WEFT_CHECK(!identity.subject.empty() || !identity.dns_names.empty() || !identity.uris.empty());
  Check({identity.subject});
  Check(identity.dns_names);
  Check(identity.uris);
  Check(identity.ip_addresses);
  WEFT_CHECK(ProvedNames(IdentityOf(certificate)) == ProvedNames(identity));
  CheckProvedNames(identity);
}

}  // namespace
}  // namespace weft

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const unsigned char* at = data;
  X509* const certificate = d2i_X509(nullptr, &at, static_cast<long>(size));
  // Of a key that it cannot read there is no proof: no handshake comes so far.
  if (certificate != nullptr && X509_get0_pubkey(certificate) != nullptr) weft::Run(certificate);
  X509_free(certificate);
  ERR_clear_error();
  return 0;
}
