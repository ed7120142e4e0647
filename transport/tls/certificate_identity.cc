#include "transport/tls/certificate_identity.h"

#include <openssl/bio.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <string>
#include <utility>

namespace weft {
namespace {

std::string Text(const ASN1_STRING* string) {
  return std::string(reinterpret_cast<const char*>(ASN1_STRING_get0_data(string)),
                     static_cast<size_t>(ASN1_STRING_length(string)));
}

std::string Subject(const X509* certificate) {
  BIO* const out = BIO_new(BIO_s_mem());
  X509_NAME_print_ex(out, X509_get_subject_name(certificate), 0, XN_FLAG_RFC2253);
  char* data = nullptr;
  const long bytes = BIO_get_mem_data(out, &data);
  std::string subject(data, static_cast<size_t>(std::max(bytes, 0L)));
  BIO_free(out);
  return subject;
}

}  // namespace

PeerIdentity IdentityOf(const X509* certificate) {
  PeerIdentity identity;
  identity.authentication = Authentication::kCertificate;
  identity.subject = Subject(certificate);
  auto* const names = static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr));
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names, i);
    if (name->type != GEN_DNS && name->type != GEN_URI) continue;
    std::string text = Text(name->d.ia5);
    if (text.find('\0') != std::string::npos) continue;
    (name->type == GEN_DNS ? identity.dns_names : identity.uris).push_back(std::move(text));
  }
  GENERAL_NAMES_free(names);
  return identity;
}

}  // namespace weft
