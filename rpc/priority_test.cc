// What urgent calls pass, and what those that can wait leave to others, on a simulated network.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rpc/testing/raw_hellos.h"
#include "rpc/testing/raw_peer.h"
#include "rpc/testing/stream_test.h"

namespace weft::test {
namespace {

constexpr CallOptions kControl = {.priority = Priority::kControl};
constexpr CallOptions kBackground = {.priority = Priority::kBackground};

class PriorityTest : public StreamTest {
 protected:
  // Calls that are under way write to `replies_`.
  ~PriorityTest() override {
    channel_.reset();
    service_.held.clear();
    served_.clear();
  }

  // Calls whose ends are written down in `order_`, by name.
  void Hold(const std::string& name, const CallOptions& options = {}) {
    Data& reply = replies_.emplace_back();
    stub_->Hold(Data(), &reply, options, [this, name](absl::Status) { order_.push_back(name); });
  }
  void Echo(const std::string& name, size_t bytes, const CallOptions& options = {}) {
    Data& reply = replies_.emplace_back();
    stub_->Echo(MakeData(1, bytes), &reply, options, [this, name](absl::Status status) {
      order_.push_back(status.ok() ? name : status.ToString());
    });
  }
  void Make(const std::string& name, size_t bytes, const CallOptions& options = {}) {
    Size size;
    size.set_bytes(bytes);
    Data& reply = replies_.emplace_back();
    stub_->Make(size, &reply, options, [this, name](absl::Status status) {
      order_.push_back(status.ok() ? name : status.ToString());
    });
  }
  size_t PlaceOf(const std::string& name) const {
    for (size_t i = 0; i < order_.size(); ++i) {
      if (order_[i] == name) return i;
    }
    ADD_FAILURE() << name << " has not ended";
    return order_.size();
  }

