// One-sided operations as tests write them: a function for each kind, an end that always comes
// through the operation.
//
// Threads, Lifetime, Errors: as Connection::Post(). What is done at once completes from inside.
#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/bytes.h"
#include "transport/operation.h"
#include "transport/region.h"

namespace weft {

// `path`: a Connection or a Link.
template <class Path>
absl::Status Post(Path& path, TransferKind kind, absl::Span<const Transfer> transfers,
                  Operation* op) {
  return CompleteIfDone(path.Post(kind, transfers, op), op);
}

template <class Path>
absl::Status Read(Path& path, const Region& local, size_t local_offset, const RemoteSpan& remote,
                  Operation* op) {
  return Post(path, TransferKind::kRead, {{&local, local_offset, remote}}, op);
}

template <class Path>
absl::Status Write(Path& path, const Region& local, size_t local_offset, const RemoteSpan& remote,
                   Operation* op) {
  return Post(path, TransferKind::kWrite, {{&local, local_offset, remote}}, op);
}

template <class Path>
absl::Status WriteAcknowledged(Path& path, const Region& local, size_t local_offset,
                               const RemoteSpan& remote, Operation* op) {
  return Post(path, TransferKind::kWriteAcknowledged, {{&local, local_offset, remote}}, op);
}

template <class Path>
absl::Status ReadBatch(Path& path, absl::Span<const Transfer> transfers, Operation* op) {
  return Post(path, TransferKind::kRead, transfers, op);
}

template <class Path>
absl::Status WriteBatch(Path& path, absl::Span<const Transfer> transfers, Operation* op) {
  return Post(path, TransferKind::kWrite, transfers, op);
}

template <class Path>
absl::Status WriteThenSend(Path& path, absl::Span<const Transfer> transfers, ByteSpan message,
                           Operation* op) {
  return CompleteIfDone(path.WriteThenSend(transfers, message, op), op);
}

}  // namespace weft
