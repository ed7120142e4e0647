#include "transport/certificate_authority.h"

#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <ctime>
#include <string_view>
#include <utility>

#include "core/random.h"
#include "core/status.h"
#include "core/strings.h"
#include "transport/pem.h"

namespace weft {
namespace {

using Request = CertificateRequest;

using ExtensionPtr = std::unique_ptr<X509_EXTENSION, Freer<X509_EXTENSION_free>>;
using NamesPtr = std::unique_ptr<GENERAL_NAMES, Freer<GENERAL_NAMES_free>>;

// OpenSSL's first reason, and an empty queue for whoever uses it next.
absl::Status Failed(std::string_view what) {
  const char* const reason = ERR_reason_error_string(ERR_get_error());
  ERR_clear_error();
  return absl::InternalError(
      StrCat("OpenSSL cannot make ", what, ": ", reason == nullptr ? "no reason given" : reason));
}

bool IsPrintable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7f; });
}

absl::Status CheckCommonName(const std::string& name) {
  const bool fits = !name.empty() && name.size() <= Request::kMaxCommonNameBytes;
  if (fits && std::all_of(name.begin(), name.end(), [](char c) { return c >= ' ' && c < 0x7f; })) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(StrCat("a certificate's name has 1 to ",
                                           Request::kMaxCommonNameBytes,
                                           " characters, all of printable ASCII"));
}

absl::StatusOr<std::string> TextOf(BIO* bio) {
  char* data = nullptr;
  const long bytes = BIO_get_mem_data(bio, &data);
  if (bytes <= 0) return Failed("a PEM text");
  return std::string(data, static_cast<size_t>(bytes));
}

absl::StatusOr<CertificateAndKey> PemOf(X509* certificate, EVP_PKEY* key) {
  const BioPtr certificate_bio(BIO_new(BIO_s_mem()));
  const BioPtr key_bio(BIO_new(BIO_s_secmem()));
  if (certificate_bio == nullptr || key_bio == nullptr ||
      PEM_write_bio_X509(certificate_bio.get(), certificate) != 1 ||
      PEM_write_bio_PrivateKey(key_bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr) != 1) {
    return Failed("a PEM text");
  }
  CertificateAndKey pem;
  WEFT_ASSIGN_OR_RETURN(pem.certificate_pem, TextOf(certificate_bio.get()));
  WEFT_ASSIGN_OR_RETURN(pem.key_pem, TextOf(key_bio.get()));
  return pem;
}

// `value` in the syntax of OpenSSL's configuration: constants of this file, never somebody's words.
bool AddExtension(X509* certificate, X509* issuer, int kind, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const ExtensionPtr extension(X509V3_EXT_conf_nid(nullptr, &context, kind, value));
  return extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1;
}

absl::Status AddName(GENERAL_NAMES* names, int kind, const std::string& value) {
  if (value.empty() || value.size() > Request::kMaxNameBytes || !IsPrintable(value)) {
    return absl::InvalidArgumentError(StrCat("\"", value, "\" cannot be a name in a certificate"));
  }
  GENERAL_NAME* const name =
      a2i_GENERAL_NAME(nullptr, nullptr, nullptr, kind, value.c_str(), /*is_nc=*/0);
  if (name == nullptr) {
    ERR_clear_error();
    return absl::InvalidArgumentError(StrCat("\"", value, "\" is not a numeric address"));
  }
  if (sk_GENERAL_NAME_push(names, name) > 0) return absl::OkStatus();
  GENERAL_NAME_free(name);
  return Failed("a list of names");
}

absl::Status AddNames(X509* certificate, const Request& request) {
  const NamesPtr names(GENERAL_NAMES_new());
  if (names == nullptr) return Failed("a list of names");
  for (const auto& [kind, values] :
       {std::pair(GEN_DNS, &request.dns_names), std::pair(GEN_IPADD, &request.addresses),
        std::pair(GEN_URI, &request.uris)}) {
    for (const std::string& value : *values) {
      WEFT_RETURN_IF_ERROR(AddName(names.get(), kind, value));
    }
  }
  const auto count = static_cast<size_t>(sk_GENERAL_NAME_num(names.get()));
  if (count == 0) return absl::OkStatus();
  if (count > Request::kMaxNames) {
    return absl::InvalidArgumentError(
        StrCat(count, " names for one certificate; at most ", Request::kMaxNames, " are possible"));
  }
  if (X509_add1_ext_i2d(certificate, NID_subject_alt_name, names.get(), 0, X509V3_ADD_DEFAULT) != 1)
    return Failed("a list of names");
  return absl::OkStatus();
}

