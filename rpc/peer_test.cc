// Sessions between servers: one connection for the calls of both, whoever dials, whatever is lost.
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/random.h"
#include "rpc/client/bulk_call.h"
#include "rpc/client/client_context.h"
#include "rpc/memory/remote_memory.h"
#include "rpc/server/exported_memory.h"
#include "rpc/testing/peer_machine.h"
#include "rpc/testing/random_world.h"
#include "rpc/testing/ticks.h"
#include "weft/status.h"

namespace weft::test {
namespace {

using Talk = ClientReaderWriter<Data, Data>;
using Served = ServerReaderWriter<Data, Data>;

// --- one connection ------------------------------------------------------------------------------

TEST_F(PeerTest, BothSidesCallOnOneConnection) {
  PeerMachine& a = Start("a");
  PeerMachine& b = Start("b");
  a.Open("b");
  b.Open("a");
  ASSERT_TRUE(BothReady(a, b));
  for (uint64_t i = 0; i < 20; ++i) {
    EXPECT_TRUE(Echo(a, "b", i).ok());
    EXPECT_TRUE(Echo(b, "a", i).ok());
  }
  for (PeerMachine* machine : {&a, &b}) {
    EXPECT_EQ(machine->probe.echoes, 20);
    EXPECT_EQ(machine->server().stats().peers, 1u);
    EXPECT_EQ(machine->server().stats().connections, 1u);
  }
  EXPECT_EQ(a.to("b").stats().connects, 1u);
  EXPECT_EQ(b.to("a").stats().connects, 1u);
}

TEST_F(PeerTest, OneSideDialsAndTheOtherWaits) {
  PeerMachine& a = Start("a");
  PeerMachine& b = Start("b");
  b.OpenAt("a", "");
  RunFor(50 * kNsPerMs);
  const absl::Status alone = Echo(b, "a");
  EXPECT_TRUE(absl::IsUnavailable(alone)) << alone;
  EXPECT_EQ(DeliveryOf(alone), Delivery::kNotSent);
  EXPECT_NE(alone.message().find("peer a has not connected"), absl::string_view::npos) << alone;
  a.Open("b");
  ASSERT_TRUE(BothReady(a, b));
  EXPECT_TRUE(Echo(b, "a").ok());
  EXPECT_TRUE(Echo(a, "b").ok());
}

TEST_F(PeerTest, APeerThatWasNotOpenedIsServedAndNamed) {
  PeerMachine& a = Start("a");
  PeerMachine& b = Start("b");
  std::string seen = "nobody";
  b.probe.look = [&](ServerContext& context) { seen = context.peer_id(); };
  a.Open("b");
  EXPECT_TRUE(Echo(a, "b").ok());
  EXPECT_EQ(seen, "a");
  auto client = Channel::Open(network_.Node("client"), "sim:b", {});
  ASSERT_TRUE(client.ok());
  Data reply;
  EXPECT_TRUE(Probe::Stub(**client).Echo(MakeData(1, 1), &reply).ok());
  EXPECT_EQ(seen, "");
  EXPECT_EQ(b.server().stats().peers, 1u);
}

TEST_F(PeerTest, AChannelThatIsOpenedLaterUsesTheConnectionThatIsThere) {
  PeerMachine& a = Start("a");
  PeerMachine& b = Start("b");
  a.Open("b");
  ASSERT_TRUE(RunUntil([&] { return a.IsReady("b"); }));
  b.Open("a");
  ASSERT_TRUE(BothReady(a, b));
  EXPECT_TRUE(Echo(b, "a").ok());
  EXPECT_EQ(a.to("b").stats().connects, 1u);
  EXPECT_EQ(b.server().stats().peers, 1u);
  EXPECT_EQ(a.server().stats().connections, 1u);
}

TEST_F(PeerTest, AServerThatDoesNotListenHasPeers) {
  PeerMachine& a = Start("a");
  PeerMachine quiet(network_, "q", "q");
  quiet.Open("a");
  a.OpenAt("q", "");
  ASSERT_TRUE(BothReady(a, quiet));
  EXPECT_TRUE(Echo(a, "q").ok());
  ProbeService late;
  EXPECT_TRUE(absl::IsFailedPrecondition(quiet.server().AddService(&late)));
}

// Both dial at the same time, with every order of what crosses on the way.
TEST(PeerDialTest, ThereIsOneConnectionHoweverBothDial) {
  ForEachSeed(400, [](uint64_t seed) {
    SimNetwork network(seed);
    Random random(seed);
    PeerMachine a(network, "a", "a");
    PeerMachine b(network, "b", "b");
    for (const auto& [from, to] : {std::pair("a", "b"), std::pair("b", "a")}) {
      SimWire wire;
      wire.delay_ns = random.Uniform(random.Chance(0.5) ? 20'000 : 2'000'000);
      wire.jitter_ns = random.Uniform(20'000);
      network.SetWire(from, to, wire);
    }
    a.Listen();
    b.Listen();
    PeerMachine& first = random.Chance(0.5) ? a : b;
    PeerMachine& second = &first == &a ? b : a;
    first.Open(second.id());
    network.RunFor(random.Uniform(random.Chance(0.5) ? 40'000 : 5'000'000));
    second.Open(first.id());
    Data replies[2];
    int done = 0;
    int failed = 0;
    const auto count = [&](const absl::Status& status) {
      ++done;
      failed += !status.ok();
    };
    Probe::Stub(a.to("b")).Echo(MakeData(1, 1), &replies[0], {}, count);
    Probe::Stub(b.to("a")).Echo(MakeData(2, 1), &replies[1], {}, count);
    ASSERT_TRUE(network.RunUntil([&] { return done == 2; }, 10 * kNsPerSec));
    EXPECT_EQ(failed, 0) << "a call hears of the tie";
    network.RunFor(3 * kNsPerSec);
    network.CheckInvariants();
    for (PeerMachine* machine : {&a, &b}) {
      EXPECT_EQ(machine->server().stats().peers, 1u);
      EXPECT_EQ(machine->server().stats().connections, 1u);
    }
    EXPECT_EQ(a.to("b").stats().connects, 1u);
    EXPECT_EQ(b.to("a").stats().connects, 1u);
  });
}

TEST_F(PeerTest, ASideThatCannotReachTheOtherTakesItsConnection) {
  PeerMachine& a = Start("a");
  PeerMachine& b = Start("b");
  // Each attempt of a, whose id is the smaller one, hangs until it times out.
  ChannelOptions options;
  options.link.connect_timeout_ns = 2 * kNsPerSec;
  a.OpenAt("b", "sim:nowhere", options);
  RunFor(10 * kNsPerMs);
  b.Open("a");
  ASSERT_TRUE(BothReady(a, b));
  EXPECT_TRUE(Echo(a, "b").ok());
}

// --- all kinds of calls --------------------------------------------------------------------------

TEST_F(PeerTest, StreamsOfBothSidesHaveSlotsOfTheirOwn) {
  PeerMachine& a = Start("a");
  PeerMachine& b = Start("b");
  a.Open("b");
  b.Open("a");
  ASSERT_TRUE(BothReady(a, b));
  Talk from_a = Streams::Stub(a.to("b")).Talk();
  Talk from_b = Streams::Stub(b.to("a")).Talk();
  ASSERT_TRUE(RunUntil([&] { return !a.streams.talks.empty() && !b.streams.talks.empty(); }));
  Served at_b = std::move(b.streams.talks.front());
  b.streams.talks.pop_front();
  Served at_a = std::move(a.streams.talks.front());
  a.streams.talks.pop_front();
  const auto read = [&](auto& stream) {
    Data data;
    StreamResult result = StreamResult::kNotYet;
    EXPECT_TRUE(
        RunUntil([&] { return (result = stream.TryRead(&data)) != StreamResult::kNotYet; }));
    return result == StreamResult::kDone ? std::to_string(data.number()) : "end";
  };
  // More than a window, so that credit goes both ways as well.
  for (uint64_t i = 0; i < 200; ++i) {
    EXPECT_EQ(from_a.TryWrite(MakeData(i, 2000)), StreamResult::kDone);
    EXPECT_EQ(from_b.TryWrite(MakeData(1000 + i, 2000)), StreamResult::kDone);
    EXPECT_EQ(at_a.TryWrite(MakeData(2000 + i, 2000)), StreamResult::kDone);
    EXPECT_EQ(at_b.TryWrite(MakeData(3000 + i, 2000)), StreamResult::kDone);
    ASSERT_EQ(read(at_b), std::to_string(i));
    ASSERT_EQ(read(at_a), std::to_string(1000 + i));
    ASSERT_EQ(read(from_b), std::to_string(2000 + i));
    ASSERT_EQ(read(from_a), std::to_string(3000 + i));
  }
  from_a.WritesDone();
  EXPECT_EQ(read(at_b), "end");
  at_b.Finish(absl::OkStatus());
  EXPECT_EQ(read(from_a), "end");
  at_a.Finish(absl::NotFoundError("no"));
  EXPECT_EQ(read(from_b), "end");
  std::optional<absl::Status> ends[2];
  from_a.Finish([&](absl::Status status) { ends[0] = std::move(status); });
  from_b.Finish([&](absl::Status status) { ends[1] = std::move(status); });
  ASSERT_TRUE(RunUntil([&] { return ends[0] && ends[1]; }));
  EXPECT_TRUE(ends[0]->ok()) << *ends[0];
  EXPECT_EQ(*ends[1], absl::NotFoundError("no"));
}

TEST_F(PeerTest, CancelsAndOneWayMessagesFindTheirHandlersBothWays) {
  PeerMachine& a = Start("a");
  PeerMachine& b = Start("b");
  a.Open("b");
  b.Open("a");
  ASSERT_TRUE(BothReady(a, b));
  Outcome outcomes[2];
  ClientContext contexts[2];
  PeerMachine* const machines[] = {&a, &b};
  const std::string ids[] = {"a", "b"};
  for (int i = 0; i < 2; ++i) {
    Probe::Stub(machines[i]->to(ids[1 - i]))
        .Hold(MakeData(1, 1), &outcomes[i].reply, {.context = &contexts[i]},
              outcomes[i].Callback());
    Signals::Stub(machines[i]->to(ids[1 - i])).Notify(MakeData(10 + i, 1), {}, nullptr);
  }
  ASSERT_TRUE(RunUntil([&] { return !a.probe.held.empty() && !b.probe.held.empty(); }));
  EXPECT_TRUE(contexts[0].Cancel().ok());
  ASSERT_TRUE(RunUntil([&] { return b.probe.held.front().context().cancelled(); }));
  EXPECT_TRUE(absl::IsCancelled(*outcomes[0].status));
  EXPECT_FALSE(a.probe.held.front().context().cancelled());
  a.probe.Release();
  b.probe.Release();
  ASSERT_TRUE(RunUntil([&] { return outcomes[1].done(); }));
  EXPECT_TRUE(outcomes[1].status->ok());
  EXPECT_EQ(a.signals.numbers, std::vector<uint64_t>{11});
  EXPECT_EQ(b.signals.numbers, std::vector<uint64_t>{10});
}

TEST_F(PeerTest, LargeMessagesAndManyCallsGoBothWaysAtOnce) {
  ServerOptions narrow;
  narrow.link.window_slots = 4;
  PeerMachine& a = Start("a", narrow);
  PeerMachine& b = Start("b", narrow);
  ChannelOptions options;
  options.link.window_slots = 4;
  a.OpenAt("b", "sim:b", options);
  b.OpenAt("a", "sim:a", options);
  ASSERT_TRUE(BothReady(a, b));
  std::deque<Outcome> outcomes;
  for (uint64_t i = 0; i < 400; ++i) {
    PeerMachine& from = i % 2 == 0 ? a : b;
    Outcome& outcome = outcomes.emplace_back();
    Probe::Stub(from.to(i % 2 == 0 ? "b" : "a"))
        .Echo(MakeData(i, i % 7 == 0 ? 300'000 : 1000), &outcome.reply, {}, outcome.Callback());
  }
  size_t done = 0;
  ASSERT_TRUE(RunUntil([&] {
    done = 0;
    for (const Outcome& outcome : outcomes) done += outcome.done();
    return done == outcomes.size();
  }));
  for (const Outcome& outcome : outcomes) EXPECT_TRUE(outcome.status->ok()) << *outcome.status;
}

TEST_F(PeerTest, LentMemoryIsReadAndWrittenBothWays) {
  PeerMachine& a = Start("a");
  PeerMachine& b = Start("b");
  a.Open("b");
  b.Open("a");
  ASSERT_TRUE(BothReady(a, b));
  struct Exchange {
    explicit Exchange(Channel& channel) : bulk(channel) {}
    GuardedMemory sent{50'000};
    GuardedMemory received{50'000};
    Parcel request;
    Parcel reply;
    std::optional<absl::Status> status;
    BulkCall bulk;
  };
  Exchange exchanges[] = {Exchange(a.to("b")), Exchange(b.to("a"))};
  Channel* const channels[] = {&a.to("b"), &b.to("a")};
  for (int i = 0; i < 2; ++i) {
    Exchange& exchange = exchanges[i];
    exchange.sent.Fill(static_cast<uint8_t>(i));
    exchange.bulk.Send(exchange.sent.all(), exchange.request.mutable_data());
    exchange.bulk.Receive(exchange.received.all());
    Payloads::Stub(*channels[i])
        .Exchange(exchange.request, &exchange.reply, {.bulk = &exchange.bulk},
                  [&exchange](absl::Status status) { exchange.status = std::move(status); });
  }
  ASSERT_TRUE(RunUntil([&] { return exchanges[0].status && exchanges[1].status; }));
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(exchanges[i].status->ok()) << *exchanges[i].status;
    EXPECT_TRUE(exchanges[i].received.Holds(static_cast<uint8_t>(i)));
  }
}

// A peer that holds on to what a channel that is gone has lent must not keep it for ever.
TEST_F(PeerTest, AChannelThatIsDestroyedGetsItsMemoryBack) {
  PeerMachine& a = Start("a");
  PeerMachine& b = Start("b");
  a.Open("b");
  b.Open("a");
  ASSERT_TRUE(BothReady(a, b));
  GuardedMemory sent(50'000);
  Parcel request;
  Parcel reply;
  std::optional<absl::Status> status;
  {
    BulkCall bulk(a.to("b"));
    bulk.Send(sent.all(), request.mutable_data());
    Payloads::Stub(a.to("b")).Hold(request, &reply, {.bulk = &bulk},
                                   [&](absl::Status ended) { status = std::move(ended); });
    ASSERT_TRUE(RunUntil([&] { return !b.payloads.held.empty(); }));
    a.Close("b");
    EXPECT_TRUE(absl::IsCancelled(*status)) << *status;
    ASSERT_TRUE(RunUntil([&] { return bulk.state() == BulkCall::State::kReclaimed; }));
  }
  b.payloads.held.clear();
  // The connection went with it, and b makes another one.
  ASSERT_TRUE(RunUntil([&] { return b.to("a").stats().connects == 2; }));
  EXPECT_TRUE(Echo(b, "a").ok());
}

// Also of who has accepted the connection, at who has dialed it.
TEST_F(PeerTest, EachSideReadsTheOthersMemory) {
  PeerMachine& a = Start("a");
  PeerMachine& b = Start("b");
  a.OpenAt("b", "");
  b.Open("a");
  ASSERT_TRUE(BothReady(a, b));
  PeerMachine* const machines[] = {&a, &b};
  const std::string ids[] = {"a", "b"};
  for (int i = 0; i < 2; ++i) {
    SCOPED_TRACE(ids[i] + " owns it");
    std::vector<std::byte> bytes(64, std::byte{static_cast<uint8_t>(40 + i)});
    auto exported = *machines[i]->server().Export(bytes, {});
    Channel& channel = machines[1 - i]->to(ids[i]);
    auto memory = RemoteMemory::Open(channel, exported->handle());
    ASSERT_TRUE(memory.ok()) << memory.status();
    auto buffer = *channel.AllocateBuffer(64);
    std::optional<absl::Status> done;
    (*memory)->Read(0, buffer->slice(0, 64), [&](absl::Status status) { done = status; });
    ASSERT_TRUE(RunUntil([&] { return done.has_value(); }));
    EXPECT_TRUE(done->ok()) << *done;
    EXPECT_EQ(std::memcmp(buffer->bytes().data(), bytes.data(), 64), 0);
  }
}

// --- loss ----------------------------------------------------------------------------------------

TEST_F(PeerTest, ALostSessionComesBackByItself) {
  PeerMachine& a = Start("a");
  PeerMachine& b = Start("b");
  a.Open("b");
  b.Open("a");
  ASSERT_TRUE(BothReady(a, b));
  Outcome held[2];
  Probe::Stub(a.to("b")).Hold(MakeData(1, 1), &held[0].reply, {}, held[0].Callback());
  Probe::Stub(b.to("a")).Hold(MakeData(1, 1), &held[1].reply, {}, held[1].Callback());
  ASSERT_TRUE(RunUntil([&] { return !a.probe.held.empty() && !b.probe.held.empty(); }));
  network_.Partition(a.node(), b.node());
  ASSERT_TRUE(RunUntil([&] { return held[0].done() && held[1].done(); }));
  for (const Outcome& outcome : held) {
    EXPECT_TRUE(absl::IsUnavailable(*outcome.status)) << *outcome.status;
    EXPECT_EQ(DeliveryOf(*outcome.status), Delivery::kMayHaveRun);
  }
  EXPECT_TRUE(a.probe.held.front().context().cancelled());
  EXPECT_TRUE(b.probe.held.front().context().cancelled());
  RunFor(2 * kNsPerSec);
  network_.Heal(a.node(), b.node());
  ASSERT_TRUE(BothReady(a, b)) << "without a call";
  EXPECT_TRUE(Echo(a, "b").ok());
  EXPECT_TRUE(Echo(b, "a").ok());
  RunFor(5 * kNsPerSec);
  EXPECT_EQ(a.server().stats().peers, 1u);
  EXPECT_EQ(b.server().stats().peers, 1u);
  a.probe.held.clear();
  b.probe.held.clear();
}

TEST_F(PeerTest, AKilledPeerFailsEveryCallOnceAndItsSuccessorIsFound) {
  PeerMachine& a = Start("a");
  PeerMachine& b = Start("b");
  a.Open("b");
  b.Open("a");
  ASSERT_TRUE(BothReady(a, b));
  Outcome held;
  Probe::Stub(a.to("b")).Hold(MakeData(1, 1), &held.reply, {}, held.Callback());
  ASSERT_TRUE(RunUntil([&] { return !b.probe.held.empty(); }));
  Kill(b);
  ASSERT_TRUE(RunUntil([&] { return held.done(); }));
  EXPECT_EQ(held.completions, 1);
  PeerMachine& successor = Start("b");
  successor.Open("a");
  ASSERT_TRUE(BothReady(a, successor));
  EXPECT_TRUE(Echo(a, "b").ok());
  EXPECT_TRUE(Echo(successor, "a").ok());
  RunFor(kNsPerSec);
  EXPECT_EQ(a.server().stats().peers, 1u);
}

// A replica has to know whether the one that it talks to remembers what it was told.
TEST_F(PeerTest, APeerThatWasStartedAgainHasAnotherIncarnation) {
  PeerMachine& a = Start("a");
  PeerMachine& b = Start("b");
  uint64_t seen_by_a = 0;
  a.probe.look = [&](ServerContext& context) { seen_by_a = context.peer_incarnation(); };
  a.Open("b");
  EXPECT_EQ(a.to("b").peer_incarnation(), 0u) << "there was no connection";
  b.Open("a");
  ASSERT_TRUE(BothReady(a, b));
  ASSERT_TRUE(Echo(b, "a").ok());
  const uint64_t of_a = b.to("a").peer_incarnation();
  const uint64_t of_b = a.to("b").peer_incarnation();
  EXPECT_NE(of_a, 0u);
  EXPECT_NE(of_b, 0u);
  EXPECT_NE(of_a, of_b);
  EXPECT_EQ(seen_by_a, of_b);
  // A connection that was lost says nothing of the process.
  network_.Partition(a.node(), b.node());
  ASSERT_TRUE(RunUntil([&] { return !a.IsReady("b") && !b.IsReady("a"); }));
  network_.Heal(a.node(), b.node());
  ASSERT_TRUE(BothReady(a, b));
  EXPECT_EQ(b.to("a").peer_incarnation(), of_a);
  EXPECT_EQ(a.to("b").peer_incarnation(), of_b);
  for (const bool dials : {true, false}) {
    SCOPED_TRACE(dials ? "the successor dials" : "the successor is dialed");
    const uint64_t before = a.to("b").peer_incarnation();
    Kill(*machines_.back());
    ASSERT_TRUE(RunUntil([&] { return !a.IsReady("b"); }));
    EXPECT_EQ(a.to("b").peer_incarnation(), before) << "of the last connection";
    PeerMachine& successor = Start("b");
    successor.OpenAt("a", dials ? "sim:a" : "");
    ASSERT_TRUE(BothReady(a, successor));
    EXPECT_NE(a.to("b").peer_incarnation(), before);
    EXPECT_EQ(successor.to("a").peer_incarnation(), of_a);
    ASSERT_TRUE(Echo(successor, "a").ok());
    EXPECT_EQ(seen_by_a, a.to("b").peer_incarnation());
  }
  // Clients learn it too, and have none.
  auto client = Channel::Open(network_.Node("client"), "sim:a", {});
  ASSERT_TRUE(client.ok());
  // It makes no turn of the engine, in which callbacks would run while the caller is in the middle
  // of something, and waits for none.
  bool turned = false;
  ASSERT_TRUE(network_.Node("client").Post([&turned] { turned = true; }));
  EXPECT_EQ((*client)->peer_incarnation(), of_a);
  std::thread([&] { EXPECT_EQ((*client)->peer_incarnation(), of_a); }).join();
  EXPECT_FALSE(turned);
  Data reply;
  ASSERT_TRUE(Probe::Stub(**client).Echo(MakeData(1, 1), &reply).ok());
  EXPECT_EQ(seen_by_a, 0u);
}

class SlowToNoticeTest : public PeerTest {
 protected:
  static SimOptions Slow() {
    SimOptions options;
    options.lifeline_delay_ns = 3600 * kNsPerSec;
    options.lifeline_timeout_ns = 3600 * kNsPerSec;
    return options;
  }
  SlowToNoticeTest() : PeerTest(1, Slow()) {}
};

// The successor of a process whose end nobody has noticed.
TEST_F(SlowToNoticeTest, ANewIncarnationTakesThePlaceOfTheOld) {
  PeerMachine& a = Start("a");
  PeerMachine& b = Start("b");
  a.Open("b");
  b.Open("a");
  ASSERT_TRUE(BothReady(a, b));
  Kill(b);
  RunFor(kNsPerSec);
  EXPECT_TRUE(a.IsReady("b")) << "it has not noticed";
  Outcome lost;
  Probe::Stub(a.to("b")).Echo(MakeData(1, 1), &lost.reply, {}, lost.Callback());
  RunFor(kNsPerMs);
  PeerMachine& successor = Start("b");
  successor.Open("a");
  ASSERT_TRUE(RunUntil([&] { return lost.done(); }));
  EXPECT_TRUE(absl::IsUnavailable(*lost.status)) << *lost.status;
  EXPECT_NE(lost.status->message().find("another connection"), absl::string_view::npos)
      << *lost.status;
  ASSERT_TRUE(BothReady(a, successor));
  EXPECT_TRUE(Echo(a, "b").ok());
  EXPECT_EQ(a.server().stats().peers, 1u);
}

// --- ids -----------------------------------------------------------------------------------------

TEST_F(PeerTest, AnAddressOfAnotherPeerIsToldApart) {
  PeerMachine& a = Start("a");
  Start("b");
  a.OpenAt("c", "sim:b");
  const absl::Status status = Echo(a, "c");
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_NE(status.message().find("is the address right?"), absl::string_view::npos) << status;
  EXPECT_EQ(DeliveryOf(status), Delivery::kNotSent);
}

TEST_F(PeerTest, AServerWithoutAnIdIsNoPeer) {
  PeerMachine& a = Start("a");
  auto plain = Server::Create(network_.Node("plain"), {});
  ASSERT_TRUE(plain.ok());
  ASSERT_TRUE((*plain)->Listen("sim:plain").ok());
  a.OpenAt("p", "sim:plain");
  const absl::Status status = Echo(a, "p");
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_NE(status.message().find("ServerOptions::peer_id"), absl::string_view::npos) << status;
  const absl::Status none = (*plain)->OpenPeer("a", "sim:a", {}).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(none)) << none;
}

TEST_F(PeerTest, IdsAreChecked) {
  PeerMachine& a = Start("a");
  Server& server = a.server();
  for (const std::string& id : {std::string(), std::string("a b"), std::string("\n"),
                                std::string(129, 'x'), std::string("a")}) {
    EXPECT_TRUE(absl::IsInvalidArgument(server.OpenPeer(id, "", {}).status())) << id;
  }
  EXPECT_TRUE(server.OpenPeer(std::string(128, 'x'), "", {}).ok());
  a.OpenAt("b", "");
  EXPECT_TRUE(absl::IsAlreadyExists(server.OpenPeer("b", "", {}).status()));
  ChannelOptions wrong;
  wrong.max_outstanding_calls = 0;
  EXPECT_TRUE(absl::IsInvalidArgument(server.OpenPeer("c", "", wrong).status()));
  EXPECT_TRUE(server.OpenPeer("c", "", {}).ok()) << "the failure has left something";
  ServerOptions options;
  options.peer_id = "a b";
  EXPECT_TRUE(absl::IsInvalidArgument(Server::Create(network_.Node("other"), options).status()));
}

TEST_F(PeerTest, AServerThatIsTakenForAnotherRefuses) {
  PeerMachine& a = Start("a");
  PeerMachine other(network_, "c", "other");
  other.OpenAt("b", "sim:a");  // whose id it thinks is b
  const absl::Status status = Echo(other, "b");
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_NE(status.message().find("this server has another id than the one that was wanted: is the "
                                  "address right?"),
            absl::string_view::npos)
      << status;
  EXPECT_EQ(a.server().stats().peers, 0u);
}

TEST_F(PeerTest, OfTwoProcessesWithOneIdTheLaterOneStays) {
  PeerMachine& b = Start("b");
  b.OpenAt("a", "");
  PeerMachine first(network_, "a", "first");
  first.Open("b");
  ASSERT_TRUE(BothReady(b, first));
  PeerMachine second(network_, "a", "second");
  second.Open("b");
  ASSERT_TRUE(RunUntil([&] { return second.IsReady("b") && !first.IsReady("b"); }));
  RunFor(20 * kNsPerSec);
  EXPECT_TRUE(second.IsReady("b"));
  EXPECT_EQ(second.to("b").stats().connects, 1u) << "they take each other's place";
  const absl::Status status = Echo(first, "b");
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_NE(status.message().find("were both given the same peer_id?"), absl::string_view::npos)
      << status;
  // When the later one is gone, the first may come again.
  second.server().Shutdown(0);
  EXPECT_TRUE(RunUntil([&] { return first.IsReady("b"); }));
}

// --- ends ----------------------------------------------------------------------------------------

TEST_F(PeerTest, AShutdownLetsTheCallsOfBothSidesEnd) {
  PeerMachine& a = Start("a");
  PeerMachine& b = Start("b");
  a.Open("b");
  b.Open("a");
  ASSERT_TRUE(BothReady(a, b));
  Outcome from_a;
  Outcome from_b;
  Outcome late;
  Probe::Stub(a.to("b")).Hold(MakeData(1, 1), &from_a.reply, {}, from_a.Callback());
  Probe::Stub(b.to("a")).Hold(MakeData(2, 1), &from_b.reply, {}, from_b.Callback());
  ASSERT_TRUE(RunUntil([&] { return !a.probe.held.empty() && !b.probe.held.empty(); }));
  // What happens while b waits, by the clock of a.
  std::deque<Outcome> refused(1);
  At leaving(a.engine(), 10 * kNsPerMs, [&] {
    EXPECT_EQ(a.to("b").state(), ChannelState::kIdle);
    Probe::Stub(a.to("b")).Echo(MakeData(3, 1), &refused[0].reply, {}, refused[0].Callback());
  });
  At answer(b.engine(), 20 * kNsPerMs, [&] { b.probe.Release(); });
  At call(b.engine(), 40 * kNsPerMs, [&] {
    EXPECT_TRUE(from_a.done());
    Probe::Stub(b.to("a")).Echo(MakeData(4, 1), &late.reply, {}, late.Callback());
  });
  At last(a.engine(), 60 * kNsPerMs, [&] { a.probe.Release(); });
  const uint64_t begin_ns = network_.clock().NowNs();
  b.server().Shutdown(10'000'000);
  const uint64_t took_ns = network_.clock().NowNs() - begin_ns;
  EXPECT_GE(took_ns, 60 * kNsPerMs);
  EXPECT_LT(took_ns, kNsPerSec) << "it has waited for more than the calls";
  EXPECT_TRUE(from_a.status->ok()) << *from_a.status;
  ASSERT_TRUE(from_b.done());
  EXPECT_TRUE(from_b.status->ok()) << *from_b.status;
  ASSERT_TRUE(late.done());
  EXPECT_TRUE(late.status->ok()) << "a call of the server that shuts down: " << *late.status;
  ASSERT_TRUE(refused[0].done());
  EXPECT_TRUE(absl::IsUnavailable(*refused[0].status)) << *refused[0].status;
  EXPECT_EQ(DeliveryOf(*refused[0].status), Delivery::kNotSent);
  const absl::Status over = Echo(b, "a");
  EXPECT_TRUE(absl::IsUnavailable(over)) << over;
  EXPECT_TRUE(absl::IsFailedPrecondition(b.server().OpenPeer("c", "", {}).status()));
  // The next process under this name.
  PeerMachine& successor = Start("b");
  successor.Open("a");
  EXPECT_TRUE(BothReady(a, successor));
}

// They were not counted as calls are: where nothing else was under way, the connection was closed
// under them at once.
TEST_F(PeerTest, AShutdownLetsOperationsOnThePeersMemoryEnd) {
  for (const bool both : {false, true}) {
    SCOPED_TRACE(both ? "both have channels" : "who shuts down has");
    PeerMachine& a = Start(both ? "a1" : "a0");
    PeerMachine& b = Start(both ? "b1" : "b0");
    b.Open(a.id());
    if (both) a.Open(b.id());
    ASSERT_TRUE(RunUntil([&] { return b.IsReady(a.id()); }));
    std::vector<std::byte> bytes(64, std::byte{42});
    const auto exported = *a.server().Export(bytes, {});
    Channel& channel = b.to(a.id());
    const auto memory = *RemoteMemory::Open(channel, exported->handle());
    const auto buffer = *channel.AllocateBuffer(64);
    for (const auto& [from, to] : {std::pair(a.node(), b.node()), std::pair(b.node(), a.node())}) {
      network_.SetWire(from, to, {.delay_ns = 50 * kNsPerMs});
    }
    std::optional<absl::Status> early;
    std::optional<absl::Status> late;
    memory->Read(0, buffer->slice(0, 32), [&](absl::Status status) {
      early = std::move(status);
      // When all calls have ended, and the peer has left.
      memory->Read(32, buffer->slice(32, 32), [&](absl::Status last) { late = std::move(last); });
    });
    const uint64_t begin_ns = network_.clock().NowNs();
    b.server().Shutdown(10'000'000);
    EXPECT_LT(network_.clock().NowNs() - begin_ns, kNsPerSec) << "it has waited for more than them";
    ASSERT_TRUE(early && late);
    EXPECT_TRUE(early->ok()) << *early;
    EXPECT_TRUE(late->ok()) << *late;
    EXPECT_EQ(std::memcmp(buffer->bytes().data(), bytes.data(), 64), 0);
  }
}

TEST_F(PeerTest, AShutdownWithoutGraceEndsTheCallsOfBothSides) {
  PeerMachine& a = Start("a");
  PeerMachine& b = Start("b");
  a.Open("b");
  b.Open("a");
  ASSERT_TRUE(BothReady(a, b));
  Outcome from_a;
  Outcome from_b;
  Probe::Stub(a.to("b")).Hold(MakeData(1, 1), &from_a.reply, {}, from_a.Callback());
  Probe::Stub(b.to("a")).Hold(MakeData(2, 1), &from_b.reply, {}, from_b.Callback());
  ASSERT_TRUE(RunUntil([&] { return !a.probe.held.empty() && !b.probe.held.empty(); }));
  b.probe.held.front().context().OnCancel([&] { b.probe.Release(absl::CancelledError("told")); });
  b.server().Shutdown(0);
  ASSERT_TRUE(RunUntil([&] { return from_a.done() && from_b.done(); }));
  EXPECT_TRUE(absl::IsUnavailable(*from_a.status)) << *from_a.status;
  EXPECT_TRUE(absl::IsUnavailable(*from_b.status)) << *from_b.status;
  a.probe.held.clear();
}

TEST_F(PeerTest, AChannelThatIsDestroyedLeavesTheOthersCallsAlone) {
  PeerMachine& a = Start("a");
  PeerMachine& b = Start("b");
  a.Open("b");
  b.Open("a");
  ASSERT_TRUE(BothReady(a, b));
  Outcome from_a;
  Outcome from_b;
  Probe::Stub(a.to("b")).Hold(MakeData(1, 1), &from_a.reply, {}, from_a.Callback());
  Talk talk = Streams::Stub(a.to("b")).Talk();
  Probe::Stub(b.to("a")).Hold(MakeData(2, 1), &from_b.reply, {}, from_b.Callback());
  ASSERT_TRUE(RunUntil(
      [&] { return !a.probe.held.empty() && !b.probe.held.empty() && !b.streams.talks.empty(); }));
  { const Talk dropped = std::move(talk); }
  a.Close("b");
  EXPECT_TRUE(absl::IsCancelled(*from_a.status)) << *from_a.status;
  ASSERT_TRUE(RunUntil([&] { return b.probe.held.front().context().cancelled(); }));
  ASSERT_TRUE(RunUntil([&] { return b.streams.talks.front().context().cancelled(); }));
  b.probe.Release();  // an answer that nobody takes
  b.streams.talks.clear();
  RunFor(kNsPerSec);
  EXPECT_FALSE(from_b.done());
  a.probe.Release();
  ASSERT_TRUE(RunUntil([&] { return from_b.done(); }));
  EXPECT_TRUE(from_b.status->ok()) << *from_b.status;
  EXPECT_TRUE(Echo(b, "a").ok());
  EXPECT_EQ(b.to("a").stats().connects, 1u) << "the connection was lost";
  a.Open("b");
  ASSERT_TRUE(BothReady(a, b));
  EXPECT_TRUE(Echo(a, "b").ok());
  EXPECT_EQ(a.server().stats().peers, 1u);
  EXPECT_EQ(b.to("a").stats().connects, 1u) << "the new channel has made another connection";
  // When both are gone, so is the connection.
  a.Close("b");
  b.Close("a");
  ASSERT_TRUE(RunUntil(
      [&] { return a.server().stats().connections == 0 && b.server().stats().connections == 0; }));
  EXPECT_EQ(a.server().stats().peers, 0u);
}

// A channel to a peer, after one that was destroyed, closed the connection under the calls that the
// peer had running on it: calls of the new one could not have been told from those of the old one.
TEST_F(PeerTest, AChannelThatIsOpenedAgainLeavesTheOthersCallsAlone) {
  for (const bool dialed : {true, false}) {
    SCOPED_TRACE(dialed ? "of who has dialed" : "of who has accepted");
    PeerMachine& a = Start(dialed ? "a1" : "a0");
    PeerMachine& b = Start(dialed ? "b1" : "b0");
    const auto open = [&] { a.OpenAt(b.id(), dialed ? "sim:" + b.id() : ""); };
    open();
    b.OpenAt(a.id(), dialed ? "" : "sim:" + a.id());
    ASSERT_TRUE(BothReady(a, b));
    Outcome from_b;
    Probe::Stub(b.to(a.id())).Hold(MakeData(2, 1), &from_b.reply, {}, from_b.Callback());
    Talk talk = Streams::Stub(b.to(a.id())).Talk();
    ASSERT_TRUE(RunUntil([&] { return !a.probe.held.empty() && !a.streams.talks.empty(); }));
    for (int i = 0; i < 5; ++i) {
      Outcome held;
      Outcome large;
      Probe::Stub(a.to(b.id())).Hold(MakeData(1, 1), &held.reply, {}, held.Callback());
      ASSERT_TRUE(RunUntil([&] { return !b.probe.held.empty(); }));
      // It is under way when the channel goes, and its answer when there is the next one.
      Probe::Stub(a.to(b.id())).Echo(MakeData(3, 300'000), &large.reply, {}, large.Callback());
      a.Close(b.id());
      EXPECT_TRUE(held.done() && large.done());
      open();
      ASSERT_TRUE(BothReady(a, b)) << "though a handler of the old channel's call runs on";
      EXPECT_TRUE(b.probe.held.front().context().cancelled());
      EXPECT_TRUE(Echo(a, b.id()).ok());
      b.probe.Release();  // an answer that nobody takes
      EXPECT_TRUE(Echo(a, b.id()).ok());
    }
    EXPECT_FALSE(from_b.done());
    EXPECT_EQ(b.to(a.id()).stats().connects, 1u);
    a.probe.Release();
    a.streams.talks.front().Finish(absl::OkStatus());
    a.streams.talks.clear();
    std::optional<absl::Status> end;
    talk.Finish([&](absl::Status status) { end = std::move(status); });
    ASSERT_TRUE(RunUntil([&] { return from_b.done() && end.has_value(); }));
    EXPECT_TRUE(from_b.status->ok()) << *from_b.status;
    EXPECT_TRUE(end->ok()) << *end;
  }
}

// A channel's session stayed at the server for a lease when the channel was gone, and those of the
// channels that followed beside it.
TEST_F(PeerTest, AChannelThatIsDestroyedEndsItsSession) {
  PeerMachine& a = Start("a");
  PeerMachine& b = Start("b");
  b.OpenAt("a", "");
  ChannelOptions once;
  once.retry.max_attempts = 2;
  once.retry.exactly_once = true;
  for (uint32_t i = 0; i < 20; ++i) {
    a.OpenAt("b", "sim:b", once);
    ASSERT_TRUE(BothReady(a, b));
    EXPECT_TRUE(Echo(a, "b").ok());
    EXPECT_EQ(b.server().stats().sessions, 1u);
    Outcome held;
    Probe::Stub(a.to("b")).Hold(MakeData(1, 1), &held.reply, {}, held.Callback());
    ASSERT_TRUE(RunUntil([&] { return !b.probe.held.empty(); }));
    a.Close("b");
    EXPECT_TRUE(absl::IsCancelled(*held.status)) << *held.status;
    ASSERT_TRUE(RunUntil([&] { return b.probe.held.front().context().cancelled(); }));
    EXPECT_EQ(b.server().stats().sessions, 1u) << "a handler of it runs";
    b.probe.Release();
    EXPECT_EQ(b.server().stats().sessions, 0u);
  }
  EXPECT_EQ(b.to("a").stats().connects, 1u);
}

// The same at random: nothing of a channel's calls, however large, is taken for the next one's.
TEST(PeerReopenTest, ChannelsComeAndGoBesideTheCallsOfThePeer) {
  ForEachSeed(60, [](uint64_t seed) {
    SimNetwork network(seed);
    Random random(seed);
    ServerOptions narrow;
    if (random.Chance(0.5)) narrow.link.window_slots = 4;
    PeerMachine a(network, "a", "a", narrow);
    PeerMachine b(network, "b", "b", narrow);
    for (const auto& [from, to] : {std::pair("a", "b"), std::pair("b", "a")}) {
      SimWire wire;
      wire.jitter_ns = random.Uniform(random.Chance(0.5) ? 20'000 : 500'000);
      wire.bytes_per_s = random.Chance(0.5) ? 1'000'000'000 : 20'000'000;
      network.SetWire(from, to, wire);
    }
    a.Listen();
    b.Listen();
    const bool dials = random.Chance(0.5);
    b.OpenAt("a", dials ? "" : "sim:a");
    std::deque<Outcome> outcomes;
    std::deque<Outcome> peers_outcomes;
    const auto call = [&](PeerMachine& from, const std::string& to, std::deque<Outcome>& into) {
      const size_t bytes = random.Chance(0.3) ? random.Uniform(100'000) : random.Uniform(100);
      Outcome& outcome = into.emplace_back();
      Probe::Stub stub(from.to(to));
      const CallOptions options = {.wait_for_server = true};
      if (&from == &a && random.Chance(0.3)) {
        return stub.Hold(MakeData(into.size(), bytes), &outcome.reply, options, outcome.Callback());
      }
      stub.Echo(MakeData(into.size(), bytes), &outcome.reply, options, outcome.Callback());
    };
    for (int life = 0; life < 20; ++life) {
      a.OpenAt("b", dials ? "sim:b" : "");
      if (random.Chance(0.8)) {
        ASSERT_TRUE(network.RunUntil([&] { return a.IsReady("b"); }, 10 * kNsPerSec));
      }
      std::deque<Talk> talks;
      for (uint64_t step = random.Uniform(6); step > 0; --step) {
        call(a, "b", outcomes);
        call(b, "a", peers_outcomes);
        if (random.Chance(0.5)) {
          talks.push_back(Streams::Stub(a.to("b")).Talk());
          static_cast<void>(talks.back().TryWrite(MakeData(1, random.Uniform(60'000))));
        }
        while (!b.streams.talks.empty()) {  // some end, and others go with their channels
          if (random.Chance(0.5)) b.streams.talks.front().Finish(absl::OkStatus());
          b.streams.talks.pop_front();
        }
        network.RunFor(random.Uniform(random.Chance(0.5) ? 30'000 : 3'000'000));
      }
      talks.clear();
      a.Close("b");
      if (random.Chance(0.5)) network.RunFor(random.Uniform(1'000'000));
      // More channels than that wait for the handlers of earlier ones (served_peer.h).
      while (!b.probe.held.empty() && (b.probe.held.size() > 3 || random.Chance(0.5))) {
        b.probe.Release();
      }
      network.CheckInvariants();
    }
    ASSERT_TRUE(network.RunUntil(
        [&] {
          for (const Outcome& outcome : peers_outcomes) {
            if (!outcome.done()) return false;
          }
          return true;
        },
        100 * kNsPerSec));
    for (size_t i = 0; i < outcomes.size(); ++i) {
      EXPECT_EQ(outcomes[i].completions, 1);
      if (outcomes[i].status->ok()) {
        EXPECT_EQ(outcomes[i].reply.number(), i + 1) << "an answer of another call";
      }
    }
    for (size_t i = 0; i < peers_outcomes.size(); ++i) {
      EXPECT_TRUE(peers_outcomes[i].status->ok()) << *peers_outcomes[i].status;
      EXPECT_EQ(peers_outcomes[i].reply.number(), i + 1);
    }
    EXPECT_EQ(b.to("a").stats().connects, 1u);
    EXPECT_EQ(a.server().stats().protocol_errors + b.server().stats().protocol_errors, 0u);
    network.RunFor(kNsPerSec);  // what was on its way is cancelled, and its handlers end
    b.probe.held.clear();
    b.streams.talks.clear();
    b.Close("a");
    network.RunFor(kNsPerSec);
    EXPECT_EQ(a.server().stats().connections + b.server().stats().connections, 0u);
  });
}

// The side that calls goes while the other one begins to call.
TEST(PeerReopenTest, WhoBeginsToCallKeepsTheConnectionThatTheOtherLeaves) {
  for (uint64_t ns = 0; ns < 100'000; ns += 1000) {
    SCOPED_TRACE(testing::Message() << ns << " ns before the other goes");
    SimNetwork network(ns + 1);
    PeerMachine a(network, "a", "a");
    PeerMachine b(network, "b", "b");
    b.Listen();
    a.Open("b");
    ASSERT_TRUE(network.RunUntil([&] { return a.IsReady("b"); }, kNsPerSec));
    b.OpenAt("a", "");
    Outcome outcome;
    Probe::Stub(b.to("a")).Echo(MakeData(1, 1), &outcome.reply, {.wait_for_server = true},
                                outcome.Callback());
    network.RunFor(ns);
    a.Close("b");
    network.RunFor(kNsPerSec);
    ASSERT_TRUE(outcome.done());
    EXPECT_TRUE(outcome.status->ok()) << *outcome.status;
    EXPECT_EQ(b.to("a").stats().connects, 1u);
  }
}

TEST_F(PeerTest, AChannelIsDestroyedInAnyState) {
  for (uint64_t ns = 0; ns < 200'000; ns += 1000) {
    SCOPED_TRACE(testing::Message() << ns << " ns after both began to dial");
    SimNetwork network(ns + 1);
    PeerMachine a(network, "a", "a");
    PeerMachine b(network, "b", "b");
    a.Listen();
    b.Listen();
    a.Open("b");
    b.Open("a");
    network.RunFor(ns);
    Outcome outcome;
    Probe::Stub(a.to("b")).Echo(MakeData(1, 1), &outcome.reply, {}, outcome.Callback());
    network.RunFor(ns % 7 * 1000);
    a.Close("b");
    ASSERT_TRUE(outcome.done());
    Data reply;
    absl::Status called;
    b.to("a").WhenWritable([](const absl::Status&) {});
    ASSERT_TRUE(network.RunUntil([&] { return b.IsReady("a"); }, 10 * kNsPerSec));
    network.RunFor(kNsPerSec);
    EXPECT_EQ(a.server().stats().peers, 1u);
    EXPECT_EQ(b.server().stats().peers, 1u);
    network.CheckInvariants();
    if (testing::Test::HasFailure()) return;
  }
}

using PeerDeathTest = PeerTest;
TEST_F(PeerDeathTest, AChannelMustNotOutliveItsServer) {
  EXPECT_DEATH(
      {
        ServerOptions options;
        options.peer_id = "x";
        auto server = *Server::Create(network_.Node("x"), options);
        auto channel = *server->OpenPeer("y", "", {});
        server.reset();
      },
      "has_channels");
}

}  // namespace
}  // namespace weft::test

int main(int argc, char** argv) { return weft::test::RunWithSeeds(argc, argv); }
