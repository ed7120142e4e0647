// The two handshakes, for a fuzzer: frames in any order, and what links, proofs and clocks do in
// between.
//
// The first byte chooses the side, and whether this host has RDMA cards, one of which does not
// work. Each further one chooses an event; frames are mostly right, with a few fields of the
// fuzzer's, or any bytes at all. What a handshake sends is decoded by the other side's rules.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/testing/fuzz_input.h"
#include "transport/control/accept_handshake.h"
#include "transport/control/dial_handshake.h"
#include "transport/control/domain_set.h"
#include "transport/control/host_facts.h"
#include "transport/control/negotiate.h"
#include "transport/framing/connection_table.h"
#include "transport/framing/testing/fuzz_link.h"
#include "transport/poller.h"
#include "transport/shm/shm.h"
#include "transport/tcp/tcp.h"

namespace weft {
namespace {

using Decision = HandshakeStep::Decision;

constexpr int kMostEvents = 100;

class NoAcceptor final : public Acceptor {
  absl::StatusOr<ConnectionHandler*> OnIncoming(Connection&) override {
    return absl::InternalError("not asked here");
  }
};

// Addresses of this host's cards, and of a peer's.
std::vector<PathOffer> RdmaOffers() {
  constexpr struct {
    const char* device;
    LinkKind link;
    const char* host;
  } kPorts[] = {{"broken", LinkKind::kRoceV2, "10.0.3.1"},
                {"card", LinkKind::kRoceV2, "10.0.0.1"},
                {"card", LinkKind::kIwarp, "fd00::1"},
                {"card", LinkKind::kInfiniBand, "192.168.0.1"}};
  std::vector<PathOffer> offers;
  for (const auto& port : kPorts) {
    PathOffer offer;
    offer.device = port.device;
    offer.link = port.link;
    offer.host = port.host;
    offer.prefix_bits = 24;
    offers.push_back(std::move(offer));
  }
  return offers;
}

// What all inputs share: nothing of it changes but for domains that are opened once.
struct Host {
  Host() {
    SetLogSink([](const LogRecord&) {}, LogLevel::kInfo);  // lines about paths are made, too
    domains = std::make_unique<DomainSet>(Providers(), FramingOptions{}, poller.get(), &table);
    std::vector<PathProvider> all = Providers();
    for (const PathKind kind : {PathKind::kVerbs, PathKind::kOfiTcp}) {
      PathProvider& one = all.emplace_back();
      one.kind = kind;
      one.provider = "fuzz";
      one.fabric_version = [] { return 1u << 16; };
      one.open = [kind](const PathOffer& offer,
                        BatchSink*) -> absl::StatusOr<std::unique_ptr<LinkDomain>> {
        if (offer.device == "broken") return absl::UnavailableError("the port is down");
        auto domain = std::make_unique<FuzzDomain>();
        domain->set_kind(kind);
        return std::unique_ptr<LinkDomain>(std::move(domain));
      };
    }
    all[2].offers = [](const RdmaFilter&, uint64_t) { return RdmaOffers(); };
    with_cards =
        std::make_unique<DomainSet>(std::move(all), FramingOptions{}, poller.get(), &table);
  }
  static std::vector<PathProvider> Providers() {
    std::vector<PathProvider> providers(2);
    providers[0].kind = PathKind::kShm;
    providers[0].link = LinkKind::kUnknown;
    providers[0].provider = "fuzz";
    providers[0].open = [](const PathOffer&, BatchSink* sink) {
      ShmOptions options;
      options.sink = sink;
      return OpenShmDomain(options);
    };
    providers[1].kind = PathKind::kTcp;
    providers[1].link = LinkKind::kIp;
    providers[1].provider = "fuzz";
    providers[1].open = [](const PathOffer&, BatchSink* sink) {
      TcpOptions options;
      options.sink = sink;
      return OpenTcpDomain(options);
    };
    return providers;
  }
  std::unique_ptr<Poller> poller = Poller::Create().value();
  ConnectionTable table{4};
  std::unique_ptr<DomainSet> domains;
  std::unique_ptr<DomainSet> with_cards;
};

PathPolicy Paths(bool with_cards) {
  LinkOptions options;
  options.paths = {PathKind::kShm, PathKind::kTcp};
  if (with_cards) {
    options.paths = {PathKind::kVerbs, PathKind::kOfiTcp, PathKind::kShm, PathKind::kTcp};
  }
  return ReadPathPolicy(options).value();
}

class Session {
 public:
  Session(Host* host, FuzzInput input, bool with_cards)
      : host_(*host), input_(input), with_cards_(with_cards) {}

