// DeliveryOf() every error that Weft makes for a call or for an operation on remote memory.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/strings.h"
#include "rpc/client/bulk_call.h"
#include "rpc/memory/remote_memory.h"
#include "rpc/server/exported_memory.h"
#include "rpc/testing/rpc_test.h"
#include "weft/status.h"

namespace weft::test {
namespace {

class DeliveryTest : public RpcTest {
 protected:
  void Hold(Outcome& outcome, const CallOptions& options = {}) {
    stub_->Hold(Data(), &outcome.reply, options, outcome.Callback());
  }
  void HoldAndWait(Outcome& outcome) {
    Hold(outcome);
    ASSERT_TRUE(RunUntil([&] { return !service_.held.empty(); }));
  }
  // The status with which it ends.
  absl::Status EndOf(Outcome& outcome) {
    EXPECT_TRUE(RunUntil([&] { return outcome.done(); }));
    EXPECT_EQ(outcome.completions, 1);
    return outcome.status.value_or(absl::OkStatus());
  }
  absl::Status Fail(absl::StatusCode code, const std::string& text) {
    Failure request;
    request.set_code(static_cast<int>(code));
    request.set_text(text);
    Data reply;
    return stub_->Fail(request, &reply);
  }

  Data reply_;
};

#define EXPECT_DELIVERY(status, code_name, delivery)               \
  do {                                                             \
    const absl::Status status_ = (status);                         \
    EXPECT_EQ(status_.code(), absl::StatusCode::code_name);        \
    EXPECT_EQ(DeliveryOf(status_), Delivery::delivery) << status_; \
  } while (false)

// An error, and what is expected of it.
struct Expected {
  std::string_view what;
  std::function<absl::Status()> make;
  absl::StatusCode code;
  Delivery delivery;
};

bool Says(const absl::Status& status, std::string_view words) {
  return status.message().find(ToAbsl(words)) != absl::string_view::npos;
}

// Its Delivery is the expected one, and its words do not say another.
void ExpectAll(const std::vector<Expected>& all) {
  for (const Expected& expected : all) {
    const absl::Status status = expected.make();
    SCOPED_TRACE(StrCat(expected.what, ": ", ToStd(status.ToString())));
    EXPECT_EQ(status.code(), expected.code);
    EXPECT_EQ(DeliveryOf(status), expected.delivery);
    if (Says(status, "not sent") || Says(status, "not run")) {
      EXPECT_EQ(DeliveryOf(status), Delivery::kNotSent);
    }
    if (Says(status, "has run") || Says(status, "have run")) {
      EXPECT_EQ(DeliveryOf(status), Delivery::kMayHaveRun);
    }
    EXPECT_TRUE(!Says(status, "safe to retry") ||
                status.code() != absl::StatusCode::kInvalidArgument)
        << "the same call fails again";
  }
}

// --- calls ---------------------------------------------------------------------------------------

TEST_F(DeliveryTest, EveryErrorThatWeftMakesForACallSaysIt) {
  using Code = absl::StatusCode;
  ServerOptions server;
  server.max_request_bytes = 2000;
  ChannelOptions options;
  options.max_reply_bytes = 1000;
  Start(options, server);
  ChannelOptions lazy;
  lazy.connect_at_once = false;
  auto nowhere = *Channel::Open(client(), "no address", lazy);
  auto other_engine = *Channel::Open(CoreOf(network_.Node("other")), "sim:server");
  BulkCall of_another_engine(*other_engine);
  BulkCall outside(*channel_);
  outside.Receive({nullptr, 0, 8});
  Size too_large;
  too_large.set_bytes(1500);
  Required forgets;
  forgets.set_id(1);
  forgets.set_forget(true);
  Required required;
  const auto in_callback = [&] {
    absl::Status inner;
    Outcome outer;
    stub_->Echo(Data(), &outer.reply, {}, [&](absl::Status status) {
      inner = stub_->Echo(Data(), &reply_);
      outer.Callback()(std::move(status));
    });
    EXPECT_TRUE(EndOf(outer).ok());
    return inner;
  };
  const auto dropped = [&] {
    Outcome outcome;
    Hold(outcome);
    EXPECT_TRUE(RunUntil([&] { return !service_.held.empty(); }));
    service_.held.clear();
    return EndOf(outcome);
  };
  ExpectAll({
      {"an address that nobody can read", [&] { return Probe::Stub(*nowhere).Echo({}, &reply_); },
       Code::kInvalidArgument, Delivery::kNotSent},
      {"a required field that is missing", [&] { return stub_->Strict({}, &required); },
       Code::kInvalidArgument, Delivery::kNotSent},
      {"a service that is not there", [&] { return Absent::Stub(*channel_).Echo({}, &reply_); },
       Code::kUnimplemented, Delivery::kNotSent},
      {"a method that nobody overrides", [&] { return stub_->Missing({}, &reply_); },
       Code::kUnimplemented, Delivery::kNotSent},
      {"a request that is too large", [&] { return stub_->Echo(MakeData(1, 3000), &reply_); },
       Code::kResourceExhausted, Delivery::kNotSent},
      {"a blocking call inside a callback", in_callback, Code::kFailedPrecondition,
       Delivery::kNotSent},
      {"a slice outside of its memory",
       [&] { return stub_->Echo({}, &reply_, {.bulk = &outside}); }, Code::kInvalidArgument,
       Delivery::kNotSent},
      {"lent memory of another engine",
       [&] { return stub_->Echo({}, &reply_, {.bulk = &of_another_engine}); },
       Code::kInvalidArgument, Delivery::kNotSent},
      {"a reply that is too large", [&] { return stub_->Make(too_large, &reply_); },
       Code::kResourceExhausted, Delivery::kMayHaveRun},
      {"a reply that lacks a required field", [&] { return stub_->Strict(forgets, &required); },
       Code::kInternal, Delivery::kMayHaveRun},
      {"a handler that drops its call", dropped, Code::kInternal, Delivery::kMayHaveRun},
  });
}

// Of the codes that Weft's own errors have; an error of another code is the handler's answer.
TEST_F(DeliveryTest, AnErrorOfAHandlerSaysItIfWeftHasOnesOfTheSameCode) {
  using Code = absl::StatusCode;
  Start();
  const auto fails = [this](Code code) {
    return [=, this] { return Fail(code, "no (not sent)"); };
  };
  for (const Code code : {Code::kCancelled, Code::kDeadlineExceeded, Code::kResourceExhausted,
                          Code::kInternal, Code::kUnavailable}) {
    EXPECT_EQ(DeliveryOf(fails(code)()), Delivery::kMayHaveRun) << code;
  }
  for (const Code code :
       {Code::kUnknown, Code::kInvalidArgument, Code::kNotFound, Code::kAlreadyExists,
        Code::kPermissionDenied, Code::kFailedPrecondition, Code::kAborted, Code::kOutOfRange,
        Code::kUnimplemented, Code::kDataLoss, Code::kUnauthenticated}) {
    EXPECT_EQ(DeliveryOf(fails(code)()), Delivery::kUnknown) << code;
  }
}

TEST_F(DeliveryTest, WithoutAServerNothingIsSent) {
  ChannelOptions lazy;
  lazy.connect_at_once = false;
  OpenChannel(lazy);
  EXPECT_DELIVERY(stub_->Echo(Data(), &reply_), kUnavailable, kNotSent);
  EXPECT_DELIVERY(stub_->Echo(Data(), &reply_, {.timeout_us = 5000, .wait_for_server = true}),
                  kDeadlineExceeded, kNotSent);
}

TEST_F(DeliveryTest, ADeadlineSaysWhetherTheRequestHadLeft) {
  ChannelOptions one;
  one.max_outstanding_calls = 1;
  Start(one);
  Outcome first;
  Outcome second;
  Hold(first, {.timeout_us = 5000});
  Hold(second, {.timeout_us = 3000});
  EXPECT_DELIVERY(EndOf(second), kDeadlineExceeded, kNotSent);
  EXPECT_DELIVERY(EndOf(first), kDeadlineExceeded, kMayHaveRun);
}

TEST_F(DeliveryTest, ALostConnectionLeavesOpenWhatHasRun) {
  Start();
  Outcome outcome;
  HoldAndWait(outcome);
  network_.Kill("server");
  EXPECT_DELIVERY(EndOf(outcome), kUnavailable, kMayHaveRun);
}

TEST_F(DeliveryTest, AChannelThatIsClosedSaysItOfEachCall) {
  ChannelOptions one;
  one.max_outstanding_calls = 1;
  Start(one);
  Outcome sent;
  Outcome queued;
  HoldAndWait(sent);
  Hold(queued);
  channel_.reset();
  EXPECT_DELIVERY(EndOf(sent), kCancelled, kMayHaveRun);
  EXPECT_DELIVERY(EndOf(queued), kCancelled, kNotSent);
}

// The destructor would never return if such a call were cancelled again.
TEST_F(DeliveryTest, ACallbackThatStartsItsCancelledCallAgainLearnsThatItCannot) {
  Start();
  int starts = 0;
  absl::Status last;
  Function<void()> start = [&] {
    ++starts;
    stub_->Hold(Data(), &reply_, {}, [&](absl::Status status) {
      last = std::move(status);
      if (absl::IsCancelled(last)) start();
    });
  };
  start();
  ASSERT_TRUE(RunUntil([&] { return !service_.held.empty(); }));
  channel_.reset();
  EXPECT_EQ(starts, 2);
  EXPECT_DELIVERY(last, kFailedPrecondition, kNotSent);
}

TEST_F(DeliveryTest, ALimitOfTheClientIsMetBeforeSending) {
  ChannelOptions options;
  options.max_outstanding_calls = 1;
  options.max_queued_calls = 1;
  Start(options);
  std::vector<Outcome> outcomes(3);
  for (Outcome& outcome : outcomes) Hold(outcome);
  EXPECT_DELIVERY(EndOf(outcomes[2]), kResourceExhausted, kNotSent);
  channel_.reset();  // before the outcomes
}

// --- what servers answer -------------------------------------------------------------------------

class NoRoom final : public Executor {
 public:
  bool Run(Function<void()>) override { return false; }
};

TEST_F(DeliveryTest, AServerWithoutRoomHasNotRunTheCall) {
  NoRoom executor;
  ServerOptions options;
  options.executor = &executor;
  Start({}, options);
  EXPECT_DELIVERY(stub_->Echo(Data(), &reply_), kResourceExhausted, kNotSent);
}

TEST_F(DeliveryTest, ARequestBeyondTheServersBytesHasNotRun) {
  ServerOptions options;
  options.max_running_bytes = 5000;
  Start({}, options);
  Outcome held;
  stub_->Hold(MakeData(1, 4000), &held.reply, {}, held.Callback());
  EXPECT_DELIVERY(stub_->Echo(MakeData(1, 4000), &reply_), kResourceExhausted, kNotSent);
  channel_.reset();  // before the outcome
}

TEST_F(DeliveryTest, AnErrorOfAHandlerHasRunWhateverItSays) {
  Start();
  EXPECT_DELIVERY(Fail(absl::StatusCode::kUnavailable, "shard 7 is gone (not sent)"), kUnavailable,
                  kMayHaveRun);
  EXPECT_DELIVERY(Fail(absl::StatusCode::kDeadlineExceeded, "too slow"), kDeadlineExceeded,
                  kMayHaveRun);
  EXPECT_DELIVERY(Fail(absl::StatusCode::kNotFound, "no such key"), kNotFound, kUnknown);
}

// A handler whose own call was not sent has run all the same.
TEST_F(DeliveryTest, WhatAHandlerPassesOnIsNotTakenForTheServersOwn) {
  Start();
  Outcome outcome;
  HoldAndWait(outcome);
  service_.Release(WithDelivery(absl::UnavailableError("no server at db:2"), Delivery::kNotSent));
  EXPECT_DELIVERY(EndOf(outcome), kUnavailable, kMayHaveRun);
}

// --- remote memory -------------------------------------------------------------------------------

class RemoteDeliveryTest : public DeliveryTest {
 protected:
  ~RemoteDeliveryTest() override {
    memory_.reset();
    buffer_.reset();
    exported_.reset();
  }

