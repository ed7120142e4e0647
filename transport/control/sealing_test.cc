// Connections over a path that framing seals, with security and without: what both sides agree on,
// and say of it.

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/clock.h"
#include "gtest/gtest.h"
#include "transport/control/negotiate.h"
#include "transport/control/rdma_offers.h"
#include "transport/control/testing/network_world.h"
#include "transport/control/testing/relay.h"
#include "transport/ofi/ofi.h"
#include "transport/testing/post.h"

namespace weft {
namespace {

class SealingTest : public NetworkTest {
 protected:
  void SetUp() override {
    const std::string providers = DescribeProviders();
    if (path_ == PathKind::kOfiTcp && providers.find("tcp") == std::string::npos) {
      GTEST_SKIP() << "no ofi_tcp: " << providers;
    }
    NetworkTest::SetUp();
  }
  static SecurityOptions Secret(bool require_encryption = false) {
    SecurityOptions options;
    options.psk_name = "fleet";
    options.psk_secret = std::string(kMinPskBytes, 's');
    options.require_encryption = require_encryption;
    return options;
  }
  // A pair over path_; null, and a failure, where there is none.
  NetworkEnd* Meet(const std::optional<SecurityOptions>& client = std::nullopt,
                   const std::optional<SecurityOptions>& server = std::nullopt) {
    ListenOptions listen = Allowing({path_});
    listen.security = server;
    acceptor_.echo = true;
    Listen("127.0.0.1:0", listen);
    ConnectOptions connect = Over({path_});
    connect.security = client;
    if (knows_no_proofs_) {
      relay_ = std::make_unique<Relay>(listener_->address());
      relay_->Replace(kProofsFeature, "unsaid");
    }
    NetworkEnd* const end =
        DialAt(relay_ != nullptr ? relay_->address() : listener_->address(), connect);
    EXPECT_TRUE(Run([&] {
      return end->closed() ||
             (end->opened() && !acceptor_.ends.empty() && acceptor_.ends[0]->opened());
    }));
    EXPECT_TRUE(end->opened()) << end->why();
    return end->opened() ? end : nullptr;
  }
  template <class Done>
  bool Run(Done done) {
    return NetworkTest::Run([&] {
      if (relay_ != nullptr) relay_->Turn();
      return done();
    });
  }
  void ExpectEchoesOfEverySize(NetworkEnd& end) {
    for (const size_t bytes : {size_t{0}, size_t{5}, size_t{7'000}, size_t{1'000'000}}) {
      const std::string text(bytes, 't');
      end.received.clear();
      ASSERT_TRUE(end.Send(text));
      ASSERT_TRUE(Run([&] { return !end.received.empty() || end.closed(); }));
      ASSERT_FALSE(end.closed()) << end.why();
      EXPECT_TRUE(end.received[0] == text) << bytes;
    }
  }
  static bool Says(NetworkEnd& end, const std::string& words) {
    return ExplainConnection(end.connection()).find(words) != std::string::npos;
  }
  // What becomes of a read by the card.
  static absl::Status ReadByCard(NetworkEnd& end) {
    std::vector<std::byte> memory(64);
    auto local = end.connection().memory().Register(memory, Access::kLocalOnly);
    if (!local.ok()) return local.status();
    const Transfer read = {local->get(), 0, {7, 0, 64}};
    return end.connection()
        .memory()
        .Post(TransferKind::kRead, absl::MakeConstSpan(&read, 1), nullptr)
        .status();
  }

  PathKind path_ = PathKind::kOfiTcp;
  bool knows_no_proofs_ = false;  // the client, as either side is told
  std::unique_ptr<Relay> relay_;
};

TEST_F(SealingTest, MessagesOfEverySizeTravelSealedAndBothSidesSaySo) {
  NetworkEnd* const end = Meet(Secret(), Secret());
  ASSERT_NE(end, nullptr);
  for (NetworkEnd* side : {end, acceptor_.ends[0].get()}) {
    EXPECT_EQ(side->path(), "ofi_tcp");
    EXPECT_FALSE(side->connection().path().is_encrypted) << "what the card moves is not";
    EXPECT_NE(SecurityText(side->connection().path()).find("operations on memory are not"),
              std::string::npos);
    EXPECT_TRUE(Says(*side, "sealed with AES-256-GCM, one-sided access in the clear"));
  }
  ExpectEchoesOfEverySize(*end);
}

TEST_F(SealingTest, WithoutSecurityMessagesOfEverySizeArriveAndNothingIsSaidToBeSealed) {
  NetworkEnd* const end = Meet();
  ASSERT_NE(end, nullptr);
  for (NetworkEnd* side : {end, acceptor_.ends[0].get()}) {
    EXPECT_FALSE(side->connection().path().is_encrypted);
    EXPECT_NE(SecurityText(side->connection().path()).find("can read and change what travels"),
              std::string::npos);
    EXPECT_FALSE(Says(*side, "sealed with"));
  }
  ExpectEchoesOfEverySize(*end);
}

// libfabric's tcp does not say how much a read has brought. What had not come was delivered as
// zeros, and what was changed as it was.
TEST_F(SealingTest, WithoutSecurityALargeMessageThatIsChangedOnTheWayEndsItsConnection) {
  NetworkEnd* const end = Meet();
  ASSERT_NE(end, nullptr);
  NetworkEnd& server = *acceptor_.ends[0];
  constexpr size_t kBytes = 300'000;
  const uint64_t batches = end->connection().stats().batches_sent;
  const MessageSpace space = end->connection().Append(kBytes);
  ASSERT_NE(space.data, nullptr);
  std::memset(space.data, 't', kBytes);
  // It is offered, and the server, which has no turn yet, has not read it.
  ASSERT_TRUE(RunEngines({client_.get()},
                         [&] { return end->connection().stats().batches_sent > batches; }));
  space.data[kBytes - 1] ^= std::byte{1};
  ASSERT_TRUE(Run([&] { return end->closed() && server.closed(); }));
  EXPECT_TRUE(absl::IsDataLoss(server.why())) << server.why();
  EXPECT_TRUE(server.received.empty());
}

TEST_F(SealingTest, WithoutSecurityAnOlderPeersMessagesOfEverySizeArrive) {
  knows_no_proofs_ = true;
  NetworkEnd* const end = Meet();
  ASSERT_NE(end, nullptr);
  ExpectEchoesOfEverySize(*end);
}

TEST_F(SealingTest, TheClientsWordForEncryptionIsEnough) {
  NetworkEnd* const end = Meet(Secret(/*require_encryption=*/true), Secret());
  ASSERT_NE(end, nullptr);
  EXPECT_TRUE(Says(*end, "no one-sided access: this side requires encryption"));
  EXPECT_TRUE(Says(*acceptor_.ends[0], "no one-sided access: the peer requires encryption"));
  for (NetworkEnd* side : {end, acceptor_.ends[0].get()}) {
    EXPECT_TRUE(side->connection().path().is_encrypted);
    const absl::Status read = ReadByCard(*side);
    EXPECT_TRUE(absl::IsFailedPrecondition(read)) << read;
  }
}

TEST_F(SealingTest, TheServersWordForEncryptionIsEnough) {
  NetworkEnd* const end = Meet(Secret(), Secret(/*require_encryption=*/true));
  ASSERT_NE(end, nullptr);
  EXPECT_TRUE(Says(*end, "no one-sided access: the peer requires encryption"));
  for (NetworkEnd* side : {end, acceptor_.ends[0].get()}) {
    EXPECT_TRUE(side->connection().path().is_encrypted);
    const absl::Status read = ReadByCard(*side);
    EXPECT_TRUE(absl::IsFailedPrecondition(read)) << read;
  }
}

// Only where there is RDMA: ./dev lab has it.
class VerbsSealingTest : public SealingTest, public ::testing::WithParamInterface<bool> {
 protected:
  VerbsSealingTest() { path_ = PathKind::kVerbs; }
  void SetUp() override {
    RdmaOffers offers([] { return ReadRdmaView(/*wanted_lock_bytes=*/0); });
    const std::string why = offers.Choose({}, Clock::Real().NowNs())[0].unavailable;
    if (!why.empty()) GTEST_SKIP() << "no usable RDMA port here: " << why;
    SealingTest::SetUp();
  }
};

TEST_P(VerbsSealingTest, WhoRequiresEncryptionHasMessagesOfEverySizeSealedAndNothingReadByTheCard) {
  const bool client_requires = GetParam();
  NetworkEnd* const end = Meet(Secret(client_requires), Secret(!client_requires));
  ASSERT_NE(end, nullptr);
  const std::string says = "no one-sided access: ";
  EXPECT_TRUE(
      Says(*end, says + (client_requires ? "this side" : "the peer") + " requires encryption"));
  for (NetworkEnd* side : {end, acceptor_.ends[0].get()}) {
    EXPECT_EQ(side->path(), "verbs");
    EXPECT_TRUE(side->connection().path().is_encrypted);
    const absl::Status read = ReadByCard(*side);
    EXPECT_TRUE(absl::IsFailedPrecondition(read)) << read;
  }
  ExpectEchoesOfEverySize(*end);
}

INSTANTIATE_TEST_SUITE_P(Sides, VerbsSealingTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Client" : "Server"; });

}  // namespace
}  // namespace weft