// All but its issuer, extensions and signature.
bool Fill(X509* certificate, EVP_PKEY* key, const std::string& name, int64_t from_s,
          int64_t until_s) {
  return X509_set_version(certificate, X509_VERSION_3) == 1 &&
         ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate), SecureRandom64() >> 1) == 1 &&
         X509_gmtime_adj(X509_getm_notBefore(certificate), from_s) != nullptr &&
         X509_gmtime_adj(X509_getm_notAfter(certificate), until_s) != nullptr &&
         X509_set_pubkey(certificate, key) == 1 &&
         X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_UTF8,
                                    reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1,
                                    0) == 1;
}

}  // namespace

void CertificateAuthority::Free::operator()(x509_st* certificate) const { X509_free(certificate); }
void CertificateAuthority::Free::operator()(evp_pkey_st* key) const { EVP_PKEY_free(key); }

CertificateAuthority::CertificateAuthority(CertificatePtr certificate, KeyPtr key,
                                           CertificateAndKey pem)
    : certificate_(std::move(certificate)), key_(std::move(key)), pem_(std::move(pem)) {}

absl::StatusOr<CertificateAuthority> CertificateAuthority::Create(const std::string& name,
                                                                  int64_t valid_s) {
  WEFT_RETURN_IF_ERROR(CheckCommonName(name));
  KeyPtr key(EVP_EC_gen("P-256"));
  CertificatePtr certificate(X509_new());
  X509* const own = certificate.get();
  // pathlen 0: it signs certificates of programs, and no further authorities.
  if (key == nullptr || own == nullptr ||
      !Fill(own, key.get(), name, -2 * Request::kClockSkewS, valid_s) ||
      X509_set_issuer_name(own, X509_get_subject_name(own)) != 1 ||
      !AddExtension(own, own, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") ||
      !AddExtension(own, own, NID_key_usage, "critical,keyCertSign,cRLSign") ||
      !AddExtension(own, own, NID_subject_key_identifier, "hash") ||
      X509_sign(own, key.get(), EVP_sha256()) <= 0) {
    return Failed("an authority");
  }
  WEFT_ASSIGN_OR_RETURN(CertificateAndKey pem, PemOf(own, key.get()));
  return CertificateAuthority(std::move(certificate), std::move(key), std::move(pem));
}

absl::StatusOr<CertificateAuthority> CertificateAuthority::FromPem(const CertificateAndKey& pem) {
  const BioPtr certificate_bio = OpenPem(pem.certificate_pem);
  const BioPtr key_bio = OpenPem(pem.key_pem);
  CertificatePtr certificate(
      PEM_read_bio_X509(certificate_bio.get(), nullptr, NoPassword, nullptr));
  KeyPtr key(PEM_read_bio_PrivateKey(key_bio.get(), nullptr, NoPassword, nullptr));
  const bool complete = certificate != nullptr && key != nullptr;
  const bool signs = complete && X509_check_ca(certificate.get()) == 1 &&
                     X509_check_private_key(certificate.get(), key.get()) == 1;
  ERR_clear_error();
  if (!complete) {
    return absl::InvalidArgumentError("not a certificate and a key, in PEM form and not encrypted");
  }
  if (!signs) {
    return absl::InvalidArgumentError("not the certificate of an authority, and the key of it");
  }
  return CertificateAuthority(std::move(certificate), std::move(key), pem);
}

absl::StatusOr<CertificateAndKey> CertificateAuthority::Sign(
    const CertificateRequest& request) const {
  WEFT_RETURN_IF_ERROR(CheckCommonName(request.common_name));
  X509* const issuer = certificate_.get();
  if (X509_cmp_current_time(X509_get0_notAfter(issuer)) < 0) {
    return absl::FailedPreconditionError("the authority has expired; make another one");
  }
  const KeyPtr key(EVP_EC_gen("P-256"));
  const CertificatePtr certificate(X509_new());
  X509* const own = certificate.get();
  if (key == nullptr || own == nullptr ||
      !Fill(own, key.get(), request.common_name, request.valid_from_s, request.valid_until_s) ||
      X509_set_issuer_name(own, X509_get_subject_name(issuer)) != 1 ||
      !AddExtension(own, issuer, NID_basic_constraints, "critical,CA:FALSE") ||
      !AddExtension(own, issuer, NID_key_usage, "critical,digitalSignature") ||
      !AddExtension(own, issuer, NID_ext_key_usage, "serverAuth,clientAuth") ||
      !AddExtension(own, issuer, NID_subject_key_identifier, "hash") ||
      !AddExtension(own, issuer, NID_authority_key_identifier, "keyid:always")) {
    return Failed("a certificate");
  }
  if (ASN1_TIME_compare(X509_get0_notAfter(own), X509_get0_notAfter(issuer)) > 0 &&
      X509_set1_notAfter(own, X509_get0_notAfter(issuer)) != 1) {
    return Failed("a certificate");
  }
  WEFT_RETURN_IF_ERROR(AddNames(own, request));
  if (X509_sign(own, key_.get(), EVP_sha256()) <= 0) return Failed("a signature");
  return PemOf(own, key.get());
}

}  // namespace weft
