// The folder that a file server serves: system calls on names that strangers choose.
//
//   auto folder = ServedFolder::Open("/srv/db", /*read_only=*/false);
//   auto file = folder->OpenFile("db/000007.sst", ServedFolder::Mode::kRead);
//
// A name is walked part by part from the folder's own descriptor, each part opened with O_NOFOLLOW,
// and "..", "." and empty parts are refused; so whatever the name says, and whatever links somebody
// puts into the folder meanwhile, nothing outside of it is reached. (openat2(2) with
// RESOLVE_BENEATH does the same, and is not permitted in many containers.)
//
// epoch() names a period in which nothing of what was written can have been lost: it is made of the
// boot of this host and of the folder. So another process that serves it since the same boot has
// the same one. It becomes another one when the medium refuses to take what had been written: the
// kernel reports that once, and forgets the bytes; all clients must hear of it. (Not covered: a
// process that is killed between that report and its answer to the client.)
//
// Threads: any, several at once; all functions may wait for the medium.
// Lifetime: holds the folder, and a lock on it (flock(2)) that lasts until the last system call of
//   this process on it has ended, also after a kill: nothing that a dead server still writes comes
//   behind its successor's.
// Errors: those of file.proto; what the system says is in the text.
// Invariants: nothing but regular files and folders is opened, and nothing outside of the folder.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/descriptor.h"
#include "weft/bytes.h"

namespace weft::embed {

class ServedFolder {
 public:
  enum class Mode : uint8_t { kRead = 1, kWriteNew = 2, kWriteExisting = 3, kLock = 4 };
  struct Facts {
    uint64_t bytes = 0;
    uint64_t modified_s = 0;  // since 1970
    bool is_folder = false;
    uint64_t links = 0;
    uint64_t identity = 0;    // another file has another one, as long as both are there
    uint64_t free_bytes = 0;  // of the medium; for a user
  };

  struct Listing {
    std::vector<std::string> names;
    bool has_more = false;
  };

  // FAILED_PRECONDITION: another process serves it, and one of both may write. NOT_FOUND,
  // PERMISSION_DENIED: as the system says.
  static absl::StatusOr<std::unique_ptr<ServedFolder>> Open(const std::string& path,
                                                            bool read_only);
  ServedFolder(const ServedFolder&) = delete;
  ServedFolder& operator=(const ServedFolder&) = delete;

  bool read_only() const { return read_only_; }
  // Its files are in memory (tmpfs): nobody waits for a medium, unless the host swaps.
  bool in_memory() const { return in_memory_; }
  uint64_t epoch() const { return epoch_.load(std::memory_order_acquire); }

  // kLock: for reading and writing, created if it is not there, and kept as it is.
  absl::StatusOr<Descriptor> OpenFile(std::string_view name, Mode mode);
  // An empty name is the folder itself.
  absl::StatusOr<Facts> Stat(std::string_view name);
  // The first names in it that are greater than `after`, in order; empty: from the first one on.
  // However many there are, no more than kMaxListedNames and kMaxListedBytes are in memory.
  absl::StatusOr<Listing> List(std::string_view name, std::string_view after = {});
  absl::Status Remove(std::string_view name);
  absl::Status MakeFolder(std::string_view name);
  absl::Status RemoveFolder(std::string_view name);
  absl::Status Rename(std::string_view from, std::string_view to);
  absl::Status Link(std::string_view from, std::string_view to);
  absl::Status Truncate(std::string_view name, uint64_t bytes);
  absl::Status SyncFolder(std::string_view name);

  // --- files that OpenFile() has opened ---------------------------------------------------------

  static absl::StatusOr<Facts> FactsOf(const Descriptor& file);
  // How many bytes there were; fewer than asked for: the file ends there.
  static absl::StatusOr<size_t> Read(const Descriptor& file, uint64_t offset, MutableByteSpan into);
  // The same if it need not wait for the medium. False: it would have to, or the file ends earlier.
  static bool ReadCached(const Descriptor& file, uint64_t offset, MutableByteSpan into);
  // DATA_LOSS: the file ends before `offset`.
  absl::Status WriteAt(const Descriptor& file, uint64_t offset, ByteSpan from);
  // fdatasync(2). After a failure the epoch is another one.
  absl::Status Sync(const Descriptor& file);

 private:
  struct Place {  // a name's folder, and its last part
    Descriptor folder;
    std::string last;
  };

  ServedFolder(Descriptor root, bool read_only, bool in_memory, uint64_t epoch)
      : root_(std::move(root)), read_only_(read_only), in_memory_(in_memory), epoch_(epoch) {}

  absl::StatusOr<Descriptor> OpenFolder(std::string_view name);
  absl::StatusOr<Place> PlaceOf(std::string_view name);
  absl::Status CheckWritable(std::string_view name) const;

  const Descriptor root_;
  const bool read_only_;
  const bool in_memory_;
  std::atomic<uint64_t> epoch_;
};

}  // namespace weft::embed
