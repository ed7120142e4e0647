// weft_blockd FILE: serves a file or a block device to nbdkit's weft plugin, until SIGINT or
// SIGTERM.
//
// A program of its own beside its client: tools/ knows nothing of embed/, and the protocol belongs
// to both. Its first line on stdout is "listening on ADDRESS". A kill loses nothing that was
// flushed, and clients go on when it has been started again, at the same address. Exit status: 0
// stopped by a signal, 1 could not start, 2 the command line is wrong.
#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/str_format.h"
#include "core/status.h"
#include "core/strings.h"
#include "embed/nbdkit/block_device.h"
#include "embed/nbdkit/block_service.h"
#include "transport/buffer_pool.h"
#include "weft/authorization.h"
#include "weft/engine.h"
#include "weft/path.h"
#include "weft/security.h"
#include "weft/server.h"

ABSL_FLAG(std::string, listen, "127.0.0.1:0",
          "address to serve at: host:port, [v6]:port or unix:/path; port 0: any free one");
ABSL_FLAG(std::string, paths, "",
          "paths that clients may use: shm,tcp; empty: WEFT_PATHS or all there are");
ABSL_FLAG(bool, read_only, false, "refuse everything that writes; several may serve one file then");
ABSL_FLAG(int, threads, weft::embed::BlockService::kDefaultThreads,
          "system calls at once that wait for the disk");
ABSL_FLAG(uint32_t, buffer_mib, weft::embed::BlockService::kDefaultBufferBytes >> 20,
          "memory for payloads under way, in MiB; beyond it clients have to wait");
ABSL_FLAG(uint32_t, max_connections, 256, "further clients are refused");
ABSL_FLAG(uint32_t, spin_us, 50,
          "how long to look for work before sleeping; more answers sooner and costs CPU");
ABSL_FLAG(std::string, policy, "",
          "file with rules, who may call what (docs/guide.md): weft.embed.wire.Block/Read ...");

namespace weft::embed {
namespace {

constexpr uint64_t kGraceUs = 5'000'000;  // for what is under way, when it is told to stop
constexpr int kMaxThreads = 256;
constexpr uint32_t kMaxBufferMib = 64 << 10;

absl::Status CheckFlags() {
  const int threads = absl::GetFlag(FLAGS_threads);
  if (threads < 1 || threads > kMaxThreads) {
    return absl::InvalidArgumentError(StrCat("--threads: 1 to ", kMaxThreads));
  }
  const uint32_t mib = absl::GetFlag(FLAGS_buffer_mib);
  if (mib >= 2 && mib <= kMaxBufferMib) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat("--buffer_mib: 2 to ", kMaxBufferMib));
}

absl::StatusOr<ServerOptions> OptionsWith(const std::optional<SecurityOptions>& security,
                                          Authorizer* authorizer) {
  ServerOptions options;
  BlockService::LimitServer(&options);
  options.name = "weft_blockd";
  options.security = security;
  options.authorizer = authorizer;
  options.max_connections = absl::GetFlag(FLAGS_max_connections);
  const std::string paths = absl::GetFlag(FLAGS_paths);
  if (!paths.empty()) {
    WEFT_ASSIGN_OR_RETURN(options.link.paths, ParsePathList(paths));
  }
  return options;
}

absl::StatusOr<std::unique_ptr<PolicyFile>> PolicyOrNone() {
  const std::string file = absl::GetFlag(FLAGS_policy);
  if (file.empty()) return std::unique_ptr<PolicyFile>();
  return PolicyFile::Open(file);
}

absl::Status Serve(const std::string& path, const std::optional<SecurityOptions>& security) {
  sigset_t stop;  // before any thread: all inherit it
  sigemptyset(&stop);
  sigaddset(&stop, SIGINT);
  sigaddset(&stop, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &stop, nullptr);
  WEFT_ASSIGN_OR_RETURN(const auto device, BlockDevice::Open(path, absl::GetFlag(FLAGS_read_only)));
  WEFT_ASSIGN_OR_RETURN(const auto policy, PolicyOrNone());
  WEFT_ASSIGN_OR_RETURN(const ServerOptions options, OptionsWith(security, policy.get()));
  EngineOptions engine_options;
  engine_options.name = "weft_blockd";
  engine_options.spin_ns = uint64_t{1000} * absl::GetFlag(FLAGS_spin_us);
  WEFT_ASSIGN_OR_RETURN(const auto engine, OpenNetworkEngine(engine_options));
  BufferPoolOptions pool_options;
  pool_options.max_bytes = uint64_t{absl::GetFlag(FLAGS_buffer_mib)} << 20;
  BufferPool buffers(engine.get(), pool_options);
  BlockService service(*device, *engine, buffers, absl::GetFlag(FLAGS_threads));
  WEFT_ASSIGN_OR_RETURN(const auto server, Server::Create(*engine, options));
  WEFT_RETURN_IF_ERROR(server->AddService(&service));
  WEFT_RETURN_IF_ERROR(server->Listen(absl::GetFlag(FLAGS_listen)));
  absl::PrintF("listening on %s\n", server->address());
  std::fflush(stdout);
  int signal = 0;
  while (sigwait(&stop, &signal) != 0) {
  }
  service.EndSessions();
  server->Shutdown(kGraceUs);
  const ServerStats stats = server->stats();
  absl::PrintF("served %d requests: %d ok, %d failed; %d broken connections\n", stats.requests,
               stats.replies_ok, stats.replies_failed, stats.protocol_errors);
  return absl::OkStatus();
}

int Report(const absl::Status& status, int code) {
  if (status.ok()) return 0;
  absl::FPrintF(stderr, "weft_blockd: %s\n", status.ToString());
  return code;
}

int Run(int argc, char** argv) {
  absl::SetProgramUsageMessage(StrCat(
      "weft_blockd FILE: a file or block device for nbdkit's weft plugin (docs/embedding.md)\n\n",
      kSecurityFlagsHelp));
  const auto security = TakeSecurityFlags(&argc, argv);
  if (!security.ok()) return Report(security.status(), 2);
  const std::vector<char*> words = absl::ParseCommandLine(argc, argv);
  if (words.size() != 2) {
    absl::FPrintF(stderr, "weft_blockd: one file is needed (weft_blockd --help)\n");
    return 2;
  }
  if (const int wrong = Report(CheckFlags(), 2); wrong != 0) return wrong;
  return Report(Serve(words[1], *security), 1);
}

}  // namespace
}  // namespace weft::embed

int main(int argc, char** argv) { return weft::embed::Run(argc, argv); }
