#include "transport/control/local_proof.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>

#include "gtest/gtest.h"
#include "transport/control/host_facts.h"
#include "transport/sockets/address.h"

namespace weft {
namespace {

constexpr Nonce128 kNonce = {0x1122334455667788, 0x99aabbccddeeff00};

// How many of this process's descriptors are of the same file.
size_t DescriptorsOf(const Descriptor& file) {
  struct stat wanted = {};
  EXPECT_EQ(::fstat(file.get(), &wanted), 0);
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    struct stat facts = {};
    // What has gone since it was listed is none.
    if (::stat(entry.path().c_str(), &facts) != 0) continue;
    if (facts.st_dev == wanted.st_dev && facts.st_ino == wanted.st_ino) ++count;
  }
  return count;
}

Descriptor SealedMemory(const char* name) {
  Descriptor memory(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(memory.get(), 4096), 0);
  EXPECT_EQ(fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  return memory;
}

// A server that expects one nonce, and a client's raw socket to it.
class LocalProofTest : public ::testing::Test {
 protected:
  void SetUp() override {
    poller_ = *Poller::Create();
    client_bell_ = *Doorbell::Create();
    server_bell_ = *Doorbell::Create();
    auto server = LocalProofServer::Open(poller_.get(), server_bell_.get(),
                                         [this](const Nonce128& nonce, Neighbour* neighbour) {
                                           return OnNeighbour(nonce, neighbour);
                                         });
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    client_ = std::make_unique<LocalProofClient>(
        poller_.get(), client_bell_.get(), client_domain_.get(),
        [this](absl::StatusOr<Neighbour> neighbour) { OnLocalProof(std::move(neighbour)); });
  }

  absl::StatusOr<HandOver> OnNeighbour(const Nonce128& nonce, Neighbour* neighbour) {
    ++presented_;
    if (!(nonce == kNonce)) return absl::NotFoundError("no handshake waits for this nonce");
    visitor_ = std::move(*neighbour);
    return HandOver{server_domain_.get(), link_.get()};
  }
  void OnLocalProof(absl::StatusOr<Neighbour> neighbour) {
    EXPECT_FALSE(result_.has_value());
    result_ = std::move(neighbour);
  }

  template <class Done>
  bool Run(Done done) {
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!done()) {
      poller_->Poll();
      if (std::chrono::steady_clock::now() > give_up) return false;
    }
    return true;
  }
  // What a client says without the rules.
  Descriptor Raw() {
    Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    const KernelAddress address = AbstractAddress(server_->name());
    EXPECT_EQ(::connect(socket.get(), address.get(), address.length), 0);
    return socket;
  }
  static std::string Request() { return std::string("WEFTSHM\4") + std::string(16, 'n'); }
  // The server hung up, or answered: what.
  std::string AnswerTo(const Descriptor& socket) {
    std::string answer(1'000, '\0');
    ssize_t bytes = -1;
    EXPECT_TRUE(Run([&] {
      bytes = ::recv(socket.get(), answer.data(), answer.size(), MSG_DONTWAIT);
      return bytes >= 0;
    }));
    answer.resize(static_cast<size_t>(bytes));
    return answer;
  }

  std::unique_ptr<Poller> poller_;
  std::unique_ptr<Doorbell> client_bell_;
  std::unique_ptr<Doorbell> server_bell_;
  // What the domains are made of does not matter here: sealed memory, told apart by its inodes.
  const Descriptor client_domain_ = SealedMemory("client's domain");
  const Descriptor server_domain_ = SealedMemory("server's domain");
  const Descriptor link_ = SealedMemory("link");
  std::unique_ptr<LocalProofServer> server_;
  std::unique_ptr<LocalProofClient> client_;
  int presented_ = 0;
  std::optional<Neighbour> visitor_;
  std::optional<absl::StatusOr<Neighbour>> result_;
};

TEST_F(LocalProofTest, NeighboursLearnWhoTheOtherIsAndCanWakeIt) {
  ASSERT_TRUE(client_->Start(server_->name(), kNonce, ReadHostFacts()).ok());
  ASSERT_TRUE(Run([&] { return result_.has_value(); }));
  ASSERT_TRUE(result_->ok()) << result_->status();
  ASSERT_TRUE(visitor_.has_value());
  EXPECT_EQ((*result_)->process.id, getpid());
  EXPECT_EQ(visitor_->process.id, getpid());
  EXPECT_GT(visitor_->process.start, 0u);
  EXPECT_EQ((*result_)->process.start, visitor_->process.start);

  // Each one's ring ends the other's sleep; here both have the same poller.
  poller_->Poll();
  for (const bool client_rings : {true, false}) {
    (client_rings ? server_bell_ : client_bell_)->Arm();
    (client_rings ? (*result_)->doorbell : visitor_->doorbell)->Ring();
    EXPECT_EQ(poller_->Poll(), 1);
    EXPECT_EQ(poller_->Poll(), 0);
  }
}

ino_t InodeOf(const Descriptor& descriptor) {
  struct stat facts = {};
  EXPECT_EQ(::fstat(descriptor.get(), &facts), 0);
  return facts.st_ino;
}

TEST_F(LocalProofTest, NeighboursGetEachOthersDomainAndOneLinkForBoth) {
  ASSERT_TRUE(client_->Start(server_->name(), kNonce, ReadHostFacts()).ok());
  ASSERT_TRUE(Run([&] { return result_.has_value(); }));
  ASSERT_TRUE(result_->ok()) << result_->status();
  EXPECT_EQ(InodeOf((*result_)->domain), InodeOf(server_domain_));
  EXPECT_EQ(InodeOf((*result_)->link), InodeOf(link_));
  EXPECT_EQ(InodeOf(visitor_->domain), InodeOf(client_domain_));
  EXPECT_FALSE(visitor_->link.valid()) << "the server's own to make";
}

TEST_F(LocalProofTest, AnUnknownNonceIsRefusedInWords) {
  ASSERT_TRUE(client_->Start(server_->name(), {1, 2}, ReadHostFacts()).ok());
  ASSERT_TRUE(Run([&] { return result_.has_value(); }));
  EXPECT_EQ(result_->status(),
            absl::FailedPreconditionError("server: no handshake waits for this nonce"));
}

TEST_F(LocalProofTest, AnUnreachableSocketIsAnotherNetworkNamespace) {
  const absl::Status status = client_->Start("weft-nobody", kNonce, ReadHostFacts());
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(std::string(status.message()).find("network namespaces"), std::string::npos) << status;
  EXPECT_FALSE(client_->Start("", kNonce, ReadHostFacts()).ok());
}

TEST_F(LocalProofTest, AProcessNumberThatTheKernelDoesNotConfirmIsAnotherPidNamespace) {
  HostFacts server = ReadHostFacts();
  server.process_id += 1;
  const absl::Status status = client_->Start(server_->name(), kNonce, server);
  EXPECT_NE(std::string(status.message()).find("PID namespaces"), std::string::npos) << status;
}

TEST_F(LocalProofTest, TheServersEndIsAnAnswerToo) {
  ASSERT_TRUE(client_->Start(server_->name(), kNonce, ReadHostFacts()).ok());
  server_.reset();
  ASSERT_TRUE(Run([&] { return result_.has_value(); }));
  EXPECT_FALSE(result_->ok());
}

TEST_F(LocalProofTest, NonsenseGetsNoAnswerAndTheNextClientIsServed) {
  for (const std::string& nonsense :
       {std::string("x"), std::string("GET / HTTP/1.1\r\n\r\n        "), std::string(5'000, 'x')}) {
    const Descriptor socket = Raw();
    ASSERT_GT(::send(socket.get(), nonsense.data(), nonsense.size(), 0), 0);
    EXPECT_EQ(AnswerTo(socket), "");
  }
  EXPECT_EQ(presented_, 0);
  ASSERT_TRUE(client_->Start(server_->name(), kNonce, ReadHostFacts()).ok());
  ASSERT_TRUE(Run([&] { return result_.has_value(); }));
  EXPECT_TRUE(result_->ok()) << result_->status();
}

TEST_F(LocalProofTest, ARequestWithoutADoorbellIsRefused) {
  const Descriptor socket = Raw();
  ASSERT_GT(::send(socket.get(), Request().data(), Request().size(), 0), 0);
  EXPECT_NE(AnswerTo(socket).find("without a doorbell"), std::string::npos);
  EXPECT_EQ(presented_, 0);
}

// What a client says, with descriptors.
void SayWith(const Descriptor& socket, std::string text, const std::vector<int>& descriptors) {
  iovec part{text.data(), text.size()};
  std::vector<char> control(CMSG_SPACE(descriptors.size() * sizeof(int)));
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  cmsghdr* rights = CMSG_FIRSTHDR(&header);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
  std::memcpy(CMSG_DATA(rights), descriptors.data(), descriptors.size() * sizeof(int));
  ASSERT_GT(::sendmsg(socket.get(), &header, 0), 0);
}

// Descriptors that a peer sends are owned or closed, however many and whatever they are. (They are
// told by their file: another test's, which are closed by a thread, may still be open here.)
TEST_F(LocalProofTest, ForeignDescriptorsAreClosed) {
  for (const size_t count : {size_t{1}, size_t{2}, size_t{3}, size_t{4}, size_t{50}}) {
    const Descriptor socket = Raw();
    SayWith(socket, Request(), std::vector<int>(count, socket.get()));
    AnswerTo(socket);
    EXPECT_TRUE(Run([&] { return DescriptorsOf(socket) == 1; }))
        << DescriptorsOf(socket) - 1 << " of " << count << " are open";
  }
  EXPECT_EQ(presented_, 0);
}

// A peer handed over a pipe in place of its eventfd, closed the other end, and had itself rung:
// SIGPIPE. What is no sealed memory is not taken now, in whichever place.
TEST_F(LocalProofTest, APipeIsNoDoorbellAndNoDomain) {
  int pipe[2];
  ASSERT_EQ(pipe2(pipe, O_CLOEXEC | O_NONBLOCK), 0);
  const Descriptor ends[] = {Descriptor(pipe[0]), Descriptor(pipe[1])};
  const int page = client_bell_->page_fd();
  const int domain = client_domain_.get();
  for (const std::vector<int>& handed :
       {std::vector<int>{pipe[1], domain}, {page, pipe[1]}, {pipe[1], page, domain}}) {
    const Descriptor socket = Raw();
    SayWith(socket, Request(), handed);
    EXPECT_NE(AnswerTo(socket).find("without a doorbell"), std::string::npos);
  }
  EXPECT_EQ(presented_, 0);
}

// A process of another user that knew the socket's name had its descriptors taken before anybody
// asked whose they were.
TEST_F(LocalProofTest, AnotherUsersProcessIsToldSoBeforeItHasSaidAnything) {
  constexpr uid_t kNobody = 65'534;
  constexpr char kCannotBeHim = '!';
  int told[2];
  ASSERT_EQ(pipe2(told, O_CLOEXEC), 0);
  const Descriptor ends[] = {Descriptor(told[0]), Descriptor(told[1])};
  const KernelAddress address = AbstractAddress(server_->name());
  const pid_t stranger = fork();
  if (stranger == 0) {
    char answer[300] = {kCannotBeHim};
    ssize_t bytes = 1;
    if (::setresuid(kNobody, kNobody, kNobody) == 0) {
      const int socket = ::socket(AF_UNIX, SOCK_SEQPACKET, 0);
      bytes = ::connect(socket, address.get(), address.length) == 0
                  ? ::recv(socket, answer, sizeof(answer), 0)
                  : -1;
    }
    _exit(bytes > 0 && ::write(told[1], answer, static_cast<size_t>(bytes)) > 0 ? 0 : 1);
  }
  ASSERT_EQ(fcntl(told[0], F_SETFL, O_NONBLOCK), 0);
  std::string answer(300, '\0');
  ssize_t bytes = -1;
  EXPECT_TRUE(Run([&] { return (bytes = ::read(told[0], answer.data(), answer.size())) > 0; }));
  ::waitpid(stranger, nullptr, 0);
  if (answer[0] == kCannotBeHim) GTEST_SKIP() << "this process cannot start one of another user";
  EXPECT_NE(answer.find("the peer runs as uid 65534"), std::string::npos) << answer;
  EXPECT_EQ(presented_, 0);
}

TEST_F(LocalProofTest, SilentVisitorsMakeRoom) {
  std::vector<Descriptor> silent;
  for (size_t i = 0; i < 2 * LocalProofServer::kMaxVisitors; ++i) {
    silent.push_back(Raw());
    poller_->Poll();
  }
  EXPECT_EQ(AnswerTo(silent[0]), "");  // hung up
  ASSERT_TRUE(client_->Start(server_->name(), kNonce, ReadHostFacts()).ok());
  ASSERT_TRUE(Run([&] { return result_.has_value(); }));
  EXPECT_TRUE(result_->ok()) << result_->status();
}

}  // namespace
}  // namespace weft
