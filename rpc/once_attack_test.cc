// Calls that run exactly once, priorities and attachments where things go wrong for those beside
// them: what a review found, on a simulated network.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "rpc/client/client_context.h"
#include "rpc/testing/once_test.h"
#include "rpc/wire/completion_id.h"
#include "rpc/wire/extras.h"
#include "rpc/wire/status_text.h"
#include "weft/status.h"

namespace weft::test {
namespace {

class OnceAttackTest : public OnceTest {};

// A session was opened by a call of normal priority: a control call waited for that.
TEST_F(OnceAttackTest, AControlCallThatRunsOnceWaitsForNoOtherCallsReply) {
  StartServer();
  ChannelOptions options = Once();
  options.max_outstanding_calls = 1;
  OpenChannel(options);
  service_.Next(service_.Hold());
  RetriedOutcome slow, urgent;
  Look(slow);
  WaitForHeld(1);
  Add(urgent, {.priority = Priority::kControl});
  EXPECT_TRUE(network_.RunUntil([&] { return urgent.done(); }, 30 * kNsPerSec));
  service_.End(0);
  EXPECT_EQ(EndOf(urgent), absl::OkStatus());
  EXPECT_EQ(EndOf(slow), absl::OkStatus());
}

// With all slots taken no renewal was sent, and the session expired at a server that was there.
TEST_F(OnceAttackTest, ASessionIsRenewedThoughAllSlotsAreTaken) {
  StartServer(ShortLease());
  ChannelOptions options = Once();
  options.max_outstanding_calls = 1;
  options.retry.initial_backoff_us = options.retry.max_backoff_us = 4'000'000;
  OpenChannel(options);
  service_.Next(service_.Hold());
  RetriedOutcome once, other;
  Add(once, kPatient);
  WaitForHeld(1);
  network_.Partition("client", server_node_);
  network_.RunFor(3 * kNsPerSec / 2);  // both give it up
  service_.End(0);                     // it has run: the record says so
  service_.Next(service_.Hold());
  Look(other, kPatient);
  network_.Heal("client", server_node_);
  WaitForHeld(2);  // connected, and the slot is the other call's
  network_.RunFor(4 * kLeaseNs);
  EXPECT_EQ(Stats().sessions, 1u) << "nobody was away";
  service_.End(1);
  EXPECT_EQ(EndOf(once), absl::OkStatus());
  EXPECT_EQ(EndOf(other), absl::OkStatus());
}

// A record kept the words of an error, of any length, and did not count them.
TEST_F(OnceAttackTest, TheWordsOfAnErrorCountAsWhatARecordHas) {
  Start(Once());
  // Somebody holds the window: the answers stay.
  RetriedOutcome oldest;
  AddHeld(oldest, {});
  constexpr int kCalls = 20;
  for (int i = 0; i < kCalls; ++i) {
    service_.Next(StoreService::Fail(absl::NotFoundError(std::string(1 << 20, 'x'))));
    RetriedOutcome outcome;
    Add(outcome);
    EXPECT_TRUE(absl::IsNotFound(EndOf(outcome)));
  }
  EXPECT_GE(Stats().record_bytes, uint64_t{kCalls} << 20) << "or no more than that is kept";
  service_.End(0);
  EXPECT_EQ(EndOf(oldest), absl::OkStatus());
}

// The same of metadata.
TEST_F(OnceAttackTest, MetadataOfAReplyCountAsWhatARecordHas) {
  Start(Once());
  service_.Next([](StoreService::Attempt attempt) {
    EXPECT_TRUE(attempt.context().AddReplyMetadata("k", std::string(7000, 'v')).ok());
    attempt.Finish(absl::OkStatus());
  });
  RetriedOutcome outcome;
  Add(outcome);
  ASSERT_TRUE(RunUntil([&] { return outcome.done(); }));
  EXPECT_GE(Stats().record_bytes, 7000u);
}

// One slow call kept all later outcomes of its session, up to the bound for all clients.
TEST_F(OnceAttackTest, OneClientsSlowCallDoesNotTakeAllRecords) {
  ServerOptions server;
  server.max_record_bytes = 1 << 20;
  StartServer(server);
  OpenChannel(Once());
  RetriedOutcome slow;
  AddHeld(slow, {});
  for (int i = 0; i < 200; ++i) {
    RetriedOutcome outcome;
    stub_->Add(MakeData(7, 16 << 10), &outcome.reply, {}, outcome.Callback(clock()));
    ASSERT_TRUE(RunUntil([&] { return outcome.done(); }));
    if (!outcome.status.ok()) break;
  }
  // Another client, on another machine.
  auto other = Channel::Open(CoreOf(network_.Node("other")), "sim:server", Once());
  ASSERT_TRUE(other.ok());
  Store::Stub stub(**other);
  RetriedOutcome outcome;
  stub.Add(MakeData(7, 10), &outcome.reply, {}, outcome.Callback(clock()));
  ASSERT_TRUE(network_.RunUntil([&] { return outcome.done(); }, 100 * kNsPerSec));
  EXPECT_EQ(outcome.status, absl::OkStatus());
  service_.End(0);
  EXPECT_EQ(EndOf(slow), absl::OkStatus());
}

// Calls that waited for room in a session waited for ever, when the next server kept no sessions.
TEST_F(OnceAttackTest, WhoWaitsForRoomHearsThatTheServerHasNoSessionsAnyMore) {
  ServerOptions server;
  server.max_running_bytes = 200'000;
  StartServer(server);
  OpenChannel(OnceWithLongPauses());
  RetriedOutcome bulky, oldest, joiner;
  service_.Next(service_.Hold());
  stub_->Look(MakeData(7, 150'000), &bulky.reply, {.no_retry = true}, bulky.Callback(clock()));
  WaitForHeld(1);
  stub_->Add(MakeData(7, 100'000), &oldest.reply, {}, oldest.Callback(clock()));
  ASSERT_TRUE(RunUntil([&] { return Stats().refused == 1; }));  // it pauses
  service_.End(0);
  ASSERT_TRUE(RunUntil([&] { return bulky.done(); }));
  for (uint64_t i = 1; i < kMaxSessionCalls; ++i) {
    RetriedOutcome outcome;
    Add(outcome);
    ASSERT_TRUE(network_.RunUntil([&] { return outcome.done(); }, 100 * kNsPerSec));
    ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  }
  Add(joiner, kPatient);
  network_.RunFor(kNsPerSec);
  EXPECT_FALSE(joiner.done());
  EXPECT_FALSE(oldest.done());
  KillServer();
  ServerOptions none;
  none.max_sessions = 0;
  StartServer(none);
  ASSERT_TRUE(network_.RunUntil([&] { return oldest.done(); }, 700 * kNsPerSec));
  EXPECT_EQ(oldest.status, absl::OkStatus());
  EXPECT_TRUE(network_.RunUntil([&] { return joiner.done(); }, 1000 * kNsPerSec))
      << "it waits for ever";
  RetriedOutcome next;
  Add(next);
  EXPECT_EQ(EndOf(next), absl::OkStatus());
  EXPECT_TRUE(joiner.done());
  stub_.reset();
  channel_.reset();
}

// Background calls filled the queue, and normal calls, which pass them, were refused.
TEST_F(OnceAttackTest, BackgroundCallsLeaveRoomInTheQueueToOthers) {
  StartServer();
  ChannelOptions options;
  options.max_outstanding_calls = 8;
  options.max_queued_calls = 16;
  OpenChannel(options);
  for (int i = 0; i < 100; ++i) service_.Next(service_.Hold());
  std::vector<std::unique_ptr<RetriedOutcome>> outcomes;
  const auto call = [&](Priority priority) {
    outcomes.push_back(std::make_unique<RetriedOutcome>());
    Add(*outcomes.back(), {.priority = priority});
    network_.RunFor(kNsPerMs);
  };
  for (int i = 0; i < 40; ++i) call(Priority::kBackground);
  const size_t first = outcomes.size();
  for (int i = 0; i < 4; ++i) call(Priority::kNormal);
  network_.RunFor(kNsPerSec);
  for (size_t i = first; i < outcomes.size(); ++i) {
    EXPECT_FALSE(outcomes[i]->done()) << "normal call " << i - first << ": " << outcomes[i]->status;
  }
  stub_.reset();
  channel_.reset();
}

// A cancel that overtook its attempt, a large one, did not reach the handler of the one before.
TEST_F(OnceAttackTest, ACancelThatOvertakesALargeAttemptReachesTheHandler) {
  Start(Once());
  service_.Next(service_.Hold());
  ClientContext context;
  RetriedOutcome outcome;
  ASSERT_TRUE(context.SetAttachment(absl::Cord(std::string(8 << 20, 'a'))).ok());
  Add(outcome, {.wait_for_server = true, .context = &context});
  WaitForHeld(1);
  const uint64_t before = channel_->stats().connects;
  network_.Partition("client", server_node_);
  network_.RunFor(3 * kNsPerSec / 2);
  network_.Heal("client", server_node_);
  ASSERT_TRUE(RunUntil([&] { return channel_->stats().connects > before; }));
  ASSERT_TRUE(RunUntil([&] { return channel_->stats().outstanding == 1; }));
  ASSERT_TRUE(context.Cancel().ok());
  EXPECT_TRUE(absl::IsCancelled(EndOf(outcome)));
  EXPECT_TRUE(network_.RunUntil([&] { return service_.cancelled == 1; }, 10 * kNsPerSec));
  service_.End(0);
  ExpectNothingIsLeft();
}

}  // namespace
}  // namespace weft::test
