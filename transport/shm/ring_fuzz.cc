// A link's two rings against a peer that writes into both whatever it likes, for a fuzzer.
//
// One side is ours: the reader of one ring, the writer of the other, and the copies that a peer
// asks for and is asked for. Each byte chooses what this side does next, or which word the peer
// changes between two steps. (Changes in the middle of a step: pages_fuzz.)

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "core/check.h"
#include "core/testing/fuzz_input.h"
#include "transport/shm/asked_copies.h"
#include "transport/shm/ring.h"
#include "transport/shm/ring_steps.h"
#include "transport/shm/shm_regions.h"

namespace weft {
namespace {

constexpr size_t kRegionBytes = 2 * kCopyPieceBytes;
constexpr std::byte kCanary{0xCA};
constexpr int kMostEvents = 400;

// What both processes have mapped: for the peer all of it is open.
struct Shared {
  RingWords words_in;
  RingWords words_out;
  alignas(64) std::byte in[kRingBytes];
  alignas(64) std::byte out[kRingBytes];
};

// What stays, to be made only once.
struct Host {
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> table = std::vector<Line>(RegionTable::kBytes / 64);
  std::unique_ptr<SharedRegionPins> pins = std::make_unique<SharedRegionPins>();
  RegionTable regions{table[0].bytes, pins.get()};
  std::vector<std::byte> granted = std::vector<std::byte>(kRegionBytes + 128, kCanary);
  uint64_t key = 0;
  std::unique_ptr<Shared> shared = std::make_unique<Shared>();

  Host() {
    key = regions.NewKey().value();
    regions.Publish(key, MutableByteSpan(granted).subspan(64, kRegionBytes),
                    Access::kRemoteReadWrite);
  }
};

class Side {
 public:
  Side(Host* host, FuzzInput input) : host_(*host), shared_(*host->shared), input_(input) {
    std::memset(static_cast<void*>(&shared_), 0, sizeof(shared_));
    // A buffer of its own size: what is read beyond it is reported.
    buffer_ = std::make_unique<Buffer>();
    local_.resize(kRegionBytes);
  }
  ~Side() {
    for (size_t i = 0; i < 64; ++i) {
      WEFT_CHECK(host_.granted[i] == kCanary && host_.granted[64 + kRegionBytes + i] == kCanary);
    }
  }

  void Run() {
    for (int i = 0; i < kMostEvents && input_.more(); ++i) {
      if (!Event()) return;  // the link has ended
      WEFT_CHECK(writer_.consumed() <= writer_.produced());
      WEFT_CHECK(writer_.produced() - writer_.consumed() <= kRingBytes);
    }
    asker_.Clear([](ShmOperation*) {});
  }

 private:
  static constexpr uint32_t kMaxPayload = 4096 + kAskHeaderBytes;
  struct Buffer {
    alignas(8) std::byte bytes[RecordBytes(kMaxPayload)];
  };

  bool Event() {
    const uint8_t event = input_.U8();
    switch (event % 12) {
      case 0:
      case 1:
      case 2:
        return Read();
      case 3:
        return Write();
      case 4:
        return Claim();
      case 5:
        return Ask();
      case 6:
        return answerer_.Answer(writer_, reader_.acked()) != CopyAnswerer::Result::kBroken;
      case 7:
        Scribble();
        return true;
      case 8:
        shared_.words_out.consumed.store(writer_.consumed() + uint64_t{64} * input_.Number());
        return true;
      case 9:
        shared_.words_in.wants_room.store(input_.Bit());
        if (input_.Bit()) writer_.WantRoom();
        writer_.StopWanting();
        return true;
      default:
        PeerWrites();
        return true;
    }
  }

  bool Read() {
    const uint64_t header = reader_.Find();
    if (header == 0) {
      writer_.OnAllSeen();
      return true;
    }
    RingReader::Record record;
    if (!reader_.Take(header, buffer_->bytes, &record)) return false;
    if (record.kind == RecordKind::kClosed) return false;
    WEFT_CHECK(record.payload.data() >= buffer_->bytes && !record.payload.empty());
    WEFT_CHECK(record.payload.data() + record.payload.size() <=
               buffer_->bytes + sizeof(buffer_->bytes));
    writer_.OnAcked(record.acked);
    reader_.AckConsumed();
    if (record.kind == RecordKind::kAsk) return answerer_.OnAsk(record.payload);
    if (record.kind == RecordKind::kAnswer) {
      ShmOperation* ended = nullptr;
      if (!asker_.OnAnswer(record.payload, &ended)) return false;
      if (ended != nullptr) WEFT_CHECK(ended == &*operation_);
      if (ended != nullptr) operation_.reset();
    }
    return true;
  }
  bool Write() {
    const std::vector<std::byte> payload(1 + input_.U16() % 4096, std::byte{'w'});
    return writer_.TryWrite(RecordKind::kBatch, payload, reader_.acked()) !=
           RingWriter::Result::kBroken;
  }
  bool Claim() {
    if (writer_.has_claim()) {
      if (input_.Below(4) == 0) {
        writer_.Abandon();
      } else {
        writer_.Publish(RecordKind::kBatch, 1 + input_.U16() % room_, reader_.acked());
      }
      return true;
    }
    const uint32_t least = 1 + input_.U8();
    const uint32_t most = least + input_.U16() % (kMaxRecordPayload - least);
    RingWriter::Claim claim = writer_.TryClaim(least, most);
    if (claim.payload == nullptr) return !writer_.broken();
    Check(claim, least);
    room_ = claim.room;
    std::memset(claim.payload, 'c', claim.room);
    if (claim.room < most) {
      const RingWriter::Claim grown = writer_.TryGrow(least, most);
      if (grown.payload != nullptr) {
        Check(grown, most);
        room_ = grown.room;
        std::memset(grown.payload, 'g', grown.room);
      }
    }
    return true;
  }
  void Check(const RingWriter::Claim& claim, uint32_t least) {
    WEFT_CHECK(claim.room >= least && claim.payload >= shared_.out + kRecordHeaderBytes);
    WEFT_CHECK(claim.payload + claim.room <= shared_.out + kRingBytes);
  }
  bool Ask() {
    if (!operation_.has_value()) {
      operation_.emplace();
      operation_->local = local_.data();
      operation_->is_read = input_.Bit();
      operation_->remote_key = 7;
      operation_->remote_offset = input_.Number();
      operation_->bytes = 1 + input_.U16() % kRegionBytes;
    }
    if (operation_->all_asked) return true;
    const CopyAsker::Result result = asker_.Ask(writer_, reader_.acked(), &*operation_);
    if (result == CopyAsker::Result::kAllAsked && operation_->pieces_asked == 0) operation_.reset();
    return result != CopyAsker::Result::kBroken;
  }

