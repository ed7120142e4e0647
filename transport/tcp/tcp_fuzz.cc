// The bytes of a peer into a tcp link, for a fuzzer.
//
// The first byte chooses who is at the other end:
//
//   a peer that has dialled, or that was dialled and answers as it likes: the next byte says where
//   its stream is cut, then come records of kRecordBytes, of which frames are made. What a peer
//   would have copied from this side (the next number of a frame, keys, numbers of operations) is
//   put in where a record asks for it; the rest is as the fuzzer has it.
//
//   a link of ours, by sockets that hold little, with TLS or without: each byte chooses what either
//   side does. (The same without sockets, and so a hundred times as fast: tcp_frames_fuzz.)

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/bytes.h"
#include "core/check.h"
#include "core/testing/fuzz_input.h"
#include "transport/descriptor.h"
#include "transport/link.h"
#include "transport/sockets/join.h"
#include "transport/sockets/socket.h"
#include "transport/sockets/unix_listener.h"
#include "transport/tcp/tcp.h"
#include "transport/tcp/tcp_frame.h"

namespace weft {
namespace {

constexpr size_t kRecordBytes = 8;
constexpr size_t kMemoryBytes = 4096;
constexpr size_t kCanaries = 64;
constexpr std::byte kCanary{0xCA};
constexpr uint32_t kSlotBytes = 1024;

struct Sink final : BatchSink {
  void OnReceived(ByteSpan batch, LinkHandler*) override {
    WEFT_CHECK(!batch.empty() && batch.size() <= kSlotBytes);
    for (const std::byte byte : batch) sum += static_cast<unsigned>(byte);  // all can be read
  }
  unsigned sum = 0;
};

struct Handler final : LinkHandler {
  void OnLinkUp() override { ++ups; }
  void OnLinkDown(const absl::Status& why) override {
    WEFT_CHECK(downs++ == 0);
    WEFT_CHECK(why.code() == absl::StatusCode::kDataLoss ||
               why.code() == absl::StatusCode::kUnavailable);
  }
  void OnSlotsFree() override {}
  int ups = 0;
  int downs = 0;
};

struct OnceOperation final : Operation {
  void OnComplete(const absl::Status&) override { WEFT_CHECK(completions++ == 0); }
  int completions = 0;
};

// Memory between canaries.
struct Memory {
  explicit Memory(size_t size = kMemoryBytes) : bytes(size), all(size + 2 * kCanaries, kCanary) {}
  ~Memory() { CheckCanaries(); }
  void CheckCanaries() const {
    for (size_t i = 0; i < kCanaries; ++i) {
      WEFT_CHECK(all[i] == kCanary && all[all.size() - 1 - i] == kCanary);
    }
  }
  MutableByteSpan span() { return MutableByteSpan(all).subspan(kCanaries, bytes); }
  const size_t bytes;
  std::vector<std::byte> all;
};

// It would sleep, and be woken by nothing that is there already.
bool IsQuiet(LinkDomain& domain) {
  if (!domain.Arm()) return false;
  pollfd asked = {domain.descriptor(), POLLIN, 0};
  return ::poll(&asked, 1, /*timeout=*/0) == 0;
}
void Settle(LinkDomain& domain) {
  while (!IsQuiet(domain)) domain.Poll(64);
}

class Peer {
 public:
  explicit Peer(std::vector<uint32_t> numbers, uint64_t key) : numbers_(numbers), key_(key) {}

  // The frame of one record: kind and what is wrong, flags, operation, key, offset, length.
  std::string Frame(const uint8_t* record) {
    const auto kind = static_cast<TcpFrameKind>(record[0] % 8);
    const uint32_t wrong = record[0] / 16 == 15 ? record[7] : 0;
    const uint32_t number = numbers_[record[2] % numbers_.size()] + record[2] / 64;
    const RemoteSpan at = {record[3] % 8 == 7 ? record[3] : key_, uint64_t{record[4]} * 17,
                           1 + uint64_t{record[5]} * record[6] % 2048};
    std::string payload;
    std::byte span[kTcpSpanBytes];
    EncodeTcpSpan(span, at);
    switch (kind) {
      case TcpFrameKind::kRead:
        for (int i = 0; i <= record[5] % 70; ++i) payload += AsStringView(span);
        break;
      case TcpFrameKind::kWrite:
        payload = std::string(AsStringView(span).substr(0, kTcpWriteHeadBytes));
        payload.append(at.length, 'w');
        break;
      case TcpFrameKind::kEnd:
        break;
      default:
        payload.assign(at.length, 'd');
    }
    std::string frame(kTcpHeaderBytes, '\0');
    EncodeTcpHeader(reinterpret_cast<std::byte*>(frame.data()), kind,
                    record[1] % 4 == 3 ? record[1] : record[1] % 2,
                    static_cast<uint32_t>(payload.size()) + wrong % 16, sequence_++ + (wrong >> 4),
                    kind == TcpFrameKind::kBatch ? 0 : number);
    return frame + payload + std::string(TcpPadding(payload.size()), '\0');
  }

