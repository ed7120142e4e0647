// Sends pieces of memory by a stream socket.
//
// Threads: as sendmsg(2). Errors: its errno.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>

namespace weft {

// As sendmsg(2), without a signal; one piece by send(2), which costs less. REQUIRES: count >= 1.
inline ssize_t SendPieces(int fd, const iovec* pieces, int count) {
  if (count == 1) return ::send(fd, pieces->iov_base, pieces->iov_len, MSG_NOSIGNAL);
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(pieces);
  message.msg_iovlen = static_cast<size_t>(count);
  return ::sendmsg(fd, &message, MSG_NOSIGNAL);
}

}  // namespace weft
