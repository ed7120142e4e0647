// What a false local socket costs a client: shared memory, and nothing else. The server is an
// honest one; somebody on the way, or a server's neighbour, has the client go to another socket.

#include <sys/socket.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "transport/control/control_frame.h"
#include "transport/control/hello.h"
#include "transport/control/testing/relay.h"
#include "transport/control/testing/stranger.h"
#include "transport/descriptor.h"
#include "transport/sockets/address.h"

namespace weft {
namespace {

class FalseLocalSocketTest : public StrangerTest {
 protected:
  void SetUp() override {
    StrangerTest::SetUp();
    Stranger asks = NewStranger();
    ASSERT_TRUE(SayHello(asks));
    const auto hello = DecodeServerHello(AsBytes(asks.Body(ControlType::kServerHello)));
    ASSERT_TRUE(hello.ok()) << hello.status();
    const std::string name = hello->local_socket;
    ASSERT_EQ(name.substr(0, 5), "weft-");
    false_name_ = name.substr(0, name.size() - 2) + "no";
    relay_ = std::make_unique<Relay>(listener_->address());
    relay_->ReplaceOfServer(name, false_name_);
  }

  // The connection comes up over tcp, shared memory was given up for this reason, and it serves.
  // `path_timeout_ns` is that of tcp as well.
  void ExpectTcpBecause(const std::string& reason,
                        uint64_t path_timeout_ns = Patient().link.path_timeout_ns) {
    ConnectOptions options = Over({PathKind::kShm, PathKind::kTcp});
    options.link.path_timeout_ns = path_timeout_ns;
    NetworkEnd* const end = DialAt(relay_->address(), options);
    ASSERT_TRUE(RunRelayed([&] { return end->opened() || end->closed(); }));
    ASSERT_TRUE(end->opened()) << end->why();
    EXPECT_EQ(end->path(), "tcp");
    EXPECT_NE(end->explained().find(reason), std::string::npos) << end->explained();
    ASSERT_TRUE(end->Send("still here?"));
    ASSERT_TRUE(RunRelayed([&] { return !end->received.empty() || end->closed(); }));
    EXPECT_EQ(end->received, std::vector<std::string>{"still here?"});
    EXPECT_FALSE(end->closed()) << end->why();
  }

  // Somebody of our user has taken the name, and says this to who comes.
  void Listen(const std::string& answer) {
    false_ = Descriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const KernelAddress address = AbstractAddress(false_name_);
    ASSERT_EQ(::bind(false_.get(), address.get(), address.length), 0);
    ASSERT_EQ(::listen(false_.get(), 8), 0);
    answer_ = answer;
  }

 private:
  template <class Done>
  bool RunRelayed(Done done) {
    return Run([&] {
      relay_->Turn();
      Answer();
      return done();
    });
  }
  void Answer() {
    const int fd = false_.valid() ? ::accept4(false_.get(), nullptr, nullptr, SOCK_CLOEXEC) : -1;
    if (fd < 0) return;
    visitors_.emplace_back(fd);
    if (answer_.empty()) return;
    EXPECT_EQ(::send(fd, answer_.data(), answer_.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(answer_.size()));
  }

  std::unique_ptr<Relay> relay_;
  std::string false_name_;
  Descriptor false_;
  std::string answer_;
  std::vector<Descriptor> visitors_;
};

TEST_F(FalseLocalSocketTest, ThatNobodyListensAtCostsSharedMemoryOnly) {
  ExpectTcpBecause("different network namespaces");
}

TEST_F(FalseLocalSocketTest, ThatTalksNonsenseCostsSharedMemoryOnly) {
  Listen("HTTP/1.1 400 Bad Request");
  ExpectTcpBecause("no answer at its local socket");
}

// It agrees, and hands nothing over.
TEST_F(FalseLocalSocketTest, ThatLiesCostsSharedMemoryOnly) {
  Listen(std::string("WEFTSHM\4\0", 9));
  ExpectTcpBecause("without a doorbell, a domain or a link");
}

TEST_F(FalseLocalSocketTest, ThatIsSilentCostsSharedMemoryAndItsTime) {
  Listen("");
  ExpectTcpBecause("did not come up within 5000 ms", /*path_timeout_ns=*/5'000'000'000);
}

}  // namespace
}  // namespace weft