 protected:
  OwnSide own(bool secured) {
    OwnSide own = {
        with_cards_ ? host_.with_cards.get() : host_.domains.get(), &clock_, &neighbour_, {}};
    own.is_secured = secured;
    return own;
  }
  OwnConnection connection() { return {7, 77, 777, &facts_}; }

  // The step's promises. False: it was the last one.
  bool Take(const HandshakeStep& step) {
    WEFT_CHECK(step.send.size() <= kMaxCandidates + 2);
    for (const HandshakeStep::Message& message : step.send) {
      WEFT_CHECK(message.body.size() <= MaxBodyBytes(static_cast<uint16_t>(message.type)));
      WEFT_CHECK(IsRight(message.type, AsBytes(message.body)));
    }
    if (step.decision == Decision::kStartLink) {
      WEFT_CHECK(step.link.has_value() && step.link->domain != nullptr);
      WEFT_CHECK(step.link->candidate < facts_.candidates.size());
      WEFT_CHECK(step.link->agreement.batch_bytes <= step.link->domain->links().slot_bytes());
    }
    WEFT_CHECK((step.decision == Decision::kProve) == step.proof.has_value());
    if (step.decision != Decision::kEnd) return step.decision != Decision::kOpen;
    WEFT_CHECK(!step.why.ok());
    return false;
  }
  static bool IsRight(ControlType type, ByteSpan body) {
    switch (type) {
      case ControlType::kClientHello:
        return DecodeClientHello(body).ok();
      case ControlType::kServerHello:
        return DecodeServerHello(body).ok();
      case ControlType::kRefusal:
        return !DecodeRefusal(body).ok();
      case ControlType::kPathTry:
        return DecodePathTry(body).ok();
      case ControlType::kPathReady:
        return DecodePathReady(body).ok();
      case ControlType::kPathUp:
        return DecodePathUp(body).ok();
      case ControlType::kPathFailed:
        return DecodePathFailed(body).ok();
      case ControlType::kOpen:
        return DecodeOpen(body).ok();
      case ControlType::kBye:
        return DecodeBye(body).ok();
      default:
        return false;
    }
  }

