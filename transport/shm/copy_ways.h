// Which ways to a peer's memory an initiator may take by itself. All that work, unless somebody
// takes them away: tests, and who suspects one of them.
#pragma once

namespace weft {

struct CopyWays {
  bool mappings = true;      // memcpy into mapped files (peer_files.h)
  bool system_calls = true;  // process_vm_readv(2), process_vm_writev(2)

  // WEFT_SHM_COPIES: "calls": no mappings; "asked": neither, the peer is asked (asked_copies.h);
  // anything else: all.
  static CopyWays FromEnvironment();
};

}  // namespace weft
