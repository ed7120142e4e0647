#include "transport/tls/testing/certificates.h"

#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "core/check.h"
#include "core/random.h"

namespace weft {
namespace {

std::string TextOf(BIO* bio) {
  char* data = nullptr;
  const long bytes = BIO_get_mem_data(bio, &data);
  std::string text(data, static_cast<size_t>(bytes));
  BIO_free(bio);
  return text;
}

std::string PemOf(X509* certificate) {
  BIO* const bio = BIO_new(BIO_s_mem());
  WEFT_CHECK(PEM_write_bio_X509(bio, certificate) == 1);
  return TextOf(bio);
}

void AddExtension(X509* certificate, X509* issuer, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str());
  WEFT_CHECK(extension != nullptr);
  WEFT_CHECK(X509_add_ext(certificate, extension, -1) == 1);
  X509_EXTENSION_free(extension);
}

X509* NewCertificate(EVP_PKEY* key, const std::string& name, long from, long until) {
  X509* const made = X509_new();
  X509_set_version(made, X509_VERSION_3);
  ASN1_INTEGER_set_uint64(X509_get_serialNumber(made), SecureRandom64() >> 1);
  X509_gmtime_adj(X509_getm_notBefore(made), from);
  X509_gmtime_adj(X509_getm_notAfter(made), until);
  X509_set_pubkey(made, key);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(made), "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  return made;
}

}  // namespace

TestAuthority::TestAuthority(const std::string& name) : key_(EVP_EC_gen("P-256")) {
  WEFT_CHECK(key_ != nullptr);
  certificate_.reset(NewCertificate(key_.get(), name, -7200, 7200));
  X509* const own = certificate_.get();
  X509_set_issuer_name(own, X509_get_subject_name(own));
  AddExtension(own, own, NID_basic_constraints, "critical,CA:TRUE");
  AddExtension(own, own, NID_key_usage, "critical,keyCertSign,cRLSign");
  AddExtension(own, own, NID_subject_key_identifier, "hash");
  WEFT_CHECK(X509_sign(own, key_.get(), EVP_sha256()) > 0);
  certificate_pem_ = PemOf(own);
}

CertificateAndKey TestAuthority::Sign(const LeafOptions& options) const {
  const std::unique_ptr<EVP_PKEY, Free> key(EVP_EC_gen("P-256"));
  const std::unique_ptr<X509, Free> leaf(
      NewCertificate(key.get(), options.common_name, options.valid_from, options.valid_until));
  X509_set_issuer_name(leaf.get(), X509_get_subject_name(certificate_.get()));
  AddExtension(leaf.get(), certificate_.get(), NID_basic_constraints, "critical,CA:FALSE");
  AddExtension(leaf.get(), certificate_.get(), NID_key_usage, "critical,digitalSignature");
  AddExtension(leaf.get(), certificate_.get(), NID_ext_key_usage, "serverAuth,clientAuth");
  if (!options.alternative_names.empty()) {
    AddExtension(leaf.get(), certificate_.get(), NID_subject_alt_name, options.alternative_names);
  }
  WEFT_CHECK(X509_sign(leaf.get(), key_.get(), EVP_sha256()) > 0);
  BIO* const bio = BIO_new(BIO_s_mem());
  WEFT_CHECK(PEM_write_bio_PrivateKey(bio, key.get(), nullptr, nullptr, 0, nullptr, nullptr) == 1);
  return {PemOf(leaf.get()), TextOf(bio)};
}

}  // namespace weft
