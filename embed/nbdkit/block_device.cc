#include "embed/nbdkit/block_device.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <fstream>
#include <functional>
#include <utility>

#include "core/random.h"
#include "core/status.h"
#include "core/strings.h"
#include "transport/descriptor.h"

namespace weft::embed {
namespace {

// What the system says, in the words of block.proto.
absl::Status MediumError(int error, std::string_view what) {
  const std::string text(StatusFromErrno(error, what).message());
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return absl::FailedPreconditionError(text);
    case EOPNOTSUPP:
    case ENOSYS:
    case ENOTTY:
      return absl::UnimplementedError(text);
    case EPERM:
    case EACCES:
    case EROFS:
    case ETXTBSY:
      return absl::PermissionDeniedError(text);
    default:
      return absl::DataLossError(text);
  }
}

std::string FirstLineOf(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string TextOf(dev_t device) { return StrCat(major(device), ":", minor(device)); }

// Asked of the disk itself; a partition has no queue of its own, its disk above it has one.
bool IsRotational(dev_t device) {
  const std::string place = StrCat("/sys/dev/block/", TextOf(device));
  return FirstLineOf(place + "/queue/rotational") == "1" ||
         FirstLineOf(place + "/../queue/rotational") == "1";
}

class FileDevice final : public BlockDevice {
 public:
  FileDevice(const Facts& facts, Descriptor descriptor, uint64_t epoch)
      : BlockDevice(facts), descriptor_(std::move(descriptor)), epoch_(epoch) {}

  uint64_t epoch() const override { return epoch_.load(std::memory_order_acquire); }

  bool ReadCached(uint64_t offset, MutableByteSpan into) override {
    const iovec part = {into.data(), into.size()};
    const ssize_t got =
        ::preadv2(descriptor_.get(), &part, 1, static_cast<off_t>(offset), RWF_NOWAIT);
    return got == static_cast<ssize_t>(into.size());
  }

  absl::Status Read(uint64_t offset, MutableByteSpan into) override {
    while (!into.empty()) {
      const ssize_t got =
          ::pread(descriptor_.get(), into.data(), into.size(), static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return MediumError(errno, StrCat("read ", into.size(), " bytes at ", offset));
      if (got == 0) {
        return absl::DataLossError(StrCat("the device ends at ", offset, ", and had ",
                                          facts().bytes, " bytes: somebody has cut it"));
      }
      into = into.subspan(static_cast<size_t>(got));
      offset += static_cast<uint64_t>(got);
    }
    return absl::OkStatus();
  }

  absl::Status Write(uint64_t offset, ByteSpan from) override {
    while (!from.empty()) {
      const ssize_t put =
          ::pwrite(descriptor_.get(), from.data(), from.size(), static_cast<off_t>(offset));
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) {
        return MediumError(errno, StrCat("write ", from.size(), " bytes at ", offset));
      }
      from = from.subspan(static_cast<size_t>(put));
      offset += static_cast<uint64_t>(put);
    }
    return absl::OkStatus();
  }

  absl::Status Flush() override {
    if (::fdatasync(descriptor_.get()) == 0) return absl::OkStatus();
    const int error = errno;
    // Whatever it says: what it was to bring out is not on the medium.
    epoch_.store(SecureRandom64(), std::memory_order_release);
    return MediumError(error, "flush");
  }

  absl::Status Trim(uint64_t offset, uint64_t bytes) override {
    const int error = Allocate(FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, bytes);
    if (error == 0 || error == EOPNOTSUPP) return absl::OkStatus();
    return MediumError(error, StrCat("trim ", bytes, " bytes at ", offset));
  }

  absl::Status Zero(uint64_t offset, uint64_t bytes, bool may_trim) override {
    constexpr int kPunch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    int error = EOPNOTSUPP;
    if (!may_trim) error = Allocate(FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, offset, bytes);
    if (error == EOPNOTSUPP) {
      error = Allocate(kPunch, offset, bytes);
      // tmpfs has no other way to keep the space.
      if (error == 0 && !may_trim) error = Allocate(FALLOC_FL_KEEP_SIZE, offset, bytes);
    }
    if (error == 0) return absl::OkStatus();
    return MediumError(error, StrCat("zero ", bytes, " bytes at ", offset));
  }

  absl::StatusOr<std::vector<Extent>> Extents(uint64_t offset, uint64_t bytes,
                                              size_t limit) override {
    std::vector<Extent> extents;
    const uint64_t end = offset + bytes;
    while (offset < end && extents.size() < limit) {
      const off_t data = ::lseek(descriptor_.get(), static_cast<off_t>(offset), SEEK_DATA);
      bool is_hole = true;
      uint64_t next = end;
      if (data < 0 && errno != ENXIO) {  // the system does not know of holes here
        is_hole = false;
      } else if (data >= 0 && static_cast<uint64_t>(data) > offset) {
        next = static_cast<uint64_t>(data);
      } else if (data >= 0) {
        is_hole = false;
        const off_t hole = ::lseek(descriptor_.get(), static_cast<off_t>(offset), SEEK_HOLE);
        if (hole > static_cast<off_t>(offset)) next = static_cast<uint64_t>(hole);
      }
      next = std::min(next, end);
      // What changes meanwhile may make neighbours alike.
      if (!extents.empty() && extents.back().is_hole == is_hole) {
        extents.back().bytes += next - offset;
      } else {
        extents.push_back({next - offset, is_hole});
      }
      offset = next;
    }
    return extents;
  }

 private:
  int Allocate(int mode, uint64_t offset, uint64_t bytes) {
    while (true) {
      const int result = ::fallocate(descriptor_.get(), mode, static_cast<off_t>(offset),
                                     static_cast<off_t>(bytes));
      if (result == 0) return 0;
      // A raw device takes whole sectors alone.
      if (errno == EINVAL) return EOPNOTSUPP;
      if (errno != EINTR) return errno;
    }
  }

  const Descriptor descriptor_;
  std::atomic<uint64_t> epoch_;
};

absl::StatusOr<uint64_t> LengthOf(const struct stat& status, int fd, const std::string& path) {
  if (S_ISREG(status.st_mode)) return static_cast<uint64_t>(status.st_size);
  if (!S_ISBLK(status.st_mode)) {
    return absl::FailedPreconditionError(
        StrCat(path, " is neither a regular file nor a block device"));
  }
  uint64_t bytes = 0;
  if (::ioctl(fd, BLKGETSIZE64, &bytes) == 0) return bytes;
  return StatusFromErrno(errno, StrCat("size of ", path));
}

}  // namespace

absl::StatusOr<std::unique_ptr<BlockDevice>> BlockDevice::Open(const std::string& path,
                                                               bool read_only) {
  Descriptor descriptor(::open(path.c_str(), (read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC));
  if (!descriptor.valid()) return StatusFromErrno(errno, StrCat("open ", path));
  // Readers share it. Nobody waits: a killed server may still have a system call to end, and
  // whoever starts its successor starts it again.
  if (::flock(descriptor.get(), (read_only ? LOCK_SH : LOCK_EX) | LOCK_NB) != 0) {
    return absl::FailedPreconditionError(
        StrCat(path, " is served by another process, or one that is still ending (flock)"));
  }
  struct stat status = {};
  if (::fstat(descriptor.get(), &status) != 0) return StatusFromErrno(errno, StrCat("stat ", path));
  Facts facts;
  WEFT_ASSIGN_OR_RETURN(facts.bytes, LengthOf(status, descriptor.get(), path));
  facts.read_only = read_only;
  const bool is_device = S_ISBLK(status.st_mode);
  facts.rotational = IsRotational(is_device ? status.st_rdev : status.st_dev);
  facts.preferred_bytes = std::clamp<uint32_t>(
      std::bit_ceil(static_cast<uint32_t>(std::clamp<int64_t>(status.st_blksize, 512, 1 << 25))),
      512, 1 << 25);
  const std::string boot = FirstLineOf("/proc/sys/kernel/random/boot_id");
  const uint64_t epoch = std::hash<std::string>()(
      StrCat(boot, " ", TextOf(is_device ? status.st_rdev : status.st_dev), " ", status.st_ino));
  return std::make_unique<FileDevice>(facts, std::move(descriptor), epoch);
}

}  // namespace weft::embed
