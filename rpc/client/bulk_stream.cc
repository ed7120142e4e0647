#include "rpc/client/bulk_stream.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "core/strings.h"
#include "transport/engine.h"
#include "weft/status.h"

namespace weft {

// A chunk's place, and how its call ended.
struct BulkStream::Slot {
  Slot(BulkStream* stream, Channel& channel, uint32_t number, const Slice& place)
      : stream(stream), place(place), bulk(channel), chunk{number, 0, place, bulk} {}

  BulkStream* const stream;
  const Slice place;
  BulkCall bulk;
  BulkChunk chunk;
  std::unique_ptr<Waiter> ended;  // while under way
  bool ended_here = false;        // on the caller's own thread, inside StartChunk
  absl::StatusOr<uint64_t> moved;
};

BulkStream::BulkStream(Channel& channel, const Slice& ring, uint32_t slots)
    : engine_(CoreOf(channel.engine())), chunk_bytes_(ring.length / slots) {
  // User: the ring and its slots
  WEFT_CHECK(ring.valid() && slots >= 1 && slots <= kMaxSlots && chunk_bytes_ >= 1);
  for (uint32_t i = 0; i < slots; ++i) {
    slots_.push_back(std::make_unique<Slot>(
        this, channel, i, Slice{ring.memory, ring.offset + i * chunk_bytes_, chunk_bytes_}));
  }
}

BulkStream::~BulkStream() = default;

// --- one chunk ----------------------------------------------------------------------------------

void BulkStream::Start(Slot& slot, uint64_t offset, size_t length, StartChunk& start) {
  slot.ended = std::make_unique<Waiter>();
  slot.ended_here = false;
  // Only after a chunk that failed is there something to wait for.
  if (!slot.bulk.WaitReclaimed(kReleasePatienceUs)) {
    return OnEnded(slot,
                   WithDelivery(absl::UnavailableError(
                                    "the memory of an earlier chunk is still pinned (not sent)"),
                                Delivery::kNotSent));
  }
  slot.bulk.Clear();
  slot.chunk.offset = offset;
  slot.chunk.memory = {slot.place.memory, slot.place.offset, length};
  start(slot.chunk,
        [&slot](absl::StatusOr<uint64_t> moved) { slot.stream->OnEnded(slot, std::move(moved)); });
}

void BulkStream::OnEnded(Slot& slot, absl::StatusOr<uint64_t> moved) {
  slot.moved = std::move(moved);
  if (engine_.OnEngine()) {
    engine_.Finish(*slot.ended);
  } else {
    slot.ended_here = true;
  }
}

absl::StatusOr<uint64_t> BulkStream::WaitFor(Slot& slot) {
  if (!slot.ended_here) engine_.Wait(*slot.ended);
  slot.ended.reset();
  if (slot.moved.ok() && *slot.moved > slot.chunk.memory.length) {
    return absl::DataLossError(StrCat("a chunk of ", slot.chunk.memory.length, " bytes at ",
                                      slot.chunk.offset, " is said to have moved ", *slot.moved));
  }
  return slot.moved;
}

void BulkStream::Drain(uint64_t first, uint64_t last) {
  for (; first < last; ++first) (void)WaitFor(SlotOf(first)).ok();
}

// --- streams ------------------------------------------------------------------------------------

BulkStreamResult BulkStream::Receive(uint64_t length, StartChunk start, Consume consume) {
  WEFT_CHECK(!engine_.InTurn());  // User: blocks, so not inside a callback
  BulkStreamResult result;
  uint64_t started = 0;  // chunks
  uint64_t taken = 0;    // chunks
  uint64_t asked = 0;    // bytes, in the chunks started
  bool more = true;
  while (more) {
    while (asked < length && started - taken < slots_.size()) {
      const size_t bytes = std::min<uint64_t>(chunk_bytes_, length - asked);
      Start(SlotOf(started++), asked, bytes, start);
      asked += bytes;
    }
    if (taken == started) break;
    Slot& slot = SlotOf(taken++);
    const absl::StatusOr<uint64_t> moved = WaitFor(slot);
    result.status = moved.status();
    if (moved.ok() && *moved > 0) {
      result.status = consume(slot.chunk.offset, slot.place.bytes().first(*moved));
    }
    if (!result.status.ok()) break;
    result.good_bytes += *moved;
    more = *moved == slot.chunk.memory.length;
  }
  Drain(taken, started);
  return result;
}

BulkStreamResult BulkStream::Send(StartChunk start, Produce produce) {
  WEFT_CHECK(!engine_.InTurn());  // User: blocks, so not inside a callback
  BulkStreamResult result;
  uint64_t started = 0;  // chunks
  uint64_t taken = 0;    // chunks
  uint64_t made = 0;     // bytes
  bool more = true;
  absl::Status produced;
  while (true) {
    while (more && started - taken < slots_.size()) {
      Slot& slot = SlotOf(started);
      const absl::StatusOr<size_t> bytes = produce(made, slot.place.bytes());
      produced = bytes.status();
      more = bytes.ok() && *bytes == chunk_bytes_;
      if (!bytes.ok() || *bytes == 0) break;
      WEFT_CHECK(*bytes <= chunk_bytes_);  // User: what its produce() says
      Start(slot, made, *bytes, start);
      ++started;
      made += *bytes;
    }
    if (taken == started) break;
    const Slot& slot = SlotOf(taken);
    const absl::StatusOr<uint64_t> moved = WaitFor(SlotOf(taken++));
    result.status = moved.status();
    if (!moved.ok()) break;
    result.good_bytes += *moved;
    if (*moved == slot.chunk.memory.length) continue;
    result.status = absl::DataLossError(StrCat("a chunk of ", slot.chunk.memory.length,
                                               " bytes at ", slot.chunk.offset, " moved ", *moved));
    break;
  }
  Drain(taken, started);
  if (result.status.ok()) result.status = produced;
  return result;
}

}  // namespace weft
