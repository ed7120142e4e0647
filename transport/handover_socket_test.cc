// The socket between a process and the one that follows it: whom it lets in, and what it takes.
#include "transport/handover_socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/strings.h"
#include "core/testing/descriptors.h"
#include "transport/descriptor_message.h"

namespace weft {
namespace {

constexpr int kPatienceMs = 30'000;  // of a machine that stands still

class HandoverSocketTest : public testing::Test {
 protected:
  HandoverSocketTest() {
    folder_ = "/tmp/weft-handover-socket-XXXXXX";
    EXPECT_NE(::mkdtemp(folder_.data()), nullptr);
    path_ = folder_ + "/path";
  }
  ~HandoverSocketTest() override {
    ::unlink(path_.c_str());
    EXPECT_EQ(::rmdir(folder_.c_str()), 0) << "a file was left behind in " << folder_;
  }
  // Two ends.
  std::pair<Descriptor, Descriptor> Connected() {
    listener_ = *ListenForSuccessor(path_);
    Descriptor successor = *ConnectToPredecessor(path_);
    EXPECT_TRUE(successor.valid());
    return {*AcceptSuccessor(listener_.socket.get()), std::move(successor)};
  }

  std::string folder_;
  std::string path_;
  HandoverListener listener_;
};

TEST_F(HandoverSocketTest, ATextAndADescriptorArrive) {
  auto [old, next] = Connected();
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const Descriptor reads(ends[0]);
  EXPECT_EQ(SendHandover(old.get(), "socket a", ends[1]), absl::OkStatus());
  ::close(ends[1]);
  absl::StatusOr<HandoverMessage> message = ReceiveHandover(next.get(), kPatienceMs);
  ASSERT_TRUE(message.ok()) << message.status();
  EXPECT_EQ(message->text, "socket a");
  EXPECT_NE(::fcntl(message->descriptor.get(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_EQ(::write(message->descriptor.get(), "x", 1), 1);
  EXPECT_EQ(SendHandover(next.get(), "ready"), absl::OkStatus());
  message = ReceiveHandover(old.get(), kPatienceMs);
  ASSERT_TRUE(message.ok()) << message.status();
  EXPECT_FALSE(message->descriptor.valid());
}

TEST_F(HandoverSocketTest, TheOthersEndIsToldAndNobodyWaitsForEver) {
  auto [old, next] = Connected();
  EXPECT_TRUE(absl::IsDeadlineExceeded(ReceiveHandover(old.get(), 1).status()));
  next.Reset();
  EXPECT_TRUE(absl::IsUnavailable(ReceiveHandover(old.get(), kPatienceMs).status()));
  EXPECT_TRUE(absl::IsUnavailable(SendHandover(old.get(), "go")));
}

// Each signal began the wait anew: in a program with a timer nobody was ever given up.
TEST_F(HandoverSocketTest, SignalsMakeAWaitNoLonger) {
  auto [old, next] = Connected();
  struct sigaction nothing {};
  nothing.sa_handler = [](int) {};
  struct sigaction before {};
  ASSERT_EQ(::sigaction(SIGALRM, &nothing, &before), 0);
  const itimerval often{{0, 1000}, {0, 1000}};
  const itimerval never{};
  ASSERT_EQ(::setitimer(ITIMER_REAL, &often, nullptr), 0);
  const absl::Status late = ReceiveHandover(old.get(), 50).status();
  EXPECT_EQ(::setitimer(ITIMER_REAL, &never, nullptr), 0);
  EXPECT_EQ(::sigaction(SIGALRM, &before, nullptr), 0);
  EXPECT_EQ(late, absl::DeadlineExceededError(StrCat(
                      "wait in a handover: nothing within 50 ms from process ", ::getpid())));
}

TEST_F(HandoverSocketTest, WhoTakesNothingIsGivenUp) {
  auto [old, next] = Connected();
  const std::string text(kMaxHandoverText, 'x');
  while (::send(old.get(), text.data(), text.size(), MSG_DONTWAIT) > 0) {
  }
  const absl::Status late = SendHandover(old.get(), "go");
  EXPECT_TRUE(absl::IsDeadlineExceeded(late)) << late;
  // Once there is room again, it hears what comes.
  while (ReceiveHandover(next.get(), 0).ok()) {
  }
  EXPECT_EQ(SendHandover(old.get(), "go"), absl::OkStatus());
  EXPECT_EQ(ReceiveHandover(next.get(), kPatienceMs)->text, "go");
}

// Of two descriptors, where the process may have one more, the first came as if it had been sent
// alone.
TEST_F(HandoverSocketTest, WhereThereIsNoRoomForADescriptorNothingIsTaken) {
  auto [old, next] = Connected();
  for (const int sent : {1, 2}) {
    SCOPED_TRACE(sent);
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const Descriptor reads(ends[0]);
    const std::vector<int> many(static_cast<size_t>(sent), ends[1]);
    ASSERT_TRUE(SendDescriptors(next.get(), AsBytes("socket a"), many).ok());
    ::close(ends[1]);
    absl::Status status;
    {
      const FewDescriptors none(sent - 1);
      status = ReceiveHandover(old.get(), kPatienceMs).status();
    }
    EXPECT_EQ(status.code(),
              sent == 1 ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kDataLoss)
        << status;
    char byte;
    EXPECT_EQ(::read(reads.get(), &byte, 1), 0) << "a descriptor is still open";
    EXPECT_EQ(SendHandover(next.get(), "hello 1"), absl::OkStatus());
    EXPECT_EQ(ReceiveHandover(old.get(), kPatienceMs)->text, "hello 1");
  }
}

TEST_F(HandoverSocketTest, AProcessWithoutDescriptorsIsToldSo) {
  listener_ = *ListenForSuccessor(path_);
  const Descriptor successor = *ConnectToPredecessor(path_);
  const FewDescriptors none(0);
  for (const absl::Status& status :
       {PrepareForSuccessor(path_).status(), ConnectToPredecessor(path_).status(),
        AcceptSuccessor(listener_.socket.get()).status()}) {
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  }
}

TEST_F(HandoverSocketTest, MoreThanOneDescriptorAndLongTextsAreRefusedAndClosed) {
  auto [old, next] = Connected();
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const Descriptor reads(ends[0]);
  const int both[] = {ends[1], ends[1]};
  ASSERT_TRUE(SendDescriptors(next.get(), AsBytes("go"), both).ok());
  ::close(ends[1]);
  EXPECT_TRUE(absl::IsDataLoss(ReceiveHandover(old.get(), kPatienceMs).status()));
  char byte;
  EXPECT_EQ(::read(reads.get(), &byte, 1), 0) << "a descriptor is still open";

  const std::string longest(kMaxHandoverText, 'x');
  EXPECT_EQ(SendHandover(next.get(), longest), absl::OkStatus());
  EXPECT_EQ(ReceiveHandover(old.get(), kPatienceMs)->text, longest);
  const std::string longer = longest + "x";
  EXPECT_TRUE(absl::IsInvalidArgument(SendHandover(next.get(), longer)));
  ASSERT_GT(::send(next.get(), longer.data(), longer.size(), 0), 0);
  EXPECT_TRUE(absl::IsDataLoss(ReceiveHandover(old.get(), kPatienceMs).status()));
}

// They were left open: 200 with each message, until the process had no descriptor left.
TEST_F(HandoverSocketTest, DescriptorsOfAnEmptyMessageAreClosed) {
  listener_ = *ListenForSuccessor(path_);
  const Descriptor next = *ConnectToPredecessor(path_);
  const Descriptor old = *AcceptSuccessor(listener_.socket.get());
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  EXPECT_EQ(SendHandover(next.get(), "", ends[1]), absl::OkStatus());
  ::close(ends[1]);
  EXPECT_FALSE(ReceiveHandover(old.get(), kPatienceMs).ok());
  char byte;
  EXPECT_EQ(::read(ends[0], &byte, 1), 0) << "its other end is still open";
  ::close(ends[0]);
}

TEST_F(HandoverSocketTest, TheNextListenerTakesThePathAndTheLastOneLeavesIt) {
  HandoverListener first = *ListenForSuccessor(path_);
  HandoverListener second = *ListenForSuccessor(path_);
  const Descriptor successor = *ConnectToPredecessor(path_);
  EXPECT_FALSE(AcceptSuccessor(first.socket.get())->valid());
  EXPECT_TRUE(AcceptSuccessor(second.socket.get())->valid());
  RemoveHandoverFile(first);
  EXPECT_TRUE(ConnectToPredecessor(path_)->valid()) << "the second one's file is gone";
  RemoveHandoverFile(second);
  EXPECT_NE(::access(path_.c_str(), F_OK), 0);
}

TEST_F(HandoverSocketTest, AFileThatADeadProcessLeftBehindIsNobody) {
  { const HandoverListener killed = *ListenForSuccessor(path_); }
  EXPECT_FALSE(ConnectToPredecessor(path_)->valid());
  EXPECT_TRUE(ListenForSuccessor(path_).ok());
}

TEST_F(HandoverSocketTest, WhatIsNoSocketIsLeftAlone) {
  const Descriptor file(::open(path_.c_str(), O_CREAT | O_WRONLY, 0600));
  EXPECT_TRUE(absl::IsAlreadyExists(ListenForSuccessor(path_).status()));
  for (const std::string& path : {std::string(), std::string("relative"), std::string(108, '/')}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ListenForSuccessor(path).status())) << path;
    EXPECT_TRUE(absl::IsInvalidArgument(ConnectToPredecessor(path).status())) << path;
  }
}

// Nothing of an attempt is left behind (~HandoverSocketTest() looks), and what was there stays.
TEST_F(HandoverSocketTest, WhereNobodyCanListenItIsSaid) {
  const absl::Status no_folder = ListenForSuccessor(folder_ + "/no/path").status();
  EXPECT_TRUE(absl::IsNotFound(no_folder)) << no_folder;
  // Its own name fits, and not the one that it has until it takes that.
  const std::string longest = folder_ + "/" + std::string(106 - folder_.size(), 'p');
  EXPECT_TRUE(absl::IsInvalidArgument(ListenForSuccessor(longest).status()));
  EXPECT_FALSE(ConnectToPredecessor(longest)->valid());
  // A folder has come into its place meanwhile.
  HandoverListener prepared = *PrepareForSuccessor(path_);
  ASSERT_EQ(::mkdir(path_.c_str(), 0700), 0);
  const absl::Status taken = TakePath(&prepared);
  EXPECT_NE(taken.message().find("offer a handover at " + path_), absl::string_view::npos) << taken;
  RemoveHandoverFile(prepared);
  EXPECT_EQ(::rmdir(path_.c_str()), 0);
}

// A socket of another kind: of a server of Weft's, say.
TEST_F(HandoverSocketTest, WhatIsNoSocketOfAHandoverIsNoPredecessor) {
  const Descriptor other(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path_.data(), path_.size());
  ASSERT_EQ(::bind(other.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(::listen(other.get(), 1), 0);
  const absl::Status status = ConnectToPredecessor(path_).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_NE(status.message().find("connect to the process that listens at " + path_),
            absl::string_view::npos)
      << status;
  EXPECT_FALSE(AcceptSuccessor(-1).ok());
}

// Over a network the kernel does not know who it is.
TEST_F(HandoverSocketTest, WhomTheKernelDoesNotKnowIsSentAway) {
  const Descriptor listening(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof(address);
  ASSERT_EQ(::bind(listening.get(), reinterpret_cast<sockaddr*>(&address), bytes), 0);
  ASSERT_EQ(::listen(listening.get(), 1), 0);
  ASSERT_EQ(::getsockname(listening.get(), reinterpret_cast<sockaddr*>(&address), &bytes), 0);
  const Descriptor stranger(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::connect(stranger.get(), reinterpret_cast<sockaddr*>(&address), bytes), 0);
  const absl::Status status = AcceptSuccessor(listening.get()).status();
  EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
  char byte;
  EXPECT_EQ(::recv(stranger.get(), &byte, 1, 0), 0) << "it is connected still";
  EXPECT_EQ(PeerProcessId(-1), 0);
}

// The file's mode keeps him out already: here it lets him in.
TEST_F(HandoverSocketTest, AnotherUserIsSentAway) {
  constexpr uid_t kNobody = 65'534;
  constexpr int kCannotBeHim = 3;
  listener_ = *ListenForSuccessor(path_);
  struct stat facts {};
  ASSERT_EQ(::stat(path_.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600u);
  ASSERT_EQ(::chmod(folder_.c_str(), 0755), 0);
  ASSERT_EQ(::chmod(path_.c_str(), 0666), 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path_.data(), path_.size());
  const pid_t stranger = ::fork();
  if (stranger == 0) {
    if (::setresuid(kNobody, kNobody, kNobody) != 0) _exit(kCannotBeHim);
    const int socket = ::socket(AF_UNIX, SOCK_SEQPACKET, 0);
    if (::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) _exit(2);
    char byte;
    _exit(::recv(socket, &byte, 1, 0) == 0 ? 0 : 1);  // hung up
  }
  absl::StatusOr<Descriptor> accepted = Descriptor();
  int status = 0;
  while (accepted.ok() && ::waitpid(stranger, &status, WNOHANG) == 0) {
    accepted = AcceptSuccessor(listener_.socket.get());
    EXPECT_FALSE(accepted.ok() && accepted->valid());
  }
  if (!accepted.ok()) ::waitpid(stranger, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kCannotBeHim) {
    GTEST_SKIP() << "this process cannot start one of another user";
  }
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(absl::IsPermissionDenied(accepted.status())) << accepted.status();
}

}  // namespace
}  // namespace weft
