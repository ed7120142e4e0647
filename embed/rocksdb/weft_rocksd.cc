// weft_rocksd [FOLDER]: serves the files of a folder to RocksDB's weft file system, and lends
// memory to its weft secondary cache (--cache_mib), until SIGINT or SIGTERM.
//
// A kill loses nothing that was synced, and clients go on when it has been started again, at the
// same address. The folder is this process's alone: what others change in it meanwhile, clients may
// not see. What it says and how it ends: embed/server_program.h.
#include <sys/resource.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "core/status.h"
#include "core/strings.h"
#include "embed/rocksdb/cache_service.h"
#include "embed/rocksdb/file_service.h"
#include "embed/rocksdb/lent_files.h"
#include "embed/rocksdb/served_folder.h"
#include "embed/server_program.h"

ABSL_FLAG(bool, read_only, false,
          "refuse everything that writes; several may serve one folder then");
ABSL_FLAG(uint32_t, memory_mib, 1024,
          "memory for files that clients read without this process, in MiB; 0: none");
ABSL_FLAG(uint32_t, cache_mib, 0, "memory to lend to secondary caches, in MiB; 0: none");
ABSL_FLAG(int, threads, weft::embed::FileServiceOptions{}.threads,
          "system calls at once that wait for the disk");

namespace weft::embed {
namespace {

constexpr int kMaxThreads = 256;
constexpr uint32_t kMaxMemoryMib = 4 << 20;

absl::Status Check(const std::vector<std::string>& words) {
  if (words.size() > 1 || (words.empty() && absl::GetFlag(FLAGS_cache_mib) == 0)) {
    return absl::InvalidArgumentError("a folder is needed, or --cache_mib");
  }
  const int threads = absl::GetFlag(FLAGS_threads);
  if (threads < 1 || threads > kMaxThreads) {
    return absl::InvalidArgumentError(StrCat("--threads: 1 to ", kMaxThreads));
  }
  if (absl::GetFlag(FLAGS_memory_mib) <= kMaxMemoryMib &&
      absl::GetFlag(FLAGS_cache_mib) <= kMaxMemoryMib) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(StrCat("--memory_mib and --cache_mib: up to ", kMaxMemoryMib));
}

// A client may have kMaxOpenFiles open: as many descriptors as the system lets us have.
void RaiseDescriptorLimit() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

// Files, memory, or both.
class ServedStorage final : public Served {
 public:
  static absl::StatusOr<std::unique_ptr<Served>> Open(const std::vector<std::string>& words,
                                                      Engine& engine, BufferPool& buffers) {
    RaiseDescriptorLimit();
    auto self = std::make_unique<ServedStorage>();
    if (!words.empty()) {
      WEFT_ASSIGN_OR_RETURN(self->folder_,
                            ServedFolder::Open(words[0], absl::GetFlag(FLAGS_read_only)));
      const uint64_t memory_bytes = uint64_t{absl::GetFlag(FLAGS_memory_mib)} << 20;
      if (memory_bytes > 0) self->lent_ = std::make_unique<LentFiles>(engine, memory_bytes);
      FileServiceOptions options;
      options.threads = absl::GetFlag(FLAGS_threads);
      self->files_ = std::make_unique<FileService>(*self->folder_, self->lent_.get(), engine,
                                                   buffers, options);
    }
    const uint64_t cache_bytes = uint64_t{absl::GetFlag(FLAGS_cache_mib)} << 20;
    if (cache_bytes > 0) self->cache_ = std::make_unique<CacheService>(engine, cache_bytes);
    return self;
  }

  absl::Status AddTo(Server& server) override {
    if (files_ != nullptr) WEFT_RETURN_IF_ERROR(server.AddService(files_.get()));
    return cache_ == nullptr ? absl::OkStatus() : server.AddService(cache_.get());
  }
  void End() override {
    if (files_ != nullptr) files_->EndSessions();
    if (cache_ != nullptr) cache_->EndLoans();
  }

 private:
  std::unique_ptr<ServedFolder> folder_;
  std::unique_ptr<LentFiles> lent_;
  std::unique_ptr<FileService> files_;
  std::unique_ptr<CacheService> cache_;
};

}  // namespace
}  // namespace weft::embed

int main(int argc, char** argv) {
  return weft::embed::RunServerProgram(
      argc, argv,
      {.name = "weft_rocksd",
       .usage = "weft_rocksd [FOLDER]: files for RocksDB's weft file system, and memory "
                "(--cache_mib) for its weft secondary cache (docs/embedding.md)",
       .check = weft::embed::Check,
       .limit = weft::embed::FileService::LimitServer,
       .open = weft::embed::ServedStorage::Open});
}
