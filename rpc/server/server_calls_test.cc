// What a server keeps for calls, and what its connections remember of them.
#include "rpc/server/server_calls.h"

#include <gtest/gtest.h>

#include <vector>

#include "rpc/server/call_slot.h"

namespace weft {
namespace {

TEST(ServerCalls, TheOneGivenBackLastIsTakenNext) {
  ServerCalls calls;
  ServerCall* const first = calls.Take();
  ServerCall* const second = calls.Take();
  EXPECT_NE(first, second);
  calls.Give(second);
  calls.Give(first);
  EXPECT_EQ(calls.Take(), first);
  EXPECT_EQ(calls.Take(), second);
  EXPECT_EQ(calls.made(), 2u);
  calls.Give(first);
  calls.Give(second);
}

TEST(ServerCalls, KeepsNoMoreThanItsBoundBesideThoseThatRun) {
  constexpr uint32_t kRunning = 10;
  ServerCalls calls;
  std::vector<ServerCall*> taken;
  for (uint32_t i = 0; i < 2 * ServerCalls::kMaxSpare; ++i) taken.push_back(calls.Take());
  while (taken.size() > kRunning) {
    calls.Give(taken.back());
    taken.pop_back();
  }
  calls.Trim(kRunning);
  EXPECT_EQ(calls.made(), kRunning + ServerCalls::kMaxSpare);
  calls.Trim(kRunning);
  EXPECT_EQ(calls.made(), kRunning + ServerCalls::kMaxSpare);
  for (ServerCall* const call : taken) calls.Give(call);
}

TEST(CallSlot, OnlyANewerGenerationFindsASlotFree) {
  CallSlot slot;
  EXPECT_TRUE(slot.IsFreeFor(0)) << "nobody has used it";
  EXPECT_TRUE(slot.IsFreeFor(0xFFFFFFFF));
  slot.used = true;
  slot.generation = 5;
  EXPECT_FALSE(slot.IsFreeFor(5));
  EXPECT_FALSE(slot.IsFreeFor(4));
  EXPECT_TRUE(slot.IsFreeFor(6));
  slot.generation = 0xFFFFFFFF;
  EXPECT_TRUE(slot.IsFreeFor(1)) << "generations wrap around";
  ServerCalls calls;
  slot.call = calls.Take();
  EXPECT_FALSE(slot.IsFreeFor(1)) << "it is taken";
  calls.Give(slot.call);
}

}  // namespace
}  // namespace weft
