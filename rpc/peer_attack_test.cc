// Sessions of peers, drains and deadlines of remote memory in the hands of strangers, of several
// processes with one id, and of programs that end things in unusual orders. Simulated.
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/random.h"
#include "rpc/client/client_context.h"
#include "rpc/memory/remote_memory.h"
#include "rpc/server/exported_memory.h"
#include "rpc/testing/peer_machine.h"
#include "rpc/testing/raw_hellos.h"
#include "rpc/testing/raw_peer.h"
#include "rpc/testing/stream_frames.h"
#include "rpc/testing/ticks.h"
#include "rpc/wire/peer_frame.h"
#include "rpc/wire/region_handle_proto.h"
#include "transport/lease.h"
#include "weft/status.h"

namespace weft::test {
namespace {

void Try(RawPeer& peer, const Bytes& message) {
  if (peer.connection == nullptr || peer.connection->state() != Connection::State::kOpen) return;
  absl::StatusOr<std::byte*> space = peer.connection->Reserve(message.size());
  if (!space.ok()) return;
  if (!message.empty()) std::memcpy(*space, message.data(), message.size());
  peer.connection->Commit(message.size());
  peer.connection->Flush();
}

// The number that the server has given to a method.
uint16_t NumberOf(Connection& connection, const std::string& service, const std::string& method) {
  rpc::ServerHello served;
  EXPECT_TRUE(served.ParseFromString(connection.peer_hello()));
  uint16_t number = 0;
  for (const rpc::ServiceTable& table : served.services()) {
    for (const std::string& name : table.methods()) {
      if (table.name() == service && name == method) return number;
      ++number;
    }
  }
  ADD_FAILURE() << "no method " << method;
  return 0;
}

using PeerAttackTest = PeerTest;

// Of replicas that were all given one id, each took the place of the last, for ever: only the one
// before was remembered, and who had been replaced two replacements ago was let in again.
TEST_F(PeerAttackTest, SeveralProcessesWithOneIdDoNotTakeEachOthersPlaceForEver) {
  for (const int count : {2, 3, 5}) {
    PeerMachine& b = Start("b" + std::to_string(count));
    b.OpenAt("a", "");
    std::deque<PeerMachine> replicas;
    std::deque<At> timers;
    std::vector<int> ok(static_cast<size_t>(count)), failed(static_cast<size_t>(count));
    std::deque<Data> replies;
    for (int i = 0; i < count; ++i) {
      replicas.emplace_back(network_, "a", "r" + std::to_string(count) + std::to_string(i));
      replicas.back().Open(b.id());
      RunFor(50 * kNsPerMs);
    }
    for (int step = 0; step < 10'000; ++step) {  // 20 s
      for (int i = 0; i < count; ++i) {
        const auto at = static_cast<size_t>(i);
        Probe::Stub(replicas[at].to(b.id()))
            .Echo(MakeData(1, 1), &replies.emplace_back(), {},
                  [&ok, &failed, at](const absl::Status& status) {
                    ++(status.ok() ? ok : failed)[at];
                  });
      }
      RunFor(2 * kNsPerMs);
    }
    uint64_t connects = 0;
    for (int i = 0; i < count; ++i) {
      const auto at = static_cast<size_t>(i);
      const ChannelStats stats = replicas[at].to(b.id()).stats();
      connects += stats.connects;
    }
    EXPECT_LE(connects, static_cast<uint64_t>(2 * count));
    RunFor(kNsPerSec);
    replicas.clear();
    RunFor(kNsPerSec);
  }
}

// A stream whose handle was dropped held up the shutdown of its caller for the whole grace, where
// the handler at the other end did not end.
TEST_F(PeerAttackTest, AnAbandonedStreamDoesNotHoldUpAShutdown) {
  for (const bool stream : {false, true}) {
    PeerMachine& a = Start(stream ? "a1" : "a0");
    PeerMachine& b = Start(stream ? "b1" : "b0");
    a.Open(b.id());
    ASSERT_TRUE(RunUntil([&] { return a.IsReady(b.id()); }));
    Outcome outcome;
    ClientContext context;
    if (stream) {
      auto talk = Streams::Stub(a.to(b.id())).Talk();
      ASSERT_TRUE(RunUntil([&] { return !b.streams.talks.empty(); }));
    } else {
      Probe::Stub(a.to(b.id()))
          .Hold(MakeData(1, 1), &outcome.reply, {.context = &context}, outcome.Callback());
      ASSERT_TRUE(RunUntil([&] { return !b.probe.held.empty(); }));
      EXPECT_TRUE(context.Cancel().ok());
      ASSERT_TRUE(RunUntil([&] { return outcome.done(); }));
    }
    RunFor(kNsPerMs);
    const uint64_t begin_ns = network_.clock().NowNs();
    a.server().Shutdown(10'000'000);
    const uint64_t took_ms = (network_.clock().NowNs() - begin_ns) / kNsPerMs;
    EXPECT_LT(took_ms, 1000u);
  }
}

// It overflowed, and was over at once.
TEST_F(PeerAttackTest, AGraceForEverIsNotNoneAtAll) {
  PeerMachine& a = Start("a");
  PeerMachine& b = Start("b");
  a.Open("b");
  Outcome held;
  Probe::Stub(a.to("b")).Hold(MakeData(1, 1), &held.reply, {}, held.Callback());
  ASSERT_TRUE(RunUntil([&] { return !b.probe.held.empty(); }));
  const At release(b.engine(), 2 * kNsPerSec, [&] {
    if (!b.probe.held.empty()) b.probe.Release();
  });
  b.server().Shutdown(~uint64_t{0});
  ASSERT_TRUE(RunUntil([&] { return held.done(); }));
  EXPECT_TRUE(held.status->ok()) << *held.status;
}

// A connection whose hello was refused had closed the good one before. So had one whose hello did
// not tell what its sender serves, which is refused by the half that calls.
TEST_F(PeerAttackTest, WhoIsRefusedTakesNobodysPlace) {
  PeerMachine& server = Start("server");
  PeerMachine raw(network_, "raw", "good");
  server.OpenAt("raw", "");
  raw.Open("server");
  ASSERT_TRUE(BothReady(server, raw));
  using Change = void (*)(rpc::ClientHello&);
  const struct {
    Change change;
    const char* why;
  } cases[] = {
      {[](rpc::ClientHello& hello) { hello.set_protocol(99); }, "speaks version 99"},
      {[](rpc::ClientHello& hello) { hello.set_max_outstanding_calls(0); }, "it wants no calls"},
      {[](rpc::ClientHello& hello) { hello.mutable_peer()->clear_server(); },
       "does not tell what it serves"},
      {[](rpc::ClientHello& hello) { hello.mutable_peer()->mutable_server()->set_protocol(98); },
       "speaks version 98"},
      {[](rpc::ClientHello& hello) {
         hello.mutable_peer()->mutable_server()->set_max_outstanding_calls(0);
       },
       "what the dialing server tells of its services makes no sense"},
      {[](rpc::ClientHello& hello) {
         for (int i = 0; i < 65'535; ++i) {
           hello.mutable_peer()->mutable_server()->mutable_services(0)->add_methods("");
         }
       },
       "what the dialing server tells of its services makes no sense"},
  };
  for (const auto& test : cases) {
    rpc::ClientHello hello = PeerDialingHello("raw", 5);
    test.change(hello);
    RawPeer stranger;
    stranger.DialWith(CoreOf(network_.Node("stranger")).transport(), hello);
    ASSERT_TRUE(RunUntil([&] { return !stranger.why.ok(); }));
    EXPECT_NE(stranger.why.message().find(test.why), absl::string_view::npos) << stranger.why;
    RunFor(kNsPerSec);
    ASSERT_TRUE(BothReady(server, raw));
    EXPECT_EQ(raw.to("server").stats().connects, 1u) << stranger.why;
    EXPECT_EQ(server.to("raw").stats().connects, 1u) << stranger.why;
  }
}

// Nor does it end the attempt of this side to dial: that one's peer may be the good one.
TEST_F(PeerAttackTest, WhoIsRefusedEndsNoAttempt) {
  PeerMachine& server = Start("server");
  PeerMachine raw(network_, "raw", "good");
  raw.Listen();
  // Of the greater id, it would give way to a connection that comes.
  network_.SetWire(server.node(), raw.node(), {.delay_ns = 50 * kNsPerMs});
  network_.SetWire(raw.node(), server.node(), {.delay_ns = 50 * kNsPerMs});
  server.Open("raw");
  rpc::ClientHello hello = PeerDialingHello("raw", 5);
  hello.mutable_peer()->clear_server();
  RawPeer stranger;
  stranger.DialWith(CoreOf(network_.Node("stranger")).transport(), hello);
  ASSERT_TRUE(RunUntil([&] { return !stranger.why.ok(); }));
  ASSERT_TRUE(RunUntil([&] { return server.IsReady("raw"); }));
  const ChannelStats stats = server.to("raw").stats();
  EXPECT_EQ(stats.connects, 1u);
  EXPECT_EQ(stats.connect_failures, 0u) << stranger.why;
}

// Only the connection in use was asked for, and not the one that was about to take its place:
// whoever knew a peer's id, and had proved nothing, had that one given up in its handshake, as
// often as it liked.
TEST_F(PeerAttackTest, WhoHasProvedNothingEndsNoHandshakeOfWhoHas) {
  PeerMachine& server = Start("server");
  RawPeer stranger;
  stranger.DialWith(CoreOf(network_.Node("stranger")).transport(), PeerDialingHello("raw", 5));
  ASSERT_TRUE(RunUntil([&] { return stranger.connection != nullptr; }));
  Transport& transport = CoreOf(network_.Node("good")).transport();
  PeerIdentity identity;
  identity.authentication = Authentication::kCertificate;
  identity.uris = {"spiffe://example/raw"};
  network_.SetIdentity("good", identity);
  network_.SetWire(server.node(), "good", {.delay_ns = 50 * kNsPerMs});
  RawPeer good;
  good.DialWith(transport, PeerDialingHello("raw", 6));
  RunFor(kNsPerMs);  // it has arrived, and has no answer
  RawPeer again;
  again.DialWith(CoreOf(network_.Node("stranger")).transport(), PeerDialingHello("raw", 5));
  ASSERT_TRUE(RunUntil([&] { return !again.why.ok(); }));
  EXPECT_EQ(again.why,
            absl::UnauthenticatedError(
                "who dials as peer raw has not proved to be the peer that is connected, or "
                "about to be: nobody has proved who it is"));
  ASSERT_TRUE(RunUntil([&] { return good.connection != nullptr || !good.why.ok(); }));
  EXPECT_TRUE(good.why.ok()) << good.why;
  ASSERT_TRUE(RunUntil([&] { return !stranger.why.ok(); }));
  EXPECT_EQ(stranger.why,
            absl::UnavailableError("the peer closed: the peer has another connection"));
  ASSERT_NE(good.connection, nullptr);
  good.connection->Close("done");
  ASSERT_TRUE(RunUntil([&] { return !good.why.ok() && server.server().stats().connections == 0; }));
}

// Whom this side had dialed was the transport's to check, for the channel that dialed. A channel
// that was opened later, and wanted somebody else, was given the connection if it was still there.
TEST_F(PeerAttackTest, AChannelTakesNoConnectionThatWasDialedForAnother) {
  PeerMachine& server = Start("server");
  RawAcceptor acceptor;
  RawPeer& raw = acceptor.peer;
  ListenOptions options;
  options.hello = PeerServingHello("raw").SerializeAsString();
  const auto listener =
      *CoreOf(network_.Node("raw")).transport().Listen("sim:raw", options, &acceptor);
  server.Open("raw");
  ASSERT_TRUE(RunUntil([&] { return server.IsReady("raw") && raw.connection != nullptr; }));
  // It calls as well: so the connection stays when the channel goes.
  const std::string hello = PeerCallingHello().SerializeAsString();
  Bytes begin(kCallHeaderBytes + hello.size());
  EncodePeerFrame(PeerFrameKind::kBegin, begin.data());
  std::memcpy(begin.data() + kCallHeaderBytes, hello.data(), hello.size());
  raw.Send(begin);
  network_.Settle();
  server.Close("raw");
  network_.Settle();
  Bytes ended(kCallHeaderBytes);
  EncodePeerFrame(PeerFrameKind::kEnded, ended.data());
  raw.Send(ended);
  network_.Settle();
  ASSERT_TRUE(raw.why.ok()) << raw.why;

  ChannelOptions wanting;
  SecurityOptions& security = wanting.security.emplace();
  security.psk_name = "fleet";
  security.psk_secret = std::string(kMinPskBytes, 's');
  raw.received.clear();
  server.OpenAt("raw", "", wanting);
  EXPECT_FALSE(Echo(server, "raw").ok());
  ASSERT_TRUE(RunUntil([&] { return !raw.why.ok(); }));
  EXPECT_NE(raw.why.message().find("has not proved to be \"fleet\""), absl::string_view::npos)
      << raw.why;
  for (const Bytes& frame : raw.received) {
    EXPECT_NE(CallFrameKindOf(frame), static_cast<uint16_t>(CallFrameKind::kRequest));
  }
}

class RememberingLease final : public Lease {
 public:
  bool granted = false;
  absl::Status why;  // of its end

