// Equal records in a peer's memory, by number: what RemoteArray<T> stands on, without the types.
//
// Records travel through slots of registered memory that belong to this object, and are copied from
// there once they are known to be whole. Who waits for a free slot waits in order.
//
// Threads, Lifetime, Errors: as RemoteMemory; besides
//   OUT_OF_RANGE  no record of that number. Nothing was sent.
//   ABORTED       a record was being changed each of the kTornTries times that it was read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/function.h"
#include "rpc/memory/remote_memory.h"
#include "weft/channel.h"

namespace weft {

class Buffer;
class CallbackRecords;
class EngineCore;
class RecordSlots;

// A torn record is read again at once kTornTriesAtOnce times, then with pauses of kTornPauseUs: in
// all for about 0.1 s, which outlasts a writer that has lost its processor midway.
inline constexpr uint32_t kTornTries = 512;
inline constexpr uint32_t kTornTriesAtOnce = 16;
inline constexpr uint64_t kTornPauseUs = 200;

// What one record is.
struct RecordShape {
  std::string_view layout_name;
  uint64_t layout = 0;
  size_t bytes = 0;      // 1..kMaxFixedLayoutBytes
  bool checked = false;  // record.h
};

// Counts since it was opened.
struct RecordStats {
  uint64_t reads = 0;       // records
  uint64_t torn_reads = 0;  // read again
};

class RemoteRecords {
 public:
  static absl::StatusOr<std::unique_ptr<RemoteRecords>> Open(Channel& channel,
                                                             const RemoteRegion& region,
                                                             const RecordShape& shape,
                                                             const RemoteMemoryOptions& options);
  ~RemoteRecords();
  RemoteRecords(const RemoteRecords&) = delete;
  RemoteRecords& operator=(const RemoteRecords&) = delete;

  uint64_t size() const { return size_; }  // records
  RemoteMemory& memory() { return *memory_; }
  RecordStats stats();

  // Any number of records; out[k] is record indices[k], one after the other. After an error `out`
  // is unspecified, and never holds a torn record.
  absl::Status Read(absl::Span<const uint64_t> indices, std::byte* out);
  absl::Status Write(uint64_t index, const std::byte* record);

  // `indices`, `out` and `record` stay untouched until `done`, which runs as RemoteMemory says.
  void Read(absl::Span<const uint64_t> indices, std::byte* out, Function<void(absl::Status)> done);
  void ReadOne(uint64_t index, std::byte* out, Function<void(absl::Status)> done);
  void Write(uint64_t index, const std::byte* record, Function<void(absl::Status)> done);

 private:
  RemoteRecords(std::unique_ptr<RemoteMemory> memory, std::unique_ptr<Buffer> buffer,
                const RecordShape& shape, uint32_t max_waiting);
  EngineCore& engine() const;
  absl::Status Check(absl::Span<const uint64_t> indices) const;
  template <class Fill>
  absl::Status Run(Fill fill);
  template <class Fill>
  void Begin(Fill fill, Function<void(absl::Status)> done);

  // Constant after construction.
  std::unique_ptr<RemoteMemory> memory_;
  const std::unique_ptr<Buffer> buffer_;  // of the slots
  const RecordShape shape_;
  const uint64_t size_;
  RecordSlots* const slots_;  // the engine's side; goes with this
};

}  // namespace weft
