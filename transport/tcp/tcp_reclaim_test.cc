// Reclaim() at any moment: when it returns, nothing touches the memory any more, wherever a
// transfer was, and the peer's operation ends as refused.
//
// The test plays the peer, and stops after each byte. What was reclaimed is checked, and the memory
// beside it.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "transport/tcp/testing/raw_peer.h"
#include "transport/tcp/testing/tcp_side.h"

namespace weft {
namespace {

using Kind = TcpFrameKind;

constexpr std::byte kCanary{0xCA};
constexpr std::byte kAnew{0xEE};  // what the owner has there after the reclaim
constexpr size_t kCanaries = 64;

// Memory with canaries on both sides, and its region.
struct Guarded {
  Guarded(TcpSide& side, size_t bytes, char fill)
      : all(bytes + 2 * kCanaries, kCanary),
        memory(MutableByteSpan(all).subspan(kCanaries, bytes)) {
    std::fill(memory.begin(), memory.end(), static_cast<std::byte>(fill));
    region = std::move(side.domain->Register(memory, Access::kRemoteReadWrite)).value();
  }
  RemoteSpan At(uint64_t offset, uint64_t length) const {
    return region->remote().Slice(offset, length);
  }
  void Reclaim(Link& link) {
    ASSERT_TRUE(link.Reclaim(std::move(region)));
    std::fill(memory.begin(), memory.end(), kAnew);
  }
  // Nothing was written since Reclaim().
  void ExpectUntouched() const {
    EXPECT_EQ(std::count(memory.begin(), memory.end(), kAnew),
              static_cast<ptrdiff_t>(memory.size()));
    ExpectCanaries();
  }
  void ExpectCanaries() const {
    EXPECT_EQ(std::count(all.begin(), all.begin() + kCanaries, kCanary), kCanaries);
    EXPECT_EQ(std::count(all.end() - kCanaries, all.end(), kCanary), kCanaries);
  }

