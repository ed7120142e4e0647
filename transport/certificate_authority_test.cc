#include "transport/certificate_authority.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <ctime>

namespace weft {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kDayS = 86'400;

struct Free {
  void operator()(X509* certificate) const { X509_free(certificate); }
};
using CertificatePtr = std::unique_ptr<X509, Free>;

CertificatePtr Parse(const std::string& pem) {
  BIO* const bio = BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()));
  CertificatePtr certificate(PEM_read_bio_X509(bio, nullptr, nullptr, nullptr));
  BIO_free(bio);
  return certificate;
}

// What a verifier that is as strict as OpenSSL can be says; "ok" when it is content.
std::string Verify(const std::string& root_pem, const std::string& pem, int purpose) {
  const CertificatePtr root = Parse(root_pem), leaf = Parse(pem);
  X509_STORE* const store = X509_STORE_new();
  X509_STORE_add_cert(store, root.get());
  X509_STORE_CTX* const context = X509_STORE_CTX_new();
  X509_STORE_CTX_init(context, store, leaf.get(), nullptr);
  X509_STORE_CTX_set_flags(context, X509_V_FLAG_X509_STRICT);
  X509_STORE_CTX_set_purpose(context, purpose);
  X509_verify_cert(context);
  const std::string said = X509_verify_cert_error_string(X509_STORE_CTX_get_error(context));
  X509_STORE_CTX_free(context);
  X509_STORE_free(store);
  return said;
}

CertificateAuthority NewAuthority(int64_t valid_s = kDayS) {
  auto authority = CertificateAuthority::Create("an authority", valid_s);
  EXPECT_TRUE(authority.ok()) << authority.status();
  return *std::move(authority);
}

TEST(CertificateAuthority, SignsWhatAStrictVerifierTakes) {
  const CertificateAuthority authority = NewAuthority();
  const auto made = authority.Sign({.common_name = "store",
                                    .dns_names = {"store.example.org", "localhost"},
                                    .addresses = {"127.0.0.1", "::1"},
                                    .uris = {"spiffe://example.org/store"},
                                    .valid_until_s = kDayS / 2});
  ASSERT_TRUE(made.ok()) << made.status();
  const std::string& root = authority.pem().certificate_pem;
  EXPECT_EQ(Verify(root, made->certificate_pem, X509_PURPOSE_SSL_SERVER), "ok");
  EXPECT_EQ(Verify(root, made->certificate_pem, X509_PURPOSE_SSL_CLIENT), "ok");
  const CertificatePtr leaf = Parse(made->certificate_pem);
  EXPECT_EQ(X509_check_host(leaf.get(), "store.example.org", 0, 0, nullptr), 1);
  EXPECT_EQ(X509_check_host(leaf.get(), "other.example.org", 0, 0, nullptr), 0);
  EXPECT_EQ(X509_check_ip_asc(leaf.get(), "127.0.0.1", 0), 1);
  EXPECT_EQ(X509_check_ip_asc(leaf.get(), "::1", 0), 1);
  EXPECT_EQ(X509_check_ip_asc(leaf.get(), "127.0.0.2", 0), 0);
  EXPECT_EQ(X509_check_ca(leaf.get()), 0);
}

TEST(CertificateAuthority, IsNotAnother) {
  const CertificateAuthority authority = NewAuthority(), other = NewAuthority();
  const auto made = authority.Sign({.common_name = "store", .valid_until_s = kDayS});
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_NE(Verify(other.pem().certificate_pem, made->certificate_pem, X509_PURPOSE_SSL_SERVER),
            "ok");
}

TEST(CertificateAuthority, GoesOnFromItsText) {
  const CertificateAuthority first = NewAuthority();
  const auto again = CertificateAuthority::FromPem(first.pem());
  ASSERT_TRUE(again.ok()) << again.status();
  const auto made = again->Sign({.common_name = "store", .valid_until_s = kDayS});
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(Verify(first.pem().certificate_pem, made->certificate_pem, X509_PURPOSE_SSL_SERVER),
            "ok");
}

TEST(CertificateAuthority, TakesNoTextThatIsNone) {
  const CertificateAuthority authority = NewAuthority();
  const auto leaf = authority.Sign({.common_name = "store", .valid_until_s = kDayS});
  ASSERT_TRUE(leaf.ok()) << leaf.status();
  const CertificateAndKey& own = authority.pem();
  const struct {
    CertificateAndKey pem;
    const char* why;
  } kCases[] = {{{"", ""}, "not a certificate and a key"},
                {{own.certificate_pem, own.certificate_pem}, "not a certificate and a key"},
                {{own.certificate_pem, leaf->key_pem}, "not the certificate of an authority"},
                {*leaf, "not the certificate of an authority"}};
  for (const auto& c : kCases) {
    const absl::Status status = CertificateAuthority::FromPem(c.pem).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.why;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.why));
  }
}

// A certificate that outlived its authority would be refused, and nobody could see why in its
// dates.
TEST(CertificateAuthority, SignsNothingThatOutlivesIt) {
  const CertificateAuthority authority = NewAuthority(3600);
  const auto made = authority.Sign({.common_name = "store", .valid_until_s = kDayS});
  ASSERT_TRUE(made.ok()) << made.status();
  const CertificatePtr root = Parse(authority.pem().certificate_pem);
  const CertificatePtr leaf = Parse(made->certificate_pem);
  EXPECT_EQ(ASN1_TIME_compare(X509_get0_notAfter(leaf.get()), X509_get0_notAfter(root.get())), 0);
  EXPECT_EQ(
      NewAuthority(-60).Sign({.common_name = "store", .valid_until_s = kDayS}).status().code(),
      absl::StatusCode::kFailedPrecondition);
}

TEST(CertificateAuthority, RefusesNamesThatNoCertificateHas) {
  const CertificateAuthority authority = NewAuthority();
  const std::vector<std::string> many(CertificateRequest::kMaxNames + 1, "a");
  const struct {
    CertificateRequest request;
    const char* why;
  } kCases[] = {
      {{.common_name = ""}, "1 to 64 characters"},
      {{.common_name = std::string(65, 'a')}, "1 to 64 characters"},
      {{.common_name = "line\nfeed"}, "1 to 64 characters"},
      {{.common_name = "a", .dns_names = {""}}, "cannot be a name"},
      {{.common_name = "a", .dns_names = {std::string("a\0b", 3)}}, "cannot be a name"},
      {{.common_name = "a", .uris = {"spiffe://a b"}}, "cannot be a name"},
      {{.common_name = "a", .addresses = {"localhost"}}, "\"localhost\" is not a numeric address"},
      {{.common_name = "a", .dns_names = many}, "65 names for one certificate"},
  };
  for (const auto& c : kCases) {
    const absl::Status status = authority.Sign(c.request).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.why;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.why));
  }
}

}  // namespace
}  // namespace weft
