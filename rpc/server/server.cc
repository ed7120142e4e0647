#include "rpc/server/server.h"

#include <utility>

#include "core/status.h"
#include "core/strings.h"
#include "rpc/server/admission.h"
#include "rpc/server/server_core.h"
#include "rpc/wire/peer_frame.h"
#include "rpc/wire/stream_frame.h"

namespace weft {
namespace {

// Bounds of options. Less than 64 KiB would take clients for slow that are not; less than 100 ms
// would take a scheduler's hiccup for that.
constexpr uint64_t kFewestUnsentReplyBytes = uint64_t{64} << 10;
constexpr uint64_t kShortestReplyTimeoutUs = 100'000;
constexpr uint64_t kLongestReplyTimeoutUs = 3'600'000'000;

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Create(Engine& engine,
                                                       const ServerOptions& options) {
  return Make(nullptr, CoreOf(engine), options);
}

absl::StatusOr<std::unique_ptr<Server>> Server::Make(std::unique_ptr<Engine> own_engine,
                                                     EngineCore& engine,
                                                     const ServerOptions& options) {
  if (options.max_outstanding_calls < 1 || options.max_outstanding_calls > kMaxOutstandingCalls) {
    return absl::InvalidArgumentError(StrCat("ServerOptions::max_outstanding_calls is ",
                                             options.max_outstanding_calls, "; 1 to ",
                                             kMaxOutstandingCalls, " are allowed"));
  }
  if (!options.peer_id.empty()) {
    WEFT_RETURN_IF_ERROR(CheckPeerId("ServerOptions::peer_id", options.peer_id));
  }
  if (options.interceptors.size() > kMaxInterceptors) {
    return absl::InvalidArgumentError(StrCat("ServerOptions::interceptors are ",
                                             options.interceptors.size(), "; ", kMaxInterceptors,
                                             " are allowed"));
  }
  if (options.session_lease_us < kShortestSessionLeaseUs ||
      options.session_lease_us > kLongestSessionLeaseUs) {
    return absl::InvalidArgumentError(
        StrCat("ServerOptions::session_lease_us is ", options.session_lease_us, "; ",
               kShortestSessionLeaseUs, " to ", kLongestSessionLeaseUs, " are allowed"));
  }
  if (options.max_unsent_reply_bytes < kFewestUnsentReplyBytes) {
    return absl::InvalidArgumentError(StrCat("ServerOptions::max_unsent_reply_bytes is ",
                                             options.max_unsent_reply_bytes, "; ",
                                             kFewestUnsentReplyBytes, " or more are allowed"));
  }
  if (options.reply_timeout_us != 0 && (options.reply_timeout_us < kShortestReplyTimeoutUs ||
                                        options.reply_timeout_us > kLongestReplyTimeoutUs)) {
    return absl::InvalidArgumentError(
        StrCat("ServerOptions::reply_timeout_us is ", options.reply_timeout_us, "; 0 or ",
               kShortestReplyTimeoutUs, " to ", kLongestReplyTimeoutUs, " are allowed"));
  }
  WEFT_RETURN_IF_ERROR(Admission::Check(options.limits));
  WEFT_RETURN_IF_ERROR(CheckStreamOptions("ServerOptions", options.max_streams,
                                          options.stream_window_messages,
                                          options.stream_window_bytes));
  return std::unique_ptr<Server>(
      new Server(std::move(own_engine), std::make_unique<ServerCore>(engine, options)));
}

Server::Server(std::unique_ptr<Engine> own_engine, std::unique_ptr<ServerCore> core)
    : own_engine_(std::move(own_engine)),
      buffers_(std::make_unique<BufferPool>(&core->engine(), core->options().buffers)),
      core_(std::move(core)) {}

Server::~Server() = default;

absl::Status Server::AddService(Service* service, Executor* executor) {
  return core_->AddService(service, executor);
}
absl::Status Server::Listen(const std::string& address) { return core_->Listen(address); }
std::string Server::address() const { return core_->address(); }
void Server::Wait() { core_->Wait(); }
void Server::Shutdown(uint64_t grace_us) { core_->Shutdown(grace_us); }
absl::StatusOr<std::unique_ptr<Buffer>> Server::AllocateBuffer(size_t bytes) {
  return buffers_->Allocate(bytes);
}
absl::StatusOr<std::unique_ptr<ExportedMemory>> Server::Export(MutableByteSpan memory,
                                                               const ExportOptions& options) {
  return ExportedMemory::Create(core_->engine(), memory, options);
}
absl::StatusOr<std::unique_ptr<ExportedMemory>> Server::AllocateExport(
    size_t bytes, const ExportOptions& options, const MappedMemoryOptions& memory) {
  return ExportedMemory::Allocate(core_->engine(), bytes, options, memory);
}
Engine& Server::engine() { return core_->engine(); }

ServerStats Server::stats() { return core_->ReadStats(); }

}  // namespace weft
