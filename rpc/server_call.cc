#include "rpc/server_call.h"

#include <utility>

#include "core/strings.h"
#include "rpc/generated.h"
#include "rpc/server_connection.h"
#include "rpc/server_core.h"

namespace weft {
namespace {

// The arena's own first block: both messages of most methods, without a heap block.
constexpr size_t kFirstBlockBytes = 1024;

// What a free slot may keep for its next call, in bytes of encoded messages and of arena. Higher
// saves allocations of larger calls, and costs up to twice this for each slot that was ever used.
constexpr size_t kKeepBytes = 16 << 10;

}  // namespace

void ServerCall::Finish(absl::Status status) {
  ServerCore& core = connection_->core();
  if (core.engine().OnEngine()) return connection_->Complete(*this, std::move(status));
  status_ = std::move(status);
  core.FinishElsewhere(this);
}

void ServerCall::CompleteHandedOver() { connection_->Complete(*this, std::move(status_)); }

void ServerCall::FinishDropped() {
  Finish(absl::InternalError(StrCat("the handler of ", method().name, " dropped the call")));
}

void ServerCall::PrepareMessages(const MethodDescriptor& method) {
  method_ = &method;
  if (messages_of_ == &method) {
    reply_->Clear();  // parsing clears the request
    return;
  }
  if (arena_) {
    arena_->Reset();
  } else {
    first_block_.reset(new char[kFirstBlockBytes]);
    google::protobuf::ArenaOptions options;
    options.initial_block = first_block_.get();
    options.initial_block_size = kFirstBlockBytes;
    arena_.emplace(options);
  }
  method.make_messages(&*arena_, &request_, &reply_);
  messages_of_ = &method;
}

void ServerCall::Trim() {
  if (messages_of_ == nullptr) return;
  if (request_bytes_ <= kKeepBytes && reply_bytes_ <= kKeepBytes &&
      arena_->SpaceAllocated() <= kKeepBytes) {
    return;
  }
  arena_->Reset();
  messages_of_ = nullptr;
}

void ServerCall::Attach(ServerConnection* connection, const Clock* clock, const PathInfo* path) {
  connection_ = connection;
  clock_ = clock;
  path_ = path;
}

ServerBulk& ServerContext::bulk() {
  auto& call = static_cast<ServerCall&>(*this);
  if (call.bulk_ == nullptr) {
    call.bulk_ = std::make_unique<ServerBulk>(call.connection_, &call);
  }
  return *call.bulk_;
}

void ServerCall::TakeWindows(std::span<const Window> windows) {
  has_windows_ = true;
  bulk().Begin(windows);
}

void ServerCall::Begin(CallId id) {
  id_ = id;
  used_ = true;
  state_ = State::kRunning;
  request_bytes_ = 0;
  reply_bytes_ = 0;
  has_windows_ = released_ = false;
  if (bulk_ != nullptr) bulk_->Begin({});
  cancelled_.store(early_cancel_ != 0 && early_cancel_ == id.generation, std::memory_order_relaxed);
  early_cancel_ = 0;
}

absl::Status ServerCall::StartClock(uint32_t remaining_us, uint64_t arrived_ns) {
  if (remaining_us == 0) {
    deadline_ns_ = kNever;
    return absl::OkStatus();
  }
  deadline_ns_ = arrived_ns + remaining_us * kNsPerUs;
  if (clock_->NowNs() < deadline_ns_) return absl::OkStatus();
  return absl::DeadlineExceededError("the call expired before its handler could run");
}

void ServerCall::Cancel(uint32_t generation) {
  if (state_ == State::kFree) {
    early_cancel_ = generation;
  } else if (generation == id_.generation) {
    cancelled_.store(true, std::memory_order_relaxed);
    if (has_windows_) connection_->TakeBack(*this);
  }
}

void ServerCall::End() {
  state_ = State::kFree;
  status_ = absl::OkStatus();
  Trim();
}

namespace internal {

absl::Status NotImplemented(const ServerContext& context) {
  return absl::UnimplementedError(
      StrCat("method ", context.method().name, " (", context.method().request_type, " to ",
             context.method().reply_type, ") is not implemented by this server"));
}

}  // namespace internal
}  // namespace weft
