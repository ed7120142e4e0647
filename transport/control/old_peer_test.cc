// A peer of an older release: what it does not know is not asked of it.

#include <memory>

#include "gtest/gtest.h"
#include "transport/control/negotiate.h"
#include "transport/control/testing/network_world.h"
#include "transport/control/testing/relay.h"

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

}  // namespace
}  // namespace weft