 private:
  void OnGranted() override { granted = true; }
  void OnEnded(const absl::Status& status) override { why = status; }
};

// A peer that was dialed may ask for memory before it begins to call, or without ever calling: also
// then it is the tenant that it is, and not the default one.
TEST_F(PeerAttackTest, APeerThatWasDialedIsOfItsTenantFromTheStart) {
  constexpr uint32_t kTenant = 7;
  PeerMachine& server = Start("server", {.tenant_of = [](const PathInfo&) { return kTenant; }});
  std::vector<std::byte> bytes(64);
  const auto exported = *server.server().Export(bytes, {});
  const RegionHandle of_default = *FromProto(exported->handle());
  const RegionHandle of_peer = *FromProto(*exported->Derive({.length = 64, .tenant = kTenant}));
  ListenOptions listen;
  listen.hello = PeerServingHello("raw").SerializeAsString();
  RawAcceptor raw;
  const auto listener = *CoreOf(network_.Node("raw")).transport().Listen("sim:raw", listen, &raw);
  server.Open("raw");
  ASSERT_TRUE(RunUntil([&] { return raw.peer.connection != nullptr; }));
  RememberingLease granted;
  RememberingLease refused;
  for (const auto& [handle, lease] : {std::pair(&of_peer, &granted), {&of_default, &refused}}) {
    ASSERT_TRUE(
        raw.peer.connection->memory().Resolve(*handle, /*layout=*/0, kNsPerSec, lease).ok());
  }
  ASSERT_TRUE(RunUntil([&] { return granted.granted && !refused.why.ok(); }));
  EXPECT_TRUE(absl::IsPermissionDenied(refused.why)) << refused.why;
  EXPECT_FALSE(refused.granted);
  EXPECT_EQ(server.server().stats().connections, 0u) << "it has begun";
  raw.peer.connection->Close("done");
  ASSERT_TRUE(RunUntil([&] { return raw.peer.connection == nullptr; }));
}

// The half that serves goes with the end of its peer's calls. One that overtakes what it must not
// finds a transfer under way: that ends by itself, and its handler with it. The answer came before
// that, and no release behind it: nobody told the peer when its memory was its own again.
TEST_F(PeerAttackTest, AnEndInTheMiddleOfATransferIsAnsweredBehindIt) {
  PeerMachine& server = Start("server");
  PeerMachine& other = Start("other");
  other.Open("server");
  server.OpenAt("raw", "");  // so that the connection stays
  rpc::ClientHello hello = PeerDialingHello("raw", 5);
  hello.set_max_windows(kMaxWindows);
  for (const std::string method : {"Exchange", "Store"}) {
    SCOPED_TRACE(method == "Store" ? "its handler has finished" : "its handler runs");
    RawPeer raw;
    raw.DialWith(CoreOf(network_.Node("raw")).transport(), hello);
    ASSERT_TRUE(RunUntil([&] { return raw.connection != nullptr && server.IsReady("raw"); }));
    std::vector<std::byte> lent(1000);
    const auto region = *raw.connection->memory().Register(lent, Access::kRemoteRead);
    Parcel parcel;
    Part part;
    for (Bulk* const data : {parcel.mutable_data(), part.mutable_data()}) {
      data->set_window(1);
      data->set_length(lent.size());
    }
    network_.SetWire("raw", server.node(), {.delay_ns = 50 * kNsPerMs});
    network_.SetWire(server.node(), "raw", {.delay_ns = 50 * kNsPerMs});
    raw.Send(RequestWithWindows(
        {0, 1}, NumberOf(*raw.connection, "weft.test.Payloads", method),
        {{region->remote(), kMayRead}},
        method == "Store" ? part.SerializeAsString() : parcel.SerializeAsString()));
    RunFor(10 * kNsPerMs);
    Bytes end(kCallHeaderBytes);
    EncodePeerFrame(PeerFrameKind::kEnd, end.data());
    raw.Send(end);
    RunFor(60 * kNsPerMs);
    EXPECT_EQ(server.server().stats().running, 1u);
    EXPECT_TRUE(Echo(other, "server").ok());
    const auto is_offered = [&] { return raw.connection->stats().large_under_way > 0; };
    ASSERT_TRUE(RunUntil([&] { return is_offered() || server.server().stats().running == 0; }));
    EXPECT_FALSE(is_offered()) << "the answer is on its way, and the peer's memory is read";
    ASSERT_TRUE(RunUntil([&] {
      return !raw.received.empty() && DecodePeerFrame(PeerFrameKind::kEnded, raw.received.back());
    }));
    EXPECT_TRUE(raw.why.ok()) << raw.why;
    raw.connection->Close("done");
    ASSERT_TRUE(RunUntil([&] { return raw.connection == nullptr; }));
    network_.SetWire("raw", server.node(), {});
    network_.SetWire(server.node(), "raw", {});
  }
}

// Who waited for memory of one late operation waited until there was none late at all.
TEST_F(PeerAttackTest, WhatIsReclaimedIsSaidToBeThoughOthersAreLate) {
  PeerMachine& a = Start("a");
  PeerMachine& b = Start("b");
  a.Open("b");
  ASSERT_TRUE(RunUntil([&] { return a.IsReady("b"); }));
  std::vector<std::byte> bytes(4096);
  auto exported = *b.server().Export(bytes, {.rights = kAllRights});
  {
    auto memory = *RemoteMemory::Open(a.to("b"), exported->handle(), {.timeout_us = 200'000});
    auto buffer = *a.to("b").AllocateBuffer(4096);
    for (const auto& [from, to] : {std::pair(a.node(), b.node()), std::pair(b.node(), a.node())}) {
      network_.SetWire(from, to, {.delay_ns = kNsPerSec / 2});
    }
    std::optional<absl::Status> first;
    memory->Read(0, buffer->slice(0, 64), [&](absl::Status status) { first = status; });
    ASSERT_TRUE(RunUntil([&] { return first.has_value(); }));
    EXPECT_TRUE(absl::IsDeadlineExceeded(*first)) << *first;
    std::optional<uint64_t> reclaimed_ns;
    memory->WhenReclaimed([&] { reclaimed_ns = network_.clock().NowNs(); });
    for (int i = 0; i < 200; ++i) {  // 20 s
      memory->Read(64, buffer->slice(64, 64), [](const absl::Status&) {});
      RunFor(100 * kNsPerMs);
    }
    EXPECT_EQ(a.to("b").stats().connects, 1u);
    EXPECT_TRUE(reclaimed_ns.has_value()) << "not in 20 s, though its read ended after 1 s";
    EXPECT_TRUE(RunUntil([&] { return reclaimed_ns.has_value(); }));
  }
}

// The same.
TEST_F(PeerAttackTest, WaitingForEverIsNotWaitingForNothing) {
  PeerMachine& a = Start("a");
  PeerMachine& b = Start("b");
  a.Open("b");
  ASSERT_TRUE(RunUntil([&] { return a.IsReady("b"); }));
  std::vector<std::byte> bytes(4096);
  auto exported = *b.server().Export(bytes, {.rights = kAllRights});
  {
    auto memory = *RemoteMemory::Open(a.to("b"), exported->handle(), {.timeout_us = 200'000});
    auto buffer = *a.to("b").AllocateBuffer(4096);
    for (const auto& [from, to] : {std::pair(a.node(), b.node()), std::pair(b.node(), a.node())}) {
      network_.SetWire(from, to, {.delay_ns = kNsPerSec / 2});
    }
    EXPECT_FALSE(memory->Read(0, buffer->slice(0, 64)).ok());
    EXPECT_TRUE(memory->WaitReclaimed(~uint64_t{0}));
  }
}

// Memory that was opened while the server drained waited for the end of the drain: it had not heard
// of the goaway.
TEST_F(PeerAttackTest, OperationsAreTurnedAwayAsCallsAreWhileTheServerDrains) {
  PeerMachine& a = Start("a");
  for (const bool peers : {false, true}) {
    auto server =
        *Server::Create(network_.Node(peers ? "p1" : "p0"), {.peer_id = peers ? "p1" : ""});
    ProbeService probe;
    ASSERT_TRUE(server->AddService(&probe).ok());
    const std::string address = peers ? "sim:p1" : "sim:p0";
    ASSERT_TRUE(server->Listen(address).ok());
    std::unique_ptr<Channel> channel =
        peers ? *a.server().OpenPeer("p1", address, {})
              : *Channel::Open(network_.Node("client"), address, {.connect_at_once = false});
    Engine& engine = peers ? a.engine() : network_.Node("client");
    std::vector<std::byte> bytes(4096);
    auto exported = *server->Export(bytes, {.rights = kAllRights});
    Outcome held;
    Probe::Stub(*channel).Hold(MakeData(1, 1), &held.reply, {}, held.Callback());
    ASSERT_TRUE(RunUntil([&] { return !probe.held.empty(); }));
    std::unique_ptr<RemoteMemory> early = *RemoteMemory::Open(*channel, exported->handle());
    std::unique_ptr<RemoteMemory> late;
    auto buffer = *channel->AllocateBuffer(4096);
    std::optional<uint64_t> early_ns, late_ns, call_ns;
    absl::Status early_status, late_status;
    Outcome called;
    const uint64_t begin_ns = network_.clock().NowNs();
    At at(engine, 10 * kNsPerMs, [&] {
      Probe::Stub(*channel).Echo(MakeData(1, 1), &called.reply, {}, [&](const absl::Status&) {
        call_ns = network_.clock().NowNs() - begin_ns;
      });
      late = *RemoteMemory::Open(*channel, exported->handle(), {.resolve_at_once = false});
      early->Read(0, buffer->slice(0, 64), [&](absl::Status status) {
        early_ns = network_.clock().NowNs() - begin_ns;
        early_status = status;
      });
      late->Read(0, buffer->slice(64, 64), [&](absl::Status status) {
        late_ns = network_.clock().NowNs() - begin_ns;
        late_status = status;
      });
    });
    At release(CoreOf(network_.Node(peers ? "p1" : "p0")), 20 * kNsPerSec,
               [&] { probe.Release(); });
    server->Shutdown(60'000'000);
    RunFor(20 * kNsPerSec);
    ASSERT_TRUE(early_ns && late_ns && call_ns);
    EXPECT_LT(*late_ns, kNsPerSec);
    early.reset();
    late.reset();
    buffer.reset();
    channel.reset();
    exported.reset();
    server.reset();
  }
}

// A stranger who came twice with one id, while the first of his connections was in its handshake,
// ended the process: what had been closed inside the other's handshake went on with its own.
// Randomly: channels that come and go, strangers with both ids, drains, calls and streams.
TEST(PeerAttackRandomTest, StrangersAndChannelsThatComeAndGo) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    SimNetwork network(seed);
    Random random(seed);
    PeerMachine a(network, "a", "a");
    PeerMachine b(network, "b", "b");
    a.Listen();
    b.Listen();
    std::deque<Outcome> outcomes;
    std::deque<ClientContext> contexts;
    std::deque<RawPeer> strangers;
    PeerMachine* const machines[] = {&a, &b};
    for (int step = 0; step < 150; ++step) {
      PeerMachine& self = *machines[random.Uniform(2)];
      PeerMachine& other = &self == &a ? b : a;
      switch (random.Uniform(14)) {
        case 0:
        case 1:
          if (self.has(other.id())) {
            self.Close(other.id());
          } else {
            self.OpenAt(other.id(), random.Chance(0.7) ? "sim:" + other.id() : "");
          }
          break;
        case 2: {
          RawPeer& stranger = strangers.emplace_back();
          rpc::ClientHello hello = PeerDialingHello(other.id(), 1 + random.Uniform(3));
          hello.mutable_peer()->set_wanted(self.id());
          if (random.Chance(0.1)) hello.set_protocol(7);
          ConnectOptions options;
          options.hello = hello.SerializeAsString();
          EXPECT_TRUE(CoreOf(network.Node("s" + std::to_string(random.Uniform(3))))
                          .transport()
                          .Connect("sim:" + self.id(), options, &stranger)
                          .ok());
          break;
        }
        case 3:
        case 4: {
          for (RawPeer& stranger : strangers) {
            if (stranger.connection == nullptr) continue;
            const CallId id = {static_cast<uint32_t>(random.Uniform(3)),
                               static_cast<uint32_t>(random.Uniform(4))};
            switch (random.Uniform(8)) {
              case 0: {
                Bytes end(kCallHeaderBytes);
                EncodePeerFrame(PeerFrameKind::kEnd, end.data());
                Try(stranger, end);
                break;
              }
              case 1: {
                Bytes goaway(kCallHeaderBytes);
                EncodeGoaway(static_cast<uint32_t>(random.Uniform(2)), goaway.data());
                Try(stranger, goaway);
                break;
              }
              case 2:
                Try(stranger, Request(id, static_cast<uint16_t>(random.Uniform(9))));
                break;
              case 3:
                Try(stranger, Open(id, kTalk));
                break;
              case 4:
                Try(stranger, ToOpener(Message(id, 0, "x")));
                break;
              case 5:
                for (const Bytes& frame : stranger.received) {
                  if (CallFrameKindOf(frame) == static_cast<uint16_t>(CallFrameKind::kRequest) &&
                      stranger.connection != nullptr) {
                    Try(stranger, Reply(CallIdOf(frame), 0, 0, ""));
                  }
                }
                stranger.received.clear();
                break;
              case 6:
                stranger.connection->Close("bored");
                break;
              default:
                Try(stranger, Cancel(id));
                break;
            }
          }
          break;
        }
        case 5:
          network.Cut(self.node(), other.node());
          break;
        case 6:
        case 7:
          network.Heal(self.node(), other.node());
          break;
        case 8:
          while (!self.probe.held.empty()) self.probe.Release();
          self.streams.talks.clear();
          break;
        default:
          if (!self.has(other.id())) break;
          Outcome& outcome = outcomes.emplace_back();
          ClientContext& context = contexts.emplace_back();
          Probe::Stub stub(self.to(other.id()));
          CallOptions options;
          if (random.Chance(0.5)) options.context = &context;
          if (random.Chance(0.3)) options.timeout_us = 1 + random.Uniform(3000);
          if (random.Chance(0.5)) {
            stub.Hold(MakeData(1, 10), &outcome.reply, options, outcome.Callback());
          } else {
            stub.Echo(MakeData(1, random.Chance(0.1) ? 100'000 : 10), &outcome.reply, options,
                      outcome.Callback());
          }
          if (random.Chance(0.2)) {
            auto talk = Streams::Stub(self.to(other.id())).Talk();
            static_cast<void>(talk.TryWrite(MakeData(1, 10)));
          }
          if (random.Chance(0.2)) {
            self.to(other.id()).WhenWritable([](const absl::Status&) {});
          }
          if (random.Chance(0.2)) static_cast<void>(context.Cancel());
      }
      network.RunFor(random.Uniform(random.Chance(0.7) ? 30'000 : 3'000'000));
      network.CheckInvariants();
      if (testing::Test::HasFailure()) return;
    }
    network.Heal("a", "b");
    // Drains with everything under way, and then the other one too.
    std::deque<At> releases;
    const auto release = [&] {
      for (PeerMachine* machine : machines) {
        while (!machine->probe.held.empty()) machine->probe.Release();
        machine->streams.talks.clear();
      }
    };
    for (uint64_t ms = 1; ms < 200; ms += 3)
      releases.emplace_back(a.engine(), ms * kNsPerMs, release);
    a.server().Shutdown(random.Uniform(2) * 50'000);
    network.RunFor(random.Uniform(kNsPerMs));
    releases.clear();
    for (uint64_t ms = 1; ms < 200; ms += 3)
      releases.emplace_back(b.engine(), ms * kNsPerMs, release);
    a.Close("b");
    b.Close("a");
    b.server().Shutdown(random.Uniform(2) * 50'000);
    releases.clear();
    for (const Outcome& outcome : outcomes) ASSERT_EQ(outcome.completions, 1);
    EXPECT_EQ(a.server().stats().connections, 0u);
    EXPECT_EQ(b.server().stats().connections, 0u);
    for (RawPeer& stranger : strangers) {
      if (stranger.connection != nullptr) stranger.connection->Close("done");
    }
    network.RunFor(10 * kNsPerSec);
    for (RawPeer& stranger : strangers) ASSERT_FALSE(stranger.why.ok());
  }
}

}  // namespace
}  // namespace weft::test
