#include "bench/raw/raw_ends.h"

#include <dirent.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "bench/perf/perf_path.h"
#include "gtest/gtest.h"

namespace weft::bench {
namespace {

constexpr double kSeconds = 0.05;

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

  // One for each measurement.
  int ServeRuns() {
    auto server = OpenRawServer({GetParam(), sockets_[1]});
    for (int run = 0; server.ok() && run < 7; ++run) {
      if (!(*server)->Serve().ok()) return 2;
    }
    return server.ok() ? 0 : 1;
  }

  Figures Measure(Measurement measurement) {
    const auto figures = client_->Run(measurement, kSeconds);
    EXPECT_TRUE(figures.ok()) << figures.status();
    return figures.value_or(Figures());
  }

  int sockets_[2];
  pid_t child_ = -1;
  std::unique_ptr<ClientEnd> client_;
};

TEST_P(RawEndsTest, EveryMeasurementYieldsItsFigures) {
  const Figures round_trip = Measure(Measurement::kRoundTrip);
  EXPECT_GT(round_trip.p50_us, 0);
  EXPECT_GE(round_trip.p99_us, round_trip.p50_us);
  EXPECT_GE(round_trip.p999_us, round_trip.p99_us);
  EXPECT_GT(Measure(Measurement::kRate).per_s, 0);
  EXPECT_GT(Measure(Measurement::kOneWay).per_s, 0);
  EXPECT_GT(Measure(Measurement::kRead).p50_us, 0);
  EXPECT_GT(Measure(Measurement::kReadRate).per_s, 0);
  EXPECT_GT(Measure(Measurement::kWrite).gbytes_per_s, 0);
  EXPECT_GT(Measure(Measurement::kBulk).gbytes_per_s, 0);
}

INSTANTIATE_TEST_SUITE_P(Paths, RawEndsTest, testing::Values(Named("shm"), Named("tcp")),
                         [](const auto& path) { return path.param.name; });

}  // namespace
}  // namespace weft::bench
