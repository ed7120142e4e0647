// The application's signal handling stays its own.

#include "transport/ofi/signal_guard.h"

#include <csignal>

#include "gtest/gtest.h"
#include "transport/ofi/link_fixture.h"

namespace weft {
namespace {

void Mine(int) {}

TEST(SignalGuardTest, OpeningDomainsLeavesHandlersAlone) {
  struct sigaction mine = {};
  mine.sa_handler = Mine;
  for (int number : {SIGTERM, SIGINT}) sigaction(number, &mine, nullptr);
  Side a(PathKind::kShm), b(PathKind::kShm);
  ASSERT_TRUE(a.domain->AddSlots(4, 4).ok());
  auto link = a.domain->Accept(a.PeerOf(b, 1), &a.endpoint);  // opens the first endpoint
  ASSERT_TRUE(link.ok()) << link.status();
  for (int number : {SIGTERM, SIGINT}) {
    struct sigaction now = {};
    sigaction(number, nullptr, &now);
    EXPECT_EQ(now.sa_handler, &Mine) << number;
  }
}

TEST(SignalGuardTest, GuardPutsHandlersBack) {
  struct sigaction mine = {};
  mine.sa_handler = Mine;
  sigaction(SIGTERM, &mine, nullptr);
  {
    SignalGuard guard;
    std::signal(SIGTERM, SIG_IGN);
  }
  struct sigaction now = {};
  sigaction(SIGTERM, nullptr, &now);
  EXPECT_EQ(now.sa_handler, &Mine);
  RemoveForeignSignalHandlers();
  sigaction(SIGTERM, nullptr, &now);
  EXPECT_EQ(now.sa_handler, &Mine) << "the application's own handlers stay";
}

}  // namespace
}  // namespace weft
