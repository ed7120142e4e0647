// One-sided Gets on the simulated network, beside writers: what all clients see is recorded and
// must be linearizable, through cuts, slow servers and the server's death.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/strings.h"
#include "core/test_seed.h"
#include "core/timer_wheel.h"
#include "examples/kv/client/check_load.h"
#include "examples/kv/client/one_sided_gets.h"
#include "examples/kv/client/ycsb_run.h"
#include "examples/kv/index/exported_index.h"
#include "examples/kv/kv_service.h"
#include "examples/verify/history/checker.h"
#include "weft/server.h"
#include "weft/sim.h"

namespace kv::client {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kLanes = 8;

// A client on a node of its own.
struct Client {
  Client(weft::SimNetwork& network, const std::string& name) {
    weft::ChannelOptions options;
    options.default_timeout_us = 100'000;
    options.link.connect_timeout_ns = 100 * weft::kNsPerMs;
    channel = *weft::Channel::Open(network.Node(name), "sim:db", options);
    session = std::make_unique<Session>(
        Session{*channel, Kv::Stub(*channel), weft::CallOptions(), kLanes, /*stop=*/nullptr});
  }
  void ReadByItself() {
    auto opened = OpenOneSidedGets(*session);
    ASSERT_TRUE(opened.ok()) << opened.status();
    one_sided = *std::move(opened);
    session->one_sided = one_sided.get();
  }
  absl::Status Get(const std::string& key, std::string* value) {
    GetRequest request;
    GetReply reply;
    request.set_key(key);
    absl::Status result;
    ClosedLoop once(channel->engine(), 1, [&, started = false](uint32_t lane) mutable {
      if (std::exchange(started, true)) return false;
      session->StartGet(lane, request, &reply, [&](absl::Status status) {
        result = std::move(status);
        once.Done(lane);
      });
      return true;
    });
    once.Run([] { return true; });
    if (result.ok()) *value = reply.fields(0).value();
    return result;
  }

  std::unique_ptr<weft::Channel> channel;
  std::unique_ptr<Session> session;
  std::unique_ptr<OneSidedGets> one_sided;
};

// Of reads, so many per cent are done at once.
class OneSidedTest : public testing::TestWithParam<uint32_t> {
 protected:
  OneSidedTest() {
    auto index = index::ExportedIndex::Create(*server_, index::kMinIndexBytes);
    EXPECT_TRUE(index.ok()) << index.status();
    index_ = *std::move(index);
    service_.set_index(index_.get());
    EXPECT_TRUE(server_->AddService(&service_).ok());
    EXPECT_TRUE(server_->Listen("sim:db").ok());
    first_ = std::make_unique<Client>(network_, "first");
    second_ = std::make_unique<Client>(network_, "second");
    first_->ReadByItself();
    second_->ReadByItself();
  }

  void Put(const std::string& key, const std::string& value) {
    PutRequest request;
    PutReply reply;
    request.set_key(key);
    request.add_fields()->set_value(value);
    ASSERT_TRUE(first_->session->kv.Put(request, &reply).ok());
  }

  // Both clients at once; `fault` happens after `delay_ns`. What they saw.
  verify::Verdict RunLoads(CheckPlan plan, uint64_t delay_ns = 0,
                           std::function<void()> fault = nullptr) {
    plan.seed = seed_;
    verify::Recorder recorder(network_.clock(), 2 * kLanes);
    CheckLoad first(*first_->session, plan, &recorder, 0);
    CheckLoad second(*second_->session, plan, &recorder, kLanes);
    const auto start_due = [&] {
      first.StartDue();
      second.StartDue();
      return first.ended() && second.ended();
    };
    if (fault != nullptr) {
      EXPECT_FALSE(network_.RunUntil(start_due, delay_ns));
      fault();
    }
    EXPECT_TRUE(network_.RunUntil(start_due, 120 * weft::kNsPerSec));
    counts_[0] = first.counts();
    counts_[1] = second.counts();
    EXPECT_EQ(counts_[0].broken + counts_[1].broken, 0u);
    return verify::CheckHistory(recorder.Merge());
  }
  static CheckPlan HotKeys(uint64_t operations) {
    CheckPlan plan;
    plan.keys = 3;
    plan.operations = operations;
    return plan;
  }

