// fileshare_server: serves the files below a folder, until SIGINT or SIGTERM.
//
// Its first line on stdout is "listening on ADDRESS". Whoever may connect may read, and write
// unless
// --read_only, whatever this process's user may below that folder: those who have a certificate
// with
// --tls-*, and without it everybody, so serve loopback and networks that you trust. Exit status: 0
// stopped by a signal, 1 could not start, 2 the command line is wrong.
#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/str_format.h"
#include "core/clock.h"
#include "core/status.h"
#include "core/strings.h"
#include "examples/fileshare/fileshare_service.h"
#include "examples/fileshare/folder.h"
#include "examples/fileshare/upload_table.h"
#include "examples/process/stop_signal.h"
#include "examples/process/thread_pool.h"
#include "transport/buffer_pool.h"
#include "weft/engine.h"
#include "weft/path.h"
#include "weft/security.h"
#include "weft/server.h"

ABSL_FLAG(std::string, root, "", "folder whose files are served");
ABSL_FLAG(std::string, listen, "127.0.0.1:0",
          "address to serve at: host:port, [v6]:port or unix:/path; port 0: any free one");
ABSL_FLAG(std::string, paths, "", "paths that clients may use: shm,tcp; empty: all there are");
ABSL_FLAG(bool, read_only, false, "refuse everything that writes");
ABSL_FLAG(int, threads, 4, "handlers at once: each waits for the disk, then for its transfer");

namespace fileshare {
namespace {

constexpr uint64_t kGraceUs = 1'000'000;  // for running calls, when it is told to stop
constexpr int kMaxThreads = 64;

absl::Status CheckFlags() {
  if (absl::GetFlag(FLAGS_root).empty()) {
    return absl::InvalidArgumentError("--root is missing: the folder to serve");
  }
  const int threads = absl::GetFlag(FLAGS_threads);
  if (threads >= 1 && threads <= kMaxThreads) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("--threads: 1 to %d", kMaxThreads));
}

using Security = std::optional<weft::SecurityOptions>;

absl::StatusOr<weft::ServerOptions> OptionsWith(weft::Executor* executor,
                                                const Security& security) {
  weft::ServerOptions options;
  options.security = security;
  options.name = "fileshare_server";
  options.executor = executor;
  const std::string paths = absl::GetFlag(FLAGS_paths);
  if (!paths.empty()) {
    WEFT_ASSIGN_OR_RETURN(options.link.paths, weft::ParsePathList(paths));
  }
  return options;
}

absl::StatusOr<std::unique_ptr<UploadTable>> UploadsFor(const Folder& root) {
  if (absl::GetFlag(FLAGS_read_only)) return std::unique_ptr<UploadTable>();
  return UploadTable::Open(root, weft::Clock::Real());
}

absl::Status Serve(const Security& security) {
  examples::StopSignal stop;  // before the server: before any thread
  WEFT_ASSIGN_OR_RETURN(const Folder root, Folder::Open(absl::GetFlag(FLAGS_root)));
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<UploadTable> uploads, UploadsFor(root));
  examples::ThreadPool threads(absl::GetFlag(FLAGS_threads));
  WEFT_ASSIGN_OR_RETURN(const weft::ServerOptions options, OptionsWith(&threads, security));
  WEFT_ASSIGN_OR_RETURN(const auto engine, weft::OpenNetworkEngine({}));
  weft::BufferPool buffers(engine.get());
  FileShareService service(root, uploads.get(), &buffers);
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<weft::Server> server,
                        weft::Server::Create(*engine, options));
  WEFT_RETURN_IF_ERROR(server->AddService(&service));
  WEFT_RETURN_IF_ERROR(server->Listen(absl::GetFlag(FLAGS_listen)));
  absl::PrintF("listening on %s\n", server->address());
  std::fflush(stdout);
  stop.Wait();
  server->Shutdown(kGraceUs);
  const weft::ServerStats stats = server->stats();
  absl::PrintF("served %d requests: %d ok, %d failed; %d broken connections\n", stats.requests,
               stats.replies_ok, stats.replies_failed, stats.protocol_errors);
  return absl::OkStatus();
}

int Report(const absl::Status& status, int code) {
  if (status.ok()) return 0;
  absl::FPrintF(stderr, "fileshare_server: %s\n", status.ToString());
  return code;
}

}  // namespace
}  // namespace fileshare

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      weft::StrCat("fileshare_server --root=FOLDER: files over Weft (examples/README.md)\n\n",
                   weft::kSecurityFlagsHelp));
  const auto security = weft::TakeSecurityFlags(&argc, argv);
  if (!security.ok()) return fileshare::Report(security.status(), 2);
  if (absl::ParseCommandLine(argc, argv).size() > 1) {
    absl::FPrintF(stderr, "fileshare_server: takes flags only (fileshare_server --help)\n");
    return 2;
  }
  if (const int wrong = fileshare::Report(fileshare::CheckFlags(), 2); wrong != 0) return wrong;
  return fileshare::Report(fileshare::Serve(*security), 1);
}
