// The bytes of a peer into a tcp link, for a fuzzer.
//
// The first byte says where the stream is cut; then come records of kRecordBytes, of which frames
// are made. What a peer would have copied from this side (the next number of a frame, keys, numbers
// of operations) is put in where a record asks for it; the rest is as the fuzzer has it.

#include <sys/socket.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/bytes.h"
#include "core/check.h"
#include "transport/descriptor.h"
#include "transport/link.h"
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
  Memory() : all(kMemoryBytes + 2 * kCanaries, kCanary) {}
  ~Memory() { CheckCanaries(); }
  void CheckCanaries() const {
    for (size_t i = 0; i < kCanaries; ++i) {
      WEFT_CHECK(all[i] == kCanary && all[all.size() - 1 - i] == kCanary);
    }
  }
  MutableByteSpan span() { return MutableByteSpan(all).subspan(kCanaries, kMemoryBytes); }
  std::vector<std::byte> all;
};

void Settle(LinkDomain& domain) {
  while (!domain.Arm()) domain.Poll(64);
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
  Host() {
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

void Run(const uint8_t* data, size_t size) {
  static Host* const host = new Host;
  LinkDomain* const domain = host->domain.get();
  const Region* const here = host->here.get();
  Memory granted;
  auto region = std::move(domain->Register(granted.span(), Access::kRemoteReadWrite)).value();
  int ends[2];
  WEFT_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
  const Descriptor socket(ends[0]);
  Handler handler;
  std::unique_ptr<Link> link = std::move(domain->Accept({}, &handler)).value();
  WEFT_CHECK(domain->TakeSocket(Descriptor(ends[1]), {}).ok());
  Settle(*domain);
  WEFT_CHECK(handler.ups == 1);

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
  for (size_t at = kWelcomeBytes; at < static_cast<size_t>(count);) {
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

}  // namespace
}  // namespace weft

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 0) weft::Run(data, size);
  return 0;
}
