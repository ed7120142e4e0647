// Sessions between peers and who their peers have proved to be, for a fuzzer: a server on the
// simulated network, and strangers that dial it with peers' ids.
//
// The bytes are events: a stranger with one of several identities dials and tells an id; it speaks,
// answers or leaves; the server opens a channel to such a peer, which wants this or that identity,
// or closes it, and calls; somebody listens where it dials; time passes. Whatever happens, a
// channel uses no connection of who is not whom it wants, who has proved who it is loses its place
// to nobody with other names, another peer's session goes on, and in the end a peer that is right
// is served.
//
// What peers say to each other is in server_fuzz.cc and client_fuzz.cc.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/strings.h"
#include "core/testing/fuzz_input.h"
#include "rpc/client/channel.h"
#include "rpc/client/channel_watch.h"
#include "rpc/server/server.h"
#include "rpc/testing/probe_service.h"
#include "rpc/testing/raw_hellos.h"
#include "rpc/testing/raw_peer.h"
#include "rpc/wire/peer_frame.h"
#include "transport/engine.h"
#include "transport/sim/sim_network.h"

namespace weft::test {
namespace {

constexpr int kMostEvents = 100;
constexpr size_t kMostStrangers = 24;
constexpr size_t kMostCalls = 16;
constexpr uint64_t kPatienceNs = 200 * kNsPerSec;        // virtual: bounds a hang
constexpr std::array<const char*, 2> kIds = {"a", "z"};  // before and behind the server's

// --- identities ---------------------------------------------------------------------------------

constexpr size_t kIdentities = 12;
// Those that have proved the same names; 0: they have proved nothing.
constexpr std::array<int, kIdentities> kNames = {0, 0, 1, 2, 3, 3, 4, 5, 6, 7, 8, 9};

PeerIdentity IdentityOf(size_t who) {
  const auto certificate = [](std::string subject, std::vector<std::string> dns_names,
                              std::vector<std::string> uris) {
    PeerIdentity identity;
    identity.authentication = Authentication::kCertificate;
    identity.subject = std::move(subject);
    identity.dns_names = std::move(dns_names);
    identity.uris = std::move(uris);
    return identity;
  };
  PeerIdentity identity;
  switch (who) {
    case 1:
      identity.authentication = Authentication::kKernelCredentials;
      return identity;
    case 2:
    case 3:
      identity.authentication = Authentication::kPreSharedKey;
      identity.psk_name = who == 2 ? "fleet" : "other";
      return identity;
    case 4:
      return certificate("CN=a", {"a.example.org"}, {"spiffe://example/a"});
    case 5:
      return certificate("CN=a, issued again", {"a.example.org"}, {"spiffe://example/a"});
    case 6:
      return certificate("CN=any", {"*.example.org"}, {});
    case 7:
      return certificate("CN=any", {"*.org", "*", "*.*.org"}, {});
    case 8:
      return certificate("CN=b", {"b*.example.org", "b.*.org"}, {"spiffe://example/b"});
    case 9:
      return certificate("CN=x", {}, {});
    case 10:
      return certificate("CN=y", {}, {});
    case 11:
      return certificate("CN=short", {"example"}, {});
    default:
      return identity;
  }
}

// Whom a channel wants, and which of them that is.
struct Wish {
  const char* psk_name;
  const char* uri;
  const char* host;
  uint32_t fits;  // bits, by identity

  bool Fits(size_t who) const { return (fits >> who & 1) != 0; }
};
constexpr uint32_t kEverybody = (1u << kIdentities) - 1;
constexpr uint32_t kA = 1u << 4 | 1u << 5;
constexpr std::array<Wish, 12> kWishes = {{
    {"", "", "", kEverybody},
    {"fleet", "", "", 1u << 2},
    {"", "spiffe://example/a", "", kA},
    {"", "", "A.Example.org", kA | 1u << 6},
    {"", "spiffe://example/a", "a.example.org", kA},
    {"", "spiffe://example/b", "a.example.org", 0},
    {"", "", "x.b.example.org", 0},
    {"", "", "b_1.example.org", 0},
    {"", "", "example.org", 0},
    {"", "", ".example.org", 0},
    {"", "", "example", 1u << 11},
    {"", "spiffe://example/b", "", 1u << 8},
}};

// --- the world ----------------------------------------------------------------------------------

class World;

// The other end of a connection.
struct Stranger final : ConnectionHandler {
  Stranger(World* its_world, size_t its_who) : world(its_world), who(its_who) {}

