// Who comes to a listener, and whom a client meets when it dials, for a fuzzer: whole connections
// of the real network, with sockets, over loopback.
//
// The first byte chooses the side, and of a listener whether two engines share it, whether it wants
// TLS, how many it takes, whether it gives silent ones up, and whether it is where a second byte
// says: at a Unix socket, or at a socket of another process or of a service manager; then it is
// refused first wherever it cannot be, and keeps nothing of that. Then event after event: strangers
// come from several addresses, say a hello, half of one, or none of it; join links by the tokens
// that they were told, or by others; present nonces, with descriptors or without, at the local
// socket; leave; and time passes. In the end an honest client comes over shared memory or tcp, and
// must be served: whatever was there before. The clock is moved by hand.

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/strings.h"
#include "core/testing/fuzz_input.h"
#include "transport/control/control_frame.h"
#include "transport/control/hello.h"
#include "transport/control/host_facts.h"
#include "transport/control/negotiate.h"
#include "transport/control/newcomers.h"
#include "transport/control/testing/arrivals_world.h"
#include "transport/control/testing/listening_place.h"
#include "transport/descriptor.h"
#include "transport/sockets/address.h"
#include "transport/sockets/join.h"
#include "transport/sockets/socket.h"
#include "transport/tcp/tcp_frame.h"

namespace weft::test {
namespace {

constexpr int kMostEvents = 80;
constexpr size_t kMostStrangers = 12;
constexpr uint8_t kCrowdComes = 0xF0;  // an event that costs more than all others

class Door final : public Acceptor {
 public:
  std::vector<std::unique_ptr<End>> ends;
  bool is_shut = false;
  size_t CountOpen() const {
    return static_cast<size_t>(std::count_if(
        ends.begin(), ends.end(), [](const auto& end) { return end->opened() && !end->closed(); }));
  }

 private:
  absl::StatusOr<ConnectionHandler*> OnIncoming(Connection&) override {
    if (is_shut) return absl::UnavailableError("not now");
    ends.push_back(std::make_unique<End>());
    return ends.back().get();
  }
};

// Strangers at a listener.
class Arrivals final : World {
 public:
  using World::World;

  void Run(uint8_t how) {
    ListenOptions options;
    options.max_connections = (how & 8) != 0 ? 1 : 4;
    if (how / 16 == 0xA) options.link.peer_timeout_ns = kMinPeerTimeoutNs;
    if ((how & 4) != 0) options.security = security_ = Secret();
    std::string at = kListen;
    if (how / 16 == kElsewhere) {
      at = place_.emplace(host_, door_, input_.U8()).Go(&options);
    }
    listener_ = host_.engines[0]->transport().Listen(at, options, &door_).value();
    paused_ = options.socket >= 0;
    if ((how & 2) != 0) {
      joined_ =
          host_.engines[1]->transport().JoinListener(listener_->shared(), options, &door_).value();
    }
    address_ = *ParseNumericAddress(listener_->address());
    for (int i = 0; i < kMostEvents && input_.more(); ++i) {
      Event();
      WEFT_CHECK(door_.CountOpen() <= options.max_connections);
    }
    strangers_.clear();
    crowd_.clear();
    visitors_.clear();
    door_.is_shut = false;
    if (paused_) Resume();
    // Those that come to nothing are over when their time is.
    host_.clock.Advance(options.link.connect_timeout_ns);
    RunUntil([&] { return door_.CountOpen() == 0; });
    Honest();
    RunUntil([&] { return door_.CountOpen() == 0; });
    // Nobody keeps another process waiting that wants the address.
    host_.clock.Advance(options.link.connect_timeout_ns);
    RunUntil([&] {
      return !listener_->has_handshakes() && (joined_ == nullptr || !joined_->has_handshakes());
    });
    listener_.reset();
    joined_.reset();
    if (place_.has_value()) place_->Leave();
    host_.clock.Advance(options.link.connect_timeout_ns);
    RunUntil([&] {
      return std::all_of(door_.ends.begin(), door_.ends.end(),
                         [](const auto& end) { return end->closed(); });
    });
  }

