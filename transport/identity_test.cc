#include "transport/identity.h"

#include "gtest/gtest.h"

namespace weft {
namespace {

TEST(IdentityTextTest, SaysWhatItRestsOn) {
  PeerIdentity identity;
  EXPECT_EQ(IdentityText(identity), "nobody has proved who it is");
  identity.authentication = Authentication::kKernelCredentials;
  identity.process_id = 77;
  identity.user_id = 1000;
  EXPECT_EQ(IdentityText(identity), "process 77 of user 1000, by the kernel's word");
  identity.authentication = Authentication::kPreSharedKey;
  identity.psk_name = "fleet";
  EXPECT_EQ(IdentityText(identity), "pre-shared key \"fleet\"; process 77 of user 1000");
  identity = {};
  identity.authentication = Authentication::kCertificate;
  identity.subject = "CN=store-7,O=Example";
  EXPECT_EQ(IdentityText(identity), "certificate \"CN=store-7,O=Example\"");
  identity.dns_names = {"store-7.example"};
  identity.uris = {"spiffe://example/store-7"};
  EXPECT_EQ(IdentityText(identity),
            "certificate \"CN=store-7,O=Example\", names store-7.example, "
            "spiffe://example/store-7");
  identity.ip_addresses = {"10.1.2.3"};
  EXPECT_EQ(IdentityText(identity),
            "certificate \"CN=store-7,O=Example\", names store-7.example, "
            "spiffe://example/store-7, 10.1.2.3");
}

// Whoever an authority signs for chooses the names: a line of a log stays one line.
TEST(IdentityTextTest, NamesOfAPeerCannotForgeALine) {
  PeerIdentity identity;
  identity.authentication = Authentication::kCertificate;
  identity.subject = "CN=a\nroot logged in";
  for (int i = 0; i < 100; ++i) identity.dns_names.push_back(std::string(10'000, '\x1b'));
  const std::string text = IdentityText(identity);
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  EXPECT_EQ(text.find('\x1b'), std::string::npos) << text;
  EXPECT_LT(text.size(), 5'000u);
  EXPECT_NE(text.find(" and 96 more"), std::string::npos) << text;
}

// Who may choose names chooses such that look like those of two, or like another kind of name.
TEST(ProvedNamesTest, NoNamesLookLikeOthers) {
  PeerIdentity one;
  one.dns_names = {"a", "b"};
  PeerIdentity other;
  other.dns_names = {"a 1:b"};
  EXPECT_NE(ProvedNames(one), ProvedNames(other));
  other.dns_names = {"a"};
  other.uris = {"b"};
  EXPECT_NE(ProvedNames(one), ProvedNames(other));
  other.uris = {};
  other.subject = "b";
  EXPECT_NE(ProvedNames(one), ProvedNames(other));
  other.subject = "";
  other.psk_name = "b";
  EXPECT_NE(ProvedNames(one), ProvedNames(other));
  other = one;
  EXPECT_EQ(ProvedNames(one), ProvedNames(other));
  // Who vouches for it, its process, and an address that somebody has signed, are no names.
  other.ip_addresses = {"10.1.2.3"};
  other.authentication = Authentication::kCertificate;
  other.user_id = 1000;
  EXPECT_EQ(ProvedNames(one), ProvedNames(other));
}

}  // namespace
}  // namespace weft
