// How much of what a server has to move is posted at a time, and when its replies leave.

#include "rpc/bulk/transfer_queue.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "core/function.h"
#include "core/strings.h"
#include "core/timer_wheel.h"
#include "rpc/testing/loopback.h"
#include "transport/local_memory.h"

namespace weft::test {
namespace {

class AnyRegion final : public Region {
 public:
  explicit AnyRegion(MutableByteSpan memory) : Region(memory, {}) {}
};

// Writes down what it is asked for: "write 100", "write acknowledged 5", "read 7", "flush".
// Operations end when the test says so.
class RecordingAccess : public NoRemoteAccess {
 public:
  absl::StatusOr<std::unique_ptr<Region>> Register(MutableByteSpan memory, Access) override {
    return std::unique_ptr<Region>(std::make_unique<AnyRegion>(memory));
  }
  absl::StatusOr<Posted> Post(TransferKind kind, absl::Span<const Transfer> transfers,
                              Operation* op) override {
    if (full) return absl::ResourceExhaustedError("full");
    events_.push_back(StrCat(NameOf(kind), transfers[0].remote.length));
    if (at_once) return Posted::kDone;
    posted_.push_back(op);
    return Posted::kPending;
  }

  void Record(const std::string& event) { events_.push_back(event); }
  std::string TakeEvents() { return absl::StrJoin(std::exchange(events_, {}), ", "); }
  void EndOldest() {
    Operation* const op = posted_.front();
    posted_.erase(posted_.begin());
    op->OnComplete(absl::OkStatus());
  }

  bool full = false;
  bool at_once = false;  // operations end before their post returns

 private:
  static const char* NameOf(TransferKind kind) {
    if (kind == TransferKind::kRead) return "read ";
    if (kind == TransferKind::kWriteAcknowledged) return "write acknowledged ";
    EXPECT_EQ(kind, TransferKind::kWriteUnordered);  // it holds up no reply of another call
    return "write ";
  }

  std::vector<Operation*> posted_;
  std::vector<std::string> events_;
};

class RecordingConnection final : public RecordingAccess, public LoopbackConnection {
 public:
  RecordingConnection() : LoopbackConnection(this) {}

  void Flush() override { Record("flush"); }
};

class BulkTransferTest : public testing::Test, private TransferQueue::Host {
 protected:
  struct Moved final : public BulkTransfer {
    void OnPosted() override {}
    void OnEnded(bool posted, const absl::Status& status) override {
      EXPECT_TRUE(posted && status.ok()) << status;
      if (on_ended) on_ended();
    }

    Function<void()> on_ended;
  };

  BulkTransferTest() {
    queue_.SetInFlightLimit({.pushed_bytes = 100,
                             .fetched_bytes = 1000,
                             .acknowledged_bytes = 1000,
                             .replied_bytes = 100});
  }

  void Push(size_t bytes) { Start(bytes, /*push=*/true); }
  void Fetch(size_t bytes) { Start(bytes, /*push=*/false); }
  void Start(size_t bytes, bool push, Priority priority = Priority::kNormal) {
    transfers_.push_back(std::make_unique<Moved>());
    Moved& moved = *transfers_.back();
    moved.push = push;
    moved.priority = priority;
    moved.local = {&memory_, 0, bytes};
    moved.remote.length = bytes;
    queue_.Start(moved);
  }
  std::string Events() { return connection_.TakeEvents(); }

  std::byte bytes_[4096];
  LocalMemory memory_{MutableByteSpan(bytes_)};
  RecordingConnection connection_;
  bool lost_ = false;
  TimerWheel timers_{0};
  TransferQueue queue_{this};
  std::vector<std::unique_ptr<Moved>> transfers_;

 private:
  void BeginEnd() override { EXPECT_FALSE(std::exchange(ending_, true)); }
  void FinishEnd() override { EXPECT_TRUE(std::exchange(ending_, false)); }
  Connection* connection() override { return lost_ ? nullptr : &connection_; }
  TimerWheel& timers() override { return timers_; }
  uint64_t now_ns() override { return 0; }

