#include "transport/tcp/tcp_output.h"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "transport/sockets/send.h"

namespace weft {
namespace {

// What leaves in the place of memory that is gone.
constexpr std::byte kZeros[kPieceBytes] = {};

// Memory of its small frames that a link keeps when they have left, in bytes: of 400 requests to
// read, or a thousand ends. A thousand links that were all busy so keep 16 MiB. What needs more
// copies as many bytes into it, beside which to allocate it costs little.
constexpr size_t kKeptSmallBytes = 16 << 10;

}  // namespace

// --- answers ------------------------------------------------------------------------------------

TcpAnswers::~TcpAnswers() {
  while (free_ != nullptr) delete std::exchange(free_, free_->next);
}

TcpAnswer* TcpAnswers::Take() {
  if (free_ == nullptr) return new TcpAnswer;
  TcpAnswer* const answer = std::exchange(free_, free_->next);
  answer->next = nullptr;
  return answer;
}

void TcpAnswers::Give(TcpAnswer* answer) { answer->next = std::exchange(free_, answer); }

void TcpOutput::Forget(TcpAnswer* answer) {
  ranges_owed_ -= answer->records;
  decltype(answer_list_)::Remove(answer);
  while (answer != nullptr) answers_->Give(std::exchange(answer, answer->next));
}

// --- what is to leave ----------------------------------------------------------------------------

void TcpOutput::Clear() {
  Unlink();
  while (TcpLineItem* const item = line_.PopFront()) {
    if (item->is_batch) slots_->Give(static_cast<TcpSlot*>(item));
  }
  unordered_.Clear();
  writing_ = nullptr;
  while (TcpAnswer* const answer = answer_list_.Front()) Forget(answer);
  for (uint32_t i = 0; i < count_; ++i) {
    if (piece(i).slot != nullptr) slots_->Give(piece(i).slot);
  }
  first_ = count_ = writes_ahead_ = ordered_ahead_ = writes_left_ = 0;
  small_.clear();
  small_begin_ = 0;
  batches_ = ranges_owed_ = 0;
}

std::byte* TcpOutput::Append(size_t bytes) {
  // What has left is dropped also where something is left at all times.
  if (small_begin_ >= kKeptSmallBytes && small_begin_ >= small_bytes()) {
    small_.erase(small_.begin(), small_.begin() + static_cast<ptrdiff_t>(small_begin_));
    small_begin_ = 0;
  }
  const size_t at = small_.size();
  small_.resize(at + bytes);
  return small_.data() + at;
}

void TcpOutput::AppendHeader(TcpFrameKind kind, uint8_t flags, uint32_t length,
                             uint32_t operation) {
  EncodeTcpHeader(Append(kTcpHeaderBytes), kind, flags, length, sequence_++, operation);
}

void TcpOutput::AddBatch(TcpSlot* slot, uint32_t bytes) {
  slot->bytes = bytes;
  std::memset(slot->data() + bytes, 0, TcpPadding(bytes));
  line_.PushBack(slot);
  ++batches_;
}

void TcpOutput::AddRead(TcpOperation* operation) {
  AppendHeader(TcpFrameKind::kRead, 0, static_cast<uint32_t>(operation->records * kTcpSpanBytes),
               operation->number);
  for (const TcpOperation* record = operation; record != nullptr; record = record->next) {
    EncodeTcpSpan(Append(kTcpSpanBytes), record->remote);
  }
  operation->sent_at = small_sent_ + small_bytes();
}

void TcpOutput::AddWrite(TcpOperation* operation) {
  operation->order = writes_posted_++;
  auto& line = operation->in_order ? line_ : unordered_;
  if (line.empty() && writing_ == nullptr && writes_ahead_ == 0 &&
      small_bytes() < kMaxCopiedBytes) {
    AppendWrites(operation);
  }
  if (operation->current == nullptr) return;
  line.PushBack(operation);
  ++writes_left_;
}

// Copies what small transfers write, from the current one on, into small frames.
void TcpOutput::AppendWrites(TcpOperation* operation) {
  for (uint64_t copied = 0; copied < kCopiedFrameBytes;) {
    const TcpOperation* const record = operation->current;
    if (record == nullptr || operation->moved > 0 || record->remote.length > kCopiedBytes) return;
    const auto bytes = static_cast<uint32_t>(record->remote.length);
    const bool last = record->next == nullptr;
    AppendHeader(TcpFrameKind::kWrite, last ? kTcpLast : 0,
                 static_cast<uint32_t>(kTcpWriteHeadBytes) + bytes, operation->number);
    std::byte* const to = Append(kTcpWriteHeadBytes + bytes + TcpPadding(bytes));
    StoreLe64(to, record->remote.key);
    StoreLe64(to + 8, record->remote.offset);
    std::memcpy(to + kTcpWriteHeadBytes, record->local, bytes);
    copied += bytes;
    operation->Move(bytes);
    if (last) operation->sent_at = small_sent_ + small_bytes() - TcpPadding(bytes);
    NoteWritten(operation);
  }
}

void TcpOutput::AddAnswer(uint32_t number, const std::byte* spans, uint32_t records) {
  TcpAnswer* first = nullptr;
  for (uint32_t i = records; i-- > 0;) {
    TcpAnswer* const answer = answers_->Take();
    answer->span = DecodeTcpSpan(spans + i * kTcpSpanBytes);
    answer->next = std::exchange(first, answer);
  }
  first->number = number;
  first->records = records;
  ranges_owed_ += records;
  answer_list_.PushBack(first);
  if (answer_list_.Front() == first && small_bytes() < kMaxCopiedBytes) CopyAnswer(first);
}

// Copies what is small, from the first range on, into one small frame, or says that it is refused.
// False: the first range is large.
bool TcpOutput::CopyAnswer(TcpAnswer* answer) {
  uint32_t bytes = 0;
  uint32_t ranges = 0;
  const TcpAnswer* end = answer;
  for (; end != nullptr && bytes < kCopiedFrameBytes; end = end->next) {
    if (end->span.length > kCopiedBytes) break;
    if (regions_->Find(end->span, /*write=*/false).empty()) {
      EndAnswer(answer, /*refused=*/true);
      return true;
    }
    bytes += static_cast<uint32_t>(end->span.length);
    ++ranges;
  }
  if (ranges == 0) return false;
  const bool last = end == nullptr;
  AppendHeader(TcpFrameKind::kData, last ? kTcpLast : 0, bytes, answer->number);
  std::byte* to = Append(bytes + TcpPadding(bytes));
  for (; ranges > 0; --ranges) {
    const MutableByteSpan from = regions_->Find(answer->span, /*write=*/false);
    std::memcpy(to, from.data(), from.size());
    to += from.size();
    if (!NextRange(answer)) Forget(answer);
  }
  return true;
}

// --- pieces -------------------------------------------------------------------------------------

// The one in the midst of which frames are made; else the one that was posted first. Null: none
// waits, or that one is behind batches, which leave before it.
TcpOperation* TcpOutput::NextWrite() {
  if (writing_ != nullptr) return writing_;
  TcpLineItem* const first = line_.Front();
  auto* const ordered =
      first == nullptr || first->is_batch ? nullptr : static_cast<TcpOperation*>(first);
  if (unordered_.empty()) [[likely]]
    return ordered;
  auto* const unordered = static_cast<TcpOperation*>(unordered_.Front());
  for (TcpLineItem& item : line_) {
    if (item.is_batch) continue;
    if (static_cast<TcpOperation&>(item).order < unordered->order) return ordered;
    break;
  }
  return unordered;
}

uint64_t TcpOutput::ahead_bytes() const {
  uint64_t bytes = 0;
  for (uint32_t i = has_begun() ? 1 : 0; i < count_; ++i) bytes += piece(i).body_left;
  return bytes;
}

void TcpOutput::MakePieces(uint64_t most_bytes) {
  while (ahead() < kPiecesAhead && ahead_bytes() < most_bytes && small_bytes() < kMaxCopiedBytes) {
    TcpOperation* const write = NextWrite();
    if (!answer_list_.empty() && (answers_turn_ || write == nullptr)) {
      answers_turn_ = false;
      MakePieceOf(answer_list_.Front());
    } else if (write != nullptr) {
      answers_turn_ = true;
      MakePieceOf(write);
    } else {
      return;
    }
  }
}

TcpOutput::Piece* TcpOutput::NewPiece(TcpFrameKind kind, uint8_t flags, uint32_t length,
                                      uint32_t operation) {
  Piece& made = piece(count_++);
  made = Piece();
  EncodeTcpHeader(made.head, kind, flags, length, /*sequence=*/0, operation);
  made.head_bytes = kTcpHeaderBytes;
  return &made;
}

void TcpOutput::MakePieceOf(TcpOperation* operation) {
  if (ahead() == 0) AppendWrites(operation);
  if (operation->current == nullptr) return ForgetWrite(operation);
  const TcpOperation& record = *operation->current;
  const uint64_t at = operation->moved;
  const auto bytes =
      static_cast<uint32_t>(std::min<uint64_t>(record.remote.length - at, kPieceBytes));
  operation->Move(bytes);
  NoteWritten(operation);
  const bool last = operation->current == nullptr;
  Piece* const made =
      NewPiece(TcpFrameKind::kWrite, last ? kTcpLast : 0,
               static_cast<uint32_t>(kTcpWriteHeadBytes) + bytes, operation->number);
  StoreLe64(made->head + kTcpHeaderBytes, record.remote.key);
  StoreLe64(made->head + kTcpHeaderBytes + 8, record.remote.offset + at);
  made->head_bytes += static_cast<uint32_t>(kTcpWriteHeadBytes);
  made->body = record.local + at;
  made->body_left = bytes;
  made->padding = TcpPadding(bytes);
  made->write = operation;
  made->ends_write = last;
  ++writes_ahead_;
  if (operation->in_order) ++ordered_ahead_;
  if (last) ForgetWrite(operation);
}

void TcpOutput::MakePieceOf(TcpAnswer* answer) {
  decltype(answer_list_)::Remove(answer);
  answer_list_.PushBack(answer);
  // Copies leave as small frames, which no region that goes can take back. So while a piece of this
  // answer has begun, which may still turn out to be refused, what follows are pieces too.
  const bool may_be_refused =
      has_begun() && piece(0).region_key != 0 && piece(0).answered == answer->number;
  if (ahead() == 0 && !may_be_refused && CopyAnswer(answer)) return;
  RemoteSpan& span = answer->span;
  const MutableByteSpan from = regions_->Find(span, /*write=*/false);
  if (from.empty()) return Refuse(answer->number);
  const auto bytes = static_cast<uint32_t>(std::min<uint64_t>(from.size(), kPieceBytes));
  Piece* const made = NewPiece(TcpFrameKind::kData, 0, bytes, answer->number);
  made->body = from.data();
  made->body_left = bytes;
  made->padding = TcpPadding(bytes);
  made->is_answer = true;
  made->answered = answer->number;
  made->region_key = span.key;
  regions_->Note(this);
  span.offset += bytes;
  span.length -= bytes;
  if (span.length > 0 || NextRange(answer)) return;
  Piece* const end = NewPiece(TcpFrameKind::kEnd, 0, 0, answer->number);
  end->is_answer = true;
  end->answered = answer->number;
  Forget(answer);
}

// The first range has been sent. False: it was the last.
bool TcpOutput::NextRange(TcpAnswer* answer) {
  TcpAnswer* const next = answer->next;
  if (next == nullptr) return false;
  answer->span = next->span;
  answer->next = next->next;
  answers_->Give(next);
  return true;
}

void TcpOutput::EndAnswer(TcpAnswer* answer, bool refused) {
  AddEnd(answer->number, refused);
  Forget(answer);
}

// The answer of this number ends as refused, behind what has begun of it.
void TcpOutput::Refuse(uint32_t number) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < count_; ++i) {
    const Piece& old = piece(i);
    if (!old.begun && old.is_answer && old.answered == number) continue;
    if (kept != i) piece(kept) = old;
    ++kept;
  }
  count_ = kept;
  for (TcpAnswer& answer : answer_list_) {
    if (answer.number == number) return EndAnswer(&answer, /*refused=*/true);
  }
  AddEnd(number, /*refused=*/true);
}