  void OnOpen(Connection& opened) override { connection = &opened; }
  void OnMessage(Connection&, ByteSpan message) override;
  void OnClosed(Connection&, const absl::Status& why) override;
  void Close() {
    is_silent = false;
    if (connection != nullptr) connection->Close("its own wish");
  }
  void Send(const Bytes& frame) {
    if (connection == nullptr) return;
    const MessageSpace space = connection->Append(frame.size());
    if (space.data != nullptr && !frame.empty()) {
      std::memcpy(space.data, frame.data(), frame.size());
    }
  }

  World* const world;
  const size_t who;
  size_t id = 0;           // of kIds
  int channels = 0;        // that had been opened or closed when it dialed
  bool is_silent = false;  // it has dialed, and done nothing since
  bool closed = false;
  Connection* connection = nullptr;
  uint32_t generation = 0;    // of its last call
  std::vector<CallId> asked;  // without a reply
};

class World final : private Acceptor {
 public:
  explicit World(FuzzInput input) : input_(input) {}

  void Run() {
    const uint8_t how = input_.U8();
    own_ = MakeServer("server", "server");
    honest_ = MakeServer("honest", "honest");
    honest_channel_ = honest_->OpenPeer("server", "sim:server", {}).value();
    CallOn(*honest_channel_);
    for (int i = 0; i < kMostEvents && input_.more(); ++i) {
      Event();
      Check();
    }
    CallOn(*honest_channel_);
    WEFT_CHECK(honest_channel_->stats().connects == 1);
    End(how);
  }

  // --- for strangers ----------------------------------------------------------------------------

  void OnRequest(const Stranger& stranger) const {
    WEFT_CHECK(channel_ == nullptr || wish_->Fits(stranger.who));
  }
  void OnGone(const Stranger& stranger, const absl::Status& why) const {
    const int names = kNames[stranger.who];
    if (is_ending_ || !stranger.is_silent || names == 0 || stranger.channels != channels_) return;
    // It was let in, and had to go: for another one of the same names.
    if (why.message().find("the peer closed: ") == 0) {
      WEFT_CHECK(dials_[stranger.id][static_cast<size_t>(names)] > 1);
    }
  }

 private:
  struct Call {
    Data reply;
    int ends = 0;
  };

  std::unique_ptr<Server> MakeServer(const std::string& id, const std::string& node) {
    ServerOptions options;
    options.peer_id = id;
    auto server = Server::Create(network_.Node(node), options).value();
    WEFT_CHECK(server->AddService(&probe_).ok() && server->Listen(StrCat("sim:", node)).ok());
    return server;
  }
  // The machine of those who have proved to be this one.
  Transport& MachineOf(size_t who) {
    const std::string node = StrCat("p", who);
    EngineCore& engine = CoreOf(network_.Node(node));
    network_.SetIdentity(node, IdentityOf(who));
    return engine.transport();
  }
  bool RunUntil(Function<bool()> done) { return network_.RunUntil(std::move(done), kPatienceNs); }
  void CallOn(Channel& channel) {
    Call call;
    Probe::Stub(channel).Echo(MakeData(1, 10), &call.reply, {.wait_for_server = true},
                              [&call](const absl::Status& status) { call.ends += status.ok(); });
    WEFT_CHECK(RunUntil([&] { return call.ends == 1; }));
  }
  // A channel that wants somebody has nobody else.
  void Check() {
    network_.CheckInvariants();
    if (channel_ == nullptr || wish_->fits == kEverybody) return;
    const absl::StatusOr<PathInfo> path = channel_->path();
    if (!path.ok() || channel_->state() != ChannelState::kReady) return;
    bool fits = false;
    for (size_t who = 0; who < kIdentities; ++who) {
      fits = fits || (wish_->Fits(who) && path->peer == StrCat("p", who));
    }
    WEFT_CHECK(fits);
  }

  // --- events -----------------------------------------------------------------------------------

