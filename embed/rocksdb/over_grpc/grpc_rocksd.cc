// grpc_rocksd FOLDER: as weft_rocksd, over gRPC, to compare with (grpc_file_server.h). It says
// "listening on ADDRESS", and ends by SIGINT or SIGTERM. Status 1: it could not start; 2: the
// command line is wrong.
#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/str_format.h"
#include "core/status.h"
#include "core/strings.h"
#include "embed/rocksdb/over_grpc/grpc_file_server.h"
#include "embed/rocksdb/served_folder.h"

ABSL_FLAG(std::string, listen, weft::embed::GrpcFileServer::Options{}.address,
          "address to serve at: host:port; port 0: any free one");
ABSL_FLAG(int, threads, weft::embed::GrpcFileServer::Options{}.threads,
          "system calls at once that wait for the disk, 1 to 256");
ABSL_FLAG(uint32_t, spin_us, 50, "how long to look for work before sleeping");

namespace weft::embed {
namespace {

absl::Status Serve(const std::string& path) {
  sigset_t stop;  // before any thread: all inherit it
  sigemptyset(&stop);
  sigaddset(&stop, SIGINT);
  sigaddset(&stop, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &stop, nullptr);
  WEFT_ASSIGN_OR_RETURN(const auto folder, ServedFolder::Open(path, /*read_only=*/false));
  GrpcFileServer::Options options;
  options.address = absl::GetFlag(FLAGS_listen);
  options.threads = absl::GetFlag(FLAGS_threads);
  options.spin_ns = uint64_t{1000} * absl::GetFlag(FLAGS_spin_us);
  WEFT_ASSIGN_OR_RETURN(const auto server, GrpcFileServer::Start(*folder, options));
  absl::PrintF("listening on %s\n", server->address());
  std::fflush(stdout);
  int signal = 0;
  while (sigwait(&stop, &signal) != 0) {
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace weft::embed

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("grpc_rocksd FOLDER: files for RocksDB, over gRPC, to compare with");
  const std::vector<char*> words = absl::ParseCommandLine(argc, argv);
  const int threads = absl::GetFlag(FLAGS_threads);
  if (words.size() != 2 || threads < 1 || threads > 256) {
    absl::FPrintF(stderr, "grpc_rocksd: one folder is needed, and --threads: 1 to 256 (--help)\n");
    return 2;
  }
  const absl::Status status = weft::embed::Serve(words[1]);
  if (status.ok()) return 0;
  absl::FPrintF(stderr, "grpc_rocksd: %s\n", status.ToString());
  return 1;
}
