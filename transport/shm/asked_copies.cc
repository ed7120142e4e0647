#include "transport/shm/asked_copies.h"

#include <algorithm>
#include <cstring>

#include "transport/shm/ring_steps.h"

namespace weft {
namespace {

constexpr uint32_t kAskRead = 1;
constexpr uint32_t kAskWrite = 2;

constexpr uint32_t kDone = 1;
constexpr uint32_t kRefused = 2;

struct AskHeader {
  uint32_t number;
  uint32_t what;
  uint64_t key;
  uint64_t offset;
  uint32_t bytes;
  uint32_t padding;
};
static_assert(sizeof(AskHeader) == kAskHeaderBytes);

struct AnswerHeader {
  uint32_t number;
  uint32_t result;
};
static_assert(sizeof(AnswerHeader) == kAnswerHeaderBytes);

// A record's payload while it is put together. (Both sides are one host: its own byte order.)
template <class Header>
class Payload {
 public:
  explicit Payload(const Header& header) { std::memcpy(bytes_, &header, sizeof(header)); }

  void Append(const std::byte* from, uint32_t bytes) {
    std::memcpy(bytes_ + size_, from, bytes);
    size_ += bytes;
  }
  ByteSpan bytes() const { return ByteSpan(bytes_, size_); }

 private:
  size_t size_ = sizeof(Header);
  std::byte bytes_[sizeof(Header) + kCopyPieceBytes];
};

}  // namespace

// --- the initiator -------------------------------------------------------------------------------

CopyAsker::Result CopyAsker::Ask(RingWriter& writer, uint32_t acked, ShmOperation* operation) {
  ShmOperation& op = *operation;
  while (op.bytes_done < op.bytes && op.status.ok()) {
    if (full()) return Result::kNoRoom;
    const auto bytes =
        static_cast<uint32_t>(std::min<uint64_t>(op.bytes - op.bytes_done, kCopyPieceBytes));
    std::byte* const local = op.local + op.bytes_done;
    Payload<AskHeader> ask({asked_, op.is_read ? kAskRead : kAskWrite, op.remote_key,
                            op.remote_offset + op.bytes_done, bytes, 0});
    if (!op.is_read) ask.Append(local, bytes);
    const RingWriter::Result written = writer.TryWrite(RecordKind::kAsk, ask.bytes(), acked);
    if (written == RingWriter::Result::kBroken) return Result::kBroken;
    if (written == RingWriter::Result::kFull) {
      writer.WantRoom();
      return Result::kNoRoom;
    }
    pieces_[asked_++ % kMaxAsked] = {operation, local, bytes};
    op.bytes_done += bytes;
    ++op.pieces_asked;
  }
  op.all_asked = true;
  return Result::kAllAsked;
}

bool CopyAsker::OnAnswer(ByteSpan answer, ShmOperation** ended) {
  *ended = nullptr;
  AnswerHeader header;
  if (answer.size() < sizeof(header) || asked_ == answered_) return false;
  std::memcpy(&header, answer.data(), sizeof(header));
  const ByteSpan bytes = answer.subspan(sizeof(header));
  if (header.number != answered_) return false;
  const Piece piece = pieces_[answered_ % kMaxAsked];
  ShmOperation& op = *piece.operation;
  if (header.result == kDone) {
    if (bytes.size() != (op.is_read ? piece.bytes : 0)) return false;
    if (op.is_read) std::memcpy(piece.local, bytes.data(), bytes.size());
  } else if (header.result == kRefused && bytes.empty()) {
    op.status = absl::PermissionDeniedError("the peer has no such region, range or right");
  } else {
    return false;
  }
  ++answered_;
  if (--op.pieces_asked == 0 && op.all_asked) *ended = &op;
  return true;
}

// --- the target ----------------------------------------------------------------------------------

bool CopyAnswerer::OnAsk(ByteSpan ask) {
  AskHeader header;
  if (ask.size() < sizeof(header) || asked_ - answered_ == kMaxAsked) return false;
  std::memcpy(&header, ask.data(), sizeof(header));
  const ByteSpan bytes = ask.subspan(sizeof(header));
  if (header.number != asked_ || header.bytes == 0 || header.bytes > kCopyPieceBytes) return false;
  Debt& debt = debts_[asked_ % kMaxAsked];
  if (header.what == kAskRead && bytes.empty()) {
    debt = {header.key, header.offset, header.bytes, /*granted=*/true};
  } else if (header.what == kAskWrite && bytes.size() == header.bytes) {
    std::byte* const to =
        regions_->Find(/*is_read=*/false, header.key, header.offset, header.bytes);
    if (to != nullptr) std::memcpy(to, bytes.data(), bytes.size());
    debt = {0, 0, 0, /*granted=*/to != nullptr};
  } else {
    return false;
  }
  ++asked_;
  return true;
}

// A region that was closed since the ask is not read any more.
CopyAnswerer::Result CopyAnswerer::Answer(RingWriter& writer, uint32_t acked) {
  for (; answered_ != asked_; ++answered_) {
    const Debt& debt = debts_[answered_ % kMaxAsked];
    const bool is_read = debt.bytes > 0;
    const std::byte* const from =
        is_read ? regions_->Find(/*is_read=*/true, debt.key, debt.offset, debt.bytes) : nullptr;
    const bool granted = is_read ? from != nullptr : debt.granted;
    Payload<AnswerHeader> answer({answered_, granted ? kDone : kRefused});
    if (from != nullptr) answer.Append(from, debt.bytes);
    switch (writer.TryWrite(RecordKind::kAnswer, answer.bytes(), acked)) {
      case RingWriter::Result::kWritten:
        break;
      case RingWriter::Result::kFull:
        writer.WantRoom();
        return Result::kNoRoom;
      case RingWriter::Result::kBroken:
        return Result::kBroken;
    }
  }
  return Result::kAllAnswered;
}

}  // namespace weft