 private:
  void Event() {
    const uint8_t event = input_.U8();
    switch (event % 16) {
      case 0:
      case 1:
        if (event == kCrowdComes) return Crowd();
        Come(event / 16);
        break;
      case 2:
        if (Stranger* const one = Any(event)) strangers_.erase(strangers_.begin() + Place(one));
        break;
      case 3:
        if (Stranger* const one = Any(event)) ::shutdown(one->socket.get(), SHUT_WR);
        break;
      case 4:
        host_.clock.Advance(uint64_t{event / 16u} * kNsPerSec / 2);
        break;
      case 5:
        Join(event);
        break;
      case 6:
        Prove(event);
        break;
      case 7:
        door_.is_shut = event >= 192;
        if (event % 3 == 0 && !door_.ends.empty()) door_.ends.back()->Close();
        if (event % 3 == 1 && !door_.ends.empty()) door_.ends.back()->Send();
        break;
      case 8:
        HandOver(event);
        break;
      default:
        if (Stranger* const one = Any(input_.U8())) Speak(one);
    }
    Turns(event / 64);
  }
  Stranger* Any(uint8_t which) {
    return strangers_.empty() ? nullptr : &strangers_[which / 16u % strangers_.size()];
  }
  ptrdiff_t Place(const Stranger* one) const { return one - strangers_.data(); }

  // From this address, where there are such: behind a Unix socket there are not. Invalid: it could
  // not.
  Descriptor Reach(int last_of_source) {
    Descriptor socket(::socket(address_.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const KernelAddress source = *ParseNumericAddress(StrCat("127.0.0.", last_of_source, ":0"));
    if (address_.family() == AF_INET && ::bind(socket.get(), source.get(), source.length) != 0) {
      return Descriptor();
    }
    if (::connect(socket.get(), address_.get(), address_.length) != 0 && errno != EINPROGRESS) {
      return Descriptor();
    }
    return socket;
  }
  void Come(int from) {
    if (strangers_.size() == kMostStrangers) return;
    Descriptor socket = Reach(1 + from % 3);
    if (socket.valid()) strangers_.push_back({std::move(socket), "", false});
  }
  // More silent ones than there are places for, of one host: they make room for others.
  void Crowd() {
    if (!crowd_.empty()) return;
    for (size_t i = 0; i < Newcomers::kMaxStrangers + 20; ++i) {
      Descriptor socket = Reach(4);
      if (socket.valid()) crowd_.push_back(std::move(socket));
    }
    Turns(12);
    host_.clock.Advance(Newcomers::kGraceNs);
    Turns(12);
  }
  void Speak(Stranger* one) {
    one->Listen();
    const uint8_t how = input_.U8();
    std::string bytes = one->said || how >= 250 ? "" : Preamble();
    one->said = true;
    switch (how % 8) {
      case 0:
      case 1:
        bytes += FrameOf(ControlType::kClientHello, Hello());
        break;
      case 2:
      case 3:
        bytes += FrameOf(ControlType::kPathTry,
                         Encode(PathTry{how / 16 % 2u, "x", how >= 240 ? 0u : 4096u}));
        break;
      case 4:
        bytes += FrameOf(ControlType::kPathUp, EncodePathUp(how / 16 % 2u));
        break;
      case 5:
        bytes = how < 128 ? "GET / HTTP/1.1\r\n\r\n" : std::string("\x16\x03\x01\x00\x05hello");
        break;
      default:
        bytes += AnyFrame();
    }
    if (how >= 224) bytes.resize(input_.U8() % (bytes.size() + 1));  // in part
    one->Say(bytes);
  }
  std::string Hello() {
    ClientHello hello;
    hello.versions = kProtocolVersions;
    hello.features = OwnFeatures();
    hello.limits = Limits();
    hello.paths = Offers();
    hello.host = ReadHostFacts();
    const uint8_t how = input_.U8();
    if (how >= 248) hello.hello.assign(70'000, 'h');  // takes more places than one
    if (how % 8 == 7) hello.host.boot_id = "another";
    if (how % 8 == 6) hello.versions = {2, how};
    if (how % 8 == 5) hello.wanted_engine = how;
    return Encode(hello);
  }
  // By a token that one of them was told, or nearly.
  void Join(uint8_t how) {
    Come(0);
    if (strangers_.empty()) return;
    Nonce128 token = {input_.Below(3) == 2 ? input_.U64() : 0, 7};
    for (Stranger& one : strangers_) {
      one.Listen();
      const auto ready = DecodePathReady(AsBytes(one.Body(ControlType::kPathReady)));
      if (ready.ok()) token = ready->nonce;
    }
    if (how >= 224) token.low ^= 1;
    if (how >= 240) token.high ^= uint64_t{1} << 63;
    std::string join(AsStringView(EncodeJoin(token)));
    if (how / 16 % 8 == 7) join += "more";
    if (how / 16 % 8 == 6) join.resize(input_.U8() % join.size());
    strangers_.back().said = true;
    strangers_.back().Say(join);
    if (how / 16 % 8 == 5) {  // and frames of the link behind it
      Turns(2);
      strangers_.back().Say(input_.Text(input_.U8()));
    }
  }
  // At the local socket that one of them was told.
  void Prove(uint8_t how) {
    ServerHello hello;
    for (Stranger& one : strangers_) {
      one.Listen();
      auto said = DecodeServerHello(AsBytes(one.Body(ControlType::kServerHello)));
      if (said.ok()) hello = *std::move(said);
    }
    if (hello.local_socket.empty()) return;
    const auto [address, bytes] = Host::Abstract(hello.local_socket);
    Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), bytes) != 0) return;
    Nonce128 nonce = hello.local_nonce;
    if (how >= 224) nonce.low ^= 1;
    std::string request = ProofMagic() + Number64(nonce.high) + Number64(nonce.low);
    if (how / 16 % 8 == 7) request[input_.U8() % request.size()] ^= 1;
    if (how / 16 % 8 == 6) request.resize(input_.U8() % 40, 'x');
    if (how / 16 % 8 != 5) SendAtProof(socket.get(), request, how / 16 % 4 == 3 ? 3 : 2);
    if (visitors_.size() < kMostStrangers) visitors_.push_back(std::move(socket));
    Turns(2);
  }
  // As before another process takes the address over, and takes it not.
  void HandOver(uint8_t how) {
    if (joined_ != nullptr) return;
    if (!paused_ && how < 128) return listener_->HoldClients();
    if (paused_) return Resume();
    kept_ = listener_->StopAccepting();
    paused_ = true;
  }
  void Resume() {
    paused_ = false;
    WEFT_CHECK(listener_->Resume().ok());
    for (Descriptor& client : kept_) listener_->TakeClient(std::move(client));
    kept_.clear();
  }

