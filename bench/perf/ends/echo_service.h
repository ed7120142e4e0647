// The Perf service as far as it needs no memory: Echo, and EndRun, by which a client tells a server
// that polls on command to stop.
//
// Threads: the engine's that serves it.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "bench/perf/ends/perf.pb.h"
#include "bench/perf/ends/perf.weft.h"
#include "rpc/server/server_context.h"

namespace weft::bench {

class EchoService : public Perf::Service {
 public:
  absl::Status Echo(ServerContext&, const EchoMessage& request, EchoMessage* reply) override {
    reply->set_payload(request.payload());
    return absl::OkStatus();
  }
  absl::Status EndRun(ServerContext&, const EndRunMessage&, EndRunMessage*) override {
    over_ = true;
    return absl::OkStatus();
  }

  // Whether a run has ended since this was asked last.
  bool TakeOver() { return std::exchange(over_, false); }

 private:
  bool over_ = false;
};

}  // namespace weft::bench
