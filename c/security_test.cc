// TLS of the C interface whose certificates are texts in memory, and what a program has that was
// built before there were any.

#include <gtest/gtest.h>

#include <cstddef>
#include <string>

#include "c/testing/loopback.h"
#include "transport/certificate_authority.h"

namespace weft {
namespace {

using c_test::Bytes;
using c_test::Defaults;
using c_test::Take;

class SecurityTest : public ::testing::Test {
 protected:
  SecurityTest() : authority_(*CertificateAuthority::Create("one", /*valid_s=*/3600)) {
    CertificateRequest request;
    request.common_name = "localhost";
    request.addresses = {"127.0.0.1"};
    request.valid_until_s = 3600;
    own_ = *authority_.Sign(request);
  }

  // Points into own_ and `roots`.
  weft_security WithTexts(const std::string& roots) const {
    auto security = Defaults<weft_security>();
    security.certificate_pem = Bytes(own_.certificate_pem);
    security.key_pem = Bytes(own_.key_pem);
    security.roots_pem = Bytes(roots);
    return security;
  }
  const std::string& roots() const { return authority_.pem().certificate_pem; }

  static std::string Serve(const weft_security& security, weft_server** server) {
    auto options = Defaults<weft_server_options>();
    options.security = &security;
    EXPECT_OK(weft_server_new(nullptr, &options, server));
    return Take(weft_server_listen(*server, "127.0.0.1:0"));
  }
  // What connecting comes to.
  static std::string Connect(const weft_server* server, const weft_security* security) {
    auto options = Defaults<weft_channel_options>();
    options.security = security;
    weft_channel* channel = nullptr;
    const std::string opened =
        Take(weft_channel_open(nullptr, weft_server_address(server), &options, &channel));
    if (opened == "OK") {
      EXPECT_OK(weft_channel_free(channel));
    }
    return opened;
  }

  const CertificateAuthority authority_;
  CertificateAndKey own_;
};

TEST_F(SecurityTest, CertificatesMayBeTextsInMemory) {
  weft_server* server = nullptr;
  {
    const std::string copy = roots();
    ASSERT_EQ(Serve(WithTexts(copy), &server), "OK");  // which keeps none of these
  }
  const weft_security good = WithTexts(roots());
  EXPECT_EQ(Connect(server, &good), "OK");
  const auto other = *CertificateAuthority::Create("two", /*valid_s=*/3600);
  const weft_security wrong = WithTexts(other.pem().certificate_pem);
  EXPECT_EQ(Connect(server, &wrong).substr(0, 4), "16: ");  // WEFT_UNAUTHENTICATED
  EXPECT_EQ(Connect(server, nullptr).substr(0, 3), "9: ");  // WEFT_FAILED_PRECONDITION
  EXPECT_OK(weft_server_free(server));
}

TEST_F(SecurityTest, ATextIsNoFile) {
  weft_security both = WithTexts(roots());
  both.roots_file = "/etc/roots.pem";
  weft_server* server = nullptr;
  EXPECT_NE(Serve(both, &server).find("a file and a text are given for the same thing"),
            std::string::npos);
  EXPECT_OK(weft_server_free(server));
  weft_security none = WithTexts(roots());
  none.key_pem = {nullptr, 7};
  auto options = Defaults<weft_server_options>();
  options.security = &none;
  EXPECT_NE(Take(weft_server_new(nullptr, &options, &server)).find("key_pem has no bytes"),
            std::string::npos);
}

// Its struct ends before the texts, and what lies behind is not looked at.
TEST_F(SecurityTest, AnOlderProgramHasNone) {
  weft_security older = WithTexts(roots());
  older.struct_size = offsetof(weft_security, certificate_pem);
  older.key_pem = {nullptr, 7};
  weft_server* server = nullptr;
  EXPECT_NE(Serve(older, &server).find("a server needs a certificate"), std::string::npos);
  EXPECT_OK(weft_server_free(server));
}

}  // namespace
}  // namespace weft
