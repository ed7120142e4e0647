// A peer's files in memory, mapped here: where one-sided operations copy by memcpy, without a
// system call and without the peer.
//
// A region that lies in a MemoryFile says so in the peer's table of regions: descriptor, identity,
// offset (shm_regions.h). The first operation on it opens /proc/PID/fd/N and maps all of the file
// (sparse files cost only what is touched); all others find the mapping here. Nothing in the table
// is believed. The file that was opened must
//   - have the identity in its name. So it is one that was meant, not one that took the descriptor
//     later, and the process is the one that the table belongs to;
//   - be a regular file in memory, of this user. It is looked at before it is opened for use:
//     opening a device or a pipe could do something. By what the kernel knows alone: another file
//     system could keep this waiting;
//   - be sealed against shrinking: a file that becomes shorter under a mapping kills who touches
//   it;
//   - hold the whole range that is asked for;
//   - if it is of huge pages, have them, or find so many free ones: else it cannot be mapped.
// Who lies gains an error, or wrong bytes in his own transfers. (One thing is left to a peer whose
// file is of reserved huge pages: it can give them away, and then a copy ends in SIGBUS. But it may
// send that signal, or a worse one, to processes of its user anyway. Who only reads a file, as
// again and again the table of regions, maps none of huge pages.)
//
// What cannot be mapped is remembered as such, and goes another way (process_vm_readv(2), or
// through the peer). There are at most kMaxFiles, of kMaxMappedBytes together; the one unused for
// longest makes room. A mapping keeps memory alive that its owner has unmapped: so whenever another
// file is opened, those that their owner has closed go.
//
// A file that its owner has sealed against writing is mapped for reading only: the kernel enforces
// it. All others are mapped for reading and writing, whatever the rights of their regions are:
// those are looked at for each operation, as they are with system calls. (Who wants to read only
// says so, which counts where a kernel does not know that seal.)
//
// Threads: one engine's. Lifetime: mappings are not used behind its own, and are unmapped by turns
// of the engine (old_mappings.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "transport/memory_file.h"
#include "transport/shm/old_mappings.h"

namespace weft {

class PeerFiles {
 public:
  // A pool, two kinds of pages; an engine's two pools for large messages; and an application's own.
  static constexpr size_t kMaxFiles = 32;
  // Of address space, of which a process has 128 TiB. Tables for what is touched: 0.2 %.
  static constexpr uint64_t kMaxMappedBytes = uint64_t{1} << 40;

  // `process_id`: in this process's own namespace. `old`: has what is to be unmapped. `use`:
  // kOnlyRead: nothing is mapped for writing.
  PeerFiles(int32_t process_id, OldMappings* old,
            MemoryFile::Peers use = MemoryFile::Peers::kReadAndWrite)
      : process_id_(process_id), old_(old), may_write_(use == MemoryFile::Peers::kReadAndWrite) {}
  ~PeerFiles();
  PeerFiles(const PeerFiles&) = delete;
  PeerFiles& operator=(const PeerFiles&) = delete;

  // Where [place.offset, + bytes) of the file is here; nullptr: it cannot be mapped, or not for
  // writing.
  std::byte* Find(const FilePlace& place, uint64_t bytes, bool for_writing = false) {
    if (place.identity == 0) return nullptr;
    File* file = &files_[latest_];
    if (file->identity != place.identity) [[unlikely]] {
      file = Switch(place);
    }
    const bool inside = place.offset <= file->bytes && bytes <= file->bytes - place.offset;
    const bool allowed = file->writable || !for_writing;
    return inside && allowed ? file->begin + place.offset : nullptr;
  }

  // Mapped now.
  size_t count() const;

 private:
  struct File {
    uint64_t identity = 0;  // 0: nothing here
    std::byte* begin = nullptr;
    uint64_t bytes = 0;   // 0: could not be mapped
    uint64_t used = 0;    // higher: later
    int descriptor = -1;  // the peer's
    bool writable = false;
  };

  File* Switch(const FilePlace& place);
  File* MakeRoom();
  void DropClosed();
  void Map(File* file);
  void Drop(File* file);

  const int32_t process_id_;
  OldMappings* const old_;
  const bool may_write_;
  size_t latest_ = 0;
  uint64_t turn_ = 0;
  uint64_t mapped_bytes_ = 0;
  std::array<File, kMaxFiles> files_;
};

}  // namespace weft
