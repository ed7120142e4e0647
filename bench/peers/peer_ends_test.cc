// What the peers' ends promise to perf, without perf: both ends in one process, two threads.

#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "bench/peers/socket_ends.h"
#include "bench/peers/ucx_ends.h"
#include "gtest/gtest.h"

namespace weft::bench {
namespace {

PerfPath PathNamed(const char* name) {
  PerfPath path;
  path.name = name;
  return path;
}

void ExpectFigures(SocketStyle style, const char* path, const Cell& cell) {
  int fds[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  std::thread server([&] {
    const auto end = OpenSocketServer(style, {PathNamed(path), fds[0]});
    ASSERT_TRUE(end.ok()) << end.status();
    for (int run = 0; run < 2; ++run) EXPECT_TRUE((*end)->Serve(cell).ok());
  });
  const auto end = OpenSocketClient(style, {PathNamed(path), fds[1]});
  EXPECT_TRUE(end.ok()) << end.status();
  for (int run = 0; end.ok() && run < 2; ++run) {
    const auto figures = (*end)->Run(cell, 0.02);
    ASSERT_TRUE(figures.ok()) << figures.status();
    EXPECT_GT(figures->per_s, 0) << NameOf(cell);
    EXPECT_EQ(figures->is_timed(), cell.outstanding == 1);
  }
  server.join();
  close(fds[0]);
  close(fds[1]);
}

TEST(SocketEndsTest, EveryCellOfTheirsYieldsFiguresTwice) {
  for (const char* path : {"shm", "tcp"}) {
    for (const SocketStyle style :
         {SocketStyle::kCoalescing, SocketStyle::kSingle, SocketStyle::kBlocking}) {
      for (const Pattern pattern : {Pattern::kUnary, Pattern::kMessages, Pattern::kBulk}) {
        for (const uint32_t bytes : {0u, 64u, 300'000u}) {
          for (const uint32_t outstanding : {1u, 64u}) {
            const Cell cell = {pattern, bytes, outstanding};
            if (!WhyNoCell(cell).empty() || !WhyNotSockets(style, cell, PathNamed(path)).empty())
              continue;
            ExpectFigures(style, path, cell);
          }
        }
      }
    }
  }
}

TEST(UcxEndsTest, TheLastLineOfItsOutputIsTheResult) {
  const auto result = ParseUcxResult(
      "|     Test     | # iterations | 50.0%ile | average | overall |\n"
      "+--------------+--------------+----------+---------+---------+\n"
      "                      100000      0.501     5.390     7.966       11.32       7.66      "
      "185517      125535\n");
  ASSERT_TRUE(result.has_value());
  EXPECT_DOUBLE_EQ(result->p50_us, 0.501);
  EXPECT_DOUBLE_EQ(result->overall_us, 7.966);
  EXPECT_DOUBLE_EQ(result->per_s, 125535);
}

TEST(UcxEndsTest, WhatIsNoResultIsNotTakenForOne) {
  for (const char* text : {"", "\n\n", "Failed to connect", "100 1 2 3"}) {
    EXPECT_FALSE(ParseUcxResult(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace weft::bench
