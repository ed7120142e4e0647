#include "transport/control/local_proof.h"

#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

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

size_t OpenDescriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++count;
  }
  return count;
}

// A server that expects one nonce, and a client's raw socket to it.
class LocalProofTest : public ::testing::Test {
 protected:
  void SetUp() override {
    poller_ = *Poller::Create();
    client_bell_ = *Doorbell::Create();
    server_bell_ = *Doorbell::Create();
    auto server = LocalProofServer::Open(poller_.get(), server_bell_.get(),
                                         [this](const Nonce128& nonce, Neighbour neighbour) {
                                           return OnNeighbour(nonce, std::move(neighbour));
                                         });
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    client_ = std::make_unique<LocalProofClient>(
        poller_.get(), client_bell_.get(), client_domain_.get(),
        [this](absl::StatusOr<Neighbour> neighbour) { OnLocalProof(std::move(neighbour)); });
  }

  absl::StatusOr<HandOver> OnNeighbour(const Nonce128& nonce, Neighbour neighbour) {
    ++presented_;
    if (!(nonce == kNonce)) return absl::NotFoundError("no handshake waits for this nonce");
    visitor_ = std::move(neighbour);
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
  static std::string Request() { return std::string("WEFTSHM\3") + std::string(16, 'n'); }
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
  // What the domains are made of does not matter here: anonymous files, told apart by their inodes.
  const Descriptor client_domain_{memfd_create("client's domain", MFD_CLOEXEC)};
  const Descriptor server_domain_{memfd_create("server's domain", MFD_CLOEXEC)};
  const Descriptor link_{memfd_create("link", MFD_CLOEXEC)};
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
  EXPECT_EQ((*result_)->process_id, getpid());
  EXPECT_EQ(visitor_->process_id, getpid());

  server_bell_->Arm();
  (*result_)->doorbell->Ring();
  uint64_t rings = 0;
  EXPECT_EQ(::read(server_bell_->event_fd(), &rings, sizeof(rings)), 8);
  client_bell_->Arm();
  visitor_->doorbell->Ring();
  EXPECT_EQ(::read(client_bell_->event_fd(), &rings, sizeof(rings)), 8);
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

// Descriptors that a peer sends are owned or closed, however many and whatever they are.
TEST_F(LocalProofTest, ForeignDescriptorsAreClosed) {
  poller_->Poll();
  const size_t before = OpenDescriptors();
  for (const size_t count : {size_t{1}, size_t{2}, size_t{3}, size_t{4}, size_t{50}}) {
    const Descriptor socket = Raw();
    std::string request = Request();
    iovec part{request.data(), request.size()};
    std::vector<char> control(CMSG_SPACE(count * sizeof(int)));
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(count * sizeof(int));
    const int descriptor = socket.get();
    for (size_t i = 0; i < count; ++i) {
      std::memcpy(CMSG_DATA(rights) + i * sizeof(int), &descriptor, sizeof(int));
    }
    ASSERT_GT(::sendmsg(socket.get(), &header, 0), 0);
    AnswerTo(socket);
  }
  EXPECT_EQ(presented_, 0);
  EXPECT_EQ(OpenDescriptors(), before);
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
