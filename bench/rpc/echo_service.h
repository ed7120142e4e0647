// Echo, as its programs serve it.
//
// Threads: the engine's that serves it.
#pragma once

#include "absl/status/status.h"
#include "bench/rpc/echo.pb.h"
#include "bench/rpc/echo.weft.h"
#include "rpc/server/server_context.h"

namespace weft::bench::rpc {

class EchoService final : public Echo::LayoutService {
 public:
  absl::Status Call(ServerContext&, const EchoMessage& request, EchoMessage* reply) override {
    reply->set_payload(request.payload());
    return absl::OkStatus();
  }
  absl::Status CallStruct(ServerContext&, const EchoRecordLayout& request,
                          EchoRecordLayout* reply) override {
    reply->payload = request.payload;
    return absl::OkStatus();
  }
};

}  // namespace weft::bench::rpc
