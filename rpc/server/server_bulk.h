// Bulk payloads in the hands of a handler: reads and writes the memory that the client lends to
// this call or stream, with one-sided transfers into and out of memory of the application's choice.
//
//   absl::Status Put(ServerContext& context, const PutRequest& request, PutReply*) override {
//     const size_t bytes = request.data().length();             // buffer_: AllocateBuffer()
//     return context.bulk().Fetch(request.data(), buffer_->slice(0, bytes));
//   }                                                           // on an executor: it blocks
//   absl::Status Get(ServerContext& context, const GetRequest& request, GetReply* reply) override {
//     context.bulk().Push(buffer_->slice(0, bytes_), reply->mutable_data(), nullptr);
//     return absl::OkStatus();                                  // anywhere: the reply waits
//   }
//
// In a stream the messages tell of payloads. A message that tells of one that was pushed is to be
// written when the push has ended: messages wait for no transfers, but the stream's end does.
//
// The reply is never sent before all transfers of its call have ended. What was pushed is in the
// client's memory when the reply arrives. A handler may end its call with transfers under way: the
// reply waits for them, and if one of them fails, that is the reply.
//
// Threads: as the call: any, one at a time. `done` runs on the engine's thread; where no transfer
//   is needed, or none can be started, inside the function. Blocking forms: not inside a callback
//   of the server's engine, that is, not in a handler that runs on it.
// Lifetime: as the context. The application's memory stays, and what is pushed unchanged, until the
//   transfer has ended, also when the call is cancelled or its client lost meanwhile.
// Errors:
//   INVALID_ARGUMENT     the client lends no such window, or not for this, or less than its field
//                        says, or its field has no checksum over ofi_tcp: its mistake, right as the
//                        call's status. Or a slice that leaves its memory.
//   RESOURCE_EXHAUSTED   the payload does not fit where it should go, or kMaxTransfers of this call
//                        are under way.
//   DATA_LOSS            the payload's checksum is wrong.
//   DEADLINE_EXCEEDED    the call's deadline has passed (handlers on an executor, or that asked for
//                        OnCancel()). What was under way then is over a second later at the latest:
//                        a client that has not answered by then loses its connection.
//   CANCELLED            nobody waits for the call's end any more, and its memory is not touched
//                        again.
//   UNAVAILABLE          the client is gone, or has not answered for too long
//                        (LinkOptions::transfer_timeout_ns).
//   FAILED_PRECONDITION  a blocking form on the server's engine.
// Invariants: no memory outside of the windows, and none of another call, is ever touched, whatever
//   the client's message says.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/bytes.h"
#include "core/function.h"
#include "rpc/bulk/payload.h"
#include "rpc/bulk/transfer.h"
#include "rpc/wire/frame.h"
#include "transport/slice.h"
#include "weft/memory.pb.h"

namespace weft {

class EngineCore;
class ServerCall;
class ServerConnection;

class ServerBulk {
 public:
  using Done = Function<void(absl::Status)>;

  // Transfers of one call under way. Enough to keep any path busy with chunks of 64 KiB; 200 bytes
  // each, kept by a call that has ever carried windows.
  static constexpr uint32_t kMaxTransfers = 16;

  // For ServerCall.
  explicit ServerBulk(ServerCall* call);
  ServerBulk(const ServerBulk&) = delete;
  ServerBulk& operator=(const ServerBulk&) = delete;

  // --- whole payloads ---------------------------------------------------------------------------

  // Reads the payload that `field` of a request tells of into the front of `into`, and checks it.
  // `done` may be null: the reply waits, and fails with it.
  void Fetch(const Bulk& field, const Slice& into, Done done);
  absl::Status Fetch(const Bulk& field, const Slice& into);

  // Writes `from` into the next window that the client lends for it (those of BulkCall::Receive(),
  // in order), and fills `field` of the reply in, before it returns.
  void Push(const Slice& from, Bulk* field, Done done);
  void Push(const Slice& from, Bulk* field, const BulkOptions& options, Done done);
  absl::Status Push(const Slice& from, Bulk* field, const BulkOptions& options = {});

  // The same into `place`, which a message of the client tells of (BulkCall::Describe()), at its
  // front; in any order, and again and again.
  void Push(const Slice& from, const Bulk& place, Bulk* field, const BulkOptions& options,
            Done done);
  absl::Status Push(const Slice& from, const Bulk& place, Bulk* field,
                    const BulkOptions& options = {});

  // --- parts ------------------------------------------------------------------------------------

