// A doorbell wakes who sleeps, costs nothing to who is awake, and believes no peer.
#include "transport/doorbell.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <memory>
#include <utility>

namespace weft {

// Where a peer's word is here.
class PeerDoorbellTestPeer {
 public:
  static const std::atomic<uint32_t>* Word(const PeerDoorbell& bell) { return bell.armed_; }
};

namespace {

const std::atomic<uint32_t>* WordOf(const PeerDoorbell& bell) {
  return PeerDoorbellTestPeer::Word(bell);
}

bool Rings(const Doorbell& bell) {
  pollfd look = {bell.event_fd(), POLLIN, 0};
  return poll(&look, 1, /*timeout=*/0) == 1;
}

std::unique_ptr<Doorbell> MakeBell() {
  auto bell = Doorbell::Create();
  EXPECT_TRUE(bell.ok()) << bell.status();
  return *std::move(bell);
}

std::unique_ptr<PeerDoorbell> OpenPeer(const Doorbell& bell) {
  auto peer = PeerDoorbell::Open(dup(bell.event_fd()), dup(bell.page_fd()));
  EXPECT_TRUE(peer.ok()) << peer.status();
  return *std::move(peer);
}

TEST(Doorbell, ARingWakesWhoIsArmed) {
  const auto bell = MakeBell();
  bell->Arm();
  bell->Ring();
  EXPECT_TRUE(Rings(*bell));
  bell->Drain();
  EXPECT_FALSE(Rings(*bell));
}

TEST(Doorbell, ARingIsSilentWhileNobodySleeps) {
  const auto bell = MakeBell();
  bell->Ring();
  EXPECT_FALSE(Rings(*bell));
  bell->Arm();
  bell->Disarm();
  bell->Ring();
  EXPECT_FALSE(Rings(*bell));
}

TEST(Doorbell, APeerRingsThroughPassedDescriptors) {
  const auto bell = MakeBell();
  const auto peer = OpenPeer(*bell);
  peer->Ring();
  EXPECT_FALSE(Rings(*bell));
  bell->Arm();
  peer->Ring();
  EXPECT_TRUE(Rings(*bell));
}

TEST(Doorbell, APeerCannotWriteOrResizeThePage) {
  const auto bell = MakeBell();
  EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, bell->page_fd(), 0),
            MAP_FAILED);
  EXPECT_NE(ftruncate(bell->page_fd(), 0), 0);
  const char byte = 1;
  EXPECT_NE(pwrite(bell->page_fd(), &byte, 1, 0), 1);
}

// With a thousand connections to one peer this had been a page, and a translation, for each.
TEST(PeerDoorbell, ThePageOfOneEngineIsMappedOnce) {
  const auto bell = MakeBell();
  const auto other_bell = MakeBell();
  auto first = OpenPeer(*bell);
  const auto second = OpenPeer(*bell);
  const auto other = OpenPeer(*other_bell);
  EXPECT_EQ(WordOf(*first), WordOf(*second));
  EXPECT_NE(WordOf(*first), WordOf(*other));
  // It stays for those who are left.
  first.reset();
  bell->Arm();
  EXPECT_EQ(WordOf(*second)->load(), 1u);
  second->Ring();
  EXPECT_TRUE(Rings(*bell));
  EXPECT_EQ(WordOf(*other)->load(), 0u);
}

TEST(PeerDoorbell, APageThatCouldShrinkIsRefused) {
  const auto bell = MakeBell();
  const int page = memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(page, 4096), 0);
  const auto peer = PeerDoorbell::Open(dup(bell->event_fd()), page);
  EXPECT_EQ(peer.status().code(), absl::StatusCode::kInvalidArgument) << peer.status();
}

TEST(PeerDoorbell, APageOfAnotherSizeIsRefused) {
  const auto bell = MakeBell();
  const int page = memfd_create("empty", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  const auto peer = PeerDoorbell::Open(dup(bell->event_fd()), page);
  EXPECT_EQ(peer.status().code(), absl::StatusCode::kInvalidArgument) << peer.status();
}

TEST(PeerDoorbell, ABlockingEventIsRefused) {
  const auto bell = MakeBell();
  const auto peer = PeerDoorbell::Open(eventfd(0, EFD_CLOEXEC), dup(bell->page_fd()));
  EXPECT_EQ(peer.status().code(), absl::StatusCode::kInvalidArgument) << peer.status();
}

}  // namespace
}  // namespace weft
