#include "transport/tcp/testing/limited_sends.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "core/check.h"

namespace weft {
namespace {

LimitedSends* now = nullptr;

// The first `most` bytes of what `message` has.
std::vector<iovec> Cut(const msghdr& message, size_t most) {
  std::vector<iovec> pieces;
  for (size_t i = 0; i < message.msg_iovlen && most > 0; ++i) {
    iovec piece = message.msg_iov[i];
    piece.iov_len = std::min(piece.iov_len, most);
    most -= piece.iov_len;
    pieces.push_back(piece);
  }
  return pieces;
}

ssize_t Send(int fd, const msghdr& message, int flags) {
  if (now == nullptr) return syscall(SYS_sendmsg, fd, &message, flags);
  ++now->sends;
  if (now->error != 0 || now->left == 0) {
    errno = now->error != 0 ? now->error : EAGAIN;
    return -1;
  }
  std::vector<iovec> pieces = Cut(message, std::min(now->at_once, now->left));
  ssize_t sent = 0;
  if (fd == -1) {
    for (const iovec& piece : pieces) {
      now->taken.append(static_cast<const char*>(piece.iov_base), piece.iov_len);
      sent += static_cast<ssize_t>(piece.iov_len);
    }
  } else {
    msghdr cut = message;
    cut.msg_iov = pieces.data();
    cut.msg_iovlen = pieces.size();
    sent = syscall(SYS_sendmsg, fd, &cut, flags);
  }
  if (sent > 0 && now->left != LimitedSends::kAll) now->left -= static_cast<size_t>(sent);
  return sent;
}

}  // namespace

LimitedSends::LimitedSends() {
  WEFT_CHECK(now == nullptr);
  now = this;
}

LimitedSends::~LimitedSends() { now = nullptr; }

}  // namespace weft

extern "C" ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  return weft::Send(fd, *message, flags);
}

extern "C" ssize_t send(int fd, const void* bytes, size_t count, int flags) {
  iovec piece = {const_cast<void*>(bytes), count};
  msghdr message = {};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  return weft::Send(fd, message, flags);
}
