// Whose events are told in a turn, and whose in the next one.
#include "transport/framing/connection_table.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "core/clock.h"
#include "transport/framing/framed_connection.h"

namespace weft {
namespace {

class ConnectionTableTest : public testing::Test, private ConnectionOwner {
 protected:
  using Told = std::vector<uint32_t>;  // indices of connections

  ConnectionTableTest() {
    for (int i = 0; i < 5; ++i) {
      connections_.push_back(FramedConnection::Create(&table_, this, nullptr, {}).value());
    }
  }
  ~ConnectionTableTest() override {
    for (const auto& connection : connections_)
      connection->End(absl::CancelledError("over"), false);
  }

  // It has something to tell.
  void Raise(size_t index) { connections_[index]->Close("a reason"); }
  Told Turn(const Clock& clock) {
    told_.clear();
    const int count = table_.RunEvents(clock);
    EXPECT_EQ(count, static_cast<int>(told_.size()));
    return told_;
  }

  // Half of a turn's time goes by at each look: two events have room in a turn.
  const FakeClock clock_{kNsPerSec, /*step_ns=*/ConnectionTable::kMostEventsNs / 2};
  ConnectionTable table_{/*capacity=*/8};
  std::vector<std::unique_ptr<FramedConnection>> connections_;

 private:
  void OnLinkUp(FramedConnection&) override {}
  void OnBroken(FramedConnection&, const absl::Status&) override {}
  void OnCloseRequested(FramedConnection& connection, std::string_view) override {
    told_.push_back(connection.index());
  }
  void SendGrant(FramedConnection&, ByteSpan) override {}

  Told told_;
};

TEST_F(ConnectionTableTest, ATurnTellsWhatItHasTimeForAndTheNextOneTheRest) {
  for (const size_t index : {3, 1, 4, 0, 2}) Raise(index);
  EXPECT_EQ(Turn(clock_), (Told{3, 1}));
  EXPECT_TRUE(table_.has_events()) << "so nobody sleeps";
  EXPECT_EQ(Turn(clock_), (Told{4, 0}));
  EXPECT_EQ(Turn(clock_), Told{2});
  EXPECT_FALSE(table_.has_events());
}

TEST_F(ConnectionTableTest, WhereEventsTakeNoTimeAllAreToldInOneTurn) {
  const FakeClock clock;
  for (const size_t index : {3, 1, 4, 0, 2}) Raise(index);
  EXPECT_EQ(Turn(clock), (Told{3, 1, 4, 0, 2}));
}

}  // namespace
}  // namespace weft
