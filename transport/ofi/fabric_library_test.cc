// Loading libfabric changes nothing of the process but what it is for.

#include "transport/ofi/fabric_library.h"

#include <csignal>

#include "gtest/gtest.h"
#include "transport/ofi/testing/link_fixture.h"

namespace weft {
namespace {

void Mine(int) {}

void (*HandlerOf(int number))(int) {
  struct sigaction now = {};
  sigaction(number, nullptr, &now);
  return now.sa_handler;
}

// A Redis with Weft in a module did not save its data any more when it was told to stop: a library
// that libfabric brings along had taken its handlers when the module was loaded, and Weft then put
// the system's in their place.
TEST(FabricLibraryTest, TheProcessKeepsItsSignalHandlers) {
  struct sigaction mine = {};
  mine.sa_handler = Mine;
  for (int number : {SIGTERM, SIGINT, SIGABRT}) sigaction(number, &mine, nullptr);
  const auto at_fault = HandlerOf(SIGSEGV);
  ASSERT_EQ(LoadFabricLibrary(), absl::OkStatus());
  for (int number : {SIGTERM, SIGINT, SIGABRT}) EXPECT_EQ(HandlerOf(number), &Mine) << number;
  EXPECT_EQ(HandlerOf(SIGSEGV), at_fault);
  Side a(PathKind::kOfiTcp);
  ASSERT_TRUE(a.domain->AddSlots(4, 4).ok());
  for (int number : {SIGTERM, SIGINT, SIGABRT}) EXPECT_EQ(HandlerOf(number), &Mine) << number;
  EXPECT_EQ(HandlerOf(SIGSEGV), at_fault);
}

TEST(FabricLibraryTest, ItIsLoadedOnceAndKnowsItsVersion) {
  ASSERT_EQ(LoadFabricLibrary(), absl::OkStatus());
  EXPECT_EQ(&LoadedFabricLibrary(), &LoadedFabricLibrary());
  EXPECT_GE(LoadedFabricLibrary().version(), FI_VERSION(1, 17));
}

}  // namespace
}  // namespace weft
