// A doorbell wakes who sleeps, costs nothing to who is awake, and believes no peer.
#include "transport/doorbell.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>
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

// Whether it has rung since this was last asked.
class Listener {
 public:
  explicit Listener(const Doorbell& bell) {
    EXPECT_TRUE(poller_->Add(bell.event_fd(), EPOLLIN | EPOLLET, /*handler=*/nullptr).ok());
  }
  bool HasHeard() { return poller_->Wait(/*timeout_ns=*/0); }

 private:
  std::unique_ptr<Poller> poller_ = *Poller::Create();
};

std::unique_ptr<Doorbell> MakeBell() {
  auto bell = Doorbell::Create();
  EXPECT_TRUE(bell.ok()) << bell.status();
  return *std::move(bell);
}

// An engine in another process, from here and by itself: a doorbell, and both ends of the pair.
class OtherEngine {
 public:
  OtherEngine() : bell(MakeBell()), poller(*Poller::Create()) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    here_ = Descriptor(ends[0]);
    there = Descriptor(ends[1]);
  }
  std::unique_ptr<PeerDoorbell> Open(Poller* own) { return Open(own, std::move(here_)); }
  std::unique_ptr<PeerDoorbell> Open(Poller* own, Descriptor socket) const {
    auto peer = PeerDoorbell::Open(own, std::move(socket), Page());
    EXPECT_TRUE(peer.ok()) << peer.status();
    return *std::move(peer);
  }
  Descriptor Page() const { return Descriptor(dup(bell->page_fd())); }
  // Takes a ring that was sent to it.
  bool Rings() const {
    char ring[8];
    return recv(there.get(), ring, sizeof(ring), MSG_DONTWAIT) == 1;
  }

  std::unique_ptr<Doorbell> bell;
  std::unique_ptr<Poller> poller;
  Descriptor there;  // its end

 private:
  Descriptor here_;
};

TEST(Doorbell, ARingWakesWhoIsArmed) {
  const auto bell = MakeBell();
  Listener sleeper(*bell);
  bell->Arm();
  for (int i = 0; i < 3; ++i) {
    bell->Ring();
    EXPECT_TRUE(sleeper.HasHeard());
    EXPECT_FALSE(sleeper.HasHeard());
  }
}

TEST(Doorbell, ARingIsSilentWhileNobodySleeps) {
  const auto bell = MakeBell();
  Listener sleeper(*bell);
  bell->Ring();
  EXPECT_FALSE(sleeper.HasHeard());
  bell->Arm();
  bell->Disarm();
  bell->Ring();
  EXPECT_FALSE(sleeper.HasHeard());
}

TEST(Doorbell, APeerCannotWriteOrResizeThePage) {
  const auto bell = MakeBell();
  EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, bell->page_fd(), 0),
            MAP_FAILED);
  EXPECT_NE(ftruncate(bell->page_fd(), 0), 0);
  const char byte = 1;
  EXPECT_NE(pwrite(bell->page_fd(), &byte, 1, 0), 1);
}

class PeerDoorbellTest : public testing::Test {
 protected:
  std::unique_ptr<Poller> poller_ = *Poller::Create();
  OtherEngine other_;
};

TEST_F(PeerDoorbellTest, WakesThePeerOnlyWhileItSleeps) {
  const auto peer = other_.Open(poller_.get());
  peer->Ring();
  EXPECT_FALSE(other_.Rings());
  other_.bell->Arm();
  peer->Ring();
  EXPECT_TRUE(other_.Rings());
  EXPECT_FALSE(other_.Rings());
}

TEST_F(PeerDoorbellTest, ThePeersRingsEndASleepAndAreTakenByTheNextLooks) {
  const auto peer = other_.Open(poller_.get());
  const auto back = other_.Open(other_.poller.get(), std::move(other_.there));
  const auto is_ready = [&] {
    pollfd look = {poller_->descriptor(), POLLIN, 0};
    return poll(&look, 1, /*timeout=*/0) == 1;
  };
  EXPECT_FALSE(is_ready());
  other_.bell->Arm();
  for (int i = 0; i < 3; ++i) back->Ring();
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(is_ready());
    EXPECT_EQ(poller_->Poll(), 1);
  }
  EXPECT_FALSE(is_ready());
  EXPECT_TRUE(peer->connected());
}

// With a thousand connections to one peer this had been a page, and a translation, for each.
TEST_F(PeerDoorbellTest, ThePageOfOneEngineIsMappedOnce) {
  const OtherEngine another;
  auto first = other_.Open(poller_.get());
  const auto second = other_.Open(poller_.get(), Descriptor(dup(other_.there.get())));
  const auto third = another.Open(poller_.get(), Descriptor(dup(another.there.get())));
  EXPECT_EQ(WordOf(*first), WordOf(*second));
  EXPECT_NE(WordOf(*first), WordOf(*third));
  // It stays for those who are left.
  first.reset();
  other_.bell->Arm();
  EXPECT_EQ(WordOf(*second)->load(), 1u);
  EXPECT_EQ(WordOf(*third)->load(), 0u);
}

TEST_F(PeerDoorbellTest, APageThatIsNoSealedMemoryOfItsSizeIsRefused) {
  const Descriptor loose(memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(loose.get(), 4096), 0);
  const Descriptor empty(memfd_create("empty", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(fcntl(empty.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  const Descriptor no_memory(dup(other_.there.get()));
  Descriptor socket(dup(other_.there.get()));
  for (const Descriptor* page : {&loose, &empty, &no_memory}) {
    const auto peer = PeerDoorbell::Open(poller_.get(), std::move(socket), *page);
    EXPECT_EQ(peer.status().code(), absl::StatusCode::kInvalidArgument) << peer.status();
    EXPECT_TRUE(socket.valid()) << "the caller's";
  }
}

// --- hostile peers: before there was a pair of sockets, a peer handed over an eventfd ------------

// A peer handed over a pipe as its eventfd, and closed the other end: SIGPIPE ended this process.
TEST_F(PeerDoorbellTest, ToRingAtAPeerThatHasGoneRaisesNoSignal) {
  const auto peer = other_.Open(poller_.get());
  other_.bell->Arm();
  other_.there.Reset();
  peer->Ring();
  EXPECT_EQ(poller_->Poll(), 1);
  EXPECT_FALSE(peer->connected());
  peer->Ring();
  EXPECT_EQ(poller_->Poll(), 0) << "an end that is closed does not keep the engine awake";
}

// A peer took O_NONBLOCK from the eventfd that both had, and filled its counter: the next ring
// never returned. Here no descriptor is set to be non-blocking, and nothing takes what is sent.
TEST_F(PeerDoorbellTest, ToRingNeverWaitsWhateverTheFlags) {
  const auto peer = other_.Open(poller_.get());
  other_.bell->Arm();
  for (int i = 0; i < 100'000; ++i) peer->Ring();
  EXPECT_TRUE(peer->connected());
  EXPECT_EQ(poller_->Poll(), 0);
  EXPECT_TRUE(other_.Rings());
}

TEST_F(PeerDoorbellTest, WhatIsNoRingEndsIt) {
  const std::string nonsense[] = {"", "two", std::string(5'000, 'x')};
  for (const std::string& bytes : nonsense) {
    OtherEngine other;
    const auto peer = other.Open(poller_.get());
    ASSERT_EQ(send(other.there.get(), bytes.data(), bytes.size(), 0), ssize_t(bytes.size()));
    EXPECT_EQ(poller_->Poll(), 1);
    EXPECT_FALSE(peer->connected());
  }
}

}  // namespace
}  // namespace weft