  std::deque<Data> replies_;
  std::vector<std::string> order_;
};

using Names = std::vector<std::string>;

// --- slots ---------------------------------------------------------------------------------------

TEST_F(PriorityTest, AControlCallHasASlotWhenAllOthersAreTaken) {
  ChannelOptions options;
  options.max_outstanding_calls = 4;
  Start(options);
  for (int i = 0; i < 6; ++i) Hold("held");
  Data reply;
  CallOptions control = kControl;
  control.timeout_us = 1'000'000;
  EXPECT_EQ(stub_->Echo(MakeData(1, 10), &reply, control), absl::OkStatus());
  EXPECT_EQ(channel_->stats().outstanding, 4u);
  EXPECT_EQ(channel_->stats().queued, 2u);
}

TEST_F(PriorityTest, OfControlCallsTooThereAreOnlySoManyAtOnce) {
  ChannelOptions options;
  options.max_outstanding_calls = 2;
  options.max_queued_calls = 0;
  Start(options);
  for (uint32_t i = 0; i < 2 + 2 * kControlCalls; ++i) Hold("held", kControl);
  ASSERT_TRUE(RunUntil([&] { return service_.held.size() == 2 + kControlCalls; }));
  EXPECT_EQ(channel_->stats().queued, kControlCalls) << "beyond max_queued_calls";
  Hold("one too many", kControl);
  ASSERT_TRUE(RunUntil([&] { return !order_.empty(); }));
  EXPECT_EQ(order_, Names({"one too many"}));
  channel_.reset();
}

TEST_F(PriorityTest, BackgroundCallsNeverTakeAllSlots) {
  ChannelOptions options;
  options.max_outstanding_calls = 16;
  Start(options);
  for (int i = 0; i < 100; ++i) Hold("held", kBackground);
  ASSERT_TRUE(RunUntil([&] { return service_.held.size() == 13; }));
  EXPECT_EQ(channel_->stats().queued, 87u);
  // Calls pass those that wait, without waiting themselves.
  Data reply;
  EXPECT_EQ(stub_->Echo(MakeData(1, 10), &reply, {.timeout_us = 1'000'000}), absl::OkStatus());
  std::optional<absl::Status> room;
  channel_->WhenWritable([&room](absl::Status status) { room = std::move(status); });
  ASSERT_TRUE(RunUntil([&] { return room.has_value(); })) << "a call would not be queued";
  EXPECT_EQ(*room, absl::OkStatus());
  // And the background goes on as its calls end.
  for (int i = 0; i < 13; ++i) service_.Release();
  ASSERT_TRUE(RunUntil([&] { return service_.held.size() == 13 && order_.size() == 13; }));
}

TEST_F(PriorityTest, WhatWaitsForASlotLeavesByUrgency) {
  ChannelOptions options;
  options.max_outstanding_calls = 1;
  StartServer();
  OpenChannel(options);
  Hold("first");
  Echo("background", 10, kBackground);
  Echo("normal", 10);
  Echo("normal, too", 10);
  ASSERT_TRUE(RunUntil([&] { return service_.held.size() == 1; }));
  service_.Release();
  ASSERT_TRUE(RunUntil([&] { return order_.size() == 4; }));
  EXPECT_EQ(order_, Names({"first", "normal", "normal, too", "background"}));
}

// --- room in the connection ----------------------------------------------------------------------

TEST_F(PriorityTest, RequestsWithoutCreditLeaveByUrgency) {
  ServerOptions server;
  server.link.window_slots = 4;
  Start({}, server);
  network_.SlowDown("server", 100 * kNsPerUs);
  for (int i = 0; i < 60; ++i) Echo("background", 4000, kBackground);
  for (int i = 0; i < 60; ++i) Echo("normal", 4000);
  Echo("control", 10, kControl);
  ASSERT_TRUE(RunUntil([&] { return order_.size() == 121; }));
  // What the connection had taken before was on its way: its window, and what this side had begun.
  EXPECT_LE(PlaceOf("control"), 16u);
  EXPECT_LE(PlaceOf("normal"), 17u);
  EXPECT_EQ(order_.back(), "background");
  const auto last_normal = std::find(order_.rbegin(), order_.rend(), "normal");
  EXPECT_GE(std::count(order_.rbegin(), last_normal, "background"), 44)
      << "all that were not on their way";
}

TEST_F(PriorityTest, RepliesWithoutCreditLeaveByUrgency) {
  ChannelOptions channel;
  channel.link.window_slots = 4;
  Start(channel);
  network_.SlowDown("client", kNsPerMs);
  for (int i = 0; i < 60; ++i) Make("background", 4000, kBackground);
  for (int i = 0; i < 60; ++i) Make("normal", 4000);
  Make("control", 10, kControl);
  ASSERT_TRUE(RunUntil([&] { return order_.size() == 121; }));
  EXPECT_LE(PlaceOf("control"), 16u);
  EXPECT_EQ(order_.back(), "background");
}

// --- streams -------------------------------------------------------------------------------------

TEST_F(PriorityTest, AStreamsMessagesPassThoseOfStreamsThatCanWait) {
  ServerOptions server;
  server.link.window_slots = 4;
  StartStreams({}, server);
  network_.SlowDown("server", 100 * kNsPerUs);
  constexpr int kMessages = 100;
  Talk slow = chat_->Talk(kBackground);
  Served& slow_end = NextTalk();
  Talk urgent = chat_->Talk(kControl);
  Served& urgent_end = NextTalk();
  int read_of_slow = 0;
  Data to;
  Function<void(bool)> count = [&](bool ok) {
    if (!ok) return slow_end.Finish(absl::OkStatus());
    ++read_of_slow;
    slow_end.Read(&to, [&](bool more) { count(more); });
  };
  slow_end.Read(&to, [&](bool ok) { count(ok); });
  int written = 0;
  const Data large = MakeData(2, 4000);
  Function<void(bool)> write = [&](bool ok) {
    if (ok && ++written < kMessages) slow.Write(large, [&](bool more) { write(more); });
  };
  slow.Write(large, [&](bool ok) { write(ok); });
  ASSERT_TRUE(RunUntil([&] { return read_of_slow >= 20; })) << "the slow one is in full flow";

  const int before = read_of_slow;
  Data got;
  std::optional<bool> has_come;
  urgent_end.Read(&got, [&](bool ok) { has_come = ok; });
  const Data small = MakeData(7, 10);
  urgent.Write(small, [](bool) {});
  ASSERT_TRUE(RunUntil([&] { return has_come.has_value(); }));
  EXPECT_TRUE(*has_come);
  EXPECT_LE(read_of_slow - before, 16) << "what was on its way";
  ASSERT_TRUE(RunUntil([&] { return read_of_slow == kMessages; }));
  slow.WritesDone();
  EXPECT_EQ(EndOf(slow), absl::OkStatus());
  urgent_end.Finish(absl::OkStatus());
  EXPECT_EQ(EndOf(urgent), absl::OkStatus());
}

// A cancel waited in its stream's line, behind everything that is more urgent: meanwhile the
// handler went on, and memory that the stream had lent stayed pinned, until after 3 s its owner
// gave the whole connection up.
TEST_F(PriorityTest, ACancelOfAStreamThatCanWaitPassesWhatIsMoreUrgent) {
  ServerOptions server;
  server.link.window_slots = 4;
  StartStreams({}, server);
  Talk slow = chat_->Talk(kBackground);
  Served& served = NextTalk();
  network_.SlowDown("server", 100 * kNsPerUs);
  for (int i = 0; i < 60; ++i) Echo("normal", 4000);
  EXPECT_EQ(slow.TryWrite(MakeData(1, 4000)), StreamResult::kNotYet) << "others wait for room";
  bool written = true;
  const Data message = MakeData(1, 4000);
  slow.Write(message, [&](bool ok) { written = ok; });
  slow.Cancel();
  ASSERT_TRUE(RunUntil([&] { return served.context().cancelled(); }));
  EXPECT_LE(order_.size(), 16u) << "what was on its way";
  EXPECT_FALSE(written);
  ASSERT_TRUE(RunUntil([&] { return order_.size() == 60; }));
}

// --- large messages ------------------------------------------------------------------------------

// Those that are being moved are not passed; what waits is passed as small messages are.
TEST_F(PriorityTest, LargeRequestsThatWaitLeaveByUrgency) {
  Start();
  network_.SlowDown("server", 100 * kNsPerUs);
  constexpr size_t kLarge = 100'000;
  for (int i = 0; i < 60; ++i) Echo("background", kLarge, kBackground);
  for (int i = 0; i < 20; ++i) Echo("normal", kLarge);
  Echo("control", kLarge, kControl);
  ASSERT_TRUE(RunUntil([&] { return order_.size() == 81; }));
  EXPECT_LE(PlaceOf("control"), 16u) << "as many as are moved at a time";
  EXPECT_LE(PlaceOf("normal"), 17u);
  const auto last_normal = std::find(order_.rbegin(), order_.rend(), "normal");
  EXPECT_GE(std::count(order_.rbegin(), last_normal, "background"), 44);
}

TEST_F(PriorityTest, LargeRepliesThatWaitLeaveByUrgency) {
  Start();
  network_.SlowDown("client", kNsPerMs);
  constexpr size_t kLarge = 100'000;
  for (int i = 0; i < 60; ++i) Make("background", kLarge, kBackground);
  for (int i = 0; i < 20; ++i) Make("normal", kLarge);
  Make("control", kLarge, kControl);
  ASSERT_TRUE(RunUntil([&] { return order_.size() == 81; }));
  EXPECT_LE(PlaceOf("control"), 17u);
  EXPECT_EQ(order_.back(), "background");
}

// --- what the server is told ---------------------------------------------------------------------

TEST_F(PriorityTest, HandlersSeeHowUrgentTheirCallIs) {
  StartStreams();
  std::vector<Priority> seen;
  const auto look = [&](ServerContext& context) { seen.push_back(context.priority()); };
  service_.look = look;
  streams_.look = look;
  Data reply;
  ASSERT_TRUE(stub_->Echo(Data(), &reply, kControl).ok());
  ASSERT_TRUE(stub_->Echo(Data(), &reply, kBackground).ok());
  ASSERT_TRUE(stub_->Echo(Data(), &reply).ok());
  Talk talk = chat_->Talk(kBackground);
  NextTalk();
  talk.Cancel();
  served_.clear();
  EXPECT_EQ(seen, (std::vector<Priority>{Priority::kControl, Priority::kBackground,
                                         Priority::kNormal, Priority::kBackground}));
}

// A server from before there were priorities would take the bits for a malformed frame.
TEST_F(PriorityTest, AServerThatKnowsNoneIsToldNone) {
  RawAcceptor acceptor;
  ListenOptions options;
  options.hello = OldServerHello({"Echo", "Fail", "Hold"}).SerializeAsString();
  const auto listener = server_engine().transport().Listen("sim:server", options, &acceptor);
  ASSERT_TRUE(listener.ok()) << listener.status();
  OpenChannel();
  Hold("held", kControl);
  Hold("held", kBackground);
  ASSERT_TRUE(RunUntil([&] { return acceptor.peer.received.size() == 2; }));
  for (const Bytes& frame : acceptor.peer.received) {
    EXPECT_EQ(CallFrameKindOf(frame), RequestKind(0));
  }
  channel_.reset();
  ASSERT_TRUE(RunUntil([&] { return acceptor.peer.connection == nullptr; }));
}

}  // namespace
}  // namespace weft::test
