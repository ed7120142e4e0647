// The uploads that a server has not finished: files under another name, and which of their chunks
// are there.
//
// They lie in a folder of their own below the shared one, kUploadsFolder, whose name no path may
// begin with. What a killed server has left there is removed when the next one starts; two servers
// of one folder keep each other out.
//
// Threads: any. Lifetime: the root folder outlives it.
// Errors: NOT_FOUND: no such upload (any more). RESOURCE_EXHAUSTED: kMaxUploads.
//   FAILED_PRECONDITION: not complete, or still being written; or another server has the folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/clock.h"
#include "examples/fileshare/atomic_file.h"
#include "examples/fileshare/folder.h"

namespace fileshare {

inline constexpr std::string_view kUploadsFolder = ".fileshare-uploads";
// Bounds descriptors and memory.
inline constexpr size_t kMaxUploads = 256;
// An upload that rests for so long is dropped when the next one begins: its client is gone.
inline constexpr uint64_t kUploadPatienceNs = 60'000'000'000;

class UploadTable {
 public:
  static absl::StatusOr<std::unique_ptr<UploadTable>> Open(const Folder& root,
                                                           const weft::Clock& clock);

  // Returns its number, which nobody can guess.
  absl::StatusOr<uint64_t> Begin(std::string_view path, uint32_t mode, uint64_t bytes);

  // How long that chunk has to be. INVALID_ARGUMENT: the file has no such chunk.
  absl::StatusOr<size_t> BytesOf(uint64_t upload, uint64_t chunk) const;

  // REQUIRES: `bytes` is BytesOf(upload, chunk).
  absl::Status Write(uint64_t upload, uint64_t chunk, const std::byte* from, size_t bytes);

  absl::Status Commit(uint64_t upload);
  void Abort(uint64_t upload);

  // All of it at once.
  absl::Status Put(std::string_view path, uint32_t mode, const std::byte* from, size_t bytes);

 private:
  struct Upload {
    std::string path;
    uint32_t mode = 0;
    uint64_t bytes = 0;
    uint64_t chunks_missing = 0;
    std::vector<bool> written;  // by chunk
    uint32_t writers = 0;       // calls that write now
    std::unique_ptr<AtomicFile> file;
    uint64_t touched_ns = 0;
  };

  UploadTable(const Folder& root, Folder uploads, const weft::Clock& clock);

  absl::Status RemoveLeftovers() const;
  absl::StatusOr<std::shared_ptr<Upload>> FindLocked(uint64_t number) const;
  absl::Status CommitAt(std::string_view path, uint32_t mode, AtomicFile& file) const;
  void DropRestingLocked();

  // Constant after construction.
  const Folder& root_;
  const Folder uploads_folder_;
  const weft::Clock& clock_;

  mutable std::mutex mutex_;
  // Guarded by mutex_, with what is in them but for the file.
  std::map<uint64_t, std::shared_ptr<Upload>> uploads_;
};

}  // namespace fileshare
