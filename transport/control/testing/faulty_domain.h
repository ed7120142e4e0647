// Domains whose links never work, each in a way of its own, for tests of what comes after them.
//
// Threads: the engine's.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/status.h"
#include "transport/control/testing/network_world.h"
#include "transport/descriptor.h"
#include "transport/link.h"

namespace weft {

// How a path fails.
enum class Fault : uint8_t {
  kNone = 1,
  kCannotOpen = 2,   // the provider is not there
  kRefusesLink = 3,  // Connect() and Accept() fail
  kLinkFails = 4,    // the link goes down instead of up
  kLinkHangs = 5,    // nothing happens
  kLost = 6,         // the domain opens, and its device is gone at once
};

class FaultyLink final : public Link {
 public:
  // `polled`: where the domain keeps the link that it is about to poll.
  FaultyLink(Fault fault, LinkHandler* handler, FaultyLink** polled)
      : fault_(fault), handler_(handler), polled_(polled) {}
  ~FaultyLink() override {
    if (*polled_ == this) *polled_ = nullptr;
  }
  void Poll() {
    if (std::exchange(fault_, Fault::kLinkHangs) == Fault::kLinkFails) {
      handler_->OnLinkDown(absl::UnavailableError("the cable is cut"));
    }
  }
  SendSlot TakeSlot(uint32_t /*least*/) override { return {}; }
  absl::Status Send(const SendSlot&, uint32_t) override { return absl::UnavailableError("faulty"); }
  absl::StatusOr<Posted> Post(TransferKind, absl::Span<const Transfer>, Operation*) override {
    return absl::UnavailableError("faulty");
  }
  bool Reclaim(std::unique_ptr<Region> region) override {
    region.reset();
    return true;
  }
  void Abandon() override { fault_ = Fault::kLinkHangs; }

 private:
  Fault fault_;
  LinkHandler* const handler_;
  FaultyLink** const polled_;
};

// A domain that is said to be shared memory and makes links that never work.
class FaultyDomain final : public LinkDomain {
 public:
  // `peers`, unless null: told of all whom links were to reach.
  explicit FaultyDomain(Fault fault, std::vector<LinkPeer>* peers = nullptr)
      : fault_(fault), peers_(peers) {
    path_.kind = PathKind::kShm;
  }

  const PathInfo& path() const override { return path_; }
  const std::string& address() const override { return address_; }
  uint32_t slot_bytes() const override { return 4096; }
  absl::Status AddSlots(uint32_t, uint32_t receive) override {
    stats_.receives_posted += receive;
    return absl::OkStatus();
  }
  void RemoveSlots(uint32_t, uint32_t receive) override { stats_.receives_posted -= receive; }
  SendSlot AcquireSlot() override { return {}; }
  void ReleaseSlot(SendSlot) override {}
  absl::StatusOr<std::unique_ptr<Link>> Connect(const LinkPeer& peer,
                                                LinkHandler* handler) override {
    return Make(peer, handler);
  }
  absl::StatusOr<std::unique_ptr<Link>> Accept(const LinkPeer& peer,
                                               LinkHandler* handler) override {
    return Make(peer, handler);
  }
  absl::StatusOr<std::unique_ptr<Region>> Register(MutableByteSpan, Access) override {
    return absl::UnavailableError("faulty");
  }
  // Nobody looks into it.
  int host_descriptor() const override { return nothing_.get(); }
  absl::StatusOr<int> NewLinkMemory() override { return dup(nothing_.get()); }
  int Poll(int) override {
    if (newest_ == nullptr) return 0;
    std::exchange(newest_, nullptr)->Poll();
    return 1;
  }
  bool Arm() override { return true; }
  int descriptor() const override { return -1; }
  bool busy() const override { return false; }
  const LinkDomainStats& stats() const override { return stats_; }
  absl::Status usable() const override {
    return fault_ == Fault::kLost ? absl::UnavailableError("the device is gone") : absl::OkStatus();
  }

 private:
  // What may be handed to another process: memory that nobody can make smaller.
  static Descriptor SealedNothing() {
    Descriptor memory(memfd_create("nothing", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    EXPECT_EQ(ftruncate(memory.get(), 4096), 0);
    EXPECT_EQ(fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
    return memory;
  }
  absl::StatusOr<std::unique_ptr<Link>> Make(const LinkPeer& peer, LinkHandler* handler) {
    if (peers_ != nullptr) peers_->push_back(peer);
    WEFT_RETURN_IF_ERROR(usable());
    if (fault_ == Fault::kRefusesLink) return absl::ResourceExhaustedError("no slots left");
    auto link = std::make_unique<FaultyLink>(fault_, handler, &newest_);
    if (fault_ == Fault::kLinkFails) newest_ = link.get();
    return std::unique_ptr<Link>(std::move(link));
  }

  const Fault fault_;
  std::vector<LinkPeer>* const peers_;
  PathInfo path_;
  std::string address_ = "faulty";
  LinkDomainStats stats_;
  FaultyLink* newest_ = nullptr;
  const Descriptor nothing_ = SealedNothing();
};

// Short, so that the tests are, where a link hangs. With 200 ms the path that works did not come up
// in time either on a machine that was busy with other work.
inline ConnectOptions Impatient() {
  ConnectOptions options;
  options.link.path_timeout_ns = 1'000'000'000;
  options.link.connect_timeout_ns = 20'000'000'000;
  return options;
}

}  // namespace weft
