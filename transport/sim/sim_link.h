// The simulated provider: LinkDomain and Link between nodes of a SimFabric.
//
// It is as strict as a real one: bytes are delivered in memory that is gone after OnReceived(), a
// batch that finds no posted receive aborts the test, regions are found by key and bounds, and free
// slots are poisoned under AddressSanitizer.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "transport/link.h"
#include "transport/sim/sim_fabric.h"

namespace weft {

class SimLinkDomain final : public LinkDomain {
 public:
  // Operations outstanding on one link, as providers have bounds of their own.
  static constexpr size_t kMaxOperations = 64;
  static constexpr uint32_t kMaxSlots = 1 << 20;  // AddSlots() beyond is RESOURCE_EXHAUSTED

  SimLinkDomain(SimFabric* fabric, SimFabric::NodeId node, BatchSink* sink);
  ~SimLinkDomain() override;

  const PathInfo& path() const override { return path_; }
  const std::string& address() const override { return path_.local; }
  uint32_t slot_bytes() const override { return fabric_->options().slot_bytes; }
  uint32_t usual_slot_bytes() const override {
    const uint32_t usual = fabric_->options().usual_slot_bytes;
    return usual == 0 ? slot_bytes() : usual;
  }
  uint8_t frames_to_part() const override { return fabric_->options().frames_to_part; }
  absl::Status AddSlots(uint32_t send, uint32_t receive) override;
  void RemoveSlots(uint32_t send, uint32_t receive) override;
  SendSlot AcquireSlot() override;
  void ReleaseSlot(SendSlot slot) override;
  absl::StatusOr<std::unique_ptr<Link>> Connect(const LinkPeer& peer,
                                                LinkHandler* handler) override;
  absl::StatusOr<std::unique_ptr<Link>> Accept(const LinkPeer& peer, LinkHandler* handler) override;
  absl::StatusOr<std::unique_ptr<Region>> Register(MutableByteSpan memory, Access access) override;
  int Poll(int budget) override;
  bool Arm() override { return !fabric_->HasDelivered(node_); }
  int descriptor() const override { return -1; }
  bool busy() const override { return false; }
  const LinkDomainStats& stats() const override { return stats_; }

 private:
  friend class SimLink;
  class SimRegion;
  struct Registration {
    MutableByteSpan memory;
    Access access;
  };

  // The network card: a batch has arrived for `link`.
  void Arrive(SimLink& link, std::vector<std::byte> batch);
  // The remote memory that a peer means; empty: not allowed.
  MutableByteSpan Resolve(const RemoteSpan& remote, bool write);
  void TellRoom();
  // It is the local end of an operation that has not ended, on a machine that is not dead.
  bool IsInUse(const Region& region) const;

  SimFabric* const fabric_;
  const SimFabric::NodeId node_;
  BatchSink* const sink_;
  PathInfo path_;
  LinkDomainStats stats_;
  std::vector<std::unique_ptr<std::byte[]>> slots_;
  std::vector<std::byte*> free_slots_;
  uint32_t slots_allowed_ = 0;
  bool refused_ = false;        // something, for want of room, since OnSlotsFree() was told
  int64_t receives_ready_ = 0;  // not holding a batch that waits for Poll()
  std::map<uint64_t, Registration> registrations_;  // by key
  std::map<uint64_t, SimLink*> accepting_;          // by nonce
  std::map<uint64_t, SimLink*> links_;              // by id
};

class SimLink final : public Link {
 public:
  SimLink(SimLinkDomain* domain, LinkHandler* handler);
  ~SimLink() override;

  SendSlot TakeSlot(uint32_t /*least*/) override { return domain_->AcquireSlot(); }
  absl::Status Send(const SendSlot& slot, uint32_t bytes) override;
  absl::StatusOr<Posted> Post(TransferKind kind, absl::Span<const Transfer> transfers,
                              Operation* op) override;
  bool reads_prove_writes() const override;
  bool MoveNow(TransferKind kind, MutableByteSpan local, const RemoteSpan& remote) override;
  bool Reclaim(std::unique_ptr<Region> region) override;
  void Abandon() override;

 private:
  friend class SimLinkDomain;
  enum class State : uint8_t { kConnecting = 1, kUp = 2, kDown = 3 };
  struct Pending {
    Operation* op;
    MutableByteSpan local;
    const Region* region;  // of `local`
  };

  void Dial(SimFabric::NodeId node, uint64_t nonce);
  void Answer(SimFabric::NodeId node, uint64_t peer_link);
  void Up(SimFabric::NodeId node, uint64_t peer_link);
  void Down(const absl::Status& why);
  // In the node's Poll(), if the link still exists then.
  void Later(Function<void(SimLink&)> what);
  void OnSent();  // the first of sending_ has left
  absl::Status CheckPost(size_t operations) const;
  // Null: this time nothing is done at once.
  SimLink* PeerToMoveAtOnce();
  // False: the peer does not grant it.
  bool Move(SimLink& peer, TransferKind kind, MutableByteSpan here, const RemoteSpan& remote);
  bool MoveAtOnce(TransferKind kind, absl::Span<const Transfer> transfers);
  void Read(const Transfer& transfer, Operation* op);
  void Write(const Transfer& transfer, Operation* op);
  void Serve(uint64_t op, const RemoteSpan& remote, bool write, std::vector<std::byte> data);
  void Place(uint64_t op, MutableByteSpan memory, bool allowed, bool write,
             std::vector<std::byte> data);
  // Runs `what` for this link when the network card is through with what came before.
  void WhenPlaced(Function<void(SimLink&)> what);
  void OnReply(uint64_t op, bool allowed, const std::vector<std::byte>& data);
  void Complete(uint64_t op, const absl::Status& status);
  void CompleteAll(const absl::Status& status);

  SimLinkDomain* const domain_;
  SimFabric* const fabric_;
  LinkHandler* const handler_;
  uint64_t id_;
  uint64_t nonce_ = 0;
  State state_ = State::kConnecting;
  bool abandoned_ = false;
  SimFabric::NodeId peer_node_ = 0;
  uint64_t peer_link_ = 0;  // 0: not known
  std::deque<SendSlot> sending_;
  std::map<uint64_t, Pending> pending_;
  uint64_t next_op_ = 0;
  int64_t waiting_ = 0;  // batches that hold a receive until Poll() takes them
};

}  // namespace weft
