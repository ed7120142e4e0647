#include "transport/framing/requests.h"

#include <atomic>

#include "core/check.h"
#include "core/process_wide.h"

namespace weft {
namespace {

static_assert(std::atomic_ref<uint64_t>::is_always_lock_free);
static_assert(std::atomic_ref<uint64_t>::required_alignment <= sizeof(uint64_t));

// One answer to everything that is not granted: a peer that guesses learns nothing.
const absl::Status& NotGranted() {
  static constinit ProcessWide<absl::Status> status;
  return status.Get([] {
    return absl::PermissionDeniedError(
        "the peer does not grant this: no region of that key is registered for remote reading and "
        "writing, or the 8 bytes are not inside of it, or not at a multiple of 8");
  });
}

bool IsRequest(RequestKind kind) {
  return kind == RequestKind::kProbe || kind == RequestKind::kFetchAdd ||
         kind == RequestKind::kCompareSwap;
}

}  // namespace

// --- asking -------------------------------------------------------------------------------------

void RequestSender::Asked::Complete(const absl::Status& status, uint64_t before) const {
  if (probe != nullptr) return probe->OnComplete(status);
  atomic->OnComplete(status, before);
}

void RequestSender::Start() {
  WEFT_CHECK(asked_ == answered_);  // Ours: End() has ended them
  asked_ = answered_ = 0;
}

void RequestSender::Ask(Request* request, Operation* probe, AtomicOperation* atomic) {
  WEFT_DCHECK(!full());  // Ours: callers have looked
  request->id = asked_;
  ring_[asked_++ % kMaxRequests] = {probe, atomic};
}

bool RequestSender::OnReply(const Reply& reply) {
  if (asked_ == answered_ || reply.id != answered_) return false;
  const bool done = reply.status == ReplyStatus::kDone;
  if (!done && reply.status != ReplyStatus::kNotGranted) return false;
  if (!done && ring_[answered_ % kMaxRequests].probe != nullptr) return false;
  // What is told may ask again: the place is free before.
  TakeOldest().Complete(done ? absl::OkStatus() : NotGranted(), done ? reply.before : 0);
  return true;
}

void RequestSender::End(const absl::Status& why) {
  while (answered_ != asked_) TakeOldest().Complete(why, 0);
}

// --- answering ----------------------------------------------------------------------------------

void RequestAnswerer::Start(AtomicRegions* regions, AtomicRegions* leased) {
  regions_ = regions;
  leased_ = leased;
  executed_ = replied_ = 0;
}

bool RequestAnswerer::OnRequest(const Request& request) {
  if (request.id != executed_ || executed_ - replied_ == kMaxRequests) return false;
  if (!IsRequest(request.kind)) return false;
  ring_[executed_++ % kMaxRequests] = Execute(request);
  return true;
}

RequestAnswerer::Result RequestAnswerer::Execute(const Request& request) {
  if (request.kind == RequestKind::kProbe) return {};
  uint64_t* const word = Find(request);
  if (word == nullptr) return {0, ReplyStatus::kNotGranted};
  const std::atomic_ref<uint64_t> cell(*word);
  if (request.kind == RequestKind::kFetchAdd) return {cell.fetch_add(request.operand)};
  uint64_t before = request.expected;
  cell.compare_exchange_strong(before, request.operand);
  return {before};
}

uint64_t* RequestAnswerer::Find(const Request& request) const {
  uint64_t* const word = regions_->Find(request.key, request.offset);
  if (word != nullptr || leased_ == nullptr) return word;
  return leased_->Find(request.key, request.offset);
}

bool RequestAnswerer::NextReply(Reply* reply) const {
  if (!has_reply()) return false;
  const Result& result = ring_[replied_ % kMaxRequests];
  *reply = {replied_, result.before, result.status};
  return true;
}

}  // namespace weft