  std::vector<std::byte> all;
  MutableByteSpan memory;
  std::unique_ptr<Region> region;
};

class TcpReclaimTest : public testing::Test {
 protected:
  TcpSide side_;
  LinkEnd end_;
};

TEST_F(TcpReclaimTest, AWriteStopsAtAnyByte) {
  // Two pieces: the reclaim comes before, within and between them.
  const std::string bytes(41, 'w');
  for (size_t cut = 0;; ++cut) {
    SCOPED_TRACE(cut);
    Guarded target(side_, 100, 'o');
    end_.link.reset();
    TcpRawPeer peer(side_, end_);
    const std::string stream =
        TcpFrameText(0, Kind::kWrite, 0, 7, TcpWriteText(target.At(3, 41), bytes)) +
        TcpFrameText(1, Kind::kWrite, kTcpLast, 7, TcpWriteText(target.At(50, 41), bytes)) +
        TcpFrameText(2, Kind::kBatch, 0, 0, "behind");
    if (cut > stream.size()) break;
    peer.Write(stream.substr(0, cut));
    target.Reclaim(*end_.link);
    peer.Write(stream.substr(cut));
    target.ExpectUntouched();
    EXPECT_EQ(end_.downs, 0) << end_.down_status;
    EXPECT_EQ(side_.received, std::vector<std::string>{"behind"});
    side_.received.clear();
    const TcpSentFrame end = peer.ReadFrame();
    EXPECT_EQ(end.header.kind, Kind::kEnd);
    EXPECT_EQ(end.header.operation, 7u);
    // The write was whole when its last byte was there: before the padding, and the batch.
    const size_t whole = 2 * (kTcpHeaderBytes + kTcpWriteHeadBytes + 41) + 7;
    EXPECT_EQ(end.header.flags, cut >= whole ? 0 : kTcpRefused);
  }
  end_.link.reset();
}

// The same of a piece that is received straight into its place, with all of it at once behind.
TEST_F(TcpReclaimTest, ALargePieceStopsWhereItIs) {
  for (const size_t cut : {1u, 4095u, 4096u, 4097u, 40'000u, kPieceBytes - 1, kPieceBytes}) {
    SCOPED_TRACE(cut);
    Guarded target(side_, 200'000, 'o');
    end_.link.reset();
    TcpRawPeer peer(side_, end_);
    std::string stream;
    for (uint32_t i = 0; i < 3; ++i) {
      stream += TcpFrameText(
          i, Kind::kWrite, i == 2 ? kTcpLast : 0, 7,
          TcpWriteText(target.At(i * kPieceBytes, kPieceBytes), std::string(kPieceBytes, 'w')));
    }
    const size_t at = kTcpHeaderBytes + kTcpWriteHeadBytes + cut;
    peer.Write(stream.substr(0, at));
    EXPECT_EQ(std::count(target.memory.begin(), target.memory.end(), std::byte{'w'}),
              static_cast<ptrdiff_t>(cut));
    target.Reclaim(*end_.link);
    peer.Write(stream.substr(at));
    target.ExpectUntouched();
    EXPECT_EQ(peer.ReadFrame().header.flags, kTcpRefused);
    EXPECT_EQ(end_.downs, 0) << end_.down_status;
  }
  end_.link.reset();
}

TEST_F(TcpReclaimTest, AReadStopsAtAnyByte) {
  // More than the socket holds, in ranges of two regions: taken byte by byte around each place
  // where something begins, and in steps between.
  for (size_t taken = 0; taken < 300'000; taken += taken < 300 ? 7 : 9'973) {
    SCOPED_TRACE(taken);
    Guarded first(side_, 150'001, '1'), second(side_, 150'001, '2');
    end_.link.reset();
    TcpRawPeer peer(side_, end_, 4711, /*buffer_bytes=*/4096);
    peer.Send(Kind::kRead, 0, 8,
              TcpSpanText(first.At(0, 150'001)) + TcpSpanText(second.At(0, 150'001)));
    std::string bytes = peer.Read(taken);
    first.Reclaim(*end_.link);
    bytes += peer.Read();
    // All that arrives is of the memory as it was, or zeros, or of the second region.
    bool refused = false, last = false;
    std::string got;
    std::string_view left = bytes;
    while (left.size() >= kTcpHeaderBytes) {
      const TcpHeader header = DecodeTcpHeader(AsBytes(left).data());
      ASSERT_LE(kTcpHeaderBytes + header.length + TcpPadding(header.length), left.size());
      ASSERT_FALSE(last);
      got += left.substr(kTcpHeaderBytes, header.length);
      if (header.kind == Kind::kEnd) {
        last = true;
        refused = header.flags == kTcpRefused;
      }
      left.remove_prefix(kTcpHeaderBytes + header.length + TcpPadding(header.length));
    }
    EXPECT_TRUE(left.empty());
    EXPECT_TRUE(last);
    EXPECT_EQ(std::count(got.begin(), got.end(), static_cast<char>(kAnew)), 0);
    EXPECT_EQ(std::count(got.begin(), got.end(), static_cast<char>(kCanary)), 0);
    const std::string right = std::string(150'001, '1') + std::string(150'001, '2');
    EXPECT_TRUE(refused || got == right) << "a read that succeeds has brought what was there";
    EXPECT_EQ(end_.downs, 0);
    first.ExpectUntouched();
  }
  end_.link.reset();
}

TEST_F(TcpReclaimTest, EveryLinkThatIsInTheMidstOfARegionStops) {
  constexpr size_t kPeers = 5;
  Guarded shared(side_, 10'000, 'o'), other(side_, 10'000, 'o');
  std::vector<LinkEnd> ends(kPeers);
  std::vector<std::unique_ptr<TcpRawPeer>> peers;
  std::string rest;
  for (size_t i = 0; i < kPeers; ++i) {
    peers.push_back(std::make_unique<TcpRawPeer>(side_, ends[i], 100 + i));
    const Guarded& target = i == 3 ? other : shared;
    const std::string frame = TcpFrameText(
        0, Kind::kWrite, kTcpLast, 7, TcpWriteText(target.At(0, 9000), std::string(9000, 'w')));
    peers[i]->Write(frame.substr(0, 32 + 1000 * (i + 1)));
  }
  shared.Reclaim(*ends[0].link);
  // The fourth is in the midst of another region, and is still known to be.
  for (size_t i = 0; i < kPeers; ++i) {
    if (i == 3) continue;
    peers[i]->Write(std::string(9000 - 1000 * (i + 1), 'w'));
    EXPECT_EQ(peers[i]->ReadFrame().header.flags, kTcpRefused);
  }
  shared.ExpectUntouched();
  peers[3]->Write(std::string(1000, 'w'));
  EXPECT_EQ(other.memory[4999], std::byte{'w'});
  other.Reclaim(*ends[3].link);
  peers[3]->Write(std::string(4000, 'w'));
  other.ExpectUntouched();
  EXPECT_EQ(peers[3]->ReadFrame().header.flags, kTcpRefused);
  for (LinkEnd& end : ends) {
    EXPECT_EQ(end.downs, 0);
    end.link.reset();
  }
}

TEST_F(TcpReclaimTest, ABatchMayReclaimWhatTheNextFrameWrites) {
  Guarded target(side_, 100, 'o');
  TcpRawPeer peer(side_, end_);
  side_.on_received = [&] { target.Reclaim(*end_.link); };
  peer.Write(TcpFrameText(0, Kind::kWrite, 0, 7, TcpWriteText(target.At(0, 4), "1234")) +
             TcpFrameText(1, Kind::kBatch, 0, 0, "now") +
             TcpFrameText(2, Kind::kWrite, kTcpLast, 7, TcpWriteText(target.At(4, 4), "5678")));
  target.ExpectUntouched();
  EXPECT_EQ(peer.ReadFrame().header.flags, kTcpRefused);
  side_.on_received = nullptr;
  end_.link.reset();
}

TEST_F(TcpReclaimTest, AKeyIsGoodForOneRegionOnly) {
  TcpRawPeer peer(side_, end_);
  Guarded first(side_, 100, '1');
  const RemoteSpan stale = first.At(0, 4);
  first.Reclaim(*end_.link);
  Guarded second(side_, 100, '2');  // has its place
  EXPECT_EQ(stale.key % 65536, second.region->remote().key % 65536);
  EXPECT_NE(stale.key, second.region->remote().key);
  peer.Send(Kind::kRead, 0, 8, TcpSpanText(stale));
  EXPECT_EQ(peer.ReadFrame().header.flags, kTcpRefused);
  peer.Send(Kind::kWrite, kTcpLast, 9, TcpWriteText(stale, "evil"));
  EXPECT_EQ(peer.ReadFrame().header.flags, kTcpRefused);
  EXPECT_EQ(second.memory[0], std::byte{'2'});
  end_.link.reset();
}

TEST_F(TcpReclaimTest, AsManyRegionsAsKeysCanName) {
  std::vector<std::byte> memory(8);
  std::vector<std::unique_ptr<Region>> regions;
  for (size_t i = 0; i < 65536; ++i) {
    regions.push_back(std::move(side_.domain->Register(memory, Access::kRemoteRead)).value());
  }
  EXPECT_EQ(side_.domain->Register(memory, Access::kRemoteRead).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(side_.domain->Register(memory, Access::kLocalOnly).ok()) << "has no key";
  regions.pop_back();
  EXPECT_TRUE(side_.domain->Register(memory, Access::kRemoteRead).ok());
  regions.clear();
  EXPECT_EQ(side_.domain->stats().registrations_open, 0u);
}

}  // namespace
}  // namespace weft
