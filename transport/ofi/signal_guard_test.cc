// The application's signal handling stays its own.

#include "transport/ofi/signal_guard.h"

#include <csignal>

#include "gtest/gtest.h"
#include "transport/ofi/testing/link_fixture.h"

namespace weft {
namespace {

void Mine(int) {}

TEST(SignalGuardTest, OpeningDomainsLeavesHandlersAlone) {
  struct sigaction mine = {};
  mine.sa_handler = Mine;
  for (int number : {SIGTERM, SIGINT}) sigaction(number, &mine, nullptr);
  Side a(PathKind::kOfiTcp);
  ASSERT_TRUE(a.domain->AddSlots(4, 4).ok());
  for (int number : {SIGTERM, SIGINT}) {
    struct sigaction now = {};
    sigaction(number, nullptr, &now);
    EXPECT_EQ(now.sa_handler, &Mine) << number;
  }
}

TEST(SignalGuardTest, TheApplicationsOwnHandlersStay) {
  struct sigaction mine = {};
  mine.sa_handler = Mine;
  sigaction(SIGTERM, &mine, nullptr);
  RemoveForeignSignalHandlers();
  struct sigaction now = {};
  sigaction(SIGTERM, nullptr, &now);
  EXPECT_EQ(now.sa_handler, &Mine);
}

}  // namespace
}  // namespace weft