 private:
  const std::vector<uint32_t> numbers_;
  const uint64_t key_;
  uint32_t sequence_ = 0;
};

// What stays from one input to the next: making it costs more than what is fuzzed.
struct Host {
  explicit Host(size_t memory_bytes = kMemoryBytes) : local(memory_bytes) {
    TcpOptions options;
    options.sink = &sink;
    options.slot_bytes = kSlotBytes;
    domain = std::move(OpenTcpDomain(options)).value();
    WEFT_CHECK(domain->AddSlots(8, 8).ok());
    here = std::move(domain->Register(local.span(), Access::kLocalOnly)).value();
  }
  Sink sink;
  Memory local;
  std::unique_ptr<LinkDomain> domain;
  std::unique_ptr<Region> here;
};

// Where links are dialled: a Unix socket in a folder of its own, whose path has to be short.
class Listening {
 public:
  Listening() {
    WEFT_CHECK(::mkdtemp(folder_.data()) != nullptr);
    listener_ = UnixListener::Open(folder_ + "/socket").value();
  }
  ~Listening() {
    listener_.reset();
    ::rmdir(folder_.c_str());
  }
  std::string address() const { return "unix:" + folder_ + "/socket"; }
  // The socket that has just dialled, behind its join.
  Descriptor Accept(LinkDomain& dialling) {
    Descriptor socket = AcceptClient(listener_->fd()).value();
    Settle(dialling);
    std::byte join[kJoinBytes];
    WEFT_CHECK(::recv(socket.get(), join, sizeof(join), 0) == sizeof(join) && CanBeJoin(join));
    return socket;
  }

