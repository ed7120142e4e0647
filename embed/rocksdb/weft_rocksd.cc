// weft_rocksd [FOLDER]: serves the files of a folder to RocksDB's weft file system, and lends
// memory to its weft secondary cache (--cache_mib), until SIGINT or SIGTERM.
//
// Its first line on stdout is "listening on ADDRESS". A kill loses nothing that was synced, and
// clients go on when it has been started again, at the same address. The folder is this process's
// alone: what others change in it meanwhile, clients may not see. Exit status: 0 stopped by
// a signal, 1 could not start, 2 the command line is wrong.
#include <sys/resource.h>

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
#include "embed/rocksdb/cache_service.h"
#include "embed/rocksdb/file_service.h"
#include "embed/rocksdb/lent_files.h"
#include "embed/rocksdb/served_folder.h"
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
ABSL_FLAG(uint32_t, memory_mib, 1024,
          "memory for files that clients read without this process, in MiB; 0: none");
ABSL_FLAG(uint32_t, cache_mib, 0, "memory to lend to secondary caches, in MiB; 0: none");
ABSL_FLAG(int, threads, weft::embed::FileServiceOptions{}.threads,
          "system calls at once that wait for the disk");
ABSL_FLAG(uint32_t, buffer_mib, 256,
          "memory for payloads under way, in MiB; beyond it clients have to wait");
ABSL_FLAG(uint32_t, max_connections, 256, "further clients are refused");
ABSL_FLAG(uint32_t, spin_us, 50,
          "how long to look for work before sleeping; more answers sooner and costs CPU");
ABSL_FLAG(std::string, policy, "",
          "file with rules, who may call what (docs/guide.md): weft.embed.wire.Files/Read ...");

