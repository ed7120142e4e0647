// Reclaiming on a network that puts into memory, after a region was closed, what had begun to
// arrive before: as tcp and iWARP do.

#include <algorithm>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "transport/sim/sim_fixture.h"
#include "transport/testing/post.h"

namespace weft {
namespace {

constexpr uint64_t kLateNs = 50'000;

SimOptions Late() {
  SimOptions options;
  options.late_placing_ns = kLateNs;
  return options;
}

class ReclaimTest : public SimTest {
 protected:
  ReclaimTest() : SimTest(Late()), theirs_(4096, std::byte{1}), mine_(4096, std::byte{2}) {}

  // The regions go before the connections, and these before what they complete: a write that was
  // under way when its client was killed completed with the network, after `write_` had gone.
  ~ReclaimTest() override {
    their_region_.reset();
    my_region_.reset();
    Reset(0, {});
  }

  void Start() {
    Listen("owner");
    std::tie(client_, owner_) = Pair("client", "owner");
    my_region_ = Register(*owner_, mine_, Access::kRemoteReadWrite);
    their_region_ = Register(*client_, theirs_, Access::kLocalOnly);
    remote_ = my_region_->remote();
  }

  static std::unique_ptr<Region> Register(Endpoint& end, std::vector<std::byte>& memory,
                                          Access access) {
    auto region = end.connection().memory().Register({memory.data(), memory.size()}, access);
    EXPECT_TRUE(region.ok()) << region.status();
    return *std::move(region);
  }

  // A write whose region has been looked up, and that has not been placed.
  void BeginWrite() {
    ASSERT_TRUE(Write(client_->connection(), *their_region_, 0, remote_, &write_).ok());
    network_->RunFor(16'500);  // 10 to 12 us of wire, and 4 of bytes
    ASSERT_EQ(mine_[0], std::byte{2});
  }

  bool MyMemoryIs(int value) const {
    return std::all_of(mine_.begin(), mine_.end(),
                       [value](std::byte b) { return b == static_cast<std::byte>(value); });
  }
  void Refill() { std::fill(mine_.begin(), mine_.end(), std::byte{3}); }

  std::vector<std::byte> theirs_;
  std::vector<std::byte> mine_;
  Endpoint* client_ = nullptr;
  Endpoint* owner_ = nullptr;
  std::unique_ptr<Region> my_region_;
  std::unique_ptr<Region> their_region_;
  RemoteSpan remote_;
  TestOperation write_;
  TestOperation reclaimed_;
};

// Why Reclaim() exists: without the fence the owner would have reused the memory here.
TEST_F(ReclaimTest, ALateWriteArrivesAfterTheRegionWasClosedAndNotAfterItWasReclaimed) {
  Start();
  BeginWrite();
  EXPECT_FALSE(owner_->connection().memory().Reclaim(std::move(my_region_), &reclaimed_));
  network_->RunFor(kLateNs);
  EXPECT_TRUE(MyMemoryIs(1));  // it came, though the region was closed
  EXPECT_FALSE(reclaimed_.done());
  ASSERT_TRUE(Run([&] { return reclaimed_.done(); }));
  EXPECT_TRUE(reclaimed_.result.ok());
  Refill();
  TestOperation late;
  ASSERT_TRUE(Write(client_->connection(), *their_region_, 0, remote_, &late).ok());
  ASSERT_TRUE(Run([&] { return late.done(); }));
  EXPECT_FALSE(late.result.ok());
  EXPECT_TRUE(MyMemoryIs(3));
}

TEST_F(ReclaimTest, OneThatComesWhileAFenceIsUnderWayWaitsForTheNext) {
  Start();
  EXPECT_FALSE(owner_->connection().memory().Reclaim(std::move(my_region_), &reclaimed_));
  network_->RunFor(100'000);  // half of the first pair
  ASSERT_FALSE(reclaimed_.done());
  my_region_ = Register(*owner_, mine_, Access::kRemoteReadWrite);
  TestOperation second;
  EXPECT_FALSE(owner_->connection().memory().Reclaim(std::move(my_region_), &second));
  ASSERT_TRUE(Run([&] { return reclaimed_.done(); }));
  EXPECT_FALSE(second.done());
  ASSERT_TRUE(Run([&] { return second.done(); }));
}

TEST_F(ReclaimTest, ADeadPeersMemoryIsPinnedUntilTheConnectionEnds) {
  Start();
  BeginWrite();
  network_->Kill("client");
  EXPECT_FALSE(owner_->connection().memory().Reclaim(std::move(my_region_), &reclaimed_));
  network_->RunFor(200'000);
  EXPECT_FALSE(reclaimed_.done());
  ASSERT_TRUE(Run([&] { return owner_->closed(); }));
  EXPECT_TRUE(reclaimed_.done());
  Refill();
  network_->RunFor(10 * kLateNs);
  EXPECT_TRUE(MyMemoryIs(3));
}

TEST_F(ReclaimTest, ASilentPeerPinsMemoryUntilItIsGivenUp) {
  Start();
  BeginWrite();
  network_->Partition("client", "owner");
  EXPECT_FALSE(owner_->connection().memory().Reclaim(std::move(my_region_), &reclaimed_));
  network_->RunFor(500 * kNsPerMs);
  EXPECT_FALSE(reclaimed_.done());
  ASSERT_TRUE(Run([&] { return owner_->closed(); }));
  EXPECT_TRUE(reclaimed_.done());
}

// The probes need credits, as everything does; those that wait for some are not forgotten.
TEST_F(ReclaimTest, AFenceWaitsForCredits) {
  Start();
  absl::Status status;
  for (int i = 0; i < 10'000 && status.ok(); ++i) {
    status = owner_->TrySend(Pattern(1, 4000));
  }
  ASSERT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_FALSE(owner_->connection().memory().Reclaim(std::move(my_region_), &reclaimed_));
  ASSERT_TRUE(Run([&] { return reclaimed_.done(); }));
  EXPECT_FALSE(owner_->closed());
}

}  // namespace
}  // namespace weft
