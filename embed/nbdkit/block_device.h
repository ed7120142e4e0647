// What a block server serves: a file, or a block device of this host.
//
//   auto device = BlockDevice::Open("/srv/disk.img", /*read_only=*/false);
//   device->Write(4096, bytes);
//   device->Flush();
//
// Reads and writes go through the page cache. Killing the process loses nothing that was written,
// for the kernel has it; what Flush() has not brought to the medium is lost with the host.
//
// epoch() names a period in which nothing of what was written can have been lost. It is made of the
// boot of this host and of the file; so another process that serves the same file since the same
// boot has the same one. It becomes another one at once when the medium refuses to take what had
// been written: the kernel reports such an error once, to one of those who flush, and forgets the
// bytes; all others must hear of it, too. (Not covered: a process that is killed between that
// report and its answer to the client.)
//
// Threads: any, several at once. All but ReadCached() may wait for the medium.
// Lifetime: holds the file, and a lock on it that lasts until the last system call of this process
//   on it has ended, also after a kill: no write of a dead server comes behind one of the next.
// Errors: those of block.proto; what the system says is in the text. Ranges are checked by the
//   caller: REQUIRES offset + bytes <= bytes().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "weft/bytes.h"

namespace weft::embed {

class BlockDevice {
 public:
  struct Facts {
    uint64_t bytes = 0;
    bool read_only = false;
    bool rotational = false;
    uint32_t preferred_bytes = 4096;  // of requests; a power of two, 512..32 MiB
  };
  struct Extent {
    uint64_t bytes = 0;
    bool is_hole = false;
  };

  // FAILED_PRECONDITION: another process serves it, and one of both may write; or it is neither
  // a regular file nor a block device. NOT_FOUND, PERMISSION_DENIED: as the system says.
  static absl::StatusOr<std::unique_ptr<BlockDevice>> Open(const std::string& path, bool read_only);
  virtual ~BlockDevice() = default;

  const Facts& facts() const { return facts_; }
  virtual uint64_t epoch() const = 0;

  // True: the bytes were in memory, and are in `into`. False: it would have to wait for the medium
  // (or the system does not say); `into` is undefined.
  virtual bool ReadCached(uint64_t offset, MutableByteSpan into) = 0;
  virtual absl::Status Read(uint64_t offset, MutableByteSpan into) = 0;
  virtual absl::Status Write(uint64_t offset, ByteSpan from) = 0;
  virtual absl::Status Flush() = 0;
  // A medium that cannot give space back is left as it is, and so are parts of a raw device's
  // sectors, of which Zero() says UNIMPLEMENTED.
  virtual absl::Status Trim(uint64_t offset, uint64_t bytes) = 0;
  virtual absl::Status Zero(uint64_t offset, uint64_t bytes, bool may_trim) = 0;
  // Up to `limit` of them, from `offset` on, at most `bytes`; REQUIRES: limit, bytes > 0.
  virtual absl::StatusOr<std::vector<Extent>> Extents(uint64_t offset, uint64_t bytes,
                                                      size_t limit) = 0;

 protected:
  explicit BlockDevice(const Facts& facts) : facts_(facts) {}

 private:
  const Facts facts_;
};

}  // namespace weft::embed