namespace weft::embed {
namespace {

constexpr uint64_t kGraceUs = 5'000'000;  // for what is under way, when it is told to stop
constexpr int kMaxThreads = 256;
constexpr uint32_t kMaxBufferMib = 64 << 10;
constexpr uint32_t kMaxMemoryMib = 4 << 20;

absl::Status CheckFlags() {
  const int threads = absl::GetFlag(FLAGS_threads);
  if (threads < 1 || threads > kMaxThreads) {
    return absl::InvalidArgumentError(StrCat("--threads: 1 to ", kMaxThreads));
  }
  const uint32_t mib = absl::GetFlag(FLAGS_buffer_mib);
  if (mib < 2 || mib > kMaxBufferMib) {
    return absl::InvalidArgumentError(StrCat("--buffer_mib: 2 to ", kMaxBufferMib));
  }
  if (absl::GetFlag(FLAGS_memory_mib) <= kMaxMemoryMib &&
      absl::GetFlag(FLAGS_cache_mib) <= kMaxMemoryMib) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(StrCat("--memory_mib and --cache_mib: up to ", kMaxMemoryMib));
}

absl::StatusOr<ServerOptions> OptionsWith(const std::optional<SecurityOptions>& security,
                                          Authorizer* authorizer) {
  ServerOptions options;
  FileService::LimitServer(&options);
  options.name = "weft_rocksd";
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

// A client may have kMaxOpenFiles open: as many descriptors as the system lets us have.
void RaiseDescriptorLimit() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

// The services that were asked for, on one engine.
struct Services {
  Services(Engine& engine, BufferPool& buffers) : engine(engine), buffers(buffers) {}

  absl::Status Open(const std::string& path) {
    if (!path.empty()) {
      WEFT_ASSIGN_OR_RETURN(folder, ServedFolder::Open(path, absl::GetFlag(FLAGS_read_only)));
      const uint64_t memory_bytes = uint64_t{absl::GetFlag(FLAGS_memory_mib)} << 20;
      if (memory_bytes > 0) lent = std::make_unique<LentFiles>(engine, memory_bytes);
      FileServiceOptions options;
      options.threads = absl::GetFlag(FLAGS_threads);
      files = std::make_unique<FileService>(*folder, lent.get(), engine, buffers, options);
    }
    const uint64_t cache_bytes = uint64_t{absl::GetFlag(FLAGS_cache_mib)} << 20;
    if (cache_bytes > 0) cache = std::make_unique<CacheService>(engine, cache_bytes);
    return absl::OkStatus();
  }
  absl::Status AddTo(Server& server) {
    if (files != nullptr) WEFT_RETURN_IF_ERROR(server.AddService(files.get()));
    return cache == nullptr ? absl::OkStatus() : server.AddService(cache.get());
  }
  // So that the server's Shutdown() need not wait for their streams.
  void End() {
    if (files != nullptr) files->EndSessions();
    if (cache != nullptr) cache->EndLoans();
  }

  Engine& engine;
  BufferPool& buffers;
  std::unique_ptr<ServedFolder> folder;
  std::unique_ptr<LentFiles> lent;
  std::unique_ptr<FileService> files;
  std::unique_ptr<CacheService> cache;
};

absl::Status Serve(const std::string& path, const std::optional<SecurityOptions>& security) {
  sigset_t stop;  // before any thread: all inherit it
  sigemptyset(&stop);
  sigaddset(&stop, SIGINT);
  sigaddset(&stop, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &stop, nullptr);
  RaiseDescriptorLimit();
  WEFT_ASSIGN_OR_RETURN(const auto policy, PolicyOrNone());
  WEFT_ASSIGN_OR_RETURN(const ServerOptions options, OptionsWith(security, policy.get()));
  EngineOptions engine_options;
  engine_options.name = "weft_rocksd";
  engine_options.spin_ns = uint64_t{1000} * absl::GetFlag(FLAGS_spin_us);
  WEFT_ASSIGN_OR_RETURN(const auto engine, OpenNetworkEngine(engine_options));
  BufferPoolOptions pool_options;
  pool_options.max_bytes = uint64_t{absl::GetFlag(FLAGS_buffer_mib)} << 20;
  BufferPool buffers(engine.get(), pool_options);
  Services services(*engine, buffers);
  WEFT_RETURN_IF_ERROR(services.Open(path));
  WEFT_ASSIGN_OR_RETURN(const auto server, Server::Create(*engine, options));
  WEFT_RETURN_IF_ERROR(services.AddTo(*server));
  WEFT_RETURN_IF_ERROR(server->Listen(absl::GetFlag(FLAGS_listen)));
  absl::PrintF("listening on %s\n", server->address());
  std::fflush(stdout);
  int signal = 0;
  while (sigwait(&stop, &signal) != 0) {
  }
  services.End();
  server->Shutdown(kGraceUs);
  const ServerStats stats = server->stats();
  absl::PrintF("served %d requests: %d ok, %d failed; %d broken connections\n", stats.requests,
               stats.replies_ok, stats.replies_failed, stats.protocol_errors);
  return absl::OkStatus();
}

int Report(const absl::Status& status, int code) {
  if (status.ok()) return 0;
  absl::FPrintF(stderr, "weft_rocksd: %s\n", status.ToString());
  return code;
}

int Run(int argc, char** argv) {
  absl::SetProgramUsageMessage(StrCat(
      "weft_rocksd [FOLDER]: files for RocksDB's weft file system, and memory (--cache_mib) for "
      "its weft secondary cache (docs/embedding.md)\n\n",
      kSecurityFlagsHelp));
  const auto security = TakeSecurityFlags(&argc, argv);
  if (!security.ok()) return Report(security.status(), 2);
  const std::vector<char*> words = absl::ParseCommandLine(argc, argv);
  const bool has_folder = words.size() == 2;
  if (words.size() > 2 || (!has_folder && absl::GetFlag(FLAGS_cache_mib) == 0)) {
    absl::FPrintF(stderr, "weft_rocksd: a folder is needed, or --cache_mib (weft_rocksd --help)\n");
    return 2;
  }
  if (const int wrong = Report(CheckFlags(), 2); wrong != 0) return wrong;
  return Report(Serve(has_folder ? words[1] : "", *security), 1);
}

}  // namespace
}  // namespace weft::embed

int main(int argc, char** argv) { return weft::embed::Run(argc, argv); }
