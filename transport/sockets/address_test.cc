#include "transport/sockets/address.h"

#include <netinet/in.h>

#include <string>

#include "gtest/gtest.h"

namespace weft {
namespace {

TEST(ServerAddress, IsWrittenInThreeWays) {
  const absl::StatusOr<ServerAddress> v4 = ParseServerAddress("db7.example.org:4711");
  ASSERT_TRUE(v4.ok()) << v4.status();
  EXPECT_EQ(v4->kind, ServerAddress::Kind::kInternet);
  EXPECT_EQ(v4->host, "db7.example.org");
  EXPECT_EQ(v4->port, 4711);

  const absl::StatusOr<ServerAddress> v6 = ParseServerAddress("[fe80::1%eth0]:0");
  ASSERT_TRUE(v6.ok()) << v6.status();
  EXPECT_EQ(v6->host, "fe80::1%eth0");
  EXPECT_EQ(v6->port, 0);

  const absl::StatusOr<ServerAddress> local = ParseServerAddress("unix:/run/weft/kv.sock");
  ASSERT_TRUE(local.ok()) << local.status();
  EXPECT_EQ(local->kind, ServerAddress::Kind::kUnix);
  EXPECT_EQ(local->path, "/run/weft/kv.sock");
}

TEST(ServerAddress, ComesBackAsItWasWritten) {
  for (const std::string text : {"localhost:1", "10.0.0.7:65535", "[::1]:80", "unix:/a"}) {
    const absl::StatusOr<ServerAddress> address = ParseServerAddress(text);
    ASSERT_TRUE(address.ok()) << address.status();
    EXPECT_EQ(address->text(), text);
  }
}

TEST(ServerAddress, ErrorsSayWhatIsWrong) {
  const struct {
    std::string text;
    std::string why;
  } kCases[] = {
      {"", "port is missing"},
      {"localhost", "port is missing"},
      {"localhost:", "not a number from 0 to 65535"},
      {":4711", "host is missing"},
      {"localhost:65536", "not a number from 0 to 65535"},
      {"localhost:-1", "not a number from 0 to 65535"},
      {"localhost:+1", "not a number from 0 to 65535"},
      {"localhost:1x", "not a number from 0 to 65535"},
      {"localhost:0000001", "not a number from 0 to 65535"},
      {"::1:4711", "needs brackets"},
      {"[::1]", "port is missing"},
      {"[::1]4711", "port is missing"},
      {"[::1:4711", "without"},
      {"[]:1", "host is missing"},
      {"[localhost]:1", "only an IPv6 address"},
      {"two words:1", "no name has"},
      {"http://localhost:1", "needs brackets"},
      {std::string("a\0b:1", 5), "no name has"},
      {std::string(300, 'a') + ":1", "too long"},
      {"unix:", "not absolute"},
      {"unix:run/kv.sock", "not absolute"},
      {"unix:/" + std::string(107, 'a'), "kernel takes 107"},
      {std::string("unix:/a\0b", 9), "zero byte"},
  };
  for (const auto& expected : kCases) {
    const absl::StatusOr<ServerAddress> address = ParseServerAddress(expected.text);
    EXPECT_EQ(address.status().code(), absl::StatusCode::kInvalidArgument) << expected.text;
    EXPECT_NE(std::string(address.status().message()).find(expected.why), std::string::npos)
        << expected.text << ": " << address.status();
  }
}

TEST(ServerAddress, ErrorsQuoteOnlySoMuch) {
  EXPECT_LT(ParseServerAddress(std::string(1 << 20, 'x')).status().message().size(), 500u);
}

TEST(Resolve, AnswersNumericAddressesWithoutAName) {
  const absl::StatusOr<std::vector<KernelAddress>> v4 =
      Resolve(*ParseServerAddress("127.0.0.1:4711"));
  ASSERT_TRUE(v4.ok()) << v4.status();
  ASSERT_EQ(v4->size(), 1u);
  EXPECT_EQ(v4->front().family(), AF_INET);
  EXPECT_EQ(v4->front().text(), "127.0.0.1:4711");

  const absl::StatusOr<std::vector<KernelAddress>> v6 = Resolve(*ParseServerAddress("[::1]:4711"));
  ASSERT_TRUE(v6.ok()) << v6.status();
  ASSERT_EQ(v6->size(), 1u);
  EXPECT_EQ(v6->front().text(), "[::1]:4711");
}

TEST(Resolve, TakesUnixPathsAsTheyAre) {
  const absl::StatusOr<std::vector<KernelAddress>> found =
      Resolve(*ParseServerAddress("unix:/tmp/x"));
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->front().family(), AF_UNIX);
  EXPECT_EQ(found->front().text(), "unix:/tmp/x");
  // The longest path there is.
  const std::string longest = "/" + std::string(106, 'a');
  const absl::StatusOr<std::vector<KernelAddress>> edge =
      Resolve(*ParseServerAddress("unix:" + longest));
  ASSERT_TRUE(edge.ok()) << edge.status();
  EXPECT_EQ(edge->front().text(), "unix:" + longest);
}

TEST(Resolve, KnowsLocalhost) {
  const absl::StatusOr<std::vector<KernelAddress>> found =
      Resolve(*ParseServerAddress("localhost:1"));
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_GE(found->size(), 1u);
}

TEST(AbstractAddress, HasNoFile) {
  const KernelAddress address = AbstractAddress("weft-test");
  EXPECT_EQ(address.text(), "unix:@weft-test");
}

}  // namespace
}  // namespace weft