  const uint64_t seed_ = weft::TestSeed();
  const testing::ScopedTrace trace_{__FILE__, __LINE__, weft::SeedTrace(seed_)};
  Store store_;
  KvService service_{&store_};
  static weft::SimOptions Options() {
    weft::SimOptions options;
    options.done_at_once_percent = GetParam();
    return options;
  }
  weft::SimNetwork network_{seed_, Options()};
  std::unique_ptr<weft::Server> server_ = *weft::Server::Create(network_.Node("db"));
  std::unique_ptr<index::ExportedIndex> index_;
  std::unique_ptr<Client> first_;
  std::unique_ptr<Client> second_;
  CheckCounts counts_[2];
};

TEST_P(OneSidedTest, AGetIsTwoReadsAndNoCall) {
  Put("key", "value");
  const uint64_t requests = server_->stats().requests;
  std::string value;
  EXPECT_TRUE(second_->Get("key", &value).ok());
  EXPECT_EQ(value, "value");
  EXPECT_TRUE(absl::IsNotFound(second_->Get("another", &value)));
  EXPECT_EQ(server_->stats().requests, requests);
  EXPECT_EQ(second_->one_sided->stats().records, 1u);
  EXPECT_EQ(second_->one_sided->stats().absent, 1u);
}

TEST_P(OneSidedTest, ARecordThatWasReadBeforeIsOneReadUntilItChanges) {
  Put("key", "one");
  std::string value;
  for (uint64_t round = 0; round < 3; ++round) {
    EXPECT_TRUE(second_->Get("key", &value).ok());
    EXPECT_EQ(value, "one");
    EXPECT_EQ(second_->one_sided->stats().at_once, round);
  }
  Put("key", "two");
  EXPECT_TRUE(second_->Get("key", &value).ok());
  EXPECT_EQ(value, "two");
  EXPECT_EQ(second_->one_sided->stats().at_once, 2u) << "by its bucket";
  EXPECT_TRUE(second_->Get("key", &value).ok());
  EXPECT_EQ(value, "two");
  EXPECT_EQ(second_->one_sided->stats().at_once, 3u);

  DeleteRequest request;
  DeleteReply reply;
  request.set_key("key");
  ASSERT_TRUE(first_->session->kv.Delete(request, &reply).ok());
  EXPECT_TRUE(absl::IsNotFound(second_->Get("key", &value)));
  EXPECT_EQ(second_->one_sided->stats().calls, 0u);
  EXPECT_EQ(second_->one_sided->stats().again, 0u);
}

// The reply is the caller's, and may hold anything from before.
TEST_P(OneSidedTest, NothingOfAnEarlierReplyIsLeft) {
  Put("key", "value");
  GetRequest request;
  GetReply reply;
  for (int i = 0; i < 3; ++i) reply.add_fields()->set_name("old");
  request.set_key("key");
  bool ended = false;
  second_->session->StartGet(0, request, &reply, [&](const absl::Status& status) {
    EXPECT_TRUE(status.ok()) << status;
    ended = true;
  });
  ASSERT_TRUE(network_.RunUntil([&] { return ended; }, weft::kNsPerSec));
  ASSERT_EQ(reply.fields_size(), 1);
  EXPECT_EQ(reply.fields(0).name(), "");
  EXPECT_EQ(reply.fields(0).value(), "value");
}

TEST_P(OneSidedTest, WhatTheIndexDoesNotHoldIsGotByACall) {
  const std::string large(100'000, 'x');
  Put("large", large);
  std::string value;
  EXPECT_TRUE(second_->Get("large", &value).ok());
  EXPECT_EQ(value, large);
  EXPECT_EQ(second_->one_sided->stats().calls, 1u);
}

TEST_P(OneSidedTest, ConcurrentWritersAndReadersAreLinearizable) {
  const verify::Verdict verdict = RunLoads(HotKeys(5'000));
  EXPECT_TRUE(verdict.ok()) << verdict.text;
  EXPECT_EQ(verdict.operations, 10'000u);
  EXPECT_GT(first_->one_sided->stats().records, 500u);
  EXPECT_GT(first_->one_sided->stats().absent, 100u);
  EXPECT_GT(first_->one_sided->stats().again, 0u) << "a record changed between the two reads";
  index_->index().CheckInvariants();
  network_.CheckInvariants();
}

TEST_P(OneSidedTest, ASlowServerAndALongWireChangeNothing) {
  network_.SlowDown("db", 20'000);
  weft::SimWire slow;
  slow.delay_ns = 300'000;
  slow.jitter_ns = 500'000;
  network_.SetWire("db", "second", slow);
  const verify::Verdict verdict = RunLoads(HotKeys(1'500));
  EXPECT_TRUE(verdict.ok()) << verdict.text;
  EXPECT_EQ(counts_[0].errors + counts_[1].errors, 0u);
}

TEST_P(OneSidedTest, AClientThatWasCutOffSeesNothingOld) {
  const verify::Verdict verdict = RunLoads(HotKeys(1'500), 3 * weft::kNsPerMs, [this] {
    network_.Partition("db", "second");
    network_.RunFor(2 * weft::kNsPerSec);  // longer than either side waits
    network_.Heal("db", "second");
  });
  EXPECT_TRUE(verdict.ok()) << verdict.text;
  EXPECT_GT(counts_[1].errors, 0u);
}

TEST_P(OneSidedTest, AServersDeathEndsTheHistoryWithoutALie) {
  const verify::Verdict verdict =
      RunLoads(HotKeys(20'000), 5 * weft::kNsPerMs, [this] { network_.Kill("db"); });
  EXPECT_TRUE(verdict.ok()) << verdict.text;
  EXPECT_GT(counts_[0].errors, 0u);
}

// That the checks above can fail: an index that is not told of changes.
TEST_P(OneSidedTest, AnIndexThatMissesChangesIsFoundOut) {
  service_.set_index(nullptr);  // Puts and Deletes no longer reach it
  const verify::Verdict verdict = RunLoads(HotKeys(500));
  EXPECT_EQ(verdict.kind, verify::Verdict::Kind::kViolation);
  EXPECT_THAT(verdict.text, HasSubstr("not linearizable"));
}

TEST_P(OneSidedTest, YcsbReadsByItself) {
  YcsbOptions options;
  options.records = 200;
  options.fields = 3;
  options.value_bytes = 10;
  options.operations = 2'000;
  ASSERT_TRUE(StoreYcsbRecords(*first_->session, options).ok());
  for (const char name : {'A', 'C', 'F'}) {
    const auto result = RunYcsbWorkload(*first_->session, options, *ycsb::FindWorkload(name));
    EXPECT_EQ(result->errors, 0u) << result->first_error;
    EXPECT_EQ(result->operations, 2'000u);
  }
  EXPECT_GT(first_->one_sided->stats().records, 3'000u);
}

TEST_P(OneSidedTest, WithoutAnIndexTheServerSaysSo) {
  service_.set_index(nullptr);
  const auto opened = OpenOneSidedGets(*first_->session);
  EXPECT_TRUE(absl::IsFailedPrecondition(opened.status())) << opened.status();
}

INSTANTIATE_TEST_SUITE_P(DoneAtOncePercent, OneSidedTest, testing::Values(0, 50),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace kv::client
