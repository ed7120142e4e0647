#include "rpc/server_call.h"

#include <utility>

#include "core/strings.h"
#include "rpc/generated.h"
#include "rpc/method_layouts.h"
#include "rpc/server_connection.h"
#include "rpc/server_core.h"

namespace weft {
namespace {

// The arena's own first block: both messages of most methods, without a heap block.
constexpr size_t kFirstBlockBytes = 1024;

}  // namespace

void ServerCall::FinishElsewhere(absl::Status status) {
  status_ = std::move(status);
  connection_->core().FinishElsewhere(this);
}

void ServerCall::CompleteHandedOver() { connection_->Complete(*this, std::move(status_)); }

void ServerCall::FinishDropped() {
  Finish(absl::InternalError(StrCat("the handler of ", method().name, " dropped the call")));
}

void ServerCall::MakeMessages(const MethodDescriptor& method) {
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

bool ServerCall::DecodeLayouts(const MethodDescriptor& method, ByteSpan body) {
  method_ = &method;
  if (messages_of_ == &method) [[likely]] {
    ClearBody(method.layouts->reply, reply_);
  } else {
    MakeMessages(method);
  }
  return DecodeBody(method.layouts->request, body, request_);
}

void ServerCall::Trim() {
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

void ServerCall::Cancel(uint32_t generation) {
  if (state_ == State::kFree) {
    early_cancel_ = generation;
  } else if (generation == id_.generation) {
    cancelled_.store(true, std::memory_order_relaxed);
    if (has_windows_) connection_->TakeBack(*this);
  }
}

namespace internal {

absl::Status NotImplemented(const ServerContext& context) {
  return absl::UnimplementedError(
      StrCat("method ", context.method().name, " (", context.method().request_type, " to ",
             context.method().reply_type, ") is not implemented by this server"));
}

}  // namespace internal
}  // namespace weft