 private:
  std::string folder_ = "/tmp/weft-fuzz-XXXXXX";
  std::unique_ptr<UnixListener> listener_;
};

Listening& ListeningSocket() {
  static Listening listening;  // its destructor removes the file
  return listening;
}

// What a peer answers to a join, whole or in two parts; most likely what is right.
void Welcome(LinkDomain& domain, int socket, FuzzInput& input) {
  std::byte welcome[kWelcomeBytes];
  StoreLe64(welcome, kWelcomeMagic);
  const uint8_t how = input.U8();
  if (how >= 240) welcome[how % kWelcomeBytes] ^= std::byte{input.U8()};
  const size_t cut = how % kWelcomeBytes;
  (void)::send(socket, welcome, cut, MSG_NOSIGNAL);
  Settle(domain);
  (void)::send(socket, welcome + cut, kWelcomeBytes - cut, MSG_NOSIGNAL);
  Settle(domain);
}

void Run(bool dials, const uint8_t* data, size_t size) {
  static Host* const host = new Host;
  LinkDomain* const domain = host->domain.get();
  const Region* const here = host->here.get();
  Memory granted;
  auto region = std::move(domain->Register(granted.span(), Access::kRemoteReadWrite)).value();
  Descriptor socket;
  Handler handler;
  std::unique_ptr<Link> link;
  if (dials) {
    LinkPeer peer;
    peer.address = ListeningSocket().address();
    link = std::move(domain->Connect(peer, &handler)).value();
    socket = ListeningSocket().Accept(*domain);
    FuzzInput input(data, size);
    Welcome(*domain, socket.get(), input);
    const ByteSpan rest = input.Rest();
    data = reinterpret_cast<const uint8_t*>(rest.data());
    size = rest.size();
    if (handler.ups == 0 || size == 0) return;
  } else {
    int ends[2];
    WEFT_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    socket.Reset(ends[0]);
    link = std::move(domain->Accept({}, &handler)).value();
    WEFT_CHECK(domain->TakeSocket(Descriptor(ends[1]), {}).ok());
    Settle(*domain);
    WEFT_CHECK(handler.ups == 1);
  }

  // Two reads and two writes are outstanding.
  OnceOperation operations[4];
  for (size_t i = 0; i < 4; ++i) {
    const Transfer transfers[2] = {{here, i * 1000, {1, 0, 300}},
                                   {here, i * 1000 + 300, {1, 0, 100 + i * 200}}};
    const auto kind = i % 2 == 0 ? TransferKind::kRead : TransferKind::kWrite;
    WEFT_CHECK(link->Post(kind, transfers, &operations[i]).ok());
  }
  Settle(*domain);
  std::string sent(64 << 10, '\0');
  const ssize_t count = ::recv(socket.get(), sent.data(), sent.size(), 0);
  WEFT_CHECK(count > 0);
  std::vector<uint32_t> numbers;
  for (size_t at = dials ? 0 : kWelcomeBytes; at < static_cast<size_t>(count);) {
    const TcpHeader header = DecodeTcpHeader(AsBytes(sent).data() + at);
    numbers.push_back(header.operation);
    at += kTcpHeaderBytes + header.length + TcpPadding(header.length);
  }

  Peer peer(numbers, region->remote().key);
  std::string stream;
  size_t reclaim_at = ~size_t{0};
  for (size_t at = 1; at + kRecordBytes <= size; at += kRecordBytes) {
    if (data[at] == 0xFF) reclaim_at = stream.size() + data[at + 1];
    stream += peer.Frame(data + at);
  }
  const size_t step = 1 + size_t{data[0]} * data[0];
  for (size_t at = 0; at < stream.size(); at += step) {
    if (at >= reclaim_at && region != nullptr) {
      WEFT_CHECK(link->Reclaim(std::move(region)));
      std::fill(granted.span().begin(), granted.span().end(), kCanary);
    }
    if (at == 0 && data[0] == 0xFF) (void)::send(socket.get(), "!", 1, MSG_OOB | MSG_NOSIGNAL);
    const std::string part = stream.substr(at, step);
    if (::send(socket.get(), part.data(), part.size(), MSG_NOSIGNAL) < 0) break;
    Settle(*domain);
    while (::recv(socket.get(), sent.data(), sent.size(), 0) > 0) Settle(*domain);
  }
  if (region == nullptr) {
    for (const std::byte byte : granted.span()) WEFT_CHECK(byte == kCanary);
  }
  link.reset();
  for (const OnceOperation& operation : operations) WEFT_CHECK(operation.completions == 1);
  WEFT_CHECK(domain->stats().links_open == 0 && domain->stats().send_slots_in_use == 0);
  host->local.CheckCanaries();
}

// --- two links of ours --------------------------------------------------------------------------

constexpr int kMostEvents = 60;
// More than the sockets hold, so that frames leave in parts.
constexpr size_t kLargeMemoryBytes = 300 << 10;
constexpr int kSocketBytes = 4096;  // the kernel holds about twice as much
constexpr std::byte kFirstOfSecret[] = {std::byte{5}};

class Pair {
 public:
  Pair(Host* a, Host* b, FuzzInput input) : hosts_{a, b}, input_(input) {}

  void Run(bool with_tls) {
    Connect(with_tls);
    for (int i = 0; i < kMostEvents && input_.more(); ++i) Event();
    for (const int side : {0, 1}) links_[side].reset();
    for (const int side : {0, 1}) {
      regions_[side].reset();
      WEFT_CHECK(hosts_[side]->domain->stats().links_open == 0);
      WEFT_CHECK(hosts_[side]->domain->stats().send_slots_in_use == 0);
      hosts_[side]->local.CheckCanaries();
      granted_[side]->CheckCanaries();
    }
    for (const auto& operation : operations_) WEFT_CHECK(operation->completions == 1);
  }

 private:
  LinkDomain& domain(int side) { return *hosts_[side]->domain; }

  void Connect(bool with_tls) {
    for (const int side : {0, 1}) Grant(side);
    LinkPeer peer;
    peer.nonce = 7;
    if (with_tls) peer.secret.emplace(kFirstOfSecret);
    links_[1] = std::move(domain(1).Accept(peer, &handlers_[1])).value();
    peer.address = ListeningSocket().address();
    links_[0] = std::move(domain(0).Connect(peer, &handlers_[0])).value();
    Descriptor socket = ListeningSocket().Accept(domain(0));
    setsockopt(socket.get(), SOL_SOCKET, SO_SNDBUF, &kSocketBytes, sizeof(kSocketBytes));
    WEFT_CHECK(domain(1).TakeSocket(std::move(socket), {7, 0}).ok());
    for (int i = 0; i < 10; ++i) Turn(i % 2);
    WEFT_CHECK(handlers_[0].ups == 1 && handlers_[1].ups == 1);
  }
  void Grant(int side) {
    // Both sides' memory stays from one input to the next; what is new is its key.
    static auto* const memory =
        new std::array<Memory, 2>{Memory(kLargeMemoryBytes), Memory(kLargeMemoryBytes)};
    granted_[side] = &(*memory)[static_cast<size_t>(side)];
    regions_[side] =
        std::move(domain(side).Register(granted_[side]->span(), Access::kRemoteReadWrite)).value();
    keys_[side] = regions_[side]->remote().key;
  }
  void Turn(int side) {
    for (int i = 0; i < 4 && !IsQuiet(domain(side)); ++i) domain(side).Poll(64);
  }

