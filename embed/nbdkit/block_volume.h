// A block device that a server of block.proto serves, as a client uses it from many threads.
//
//   auto volume = BlockVolume::Open({.address = "10.0.0.7:7000"});
//   (*volume)->Write(4096, bytes, /*durable=*/false);
//   (*volume)->Flush(&losses);
//
// Losses of the connection and restarts of the server are survived (embed/session_client.h): an
// operation that was under way attaches again and is sent again, for as long as `patience_us`. All
// are idempotent, and the server lets none of an earlier session come behind those of the next one
// (block.proto).
//
// What was written and not flushed. When the server's host, and not only its process, has died, or
// its medium has failed, writes that were answered may be lost. The epoch that the server tells
// says so. Then the next Flush() of each user fails with DATA_LOSS, once: losses() counts such
// events, and each user remembers how many it has heard of. (As fsync(2) does it. Nothing is
// written again by itself, for nobody here has the bytes any more.) Without unflushed writes there
// is nothing to lose, and nobody notices.
//
// Threads: any, several at once; each operation blocks its own. Lifetime: it has an engine of its
//   own, which is driven by the threads that wait. No thread is in an operation when it is
//   destroyed. Made after fork(2), it may be used by that process alone.
// Errors: the server's (block.proto); what has not succeeded within the patience has the last
//   reason, with how long and how often it was tried.
// Invariants: Flush() is OK only if all that was answered before it began is on the medium.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "embed/nbdkit/block.weft.h"
#include "embed/nbdkit/block_device.h"
#include "embed/session_client.h"
#include "weft/bytes.h"
#include "weft/channel.h"
#include "weft/engine.h"
#include "weft/stream.h"

namespace weft::embed {

struct BlockVolumeOptions {
  // Behaviour.
  std::string address;
  ChannelOptions channel = {};  // paths, security; limits are set here
  // Of an operation, from its beginning. One that goes in pieces (block_limits.h) has it for each.
  uint64_t patience_us = 30'000'000;
  bool crc32c = true;  // over payloads that are lent, both ways
};

class BlockVolume {
 public:
  // Connects and attaches: one attempt, so that mistakes are told at once.
  static absl::StatusOr<std::unique_ptr<BlockVolume>> Open(const BlockVolumeOptions& options);
  ~BlockVolume();
  BlockVolume(const BlockVolume&) = delete;
  BlockVolume& operator=(const BlockVolume&) = delete;

  // As the server told at first. One that tells another size later is not the same device, and
  // operations fail with DATA_LOSS.
  const BlockDevice::Facts& facts() const { return facts_; }

  absl::Status Read(uint64_t offset, MutableByteSpan into);
  absl::Status Write(uint64_t offset, ByteSpan from, bool durable);
  // `losses`: of this user, who began with losses().
  absl::Status Flush(uint64_t* losses);
  absl::Status Trim(uint64_t offset, uint64_t bytes, bool durable);
  absl::Status Zero(uint64_t offset, uint64_t bytes, bool may_trim, bool durable);
  // From `offset` on, at least one; together at most `bytes`, of which there are some.
  absl::StatusOr<std::vector<BlockDevice::Extent>> Extents(uint64_t offset, uint64_t bytes,
                                                           uint32_t max_extents);

  uint64_t losses();
  std::string Explain() { return channel_->Explain(); }

 private:
  using Session = SessionClient::Session;
  using Attempt = SessionClient::Attempt;
  struct Range {
    uint64_t offset = 0;
    uint64_t bytes = 0;
  };
  using ChangePiece = absl::FunctionRef<absl::Status(const Range&, const Attempt&)>;

  BlockVolume(const BlockVolumeOptions& options, std::unique_ptr<Channel> channel);

  absl::Status ReadPiece(uint64_t offset, MutableByteSpan into);
  absl::Status WritePiece(uint64_t offset, ByteSpan from, bool durable);
  absl::Status ChangeRange(const char* what, Range range, bool durable, ChangePiece change);
  absl::StatusOr<Session> AskForSession(uint64_t timeout_us);
  absl::Status TakeReply(const wire::AttachReply& reply);
  // What has changed the device was answered in that session. Aborted: it may be lost already.
  absl::Status CountChange(const Session& session, bool durable);

  const BlockVolumeOptions options_;
  const std::unique_ptr<Channel> channel_;
  const wire::Block::Stub stub_;
  const std::string client_id_;
  BlockDevice::Facts facts_;  // constant after Open()

  std::mutex mutex_;
  // Guarded by mutex_.
  std::optional<uint64_t> epoch_;  // of the last session; none: there was none yet
  uint64_t changes_ = 0;           // that were answered, and not durable by themselves
  uint64_t flushed_changes_ = 0;   // of these: nobody needs to worry about the first so many
  uint64_t losses_ = 0;

  std::optional<ClientReader<wire::AttachReply>> stream_;  // of the thread in AskForSession()
  SessionClient sessions_;
};

}  // namespace weft::embed
