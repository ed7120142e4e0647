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

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/clock.h"
#include "core/strings.h"
#include "core/testing/descriptors.h"
#include "core/testing/fuzz_input.h"
#include "transport/control/control_frame.h"
#include "transport/control/hello.h"
#include "transport/control/host_facts.h"
#include "transport/control/negotiate.h"
#include "transport/control/network_transport.h"
#include "transport/control/newcomers.h"
#include "transport/descriptor.h"
#include "transport/descriptor_message.h"
#include "transport/engine.h"
#include "transport/shm/shm.h"
#include "transport/sockets/address.h"
#include "transport/sockets/join.h"
#include "transport/sockets/socket.h"
#include "transport/tcp/tcp.h"
#include "transport/tcp/tcp_frame.h"

namespace weft {
namespace {

constexpr int kMostEvents = 80;
constexpr size_t kMostStrangers = 12;
// About as long as a turn takes: on a machine that is busy, loopback may take its time, and what is
// to happen within seconds of the clock's has as many of ours.
constexpr uint64_t kTurnNs = 10'000;
constexpr int kMostTurns = 400'000;  // four seconds of the clock's: a hang
// An engine that has work looks at its sockets as often (engine.cc): in each turn between events.
constexpr uint64_t kLookNs = 200'000;
constexpr char kListen[] = "127.0.0.1:0";
constexpr uint8_t kCrowdComes = 0xF0;  // an event that costs more than all others

std::string Preamble() { return std::string(AsStringView(EncodePreamble())); }

std::string Frame(ControlType type, const std::string& body, uint16_t flags = 0) {
  std::vector<std::byte> bytes;
  AppendControlFrame(type, flags, AsBytes(body), &bytes);
  return std::string(AsStringView(bytes));
}

// One end of a connection, and what it was promised.
class End final : public ConnectionHandler {
 public:
  bool opened() const { return opened_; }
  bool closed() const { return closed_; }
  size_t received() const { return received_; }
  uint32_t server_engine() const { return connection_->path().server_engine; }
  void Close() {
    if (connection_ != nullptr) connection_->Close("enough");
  }
  void Send() {
    if (connection_ == nullptr) return;
    const absl::StatusOr<std::byte*> space = connection_->Reserve(1);
    if (!space.ok()) return;
    **space = std::byte{1};
    connection_->Commit(1);
  }

 private:
  void OnOpen(Connection& connection) override {
    WEFT_CHECK(!opened_ && !closed_);
    opened_ = true;
    connection_ = &connection;
  }
  void OnMessage(Connection&, ByteSpan message) override {
    WEFT_CHECK(opened_ && !closed_ && message.size() <= kMaxMessageBytes);
    ++received_;
    if (received_ <= 100) Send();
  }
  void OnClosed(Connection&, const absl::Status& why) override {
    WEFT_CHECK(!closed_ && !why.ok());
    closed_ = true;
    connection_ = nullptr;
  }

  Connection* connection_ = nullptr;
  bool opened_ = false;
  bool closed_ = false;
  size_t received_ = 0;
};

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

// What all inputs share.
struct Host {
  Host() {
    for (auto& engine : engines) engine = MakeEngine();
    nobody = *ListenInternet(Resolve(*ParseServerAddress(kListen))->front());
    // Where a false server says that clients of this host prove it.
    proofs = Descriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    // Processes in sandboxes have the same number, and these names in common.
    proofs_name = StrCat("weft-fuzz-", std::random_device{}());
    const auto [address, bytes] = Abstract(proofs_name);
    WEFT_CHECK(::bind(proofs.get(), reinterpret_cast<const sockaddr*>(&address), bytes) == 0 &&
               ::listen(proofs.get(), 64) == 0);
    WEFT_CHECK(::mkdtemp(folder.data()) != nullptr);
  }
  std::unique_ptr<EngineCore> MakeEngine() {
    EngineOptions options;
    options.drive = EngineOptions::Drive::kCaller;
    options.clock = &clock;
    return *EngineCore::Create(options, [](const EngineContext& engine) {
      NetworkTransportOptions transport;
      transport.providers.resize(2);
      PathProvider& shm = transport.providers[0];
      shm.kind = PathKind::kShm;
      shm.link = LinkKind::kSharedMemory;
      shm.open = [](const PathOffer&, BatchSink* sink) {
        ShmOptions of_shm;
        of_shm.sink = sink;
        return OpenShmDomain(of_shm);
      };
      PathProvider& tcp = transport.providers[1];
      tcp.kind = PathKind::kTcp;
      tcp.link = LinkKind::kIp;
      tcp.open = [](const PathOffer&, BatchSink* sink) {
        TcpOptions of_tcp;
        of_tcp.sink = sink;
        return OpenTcpDomain(of_tcp);
      };
      return absl::StatusOr<std::unique_ptr<Transport>>(
          std::make_unique<NetworkTransport>(engine, std::move(transport)));
    });
  }
  static std::pair<sockaddr_un, socklen_t> Abstract(const std::string& name) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    const size_t bytes = std::min(name.size(), sizeof(address.sun_path) - 1);
    std::memcpy(&address.sun_path[1], name.data(), bytes);
    return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + bytes)};
  }
  void Turn(uint64_t ns) {
    for (auto& engine : engines) engine->Poll();
    clock.Advance(ns);
  }

  FakeClock clock;
  std::unique_ptr<EngineCore> engines[3];  // two servers', and the client's
  Descriptor nobody;                       // listens, and the fuzzer answers
  Descriptor proofs;
  std::string proofs_name;
  std::string folder = "/tmp/weft-arrivals-fuzz-XXXXXX";
};