  bool ending_ = false;
};

// Eight payloads of 1 MiB were posted at once, which on tcp takes 1.5 ms, and their replies left
// together: the client then asked for eight at once, and either side waited for the other.
TEST_F(BulkTransferTest, TheReplyOfALargeTransferLeavesBeforeTheNextIsPosted) {
  for (int i = 0; i < 3; ++i) Push(300);
  EXPECT_EQ(Events(), "write 300") << "one of any size, if no other is posted";
  connection_.EndOldest();
  EXPECT_EQ(Events(), "flush, write 300");
  connection_.EndOldest();
  EXPECT_EQ(Events(), "flush, write 300");
  connection_.EndOldest();
  EXPECT_EQ(Events(), "flush");
}

TEST_F(BulkTransferTest, TheMostUrgentOfThoseThatWaitIsPostedFirst) {
  Push(300);
  Start(301, /*push=*/true, Priority::kBackground);
  Start(302, /*push=*/true);
  Start(50, /*push=*/true, Priority::kControl);
  Start(303, /*push=*/true, Priority::kControl);
  EXPECT_EQ(Events(), "write 300");
  connection_.EndOldest();
  EXPECT_EQ(Events(), "flush, write 50");
  connection_.EndOldest();
  EXPECT_EQ(Events(), "write 303");
  connection_.EndOldest();
  EXPECT_EQ(Events(), "flush, write 302");
  connection_.EndOldest();
  EXPECT_EQ(Events(), "flush, write 301");
}

// On RDMA all that is posted goes one behind the other, messages too: the reply to the first of
// eight payloads of 1 MiB, and the answers that its memory waits for, left behind the eighth.
TEST_F(BulkTransferTest, OnRdmaRepliesWaitForNoMoreThanWhatKeepsTheDeviceBusy) {
  queue_.SetInFlightLimit(InFlightLimitOf(PathKind::kVerbs));
  for (int i = 0; i < 4; ++i) Push(1 << 20);
  EXPECT_EQ(Events(), "write 1048576, write 1048576");
  connection_.EndOldest();
  EXPECT_EQ(Events(), "flush, write 1048576");
}

// One payload of 1 MiB at a time, in two pieces, had the kernel's pacing set three times as many
// timers as four of them do. And those that were over when the socket had taken them were 4 MiB in
// the socket, and others behind it that went in bit by bit.
TEST_F(BulkTransferTest, OnOfiTcpLargePayloadsAreUnderWayUntilThePeerHasThem) {
  queue_.SetInFlightLimit(InFlightLimitOf(PathKind::kOfiTcp));
  for (int i = 0; i < 6; ++i) Push(1 << 20);
  EXPECT_EQ(Events(),
            "write 1048576, write acknowledged 1048576, write acknowledged 1048576, "
            "write acknowledged 1048576");
  connection_.EndOldest();
  EXPECT_EQ(Events(), "flush, write acknowledged 1048576");
}

// There every write is over when the peer has it.
TEST_F(BulkTransferTest, OnTcpNoPayloadIsAcknowledgedTwice) {
  queue_.SetInFlightLimit(InFlightLimitOf(PathKind::kTcp));
  for (int i = 0; i < 6; ++i) Push(1 << 20);
  EXPECT_EQ(Events(), "write 1048576, write 1048576, write 1048576, write 1048576");
  connection_.EndOldest();
  EXPECT_EQ(Events(), "flush, write 1048576");
}

TEST_F(BulkTransferTest, TheReplyOfALonePayloadDoesNotWaitForAnAcknowledgement) {
  queue_.SetInFlightLimit(InFlightLimitOf(PathKind::kOfiTcp));
  for (int i = 0; i < 2; ++i) {
    Push(1 << 20);
    EXPECT_EQ(Events(), "write 1048576");
    connection_.EndOldest();
    EXPECT_EQ(Events(), "flush");
  }
}

TEST_F(BulkTransferTest, SmallPayloadsAreNotAcknowledged) {
  queue_.SetInFlightLimit(InFlightLimitOf(PathKind::kOfiTcp));
  for (int i = 0; i < 3; ++i) Push(1000);
  EXPECT_EQ(Events(), "write 1000, write 1000, write 1000");
}

TEST_F(BulkTransferTest, SmallTransfersGoTogetherAndSoDoTheirReplies) {
  for (int i = 0; i < 6; ++i) Push(25);
  EXPECT_EQ(Events(), "write 25, write 25, write 25, write 25");
  connection_.EndOldest();
  connection_.EndOldest();
  EXPECT_EQ(Events(), "write 25, write 25");
  connection_.EndOldest();
  connection_.EndOldest();
  EXPECT_EQ(Events(), "flush") << "after 100 bytes";
  connection_.EndOldest();
  EXPECT_EQ(Events(), "") << "the end of the turn sends it";
}

TEST_F(BulkTransferTest, EachDirectionHasALimitOfItsOwn) {
  Push(80);
  for (int i = 0; i < 4; ++i) Fetch(300);
  EXPECT_EQ(Events(), "write 80, read 300, read 300, read 300");
  connection_.EndOldest();  // the write: the fourth read waits for another read
  EXPECT_EQ(Events(), "");
  connection_.EndOldest();
  EXPECT_EQ(Events(), "flush, read 300");
}

TEST_F(BulkTransferTest, WhatWouldFitDoesNotOvertakeThoseWhoWait) {
  Push(80);
  Push(50);
  Push(20);
  EXPECT_EQ(Events(), "write 80");
  connection_.EndOldest();
  EXPECT_EQ(Events(), "write 50, write 20");
}

TEST_F(BulkTransferTest, WhatTheConnectionRefusesWaitsForItsRoom) {
  connection_.full = true;
  Push(10);
  Push(20);
  connection_.full = false;
  EXPECT_EQ(Events(), "");
  queue_.Pump();
  EXPECT_EQ(Events(), "write 10, write 20");
}

// A handler that starts the next part when one has ended would be called from inside itself, once
// for each part.
TEST_F(BulkTransferTest, WhatIsDoneAtOnceEndsLaterAndNeverInsideItsStart) {
  connection_.at_once = true;
  bool starting = false;
  int left = 3;
  const auto start = [&](auto& self) -> void {
    starting = true;
    Push(30);
    starting = false;
    transfers_.back()->on_ended = [&] {
      EXPECT_FALSE(starting);
      if (--left > 0) self(self);
    };
  };
  start(start);
  EXPECT_EQ(Events(), "write 30");
  EXPECT_EQ(left, 3);
  timers_.Advance(0);
  EXPECT_EQ(Events(), "write 30");
  EXPECT_EQ(left, 2);
  timers_.Advance(0);
  timers_.Advance(0);
  EXPECT_EQ(left, 0);
  EXPECT_EQ(timers_.size(), 0u);
}

TEST_F(BulkTransferTest, NothingIsPostedOrSentOnALostConnection) {
  Push(300);
  Push(300);
  lost_ = true;
  EXPECT_EQ(Events(), "write 300");
  connection_.EndOldest();
  EXPECT_EQ(Events(), "");
}

}  // namespace
}  // namespace weft::test
