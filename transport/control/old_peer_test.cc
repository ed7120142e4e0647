// A peer of an older release: what it does not know is not asked of it.

#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "transport/control/negotiate.h"
#include "transport/control/testing/network_world.h"
#include "transport/control/testing/relay.h"
#include "transport/control/wanted_engine.h"

namespace weft {
namespace {

class Done final : public Operation {
 public:
  void OnComplete(const absl::Status& status) override {
    result = status;
    done = true;
  }
  bool done = false;
  absl::Status result;
};

class OldPeerTest : public NetworkTest {
 protected:
  void SetUp() override {
    NetworkTest::SetUp();
    acceptor_.echo = true;
    Listen("127.0.0.1:0");
    relay_ = std::make_unique<Relay>(listener_->address());
  }
  template <class Until>
  bool RunRelayed(Until until) {
    return Run([&] {
      relay_->Turn();
      return until();
    });
  }
  NetworkEnd* Open() {
    NetworkEnd* const end = DialAt(relay_->address(), Over({PathKind::kTcp}));
    EXPECT_TRUE(RunRelayed([&] { return end->opened() || end->closed(); }));
    EXPECT_TRUE(end->opened()) << end->why();
    return end;
  }

  std::unique_ptr<Relay> relay_;
};

TEST_F(OldPeerTest, BothSidesOfThisReleaseAnswerRequests) {
  NetworkEnd* const end = Open();
  Done probe;
  ASSERT_TRUE(end->connection().memory().Probe(&probe).ok());
  ASSERT_TRUE(RunRelayed([&] { return probe.done; }));
  EXPECT_TRUE(probe.result.ok()) << probe.result;
}

TEST_F(OldPeerTest, WithoutTheFeatureNothingIsAskedAndTheRestWorks) {
  relay_->Replace(kRequestsFeature, "unheard!");
  NetworkEnd* const end = Open();
  Done probe;
  for (NetworkEnd* asking : {end, acceptor_.ends.back().get()}) {
    EXPECT_EQ(asking->connection().memory().Probe(&probe).code(), absl::StatusCode::kUnimplemented);
  }
  ASSERT_TRUE(end->Send("the rest"));
  ASSERT_TRUE(RunRelayed([&] { return !end->received.empty(); }));
  EXPECT_FALSE(probe.done);
}

// What asks for an engine is a field that such a server does not know.
TEST_F(OldPeerTest, AWishForAnEngineIsPassedOver) {
  const std::string wish = EncodeWantedEngine(2);
  std::string unheard = wish;
  unheard[0] = static_cast<char>(14 << 3 | 5);
  relay_->Replace(wish, unheard);
  ConnectOptions options = Over({PathKind::kTcp});
  options.link.server_engine = 2;
  NetworkEnd* const end = DialAt(relay_->address(), options);
  ASSERT_TRUE(RunRelayed([&] { return end->opened() || end->closed(); }));
  ASSERT_TRUE(end->opened()) << end->why();
  ASSERT_TRUE(end->Send("the rest"));
  ASSERT_TRUE(RunRelayed([&] { return !end->received.empty(); }));
  EXPECT_FALSE(acceptor_.ends.back()->connection().engine_wanted());
}

}  // namespace
}  // namespace weft