bool TcpOutput::sends_region() const {
  for (uint32_t i = 0; i < count_; ++i) {
    if (piece(i).region_key != 0) return true;
  }
  return false;
}

// Of answers that have no piece yet each range is looked up. Their pieces go with the first that is
// found, so it is looked for again.
void TcpOutput::OnRegionGone(uint64_t key) {
  for (uint32_t i = 0; i < count_;) {
    Piece& found = piece(i);
    if (found.region_key != key) {
      ++i;
      continue;
    }
    found.region_key = 0;
    if (found.body_left > 0) {
      found.body = kZeros;
      Refuse(found.answered);
    }
    i = 0;
  }
  if (sends_region()) regions_->Note(this);
}

// --- sending -------------------------------------------------------------------------------------

TcpOutput::Plan TcpOutput::Gather(iovec* iovecs, bool with_pieces) {
  Plan plan;
  const auto add = [&](const std::byte* data, uint64_t bytes) {
    if (bytes > 0) iovecs[plan.iovecs++] = {const_cast<std::byte*>(data), bytes};
  };
  const auto add_piece = [&](const Piece& next) {
    add(next.head + next.head_at, next.head_bytes - next.head_at);
    add(next.body, next.body_left);
    add(kZeros, next.padding);
  };
  if (has_begun()) add_piece(piece(0));
  add(small_.data() + small_begin_, small_bytes());
  uint32_t sequence = sequence_;
  const auto add_batches = [&] {
    for (TcpLineItem& item : line_) {
      if (!item.is_batch || plan.batches == kMaxBatches) break;
      auto& slot = static_cast<TcpSlot&>(item);
      EncodeTcpHeader(slot.frame(), TcpFrameKind::kBatch, 0, slot.bytes, sequence++, 0);
      add(slot.frame(), slot.frame_bytes());
      ++plan.batches;
    }
  };
  plan.batches_first = ordered_ahead_ == 0;
  if (plan.batches_first) add_batches();
  if (!with_pieces) return plan;
  for (uint32_t i = has_begun() ? 1 : 0; i < count_; ++i) {
    StoreLe32(piece(i).head + 8, sequence++);
    add_piece(piece(i));
  }
  if (!plan.batches_first) add_batches();
  return plan;
}

