// Two domains of shared memory in one process, a and b, and links from a to b.
//
// Threads: a domain and its ends are one thread's. Lifetime: ends go before their domains.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/bytes.h"
#include "core/clock.h"
#include "transport/descriptor.h"
#include "transport/doorbell.h"
#include "transport/link.h"
#include "transport/poller.h"
#include "transport/shm/link_memory.h"
#include "transport/shm/shm.h"
#include "transport/shm/shm_domain.h"

namespace weft {

inline constexpr std::chrono::seconds kShmPatience{30};  // bounds a hang, decides nothing

struct End final : LinkHandler {
  void OnLinkUp() override { ++ups; }
  void OnLinkDown(const absl::Status& why) override {
    ++downs;
    status = why;
  }
  void OnSlotsFree() override { ++slots_free; }
  std::unique_ptr<Link> link;
  int ups = 0;
  int downs = 0;
  int slots_free = 0;
  absl::Status status;
};

// A domain with a doorbell, and what it received.
struct Host final : BatchSink {
  Host(uint32_t slot_bytes, const CopyWays& copies, const Clock& clock) {
    ShmOptions options;
    options.sink = this;
    options.slot_bytes = slot_bytes;
    options.copies = copies;
    options.clock = &clock;
    domain = OpenShmDomain(options).value();
    EXPECT_TRUE(poller->Add(bell->event_fd(), EPOLLIN | EPOLLET, /*handler=*/nullptr).ok());
  }
  void OnReceived(ByteSpan batch, LinkHandler*) override {
    received.emplace_back(AsStringView(batch));
  }

  absl::Status Send(End& end, std::string_view text) {
    const SendSlot slot = end.link->TakeSlot(static_cast<uint32_t>(text.size()));
    if (slot.data == nullptr) return absl::ResourceExhaustedError("no slot");
    std::copy(text.begin(), text.end(), reinterpret_cast<char*>(slot.data));
    return end.link->Send(slot, static_cast<uint32_t>(text.size()));
  }
  // Sleeps until the bell rings, if there is nothing to do. False: it did not ring in time.
  bool SleepOnce() {
    bell->Arm();
    bool rang = true;
    if (domain->Arm()) {
      pollfd event = {poller->descriptor(), POLLIN, 0};
      rang = ::poll(&event, 1, /*ms=*/20'000) == 1;
    }
    bell->Disarm();
    poller->Poll();
    return rang;
  }
  ShmDomain& shm() { return static_cast<ShmDomain&>(*domain); }

  // What rings another's bell, over this end of their pair of sockets.
  std::unique_ptr<PeerDoorbell> BellOf(const Host& other, int socket) {
    const Descriptor page(dup(other.bell->page_fd()));
    return PeerDoorbell::Open(poller.get(), Descriptor(socket), page).value();
  }

  std::unique_ptr<Poller> poller = Poller::Create().value();
  std::unique_ptr<Doorbell> bell = Doorbell::Create().value();
  std::unique_ptr<LinkDomain> domain;
  std::vector<std::string> received;
};

class ShmDomainTest : public testing::Test {
 protected:
  explicit ShmDomainTest(uint32_t slot_bytes = 1024, const CopyWays& copies = {},
                         const Clock& clock = Clock::Real())
      : a_(slot_bytes, copies, clock), b_(slot_bytes, copies, clock) {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    bell_of_b_ = a_.BellOf(b_, ends[0]);
    bell_of_a_ = b_.BellOf(a_, ends[1]);
    EXPECT_TRUE(a_.domain->AddSlots(64, 64).ok());
    EXPECT_TRUE(b_.domain->AddSlots(64, 64).ok());
  }

  // Brings a link up, from a to b; returns its memory, mapped once more: a hostile peer's view.
  LinkMemory Open(End& a, End& b) {
    const Descriptor memory(b_.domain->NewLinkMemory().value());
    LinkPeer peer;
    peer.memory_descriptor = memory.get();
    peer.process_id = getpid();
    peer.host_descriptor = a_.domain->host_descriptor();
    peer.doorbell = bell_of_a_.get();
    b.link = b_.domain->Accept(peer, &b).value();
    peer.host_descriptor = b_.domain->host_descriptor();
    peer.doorbell = bell_of_b_.get();
    a.link = a_.domain->Connect(peer, &a).value();
    EXPECT_TRUE(Run([&] { return a.ups == 1 && b.ups == 1; })) << a.status << b.status;
    return LinkMemory::Open(memory.get()).value();
  }

  template <class Done>
  bool Run(Done done) {
    const auto give_up = std::chrono::steady_clock::now() + kShmPatience;
    while (!done()) {
      a_.domain->Poll(64);
      b_.domain->Poll(64);
      if (std::chrono::steady_clock::now() > give_up) return false;
    }
    return true;
  }
  bool Delivers(End& from, std::string_view text) {
    b_.received.clear();
    if (!a_.Send(from, text).ok()) return false;
    return Run([&] { return !b_.received.empty(); }) && b_.received[0] == text;
  }

  Host a_;
  Host b_;
  std::unique_ptr<PeerDoorbell> bell_of_a_;
  std::unique_ptr<PeerDoorbell> bell_of_b_;
};

}  // namespace weft
