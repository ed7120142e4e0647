#include "bench/machine/cpu.h"

#include <sched.h>

#include <thread>

#include "gtest/gtest.h"

namespace weft::bench {
namespace {

TEST(CpuTest, AThreadCanBePinnedToEachAllowedCpu) {
  const std::vector<int> cpus = AllowedCpus();
  ASSERT_FALSE(cpus.empty());
  for (int cpu : cpus) {
    std::thread pinned([cpu] {
      ASSERT_TRUE(PinThisThread(cpu).ok());
      EXPECT_EQ(sched_getcpu(), cpu);
    });
    pinned.join();
  }
}

TEST(CpuTest, AThreadThatWasPinnedCanBeSetFreeAgain) {
  const std::vector<int> cpus = AllowedCpus();
  std::thread([&] {
    ASSERT_TRUE(PinThisThread(cpus.front()).ok());
    EXPECT_EQ(AllowedCpus(), std::vector<int>{cpus.front()});
    ASSERT_TRUE(LimitThisThread(cpus).ok());
    EXPECT_EQ(AllowedCpus(), cpus);
  }).join();
}

TEST(CpuTest, ACpuThatIsNotThereIsAnErrorThatNamesIt) {
  const absl::Status status = PinThisThread(CPU_SETSIZE - 1);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find(std::to_string(CPU_SETSIZE - 1)), absl::string_view::npos);
}

TEST(CpuTest, CoresThatDifferHaveALatency) {
  const std::vector<int> cpus = AllowedCpus();
  if (cpus.size() < 2) GTEST_SKIP() << "one processor only";
  EXPECT_GT(CoreToCoreNs(cpus[0], cpus[1]), 0);
  EXPECT_EQ(CoreToCoreNs(cpus[0], cpus[0]), 0);
}

TEST(CpuTest, StolenTimeNeverRunsBackwards) {
  const uint64_t before = StolenTicks();
  EXPECT_GE(StolenTicks(), before);
}

}  // namespace
}  // namespace weft::bench