  // Up to 7 letters: texts are checked by control_fuzz.
  std::string Word() {
    std::string word = input_.Text(input_.Below(8));
    for (char& letter : word) letter = static_cast<char>('a' + static_cast<uint8_t>(letter) % 26);
    return word;
  }
  // Of a peer with cards: some of the same networks, some not.
  std::vector<PathOffer> OffersOfCards() {
    std::vector<PathOffer> offers = RdmaOffers();
    for (PathOffer& offer : offers) {
      const uint8_t how = input_.U8();
      offer.kind = PathKind::kVerbs;
      offer.provider = "fuzz";
      if (how % 8 == 7) offer.unavailable = "no cable";
      if (how % 8 == 6) offer.host = "10.0.9.1";
      if (how % 8 == 5) offer.link = LinkKind::kRoceV2;
      if (how % 8 == 4) offer.fabric_version = 1u << 16;
    }
    PathOffer& plain = offers.emplace_back();
    const uint8_t how = input_.U8();
    plain.kind = how % 2 == 1 ? PathKind::kOfiTcp : PathKind::kTcp;
    plain.provider = "fuzz";
    plain.link = LinkKind::kIp;
    if (how >= 128) plain.unavailable = "not here";
    return offers;
  }
  std::vector<PathOffer> Offers() {
    if (with_cards_) return OffersOfCards();
    std::vector<PathOffer> offers = {{PathKind::kShm, "fuzz", 0, "", ""},
                                     {PathKind::kTcp, "fuzz", 0, "", ""}};
    offers[1].link = LinkKind::kIp;
    for (uint32_t more = input_.Below(8); more > 5; --more) {
      PathOffer offer;
      offer.kind = static_cast<PathKind>(1 + input_.Below(6));
      offer.provider = Word();
      offer.device = Word();
      offer.unavailable = Word();
      offer.link = static_cast<LinkKind>(input_.Below(8));
      offer.host = input_.Bit() ? "10.0.0.7" : Word();
      offer.prefix_bits = input_.Below(130);
      offers.push_back(std::move(offer));
    }
    return offers;
  }
  ControlLimits Limits() {
    ControlLimits limits;
    if (with_cards_) limits.require_encryption = input_.Bit();
    if (input_.Below(4) != 3) return limits;
    limits.window_slots = static_cast<uint32_t>(input_.Number());
    limits.max_message_bytes = input_.Number();
    limits.max_outstanding_operations = static_cast<uint32_t>(input_.Number());
    limits.peer_timeout_ns = input_.Number();
    return limits;
  }
  std::string RightClientHello() {
    ClientHello hello;
    hello.versions = input_.Below(8) < 7 ? kProtocolVersions : VersionRange{input_.U8(), 3};
    hello.features = OwnFeatures();
    hello.limits = Limits();
    hello.paths = Offers();
    hello.host = ReadHostFacts();
    if (input_.Below(4) == 3) hello.host.boot_id = "another";
    hello.hello = input_.Text(input_.Below(16));
    if (with_cards_) hello.allow_routed = input_.Bit();
    return Encode(hello);
  }
  std::string RightServerHello() {
    ServerHello hello;
    hello.version = input_.Below(8) < 7 ? 1 : input_.U8();
    if (input_.Bit()) hello.features = OwnFeatures();
    hello.limits = Limits();
    hello.host = ReadHostFacts();
    hello.paths = Offers();
    hello.candidates = {{0, 0, input_.Bit() ? "" : "no"}, {1, 1, ""}};
    if (with_cards_ && input_.Bit()) {  // as a server chooses that keeps the rules
      ClientHello client;
      client.paths = own(false).domains->Offers(Paths(true), clock_.NowNs(), "");
      client.allow_routed = true;
      hello.candidates = NegotiatePaths(client, hello);
    }
    for (uint32_t more = input_.Below(8); more > 5; --more) {
      hello.candidates.push_back(
          {static_cast<int>(input_.Below(6)) - 1, static_cast<int>(input_.Below(6)) - 1, Word()});
    }
    hello.local_socket = "weft-fuzz";
    hello.local_nonce = {1, 2};
    return Encode(hello);
  }
  std::string Body(ControlType type) {
    const uint32_t candidate = input_.Below(5);
    switch (type) {
      case ControlType::kClientHello:
        return RightClientHello();
      case ControlType::kServerHello:
        return RightServerHello();
      case ControlType::kRefusal:
        return EncodeRefusal(absl::Status(static_cast<absl::StatusCode>(1 + input_.Below(16)),
                                          input_.Text(input_.Below(20))));
      case ControlType::kPathTry:
        return Encode(PathTry{candidate, input_.Text(input_.Below(20)), 256u * input_.U8()});
      case ControlType::kPathReady:
        return Encode(
            PathReady{candidate, input_.Text(input_.Below(20)), {5, 6}, 256u * input_.U8()});
      case ControlType::kPathUp:
        return EncodePathUp(candidate);
      case ControlType::kPathFailed:
        return Encode(PathFailed{candidate, input_.Text(input_.Below(20))});
      case ControlType::kOpen:
        return EncodeOpen(candidate);
      case ControlType::kBye:
        return EncodeBye(input_.Text(input_.Below(20)));
      default:
        return "";
    }
  }
  template <class Handshake>
  HandshakeStep Hear(Handshake& handshake, ControlType type) {
    std::string body = Body(type);
    const uint8_t how = input_.U8();
    if (how == 255) body = input_.Text(input_.U8());
    if (how == 254 && !body.empty()) body[input_.U16() % body.size()] ^= char(input_.U8());
    ControlFrame frame;
    frame.type = type;
    frame.body = AsBytes(body);
    return handshake.OnFrame(frame);
  }
  template <class Handshake>
  HandshakeStep HearAny(Handshake& handshake) {
    constexpr ControlType kTypes[] = {
        ControlType::kClientHello, ControlType::kServerHello, ControlType::kRefusal,
        ControlType::kPathTry,     ControlType::kPathReady,   ControlType::kPathUp,
        ControlType::kPathFailed,  ControlType::kOpen,        ControlType::kBye,
        ControlType::kHeartbeat,   ControlType::kGrant};
    return Hear(handshake, kTypes[input_.Below(std::size(kTypes))]);
  }
  ControlFrameReader::Greeting AnyGreeting() {
    return static_cast<ControlFrameReader::Greeting>(1 + input_.Below(8));
  }

  Host& host_;
  FuzzInput input_;
  FakeClock clock_;
  Neighbour neighbour_;
  ConnectionFacts facts_;
  const bool with_cards_;
};

class Server final : Session {
 public:
  using Session::Session;

  void Run(uint8_t how) {
    NoAcceptor acceptor;
    ListenOptions options;
    options.max_connections = 2;
    ListenerState listener(&acceptor, options, Paths(with_cards_),
                           std::make_shared<SharedListener>(/*load=*/nullptr));
    if ((how & 2) != 0) listener.local_socket = "weft-fuzz";
    {
      AcceptHandshake accept(own((how & 4) != 0), &listener);
      Events(accept, listener);
    }
    WEFT_CHECK(listener.awaited.empty());
  }

