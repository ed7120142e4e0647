// What a host without memory means for tcp links: a connection at most, and never the process.
#include <gtest/gtest.h>

#include <string>

#include "core/memory_hooks.h"
#include "core/testing/host_memory.h"
#include "transport/tcp/testing/raw_peer.h"
#include "transport/tcp/testing/tcp_side.h"

namespace weft {
namespace {

// Before any test takes memory.
const bool hooked = SetMemoryHooks(test::HostMemory::Get().hooks()).ok();

class TcpMemoryTest : public testing::Test {
 protected:
  TcpMemoryTest() { EXPECT_TRUE(hooked); }
  ~TcpMemoryTest() override { host_.Refuse(0); }
  void RefuseSlots() { host_.Refuse(1u << static_cast<unsigned>(MemoryKind::kSlots)); }

  test::HostMemory& host_ = test::HostMemory::Get();
};

TEST_F(TcpMemoryTest, AFrameInPartsForWhichThereIsNoMemoryEndsItsLink) {
  TcpSide side;
  LinkEnd end;
  LinkEnd other;
  TcpRawPeer peer(side, end);
  TcpRawPeer other_peer(side, other, 99);
  RefuseSlots();
  const std::string frame = peer.Next(TcpFrameKind::kBatch, 0, 0, std::string(5000, 'b'));
  peer.Write(std::string_view(frame).substr(0, 1000));
  EXPECT_EQ(end.downs, 1);
  EXPECT_EQ(end.down_status, absl::ResourceExhaustedError(
                                 "no memory for a frame of 5000 bytes that arrives in parts"));
  // What comes whole needs none.
  EXPECT_TRUE(other_peer.Send(TcpFrameKind::kBatch, 0, 0, std::string(5000, 'c')));
  EXPECT_EQ(other.downs, 0);
  ASSERT_EQ(side.received.size(), 1u);
  host_.Refuse(0);
  const std::string later = other_peer.Next(TcpFrameKind::kBatch, 0, 0, std::string(5000, 'd'));
  EXPECT_TRUE(other_peer.Write(std::string_view(later).substr(0, 1000)));
  EXPECT_TRUE(other_peer.Write(std::string_view(later).substr(1000)));
  EXPECT_EQ(side.received.size(), 2u);
  end.link.reset();
  other.link.reset();
}

TEST_F(TcpMemoryTest, ASendSlotForWhichThereIsNoMemoryIsThereWhenThereIs) {
  TcpSide side;
  LinkEnd end;
  TcpRawPeer peer(side, end);
  RefuseSlots();
  EXPECT_EQ(end.link->TakeSlot(100).data, nullptr);
  host_.Refuse(0);
  SendSlot slot = end.link->TakeSlot(100);
  EXPECT_NE(slot.data, nullptr);
  EXPECT_TRUE(host_.Has(slot.data));
  side.domain->ReleaseSlot(slot);
  end.link.reset();
}

}  // namespace
}  // namespace weft
