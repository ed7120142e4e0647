// weft_blockd FILE: serves a file or a block device to nbdkit's weft plugin, until SIGINT or
// SIGTERM.
//
// A program of its own beside its client: tools/ knows nothing of embed/, and the protocol belongs
// to both. A kill loses nothing that was flushed, and clients go on when it has been started again,
// at the same address. What it says and how it ends: embed/server_program.h.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "core/status.h"
#include "core/strings.h"
#include "embed/nbdkit/block_device.h"
#include "embed/nbdkit/block_service.h"
#include "embed/server_program.h"

ABSL_FLAG(bool, read_only, false, "refuse everything that writes; several may serve one file then");
ABSL_FLAG(
    int, threads, weft::embed::BlockService::kDefaultThreads,
    "system calls at once that wait for the disk, but for what trims and zeroes: that is one");

namespace weft::embed {
namespace {

constexpr int kMaxThreads = 256;

class ServedDevice final : public Served {
 public:
  ServedDevice(std::unique_ptr<BlockDevice> device, Engine& engine, BufferPool& buffers)
      : device_(std::move(device)),
        service_(*device_, engine, buffers, absl::GetFlag(FLAGS_threads)) {}
  absl::Status AddTo(Server& server) override { return server.AddService(&service_); }
  void End() override { service_.EndSessions(); }

 private:
  const std::unique_ptr<BlockDevice> device_;
  BlockService service_;
};

absl::Status Check(const std::vector<std::string>& words) {
  if (words.size() != 1) return absl::InvalidArgumentError("one file is needed");
  const int threads = absl::GetFlag(FLAGS_threads);
  if (threads >= 1 && threads <= kMaxThreads) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat("--threads: 1 to ", kMaxThreads));
}

absl::StatusOr<std::unique_ptr<Served>> Open(const std::vector<std::string>& words, Engine& engine,
                                             BufferPool& buffers) {
  WEFT_ASSIGN_OR_RETURN(auto device, BlockDevice::Open(words[0], absl::GetFlag(FLAGS_read_only)));
  return std::make_unique<ServedDevice>(std::move(device), engine, buffers);
}

}  // namespace
}  // namespace weft::embed

int main(int argc, char** argv) {
  return weft::embed::RunServerProgram(
      argc, argv,
      {.name = "weft_blockd",
       .usage = "weft_blockd FILE: a file or block device for nbdkit's weft plugin "
                "(docs/embedding.md)",
       .check = weft::embed::Check,
       .limit = weft::embed::BlockService::LimitServer,
       .open = weft::embed::Open});
}