  void Event() {
    const uint8_t event = input_.U8();
    switch (event % 8) {
      case 0:
      case 1:
        return Dial();
      case 2:
        if (Stranger* const one = Any(event)) one->Close();
        return;
      case 3:
        if (Stranger* const one = Any(event)) Speak(one);
        return;
      case 4:  // a hello takes about 10 us
        return network_.RunFor(uint64_t{input_.U8()} * 2 * kNsPerUs);
      case 5:
        return network_.RunFor(uint64_t{input_.U8()} * kNsPerMs);
      case 6:
        return channel_ != nullptr ? CloseChannel() : OpenChannel();
      default:
        return event >= 128 ? StartCall() : Listen();
    }
  }
  Stranger* Any(uint8_t event) {
    return strangers_.empty() ? nullptr : strangers_[event / 8u % strangers_.size()].get();
  }
  Stranger* NewStranger(size_t who) {
    if (strangers_.size() == kMostStrangers) return nullptr;
    return strangers_.emplace_back(std::make_unique<Stranger>(this, who)).get();
  }

  void Dial() {
    const size_t who = input_.Below(kIdentities);
    const uint8_t what = input_.U8();
    Stranger* const one = NewStranger(who);
    if (one == nullptr) return;
    one->id = what % kIds.size();
    one->channels = channels_;
    one->is_silent = what < 240;
    rpc::ClientHello hello = PeerDialingHello(kIds[one->id], 77 + what / 2 % 3u);
    rpc::PeerHello& peer = *hello.mutable_peer();
    if (what >= 240) {  // what is refused takes nobody's place
      if (what / 2 % 4 == 0) peer.clear_server();
      if (what / 2 % 4 == 1) peer.set_wanted("another");
      if (what / 2 % 4 == 2) peer.set_id("server");
      if (what == 246) hello.set_protocol(99);
      if (what == 247) peer.mutable_server()->set_protocol(99);
      if (what == 254) peer.mutable_server()->set_max_outstanding_calls(0);
      if (what == 255) peer.set_incarnation(0);
    }
    ++dials_[one->id][static_cast<size_t>(kNames[who])];
    ConnectOptions options;
    options.hello = hello.SerializeAsString();
    WEFT_CHECK(MachineOf(who).Connect("sim:server", options, one).ok());
  }
  void Speak(Stranger* one) {
    const uint8_t how = input_.U8();
    one->is_silent = false;
    if (how % 8 < 2 && !one->asked.empty()) {
      const CallId id = one->asked.back();
      one->asked.pop_back();
      return one->Send(Reply(id, 0, 0, MakeData(1, 1).SerializeAsString()));
    }
    switch (how % 8) {
      case 2:
      case 3:
        return one->Send(Request({0, ++one->generation}, 0, MakeData(1, 1).SerializeAsString()));
      case 4:
        return one->Send(OfPeer(PeerFrameKind::kEnd));
      case 5: {
        const std::string hello = PeerCallingHello().SerializeAsString();
        Bytes begin = OfPeer(PeerFrameKind::kBegin);
        begin.resize(begin.size() + hello.size());
        std::memcpy(begin.data() + kCallHeaderBytes, hello.data(), hello.size());
        return one->Send(begin);
      }
      default:
        return one->Send(Cancel({how, 1}));
    }
  }