  // --- the peer ---------------------------------------------------------------------------------

  // Any word of what is shared.
  void Scribble() {
    const size_t at = input_.U16() % (sizeof(Shared) / 8);
    const uint64_t word = input_.Bit() ? input_.Number() : Header(input_.U8());
    std::memcpy(reinterpret_cast<std::byte*>(&shared_) + 8 * at, &word, 8);
  }
  uint64_t Header(uint32_t length) {
    return uint64_t{length} | uint64_t{1 + input_.Below(6)} << 16 | uint64_t{number_} << 24 |
           uint64_t{input_.U8()} << 40;
  }
  // A record where this side looks for one: mostly a right one.
  void PeerWrites() {
    const uint8_t how = input_.U8();
    std::vector<std::byte> payload;
    RecordKind kind = RecordKind::kBatch;
    if (how % 4 == 1) {  // an ask: of a read, or a write with its bytes
      kind = RecordKind::kAsk;
      payload.resize(kAskHeaderBytes);
      const bool is_read = input_.Bit();
      const uint64_t bytes = input_.Below(8) < 7 ? input_.U8() * uint64_t{16} : input_.Number();
      StoreLe32(&payload[0], asks_++ + (how == 255));
      StoreLe32(&payload[4], (is_read ? 1u : 2u) + (how == 253));
      StoreLe64(&payload[8], input_.Below(8) < 7 ? host_.key : input_.Number());
      StoreLe64(&payload[16], input_.Number());
      StoreLe32(&payload[24], static_cast<uint32_t>(bytes));
      if (!is_read) payload.resize(kAskHeaderBytes + std::min<uint64_t>(bytes, 4096));
    } else if (how % 4 == 2) {
      kind = RecordKind::kAnswer;
      payload.resize(kAnswerHeaderBytes);
      StoreLe32(&payload[0], answers_++ + (how == 254));
      StoreLe32(&payload[4], 1 + input_.Below(8) / 6);
      const uint32_t bytes = input_.Bit() ? 4096 : input_.U16() % 4100;
      if (operation_.has_value() && operation_->is_read) payload.resize(payload.size() + bytes);
    } else if (how % 4 == 3 && how > 200) {
      kind = static_cast<RecordKind>(input_.U8());
    } else {
      payload.resize(1 + input_.U8());
    }
    const bool at_beginning = input_.Below(4) == 3;
    const auto place = at_beginning ? 0 : static_cast<uint32_t>(reader_.place() - shared_.in);
    const auto length = static_cast<uint32_t>(payload.size());
    if (RecordBytes(length) > kRingBytes - place) return;
    if (!payload.empty()) {
      std::memcpy(shared_.in + place + kRecordHeaderBytes, payload.data(), payload.size());
    }
    uint64_t header = uint64_t{length} | uint64_t{static_cast<uint8_t>(kind)} << 16 |
                      uint64_t{number_++} << 24 | uint64_t{input_.U8()} << 40;
    if (how == 252) header ^= input_.Number();
    std::memcpy(shared_.in + place, &header, 8);
    const uint32_t behind = place + RecordBytes(length);
    const uint64_t none = 0;
    if (behind < kRingBytes) std::memcpy(shared_.in + behind, &none, 8);
    Read();
  }

  Host& host_;
  Shared& shared_;
  FuzzInput input_;
  std::unique_ptr<Buffer> buffer_;
  std::vector<std::byte> local_;
  RingReader reader_{shared_.in, &shared_.words_in, kMaxPayload};
  RingWriter writer_{shared_.out, &shared_.words_out};
  CopyAsker asker_;
  CopyAnswerer answerer_{&host_.regions};
  std::optional<ShmOperation> operation_;
  uint32_t room_ = 1;
  uint16_t number_ = 0;  // as a peer counts that only writes what is read
  uint32_t asks_ = 0;
  uint32_t answers_ = 0;
};

}  // namespace
}  // namespace weft

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static weft::Host* const host = new weft::Host;
  weft::Side(host, weft::FuzzInput(data, size)).Run();
  return 0;
}
