// Which writes of a RemoteMemory have arrived at the owner, and what proves it.
//
// The end of a write proves no arrival. The end of a proof or an atomic does, for all writes that
// had ended when it was posted; so does an acknowledged write's end, which is that of the proof
// behind it. Writes are counted as they begin and end, and of those that have ended so many, the
// first ones, are known to have arrived.
//
// A proof is a probe, which the owner's engine answers, or, where the end of a read proves writes
// (RemoteAccess::reads_prove_writes()) and the handle grants reads, a read of the last byte that
// was written, which takes no processor of the owner's.
//
// Beside those of acknowledged writes there is the question: a proof that no write waits for and no
// caller, for who has to know of all writes. One at a time, without a deadline: as long as the
// connection is in use.
//
// Threads: the engine's, but for has_unproven(). Lifetime: a member of its RemoteMemoryCore.
// Invariants: ended <= begun; arrived <= begun.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "core/tally.h"
#include "rpc/memory/remote_operation.h"
#include "transport/connection.h"
#include "transport/engine.h"
#include "transport/local_memory.h"
#include "transport/region.h"

namespace weft {

class WriteProofs {
 public:
  // A write is on its way, or has ended and may not have arrived. Any thread, which sees what it
  // knows to have ended.
  bool has_unproven() const {
    const uint64_t arrived = arrived_;
    std::atomic_thread_fence(std::memory_order_acquire);  // of SetArrived(): read in this order
    return arrived != begun_;
  }

  // --- counting ---------------------------------------------------------------------------------

  // The transport was given a write, and has not carried it out inside the post.
  void OnWriteBegun() { ++begun_; }
  // An atomic or a proof is posted now.
  void SetWhatItProves(RemoteOperation& operation) const { operation.proves = ended_; }
  // The transport is done with a write, or the owner with a proof or an atomic.
  void OnEnded(const RemoteOperation& operation, bool ok) {
    if (operation.kind == RemoteOperation::Kind::kWrite && !operation.proof_asked) {
      ++ended_;
    } else if (ok && arrived_ < operation.proves) {
      SetArrived(operation.proves);
    }
  }
  void OnConnected() { no_reads_ = false; }
  // There is nobody to ask any more: what has not arrived is lost, or is in the socket of an owner
  // who has not seen the end of the connection yet.
  void OnConnectionLost() { SetArrived(begun_); }

  // --- asking -----------------------------------------------------------------------------------

  // Whether Post() may take a read for the proof.
  bool MayRead(Connection& connection) const {
    return connection.memory().reads_prove_writes() && !no_reads_;
  }
  // Posts the proof for `operation`, whose write is over here. `last_byte`: of that write, in the
  // owner's memory, under a lease that holds: for a read that the owner does not grant any more
  // would end the connection (verbs). `into`: a byte of this side. Both null, or the byte cannot be
  // registered: the owner's engine is asked.
  absl::StatusOr<Posted> Post(Connection& connection, const RemoteSpan* last_byte,
                              LocalMemory* into, RemoteOperation& operation);

  // --- the question -----------------------------------------------------------------------------

  // True: it is to be asked now. False: nothing is missing; or it is on its way, and
  // OnQuestionEnded() will say that there is more.
  bool WantsQuestion();
  void OnQuestionBegun(RemoteOperation* operation) { question_ = operation; }
  // True: more may have ended since.
  [[nodiscard]] bool OnQuestionEnded() {
    question_ = nullptr;
    return std::exchange(ask_again_, false);
  }
  RemoteOperation* question() { return question_; }  // null: it is not on its way

 private:
  // Who reads so many arrived sees as many begun at least, and every one that this thread had
  // begun.
  void SetArrived(uint64_t writes) {
    std::atomic_thread_fence(std::memory_order_release);
    arrived_ = writes;
  }

  Tally<uint64_t> begun_;
  uint64_t ended_ = 0;
  Tally<uint64_t> arrived_;
  RemoteOperation* question_ = nullptr;
  bool ask_again_ = false;
  bool no_reads_ = false;  // on this connection: memory for them could not be registered
};

}  // namespace weft
