// What peers that send what they like, when they like, can make this side hold or lose.

#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "transport/tcp/testing/raw_peer.h"
#include "transport/tcp/testing/tcp_side.h"
#include "transport/testing/post.h"

namespace {
size_t live_bytes = 0;
}

void* operator new(size_t bytes) {
  void* const memory = std::malloc(bytes);
  if (memory == nullptr) std::abort();
  live_bytes += malloc_usable_size(memory);
  return memory;
}
void operator delete(void* memory) noexcept {
  if (memory != nullptr) live_bytes -= malloc_usable_size(memory);
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept { operator delete(memory); }

namespace weft {
namespace {

using Kind = TcpFrameKind;

// Small frames that have left stayed in their vector until it was empty. A peer that always has
// something asked for, and takes it as slowly as it likes, keeps it from becoming empty: this side
// held all that it had ever sent to it.
TEST(TcpAttackTest, WhatHasLeftIsNotHeldForAPeerThatAlwaysAsksForMore) {
  constexpr size_t kRange = 2048;
  constexpr int kRanges = 8;
  TcpSide side;
  LinkEnd end;
  TcpRawPeer peer(side, end, 4711, /*buffer_bytes=*/8 << 10);
  std::vector<std::byte> memory(64 << 10);
  auto region = std::move(side.domain->Register(memory, Access::kRemoteRead)).value();
  std::string spans;
  for (int i = 0; i < kRanges; ++i) spans += TcpSpanText(region->remote().Slice(0, kRange));
  for (uint32_t i = 0; i < 60; ++i) ASSERT_TRUE(peer.Send(Kind::kRead, 0, i, spans));
  const size_t before = live_bytes;
  size_t taken = 0;
  size_t most = 0;
  while (taken < (size_t{64} << 20) && end.downs == 0) {
    const size_t got = peer.Read(kTcpHeaderBytes + kRange * kRanges).size();
    taken += got;
    if (got == 0) break;
    if (!peer.Send(Kind::kRead, 0, 7, spans)) break;
    most = std::max(most, live_bytes > before ? live_bytes - before : 0);
  }
  EXPECT_EQ(end.downs, 0) << end.down_status;
  EXPECT_GE(taken, size_t{64} << 20);
  EXPECT_LT(most, size_t{1} << 20) << "after " << taken << " bytes";
}

// A read is short where urgent data was sent, too: what lay behind was not heard of until more
// came.
TEST(TcpAttackTest, UrgentDataEndsTheLink) {
  TcpSide side;
  LinkEnd end;
  LinkPeer peer;
  peer.nonce = 5;
  peer.nonce_low = 6;
  end.link = std::move(side.domain->Accept(peer, &end)).value();
  Descriptor socket = std::move(StartDial(ParseNumericAddress(side.listens_at).value())).value();
  const auto join = EncodeJoin({5, 6});
  ASSERT_TRUE(TcpRunUntil({&side}, [&] {
    return ::send(socket.get(), join.data(), join.size(), MSG_NOSIGNAL) == kJoinBytes;
  }));
  ASSERT_TRUE(TcpRunUntil({&side}, [&] { return end.ups == 1; }));
  TcpSettle({&side});
  const std::string first = TcpFrameText(0, Kind::kBatch, 0, 0, "first");
  const std::string second = TcpFrameText(1, Kind::kBatch, 0, 0, "second");
  ASSERT_GT(::send(socket.get(), first.data(), first.size(), 0), 0);
  ASSERT_EQ(::send(socket.get(), "!", 1, MSG_OOB), 1);
  ASSERT_GT(::send(socket.get(), second.data(), second.size(), 0), 0);
  for (int i = 0; i < 100; ++i) TcpSettle({&side});
  EXPECT_EQ(end.downs, 1);
  EXPECT_EQ(end.down_status.code(), absl::StatusCode::kDataLoss) << end.down_status;
}

// Operations are counted in the whole domain: a peer that answers nothing kept those of others from
// being posted, for as long as it liked.
TEST(TcpAttackTest, APeerThatAnswersNothingLeavesOperationsToOthers) {
  TcpSide side, honest;
  LinkEnd mute_end;
  TcpLinkEnds(honest, honest.end, side, side.end, 17);
  TcpRawPeer mute(side, mute_end);
  std::vector<std::byte> here(4096), there(4096);
  auto local = std::move(side.domain->Register(here, Access::kLocalOnly)).value();
  auto remote = std::move(honest.domain->Register(there, Access::kRemoteRead)).value();
  std::vector<CountedOperation> held(kMaxRangesOfLink);
  size_t posted = 0;
  for (CountedOperation& operation : held) {
    if (!Read(*mute_end.link, *local, 0, {99, 0, 8}, &operation).ok()) break;
    ++posted;
  }
  CountedOperation read;
  const auto status = Read(*side.end.link, *local, 0, remote->remote().Slice(0, 8), &read);
  EXPECT_TRUE(status.ok()) << status << " after " << posted;
  if (status.ok()) TcpRunUntil({&side, &honest}, [&] { return read.completions == 1; });
  mute_end.link.reset();
  side.end.link.reset();
}

// Random: three peers, one of them near by turns; frames cut anywhere; each batch is heard of, with
// Arm() and without.
TEST(TcpAttackTest, NobodyIsForgottenWhoeverIsNear) {
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    std::mt19937 random(seed);
    TcpSide side;
    std::vector<std::unique_ptr<LinkEnd>> ends;
    std::vector<std::unique_ptr<TcpRawPeer>> peers;
    std::vector<std::string> pending(4);
    uint64_t token = 100;
    const auto meet = [&](size_t i) {
      ends[i] = std::make_unique<LinkEnd>();
      peers[i] = std::make_unique<TcpRawPeer>(side, *ends[i], ++token);
      pending[i].clear();
    };
    ends.resize(4);
    peers.resize(4);
    for (size_t i = 0; i < 4; ++i) meet(i);
    side.received.clear();
    size_t sent = 0;
    size_t favourite = 0;
    for (int round = 0; round < 1500; ++round) {
      if (random() % 60 == 0) favourite = random() % 4;
      const size_t i = random() % 8 == 0 ? random() % 4 : favourite;
      if (random() % 400 == 0) {  // one goes, and another comes
        const bool whole = pending[i].empty();
        if (random() % 2 == 0) {
          ends[i]->link.reset();
        } else {
          peers[i]->Close();
          ASSERT_EQ(ends[i]->downs, 1) << seed << " " << round;
        }
        if (!whole) --sent;
        ends[i]->link.reset();
        meet(i);
      }
      if (pending[i].empty()) {
        pending[i] = peers[i]->Next(Kind::kBatch, 0, 0, std::string(8 + random() % 800 * 8, 'b'));
        ++sent;
      }
      const size_t cut = random() % 3 == 0 ? 1 + random() % pending[i].size() : pending[i].size();
      ASSERT_EQ(peers[i]->WriteSome({pending[i].data(), cut}), static_cast<ssize_t>(cut));
      pending[i].erase(0, cut);
      const auto due = [&] {
        return sent - static_cast<size_t>(
                          std::count_if(pending.begin(), pending.end(),
                                        [](const std::string& text) { return !text.empty(); }));
      };
      if (random() % 20 == 0) {
        TcpSettle({&side});
      } else {
        for (int turn = 0; turn < 12; ++turn) side.domain->Poll(64);
      }
      ASSERT_EQ(side.received.size(), due()) << "seed " << seed << " round " << round;
      if (random() % 10 == 0) {  // this side sends, too
        const size_t to = random() % 4;
        if (side.Send(*ends[to], "to you").ok()) peers[to]->Read();
      }
      ASSERT_EQ(side.received.size(), due());
    }
    for (auto& end : ends) end->link.reset();
  }
}

// Random: reads and writes whose numbers are reused while they are under way, of regions that go at
// any byte. Nothing of a region's memory leaves, and nothing is written there, when it is gone.
TEST(TcpAttackTest, NumbersThatAreReusedReachNoMemoryThatIsGone) {
  size_t reclaimed_under_way = 0;
  for (uint32_t seed = 1; seed <= 100; ++seed) {
    std::mt19937 random(seed);
    TcpSide side;
    LinkEnd end;
    TcpRawPeer peer(side, end, 4711, 16 << 10);
    constexpr size_t kBytes = 400'000;
    std::vector<std::vector<std::byte>> memory(4, std::vector<std::byte>(kBytes, std::byte{1}));
    std::vector<std::unique_ptr<Region>> regions;
    std::vector<RemoteSpan> spans;
    for (auto& bytes : memory) {
      regions.push_back(std::move(side.domain->Register(bytes, Access::kRemoteReadWrite)).value());
      spans.push_back(regions.back()->remote());
    }
    const std::vector<std::byte> gone_memory(kBytes, std::byte{0x5A});
    std::string input;
    const auto write_on = [&](size_t most) {
      const size_t bytes = std::min(most, input.size());
      const ssize_t took = peer.WriteSome({input.data(), bytes});
      if (took > 0) input.erase(0, static_cast<size_t>(took));
      TcpSettle({&side});
    };
    for (int round = 0; round < 400 && end.downs == 0; ++round) {
      if (input.size() < 300'000) {
        const uint32_t number = random() % 3;
        if (random() % 3 != 0) {
          std::string asked;
          const uint32_t count = 1 + random() % 6;
          for (uint32_t i = 0; i < count; ++i) {
            const RemoteSpan& span = spans[random() % spans.size()];
            const uint64_t at = random() % (kBytes / 2);
            asked += TcpSpanText(
                {span.key, at, random() % 4 != 0 ? 1 + random() % 3000 : 1 + random() % 200'000});
          }
          input += peer.Next(Kind::kRead, 0, number, asked);
        } else {
          const RemoteSpan& span = spans[random() % spans.size()];
          input += peer.Next(Kind::kWrite, kTcpLast, number,
                             TcpWriteText({span.key, random() % 1000, 1},
                                          std::string(1 + random() % 100'000, '\1')));
        }
      }
      write_on(1 + random() % 20'000);
      if (random() % 20 == 0) {
        const size_t gone = random() % 4;
        if (regions[gone] != nullptr) {
          char byte;  // something is on its way to the peer
          reclaimed_under_way += ::recv(peer.fd(), &byte, 1, MSG_PEEK) == 1 ? 1 : 0;
          ASSERT_TRUE(end.link->Reclaim(std::move(regions[gone])));
          regions[gone] = nullptr;
          std::fill(memory[gone].begin(), memory[gone].end(), std::byte{0x5A});
          // What the kernel has may still be read; it is ones.
        }
      }
      // Every body is ones or zeros; heads may be anything, so runs are looked for.
      const std::string got = peer.Read(1 + random() % 20'000);
      ASSERT_EQ(got.find("ZZZZZZZZ"), std::string::npos) << "seed " << seed;
      for (size_t i = 0; i < 4; ++i) {
        if (regions[i] != nullptr) continue;
        ASSERT_EQ(std::memcmp(memory[i].data(), gone_memory.data(), kBytes), 0)
            << "seed " << seed << " round " << round;
      }
    }
    EXPECT_EQ(end.downs, 0) << end.down_status;
    while (!input.empty() && end.downs == 0) {
      write_on(20'000);
      peer.Read();
    }
    while (!peer.Read().empty()) {
    }
    EXPECT_TRUE(side.domain->Arm() && !side.IsReadable());
    EXPECT_EQ(end.downs, 0) << end.down_status << " seed " << seed;
    end.link.reset();
  }
  EXPECT_GT(reclaimed_under_way, 50u);
}

}  // namespace
}  // namespace weft
