// Descriptors that others send are taken, or closed, and never waited for.
#include "transport/descriptor_message.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "transport/memory_file.h"

namespace weft {
namespace {

Descriptor SealedMemoryOf(size_t bytes) {
  Descriptor memory(memfd_create("handed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(memory.get(), static_cast<off_t>(bytes)), 0);
  EXPECT_EQ(fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  return memory;
}

// A TCP socket whose close() takes an hour: it lingers over bytes that its other end does not take.
class LingeringSocket {
 public:
  LingeringSocket() {
    const Descriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(::bind(listener.get(), generic, length), 0);
    EXPECT_EQ(::listen(listener.get(), 1), 0);
    EXPECT_EQ(::getsockname(listener.get(), generic, &length), 0);
    socket = Descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(socket.get(), generic, length), 0);
    other_end = Descriptor(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const std::vector<char> bytes(1 << 16);
    while (::send(socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) {
    }
    const linger hour{1, 3'600};
    EXPECT_EQ(::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &hour, sizeof(hour)), 0);
  }

  Descriptor socket;
  Descriptor other_end;  // once it is closed, nothing lingers any more
};

class DescriptorMessageTest : public testing::Test {
 protected:
  DescriptorMessageTest() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    own_ = Descriptor(ends[0]);
    peer_ = Descriptor(ends[1]);
  }
  void Send(std::string_view text, std::vector<int> descriptors) {
    ASSERT_TRUE(SendDescriptors(peer_.get(), AsBytes(text), descriptors).ok());
  }
  absl::StatusOr<DescriptorMessage> Receive() { return ReceiveDescriptors(own_.get(), buffer_); }

  Descriptor own_;
  Descriptor peer_;
  std::array<std::byte, 16> buffer_;
};

TEST_F(DescriptorMessageTest, SealedMemoryArrivesAndNothingElse) {
  const Descriptor memory = SealedMemoryOf(4096);
  const Descriptor large = SealedMemoryOf(kMaxHandedBytes + 4096);
  const Descriptor loose(memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  Send("four", {memory.get(), large.get(), loose.get(), peer_.get()});
  const auto message = Receive();
  ASSERT_TRUE(message.ok()) << message.status();
  EXPECT_EQ(message->bytes, 4u);
  ASSERT_EQ(message->descriptors.size(), 4u);
  EXPECT_TRUE(message->descriptors[0].valid());
  for (size_t i = 1; i < 4; ++i) EXPECT_FALSE(message->descriptors[i].valid()) << i;
}

// The sockets' own flags say that they block.
TEST_F(DescriptorMessageTest, NeitherSideWaits) {
  EXPECT_TRUE(absl::IsUnavailable(Receive().status()));
  absl::Status status;
  while (status.ok()) status = SendDescriptors(own_.get(), AsBytes("more"), {});
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  peer_.Reset();
  EXPECT_FALSE(SendDescriptors(own_.get(), AsBytes("more"), {}).ok()) << "and no signal";
}

// Who closed such a socket, or dropped the message that it came with, slept for an hour.
TEST_F(DescriptorMessageTest, ADescriptorWhoseCloseWaitsIsClosedElsewhere) {
  std::array<LingeringSocket, 3> lingering;
  Send("taken", {lingering[0].socket.get()});
  Send("", {lingering[1].socket.get()});
  Send("too long for who waits for a byte", {lingering[2].socket.get()});
  for (LingeringSocket& one : lingering) one.socket.Reset();  // the last descriptors are in there
  ASSERT_TRUE(Receive().ok());
  HangUp(std::move(own_));
  EXPECT_FALSE(ForeignDescriptorsPileUp());
  for (LingeringSocket& one : lingering) one.other_end.Reset();
}

// What a peer sent and nobody took: with the socket it is closed elsewhere.
TEST_F(DescriptorMessageTest, AHangUpEndsTheConnectionWhateverWasSent) {
  for (const std::string_view text : {"", "x", "a longer one"}) {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    own_ = Descriptor(ends[0]);
    peer_ = Descriptor(ends[1]);
    LingeringSocket lingering;
    Send(text, {lingering.socket.get()});
    lingering.socket.Reset();
    HangUp(std::move(own_));
    EXPECT_FALSE(SendDescriptors(peer_.get(), AsBytes("late"), {}).ok());
    lingering.other_end.Reset();
  }
  HangUp(Descriptor());
}

// The size of memory that was not sealed could be right when it was looked at, and 0 when the
// memory was read: SIGBUS. The order cannot be seen from here, but that both are asked for.
TEST(SealedFileBytes, SaysOnlyWhatCannotChangeAnyMore) {
  EXPECT_EQ(*SealedFileBytes(SealedMemoryOf(8192).get()), 8192u);
  const Descriptor loose(memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(loose.get(), 8192), 0);
  EXPECT_FALSE(SealedFileBytes(loose.get()).ok());
  ASSERT_EQ(fcntl(loose.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_FALSE(SealedFileBytes(loose.get()).ok()) << "it may still grow";
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  for (const int end : ends) {
    EXPECT_TRUE(absl::IsInvalidArgument(SealedFileBytes(end).status()));
    close(end);
  }
  EXPECT_FALSE(SealedFileBytes(-1).ok());
}

}  // namespace
}  // namespace weft
