#include "transport/sim/sim_link.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/check.h"
#include "core/poison.h"
#include "core/strings.h"
#include "transport/sim/sim_transport.h"

namespace weft {
namespace {

constexpr uint64_t kRequestBytes = 64;  // on the wire, for headers, requests and acknowledgements

absl::Status Refused() {
  return absl::PermissionDeniedError(
      "remote access refused: unknown key, or outside of its bounds");
}

// The pieces of a batch: tells its user when all have completed, and is gone.
class Join final : public Operation {
 public:
  Join(Operation* user, size_t pieces) : user_(user), pieces_left_(pieces) {}

  void OnComplete(const absl::Status& status) override {
    if (first_error_.ok()) first_error_ = status;
    if (--pieces_left_ > 0) return;
    const std::unique_ptr<Join> end(this);
    user_->OnComplete(first_error_);
  }

 private:
  Operation* const user_;
  size_t pieces_left_;
  absl::Status first_error_;
};

}  // namespace

// --- domain -------------------------------------------------------------------------------------

class SimLinkDomain::SimRegion final : public Region {
 public:
  SimRegion(SimLinkDomain* domain, MutableByteSpan memory, uint64_t key)
      : Region(memory, {key, 0, memory.size()}), domain_(domain) {
    ++domain_->stats_.registrations;
    ++domain_->stats_.registrations_open;
  }
  ~SimRegion() override {
    WEFT_CHECK(!domain_->IsInUse(*this));  // Ours: what a test of the library is to find
    domain_->registrations_.erase(remote().key);
    --domain_->stats_.registrations_open;
  }