  // What the client lends: windows 1 to window_count(), their lengths in bytes, and for what. 0 for
  // one that there is not.
  uint32_t window_count() const { return count_; }
  uint64_t readable_bytes(uint32_t window) const { return BytesFor(window, kMayRead); }
  uint64_t writable_bytes(uint32_t window) const { return BytesFor(window, kMayWrite); }

  // Moves into.length, or from.length, bytes at `offset` in a window. Checks and fills in nothing:
  // whoever moves parts makes the field itself (DescribePayload(), VerifyPayload(), Crc32c()).
  void Read(uint32_t window, uint64_t offset, const Slice& into, Done done);
  void Write(const Slice& from, uint32_t window, uint64_t offset, Done done);
  absl::Status Read(uint32_t window, uint64_t offset, const Slice& into);
  absl::Status Write(const Slice& from, uint32_t window, uint64_t offset);

 private:
  friend class ServerCall;
  friend class ServerConnection;

  struct Slot final : public BulkTransfer {
    void OnPosted() override { ++owner->posted_; }
    void OnEnded(bool posted, const absl::Status& status) override {
      owner->OnEnded(*this, posted, status);
    }

    ServerBulk* owner = nullptr;
    uint32_t window = 0;
    bool verify = false;  // against `crc32c`, when it is over
    uint32_t crc32c = 0;
    Done done;
  };

  uint64_t BytesFor(uint32_t window, Rights rights) const {
    return window >= 1 && window <= count_ && windows_[window - 1].rights == rights
               ? windows_[window - 1].span.length
               : 0;
  }

  // Any thread.
  absl::Status CheckPart(uint32_t window, uint64_t offset, const Slice& local, Rights rights) const;
  absl::StatusOr<uint32_t> TakeWindowFor(size_t bytes);
  // REQUIRES: CheckPart() is OK.
  absl::StatusOr<Slot*> Take(uint32_t window, uint64_t offset, const Slice& local, Rights rights);
  absl::Status StartFetch(const Bulk& field, const Slice& into, bool verify, Done* done);
  absl::Status StartPush(const Slice& from, Bulk* field, const BulkOptions& options, Done* done);
  absl::Status StartPushInto(const Slice& from, const Bulk& place, Bulk* field,
                             const BulkOptions& options, Done* done);
  absl::Status StartPart(uint32_t window, uint64_t offset, const Slice& local, Rights rights,
                         Done* done);
  void Go(Slot& slot);
  void Settle(absl::Status started, Done done);
  template <class Start>
  absl::Status Block(Start&& start);

  // For ServerCall and ServerConnection, on the engine's thread.
  void Begin(ServerConnection* connection, std::span<const Window> windows);
  // True: transfers are under way; the call ends with `*status` when they have ended. Else
  // `*status` may have become the error of one that nobody asked about.
  bool Hold(absl::Status* status);
  // No further transfer is started; those that wait for their turn end with `why`.
  void Stop(absl::Status why);
  // The call's deadline has passed: the same, and its client has not said that it has given up.
  void Expire();
  // Stopped, and nothing is posted: the client can have its memory back.
  bool quiet() const { return !stopped_.ok() && posted_ == 0; }

  void EndTransfers(const absl::Status& why);
  void Post(Slot& slot);
  void OnEnded(Slot& slot, bool posted, const absl::Status& status);
  void Finish(Slot& slot, absl::Status status);
  static absl::Status Explain(const Slot& slot, const absl::Status& status);
  static absl::Status Verify(const Slot& slot);
  EngineCore& engine() const;
  bool is_over_ofi_tcp() const;

  ServerCall* const call_;

  // Constant during a call.
  ServerConnection* connection_ = nullptr;
  std::array<Window, kMaxWindows> windows_;
  uint32_t count_ = 0;

  // The handler's thread.
  uint32_t next_push_ = 0;  // index of the first window that no Push() has taken
  absl::Status refusal_;    // the first that nobody was told; OK: none

  // Bit i: slots_[i] is in use. Set by the handler's thread, cleared by the engine's.
  std::atomic<uint32_t> used_{0};
  std::array<Slot, kMaxTransfers> slots_;

  // Engine thread only.
  uint32_t posted_ = 0;   // transfers that the provider has
  absl::Status stopped_;  // why no transfer is started any more; OK: they are
  absl::Status expired_;  // the same, while the client may still wait for the call
  absl::Status failure_;  // the first of a transfer that nobody asked about
  bool held_ = false;     // the call has ended with status_, but for its transfers
  absl::Status status_;
};

}  // namespace weft
