// A stream of chunks: moves what is larger than memory as calls of one chunk each, several under
// way at once, through a ring of slots of the caller's choice.
//
//   weft::BulkStream stream(channel, (*buffer)->slice(), /*slots=*/4);
//   std::vector<ReadReply> replies(4);
//   auto result = stream.Receive(file_bytes,
//       [&](weft::BulkChunk& chunk, weft::BulkChunk::Done done) {     // starts one call
//         ReadRequest request;
//         request.set_offset(chunk.offset);
//         chunk.bulk.Receive(chunk.memory);
//         stub.Read(request, &replies[chunk.slot], {.bulk = &chunk.bulk},
//                   [&, done = std::move(done)](absl::Status status) mutable {
//                     if (!status.ok()) return done(status);
//                     auto payload = chunk.bulk.Received(replies[chunk.slot].data());
//                     if (!payload.ok()) return done(payload.status());
//                     done(payload->size());
//                   });
//       },
//       [&](uint64_t offset, weft::ByteSpan bytes) { return file.Append(bytes); });
//
// Chunks are delivered to the consumer, or taken from the producer, one after the other, in order,
// on the caller's thread: files may block it, and the calls under way go on meanwhile (if the
// channel's engine has a thread of its own; a caller-driven engine is driven while this waits). The
// stream stops at the first error; good_bytes says how far everything is as it should be.
//
// Threads: one. Receive() and Send() block: not inside a callback of the channel's engine.
// Lifetime: the memory outlives the stream, and the channel its calls. The destructor waits until
//   the memory is reclaimed, as ~BulkCall() does.
// Errors: those of the chunks' calls, of the consumer and of the producer, as they are. Those of
//   the chunks behind the first failed one are dropped.
// Invariants: at most `slots` chunks are under way; no slot is used again before its bytes have
//   been consumed, or its call has ended, and its memory is reclaimed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/bytes.h"
#include "core/function.h"
#include "rpc/client/bulk_call.h"
#include "transport/slice.h"
#include "weft/channel.h"

namespace weft {

// One chunk under way.
struct BulkChunk {
  // How its call ended: the bytes that were moved, or an error. To be called once, wherever a
  // callback of the channel may run. Fewer bytes than memory.length: the stream ends here, as at
  // the end of a file.
  using Done = Function<void(absl::StatusOr<uint64_t>)>;

  uint32_t slot = 0;    // 0 .. slots - 1: for what else belongs to the call (request, reply)
  uint64_t offset = 0;  // of its first byte in the stream
  Slice memory;         // its part of the ring, as long as the chunk
  BulkCall& bulk;       // to lend it with; empty
};

struct BulkStreamResult {
  absl::Status status;      // OK: all of it
  uint64_t good_bytes = 0;  // from the front: consumed, or moved and acknowledged
};

class BulkStream {
 public:
  // Starts the call of one chunk. `chunk` stays until `done` has been called.
  using StartChunk = Function<void(BulkChunk& chunk, BulkChunk::Done done)>;
  // Takes the next bytes of the stream. An error ends it.
  using Consume = Function<absl::Status(uint64_t offset, ByteSpan bytes)>;
  // Gives the next bytes of the stream: returns how many, of at most into.size(); fewer: the stream
  // ends with them. An error ends it, too.
  using Produce = Function<absl::StatusOr<size_t>(uint64_t offset, MutableByteSpan into)>;

  static constexpr uint64_t kUnknownLength = ~uint64_t{0};
  // More chunks under way than any path needs to be busy.
  static constexpr uint32_t kMaxSlots = 64;

  // Cuts `ring` into slots of equal length, one chunk each (1 MiB is a good length: the cost of a
  // call is little beside that of moving it). 2 to 4 slots keep a path busy while one is consumed.
  // REQUIRES: ring.valid(), 1 <= slots <= kMaxSlots, slots <= ring.length.
  BulkStream(Channel& channel, const Slice& ring, uint32_t slots);
  ~BulkStream();
  BulkStream(const BulkStream&) = delete;
  BulkStream& operator=(const BulkStream&) = delete;

  size_t chunk_bytes() const { return chunk_bytes_; }

  // Moves `length` bytes (kUnknownLength: until a chunk is short) from the server to `consume`.
  BulkStreamResult Receive(uint64_t length, StartChunk start, Consume consume);

  // Moves what `produce` gives to the server.
  BulkStreamResult Send(StartChunk start, Produce produce);

 private:
  struct Slot;

  // The slot of chunk number `index`.
  Slot& SlotOf(uint64_t index) { return *slots_[index % slots_.size()]; }
  void Start(Slot& slot, uint64_t offset, size_t length, StartChunk& start);
  void OnEnded(Slot& slot, absl::StatusOr<uint64_t> moved);
  absl::StatusOr<uint64_t> WaitFor(Slot& slot);
  // Waits for the chunks [first, last).
  void Drain(uint64_t first, uint64_t last);

  EngineCore& engine_;
  const size_t chunk_bytes_;
  std::vector<std::unique_ptr<Slot>> slots_;
};

}  // namespace weft
