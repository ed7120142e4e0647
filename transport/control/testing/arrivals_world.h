// What the target of arrivals (arrivals_fuzz.cc) is written with: engines of the real network on a
// clock that is moved by hand, ends of connections that know what they were promised, and what
// strangers say.
//
// Threads: the fuzzer's one. Lifetime: one Host for the process; the rest is an input's.
#pragma once

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/clock.h"
#include "core/strings.h"
#include "core/testing/fuzz_input.h"
#include "transport/control/control_frame.h"
#include "transport/control/hello.h"
#include "transport/control/network_transport.h"
#include "transport/control/testing/control_bytes.h"
#include "transport/descriptor.h"
#include "transport/descriptor_message.h"
#include "transport/engine.h"
#include "transport/shm/shm.h"
#include "transport/sockets/address.h"
#include "transport/sockets/socket.h"
#include "transport/tcp/tcp.h"

namespace weft::test {

// About as long as a turn takes: on a machine that is busy, loopback may take its time, and what is
// to happen within seconds of the clock's has as many of ours.
inline constexpr uint64_t kTurnNs = 10'000;
inline constexpr int kMostTurns = 400'000;  // four seconds of the clock's: a hang
// An engine that has work looks at its sockets as often (engine.cc): in each turn between events.
inline constexpr uint64_t kLookNs = 200'000;
inline constexpr char kListen[] = "127.0.0.1:0";

inline SecurityOptions Secret() {
  SecurityOptions options;
  options.psk_name = "fuzz";
  options.psk_secret = std::string(kMinPskBytes, 's');
  return options;
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

}  // namespace weft::test