  void Event() {
    const uint8_t event = input_.U8();
    const int side = event & 1;
    Link* const link = links_[side].get();
    switch (event / 2 % 8) {
      case 0:
        if (link != nullptr) Send(side, *link);
        return;
      case 1:
      case 2:
        if (link != nullptr) Post(side, *link);
        return;
      case 3:
        return Rarely(side);
      default:
        return Turn(side);
    }
  }
  void Send(int side, Link& link) {
    const size_t bytes = 1 + input_.U8() * 4;
    for (int i = 0; i < 8 && link.HasRoom(); ++i) {
      const SendSlot slot = link.TakeSlot(static_cast<uint32_t>(bytes));
      if (slot.data == nullptr) return;
      std::fill_n(slot.data, bytes, std::byte{'b'});
      const absl::Status sent = link.Send(slot, static_cast<uint32_t>(bytes));
      if (!sent.ok()) return;
      if (i == 0 && input_.Bit()) return;  // one, or as many as there is room for
    }
    (void)side;
  }
  void Post(int side, Link& link) {
    const uint8_t how = input_.U8();
    const uint32_t count = 1 + input_.Below(4);
    const uint64_t length = 1 + (how < 128 ? how : how < 224 ? how * 64u : kLargeMemoryBytes / 4);
    Transfer transfers[4];
    for (uint32_t i = 0; i < count; ++i) {
      transfers[i] = {hosts_[side]->here.get(),
                      i * length,
                      {keys_[1 - side], i * length, std::max<uint64_t>(1, length - i)}};
    }
    constexpr TransferKind kKinds[] = {TransferKind::kRead, TransferKind::kRead,
                                       TransferKind::kWrite, TransferKind::kWriteUnordered};
    operations_.push_back(std::make_unique<OnceOperation>());
    const auto posted =
        link.Post(kKinds[how % 4], absl::MakeConstSpan(transfers, count), operations_.back().get());
    if (!posted.ok()) operations_.pop_back();
  }
  void Rarely(int side) {
    Link* const link = links_[side].get();
    switch (input_.Below(8)) {
      case 0:  // it goes, in the midst of what is under way; the peer hears of another
        if (link == nullptr || regions_[side] == nullptr) return;
        WEFT_CHECK(link->Reclaim(std::move(regions_[side])));
        Grant(side);
        return;
      case 1:
        keys_[side] += input_.U8();
        return;
      case 2:
        links_[side].reset();
        return;
      case 3:
        if (link != nullptr) link->Abandon();
        return;
      case 4: {  // as many as a link may have
        if (link == nullptr) return;
        const Transfer transfer = {hosts_[side]->here.get(), 0, {keys_[1 - side], 0, 8}};
        for (;;) {
          auto operation = std::make_unique<OnceOperation>();
          if (!link->Post(TransferKind::kRead, absl::MakeConstSpan(&transfer, 1), operation.get())
                   .ok()) {
            return;
          }
          operations_.push_back(std::move(operation));
        }
      }
      default:
        for (int i = 0; i < 8; ++i) Turn(i % 2);
    }
  }

  Host* const hosts_[2];
  FuzzInput input_;
  Memory* granted_[2] = {};
  std::unique_ptr<Region> regions_[2];
  uint64_t keys_[2] = {};
  Handler handlers_[2];
  std::vector<std::unique_ptr<OnceOperation>> operations_;
  std::unique_ptr<Link> links_[2];
};

void RunPair(const uint8_t* data, size_t size, bool with_tls) {
  static auto* const hosts =
      new std::array<Host, 2>{Host(kLargeMemoryBytes), Host(kLargeMemoryBytes)};
  Pair(&(*hosts)[0], &(*hosts)[1], FuzzInput(data, size)).Run(with_tls);
}

}  // namespace
}  // namespace weft

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  constexpr uint8_t kWithTls = 0xFF;
  switch (data[0] % 4) {
    case 0:
    case 1:
      weft::Run(/*dials=*/data[0] % 4 == 1, data + 1, size - 1);
      break;
    default:
      weft::RunPair(data + 1, size - 1, data[0] == kWithTls);
  }
  return 0;
}
