#include "transport/tls/certificate_identity.h"

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/x509v3.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace weft {
namespace {

struct Free {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(X509* certificate) const { X509_free(certificate); }
};
using Key = std::unique_ptr<EVP_PKEY, Free>;
using Certificate = std::unique_ptr<X509, Free>;

Key NewKey() {
  Key key(EVP_EC_gen("P-256"));
  EXPECT_NE(key, nullptr);
  return key;
}

// "DNS:a.example, IP:127.0.0.1" and "a" as a common name; of either there may be none. Nobody has
// signed it: that is looked at elsewhere.
Certificate Certify(const Key& key, const char* alternative_names = "",
                    const char* common_name = "") {
  Certificate certificate(X509_new());
  EXPECT_EQ(X509_set_pubkey(certificate.get(), key.get()), 1);
  if (*common_name != 0) {
    EXPECT_EQ(
        X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate.get()), "CN", MBSTRING_ASC,
                                   reinterpret_cast<const unsigned char*>(common_name), -1, -1, 0),
        1);
  }
  if (*alternative_names != 0) {
    X509_EXTENSION* const extension =
        X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, alternative_names);
    EXPECT_EQ(X509_add_ext(certificate.get(), extension, -1), 1);
    X509_EXTENSION_free(extension);
  }
  return certificate;
}

TEST(CertificateIdentityTest, ItIsWhatTheCertificateSaysOfItsHolder) {
  const PeerIdentity identity =
      IdentityOf(Certify(NewKey(), "DNS:a.example, IP:127.0.0.1, URI:spiffe://x/y", "a b").get());
  EXPECT_EQ(identity.authentication, Authentication::kCertificate);
  EXPECT_EQ(identity.subject, "CN=a b");
  EXPECT_EQ(identity.dns_names, std::vector<std::string>{"a.example"});
  EXPECT_EQ(identity.uris, std::vector<std::string>{"spiffe://x/y"});
  EXPECT_EQ(identity.ip_addresses, std::vector<std::string>{"127.0.0.1"});
}

// As rules of a policy write them, too: each address has one text.
TEST(CertificateIdentityTest, AddressesHaveOneText) {
  const std::vector<std::string> expected = {"10.1.2.3", "2001:db8::1", "::ffff:10.1.2.3"};
  EXPECT_EQ(IdentityOf(
                Certify(NewKey(), "IP:10.1.2.3, IP:2001:DB8:0:0:0:0:0:1, IP:::ffff:10.1.2.3").get())
                .ip_addresses,
            expected);
}

// A network, as in constraints of an authority, is no address; nor are three bytes.
TEST(CertificateIdentityTest, WhatIsNoAddressIsLeftOut) {
  const Certificate certificate = Certify(NewKey());
  GENERAL_NAMES* const names = GENERAL_NAMES_new();
  for (const int bytes : {0, 3, 5, 8, 32}) {
    GENERAL_NAME* const name = GENERAL_NAME_new();
    ASN1_OCTET_STRING* const address = ASN1_OCTET_STRING_new();
    const std::string zeros(static_cast<size_t>(bytes), '\0');
    ASN1_OCTET_STRING_set(address, reinterpret_cast<const unsigned char*>(zeros.data()), bytes);
    GENERAL_NAME_set0_value(name, GEN_IPADD, address);
    sk_GENERAL_NAME_push(names, name);
  }
  EXPECT_EQ(X509_add1_ext_i2d(certificate.get(), NID_subject_alt_name, names, 0, 0), 1);
  GENERAL_NAMES_free(names);
  EXPECT_TRUE(IdentityOf(certificate.get()).ip_addresses.empty());
}

// Two whose certificates had neither names nor a subject counted as one peer: as one client of the
// limits, and either could take the place of the other in a session of servers.
TEST(CertificateIdentityTest, WithoutNamesAndSubjectItIsItsKey) {
  const Key key = NewKey();
  const std::string subject = IdentityOf(Certify(key).get()).subject;
  EXPECT_EQ(subject.find("public key SHA-256 "), 0u) << subject;
  EXPECT_EQ(subject.size(), std::strlen("public key SHA-256 ") + 64);
  EXPECT_EQ(subject.find_first_not_of("0123456789abcdef", std::strlen("public key SHA-256 ")),
            std::string::npos)
      << subject;
  EXPECT_EQ(IdentityOf(Certify(key).get()).subject, subject) << "it was issued again";
  EXPECT_EQ(IdentityOf(Certify(key, "IP:127.0.0.1").get()).subject, subject)
      << "an address tells nobody apart";
  EXPECT_NE(IdentityOf(Certify(NewKey()).get()).subject, subject);
}

// One that is issued again with another key has the same names, and is the same peer.
TEST(CertificateIdentityTest, WithANameOrASubjectTheKeyIsNotLookedAt) {
  for (const char* const name : {"DNS:a.example", "URI:spiffe://x/y"}) {
    EXPECT_EQ(IdentityOf(Certify(NewKey(), name).get()).subject, "") << name;
  }
  EXPECT_EQ(IdentityOf(Certify(NewKey(), "", "a").get()).subject, "CN=a");
}

}  // namespace
}  // namespace weft
