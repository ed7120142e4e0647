#include "bench/perf/ends/aes_ends.h"

#include <string>

#include "absl/status/status.h"
#include "bench/machine/aead.h"
#include "bench/perf/ends/pipe.h"
#include "bench/perf/ends/run_clock.h"
#include "core/status.h"

namespace weft::bench {
namespace {

class AesClient final : public ClientEnd {
 public:
  explicit AesClient(const WorkloadOptions& options) : peer_fd_(options.peer_fd) {}

  absl::StatusOr<Figures> Run(const Cell& cell, double seconds) override {
    RateCounter rate(seconds, /*outstanding=*/1);
    while (rate.Continue()) {
      for (uint32_t sealed = 0; sealed < cell.bytes; sealed += Aead::kRecordBytes) {
        if (!aead_.SealRecord()) return absl::InternalError("OpenSSL does not seal");
      }
      rate.Add(1);
    }
    Figures figures;
    figures.per_s = rate.PerSecond();
    WEFT_RETURN_IF_ERROR(WriteLine(peer_fd_, "over"));
    return figures;
  }

 private:
  const int peer_fd_;
  Aead aead_;
};

class AesServer final : public ServerEnd {
 public:
  explicit AesServer(const WorkloadOptions& options) : peer_fd_(options.peer_fd) {}

  absl::Status Serve(const Cell&) override { return ReadLine(peer_fd_).status(); }

 private:
  const int peer_fd_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ClientEnd>> OpenAesClient(const WorkloadOptions& options) {
  return std::unique_ptr<ClientEnd>(std::make_unique<AesClient>(options));
}

absl::StatusOr<std::unique_ptr<ServerEnd>> OpenAesServer(const WorkloadOptions& options) {
  return std::unique_ptr<ServerEnd>(std::make_unique<AesServer>(options));
}

}  // namespace weft::bench
