// A server that is about to shut down: what it says to its clients, what becomes of their calls,
// and when it ends.
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rpc/client/client_context.h"
#include "rpc/memory/remote_memory.h"
#include "rpc/server/exported_memory.h"
#include "rpc/testing/raw_hellos.h"
#include "rpc/testing/raw_peer.h"
#include "rpc/testing/stream_test.h"
#include "rpc/testing/ticks.h"
#include "rpc/wire/frame.h"
#include "rpc/wire/hello.pb.h"
#include "weft/status.h"

namespace weft::test {
namespace {

constexpr uint64_t kGraceUs = 10'000'000;
constexpr uint16_t kEcho = 0;
constexpr uint16_t kHold = 2;
constexpr uint16_t kMake = 4;

const absl::Status& Leaving() {
  static const auto* const leaving = new absl::Status(
      WithDelivery(absl::UnavailableError(
                       "the server at sim:server is about to shut down (not sent, safe to retry)"),
                   Delivery::kNotSent));
  return *leaving;
}

Bytes Goaway(uint32_t unanswered) {
  Bytes frame(kCallHeaderBytes);
  EncodeGoaway(unanswered, frame.data());
  return frame;
}

// Shutdown() drives the network while it waits: what happens meanwhile is planned before.
class DrainTest : public StreamTest {
 protected:
  void In(uint64_t ns, EngineCore& engine, Function<void()> what) {
    plan_.emplace_back(engine, ns, std::move(what));
  }
  void AtServer(uint64_t ns, Function<void()> what) { In(ns, server_engine(), std::move(what)); }
  void AtClient(uint64_t ns, Function<void()> what) { In(ns, client(), std::move(what)); }

  // How long it took.
  uint64_t ShutdownNs(uint64_t grace_us = kGraceUs) {
    const uint64_t begin_ns = network_.clock().NowNs();
    server_->Shutdown(grace_us);
    return network_.clock().NowNs() - begin_ns;
  }

  void Hold(Outcome& outcome) {
    const size_t held = service_.held.size();
    stub_->Hold(Data(), &outcome.reply, {}, outcome.Callback());
    ASSERT_TRUE(RunUntil([&] { return service_.held.size() == held + 1; }));
  }
  bool Ended(const Outcome& outcome) {
    return RunUntil([&] { return outcome.done(); });
  }

