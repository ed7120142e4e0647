#include "transport/ofi/sleep_set.h"

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <vector>

namespace weft {
namespace {

// One end is watched; the other makes it readable.
class Pipe {
 public:
  Pipe() { EXPECT_EQ(pipe(fds_), 0); }
  ~Pipe() {
    Close();
    close(fds_[1]);
  }
  pollfd entry() const { return {fds_[0], POLLIN, 0}; }
  int fd() const { return fds_[0]; }
  int other_fd() const { return fds_[1]; }
  void Fill() { EXPECT_EQ(write(fds_[1], "x", 1), 1); }
  void Close() {
    if (fds_[0] >= 0) close(fds_[0]);
    fds_[0] = -1;
  }

 private:
  int fds_[2];
};

class SleepSetTest : public testing::Test {
 protected:
  SleepSetTest() : epoll_(epoll_create1(EPOLL_CLOEXEC)) { set_.Use(epoll_); }
  ~SleepSetTest() override { close(epoll_); }

  void Watch(const std::vector<pollfd>& wanted, uint64_t version = 1) {
    const absl::Status status = set_.Watch(wanted, version);
    EXPECT_TRUE(status.ok()) << status;
  }
  int Ready() {
    epoll_event events[8];
    return epoll_wait(epoll_, events, 8, /*timeout=*/0);
  }

  const int epoll_;
  SleepSet set_;
};

TEST_F(SleepSetTest, WatchedDescriptorsWakeAndReleasedOnesDoNot) {
  Pipe first, second;
  Watch({first.entry(), second.entry()});
  EXPECT_TRUE(set_.watching());
  EXPECT_EQ(Ready(), 0);
  first.Fill();
  EXPECT_EQ(Ready(), 1);
  second.Fill();
  EXPECT_EQ(Ready(), 2);
  set_.Release();
  EXPECT_FALSE(set_.watching());
  EXPECT_EQ(Ready(), 0);
}

TEST_F(SleepSetTest, WhatIsReadyAlreadyWakesAtOnce) {
  Pipe pipe;
  pipe.Fill();
  Watch({pipe.entry()});
  EXPECT_EQ(Ready(), 1);
}

TEST_F(SleepSetTest, AnotherSetReplacesTheOneBefore) {
  Pipe first, second;
  Watch({first.entry()});
  Watch({second.entry()});
  first.Fill();
  EXPECT_EQ(Ready(), 0);
  second.Fill();
  EXPECT_EQ(Ready(), 1);
}

// A connection goes, and the next one gets its descriptor's number: the list looks the same.
TEST_F(SleepSetTest, ANumberThatIsUsedAgainIsWatchedAgain) {
  Pipe first, second;
  Watch({first.entry()}, /*version=*/1);
  const pollfd again = first.entry();
  first.Close();
  ASSERT_EQ(dup2(second.fd(), again.fd), again.fd);
  second.Fill();
  Watch({again}, /*version=*/2);
  EXPECT_EQ(Ready(), 1);
  close(again.fd);
}

TEST_F(SleepSetTest, EventsThatChangeAreWatchedFor) {
  Pipe pipe;
  Watch({{pipe.other_fd(), POLLIN, 0}});
  EXPECT_EQ(Ready(), 0);
  Watch({{pipe.other_fd(), POLLIN | POLLOUT, 0}});
  EXPECT_EQ(Ready(), 1) << "there is room in the pipe";
}

TEST_F(SleepSetTest, SignalsOfTheProviderAreLeftOut) {
  int fds[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  ASSERT_EQ(write(fds[1], "x", 1), 1);
  Pipe pipe;
  Watch({{fds[0], POLLIN, 0}, pipe.entry()});
  EXPECT_EQ(Ready(), 0);
  pipe.Fill();
  EXPECT_EQ(Ready(), 1);
  for (int fd : fds) close(fd);
}

TEST_F(SleepSetTest, AnErrorLeavesNothingWatched) {
  Pipe pipe;
  pipe.Fill();
  const pollfd closed = {1'000'000, POLLIN, 0};
  EXPECT_FALSE(set_.Watch(std::vector<pollfd>{pipe.entry(), closed}, 1).ok());
  EXPECT_FALSE(set_.watching());
  EXPECT_EQ(Ready(), 0);
  Watch({pipe.entry()});
  EXPECT_EQ(Ready(), 1);
}

}  // namespace
}  // namespace weft