 private:
  SimLinkDomain* const domain_;
};

bool SimLinkDomain::IsInUse(const Region& region) const {
  return fabric_->alive(node_) &&
         std::any_of(links_.begin(), links_.end(), [&region](const auto& link) {
           const auto& pending = link.second->pending_;
           return std::any_of(pending.begin(), pending.end(), [&region](const auto& operation) {
             return operation.second.region == &region;
           });
         });
}

SimLinkDomain::SimLinkDomain(SimFabric* fabric, SimFabric::NodeId node, BatchSink* sink)
    : fabric_(fabric), node_(node), sink_(sink) {
  path_.kind = PathKind::kSim;
  path_.link = LinkKind::kSimulated;
  path_.provider = "sim";
  path_.device = "sim";
  path_.local = fabric->NameOf(node);
}

SimLinkDomain::~SimLinkDomain() {
  WEFT_CHECK(links_.empty() && registrations_.empty());  // Ours: links go before their domain
  for (auto& slot : slots_) Unpoison({slot.get(), slot_bytes()});
}

absl::Status SimLinkDomain::AddSlots(uint32_t send, uint32_t receive) {
  if (slots_allowed_ + send > kMaxSlots) {
    return absl::ResourceExhaustedError(
        StrCat("sim: ", kMaxSlots, " send slots are in use already"));
  }
  slots_allowed_ += send;
  receives_ready_ += receive;
  stats_.receives_posted += receive;
  return absl::OkStatus();
}

void SimLinkDomain::RemoveSlots(uint32_t send, uint32_t receive) {
  slots_allowed_ -= send;
  receives_ready_ -= receive;
  stats_.receives_posted -= receive;
}

SendSlot SimLinkDomain::AcquireSlot() {
  if (stats_.send_slots_in_use >= slots_allowed_) {
    refused_ = true;
    return {};
  }
  if (free_slots_.empty()) {
    slots_.push_back(std::make_unique<std::byte[]>(slot_bytes()));
    free_slots_.push_back(slots_.back().get());
  }
  std::byte* const slot = free_slots_.back();
  free_slots_.pop_back();
  ++stats_.send_slots_in_use;
  Unpoison({slot, slot_bytes()});
  return {slot, /*record=*/nullptr};
}

void SimLinkDomain::ReleaseSlot(SendSlot slot) {
  Poison({slot.data, slot_bytes()});
  free_slots_.push_back(slot.data);
  --stats_.send_slots_in_use;
}

// Inside Poll(): a slot or an operation has come back.
void SimLinkDomain::TellRoom() {
  if (!std::exchange(refused_, false)) return;
  for (auto& [id, link] : links_) link->handler_->OnSlotsFree();
}

absl::StatusOr<std::unique_ptr<Link>> SimLinkDomain::Connect(const LinkPeer& peer,
                                                             LinkHandler* handler) {
  auto link = std::make_unique<SimLink>(this, handler);
  link->Dial(fabric_->IdOf(peer.address), peer.nonce);
  return link;
}

absl::StatusOr<std::unique_ptr<Link>> SimLinkDomain::Accept(const LinkPeer& peer,
                                                            LinkHandler* handler) {
  auto link = std::make_unique<SimLink>(this, handler);
  link->nonce_ = peer.nonce;
  accepting_[peer.nonce] = link.get();
  return link;
}

absl::StatusOr<std::unique_ptr<Region>> SimLinkDomain::Register(MutableByteSpan memory,
                                                                Access access) {
  if (memory.empty()) return absl::InvalidArgumentError("sim: a region of 0 bytes");
  uint64_t key;
  do {
    key = fabric_->random().Next64();
  } while (!registrations_.try_emplace(key, Registration{memory, access}).second);
  return std::unique_ptr<Region>(std::make_unique<SimRegion>(this, memory, key));
}

int SimLinkDomain::Poll(int budget) { return fabric_->RunDelivered(node_, budget); }

void SimLinkDomain::Arrive(SimLink& link, std::vector<std::byte> batch) {
  // A batch that finds no receive posted: somebody sent without a credit.
  WEFT_CHECK(receives_ready_ > 0);  // Ours: what a test of the library is to find
  --receives_ready_;
  ++link.waiting_;
  fabric_->DeliverBatch(node_, [this, id = link.id_, batch = std::move(batch)] {
    const auto found = links_.find(id);
    if (found == links_.end()) return;
    --stats_.receives_posted;
    const auto post_again = [&] {
      ++stats_.receives_posted;
      ++receives_ready_;
      --found->second->waiting_;
    };
    // As on shm, where it was copied out of the ring: frames_to_part() asks for it.
    const bool posts_first = frames_to_part() != 0;
    if (posts_first) post_again();
    sink_->OnReceived(batch, found->second->handler_);
    if (!posts_first) post_again();
  });
}

MutableByteSpan SimLinkDomain::Resolve(const RemoteSpan& remote, bool write) {
  const auto found = registrations_.find(remote.key);
  if (found == registrations_.end()) return {};
  const auto& [memory, access] = found->second;
  const Access needed = write ? Access::kRemoteWrite : Access::kRemoteRead;
  if (access != needed && access != Access::kRemoteReadWrite) return {};
  if (remote.offset > memory.size() || remote.length > memory.size() - remote.offset) return {};
  return memory.subspan(remote.offset, remote.length);
}

// --- link ---------------------------------------------------------------------------------------

SimLink::SimLink(SimLinkDomain* domain, LinkHandler* handler)
    : domain_(domain), fabric_(domain->fabric_), handler_(handler), id_(fabric_->AddLink(this)) {
  domain_->links_[id_] = this;
  ++domain_->stats_.links_open;
}

SimLink::~SimLink() {
  fabric_->RemoveLink(id_);
  domain_->links_.erase(id_);
  domain_->accepting_.erase(nonce_);
  --domain_->stats_.links_open;
  domain_->receives_ready_ += waiting_;
  for (const SendSlot slot : sending_) domain_->ReleaseSlot(slot);
  CompleteAll(absl::CancelledError("the connection is closed"));
  if (abandoned_ || peer_link_ == 0) return;
  fabric_->Transmit(domain_->node_, peer_node_, kRequestBytes, "link closed", peer_link_,
                    [fabric = fabric_, peer_link = peer_link_] {
                      SimLink* const peer = fabric->FindLink(peer_link);
                      if (peer == nullptr) return;
                      peer->Later([](SimLink& link) {
                        link.Down(absl::UnavailableError("the peer closed the link"));
                      });
                    });
}

void SimLink::Dial(SimFabric::NodeId node, uint64_t nonce) {
  fabric_->Transmit(domain_->node_, node, kRequestBytes, "link connect", id_,
                    [fabric = fabric_, node, nonce, from = domain_->node_, id = id_] {
                      const auto& accepting = fabric->transport(node)->links().accepting_;
                      const auto found = accepting.find(nonce);
                      if (found != accepting.end()) found->second->Answer(from, id);
                    });
}

void SimLink::Answer(SimFabric::NodeId node, uint64_t peer_link) {
  domain_->accepting_.erase(nonce_);
  Up(node, peer_link);
  fabric_->Transmit(domain_->node_, node, kRequestBytes, "link accept", id_,
                    [fabric = fabric_, peer_link, from = domain_->node_, id = id_] {
                      SimLink* const peer = fabric->FindLink(peer_link);
                      if (peer != nullptr) peer->Up(from, id);
                    });
}

void SimLink::Up(SimFabric::NodeId node, uint64_t peer_link) {
  peer_node_ = node;
  peer_link_ = peer_link;
  Later([](SimLink& link) {
    if (link.state_ != State::kConnecting) return;
    link.state_ = State::kUp;
    link.handler_->OnLinkUp();
  });
}

void SimLink::Down(const absl::Status& why) {
  if (std::exchange(state_, State::kDown) == State::kDown) return;
  CompleteAll(why);
  handler_->OnLinkDown(why);
}

void SimLink::Later(Function<void(SimLink&)> what) {
  fabric_->Deliver(domain_->node_, [fabric = fabric_, id = id_, what = std::move(what)]() mutable {
    if (SimLink* const link = fabric->FindLink(id)) what(*link);
  });
}

absl::Status SimLink::Send(const SendSlot& slot, uint32_t bytes) {
  if (state_ != State::kUp) {
    domain_->ReleaseSlot(slot);
    return absl::UnavailableError("the link is not up");
  }
  std::vector<std::byte> batch(slot.data, slot.data + bytes);
  fabric_->MaybeCorrupt(domain_->node_, peer_node_, batch);
  const uint64_t digest = SimFabric::Digest(batch);
  const uint64_t left_ns = fabric_->Transmit(
      domain_->node_, peer_node_, bytes + kRequestBytes, "batch", digest,
      [fabric = fabric_, peer_link = peer_link_, batch = std::move(batch)]() mutable {
        SimLink* const peer = fabric->FindLink(peer_link);
        if (peer == nullptr) return;
        peer->WhenPlaced([batch = std::move(batch)](SimLink& link) mutable {
          link.domain_->Arrive(link, std::move(batch));
        });
      });
  sending_.push_back(slot);
  fabric_->At(left_ns, [fabric = fabric_, node = domain_->node_, id = id_] {
    if (fabric->FindLink(id) == nullptr) return;
    fabric->Deliver(node, [fabric, id] {
      if (SimLink* const link = fabric->FindLink(id)) link->OnSent();
    });
  });
  return absl::OkStatus();
}

// In the node's Poll().
void SimLink::OnSent() {
  const SendSlot sent = sending_.front();
  sending_.pop_front();
  domain_->ReleaseSlot(sent);
  domain_->TellRoom();
}

absl::Status SimLink::CheckPost(size_t operations) const {
  if (state_ != State::kUp) return absl::UnavailableError("the link is not up");
  if (pending_.size() + operations <= SimLinkDomain::kMaxOperations) return absl::OkStatus();
  domain_->refused_ = true;
  return absl::ResourceExhaustedError(
      StrCat("sim: ", SimLinkDomain::kMaxOperations, " operations are outstanding on this link"));
}

absl::StatusOr<Posted> SimLink::Post(TransferKind kind, absl::Span<const Transfer> transfers,
                                     Operation* op) {
  // Ours: RemoteAccess has refused others
  WEFT_DCHECK(!transfers.empty() && transfers.size() <= kMaxBatchTransfers);
  if (absl::Status status = CheckPost(transfers.size()); !status.ok()) return status;
  if (MoveAtOnce(kind, transfers)) return Posted::kDone;
  Operation* const of_each = transfers.size() == 1 ? op : new Join(op, transfers.size());
  for (const Transfer& transfer : transfers) {
    if (kind == TransferKind::kRead) {
      Read(transfer, of_each);
    } else {
      Write(transfer, of_each);
    }
  }
  return Posted::kPending;
}

// SimOptions::done_at_once_percent. (Without it nothing is drawn: seeds mean what they meant.)
SimLink* SimLink::PeerToMoveAtOnce() {
  const uint32_t percent = fabric_->options().done_at_once_percent;
  if (percent == 0 || fabric_->random().Uniform(100) >= percent) return nullptr;
  if (!fabric_->Reaches(domain_->node_, peer_node_)) return nullptr;
  SimLink* const peer = fabric_->FindLink(peer_link_);
  return peer != nullptr && peer->state_ == State::kUp ? peer : nullptr;
}

bool SimLink::Move(SimLink& peer, TransferKind kind, MutableByteSpan here,
                   const RemoteSpan& remote) {
  const bool read = kind == TransferKind::kRead;
  const MutableByteSpan there = peer.domain_->Resolve(remote, !read);
  if (there.size() != remote.length) return false;
  std::memmove(read ? here.data() : there.data(), read ? there.data() : here.data(), there.size());
  fabric_->Trace(read ? "read at once" : "write at once", domain_->node_, peer_node_, there.size(),
                 SimFabric::Digest(here));
  return true;
}

bool SimLink::reads_prove_writes() const { return fabric_->options().reads_prove_writes; }

bool SimLink::MoveNow(TransferKind kind, MutableByteSpan local, const RemoteSpan& remote) {
  SimLink* const peer = state_ == State::kUp ? PeerToMoveAtOnce() : nullptr;
  return peer != nullptr && Move(*peer, kind, local, remote);
}

bool SimLink::MoveAtOnce(TransferKind kind, absl::Span<const Transfer> transfers) {
  SimLink* const peer = PeerToMoveAtOnce();
  if (peer == nullptr) return false;
  return std::all_of(transfers.begin(), transfers.end(), [&](const Transfer& transfer) {
    const MutableByteSpan local = transfer.local->memory();
    const RemoteSpan& remote = transfer.remote;
    return Move(*peer, kind, local.subspan(transfer.local_offset, remote.length), remote);
  });
}

void SimLink::Read(const Transfer& transfer, Operation* op) {
  const RemoteSpan& remote = transfer.remote;
  const uint64_t id = next_op_++;
  pending_[id] = {op, transfer.local->memory().subspan(transfer.local_offset, remote.length),
                  transfer.local};
  fabric_->Transmit(domain_->node_, peer_node_, kRequestBytes, "read", remote.length,
                    [fabric = fabric_, peer_link = peer_link_, id, remote] {
                      SimLink* const peer = fabric->FindLink(peer_link);
                      if (peer != nullptr) peer->Serve(id, remote, /*write=*/false, {});
                    });
}

void SimLink::Write(const Transfer& transfer, Operation* op) {
  const RemoteSpan& remote = transfer.remote;
  const uint64_t id = next_op_++;
  const MutableByteSpan from =
      transfer.local->memory().subspan(transfer.local_offset, remote.length);
  pending_[id] = {op, from, transfer.local};
  std::vector<std::byte> data(from.begin(), from.end());
  const uint64_t digest = SimFabric::Digest(data);
  fabric_->Transmit(
      domain_->node_, peer_node_, kRequestBytes + remote.length, "write", digest,
      [fabric = fabric_, peer_link = peer_link_, id, remote, data = std::move(data)]() mutable {
        SimLink* const peer = fabric->FindLink(peer_link);
        if (peer != nullptr) peer->Serve(id, remote, /*write=*/true, std::move(data));
      });
}

// The peer's network card does what `op` asks for, and answers. It looks the region up when the
// request arrives, and never again.
void SimLink::Serve(uint64_t op, const RemoteSpan& remote, bool write,
                    std::vector<std::byte> data) {
  if (!fabric_->answers(domain_->node_)) return;
  const MutableByteSpan memory = domain_->Resolve(remote, write);
  const bool allowed = memory.size() == remote.length;
  WhenPlaced([op, memory, allowed, write, data = std::move(data)](SimLink& link) mutable {
    link.Place(op, memory, allowed, write, std::move(data));
  });
}

void SimLink::WhenPlaced(Function<void(SimLink&)> what) {
  const uint64_t late_ns = fabric_->options().late_placing_ns;
  if (late_ns == 0) return what(*this);
  fabric_->At(fabric_->now_ns() + late_ns, [fabric = fabric_, node = domain_->node_, id = id_,
                                            what = std::move(what)]() mutable {
    SimLink* const link = fabric->FindLink(id);
    if (link != nullptr && fabric->alive(node)) what(*link);
  });
}

void SimLink::Place(uint64_t op, MutableByteSpan memory, bool allowed, bool write,
                    std::vector<std::byte> data) {
  if (allowed && write) std::memcpy(memory.data(), data.data(), data.size());
  data.clear();
  if (allowed && !write) data.assign(memory.begin(), memory.end());
  const uint64_t digest = SimFabric::Digest(data);
  const uint64_t bytes = kRequestBytes + data.size();  // before `data` moves
  fabric_->Transmit(
      domain_->node_, peer_node_, bytes, write ? "written" : "read reply", digest,
      [fabric = fabric_, peer_link = peer_link_, op, allowed, data = std::move(data)] {
        SimLink* const peer = fabric->FindLink(peer_link);
        if (peer != nullptr) peer->OnReply(op, allowed, data);
      });
}

void SimLink::OnReply(uint64_t op, bool allowed, const std::vector<std::byte>& data) {
  const auto found = pending_.find(op);
  if (found == pending_.end()) return;
  if (!data.empty()) std::memcpy(found->second.local.data(), data.data(), data.size());
  Later(
      [op, allowed](SimLink& link) { link.Complete(op, allowed ? absl::OkStatus() : Refused()); });
}

void SimLink::Complete(uint64_t op, const absl::Status& status) {
  const auto found = pending_.find(op);
  if (found == pending_.end()) return;
  Operation* const operation = found->second.op;
  pending_.erase(found);
  operation->OnComplete(status);
}

void SimLink::CompleteAll(const absl::Status& status) {
  while (!pending_.empty()) Complete(pending_.begin()->first, status);
}

bool SimLink::Reclaim(std::unique_ptr<Region> region) {
  region.reset();
  return fabric_->options().late_placing_ns == 0;
}

void SimLink::Abandon() {
  if (std::exchange(abandoned_, true)) return;
  Later([](SimLink& link) {
    link.state_ = State::kDown;
    link.CompleteAll(absl::UnavailableError("the peer is dead or cut off"));
  });
}

}  // namespace weft
