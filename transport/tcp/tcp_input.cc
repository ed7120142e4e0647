#include "transport/tcp/tcp_input.h"

#include <cstring>
#include <utility>

#include "core/cache_line.h"
#include "core/strings.h"

namespace weft {
namespace {

constexpr std::string_view kTakesNothing = "the peer does not take the answers of what it asks for";

}  // namespace

// --- memory -------------------------------------------------------------------------------------

TcpReceiveMemory::TcpReceiveMemory(uint32_t most_batch_bytes)
    : most_batch_bytes_(most_batch_bytes),
      buffer_memory_(Block::MustTake(kBufferBytes, kCacheLineBytes, MemoryKind::kSlots)),
      buffer_(buffer_memory_.data()) {}

Block TcpReceiveMemory::TakeCell() {
  if (free_cells_.empty()) {
    return Block::Take(std::max(most_batch_bytes_, kMostReadBytes), kCacheLineBytes,
                       MemoryKind::kSlots);
  }
  Block cell = std::move(free_cells_.back());
  free_cells_.pop_back();
  return cell;
}

void TcpReceiveMemory::GiveCell(Block cell) {
  if (free_cells_.size() < kKeptCells) free_cells_.push_back(std::move(cell));
}

// --- what the socket is read into ---------------------------------------------------------------

void TcpInput::Clear() {
  Unlink();
  body_ = Body::kNone;
  if (!cell_.empty()) memory_->GiveCell(std::move(cell_));
}

// Frames begin at multiples of 8 in the buffer, wherever the body before them ends.
TcpInput::Room TcpInput::MakeRoomInMidst() const {
  if (body_ == Body::kNone) return RoomBehind(/*place=*/{}, size_t{8} - padding_);
  MutableByteSpan place = Place();
  if (place.size() < std::min<uint64_t>(body_left_, kDirectBytes)) place = {};
  Room room = RoomBehind(place, (8 - (body_left_ - place.size() + padding_) % 8) % 8);
  room.is_region = body_ == Body::kWrite;
  return room;
}

// What had come of a head goes before what lies at `at`, where the room has left place for it.
TcpInput::Received TcpInput::WithHead(std::byte* at, size_t bytes) {
  const size_t before = std::exchange(head_bytes_, uint8_t{0});
  std::memcpy(at - before, head_, before);
  return {/*placed=*/0, {at - before, before + bytes}};
}

// --- frames -------------------------------------------------------------------------------------

TcpInput::Event TcpInput::Next(Received* received) {
  if (received->placed > 0) [[unlikely]]
    return Advance(std::exchange(received->placed, 0));
  return body_ == Body::kNone ? TakeFrame(&received->rest) : TakeBody(&received->rest);
}

TcpInput::Event TcpInput::TakeBody(ByteSpan* rest) {
  size_t taken = 0;
  if (body_ == Body::kNowhere) {
    taken = std::min<uint64_t>(rest->size(), body_left_);
  } else {
    const MutableByteSpan place = Place();
    taken = std::min(rest->size(), place.size());
    std::memcpy(place.data(), rest->data(), taken);
  }
  *rest = rest->subspan(taken);
  return Advance(taken);
}

// The next frame: whole, or its head, behind which its body follows.
TcpInput::Event TcpInput::TakeFrame(ByteSpan* rest) {
  if (padding_ > 0) [[unlikely]] {
    const size_t skipped = std::min<size_t>(rest->size(), padding_);
    padding_ = static_cast<uint8_t>(padding_ - skipped);
    *rest = rest->subspan(skipped);
    if (rest->empty()) return Event::kNone;
  }
  if (rest->size() < kTcpHeaderBytes) return Keep(rest);
  const std::byte* const at = rest->data();
  const TcpHeader header = DecodeTcpHeader(at);
  if (const char* const wrong = CheckTcpHeader(header, memory_->most_batch_bytes())) {
    // The first byte of TLS, where a frame of 22 bytes would be wrong.
    const bool is_tls = sequence_ == 0 && *at == std::byte{0x16};
    return BreakRules(header, is_tls ? "it begins TLS, but its connection has no security" : wrong);
  }
  if (header.sequence != sequence_) {
    return BreakRules(header, StrCat("number ", sequence_, " was to come"));
  }
  const std::byte* const payload = at + kTcpHeaderBytes;
  const bool is_piece = header.kind == TcpFrameKind::kData || header.kind == TcpFrameKind::kWrite;
  const size_t whole = kTcpHeaderBytes + header.length + TcpPadding(header.length);
  const size_t taken = header.kind == TcpFrameKind::kWrite ? kTcpHeaderBytes + kTcpWriteHeadBytes
                       : is_piece || rest->size() < whole  ? kTcpHeaderBytes
                                                           : whole;
  if (rest->size() < taken) return Keep(rest);
  ++sequence_;
  in_transfer_ = is_piece && (header.flags & kTcpLast) == 0;
  *rest = rest->subspan(taken);
  if (is_piece || taken != whole) return BeginBody(header, payload);
  if (header.kind == TcpFrameKind::kBatch) [[likely]] {
    batch_ = {payload, header.length};
    return Event::kBatch;
  }
  return header.kind == TcpFrameKind::kRead ? OnRead(header, payload) : OnEnd(header);
}

// The beginning of a head.
TcpInput::Event TcpInput::Keep(ByteSpan* head) {
  std::memcpy(head_, head->data(), head->size());
  head_bytes_ = static_cast<uint8_t>(head->size());
  *head = {};
  return Event::kNone;
}

TcpInput::Event TcpInput::OnRead(const TcpHeader& header, const std::byte* spans) {
  const auto ranges = static_cast<uint32_t>(header.length / kTcpSpanBytes);
  if (output_->ranges_owed() + ranges > kMaxRangesOfLink) {
    return BreakRules(header,
                      StrCat("it reads more than ", kMaxRangesOfLink, " ranges at one time"));
  }
  if (is_owed_too_much()) return BreakRules(header, kTakesNothing);
  output_->AddAnswer(header.operation, spans, ranges);
  return Event::kNone;
}

TcpInput::Event TcpInput::OnEnd(const TcpHeader& header) {
  TcpOperation* const operation = FindSent(header.operation);
  if (operation == nullptr) return BreakRules(header, "it ends no operation of this side");
  if (header.flags == kTcpRefused) {
    operation_ = operation;
    return Event::kRefused;
  }
  return FinishOperation(header, operation);
}

// The peer says that it has succeeded.
TcpInput::Event TcpInput::FinishOperation(const TcpHeader& header, TcpOperation* operation) {
  if (operation->is_read && operation->bytes_left > 0) {
    return BreakRules(header, StrCat(operation->bytes_left, " bytes of its data are missing"));
  }
  operation_ = operation;
  return Event::kDone;
}

// --- bodies -------------------------------------------------------------------------------------

TcpInput::Event TcpInput::BeginBody(const TcpHeader& header, const std::byte* payload) {
  header_ = header;
  body_left_ = header.length;
  padding_ = static_cast<uint8_t>(TcpPadding(header.length));
  if (header.kind == TcpFrameKind::kData) return BeginData();
  if (header.kind == TcpFrameKind::kWrite) return BeginWrite(payload);
  cell_ = memory_->TakeCell();
  if (cell_.empty()) {
    error_ = absl::ResourceExhaustedError(
        StrCat("no memory for a frame of ", header.length, " bytes that arrives in parts"));
    return Event::kBroken;
  }
  place_ = cell_.data();
  body_ = Body::kFrame;
  return Event::kNone;
}

TcpInput::Event TcpInput::BeginData() {
  TcpOperation* const operation = FindSent(header_.operation);
  if (operation == nullptr || !operation->is_read) {
    return BreakRules(header_, "it answers no read of this side");
  }
  if (header_.length > operation->bytes_left) {
    return BreakRules(header_,
                      StrCat("only ", operation->bytes_left, " bytes of it were still to come"));
  }
  read_ = operation;
  body_ = Body::kData;
  return Event::kNone;
}

TcpInput::Event TcpInput::BeginWrite(const std::byte* payload) {
  body_left_ -= kTcpWriteHeadBytes;
  if (!std::exchange(write_goes_on_, true)) {
    written_ = header_.operation;
    refused_ = false;
  } else if (written_ != header_.operation) {
    return BreakRules(header_, StrCat("the write ", written_, " has not ended"));
  }
  const RemoteSpan span = {LoadLe64(payload), LoadLe64(payload + 8), body_left_};
  const MutableByteSpan memory = regions_->Find(span, /*write=*/true);
  if (memory.empty()) refused_ = true;
  if (refused_) {
    body_ = Body::kNowhere;
    return Event::kNone;
  }
  body_ = Body::kWrite;
  place_ = memory.data();
  region_key_ = span.key;
  regions_->Note(this);
  return Event::kNone;
}

// Where the next bytes go, as far as they lie together.
MutableByteSpan TcpInput::Place() const {
  if (body_ == Body::kFrame || body_ == Body::kWrite) return {place_, body_left_};
  if (body_ != Body::kData) return {};
  const TcpOperation& record = *read_->current;
  const uint64_t room = record.remote.length - read_->moved;
  return {record.local + read_->moved, std::min(room, body_left_)};
}

TcpInput::Event TcpInput::Advance(size_t bytes) {
  body_left_ -= bytes;
  if (body_ == Body::kData) {
    read_->bytes_left -= bytes;
    read_->Move(bytes);
  } else if (body_ != Body::kNowhere) {
    place_ += bytes;
  }
  return body_left_ > 0 ? Event::kNone : FinishBody();
}

TcpInput::Event TcpInput::FinishBody() {
  const bool last = (header_.flags & kTcpLast) != 0;
  switch (std::exchange(body_, Body::kNone)) {
    case Body::kNone:
      break;
    case Body::kFrame: {
      if (header_.kind == TcpFrameKind::kBatch) {
        batch_ = {cell_.data(), header_.length};
        return Event::kBatchInCell;
      }
      const Event event = OnRead(header_, cell_.data());
      memory_->GiveCell(TakeCell());
      return event;
    }
    case Body::kData:
      if (last) return FinishOperation(header_, read_);
      break;
    case Body::kWrite:
    case Body::kNowhere:
      if (!last) break;
      write_goes_on_ = false;
      if (is_owed_too_much()) return BreakRules(header_, kTakesNothing);
      output_->AddEnd(written_, refused_);
      break;
  }
  return Event::kNone;
}

void TcpInput::OnRegionGone(uint64_t key) {
  if (body_ != Body::kWrite) return;
  if (region_key_ != key) return regions_->Note(this);
  body_ = Body::kNowhere;
  refused_ = true;
}

// --- peers that break the rules -----------------------------------------------------------------

// The operation of this link that has the number, and whose request the peer has; null: none.
TcpOperation* TcpInput::FindSent(uint32_t number) const {
  TcpOperation* const found = operations_->Find(number);
  return found != nullptr && found->output == output_ && output_->HasLeft(*found) ? found : nullptr;
}

TcpInput::Event TcpInput::BreakRules(const TcpHeader& header, std::string_view what) {
  error_ = absl::DataLossError(
      StrCat("the peer broke the rules of a tcp link: ", what, " (frame ", header.sequence,
             ", kind ", static_cast<int>(header.kind), ", length ", header.length, ", flags ",
             static_cast<int>(header.flags), ", operation ", header.operation, ")"));
  return Event::kBroken;
}

}  // namespace weft