  void StartWithMemory(const RemoteMemoryOptions& options = {}) {
    Start();
    ExportOptions all_rights;
    all_rights.rights = kAllRights;
    exported_ = *server_->Export(owned_, all_rights);
    buffer_ = *channel_->AllocateBuffer(owned_.size());
    auto memory = RemoteMemory::Open(*channel_, exported_->handle(), options);
    ASSERT_TRUE(memory.ok()) << memory.status();
    memory_ = *std::move(memory);
  }
  Slice Word() { return buffer_->slice(0, 8); }

  alignas(64) std::array<std::byte, 4096> owned_ = {};
  std::unique_ptr<ExportedMemory> exported_;
  std::unique_ptr<Buffer> buffer_;
  std::unique_ptr<RemoteMemory> memory_;
};

TEST_F(RemoteDeliveryTest, OperationsUnderWayAtALossMayHaveBeenCarriedOut) {
  StartWithMemory();
  Outcome read;
  Outcome write;
  absl::Status added;
  network_.Partition("client", "server");
  memory_->Read(0, Word(), read.Callback());
  memory_->Write(0, Word(), write.Callback());
  memory_->FetchAdd(8, 1, [&](absl::StatusOr<uint64_t> before) { added = before.status(); });
  EXPECT_DELIVERY(EndOf(read), kUnavailable, kMayHaveRun);
  EXPECT_DELIVERY(EndOf(write), kUnavailable, kMayHaveRun);
  ASSERT_TRUE(RunUntil([&] { return !added.ok(); }));
  EXPECT_DELIVERY(added, kUnavailable, kMayHaveRun);
}

TEST_F(RemoteDeliveryTest, WithoutAServerNothingIsSent) {
  StartWithMemory();
  KillServer();
  network_.RunFor(kNsPerSec);
  EXPECT_DELIVERY(memory_->Write(0, Word()), kUnavailable, kNotSent);
  EXPECT_DELIVERY(memory_->FetchAdd(0, 1).status(), kUnavailable, kNotSent);
  EXPECT_DELIVERY(memory_->Derive(0, 64, kMayRead, 0).status(), kUnavailable, kNotSent);
}

TEST_F(RemoteDeliveryTest, EveryErrorThatWeftMakesForAnOperationSaysIt) {
  using Code = absl::StatusCode;
  StartWithMemory();
  ExportOptions for_reading;
  const auto readable = *server_->Export(owned_, for_reading);
  auto read_only = *RemoteMemory::Open(*channel_, readable->handle());
  const auto in_callback = [&] {
    absl::Status inner;
    Outcome outer;
    memory_->Read(0, Word(), [&](absl::Status status) {
      inner = memory_->Read(0, Word());
      outer.Callback()(std::move(status));
    });
    EXPECT_TRUE(EndOf(outer).ok());
    return inner;
  };
  ExpectAll({
      {"out of bounds", [&] { return memory_->Read(4089, Word()); }, Code::kInvalidArgument,
       Delivery::kNotSent},
      {"local memory out of bounds", [&] { return memory_->Write(0, buffer_->slice(4090, 8)); },
       Code::kInvalidArgument, Delivery::kNotSent},
      {"an empty batch", [&] { return memory_->ReadBatch({}); }, Code::kInvalidArgument,
       Delivery::kNotSent},
      {"an atomic that is not aligned", [&] { return memory_->FetchAdd(4, 1).status(); },
       Code::kInvalidArgument, Delivery::kNotSent},
      {"a right that the handle lacks", [&] { return read_only->Write(0, Word()); },
       Code::kPermissionDenied, Delivery::kNotSent},
      {"a blocking operation inside a callback", in_callback, Code::kFailedPrecondition,
       Delivery::kNotSent},
      {"the same, with a callback",
       [&] {
         Outcome outcome;
         memory_->Read(4089, Word(), outcome.Callback());
         return EndOf(outcome);
       },
       Code::kInvalidArgument, Delivery::kNotSent},
      {"what was revoked",
       [&] {
         readable->Revoke(0);
         network_.RunFor(kNsPerSec);
         return read_only->Read(0, Word());
       },
       Code::kAborted, Delivery::kNotSent},
      {"a question that the owner refuses",
       [&] { return read_only->Derive(0, 64, kMayRead, 0).status(); }, Code::kPermissionDenied,
       Delivery::kMayHaveRun},
  });
}

TEST_F(RemoteDeliveryTest, OperationsThatWaitAreNotSent) {
  StartWithMemory({.resolve_at_once = false, .max_waiting = 1});
  Outcome waits;
  Outcome beyond;
  memory_->Write(0, Word(), waits.Callback());
  memory_->Write(0, Word(), beyond.Callback());
  memory_.reset();
  EXPECT_DELIVERY(EndOf(waits), kCancelled, kNotSent);
  EXPECT_DELIVERY(EndOf(beyond), kResourceExhausted, kNotSent);
}

}  // namespace
}  // namespace weft::test