  void Honest() {
    WEFT_CHECK(listener_->Resume().ok());  // if clients are held
    End end;
    ConnectOptions options;
    options.security = security_;
    options.link.paths = {input_.Bit() ? PathKind::kShm : PathKind::kTcp};
    options.link.server_engine = 3;  // of two: 1
    WEFT_CHECK(host_.engines[2]->transport().Connect(listener_->address(), options, &end).ok());
    RunUntil([&] { return end.opened() || end.closed(); });
    WEFT_CHECK(end.opened() && end.server_engine() == (joined_ != nullptr ? 1 : 0));
    end.Send();
    RunUntil([&] { return end.received() > 0; });
    end.Close();
    RunUntil([&] { return end.closed(); });
  }

  // What the first byte's upper half says of a listener that is elsewhere.
  static constexpr int kElsewhere = 0xC;

  std::optional<SecurityOptions> security_;
  std::optional<ListeningPlace> place_;  // where it is elsewhere
  Door door_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<Listener> joined_;
  KernelAddress address_;
  std::vector<Stranger> strangers_;
  std::vector<Descriptor> crowd_;     // silent ones
  std::vector<Descriptor> visitors_;  // of the local socket
  bool paused_ = false;
  std::vector<Descriptor> kept_;
};

// A server that keeps no rule, and a client that dials it.
class Dialed final : World {
 public:
  using World::World;

  void Run(uint8_t how) {
    End end;
    ConnectOptions options;
    if ((how & 2) != 0) options.security = Secret();
    options.link.paths = {PathKind::kShm, PathKind::kTcp};
    options.hello = input_.Text(input_.Below(16));
    address_ = LocalAddress(host_.nobody.get())->text();
    WEFT_CHECK(host_.engines[2]->transport().Connect(address_, options, &end).ok());
    Turns(3);
    TakeSockets();
    for (int i = 0; i < kMostEvents && input_.more() && !end.closed(); ++i) Event(&end);
    sockets_.clear();
    visitor_.Reset();
    // The last words of this side wait for a peer that listens no more.
    RunUntil([&] {
      TakeSockets();
      sockets_.clear();
      return end.closed();
    });
    host_.clock.Advance(2 * kNsPerSec);
    Turns(3);
    TakeSockets();
    TakeVisitor();
  }

