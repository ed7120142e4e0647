#include "bench/raw/raw_ends.h"

#include <dirent.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "bench/perf/cell/perf_path.h"
#include "bench/perf/ends/pipe.h"
#include "gtest/gtest.h"

namespace weft::bench {
namespace {

constexpr double kSeconds = 0.02;

int RawFilesInDevShm() {
  int count = 0;
  DIR* folder = opendir("/dev/shm");
  while (const dirent* entry = readdir(folder)) {
    count += std::strncmp(entry->d_name, "weft-raw-", 9) == 0;
  }
  closedir(folder);
  return count;
}

PerfPath Named(const std::string& name) {
  PerfPath path;
  path.name = name;
  return path;
}

// The server's end in a child process, that forked before any call to libfabric.
class RawEndsTest : public testing::TestWithParam<PerfPath> {
 protected:
  void SetUp() override {
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets_), 0);
    child_ = fork();
    if (child_ == 0) _exit(ServeRuns());
    close(sockets_[1]);
    auto client = OpenRawClient({GetParam(), sockets_[0]});
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
  }
  void TearDown() override {
    client_.reset();
    int status = 0;
    waitpid(child_, &status, 0);
    EXPECT_EQ(status, 0);
    close(sockets_[0]);
    EXPECT_EQ(RawFilesInDevShm(), 0);
  }

  // Each cell once.
  int ServeRuns() {
    auto server = OpenRawServer({GetParam(), sockets_[1]});
    if (!server.ok()) return 1;
    for (const Cell& cell : Cells()) {
      if (!(*server)->Serve(cell).ok()) return 2;
      if (!WriteLine(sockets_[1], "served").ok()) return 3;
    }
    return 0;
  }

  // Each pattern, and each size of messages, which have a fabric of their own.
  static std::vector<Cell> Cells() {
    return *CellsOnly(
        "unary:0:8,unary:64,unary:4Ki:64,unary:64Ki:8,unary:1Mi:1,messages:300,messages:1Mi:8,"
        "bulk:64,bulk:1Mi:8,read:300,write:64,write:1Mi:8");
  }

  Figures Measure(const Cell& cell) {
    const auto figures = client_->Run(cell, kSeconds);
    EXPECT_TRUE(figures.ok()) << figures.status();
    EXPECT_TRUE(ReadLine(sockets_[0]).ok());
    return figures.value_or(Figures());
  }

  int sockets_[2];
  pid_t child_ = -1;
  std::unique_ptr<ClientEnd> client_;
};

TEST_P(RawEndsTest, EveryCellYieldsItsFigures) {
  for (const Cell& cell : Cells()) {
    const Figures figures = Measure(cell);
    EXPECT_GT(figures.per_s, 0) << NameOf(cell);
    EXPECT_EQ(figures.is_timed(), cell.outstanding == 1) << NameOf(cell);
    EXPECT_TRUE(std::is_sorted(figures.latency_us.begin(), figures.latency_us.end()))
        << NameOf(cell);
  }
}

INSTANTIATE_TEST_SUITE_P(Paths, RawEndsTest, testing::Values(Named("shm"), Named("tcp")),
                         [](const auto& path) { return path.param.name; });

}  // namespace
}  // namespace weft::bench
