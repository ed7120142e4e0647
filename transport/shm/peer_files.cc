#include "transport/shm/peer_files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "core/process_wide.h"
#include "core/strings.h"
#include "transport/descriptor.h"
#include "transport/huge_mapping.h"

#ifndef MFD_HUGETLB
#define MFD_HUGETLB 0x0004U
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace weft {
namespace {

std::string PathOf(int32_t process_id, int descriptor) {
  return StrCat("/proc/", process_id, "/fd/", descriptor);
}

bool IsFileOfIdentity(const std::string& path, uint64_t identity) {
  char link[64];
  const ssize_t length = readlink(path.c_str(), link, sizeof(link));
  return length > 0 &&
         std::string_view(link, static_cast<size_t>(length)) == MemoryFile::LinkOf(identity);
}

// What the kernel knows of a file by itself. (To ask its file system could take for ever: it may be
// a process of the peer's.)
struct Facts {
  uint64_t device = 0;
  uint32_t mode = 0;
  uint32_t user = 0;
};
std::optional<Facts> KnownFacts(int descriptor) {
  struct statx facts;
  if (statx(descriptor, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE | STATX_UID, &facts) !=
      0) {
    return std::nullopt;
  }
  return Facts{makedev(facts.stx_dev_major, facts.stx_dev_minor), facts.stx_mode, facts.stx_uid};
}

// The file system that files in memory are of: of huge pages, or not. 0: there is none.
uint64_t DeviceOfMemory(bool huge) {
  const Descriptor file(memfd_create("weft-device", MFD_CLOEXEC | (huge ? MFD_HUGETLB : 0)));
  const std::optional<Facts> facts = file.valid() ? KnownFacts(file.get()) : std::nullopt;
  return facts.has_value() ? facts->device : 0;
}

enum class Pages : uint8_t { kNone = 1, kSmall = 2, kHuge = 3 };

// Of a descriptor that was opened as a path only, so that nothing has happened to the file yet.
// kNone: it is no file in memory, or another user's.
Pages PagesOf(int path_descriptor) {
  struct Devices {
    uint64_t small_pages = DeviceOfMemory(/*huge=*/false);
    uint64_t huge_pages = DeviceOfMemory(/*huge=*/true);
  };
  static constinit ProcessWide<Devices> devices;
  const auto& [small_pages, huge_pages] = devices.Get();
  const std::optional<Facts> facts = KnownFacts(path_descriptor);
  if (!facts.has_value() || !S_ISREG(facts->mode) || facts->user != geteuid() ||
      facts->device == 0) {
    return Pages::kNone;
  }
  if (facts->device == small_pages) return Pages::kSmall;
  return facts->device == huge_pages ? Pages::kHuge : Pages::kNone;
}

// The bytes of a file that cannot become shorter; 0: it can, or does not consist of whole pages.
uint64_t SealedBytes(int descriptor, int seals) {
  struct stat facts;
  if ((seals & F_SEAL_SHRINK) == 0 || fstat(descriptor, &facts) != 0) return 0;
  const auto bytes = static_cast<uint64_t>(facts.st_size);
  return bytes % static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) == 0 ? bytes : 0;
}

}  // namespace

PeerFiles::~PeerFiles() {
  for (File& file : files_) Drop(&file);
}

void PeerFiles::Drop(File* file) {
  if (file->begin != nullptr) old_->Add(MutableByteSpan(file->begin, file->bytes));
  *file = File();
}

size_t PeerFiles::count() const {
  return static_cast<size_t>(std::count_if(files_.begin(), files_.end(),
                                           [](const File& file) { return file.begin != nullptr; }));
}

PeerFiles::File* PeerFiles::Switch(const FilePlace& place) {
  File* file = std::find_if(files_.begin(), files_.end(), [&place](const File& known) {
    return known.identity == place.identity;
  });
  if (file == files_.end()) {
    DropClosed();
    file = MakeRoom();
    file->identity = place.identity;
    file->descriptor = place.descriptor;
    Map(file);
  }
  file->used = ++turn_;
  latest_ = static_cast<size_t>(file - files_.begin());
  return file;
}

void PeerFiles::DropClosed() {
  for (File& file : files_) {
    if (file.identity == 0) continue;
    if (IsFileOfIdentity(PathOf(process_id_, file.descriptor), file.identity)) continue;
    mapped_bytes_ -= file.bytes;
    Drop(&file);
  }
}

PeerFiles::File* PeerFiles::MakeRoom() {
  File* const file = std::min_element(files_.begin(), files_.end(),
                                      [](const File& a, const File& b) { return a.used < b.used; });
  mapped_bytes_ -= file->bytes;
  Drop(file);
  return file;
}

// Checks and use are of one file, whatever the peer does meanwhile to its descriptors.
void PeerFiles::Map(File* file) {
  const Descriptor path(open(PathOf(process_id_, file->descriptor).c_str(), O_PATH | O_CLOEXEC));
  const Pages pages = path.valid() ? PagesOf(path.get()) : Pages::kNone;
  // What is only read is looked at again and again, and must not lose its pages meanwhile.
  if (pages == Pages::kNone || (pages == Pages::kHuge && !may_write_)) return;
  const std::string own = PathOf(getpid(), path.get());
  if (!IsFileOfIdentity(own, file->identity)) return;
  const Descriptor opened(open(own.c_str(), O_RDWR | O_CLOEXEC));
  if (!opened.valid()) return;
  const int seals = fcntl(opened.get(), F_GET_SEALS);
  if (seals < 0) return;
  const uint64_t bytes = SealedBytes(opened.get(), seals);
  if (bytes == 0 || bytes > kMaxMappedBytes - mapped_bytes_) return;
  file->writable = may_write_ && (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) == 0;
  // Huge pages that nobody has, neither the peer nor the host, are refused here: else the first
  // touch would end this process.
  const int flags = MAP_SHARED | (pages == Pages::kHuge ? 0 : MAP_NORESERVE);
  file->begin = MapForHugePages(bytes, flags, opened.get(), /*offset=*/0, file->writable);
  if (file->begin == nullptr) return;
  madvise(file->begin, bytes, MADV_HUGEPAGE);
  madvise(file->begin, bytes, MADV_DONTFORK);  // a child has nothing to do with this peer
  file->bytes = bytes;
  mapped_bytes_ += bytes;
}

}  // namespace weft
