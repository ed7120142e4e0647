#include "transport/framing/sealed_transfers.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/process_wide.h"

namespace weft {
namespace {

constexpr size_t kReadBytes = 32;    // id, key, offset, length
constexpr size_t kWriteFields = 32;  // id, key, offset, bytes that are left behind this piece
constexpr size_t kDataFields = 8;    // id
constexpr size_t kEndBytes = 16;     // id, status, reserved

enum EndStatus : uint32_t { kDone = 0, kNotGranted = 1 };

const absl::Status& NotGrantedError() {
  static constinit ProcessWide<absl::Status> status;
  return status.Get(
      [] { return absl::PermissionDeniedError("the peer has no such region, range or right"); });
}

bool IsRange(const RemoteSpan& span) {
  return span.length > 0 && span.offset + span.length > span.offset;
}

}  // namespace

// --- this side's --------------------------------------------------------------------------------

void SealedTransfers::Post(TransferKind kind, absl::Span<const Transfer> transfers, Operation* op) {
  const auto batch = std::make_shared<Batch>(Batch{op, transfers.size(), absl::OkStatus()});
  for (const Transfer& transfer : transfers) {
    waiting_.push_back({kind == TransferKind::kRead,
                        transfer.local->memory().data() + transfer.local_offset, transfer.remote,
                        batch});
  }
  Advance();
}

void SealedTransfers::SendBehind(ByteSpan message) {
  message_.assign(message.begin(), message.end());
  Advance();
  sender_.SendNow();
}

// A reservation keeps the batch: then the turn's end comes back.
void SealedTransfers::Advance() {
  if (!sender_.reserved()) AppendDue();
  if (has_due()) sender_.SetDue();
  sender_.FlushAtTurnsEnd();
}

bool SealedTransfers::has_due() const {
  if (!ended_.empty() || !asked_.empty() || writes_) return true;
  return waiting_.empty() ? message_waits() : begun_ - oldest_ < kMostSealedTransfers;
}

// A frame of both ways in turn, so that neither keeps the other waiting.
void SealedTransfers::AppendDue() {
  while (AppendEnd()) {
  }
  for (bool appended = true; appended;) {
    appended = AppendAnswer();
    appended = AppendOwn() || appended;
  }
}

bool SealedTransfers::MayAppend(size_t payload_bytes) {
  const size_t bytes = FrameBytes(payload_bytes);
  if (sender_.room().Fits(bytes)) return true;
  const CreditWindow& window = sender_.window();
  return window.credits() * 2 > window.send_window() && sender_.MakeRoom(bytes);
}

bool SealedTransfers::AppendOwn() {
  if (writes_) return AppendPiece(ring_[(begun_ - 1) % kMostSealedTransfers]);
  if (!waiting_.empty()) return begun_ - oldest_ < kMostSealedTransfers && Begin();
  return message_waits() && AppendMessageBehind();
}

bool SealedTransfers::Begin() {
  Outgoing& next = waiting_.front();
  if (next.reads) {
    if (!MayAppend(kReadBytes)) return false;
    std::byte* const to = sender_.Append(kReadBytes, FrameKind::kSealedRead);
    StoreLe64(to, begun_);
    StoreLe64(to + 8, next.remote.key);
    StoreLe64(to + 16, next.remote.offset);
    StoreLe64(to + 24, next.remote.length);
  }
  writes_ = !next.reads;
  ring_[begun_++ % kMostSealedTransfers] = std::move(next);
  waiting_.pop_front();
  return true;
}

bool SealedTransfers::AppendPiece(Outgoing& writing) {
  const RemoteSpan& remote = writing.remote;
  const size_t bytes = std::min<uint64_t>(remote.length - writing.moved, MostData(kWriteFields));
  if (!MayAppend(kWriteFields + bytes)) return false;
  std::byte* const to = sender_.Append(kWriteFields + bytes, FrameKind::kSealedWrite);
  StoreLe64(to, begun_ - 1);
  StoreLe64(to + 8, remote.key);
  StoreLe64(to + 16, remote.offset + writing.moved);
  StoreLe64(to + 24, remote.length - writing.moved - bytes);
  std::memcpy(to + kWriteFields, writing.local + writing.moved, bytes);
  ClearPadding(to, kWriteFields + bytes);
  writing.moved += bytes;
  writes_ = writing.moved != remote.length;
  return true;
}

bool SealedTransfers::AppendMessageBehind() {
  if (!MayAppend(message_.size())) return false;
  sender_.AppendMessage(message_);
  sender_.room().Commit();
  message_.clear();
  return true;
}

SealedTransfers::Outgoing* SealedTransfers::Find(uint64_t id) {
  if (id < oldest_ || id >= begun_) return nullptr;
  Outgoing& outgoing = ring_[id % kMostSealedTransfers];
  return outgoing.batch == nullptr ? nullptr : &outgoing;
}

bool SealedTransfers::OnData(ByteSpan payload) {
  if (payload.size() <= kDataFields) return false;
  Outgoing* const outgoing = Find(LoadLe64(payload.data()));
  const ByteSpan data = payload.subspan(kDataFields);
  if (outgoing == nullptr || !outgoing->reads) return false;
  if (data.size() > outgoing->remote.length - outgoing->moved) return false;
  std::memcpy(outgoing->local + outgoing->moved, data.data(), data.size());
  outgoing->moved += data.size();
  if (outgoing->moved == outgoing->remote.length) Complete(*outgoing, absl::OkStatus());
  return true;
}

bool SealedTransfers::OnEnd(ByteSpan payload) {
  if (payload.size() != kEndBytes || LoadLe32(payload.data() + 12) != 0) return false;
  const uint64_t id = LoadLe64(payload.data());
  const uint32_t status = LoadLe32(payload.data() + 8);
  Outgoing* const outgoing = Find(id);
  if (outgoing == nullptr || status > kNotGranted) return false;
  // Nobody has seen all of a write that is not sent whole; a read that has succeeded ends by data.
  if (outgoing->reads ? status == kDone : writes_ && id == begun_ - 1) return false;
  Complete(*outgoing, status == kDone ? absl::OkStatus() : NotGrantedError());
  return true;
}

// Its place is free before its user is told, who may post again.
void SealedTransfers::Complete(Outgoing& outgoing, const absl::Status& status) {
  const std::shared_ptr<Batch> batch = std::exchange(outgoing.batch, nullptr);
  while (oldest_ != begun_ && ring_[oldest_ % kMostSealedTransfers].batch == nullptr) ++oldest_;
  if (has_due()) {
    sender_.SetDue();
    sender_.FlushAtTurnsEnd();
  }
  Settle(batch, status);
}

void SealedTransfers::Settle(const std::shared_ptr<Batch>& batch, const absl::Status& status) {
  if (batch->status.ok()) batch->status = status;
  if (--batch->left == 0) batch->op->OnComplete(batch->status);
}

void SealedTransfers::End() {
  const absl::Status why = absl::CancelledError("the link is closed");
  writes_ = false;
  message_.clear();
  std::deque<Outgoing> ended = std::exchange(waiting_, {});
  while (begun_ != oldest_) ended.push_front(std::move(ring_[--begun_ % kMostSealedTransfers]));
  for (const Outgoing& outgoing : ended) {
    if (outgoing.batch != nullptr) Settle(outgoing.batch, why);
  }
}

// --- the peer's ---------------------------------------------------------------------------------

bool SealedTransfers::OnFrame(const Frame& frame) {
  switch (frame.kind) {
    case FrameKind::kSealedRead:
      return OnRead(frame.payload);
    case FrameKind::kSealedWrite:
      return OnWrite(frame.payload);
    case FrameKind::kSealedData:
      return OnData(frame.payload);
    case FrameKind::kSealedEnd:
      return OnEnd(frame.payload);
    default:
      return false;
  }
}

bool SealedTransfers::MayBegin(uint64_t id) const {
  return id == peer_begun_ && peer_write_rest_.length == 0 &&
         asked_.size() + ended_.size() < kMostSealedTransfers;
}

bool SealedTransfers::OnRead(ByteSpan payload) {
  if (payload.size() != kReadBytes) return false;
  const uint64_t id = LoadLe64(payload.data());
  const RemoteSpan span = {LoadLe64(payload.data() + 8), LoadLe64(payload.data() + 16),
                           LoadLe64(payload.data() + 24)};
  if (!MayBegin(id) || !IsRange(span)) return false;
  ++peer_begun_;
  asked_.push_back({id, span});
  sender_.SetDue();
  return true;
}

bool SealedTransfers::OnWrite(ByteSpan payload) {
  if (payload.size() <= kWriteFields) return false;
  const uint64_t id = LoadLe64(payload.data());
  const ByteSpan data = payload.subspan(kWriteFields);
  const RemoteSpan span = {LoadLe64(payload.data() + 8), LoadLe64(payload.data() + 16),
                           data.size()};
  const uint64_t left = LoadLe64(payload.data() + 24);
  const RemoteSpan& rest = peer_write_rest_;
  if (rest.length > 0) {
    if (id != peer_begun_ - 1 || span.key != rest.key || span.offset != rest.offset) return false;
    if (data.size() > rest.length || left != rest.length - data.size()) return false;
  } else {
    if (!MayBegin(id)) return false;
    ++peer_begun_;
    peer_write_refused_ = false;
  }
  if (!peer_write_refused_) {
    std::byte* const to = regions_.Find(span, /*write=*/true);
    if (to != nullptr) std::memcpy(to, data.data(), data.size());
    peer_write_refused_ = to == nullptr;
  }
  peer_write_rest_ = {span.key, span.offset + data.size(), left};
  if (left == 0) {
    ended_.push_back({id, peer_write_refused_ ? kNotGranted : kDone});
    sender_.SetDue();
  }
  return true;
}

bool SealedTransfers::AppendEnd() {
  if (ended_.empty() || !MayAppend(kEndBytes)) return false;
  std::byte* const to = sender_.Append(kEndBytes, FrameKind::kSealedEnd);
  StoreLe64(to, ended_.front().id);
  StoreLe32(to + 8, ended_.front().status);
  StoreLe32(to + 12, 0);
  ended_.pop_front();
  return true;
}

// The region is looked up for each piece: it may have gone meanwhile.
bool SealedTransfers::AppendAnswer() {
  if (asked_.empty()) return false;
  Asked& asked = asked_.front();
  const std::byte* const from = regions_.Find(asked.span, /*write=*/false);
  if (from == nullptr) {
    ended_.push_back({asked.id, kNotGranted});
    asked_.pop_front();
    return AppendEnd();
  }
  const size_t bytes = std::min<uint64_t>(asked.span.length, MostData(kDataFields));
  if (!MayAppend(kDataFields + bytes)) return false;
  std::byte* const to = sender_.Append(kDataFields + bytes, FrameKind::kSealedData);
  StoreLe64(to, asked.id);
  std::memcpy(to + kDataFields, from, bytes);
  ClearPadding(to, kDataFields + bytes);
  asked.span = asked.span.Slice(bytes, asked.span.length - bytes);
  if (asked.span.length == 0) asked_.pop_front();
  return true;
}

}  // namespace weft
