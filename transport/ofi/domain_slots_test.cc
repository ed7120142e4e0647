// The slots of a domain: who gets how many, and who hears of it when there are some again.

#include "transport/ofi/domain_slots.h"

#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "transport/ofi/fabric_objects.h"
#include "transport/ofi/hints.h"

namespace weft {
namespace {

constexpr uint32_t kSlotBytes = 256;
constexpr uint64_t kMaxBytes = uint64_t{16} * kSlotBytes * SlotPool::kSlotsPerChunk;

std::shared_ptr<FabricObjects> OpenTcp() {
  auto info = Discover({"tcp", "127.0.0.1"}, TcpHints().get());
  if (!info.ok()) return nullptr;
  auto objects = FabricObjects::Open(*std::move(info), FI_WAIT_FD, {/*receives=*/64, /*sends=*/0});
  return objects.ok() ? *objects : nullptr;
}

class DomainSlotsTest : public testing::Test {
 protected:
  std::shared_ptr<FabricObjects> objects_ = OpenTcp();
  LinkDomainStats stats_;
  Registrar registrar_{objects_->domain.get(), *objects_->info, &stats_};
  DomainSlots slots_{&registrar_, kSlotBytes, kMaxBytes, &stats_};
};

TEST_F(DomainSlotsTest, AsManyAreGivenAsAreAskedFor) {
  EXPECT_EQ(slots_.Acquire().data, nullptr) << "nobody has asked for any";
  ASSERT_TRUE(slots_.Reserve(/*sends=*/6, /*receives=*/0).ok());
  slots_.AddSends(6);
  std::vector<SendSlot> taken;
  for (int i = 0; i < 6; ++i) taken.push_back(slots_.Acquire());
  for (const SendSlot& slot : taken) EXPECT_NE(slot.data, nullptr);
  EXPECT_EQ(stats_.send_slots_in_use, 6u);
  EXPECT_EQ(slots_.Acquire().data, nullptr);
  for (const SendSlot& slot : taken) slots_.Give(DomainSlots::SlotOf(slot));
  EXPECT_EQ(stats_.send_slots_in_use, 0u);
}

TEST_F(DomainSlotsTest, RoomIsToldOnceAndAfterARefusalOnly) {
  ASSERT_TRUE(slots_.Reserve(1, 0).ok());
  slots_.AddSends(1);
  const SendSlot only = slots_.Acquire();
  EXPECT_FALSE(slots_.ran_out());
  EXPECT_EQ(slots_.Acquire().data, nullptr);
  EXPECT_TRUE(slots_.ran_out());
  EXPECT_FALSE(slots_.HasRoomAgain());
  slots_.Give(DomainSlots::SlotOf(only));
  EXPECT_TRUE(slots_.HasRoomAgain());
  EXPECT_FALSE(slots_.HasRoomAgain());
  EXPECT_FALSE(slots_.ran_out());
}

TEST_F(DomainSlotsTest, ASlotIsFoundUntilItIsGivenBack) {
  ASSERT_TRUE(slots_.Reserve(1, 0).ok());
  slots_.AddSends(1);
  Slot* const slot = DomainSlots::SlotOf(slots_.Acquire());
  const WorkId id = slot->id();
  EXPECT_EQ(slots_.FindSend(id), slot);
  slots_.Give(slot);
  EXPECT_EQ(slots_.FindSend(id), nullptr) << "its id is stale";
}

TEST_F(DomainSlotsTest, MemoryComesWhenMoreAreInUseThanEverBefore) {
  ASSERT_TRUE(slots_.Reserve(/*sends=*/1000, 0).ok());
  slots_.AddSends(1000);
  const uint64_t before = stats_.registrations;
  std::vector<SendSlot> taken;
  for (uint32_t i = 0; i <= SlotPool::kSlotsPerChunk; ++i) taken.push_back(slots_.Acquire());
  EXPECT_NE(taken.back().data, nullptr);
  EXPECT_EQ(stats_.registrations, before + 1);
  for (const SendSlot& slot : taken) slots_.Give(DomainSlots::SlotOf(slot));
}

TEST_F(DomainSlotsTest, TheBoundOfMemoryIsNamed) {
  const absl::Status status = slots_.Reserve(0, /*receives=*/16 * SlotPool::kSlotsPerChunk + 1);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("max_pool_bytes"), std::string::npos) << status;
}

}  // namespace
}  // namespace weft
