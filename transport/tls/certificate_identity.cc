#include "transport/tls/certificate_identity.h"

#include <arpa/inet.h>
#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/sha.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "core/check.h"

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

// "": it has neither 4 nor 16 bytes, as a network has.
std::string Address(const ASN1_OCTET_STRING* address) {
  const int bytes = ASN1_STRING_length(address);
  char text[INET6_ADDRSTRLEN] = "";
  if (bytes == 4 || bytes == 16) {
    ::inet_ntop(bytes == 4 ? AF_INET : AF_INET6, ASN1_STRING_get0_data(address), text,
                sizeof(text));
  }
  return text;
}

// Of all of the key, its parameters too: with those of a signer's choice two curves have one point.
std::string KeyDigest(const X509* certificate) {
  unsigned char* der = nullptr;
  const int bytes = i2d_X509_PUBKEY(X509_get_X509_PUBKEY(certificate), &der);
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest;
  // System: OpenSSL has read the key, knows SHA-256, and has memory
  WEFT_CHECK(bytes > 0 && EVP_Digest(der, static_cast<size_t>(bytes), digest.data(), nullptr,
                                     EVP_sha256(), nullptr) == 1);
  OPENSSL_free(der);
  std::string text;
  for (const unsigned char byte : digest) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
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
    if (name->type == GEN_IPADD) {
      std::string address = Address(name->d.iPAddress);
      if (!address.empty()) identity.ip_addresses.push_back(std::move(address));
    }
    if (name->type != GEN_DNS && name->type != GEN_URI) continue;
    std::string text = Text(name->d.ia5);
    if (text.find('\0') != std::string::npos) continue;
    (name->type == GEN_DNS ? identity.dns_names : identity.uris).push_back(std::move(text));
  }
  GENERAL_NAMES_free(names);
  if (identity.subject.empty() && identity.dns_names.empty() && identity.uris.empty()) {
    identity.subject = "public key SHA-256 " + KeyDigest(certificate);
  }
  return identity;
}

}  // namespace weft