 private:
  void TakeSockets() {
    while (true) {
      Descriptor socket = *AcceptClient(host_.nobody.get());
      if (!socket.valid()) return;
      if (sockets_.size() < kMostStrangers) sockets_.push_back({std::move(socket), "", false});
    }
  }
  void TakeVisitor() {
    while (true) {
      Descriptor socket(
          ::accept4(host_.proofs.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!socket.valid()) return;
      visitor_ = std::move(socket);
    }
  }
  void Event(End* end) {
    TakeSockets();
    const uint8_t event = input_.U8();
    if (sockets_.empty()) {
      host_.clock.Advance(kNsPerSec);
      return Turns(1);
    }
    switch (event % 8) {
      case 0:
        host_.clock.Advance(uint64_t{event / 8u} * kNsPerSec / 8);
        break;
      case 1:
        Prove(event);
        break;
      case 2:  // a link's
        sockets_.back().Say(event < 192 ? Number64(kWelcomeMagic) : input_.Text(event / 8));
        break;
      case 3:
        if (event >= 128) end->Send();
        if (event >= 240) end->Close();
        if (event == 131) sockets_.pop_back();
        if (event == 139) host_.engines[2] = host_.MakeEngine();  // this side's ends
        break;
      default:
        Speak();
    }
    Turns(1 + event / 64);
  }
  // By what the client's address is in what is said: this process'.
  void Speak() {
    Stranger& control = sockets_.front();
    const uint8_t how = input_.U8();
    std::string bytes = control.said ? "" : Preamble();
    control.said = true;
    switch (how % 8) {
      case 0:
      case 1:
        bytes += FrameOf(ControlType::kServerHello, Hello());
        break;
      case 2:
      case 3:
        bytes += FrameOf(ControlType::kPathReady,
                         Encode(PathReady{how / 16 % 2u, address_, {5, 6}, 4096}));
        break;
      case 4:
        bytes += FrameOf(ControlType::kOpen, EncodeOpen(how / 16 % 2u));
        break;
      case 5:
        if (how < 64) bytes = "HTTP/1.1 400 Bad Request\r\n\r\n";
        if (how >= 64)
          bytes += FrameOf(ControlType::kRefusal,
                           EncodeRefusal(absl::Status(
                               static_cast<absl::StatusCode>(1 + how / 8 % 16), "not you")));
        break;
      default:
        bytes += AnyFrame();
    }
    control.Say(bytes);
  }
  std::string Hello() {
    ServerHello hello;
    const uint8_t how = input_.U8();
    hello.version = how < 240 ? 1 : how;
    hello.features = OwnFeatures();
    hello.limits = Limits();
    hello.host = ReadHostFacts();
    hello.paths = Offers();
    hello.candidates = {{0, 0, how % 4 == 3 ? "no" : ""}, {1, 1, ""}};
    if (how % 8 == 6) hello.host.process_id = 1;
    hello.local_socket = how % 16 == 5 ? "weft-nobody" : host_.proofs_name;
    hello.local_nonce = {1, 2};
    return Encode(hello);
  }
  // The answer to who proves where it is.
  void Prove(uint8_t how) {
    TakeVisitor();
    if (!visitor_.valid()) return;
    std::string answer = ProofMagic() + (how < 192 ? '\0' : '\1') + (how < 192 ? "" : "not you");
    if (how >= 224) answer = input_.Text(input_.U8());
    if (how / 8 % 4 < 3) {
      SendAtProof(visitor_.get(), answer, 3 - how / 8 % 2u);
    } else {
      visitor_.Reset();
    }
  }

  std::string address_;
  std::vector<Stranger> sockets_;  // the control connection's, then links'
  Descriptor visitor_;
};

}  // namespace
}  // namespace weft::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static weft::test::Host* const host = new weft::test::Host;
  weft::FuzzInput input(data, size);
  const uint8_t how = input.U8();
  if ((how & 1) == 0) {
    weft::test::Arrivals(host, input).Run(how);
  } else {
    weft::test::Dialed(host, input).Run(how);
  }
  return 0;
}
