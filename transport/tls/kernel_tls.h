// The system calls of the kernel's TLS (kTLS, Documentation/networking/tls.rst of Linux), for TLS
// 1.3 with AES-GCM, and whether this kernel offers what Weft needs of it.
//
// A socket that has both keys takes and gives plain bytes, and sends and receives records. What is
// no data has its content type beside it, in a control message. Each direction gets its next key
// when a key update has been sent or read.
//
// Threads: any; a socket is its owner's. Lifetime: none.
// Errors: those of the system call, by number; 0: none. AskKernelForTls() has words.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "core/bytes.h"
#include "transport/tls/tls_records.h"

namespace weft {

// OK: this kernel offers TLS 1.3's AES-GCM both ways, and takes a second key in the place of the
// first, as Linux does since 6.14. Else why not, in words: UNIMPLEMENTED, or UNAVAILABLE where
// something was short that may be there the next time (descriptors, memory, 127.0.0.1).
//
// It is tried out on a pair of sockets over 127.0.0.1. That takes milliseconds, for it may load
// kernel modules; a second, once, where packets over 127.0.0.1 are dropped. So whoever is going to
// need it asks once where waiting does no harm. The answer is kept until the process ends, but for
// UNAVAILABLE. It says nothing of a card.
absl::Status AskKernelForTls();

enum class KernelTlsSide : uint8_t { kOut = 1, kIn = 2 };

// The socket is ready for keys; until it has one it is what it was. It has to be connected.
int AttachKernelTls(int fd);
// The first key of a direction, or its next. The kernel numbers the records from key.number on; who
// gives it a key twice has to give another number.
int GiveKernelTlsKey(int fd, KernelTlsSide side, const TlsRecordKey& key);
// How many records have been made or opened with a direction's key. Nothing: the kernel does not
// say.
std::optional<uint64_t> KernelTlsRecords(int fd, KernelTlsSide side);

// A record of its own of another kind than data. False: errno says why, and the kernel has taken
// none of it.
[[nodiscard]] bool SendKernelTlsMessage(int fd, TlsRecords::Kind kind, ByteSpan content);

struct KernelTlsReceived {
  int error = 0;
  size_t bytes = 0;
  // The content type of what has been read, which is of one type; 0: nothing was there to have one.
  uint8_t type = 0;
  bool ends_record = false;
};
// As recvmsg(2).
KernelTlsReceived ReceiveKernelTls(int fd, const iovec* iovecs, int count);

}  // namespace weft