 private:
  void Events(AcceptHandshake& accept, ListenerState& listener) {
    for (int i = 0; i < kMostEvents && input_.more(); ++i) {
      HandshakeStep step = Event(accept, listener);
      if (step.decision == Decision::kAdmit) {
        if (!Take(step)) return;
        if (input_.Below(8) == 7) {
          step = accept.Refuse(absl::UnavailableError(input_.Text(input_.U8())));
        } else {
          step = accept.Decide(connection()) ? accept.Offer() : accept.EndWithoutPath();
        }
      }
      if (!Take(step)) return;
      WEFT_CHECK(listener.awaited.size() <= 1);
      WEFT_CHECK(facts_.candidates.size() <= kMaxCandidates);
    }
  }
  // So many connections are another client's.
  void SetOthers(ListenerState& listener, uint32_t count) {
    constexpr uint64_t kOther = 1;
    for (; others_ > count; --others_) listener.EndConnection(kOther);
    while (others_ < count && listener.TakeConnection(kOther).ok()) ++others_;
  }
  HandshakeStep Event(AcceptHandshake& accept, ListenerState& listener) {
    switch (input_.Below(12)) {
      case 0:
        return accept.OnLinkUp();
      case 1:
        return accept.OnLinkDown(absl::UnavailableError("the cable is cut"));
      case 2:
        clock_.Advance(input_.Number() % (10 * kNsPerSec));
        return accept.OnAlarm();
      case 3:
        return accept.OnProtocolError(absl::DataLossError("as the reader says"), AnyGreeting());
      case 4:
        SetOthers(listener, input_.Below(3));
        return {};
      case 5: {
        if (listener.awaited.empty()) return {};  // as the listener looks it up
        Neighbour neighbour;
        neighbour.process.id = input_.Bit() ? ReadHostFacts().process_id : 1;
        const Nonce128 nonce = {listener.awaited.begin()->first, 0};
        WEFT_CHECK(!accept.TakeNeighbour(nonce, &neighbour).ok());  // half of the nonce is unknown
        return {};
      }
      case 6:
        return Hear(accept, ControlType::kClientHello);
      case 7:
        return Hear(accept, ControlType::kPathTry);
      case 8:
        return Hear(accept, ControlType::kPathUp);
      default:
        return HearAny(accept);
    }
  }

  uint32_t others_ = 0;  // connections
};

class Client final : Session {
 public:
  using Session::Session;

  void Run(uint8_t how) {
    DialTerms terms;
    terms.server = "server:1";
    terms.policy = Paths(with_cards_);
    terms.options.hello = input_.Text(input_.Below(20));
    terms.deadline_ns = clock_.NowNs() + terms.options.link.connect_timeout_ns;
    DialHandshake dial(own((how & 4) != 0), connection(), std::move(terms));
    if (!Take(dial.Begin("127.0.0.1:4711"))) return;
    for (int i = 0; i < kMostEvents && input_.more(); ++i) {
      if (!Take(Event(dial))) return;
      WEFT_CHECK(facts_.candidates.size() <= kMaxCandidates);
    }
  }

 private:
  HandshakeStep Event(DialHandshake& dial) {
    const bool proving = dial.state() == DialHandshake::State::kProving;
    switch (input_.Below(12)) {
      case 0:
        return dial.OnLinkUp();
      case 1:
        return dial.OnLinkDown(absl::UnavailableError("the cable is cut"));
      case 2:
        clock_.Advance(input_.Number() % (10 * kNsPerSec));
        return dial.OnAlarm();
      case 3:
        return dial.OnProtocolError(absl::DataLossError("as the reader says"), AnyGreeting());
      case 4:
        if (!proving) return {};
        return dial.OnProof(Neighbour());
      case 5:
        if (!proving) return {};
        return input_.Bit() ? dial.OnProofBusy()
                            : dial.OnProof(absl::PermissionDeniedError("another user"));
      case 6:
        return Hear(dial, ControlType::kServerHello);
      case 7:
        return Hear(dial, ControlType::kPathReady);
      case 8:
        return Hear(dial, ControlType::kOpen);
      default:
        return HearAny(dial);
    }
  }
};

}  // namespace
}  // namespace weft

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static weft::Host* const host = new weft::Host;
  weft::FuzzInput input(data, size);
  const uint8_t how = input.U8();
  const bool with_cards = how / 16 == 0xA;
  if ((how & 1) != 0) {
    weft::Server(host, input, with_cards).Run(how);
  } else {
    weft::Client(host, input, with_cards).Run(how);
  }
  return 0;
}
