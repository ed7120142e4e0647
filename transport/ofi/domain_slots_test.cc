// The slots of a domain: who gets how many, of which size, and who hears of it when there are some
// again.

#include "transport/ofi/domain_slots.h"

#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "transport/ofi/fabric_objects.h"
#include "transport/ofi/hints.h"

namespace weft {
namespace {

constexpr uint32_t kUsual = 256;
constexpr uint32_t kWide = 1024;
// One chunk of wide slots in the quarter that they may take, and three of usual ones.
constexpr uint64_t kMaxBytes = uint64_t{4} * kWide * SlotPool::kSlotsPerChunk;

std::shared_ptr<FabricObjects> OpenTcp() {
  auto info = Discover({"tcp", "127.0.0.1"}, TcpHints().get());
  if (!info.ok()) return nullptr;
  auto objects = FabricObjects::Open(*std::move(info), FI_WAIT_FD, {/*receives=*/64, /*sends=*/0});
  return objects.ok() ? *objects : nullptr;
}

class DomainSlotsTest : public testing::Test {
 protected:
  DomainSlots Make(uint32_t wide_bytes) {
    return DomainSlots(&registrar_, kUsual, wide_bytes, kMaxBytes, &stats_);
  }

  std::shared_ptr<FabricObjects> objects_ = OpenTcp();
  LinkDomainStats stats_;
  Registrar registrar_{objects_->domain.get(), *objects_->info, &stats_};
};

TEST_F(DomainSlotsTest, AsManyAreGivenAsAreAskedFor) {
  DomainSlots slots = Make(kWide);
  EXPECT_EQ(slots.Acquire().data, nullptr) << "nobody has asked for any";
  ASSERT_TRUE(slots.Reserve(/*sends=*/6, /*receives=*/0).ok());
  slots.AddSends(6);
  std::vector<SendSlot> taken;
  for (int i = 0; i < 6; ++i) taken.push_back(slots.Acquire());
  for (const SendSlot& slot : taken) EXPECT_NE(slot.data, nullptr);
  EXPECT_EQ(stats_.send_slots_in_use, 6u);
  EXPECT_EQ(slots.Acquire().data, nullptr);
  EXPECT_EQ(slots.AcquireWide().data, nullptr) << "both sizes count";
  for (const SendSlot& slot : taken) slots.Give(DomainSlots::SlotOf(slot));
  EXPECT_EQ(stats_.send_slots_in_use, 0u);
}

TEST_F(DomainSlotsTest, RoomIsToldOnceAndAfterARefusalOnly) {
  DomainSlots slots = Make(kWide);
  ASSERT_TRUE(slots.Reserve(1, 0).ok());
  slots.AddSends(1);
  const SendSlot only = slots.Acquire();
  EXPECT_FALSE(slots.ran_out());
  EXPECT_EQ(slots.Acquire().data, nullptr);
  EXPECT_TRUE(slots.ran_out());
  EXPECT_FALSE(slots.HasRoomAgain());
  slots.Give(DomainSlots::SlotOf(only));
  EXPECT_TRUE(slots.HasRoomAgain());
  EXPECT_FALSE(slots.HasRoomAgain());
  EXPECT_FALSE(slots.ran_out());
}

TEST_F(DomainSlotsTest, WideSlotsAreKnownByTheirIndex) {
  DomainSlots slots = Make(kWide);
  ASSERT_TRUE(slots.Reserve(4, 2).ok());
  slots.AddSends(4);
  EXPECT_EQ(slots.widest_bytes(), kWide);
  EXPECT_EQ(slots.receive_pool().slot_bytes(), kWide);
  Slot* const usual = DomainSlots::SlotOf(slots.Acquire());
  Slot* const wide = DomainSlots::SlotOf(slots.AcquireWide());
  EXPECT_FALSE(DomainSlots::IsWide(usual->index));
  EXPECT_TRUE(DomainSlots::IsWide(wide->index));
  for (Slot* slot : {usual, wide}) {
    const WorkId id = slot->id();
    EXPECT_EQ(slots.FindSend(id), slot);
    slots.Give(slot);
    EXPECT_EQ(slots.FindSend(id), nullptr) << "its id is stale";
  }
}

TEST_F(DomainSlotsTest, WithoutWideSlotsAllAreOfOneSize) {
  DomainSlots slots = Make(/*wide_bytes=*/0);
  ASSERT_TRUE(slots.Reserve(2, 2).ok());
  slots.AddSends(2);
  EXPECT_EQ(slots.widest_bytes(), kUsual);
  EXPECT_EQ(slots.receive_pool().slot_bytes(), kUsual);
  Slot* const slot = DomainSlots::SlotOf(slots.AcquireWide());
  EXPECT_FALSE(DomainSlots::IsWide(slot->index));
  slots.Give(slot);
}

TEST_F(DomainSlotsTest, MemoryComesWhenMoreAreInUseThanEverBefore) {
  DomainSlots slots = Make(kWide);
  ASSERT_TRUE(slots.Reserve(/*sends=*/1000, 0).ok());
  slots.AddSends(1000);
  const uint64_t before = stats_.registrations;
  std::vector<SendSlot> taken;
  for (uint32_t i = 0; i <= SlotPool::kSlotsPerChunk; ++i) taken.push_back(slots.Acquire());
  EXPECT_NE(taken.back().data, nullptr);
  EXPECT_EQ(stats_.registrations, before + 1);
  for (const SendSlot& slot : taken) slots.Give(DomainSlots::SlotOf(slot));
}

TEST_F(DomainSlotsTest, TheBoundOfMemoryIsNamed) {
  DomainSlots slots = Make(kWide);
  const absl::Status status = slots.Reserve(0, /*receives=*/SlotPool::kSlotsPerChunk + 1);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("max_pool_bytes"), std::string::npos) << status;
}

}  // namespace
}  // namespace weft
