// A server listens on one socket, at its address, whatever path its clients come by; a client
// listens on none. What is open on a host is what its administrator has to protect.

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "core/testing/descriptors.h"
#include "gtest/gtest.h"
#include "transport/control/testing/network_world.h"
#include "transport/sockets/socket.h"

namespace weft {
namespace {

// The addresses at which this process listens, sorted.
std::vector<std::string> ListeningAddresses() {
  std::vector<std::string> addresses;
  for (const int fd : ListeningSockets()) {
    const absl::StatusOr<KernelAddress> address = LocalAddress(fd);
    EXPECT_TRUE(address.ok()) << address.status();
    if (address.ok()) addresses.push_back(address->text());
  }
  std::sort(addresses.begin(), addresses.end());
  return addresses;
}

using Addresses = std::vector<std::string>;

class OnePortTest : public NetworkTest {
 protected:
  void SetUp() override {
    NetworkTest::SetUp();
    acceptor_.echo = true;
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    ASSERT_EQ(ListeningAddresses(), Addresses());
  }
  void TearDown() override {
    listener_.reset();
    EXPECT_EQ(rmdir(folder_.c_str()), 0);
  }
  void ExpectEcho(const std::string& address, PathKind kind) {
    NetworkEnd* const end = DialAt(address, Over({kind}));
    ASSERT_TRUE(RunUntilDecided(*end));
    ASSERT_TRUE(end->opened()) << end->why();
    ASSERT_TRUE(end->Send("there and back"));
    ASSERT_TRUE(Run([&] { return !end->received.empty(); }));
  }

  std::string folder_ = "/tmp/weft_one_port_XXXXXX";
};

TEST_F(OnePortTest, AServerListensAtItsAddressAloneAndAClientNowhere) {
  for (const std::string& at :
       {std::string("127.0.0.1:0"), std::string("[::1]:0"), "unix:" + folder_ + "/server"}) {
    listener_.reset();
    Listen(at, Allowing({PathKind::kTcp}));
    const Addresses one = {listener_->address()};
    EXPECT_EQ(ListeningAddresses(), one);
    for (int i = 0; i < 3; ++i) {
      ExpectEcho(listener_->address(), PathKind::kTcp);
      EXPECT_EQ(ListeningAddresses(), one);
    }
  }
}

// Clients of this host show by it that they are there: it has no port, and no file.
TEST_F(OnePortTest, ForSharedMemoryAServerListensAtANameOfThisHostToo) {
  Listen("127.0.0.1:0", Allowing({PathKind::kShm}));
  ExpectEcho(listener_->address(), PathKind::kShm);
  const Addresses found = ListeningAddresses();
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0], listener_->address());
  EXPECT_EQ(found[1].substr(0, 6), "unix:@");
}

// Engines that share an address share its socket, too. Each has its own name for shared memory.
TEST_F(OnePortTest, SeveralEnginesListenAtOneSocket) {
  for (const PathKind kind : {PathKind::kTcp, PathKind::kShm}) {
    listener_.reset();
    Listen("127.0.0.1:0", Allowing({kind}));
    const std::unique_ptr<Engine> other = NewNetworkEngine();
    auto joined =
        other->transport().JoinListener(listener_->shared(), Allowing({kind}), &acceptor_);
    ASSERT_TRUE(joined.ok()) << joined.status();
    Addresses found = ListeningAddresses();
    EXPECT_EQ(std::erase(found, listener_->address()), 1u);
    EXPECT_EQ(found.size(), kind == PathKind::kShm ? 2u : 0u);
    for (const std::string& name : found) EXPECT_EQ(name.substr(0, 6), "unix:@");
  }
}

// It is one that the system chooses, at the address by which the client has come and no other.
TEST_F(OnePortTest, OfiTcpAddsAPortWhereTheClientHasCome) {
  for (const auto& [listens, reached] : {std::pair{"127.0.0.1", "127.0.0.1"},
                                         {"0.0.0.0", "127.0.0.2"},
                                         {"[::1]", "[::1]"},
                                         {"[::]", "127.0.0.3"}}) {
    listener_.reset();
    server_ = NewNetworkEngine();
    Listen(std::string(listens) + ":0", Allowing({PathKind::kOfiTcp}));
    const std::string own = listener_->address();
    EXPECT_EQ(ListeningAddresses(), Addresses({own})) << "before anybody has come";
    ExpectEcho(reached + own.substr(own.rfind(':')), PathKind::kOfiTcp);
    Addresses found = ListeningAddresses();
    ASSERT_EQ(found.size(), 2u);
    ASSERT_EQ(std::erase(found, own), 1u);
    EXPECT_EQ(found[0].substr(0, found[0].rfind(':')), reached);
  }
}

// Who does not name it on both sides has no such port.
TEST_F(OnePortTest, WithoutBothNamesThereIsNoOtherPort) {
  Listen("127.0.0.1:0", Allowing({PathKind::kTcp, PathKind::kOfiTcp}));
  ExpectEcho(listener_->address(), PathKind::kTcp);
  EXPECT_EQ(ListeningAddresses(), Addresses({listener_->address()}));
}

}  // namespace
}  // namespace weft
