// A server listens on one socket, at its address, whatever path its clients come by; a client
// listens on none. What is open on a host is what its administrator has to protect.

#include <dirent.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "transport/control/testing/network_world.h"
#include "transport/sockets/socket.h"

namespace weft {
namespace {

// The addresses at which this process listens for connections from the network.
std::vector<std::string> ListeningAddresses() {
  std::vector<std::string> addresses;
  DIR* const folder = opendir("/proc/self/fd");
  while (const dirent* const entry = readdir(folder)) {
    const int fd = std::atoi(entry->d_name);
    int listens = 0;
    socklen_t bytes = sizeof(listens);
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) != 0 || listens == 0) continue;
    const absl::StatusOr<KernelAddress> address = LocalAddress(fd);
    if (address.ok() && address->family() != AF_UNIX) addresses.push_back(address->text());
  }
  closedir(folder);
  return addresses;
}

class OnePortTest : public NetworkTest {};

TEST_F(OnePortTest, AServerListensAtItsAddressAloneAndAClientNowhere) {
  const std::vector<std::string> before = ListeningAddresses();
  EXPECT_TRUE(before.empty());
  acceptor_.echo = true;
  Listen("127.0.0.1:0");
  const std::vector<std::string> one = {listener_->address()};
  EXPECT_EQ(ListeningAddresses(), one);
  for (int i = 0; i < 3; ++i) {
    NetworkEnd* const end = Dial(Over({PathKind::kTcp}));
    ASSERT_TRUE(RunUntilDecided(*end));
    ASSERT_TRUE(end->opened()) << end->why();
    ASSERT_TRUE(end->Send("over a socket that was joined"));
    ASSERT_TRUE(Run([&] { return !end->received.empty(); }));
    EXPECT_EQ(ListeningAddresses(), one);
  }
}

TEST_F(OnePortTest, AUnixServerListensOnNoPort) {
  std::string folder = "/tmp/weft_one_port_XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  Listen("unix:" + folder + "/server");
  NetworkEnd* const end = Dial(Over({PathKind::kTcp}));
  ASSERT_TRUE(RunUntilDecided(*end));
  ASSERT_TRUE(end->opened()) << end->why();
  EXPECT_TRUE(ListeningAddresses().empty());
  listener_.reset();
  EXPECT_EQ(rmdir(folder.c_str()), 0);
}

}  // namespace
}  // namespace weft
