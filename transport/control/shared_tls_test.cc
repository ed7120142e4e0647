#include "transport/control/shared_tls.h"

#include <string>

#include "gtest/gtest.h"
#include "transport/tls/testing/security_options.h"

namespace weft {
namespace {

class SharedTlsTest : public ::testing::Test {
 protected:
  std::shared_ptr<TlsCredentials> Credentials(char secret, TlsRole role = TlsRole::kClient) {
    auto made = tls_.CredentialsFor(role, WithPsk(secret));
    EXPECT_TRUE(made.ok()) << made.status();
    return *std::move(made);
  }

  CounterSet counters_;
  SharedTls tls_{&counters_};
};

TEST_F(SharedTlsTest, SameOptionsAreMadeOnce) {
  const auto first = Credentials('a');
  EXPECT_EQ(Credentials('a'), first);
  EXPECT_NE(Credentials('b'), first);
  EXPECT_NE(Credentials('a', TlsRole::kServer), first) << "the other side of a handshake";
}

TEST_F(SharedTlsTest, ThoseThatWereAskedForLastAreKept) {
  const std::weak_ptr<TlsCredentials> kept = Credentials('A');
  const std::weak_ptr<TlsCredentials> forgotten = Credentials('B');
  const std::shared_ptr<TlsCredentials> in_use = Credentials('C');
  Credentials('A');  // later than the others
  for (size_t i = 0; i + 1 < SharedTls::kMaxCredentials; ++i) {
    Credentials(static_cast<char>('a' + i));
  }
  EXPECT_FALSE(kept.expired());
  EXPECT_TRUE(forgotten.expired());
  EXPECT_EQ(in_use->options(), WithPsk('C')) << "whoever has them keeps them";
}

TEST_F(SharedTlsTest, OptionsThatAreWrongAreNotKept) {
  SecurityOptions options = WithPsk('a');
  options.psk_name.clear();
  for (int i = 0; i < 2; ++i) {
    const auto made = tls_.CredentialsFor(TlsRole::kClient, options);
    EXPECT_TRUE(absl::IsInvalidArgument(made.status())) << made.status();
  }
}

}  // namespace
}  // namespace weft