// Raw bytes over a socket.
struct Stranger {
  Descriptor socket;
  std::string heard;
  bool said = false;  // its preamble

  void Say(const std::string& bytes) const {
    // The other side may have hung up already.
    static_cast<void>(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
  }
  void Listen() {
    char bytes[4096];
    ssize_t count = 0;
    while ((count = ::recv(socket.get(), bytes, sizeof(bytes), 0)) > 0) {
      heard.append(bytes, static_cast<size_t>(count));
    }
  }
  // The last frame of this type that has come; "": there is none.
  std::string Body(ControlType type) const {
    ControlFrameReader reader;
    reader.Append(AsBytes(heard));
    ControlFrame frame;
    std::string body;
    while (reader.Next(&frame) == ControlFrameReader::Result::kFrame) {
      if (frame.type == type) body = AsStringView(frame.body);
    }
    return body;
  }
};

class World {
 public:
  World(Host* host, FuzzInput input) : host_(*host), input_(input) {}

 protected:
  template <class Done>
  void RunUntil(Done done) {
    for (int turn = 0; !done(); ++turn) {
      WEFT_CHECK(turn < kMostTurns);
      host_.Turn(kTurnNs);
    }
  }
  void Turns(int count) {
    for (; count > 0; --count) host_.Turn(kLookNs);
  }
  static SecurityOptions Secret() {
    SecurityOptions options;
    options.psk_name = "fuzz";
    options.psk_secret = std::string(kMinPskBytes, 's');
    return options;
  }
  std::vector<PathOffer> Offers() {
    std::vector<PathOffer> offers = {{PathKind::kShm, "shm", 0, "", ""},
                                     {PathKind::kTcp, "tcp", 0, "", ""}};
    offers[1].link = LinkKind::kIp;
    return offers;
  }
  ControlLimits Limits() {
    ControlLimits limits;
    const uint8_t how = input_.U8();
    limits.heartbeats = how % 2 == 1;
    if (how % 4 == 3) limits.peer_timeout_ns = kMinPeerTimeoutNs;
    if (how >= 240) limits.window_slots = static_cast<uint32_t>(input_.Number());
    if (how >= 248) limits.max_message_bytes = input_.Number();
    return limits;
  }
  std::string FrameOf(ControlType type, const std::string& body) {
    const uint8_t how = input_.U8();
    if (how < 240) return Frame(type, body);
    if (how < 248) return Frame(type, input_.Text(input_.U8()));
    std::string bytes = Frame(type, body);
    bytes[input_.U8() % bytes.size()] ^= static_cast<char>(input_.U8());
    return bytes;
  }
  // What either side may say at any time.
  std::string AnyFrame() {
    const uint8_t how = input_.U8();
    switch (how % 8) {
      case 0:
        return FrameOf(ControlType::kPathFailed, Encode(PathFailed{how / 8 % 3u, "no"}));
      case 1:
        return FrameOf(ControlType::kBye, EncodeBye("as they like"));
      case 2: {
        std::string beats;
        for (int count = how / 8 % 32; count > 0; --count)
          beats += Frame(ControlType::kHeartbeat, "", kIgnorable);
        return beats;
      }
      case 3:
        return FrameOf(ControlType::kGrant, input_.Text(how / 8));
      case 4: {
        std::string unknown;
        for (int count = how; count > 0; --count)
          unknown += Frame(static_cast<ControlType>(31), "", kIgnorable);
        return unknown;
      }
      case 5:
        return input_.Text(how / 8);
      case 6:
        return FrameOf(ControlType::kOpen, EncodeOpen(how / 8 % 3u));
      default:
        return FrameOf(ControlType::kPathUp, EncodePathUp(how / 8 % 3u));
    }
  }
  // Of any kind: memory that is sealed as it has to be, and what is not.
  Descriptor AnyDescriptor() {
    const uint8_t how = input_.U8();
    if (how % 4 == 0) return Descriptor(::eventfd(0, EFD_CLOEXEC));
    Descriptor memory(::memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    constexpr off_t kBytes[] = {0, 4096, 264 << 10, 1 << 20, 2 << 20};
    WEFT_CHECK(::ftruncate(memory.get(), kBytes[how / 4 % 5]) == 0);
    if (how % 4 > 1) ::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    return memory;
  }
  void SendAtProof(int socket, const std::string& bytes, uint32_t count) {
    std::vector<Descriptor> owned;
    std::vector<int> numbers;
    for (; count > 0; --count) {
      owned.push_back(AnyDescriptor());
      numbers.push_back(owned.back().get());
    }
    SendDescriptors(socket, AsBytes(bytes), numbers).IgnoreError();
  }
  static std::string ProofMagic() { return std::string("WEFTSHM\4"); }
  static std::string Number64(uint64_t value) {
    std::byte bytes[8];
    StoreLe64(bytes, value);
    return std::string(AsStringView(ByteSpan(bytes)));
  }

  Host& host_;
  FuzzInput input_;
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
    if (how / 16 == kElsewhere) at = GoElsewhere(&options);
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
    LeaveElsewhere();
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

  // --- where it listens -------------------------------------------------------------------------

  // By the second byte. Fills in `options`.
  std::string GoElsewhere(ListenOptions* options) {
    const uint8_t where = input_.U8();
    path_ = host_.folder + "/server";
    const bool is_unix = where % 2 == 1;
    const bool is_given = where / 2 % 4 > 0;  // by another process
    is_managed_ = where / 2 % 4 == 3;         // which is the service manager
    BeRefused();
    if (is_given) {
      given_ = is_unix ? UnixSocket(path_) : TcpSocket();
      options->socket = given_.get();
    } else if (is_unix) {
      given_ = UnixSocket(path_);  // of a server that was killed: its file stays
      given_.Reset();
    }
    return is_managed_ ? "systemd:fuzz" : is_unix ? "unix:" + path_ : kListen;
  }
  void LeaveElsewhere() {
    if (path_.empty()) return;
    given_.Reset();
    // The manager keeps what it has made. Else it goes with who has listened last.
    WEFT_CHECK(is_managed_ || ::access(path_.c_str(), F_OK) != 0);
    ::unlink(path_.c_str());
  }
  static Descriptor TcpSocket() {
    return *ListenInternet(Resolve(*ParseServerAddress(kListen))->front());
  }
  // Listens. "": at a name that the kernel makes up, and that is no path.
  static Descriptor UnixSocket(const std::string& path) {
    Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    WEFT_CHECK(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address),
                      path.empty() ? sizeof(sa_family_t) : sizeof(address)) == 0 &&
               ::listen(socket.get(), kListenBacklog) == 0);
    return socket;
  }
  // Each time with words, and nothing is kept.
  void BeRefused() {
    const Descriptor tcp = TcpSocket();
    const Descriptor at_path = UnixSocket(path_);
    const Descriptor at_no_path = UnixSocket("");
    const Descriptor no_socket(::eventfd(0, EFD_CLOEXEC));
    const struct {
      std::string address;
      int socket;
    } cases[] = {
        {LocalAddress(tcp.get())->text(), -1},  // somebody listens there
        {"unix:" + path_, -1},
        {"unix:" + path_ + "/server", -1},  // there is no such folder
        {"nowhere", -1},
        {"systemd:fuzz", -1},  // the service manager has given none
        {"unix:" + path_, tcp.get()},
        {"127.0.0.1:1", tcp.get()},
        {kListen, at_path.get()},
        {"unix:" + path_ + "2", at_path.get()},
        {"unix:" + path_, at_no_path.get()},
        {kListen, no_socket.get()},
        {kListen, host_.proofs.get()},  // of another type
        {"systemd:fuzz", no_socket.get()},
        {"systemd:fuzz", at_no_path.get()},
    };
    const int before = CountDescriptors();
    ListenOptions options;
    for (const auto& test : cases) {
      options.socket = test.socket;
      ExpectRefused(test.address, options);
    }
    options.socket = tcp.get();
    options.security = Secret();
    options.security->psk_secret.clear();  // that is none
    ExpectRefused(kListen, options);
    // What peers have sent may be closed meanwhile, by a thread: never more than before.
    WEFT_CHECK(CountDescriptors() <= before);
    ::unlink(path_.c_str());
  }
  void ExpectRefused(const std::string& address, const ListenOptions& options) {
    const absl::Status status =
        host_.engines[0]->transport().Listen(address, options, &door_).status();
    WEFT_CHECK(!status.ok() && !status.message().empty());
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
  std::string path_;  // for a Unix socket; empty: it is not elsewhere
  Descriptor given_;  // another process's
  bool is_managed_ = false;
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
}  // namespace weft

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static weft::Host* const host = new weft::Host;
  weft::FuzzInput input(data, size);
  const uint8_t how = input.U8();
  if ((how & 1) == 0) {
    weft::Arrivals(host, input).Run(how);
  } else {
    weft::Dialed(host, input).Run(how);
  }
  return 0;
}