namespace {

// Of what has left, as far as it goes.
template <class Left>
uint64_t TakeOff(uint64_t* bytes, Left* left) {
  const uint64_t taken = std::min<uint64_t>(*bytes, *left);
  *left = static_cast<Left>(*left - taken);
  *bytes -= taken;
  return taken;
}

}  // namespace

void TcpOutput::SendPiece(uint64_t* bytes) {
  Piece& next = piece(0);
  if (!std::exchange(next.begun, true)) {
    ++sequence_;
    if (next.write != nullptr) {
      --writes_ahead_;
      if (next.write->in_order) --ordered_ahead_;
    }
  }
  uint32_t head_left = next.head_bytes - next.head_at;
  next.head_at += static_cast<uint32_t>(TakeOff(bytes, &head_left));
  next.body += TakeOff(bytes, &next.body_left);
  if (head_left > 0 || next.body_left > 0) return;
  // The peer may end the write before it has the padding.
  if (next.ends_write) next.write->sent_at = 0;
  next.ends_write = false;
  TakeOff(bytes, &next.padding);
  if (next.padding > 0) return;
  if (next.slot != nullptr) {
    --batches_;
    slots_->Give(next.slot);
  }
  first_ = (first_ + 1) % static_cast<uint32_t>(pieces_.size());
  --count_;
}

