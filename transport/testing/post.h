// One-sided operations as tests write them: a function for each kind, an end that always comes
// through the operation.
//
// Threads, Lifetime, Errors: as RemoteAccess::Post(). What is done at once completes from inside.
#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/bytes.h"
#include "transport/operation.h"
#include "transport/region.h"

namespace weft {

// An operation that is done completes from inside this call. Not for those whose OnComplete() posts
// again: they need a loop, or call back later.
inline absl::Status CompleteIfDone(const absl::StatusOr<Posted>& posted, Operation* op) {
  if (posted.ok() && *posted == Posted::kDone) op->OnComplete(absl::OkStatus());
  return posted.status();
}

// Where operations over `path`, a Connection or a Link, are posted.
template <class Path>
auto& PostsOf(Path& path) {
  if constexpr (requires { path.memory(); }) {
    return path.memory();
  } else {
    return path;
  }
}

template <class Path>
absl::Status Post(Path& path, TransferKind kind, absl::Span<const Transfer> transfers,
                  Operation* op) {
  return CompleteIfDone(PostsOf(path).Post(kind, transfers, op), op);
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
absl::Status WriteUnordered(Path& path, const Region& local, size_t local_offset,
                            const RemoteSpan& remote, Operation* op) {
  return Post(path, TransferKind::kWriteUnordered, {{&local, local_offset, remote}}, op);
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
  return CompleteIfDone(PostsOf(path).WriteThenSend(transfers, message, op), op);
}

}  // namespace weft
