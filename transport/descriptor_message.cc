#include "transport/descriptor_message.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/check.h"
#include "core/process_wide.h"
#include "core/side_thread.h"
#include "core/status.h"
#include "transport/memory_file.h"

namespace weft {
namespace {

constexpr size_t kMaxDescriptors = 253;  // of one message: the kernel's SCM_MAX_FD
// A few messages full of them. A process has 1,024 descriptors at least, commonly.
constexpr size_t kMaxWaiting = 512;

// What strangers have sent is closed there.
SideThread& Closer() {
  static constinit ProcessWide<SideThread> closer;
  return closer.Get();
}

void CloseAside(Descriptor descriptor) {
  Closer().Bring([descriptor = std::move(descriptor)]() mutable { descriptor.Reset(); });
}

void TakeAll(msghdr* header, bool (*wants)(const Descriptor&), std::vector<Descriptor>* taken) {
  for (cmsghdr* part = CMSG_FIRSTHDR(header); part != nullptr; part = CMSG_NXTHDR(header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int number = -1;
      std::memcpy(&number, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      Descriptor descriptor(number);
      if (!wants(descriptor)) CloseAside(std::move(descriptor));
      taken->push_back(std::move(descriptor));
    }
  }
}

}  // namespace

bool IsHandedMemory(const Descriptor& descriptor) {
  const absl::StatusOr<uint64_t> bytes = SealedFileBytes(descriptor.get());
  return bytes.ok() && *bytes <= kMaxHandedBytes;
}

absl::Status SendDescriptors(int socket, ByteSpan bytes, std::span<const int> descriptors) {
  constexpr size_t kMost = 4;
  WEFT_CHECK(descriptors.size() <= kMost);  // Ours: callers hand over so many at most
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(kMost * sizeof(int))] = {};
  if (!descriptors.empty()) {
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(rights), descriptors.data(), descriptors.size_bytes());
  }
  if (::sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
    return StatusFromErrno(errno, "send over the local socket");
  }
  return absl::OkStatus();
}

absl::StatusOr<DescriptorMessage> ReceiveDescriptors(int socket, MutableByteSpan bytes,
                                                     bool (*wants)(const Descriptor&)) {
  iovec part{bytes.data(), bytes.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxDescriptors * sizeof(int))];
  header.msg_control = control;
  header.msg_controllen = sizeof(control);
  const ssize_t count = ::recvmsg(socket, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (count < 0) return StatusFromErrno(errno, "receive over the local socket");
  DescriptorMessage message;
  message.bytes = static_cast<size_t>(count);
  message.lost_descriptors = (header.msg_flags & MSG_CTRUNC) != 0;
  TakeAll(&header, wants, &message.descriptors);
  if ((header.msg_flags & MSG_TRUNC) != 0) {
    return absl::DataLossError("a message over the local socket is too long");
  }
  return message;
}

namespace {

// Whether the peer has sent what nobody has taken. The end of the connection and a message without
// a byte differ in this alone, that with the message comes who has sent it.
bool HasUnread(int socket) {
  const int on = 1;
  ::setsockopt(socket, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
  msghdr header{};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred))];
  header.msg_control = control;
  header.msg_controllen = sizeof(control);
  const ssize_t count = ::recvmsg(socket, &header, MSG_PEEK | MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  return count >= 0 && (header.msg_flags & MSG_TRUNC || header.msg_controllen > 0);
}

}  // namespace

// Nothing more arrives after the shutdown.
void HangUp(Descriptor socket) {
  if (!socket.valid()) return;
  ::shutdown(socket.get(), SHUT_RDWR);
  if (HasUnread(socket.get())) CloseAside(std::move(socket));
}

bool ForeignDescriptorsPileUp() { return Closer().waiting() >= kMaxWaiting; }

}  // namespace weft
