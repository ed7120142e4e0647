#include "rpc/memory/record_slots.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/check.h"
#include "core/clock.h"
#include "core/strings.h"
#include "rpc/layout/record.h"
#include "weft/status.h"

namespace weft {
namespace {

// Slots for records of one array: as many as four batches need, in 4 MiB at most, but for very
// large records. Fewer: operations wait for each other. More: memory.
constexpr size_t kMostSlots = 4 * kMaxBatchTransfers;
constexpr size_t kFewestSlots = 4;
constexpr size_t kSlotBytes = size_t{4} << 20;

absl::Status Cancelled() {
  return WithDelivery(absl::CancelledError("the RemoteArray was destroyed (not sent)"),
                      Delivery::kNotSent);
}

// Not CANCELLED: a callback that starts its cancelled operation again would do so for ever.
absl::Status StartedTooLate() {
  return WithDelivery(
      absl::FailedPreconditionError(
          "the RemoteArray is being destroyed; a callback starts no operation then (not sent)"),
      Delivery::kNotSent);
}

}  // namespace

uint32_t RecordSlots::CountFor(size_t record_bytes) {
  return static_cast<uint32_t>(std::clamp(kSlotBytes / record_bytes, kFewestSlots, kMostSlots));
}

RecordSlots::RecordSlots(EngineCore& engine, RemoteMemory& memory, const RecordShape& shape,
                         Slice slots, uint32_t max_waiting)
    : engine_(engine),
      memory_(memory),
      shape_(shape),
      slice_(slots),
      max_waiting_(max_waiting),
      early_ends_(engine) {
  for (uint32_t slot = CountFor(shape.bytes); slot-- > 0;) free_.push_back(slot);
}

// Ours: Shutdown() has ended all that took one
RecordSlots::~RecordSlots() { WEFT_CHECK(free_.size() == CountFor(shape_.bytes)); }

void RecordSlots::Start(RecordOperation& operation, const absl::Status& valid) {
  operation.slots_ = this;
  operation.first_ = 0;
  operation.tries_ = 0;
  operation.moving_ = 0;
  if (closing_) return operation.Finish(StartedTooLate());
  if (!valid.ok() || operation.indices.empty()) return EndEarly(operation, valid);
  if (waiting_count_ >= max_waiting_) return EndEarly(operation, TooManyWait());
  Wait(operation);
  Serve();
}

// Its callback comes from a timer; here, where too many wait for that.
void RecordSlots::EndEarly(RecordOperation& operation, absl::Status status) {
  if (early_ends_.count() >= max_waiting_) return operation.Finish(std::move(status));
  operation.end_ = std::move(status);
  early_ends_.Add(operation);
}

absl::Status RecordSlots::TooManyWait() const {
  const std::string text = StrCat(waiting_count_,
                                  " operations on records wait already, as many as "
                                  "RemoteMemoryOptions::max_waiting allows (not sent)");
  return WithDelivery(absl::ResourceExhaustedError(text), Delivery::kNotSent);
}

void RecordSlots::Wait(RecordOperation& operation) {
  waiting_.PushBack(&operation);
  ++waiting_count_;
}

void RecordSlots::Serve() {
  while (!free_.empty()) {
    RecordOperation* operation = waiting_.PopFront();
    if (operation == nullptr) return;
    --waiting_count_;
    Begin(*operation);
  }
}

// A chunk of what is still to be moved, as large as there are slots.
void RecordSlots::Begin(RecordOperation& operation) {
  operation.chunk_ =
      std::min({operation.indices.size() - operation.first_, kMaxBatchTransfers, free_.size()});
  for (uint32_t i = 0; i < operation.chunk_; ++i) {
    operation.places_[i] = {free_.back(), i};
    free_.pop_back();
  }
  operation.moving_ = static_cast<uint32_t>(operation.chunk_);
  if (operation.record != nullptr) {
    std::memcpy(At(operation.places_[0].slot), operation.record, shape_.bytes);
  }
  Move(operation);
}

void RecordSlots::Move(RecordOperation& operation) {
  for (uint32_t i = 0; i < operation.moving_; ++i) {
    const auto [slot, position] = operation.places_[i];
    pieces_[i] = {operation.indices[operation.first_ + position] * shape_.bytes,
                  {slice_.memory, slice_.offset + slot * shape_.bytes, shape_.bytes}};
  }
  const absl::Span<const RemotePiece> pieces(pieces_.data(), operation.moving_);
  auto moved = [this, &operation](const absl::Status& status) { OnMoved(operation, status); };
  if (operation.record != nullptr) {
    memory_.WriteBatch(pieces, moved);
  } else {
    memory_.ReadBatch(pieces, moved);
  }
}

void RecordSlots::OnMoved(RecordOperation& operation, const absl::Status& status) {
  if (!status.ok() || operation.record != nullptr) return End(operation, status);
  stats_.reads += operation.moving_;
  Collect(operation);
  if (operation.moving_ > 0) return MoveAgain(operation);
  operation.first_ += operation.chunk_;
  operation.tries_ = 0;
  if (operation.first_ == operation.indices.size()) return End(operation, absl::OkStatus());
  if (closing_) return End(operation, Cancelled());
  Wait(operation);
  Serve();
}

// Hands over the records that are whole; the others stay in their places.
void RecordSlots::Collect(RecordOperation& operation) {
  uint32_t torn = 0;
  for (uint32_t i = 0; i < operation.moving_; ++i) {
    const RecordOperation::Place place = operation.places_[i];
    const std::byte* read = At(place.slot);
    if (shape_.checked && !IsWholeRecord(read, shape_.bytes)) {
      operation.places_[torn++] = place;
      continue;
    }
    std::memcpy(operation.out + (operation.first_ + place.position) * shape_.bytes, read,
                shape_.bytes);
    free_.push_back(place.slot);
  }
  operation.moving_ = torn;
  stats_.torn_reads += torn;
}

void RecordSlots::MoveAgain(RecordOperation& operation) {
  if (closing_) return End(operation, Cancelled());
  if (++operation.tries_ >= kTornTries) {
    const uint64_t index = operation.indices[operation.first_ + operation.places_[0].position];
    const std::string text =
        StrCat("record ", index, " of ", shape_.layout_name, " was being changed each of the ",
               kTornTries, " times that it was read");
    return End(operation, WithDelivery(absl::AbortedError(text), Delivery::kMayHaveRun));
  }
  if (operation.tries_ < kTornTriesAtOnce) return Move(operation);
  paused_.PushBack(&operation);
  engine_.timers().Schedule(&operation, engine_.clock().NowNs() + kTornPauseUs * kNsPerUs);
}

void RecordSlots::OnPauseOver(RecordOperation& operation) {
  IntrusiveList<RecordOperation>::Remove(&operation);
  Move(operation);
}

void RecordSlots::ReleaseAll(RecordOperation& operation) {
  for (uint32_t i = 0; i < operation.moving_; ++i) free_.push_back(operation.places_[i].slot);
  operation.moving_ = 0;
}

// Its deadline has passed while RemoteMemory had the slots.
void RecordSlots::ReleaseLater(RecordOperation& operation) {
  std::vector<uint32_t> late;
  for (uint32_t i = 0; i < operation.moving_; ++i) late.push_back(operation.places_[i].slot);
  operation.moving_ = 0;
  memory_.WhenReclaimed([this, late = std::move(late)] {
    free_.insert(free_.end(), late.begin(), late.end());
    Serve();
  });
}

void RecordSlots::End(RecordOperation& operation, absl::Status status) {
  if (absl::IsDeadlineExceeded(status) && DeliveryOf(status) == Delivery::kMayHaveRun) {
    ReleaseLater(operation);
  }
  ReleaseAll(operation);
  operation.Finish(std::move(status));
  Serve();
}

void RecordSlots::Shutdown() {
  closing_ = true;
  while (RecordOperation* operation = waiting_.PopFront()) {
    --waiting_count_;
    operation->Finish(Cancelled());
  }
  while (RecordOperation* operation = paused_.PopFront()) {
    engine_.timers().Cancel(operation);
    ReleaseAll(*operation);
    operation->Finish(Cancelled());
  }
  early_ends_.RunAll();
}

// --- operations with callbacks ------------------------------------------------------------------

void RecordOperation::OnTimer() { slots_->OnPauseOver(*this); }

void CallbackRecords::Finish(absl::Status status) {
  Function<void(absl::Status)> end = std::move(done);
  slots_->Recycle(this);
  end(std::move(status));
}

}  // namespace weft
