// How what a FileClient asks reaches a server of file.proto: as calls of Weft's, here; or as
// gRPC's, to compare with (over_grpc/).
//
//   auto calls = OpenFileCalls("10.0.0.7:7100", {}, /*crc32c=*/true);
//   auto told = (*calls)->Attach(request, 1'000'000);
//   absl::Status status = (*calls)->Open(open, &reply, 1'000'000);
//
// One-sided reads are no calls, and go past this, over channel().
//
// Threads: any, several at once; each function blocks its own, but for Close(). Attach(): one at a
//   time.
// Lifetime: no thread is in a function when it is destroyed, which ends the session.
// Errors: the server's (file.proto), and those of the way there. DeliveryOf() (weft/status.h) says
//   of these whether the call may have run. DEADLINE_EXCEEDED, or CANCELLED: `timeout_us` is over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "embed/rocksdb/file.pb.h"
#include "weft/bytes.h"
#include "weft/channel.h"

namespace weft::embed {

// One of several reads at once: into.size() bytes at `offset`.
struct PieceToRead {
  uint64_t offset = 0;
  MutableByteSpan into;
  // Set when it has been read.
  size_t got = 0;  // fewer: the file ends there
  absl::Status status;
};

class FileCalls {
 public:
  virtual ~FileCalls() = default;

  // The session lasts until the next one is asked for, or the connection is lost.
  virtual absl::StatusOr<wire::AttachReply> Attach(const wire::AttachRequest& request,
                                                   uint64_t timeout_us) = 0;

  virtual absl::Status Open(const wire::OpenRequest& request, wire::OpenReply* reply,
                            uint64_t timeout_us) = 0;
  // Nobody waits for the answer, and nobody hears of it.
  virtual void Close(const wire::CloseRequest& request, uint64_t timeout_us) = 0;
  // All of them are sent before the first one is waited for. REQUIRES: 1..kMaxFileRequests pieces,
  // none of them larger than kMaxFilePayloadBytes.
  virtual void Read(uint64_t session, uint64_t handle, absl::Span<PieceToRead* const> pieces,
                    uint64_t timeout_us) = 0;
  // `data`, up to kMaxFilePayloadBytes, becomes the request's.
  virtual absl::Status Append(wire::AppendRequest* request, ByteSpan data, uint64_t timeout_us) = 0;
  virtual absl::Status Sync(const wire::SyncRequest& request, wire::SyncReply* reply,
                            uint64_t timeout_us) = 0;

  virtual absl::Status Stat(const wire::StatRequest& request, wire::StatReply* reply,
                            uint64_t timeout_us) = 0;
  virtual absl::Status List(const wire::ListRequest& request, wire::ListReply* reply,
                            uint64_t timeout_us) = 0;
  virtual absl::Status Change(const wire::ChangeRequest& request, wire::ChangeReply* reply,
                              uint64_t timeout_us) = 0;

  virtual absl::Status Lock(const wire::LockRequest& request, wire::LockReply* reply,
                            uint64_t timeout_us) = 0;
  virtual absl::Status Unlock(const wire::UnlockRequest& request, wire::UnlockReply* reply,
                              uint64_t timeout_us) = 0;

  // Which way they go.
  virtual std::string Explain() = 0;
  // What they go over. Null: nothing of Weft's, and so nothing can be lent.
  virtual Channel* channel() = 0;
};

// Over Weft. `crc32c`: over payloads that are lent, both ways. Errors: Channel::Open()'s.
absl::StatusOr<std::unique_ptr<FileCalls>> OpenFileCalls(const std::string& address,
                                                         const ChannelOptions& options,
                                                         bool crc32c);

}  // namespace weft::embed
