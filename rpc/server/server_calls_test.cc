// What a server keeps for calls, and what its connections remember of them.
#include "rpc/server/server_calls.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/near_array.h"
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

bool IsInside(const CallSlot& slot, const NearArray<CallSlot>& slots) {
  const auto* const place = reinterpret_cast<const std::byte*>(&slot);
  const auto* const begin = reinterpret_cast<const std::byte*>(&slots);
  return place >= begin && place < begin + sizeof(slots);
}

TEST(CallSlot, OneIsInsideAndWithASecondAllHaveTheirPlace) {
  NearArray<CallSlot> slots;
  slots.Reserve(3);
  EXPECT_EQ(slots.size(), 0u);
  slots.Grow();
  EXPECT_TRUE(IsInside(slots[0], slots));
  slots[0].generation = 7;
  slots.Grow();
  EXPECT_FALSE(IsInside(slots[0], slots));
  EXPECT_EQ(slots[0].generation, 7u);
  const CallSlot* const first = &slots[0];
  slots.Grow();
  EXPECT_EQ(&slots[0], first);
  EXPECT_EQ(slots.size(), slots.capacity());
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
