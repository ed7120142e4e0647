// Reclaiming memory that a peer was told of: when the owner hears that it is reclaimed, nothing of
// what the peer had begun touches it any more.

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "transport/testing/contract_test.h"
#include "transport/testing/region_pair.h"

namespace weft {
namespace {

// A peer that writes and reads without a pause, as much as it is let.
class BusyPeer {
 public:
  BusyPeer(Endpoint& client, RegionPair& regions)
      : client_(client), regions_(regions), remote_(regions.server_region->remote()) {
    for (TestOperation& op : operations_) {
      op.on_complete = [this, &op] {
        --outstanding_;
        if (!op.result.ok()) return;
        if (posting_) {
          done_at_once_.push_back(&op);
        } else {
          Post(op);
        }
      };
      Post(op);
    }
  }
  // Posts again what the post itself has carried out. For each turn.
  void GoOn() {
    for (TestOperation* op : std::exchange(done_at_once_, {})) Post(*op);
  }
  // All that it had begun has ended, with an error once the region is closed.
  bool IsIdle() {
    GoOn();
    return outstanding_ == 0 && (done_at_once_.empty() || client_.closed());
  }

 private:
  void Post(TestOperation& op) {
    if (client_.closed()) return;
    const auto which = static_cast<size_t>(&op - operations_.data());
    const RemoteSpan remote = remote_.Slice(which * 100'000, 100'000);
    posting_ = true;
    const absl::Status posted = which % 2 == 0 ? regions_.Write(which * 100'000, remote, &op)
                                               : regions_.Read(which * 100'000, remote, &op);
    posting_ = false;
    outstanding_ += posted.ok();
  }

  Endpoint& client_;
  RegionPair& regions_;
  const RemoteSpan remote_;
  std::vector<TestOperation> operations_{8};
  std::vector<TestOperation*> done_at_once_;
  bool posting_ = false;
  int outstanding_ = 0;
};

TEST_P(ContractTest, ReclaimedMemoryIsTouchedByNobodyThoughThePeerWritesOn) {
  for (int round = 0; round < 10; ++round) {
    SCOPED_TRACE(round);
    client_ = Endpoint();
    Open();
    RegionPair regions(client_, server_end());
    BusyPeer peer(client_, regions);
    int turns = 0;
    ASSERT_TRUE(Run([&] {
      peer.GoOn();
      return ++turns > 3 * round;
    }));
    TestOperation reclaimed;
    const bool at_once =
        server_end().connection().memory().Reclaim(std::move(regions.server_region), &reclaimed);
    if (!at_once) {
      ASSERT_TRUE(Run([&] { return reclaimed.done(); }));
      EXPECT_TRUE(reclaimed.result.ok()) << reclaimed.result;
    }
    const std::vector<std::byte> fresh = Pattern(77, kRegionBytes);
    std::copy(fresh.begin(), fresh.end(), regions.server_memory.begin());
    ASSERT_TRUE(Run([&] { return peer.IsIdle(); }));
    EXPECT_TRUE(regions.server_memory == fresh);
    if (!client_.closed()) client_.connection().Close("next");
    ASSERT_TRUE(Run([&] { return client_.closed() && server_end().closed(); }));
    EXPECT_TRUE(regions.server_memory == fresh);
    EXPECT_EQ(reclaimed.completions, at_once ? 0 : 1);
  }
}

TEST_P(ContractTest, ManyRegionsAreReclaimedTogether) {
  Open();
  std::vector<std::byte> memory(100 * 4096);
  std::vector<TestOperation> reclaimed(100);
  size_t pinned = 0;
  for (size_t i = 0; i < reclaimed.size(); ++i) {
    auto region = server_end().connection().memory().Register({&memory[i * 4096], 4096},
                                                              Access::kRemoteReadWrite);
    ASSERT_TRUE(region.ok()) << region.status();
    pinned += !server_end().connection().memory().Reclaim(*std::move(region), &reclaimed[i]);
  }
  const auto told = [&] {
    return static_cast<size_t>(std::count_if(reclaimed.begin(), reclaimed.end(),
                                             [](const TestOperation& op) { return op.done(); }));
  };
  ASSERT_TRUE(Run([&] { return told() == pinned; }));
  for (const TestOperation& op : reclaimed) EXPECT_TRUE(op.result.ok()) << op.result;
  CloseClient();
  EXPECT_EQ(told(), pinned);
}

TEST_P(ContractTest, TheEndReclaimsWhatWasPinned) {
  Open();
  RegionPair regions(client_, server_end());
  TestOperation reclaimed;
  bool told_before_the_end = false;
  server_end().on_closed = [&] { told_before_the_end = reclaimed.done(); };
  const bool at_once =
      server_end().connection().memory().Reclaim(std::move(regions.server_region), &reclaimed);
  server_end().connection().Close("enough");
  ASSERT_TRUE(Run([&] { return client_.closed() && server_end().closed(); }));
  EXPECT_EQ(reclaimed.completions, at_once ? 0 : 1);
  EXPECT_EQ(told_before_the_end, !at_once);
  EXPECT_TRUE(reclaimed.result.ok()) << reclaimed.result;
}

TEST_P(ContractTest, AClosingConnectionStillTakesRegionsBack) {
  Open();
  RegionPair regions(client_, server_end());
  TestOperation reclaimed;
  server_end().connection().Close("enough");
  const bool at_once =
      server_end().connection().memory().Reclaim(std::move(regions.server_region), &reclaimed);
  ASSERT_TRUE(Run([&] { return client_.closed() && server_end().closed(); }));
  EXPECT_EQ(reclaimed.completions, at_once ? 0 : 1);
}

}  // namespace
}  // namespace weft