  void OpenChannel() {
    wish_ = &kWishes[input_.Below(kWishes.size())];
    const uint8_t what = input_.U8();
    ChannelOptions options;
    if (wish_->fits != kEverybody) {
      SecurityOptions& security = options.security.emplace();
      security.psk_name = wish_->psk_name;
      security.expected_uri = wish_->uri;
      security.server_name = wish_->host;
    }
    ++channels_;
    // (Where it dials with security, the simulated network refuses: it has no TLS.)
    absl::StatusOr<std::unique_ptr<Channel>> opened =
        own_->OpenPeer(kIds[what % kIds.size()], (what & 2) != 0 ? "sim:peer" : "", options);
    WEFT_CHECK(opened.ok());
    channel_ = *std::move(opened);
    WEFT_CHECK(
        absl::IsAlreadyExists(own_->OpenPeer(kIds[what % kIds.size()], "", options).status()));
  }
  // What it has sent has arrived then.
  void CloseChannel() {
    ++channels_;
    channel_.reset();
    WEFT_CHECK(std::all_of(calls_.begin(), calls_.end(), [](auto& c) { return c->ends == 1; }));
    calls_.clear();
    network_.RunFor(kNsPerMs);
  }
  void StartCall() {
    if (channel_ == nullptr || calls_.size() == kMostCalls) return;
    Call* const call = calls_.emplace_back(std::make_unique<Call>()).get();
    Probe::Stub(*channel_).Echo(MakeData(2, 10), &call->reply, {.timeout_us = 50'000},
                                [call](const absl::Status&) { WEFT_CHECK(++call->ends == 1); });
  }

  // Where a channel dials: a peer, or whoever is there instead. Or nobody any more.
  void Listen() {
    const uint8_t how = input_.U8();
    listener_.reset();
    if (how % 8 == 7) return;
    listening_ = input_.Below(kIdentities);
    rpc::ServerHello hello = PeerServingHello(kIds[how / 8 % kIds.size()]);
    if (how % 8 == 4) hello.clear_peer_id();
    if (how % 8 == 5) hello.clear_incarnation();
    ListenOptions options;
    options.hello = how % 8 == 6 ? "\xFF\xFF" : hello.SerializeAsString();
    listener_ = MachineOf(listening_).Listen("sim:peer", options, this).value();
  }
  absl::StatusOr<ConnectionHandler*> OnIncoming(Connection&) override {
    Stranger* const one = NewStranger(listening_);
    if (one == nullptr) return absl::UnavailableError("no more");
    return one;
  }

  static Bytes OfPeer(PeerFrameKind kind) {
    Bytes frame(kCallHeaderBytes);
    EncodePeerFrame(kind, frame.data());
    return frame;
  }

  // --- the end ----------------------------------------------------------------------------------

  void End(uint8_t how) {
    is_ending_ = true;
    if ((how & 1) != 0) {
      // With whatever is under way: a channel that dials dials no more.
      honest_channel_.reset();
      own_->Shutdown((how & 2) != 0 ? 1000 : 0);
      if (channel_ != nullptr) StartCall();
      network_.RunFor(kNsPerSec);
    }
    if (channel_ != nullptr) CloseChannel();
    listener_.reset();
    const uint32_t others = honest_channel_ != nullptr ? 1 : 0;
    WEFT_CHECK(RunUntil([&] {
      for (auto& one : strangers_) one->Close();
      return own_->stats().connections == others &&
             std::all_of(strangers_.begin(), strangers_.end(), [](auto& s) { return s->closed; });
    }));
    WEFT_CHECK(own_->stats().running == 0);
    if ((how & 1) == 0) ServeWhoIsRight();
    honest_channel_.reset();
    honest_.reset();
    own_.reset();
  }
  // Nobody keeps its place, or its id, from it.
  void ServeWhoIsRight() {
    auto right = MakeServer(kIds[0], "right");
    network_.SetIdentity("right", IdentityOf(4));
    auto channel = right->OpenPeer("server", "sim:server", {}).value();
    CallOn(*channel);
    channel.reset();
    right.reset();
  }

  FuzzInput input_;
  std::deque<std::unique_ptr<Stranger>> strangers_;
  SimNetwork network_{/*seed=*/1};
  ProbeService probe_;
  std::unique_ptr<Server> own_;
  std::unique_ptr<Server> honest_;
  std::unique_ptr<Channel> honest_channel_;
  std::unique_ptr<Channel> channel_;  // of `own_`, to one of the strangers
  const Wish* wish_ = nullptr;        // the channel's
  int channels_ = 0;                  // that have been opened or closed
  std::vector<std::unique_ptr<Call>> calls_;
  std::unique_ptr<Listener> listener_;
  size_t listening_ = 0;                                     // who does
  std::array<std::array<int, 10>, kIds.size()> dials_ = {};  // by id and names
  bool is_ending_ = false;
};

void Stranger::OnMessage(Connection&, ByteSpan message) {
  switch (CallFrameKindOf(message) & 0xFF) {
    case static_cast<uint16_t>(CallFrameKind::kRequest):
      world->OnRequest(*this);
      asked.push_back(CallIdOf(message));
      return;
    case static_cast<uint16_t>(PeerFrameKind::kEnd): {
      asked.clear();
      Bytes ended(kCallHeaderBytes);
      EncodePeerFrame(PeerFrameKind::kEnded, ended.data());
      return Send(ended);
    }
    default:
      return;
  }
}

void Stranger::OnClosed(Connection&, const absl::Status& why) {
  closed = true;
  connection = nullptr;
  world->OnGone(*this, why);
}

}  // namespace
}  // namespace weft::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  weft::test::World(weft::FuzzInput(data, size)).Run();
  return 0;
}
