// The Perf service with memory: what clients read and write in place, and fetch as bulk.
//
// Threads: the engine's that serves it; Prepare() and GiveMemoryBack() while nothing is served.
// Lifetime: GiveMemoryBack() before the server goes.
// Errors: INVALID_ARGUMENT to who fetches more than there is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "bench/perf/cell/places.h"
#include "bench/perf/ends/echo_service.h"
#include "core/status.h"
#include "rpc/server/exported_memory.h"
#include "rpc/server/server.h"
#include "rpc/server/server_bulk.h"
#include "transport/buffer.h"

namespace weft::bench {

class LendingService : public EchoService {
 public:
  // REQUIRES: called once, before the first call.
  absl::Status Prepare(Server& server, uint32_t bytes) {
    WEFT_ASSIGN_OR_RETURN(buffer_, server.AllocateBuffer(bytes));
    for (std::byte& byte : buffer_->bytes()) byte = std::byte{1};  // touches every page
    ExportOptions options;
    options.rights = kMayRead | kMayWrite;
    WEFT_ASSIGN_OR_RETURN(exported_, server.Export(buffer_->bytes(), options));
    places_ = Places(bytes);
    return absl::OkStatus();
  }
  void GiveMemoryBack() {
    exported_.reset();
    buffer_.reset();
  }

  absl::Status Lend(ServerContext&, const LendRequest&, LendReply* reply) override {
    if (exported_ == nullptr) return absl::FailedPreconditionError("this server lends no memory");
    *reply->mutable_memory() = exported_->handle();
    return absl::OkStatus();
  }
  // The reply leaves when the bytes are there.
  absl::Status Fetch(ServerContext& context, const FetchRequest& request,
                     FetchReply* reply) override {
    if (buffer_ == nullptr || request.bytes() > buffer_->bytes().size()) {
      return absl::InvalidArgumentError("larger than the region");
    }
    const size_t offset = places_.Next(request.bytes());
    BulkOptions options;
    options.crc32c = request.with_crc32c();
    context.bulk().Push(buffer_->slice(offset, request.bytes()), reply->mutable_data(), options,
                        nullptr);
    return absl::OkStatus();
  }

 private:
  std::unique_ptr<Buffer> buffer_;
  std::unique_ptr<ExportedMemory> exported_;
  Places places_;
};

}  // namespace weft::bench