void TcpOutput::SendSmall(uint64_t* bytes) {
  size_t left = small_bytes();
  const uint64_t taken = TakeOff(bytes, &left);
  small_begin_ += taken;
  small_sent_ += taken;
  if (left > 0) return;
  if (small_.capacity() > kKeptSmallBytes) small_ = {};
  small_.clear();
  small_begin_ = 0;
}

void TcpOutput::SendBatch(uint64_t* bytes) {
  auto* const slot = static_cast<TcpSlot*>(line_.PopFront());
  ++sequence_;
  uint64_t left = slot->frame_bytes();
  const uint64_t taken = TakeOff(bytes, &left);
  if (left == 0) {
    --batches_;
    return slots_->Give(slot);
  }
  // The rest of it is what has begun.
  first_ =
      (first_ + static_cast<uint32_t>(pieces_.size()) - 1) % static_cast<uint32_t>(pieces_.size());
  ++count_;
  Piece& rest = piece(0);
  rest = Piece();
  rest.body = slot->frame() + taken;
  rest.body_left = left;
  rest.begun = true;
  rest.slot = slot;
}

// In the order of Gather().
void TcpOutput::Sent(uint64_t bytes, const Plan& plan) {
  if (has_begun()) SendPiece(&bytes);
  if (bytes == 0) return;
  if (small_bytes() > 0) SendSmall(&bytes);
  const auto send_batches = [&] {
    for (uint32_t i = 0; i < plan.batches && bytes > 0; ++i) SendBatch(&bytes);
  };
  if (plan.batches_first) send_batches();
  while (bytes > 0 && count_ > 0) SendPiece(&bytes);
  if (!plan.batches_first) send_batches();
}

TcpOutput::Result TcpOutput::Pump(int socket, TlsStream* tls, uint64_t most_bytes) {
  pumped_bytes_ = 0;
  if (tls != nullptr && !tls->Flush()) [[unlikely]]
    return Result::kBlocked;
  do {
    if (ahead() == 0) MakePieces(most_bytes);
    iovec iovecs[kMaxIovecs];
    const Plan plan = Gather(iovecs, /*with_pieces=*/most_bytes > 0);
    if (plan.iovecs == 0) return empty() ? Result::kDone : Result::kMore;
    const ssize_t result =
        tls == nullptr ? SendPieces(socket, iovecs, plan.iovecs) : tls->Write(iovecs, plan.iovecs);
    if (result < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN) return Result::kBlocked;
      error_ = errno;
      return Result::kBroken;
    }
    // Nobody takes nothing of something. Were it so, this thread would never come back from here.
    if (result == 0) [[unlikely]]
      return Result::kMore;
    Sent(static_cast<uint64_t>(result), plan);
    pumped_bytes_ += static_cast<uint64_t>(result);
    // What has been sealed leaves first, when the socket is writable.
    if (tls != nullptr && tls->unsent() > 0) [[unlikely]]
      return Result::kBlocked;
    if (empty()) return Result::kDone;
  } while (pumped_bytes_ < most_bytes);
  return Result::kMore;
}

}  // namespace weft