  std::deque<At> plan_;
};

// --- calls ---------------------------------------------------------------------------------------

TEST_F(DrainTest, CallsThatRunGoOnAndNewOnesFailAsNotSent) {
  Start();
  Outcome held;
  Hold(held);
  Outcome late;
  AtClient(5 * kNsPerMs, [&] { stub_->Echo(Data(), &late.reply, {}, late.Callback()); });
  AtServer(10 * kNsPerMs, [&] {
    EXPECT_TRUE(late.done()) << "it does not wait for the others";
    service_.Release();
  });
  EXPECT_LT(ShutdownNs(), 20 * kNsPerMs);
  ASSERT_TRUE(Ended(held) && Ended(late));
  EXPECT_EQ(*held.status, absl::OkStatus());
  EXPECT_EQ(*late.status, Leaving());
  EXPECT_EQ(server_->stats().requests, 1u);
}

TEST_F(DrainTest, CallsOfAllFormsAreTurnedAway) {
  StartStreams();
  Outcome held;
  Hold(held);
  std::optional<Talk> talk;
  std::optional<absl::Status> talk_end;
  Outcome with_context, patient;
  ClientContext context;
  AtClient(5 * kNsPerMs, [&] {
    talk.emplace(chat_->Talk());
    talk->Finish([&](absl::Status status) { talk_end = std::move(status); });
    stub_->Echo(Data(), &with_context.reply, {.context = &context}, with_context.Callback());
    stub_->Echo(Data(), &patient.reply, {.wait_for_server = true}, patient.Callback());
  });
  AtServer(10 * kNsPerMs, [&] {
    EXPECT_TRUE(talk_end.has_value() && with_context.done());
    service_.Release();
  });
  ShutdownNs();
  EXPECT_EQ(*talk_end, Leaving());
  EXPECT_EQ(*with_context.status, Leaving());
  EXPECT_TRUE(held.status->ok());
  EXPECT_FALSE(patient.done());
  StartStreamServer();
  ASSERT_TRUE(Ended(patient));
  EXPECT_EQ(*patient.status, absl::OkStatus());
}

TEST_F(DrainTest, CallsThatWaitForASlotAreTurnedAwayOrWaitForTheNextServer) {
  ChannelOptions one_at_a_time;
  one_at_a_time.max_outstanding_calls = 1;
  Start(one_at_a_time);
  Outcome held, queued, patient;
  Hold(held);
  stub_->Echo(Data(), &queued.reply, {}, queued.Callback());
  stub_->Echo(Data(), &patient.reply, {.wait_for_server = true}, patient.Callback());
  AtServer(10 * kNsPerMs, [&] {
    EXPECT_TRUE(queued.done());
    service_.Release();
  });
  ShutdownNs();
  ASSERT_TRUE(Ended(held));
  EXPECT_EQ(*held.status, absl::OkStatus());
  EXPECT_EQ(*queued.status, Leaving());
  EXPECT_FALSE(patient.done());
  StartServer();
  ASSERT_TRUE(Ended(patient));
  EXPECT_EQ(*patient.status, absl::OkStatus());
}

TEST_F(DrainTest, APatientCallThatExpiresMeanwhileSaysWhy) {
  Start();
  Outcome held, patient;
  Hold(held);
  AtClient(5 * kNsPerMs, [&] {
    stub_->Echo(Data(), &patient.reply, {.timeout_us = 3000, .wait_for_server = true},
                patient.Callback());
  });
  AtServer(20 * kNsPerMs, [&] { service_.Release(); });
  ShutdownNs();
  EXPECT_EQ(*patient.status,
            WithDelivery(
                absl::DeadlineExceededError("no reply from sim:server within 3 ms: the server was "
                                            "about to shut down (not sent, safe to retry)"),
                Delivery::kNotSent));
}

TEST_F(DrainTest, AtTheGracesEndHandlersAreCancelledAndTheirCallsMayHaveRun) {
  Start();
  Outcome held;
  Hold(held);
  int cancelled = 0;
  service_.held.front().context().OnCancel([&] {
    ++cancelled;
    service_.held.clear();
  });
  const uint64_t took_ns = ShutdownNs(50'000);
  EXPECT_GE(took_ns, 50 * kNsPerMs);
  EXPECT_LT(took_ns, 60 * kNsPerMs);
  EXPECT_EQ(cancelled, 1);
  ASSERT_TRUE(Ended(held));
  EXPECT_TRUE(absl::IsUnavailable(*held.status)) << *held.status;
  EXPECT_EQ(DeliveryOf(*held.status), Delivery::kMayHaveRun);
}

TEST_F(DrainTest, ACallThatWasGivenUpKeepsNobody) {
  Start();
  Outcome given_up;
  stub_->Hold(Data(), &given_up.reply, {.timeout_us = 5000}, given_up.Callback());
  ASSERT_TRUE(RunUntil([&] { return !service_.held.empty(); }));
  AtClient(39 * kNsPerMs, [&] {
    EXPECT_TRUE(absl::IsDeadlineExceeded(*given_up.status));
    EXPECT_FALSE(channel_->path().ok()) << "the client has not left";
  });
  AtServer(40 * kNsPerMs, [&] {
    EXPECT_TRUE(service_.held.front().context().cancelled());
    service_.held.clear();
  });
  EXPECT_LT(ShutdownNs(), 50 * kNsPerMs);
}

// A reply that is larger than a frame stays in the server's memory until the client has read it.
// The server took the call for ended when it had been offered, closed the connection, and the call
// failed as one that may have run.
TEST_F(DrainTest, LargeRepliesThatAreNotYetFetchedArrive) {
  Start();
  SimWire slow;
  slow.bytes_per_s = 10'000'000;  // 400 ms for four megabytes
  network_.SetWire("server", "client", slow);
  std::vector<Outcome> outcomes(4);
  Size size;
  size.set_bytes(1'000'000);
  for (Outcome& outcome : outcomes) stub_->Make(size, &outcome.reply, {}, outcome.Callback());
  ASSERT_TRUE(RunUntil([&] { return server_->stats().replies_ok == outcomes.size(); }));
  ASSERT_EQ(server_->stats().running, 0u);
  ASSERT_FALSE(outcomes[0].done());
  EXPECT_GE(ShutdownNs(), 200 * kNsPerMs);
  for (Outcome& outcome : outcomes) {
    ASSERT_TRUE(Ended(outcome));
    ASSERT_EQ(*outcome.status, absl::OkStatus());
    EXPECT_EQ(outcome.reply.payload().size(), size.bytes());
  }
}

TEST_F(DrainTest, RepliesThatWaitForCreditAllArrive) {
  ChannelOptions narrow;
  narrow.link.window_slots = 4;
  Start(narrow);
  network_.SlowDown("client", kNsPerMs);  // each batch
  std::vector<Outcome> outcomes(40);
  Size size;
  size.set_bytes(7'000);  // a batch each
  for (Outcome& outcome : outcomes) stub_->Make(size, &outcome.reply, {}, outcome.Callback());
  ASSERT_TRUE(RunUntil([&] { return server_->stats().requests == outcomes.size(); }));
  ASSERT_GT(server_->stats().running, 0u) << "none waits";
  ShutdownNs();
  for (Outcome& outcome : outcomes) {
    ASSERT_TRUE(Ended(outcome));
    EXPECT_EQ(*outcome.status, absl::OkStatus());
  }
}

TEST_F(DrainTest, ALargeRequestThatCrossesTheGoawayIsNotRun) {
  Start();
  SimWire slow;
  slow.bytes_per_s = 10'000'000;
  network_.SetWire("client", "server", slow);
  Outcome outcome;
  stub_->Echo(MakeData(1, 1'000'000), &outcome.reply, {}, outcome.Callback());
  network_.RunFor(kNsPerMs);
  ShutdownNs();
  ASSERT_TRUE(Ended(outcome));
  EXPECT_TRUE(absl::IsUnavailable(*outcome.status)) << *outcome.status;
  EXPECT_EQ(DeliveryOf(*outcome.status), Delivery::kNotSent);
  EXPECT_EQ(service_.echoes, 0);
}

// A client whose connection came up while the server was about to end had sent its calls before it
// was told, and could not know whether they had run.
TEST_F(DrainTest, CallsOfAClientThatConnectsMeanwhileSurelyHaveNotRun) {
  for (uint64_t delay_ns = 0; delay_ns < 200'000; delay_ns += 5'000) {
    SCOPED_TRACE(delay_ns);
    StartServer();
    ChannelOptions lazy;
    lazy.connect_at_once = false;
    OpenChannel(lazy);
    Outcome outcome;
    stub_->Hold(Data(), &outcome.reply, {}, outcome.Callback());
    network_.RunFor(delay_ns);
    AtServer(kNsPerMs, [&] {
      if (!service_.held.empty()) service_.Release();
    });
    server_->Shutdown(kGraceUs);
    ASSERT_TRUE(Ended(outcome));
    EXPECT_TRUE(outcome.status->ok() || DeliveryOf(*outcome.status) == Delivery::kNotSent)
        << *outcome.status;
    stub_.reset();
    channel_.reset();
    network_.Settle();
  }
}

// --- streams -------------------------------------------------------------------------------------

TEST_F(DrainTest, AStreamGoesOnUntilItsEnd) {
  StartStreams();
  Talk talk = chat_->Talk();
  Served& served = NextTalk();
  std::vector<uint64_t> echoed;
  Data at_server;
  Data at_client;
  AtClient(5 * kNsPerMs, [&] { EXPECT_EQ(talk.TryWrite(MakeData(7, 100)), StreamResult::kDone); });
  AtServer(10 * kNsPerMs, [&] {
    ASSERT_EQ(served.TryRead(&at_server), StreamResult::kDone);
    ASSERT_EQ(served.TryWrite(at_server), StreamResult::kDone);
  });
  AtClient(15 * kNsPerMs, [&] {
    ASSERT_EQ(talk.TryRead(&at_client), StreamResult::kDone);
    echoed.push_back(at_client.number());
    talk.WritesDone();
  });
  AtServer(20 * kNsPerMs, [&] { served.Finish(absl::OkStatus()); });
  EXPECT_LT(ShutdownNs(), 30 * kNsPerMs);
  EXPECT_EQ(echoed, std::vector<uint64_t>{7});
  EXPECT_EQ(EndOf(talk), absl::OkStatus());
}

TEST_F(DrainTest, AStreamWithoutEndIsCancelledAtTheGracesEnd) {
  StartStreams();
  Talk talk = chat_->Talk();
  Served& served = NextTalk();
  bool cancelled = false;
  served.context().OnCancel([&] {
    cancelled = true;
    served.Finish(absl::CancelledError());
  });
  EXPECT_GE(ShutdownNs(50'000), 50 * kNsPerMs);
  EXPECT_TRUE(cancelled);
  const absl::Status end = EndOf(talk);
  EXPECT_TRUE(absl::IsUnavailable(end)) << end;
  EXPECT_EQ(DeliveryOf(end), Delivery::kMayHaveRun);
}

TEST_F(DrainTest, AStreamThatTheClientGivesUpEndsBefore) {
  StartStreams();
  Talk talk = chat_->Talk();
  Served& served = NextTalk();
  served.context().OnCancel([&] { served.Finish(absl::CancelledError()); });
  AtClient(5 * kNsPerMs, [&] { talk.Cancel(); });
  EXPECT_LT(ShutdownNs(), 10 * kNsPerMs);
  EXPECT_TRUE(absl::IsCancelled(EndOf(talk)));
}

// --- remote memory -------------------------------------------------------------------------------

TEST_F(DrainTest, LeasesKeepNoConnectionAndNewOperationsFailAsNotSent) {
  Start();
  alignas(64) std::array<std::byte, 4096> owned = {};
  auto exported = *server_->Export(owned, {});
  auto memory = *RemoteMemory::Open(*channel_, exported->handle());
  auto buffer = *channel_->AllocateBuffer(owned.size());
  ASSERT_EQ(memory->Read(0, buffer->slice(0, 64)), absl::OkStatus());
  Outcome held;
  Hold(held);
  std::optional<absl::Status> read;
  AtClient(5 * kNsPerMs, [&] {
    memory->Read(0, buffer->slice(0, 64), [&](absl::Status status) { read = std::move(status); });
  });
  AtServer(10 * kNsPerMs, [&] {
    EXPECT_TRUE(read.has_value());
    service_.Release();
  });
  EXPECT_LT(ShutdownNs(), 20 * kNsPerMs);
  EXPECT_EQ(*held.status, absl::OkStatus());
  EXPECT_EQ(*read, Leaving());
  memory.reset();
  exported.reset();
}

TEST_F(DrainTest, OperationsUnderWayAreWaitedFor) {
  Start();
  SimWire slow;
  slow.bytes_per_s = 10'000'000;  // 10 ms for the read
  std::vector<std::byte> owned(100'000, std::byte{7});
  auto exported = *server_->Export(owned, {});
  auto memory = *RemoteMemory::Open(*channel_, exported->handle());
  auto buffer = *channel_->AllocateBuffer(owned.size());
  network_.SetWire("server", "client", slow);
  std::optional<absl::Status> read;
  memory->Read(0, buffer->slice(0, owned.size()),
               [&](absl::Status status) { read = std::move(status); });
  EXPECT_LT(ShutdownNs(), 50 * kNsPerMs);
  ASSERT_TRUE(RunUntil([&] { return read.has_value(); }));
  EXPECT_EQ(*read, absl::OkStatus());
  EXPECT_EQ(std::memcmp(buffer->bytes().data(), owned.data(), owned.size()), 0);
  memory.reset();
  exported.reset();
}

// --- clients that do not leave -------------------------------------------------------------------

class RawClientTest : public DrainTest {
 protected:
  void Dial(bool takes_goaway, bool drives_itself) {
    rpc::ClientHello hello;
    hello.set_protocol(kRpcProtocolVersion);
    hello.set_max_outstanding_calls(4);
    hello.set_max_reply_bytes(10'000'000);
    hello.set_takes_goaway(takes_goaway);
    hello.set_drives_itself(drives_itself);
    peer_.DialWith(client().transport(), hello);
    ASSERT_TRUE(RunUntil([&] { return peer_.connection != nullptr; }));
  }
  ~RawClientTest() override {
    if (peer_.connection != nullptr) peer_.connection->Close("done");
    network_.Settle();
  }
  RawPeer peer_;
};

TEST_F(RawClientTest, OneThatNobodyDrivesHoldsAShutdownUpForATenthOfASecond) {
  StartServer();
  Dial(/*takes_goaway=*/true, /*drives_itself=*/false);
  const uint64_t took_ns = ShutdownNs();
  EXPECT_GE(took_ns, 100 * kNsPerMs);
  EXPECT_LT(took_ns, 120 * kNsPerMs);
  network_.Settle();
  ASSERT_EQ(peer_.received.size(), 1u);
  EXPECT_EQ(peer_.received[0], Goaway(0));
}

TEST_F(RawClientTest, OneThatIsDrivenIsWaitedForUntilTheGracesEnd) {
  StartServer();
  Dial(/*takes_goaway=*/true, /*drives_itself=*/true);
  EXPECT_GE(ShutdownNs(), kGraceUs * kNsPerUs);
}

TEST_F(RawClientTest, OneThatIsDrivenEndsItByClosing) {
  StartServer();
  Dial(/*takes_goaway=*/true, /*drives_itself=*/true);
  AtClient(300 * kNsPerMs, [&] { peer_.connection->Close("I leave"); });
  EXPECT_LT(ShutdownNs(), 310 * kNsPerMs);
}

TEST_F(RawClientTest, OneThatKnowsNoGoawayIsSentNone) {
  StartServer();
  Dial(/*takes_goaway=*/false, /*drives_itself=*/true);
  EXPECT_LT(ShutdownNs(), 10 * kNsPerMs);
  network_.Settle();
  EXPECT_TRUE(peer_.received.empty());
}

TEST_F(RawClientTest, OneThatKnowsNoGoawayGetsItsLargeReplyToo) {
  StartServer();
  Dial(/*takes_goaway=*/false, /*drives_itself=*/false);
  SimWire slow;
  slow.bytes_per_s = 10'000'000;
  network_.SetWire("server", "client", slow);
  Size size;
  size.set_bytes(1'000'000);
  peer_.Send(Request({0, 1}, kMake, size.SerializeAsString()));
  ASSERT_TRUE(RunUntil([&] { return server_->stats().replies_ok == 1; }));
  ASSERT_TRUE(peer_.received.empty());
  ShutdownNs();
  ASSERT_EQ(peer_.received.size(), 1u);
  EXPECT_GT(peer_.received[0].size(), size.bytes());
}

TEST_F(RawClientTest, TheGoawayCountsWhatTheServerHas) {
  StartServer();
  Dial(/*takes_goaway=*/true, /*drives_itself=*/false);
  peer_.Send(Request({0, 1}, kHold));
  peer_.Send(Request({1, 1}, kHold));
  peer_.Send(Request({2, 1}, kEcho));
  ASSERT_TRUE(RunUntil([&] { return service_.held.size() == 2 && peer_.received.size() == 1; }));
  AtServer(kNsPerMs, [&] {
    service_.Release();
    service_.Release();
  });
  ShutdownNs();
  ASSERT_EQ(peer_.received.size(), 4u);
  EXPECT_EQ(peer_.received[1], Goaway(2));
}

TEST_F(RawClientTest, RequestsBehindTheGoawayAreAnsweredAsNotRun) {
  StartServer();
  Dial(/*takes_goaway=*/true, /*drives_itself=*/false);
  AtClient(50 * kNsPerMs, [&] { peer_.Send(Request({0, 1}, kEcho)); });
  const uint64_t took_ns = ShutdownNs();
  EXPECT_GE(took_ns, 150 * kNsPerMs) << "it is driven after all";
  network_.Settle();
  ASSERT_EQ(peer_.received.size(), 2u);
  ReplyHeader header;
  ByteSpan text;
  ASSERT_TRUE(DecodeReply(peer_.received[1], &header, &text));
  EXPECT_EQ(header.status, static_cast<uint16_t>(absl::StatusCode::kUnavailable));
  EXPECT_TRUE(header.not_run);
  EXPECT_EQ(service_.echoes, 0);
}

TEST_F(RawClientTest, AGoawayFromAClientEndsItsConnection) {
  StartServer();
  Dial(/*takes_goaway=*/true, /*drives_itself=*/false);
  peer_.Send(Goaway(0));
  ASSERT_TRUE(RunUntil([&] { return !peer_.why.ok(); }));
  EXPECT_EQ(server_->stats().protocol_errors, 1u);
}

// --- servers that say so -------------------------------------------------------------------------

class RawServerTest : public DrainTest {
 protected:
  RawServerTest() {
    ListenOptions options;
    options.hello = OldServerHello({"Echo"}).SerializeAsString();
    listener_ = *server_engine().transport().Listen("sim:server", options, &acceptor_);
    OpenChannel();
    AwaitConnection();
  }
  ~RawServerTest() override {
    stub_.reset();
    channel_.reset();
    network_.Settle();
  }

  RawPeer& peer() { return acceptor_.peer; }
  void AwaitConnection() {
    ASSERT_TRUE(RunUntil([&] { return peer().connection != nullptr; }));
  }
  // Calls, and waits until the server has the request.
  CallId Call(Outcome& outcome, const CallOptions& options = {}) {
    const size_t received = peer().received.size();
    stub_->Echo(Data(), &outcome.reply, options, outcome.Callback());
    EXPECT_TRUE(RunUntil([&] { return peer().received.size() > received; }));
    return CallIdOf(peer().received.back());
  }

  RawAcceptor acceptor_;
  std::unique_ptr<Listener> listener_;
};

TEST_F(RawServerTest, AClientWithNothingUnderWayClosesAndConnectsAgainWhenItCalls) {
  peer().Send(Goaway(0));
  ASSERT_TRUE(RunUntil([&] { return peer().connection == nullptr; }));
  EXPECT_NE(peer().why.message().find("the client has left, as it was asked to"),
            absl::string_view::npos)
      << peer().why;
  network_.RunFor(5 * kNsPerSec);
  EXPECT_EQ(peer().connection, nullptr) << "nobody has asked for one";
  EXPECT_NE(channel_->path().status().message().find("was about to shut down"),
            absl::string_view::npos);
  Outcome outcome;
  const CallId id = Call(outcome);
  peer().Send(Reply(id, 0, 0, ""));
  ASSERT_TRUE(Ended(outcome));
  EXPECT_EQ(*outcome.status, absl::OkStatus());
  EXPECT_EQ(channel_->stats().connects, 2u);
  EXPECT_EQ(channel_->stats().connect_failures, 0u);
}

TEST_F(RawServerTest, ACallThatIsOutGetsItsReplyAndThenTheClientCloses) {
  Outcome out, patient;
  const CallId id = Call(out);
  peer().Send(Goaway(1));
  network_.Settle();
  stub_->Echo(Data(), &patient.reply, {.wait_for_server = true}, patient.Callback());
  network_.RunFor(kNsPerSec);
  EXPECT_EQ(peer().received.size(), 1u) << "something new was sent";
  ASSERT_NE(peer().connection, nullptr);
  peer().Send(Reply(id, 0, 0, ""));
  ASSERT_TRUE(Ended(out));
  EXPECT_EQ(*out.status, absl::OkStatus());
  // The patient one on the next connection.
  ASSERT_TRUE(RunUntil([&] { return peer().received.size() == 2; }));
  EXPECT_EQ(channel_->stats().connects, 2u);
  peer().Send(Reply(CallIdOf(peer().received.back()), 0, 0, ""));
  ASSERT_TRUE(Ended(patient));
  EXPECT_EQ(*patient.status, absl::OkStatus());
}

TEST_F(RawServerTest, ABlockingCallIsTurnedAwayToo) {
  Outcome out;
  Call(out);
  peer().Send(Goaway(1));
  network_.Settle();
  Data reply;
  EXPECT_EQ(stub_->Echo(Data(), &reply), Leaving());
  EXPECT_EQ(stub_->Echo(Data(), &reply, {.timeout_us = 1'000'000}), Leaving());
  channel_.reset();  // before `out`
}

// The server had none of the client's calls, and takes none: what is without an answer has not run,
// also if the connection ends before the server could say so.
TEST_F(RawServerTest, WhatAServerHasNotTakenHasNotRun) {
  for (const bool has_none : {true, false}) {
    SCOPED_TRACE(has_none);
    AwaitConnection();
    Outcome out;
    Call(out);
    peer().Send(Goaway(has_none ? 0 : 1));
    network_.Settle();
    EXPECT_FALSE(out.done());
    peer().connection->Close("the time is over");
    ASSERT_TRUE(Ended(out));
    EXPECT_TRUE(absl::IsUnavailable(*out.status)) << *out.status;
    EXPECT_EQ(DeliveryOf(*out.status), has_none ? Delivery::kNotSent : Delivery::kMayHaveRun);
    EXPECT_NE(out.status->message().find(has_none ? "(not run, safe to retry)"
                                                  : "(the request was sent and may have run)"),
              absl::string_view::npos)
        << *out.status;
    network_.RunFor(kNsPerSec);
    peer().received.clear();
    channel_.reset();
    OpenChannel();
  }
}

TEST_F(RawServerTest, AChannelCanGoWhileItLeaves) {
  Outcome out, patient;
  Call(out);
  peer().Send(Goaway(1));
  network_.Settle();
  stub_->Echo(Data(), &patient.reply, {.wait_for_server = true}, patient.Callback());
  stub_.reset();
  channel_.reset();
  EXPECT_TRUE(absl::IsCancelled(*out.status)) << *out.status;
  EXPECT_TRUE(absl::IsCancelled(*patient.status)) << *patient.status;
  EXPECT_EQ(DeliveryOf(*patient.status), Delivery::kNotSent);
}

// A server that sends its clients away as soon as they come is no better than none.
TEST_F(RawServerTest, AServerThatOnlySendsItsClientsAwayIsNotAskedAllTheTime) {
  Outcome patient;
  const auto call = [&] {
    patient = Outcome();
    stub_->Echo(Data(), &patient.reply, {.wait_for_server = true}, patient.Callback());
  };
  call();
  for (int ms = 0; ms < 1000; ++ms) {
    if (peer().connection != nullptr) {
      peer().Send(Goaway(0));
      peer().connection->Close("go away");
    }
    network_.RunFor(kNsPerMs);
    if (patient.done()) {
      EXPECT_EQ(DeliveryOf(*patient.status), Delivery::kNotSent) << *patient.status;
      call();
    }
  }
  EXPECT_GE(channel_->stats().connects, 4u);
  EXPECT_LT(channel_->stats().connects, 12u);
  channel_.reset();  // before `patient`
}

TEST_F(RawServerTest, MalformedGoawaysEndTheConnection) {
  struct Case {
    const char* what;
    std::vector<Bytes> frames;  // the last one is the malformed one
  };
  const Case cases[] = {
      {"with a slot", {WithByte(Goaway(1), 0, 1)}},
      {"with a generation", {WithByte(Goaway(1), 4, 1)}},
      {"with a status", {WithByte(Goaway(1), 8, 1)}},
      {"with windows", {WithByte(Goaway(1), 11, 1)}},
      {"with extras", {WithByte(Goaway(1), 11, 0x80)}},
      {"cut", {Truncated(Goaway(1), 15)}},
      {"with a body", {[] {
         Bytes frame = Goaway(1);
         frame.push_back(std::byte{0});
         return frame;
       }()}},
      {"twice", {Goaway(1), Goaway(1)}},
  };
  for (const Case& test : cases) {
    SCOPED_TRACE(test.what);
    Outcome out;
    Call(out);
    for (const Bytes& frame : test.frames) {
      ASSERT_FALSE(out.done()) << "earlier than the malformed frame";
      peer().Send(frame);
      network_.Settle();
    }
    ASSERT_TRUE(Ended(out));
    EXPECT_TRUE(absl::IsUnavailable(*out.status)) << *out.status;
    EXPECT_NE(out.status->message().find("malformed frame"), absl::string_view::npos)
        << *out.status;
    EXPECT_EQ(DeliveryOf(*out.status), Delivery::kMayHaveRun);
    network_.RunFor(2 * kNsPerSec);
  }
}

}  // namespace
}  // namespace weft::test
