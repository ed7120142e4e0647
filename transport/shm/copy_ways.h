// Which ways to a peer's memory an initiator may take by itself: all that work, unless somebody
// suspects one of them and takes it away (NetworkOptions). Either needs the peer's table of
// regions, which is mapped for reading whatever is said here (domain_memory.h). Without both, or
// without the table, the peer is asked (asked_copies.h).
#pragma once

namespace weft {

struct CopyWays {
  bool mappings = true;      // memcpy into mapped files (peer_files.h)
  bool system_calls = true;  // process_vm_readv(2), process_vm_writev(2)
};

}  // namespace weft
