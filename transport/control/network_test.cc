// Connections on the real network, between two engines of this process.

#include <unistd.h>

#include <cstdlib>
#include <string>

#include "gtest/gtest.h"
#include "transport/control/testing/network_world.h"

namespace weft {
namespace {

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_F(NetworkTest, TakesTheBestPathAndSaysWhy) {
  Listen("127.0.0.1:0");
  TestEnd* const end = Dial();
  ASSERT_TRUE(RunUntilDecided(*end));
  ASSERT_TRUE(end->opened()) << end->why();
  EXPECT_EQ(end->path(), "shm");
  EXPECT_TRUE(Contains(end->explained(), "same host (kernel ")) << end->explained();
  EXPECT_TRUE(Contains(end->explained(), "pid " + std::to_string(getpid()))) << end->explained();
  EXPECT_TRUE(Contains(end->explained(), "on both sides")) << end->explained();
  EXPECT_TRUE(Contains(end->explained(), "tcp   not tried")) << end->explained();
  ASSERT_TRUE(Run([&] { return acceptor_.ends[0]->opened(); }));
  EXPECT_EQ(acceptor_.ends[0]->path(), "shm");
  EXPECT_TRUE(Contains(acceptor_.ends[0]->explained(), "same host")) << end->explained();
}

TEST_F(NetworkTest, CarriesMessagesBothWaysOnEachPath) {
  acceptor_.echo = true;
  Listen("127.0.0.1:0");
  for (const PathKind kind : {PathKind::kShm, PathKind::kTcp}) {
    TestEnd* const end = Dial(Over({kind}));
    ASSERT_TRUE(RunUntilDecided(*end));
    ASSERT_TRUE(end->opened()) << end->why();
    EXPECT_EQ(end->path(), PathKindName(kind));
    ASSERT_TRUE(end->Send("there and back"));
    ASSERT_TRUE(Run([&] { return !end->received.empty(); })) << PathKindName(kind);
    EXPECT_EQ(end->received[0], "there and back");
    end->connection().Close("enough");
    ASSERT_TRUE(Run([&] { return end->closed() && acceptor_.ends.back()->closed(); }));
    EXPECT_EQ(end->why().code(), absl::StatusCode::kCancelled);
    EXPECT_EQ(acceptor_.ends.back()->why(), absl::UnavailableError("peer closed: enough"));
  }
}

}  // namespace
}  // namespace weft
