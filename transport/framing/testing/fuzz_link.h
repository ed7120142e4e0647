// A provider whose every step the fuzzer takes: slots, links, registrations and one-sided
// operations for what is made of them.
//
// What a connection sends is checked to be well-formed (and, on a sealed path, to open; where there
// are proofs, to end in one). A refusal of the provider is asked for before the call that meets it
// (`refuses`), and happens once.
//
// Threads: one. Lifetime: the domain outlives its links.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/bytes.h"
#include "core/check.h"
#include "transport/framing/batch.h"
#include "transport/framing/seal.h"
#include "transport/framing/sealed_regions.h"
#include "transport/link.h"

namespace weft {

inline constexpr uint32_t kFuzzSlotBytes = 512;
// Batches that a link has taken and not sent.
inline constexpr size_t kMostFuzzSending = 4;

class FuzzRegion final : public Region {
 public:
  FuzzRegion(MutableByteSpan memory, uint64_t key) : Region(memory, {key, 0, memory.size()}) {}
};

// Slots, and one-sided operations that end when the fuzzer says so.
class FuzzDomain final : public LinkDomain {
 public:
  FuzzDomain() { path_.kind = PathKind::kTcp; }
  ~FuzzDomain() override {
    WEFT_CHECK(stats_.send_slots_in_use == 0 && stats_.links_open == 0);
    WEFT_CHECK(stats_.receives_posted == 0);
  }

  const PathInfo& path() const override { return path_; }
  const std::string& address() const override { return address_; }
  uint32_t slot_bytes() const override { return kFuzzSlotBytes; }
  uint8_t frames_to_part() const override { return frames_to_part_; }
  absl::Status AddSlots(uint32_t send, uint32_t receive) override {
    if (Refuses(Refusal::kSlots)) return absl::ResourceExhaustedError("slots");
    slots_ += send;
    stats_.receives_posted += receive;
    return absl::OkStatus();
  }
  void RemoveSlots(uint32_t send, uint32_t receive) override {
    slots_ -= send;
    stats_.receives_posted -= receive;
  }
  SendSlot AcquireSlot() override {
    if (stats_.send_slots_in_use >= slots_) return {};
    ++stats_.send_slots_in_use;
    return {new std::byte[kFuzzSlotBytes], nullptr};
  }
  void ReleaseSlot(SendSlot slot) override {
    delete[] slot.data;
    --stats_.send_slots_in_use;
  }
  absl::StatusOr<std::unique_ptr<Link>> Connect(const LinkPeer&, LinkHandler* handler) override {
    return Make(handler);
  }
  absl::StatusOr<std::unique_ptr<Link>> Accept(const LinkPeer&, LinkHandler* handler) override {
    return Make(handler);
  }
  absl::StatusOr<std::unique_ptr<Region>> Register(MutableByteSpan memory, Access) override {
    if (Refuses(Refusal::kRegistration)) return absl::ResourceExhaustedError("locked memory");
    return std::unique_ptr<Region>(std::make_unique<FuzzRegion>(memory, next_key_++));
  }
  int Poll(int) override { return 0; }
  bool Arm() override { return true; }
  int descriptor() const override { return -1; }
  bool busy() const override { return false; }
  bool tells_links() const override { return tells_links_; }
  const LinkDomainStats& stats() const override { return stats_; }

  void set_frames_to_part(uint8_t frames) { frames_to_part_ = frames; }
  void set_kind(PathKind kind) { path_.kind = kind; }
  // Framing seals what goes over this path, and what the links made from now on send opens with
  // `opens`.
  void UseSealedPath(bool iwarp, bool tells_links, Seal* opens) {
    path_.kind = iwarp ? PathKind::kVerbs : PathKind::kOfiTcp;
    path_.link = iwarp ? LinkKind::kIwarp : LinkKind::kIp;
    tells_links_ = tells_links;
    opens_ = opens;
  }
  // Nobody tells links, and what those made from now on send ends in `proof`.
  void UseProvedPath(const Nonce128* proof) {
    path_.kind = PathKind::kOfiTcp;
    path_.link = LinkKind::kIp;
    tells_links_ = false;
    proof_ = proof;
  }

  static constexpr uint64_t kFirstKey = 7;  // of regions; the rest follow
  LinkHandler* handler = nullptr;           // of the link made last
  class FuzzLink* link = nullptr;           // that is still there
  bool reclaims = true;
  bool has_fence = false;
  bool reads_at_once = false;  // a read is done when Post() returns
  // What is refused next, once.
  enum class Refusal : uint8_t { kNone, kSlots, kLink, kRegistration, kPost, kBroken };
  Refusal refuses = Refusal::kNone;
  // What a read of the peer's memory finds there, by the key that it names; else zeros.
  std::map<uint64_t, std::vector<std::byte>> peer_memory;

 private:
  friend class FuzzLink;
  bool Refuses(Refusal refusal) {
    if (refuses != refusal) return false;
    refuses = Refusal::kNone;
    return true;
  }
  absl::StatusOr<std::unique_ptr<Link>> Make(LinkHandler* made_for);

  PathInfo path_;
  std::string address_;
  LinkDomainStats stats_;
  uint64_t slots_ = 0;
  uint64_t next_key_ = kFirstKey;
  uint8_t frames_to_part_ = 0;
  bool tells_links_ = true;
  Seal* opens_ = nullptr;
  const Nonce128* proof_ = nullptr;
};

class FuzzLink final : public Link {
 public:
  explicit FuzzLink(FuzzDomain* domain)
      : domain_(domain), opens_(domain->opens_), proof_(domain->proof_) {
    ++domain_->stats_.links_open;
  }
  ~FuzzLink() override {
    --domain_->stats_.links_open;
    if (domain_->link == this) domain_->link = nullptr;
    while (!posted_.empty()) Complete(absl::CancelledError("closed"));
    while (!sending_.empty()) Sent();
  }

  bool HasRoom() override { return sending_.size() < kMostFuzzSending; }
  SendSlot TakeSlot(uint32_t /*least*/) override {
    return HasRoom() ? domain_->AcquireSlot() : SendSlot{};
  }
  absl::Status Send(const SendSlot& slot, uint32_t bytes) override {
    BatchHeader header;
    WEFT_CHECK(bytes <= kFuzzSlotBytes && DecodeBatchHeader(ByteSpan(slot.data, bytes), &header));
    std::vector<std::byte> opened(slot.data, slot.data + bytes);
    if (opens_ != nullptr) {
      WEFT_CHECK(bytes >= kBatchHeaderBytes + Seal::kTagBytes);
      const ByteSpan sent(slot.data, bytes - Seal::kTagBytes);
      opened.resize(sent.size());
      WEFT_CHECK(opens_->Decrypt(sent.first(kBatchHeaderBytes), sent.subspan(kBatchHeaderBytes),
                                 ByteSpan(slot.data, bytes).last(Seal::kTagBytes),
                                 opened.data() + kBatchHeaderBytes));
    }
    if (proof_ != nullptr) {
      WEFT_CHECK(bytes >= kBatchHeaderBytes + Seal::kTagBytes);
      opened.resize(bytes - Seal::kTagBytes);
      const std::byte* const proof = slot.data + opened.size();
      WEFT_CHECK(LoadLe64(proof) == proof_->high && LoadLe64(proof + 8) == proof_->low);
    }
    BatchReader reader(opened, header.frames);
    Frame frame;
    while (reader.Next(&frame)) {
    }
    WEFT_CHECK(reader.complete());
    sending_.push_back(slot);
    return absl::OkStatus();
  }
  bool has_fence() const override { return domain_->has_fence; }
  absl::Status SendFence(const SendSlot& slot, uint32_t bytes, Operation* passed) override {
    fences_.push_back(passed);
    return Send(slot, bytes);
  }
  absl::StatusOr<Posted> Post(TransferKind kind, absl::Span<const Transfer> transfers,
                              Operation* op) override {
    for (const Transfer& transfer : transfers) {
      const size_t bytes = transfer.local->memory().size();
      WEFT_CHECK(transfer.local_offset <= bytes &&
                 transfer.remote.length <= bytes - transfer.local_offset);
      WEFT_CHECK(opens_ == nullptr || !IsSealedSpan(transfer.remote));
    }
    if (domain_->Refuses(FuzzDomain::Refusal::kPost) || posted_.size() >= 8) {
      return absl::ResourceExhaustedError("full");
    }
    if (domain_->Refuses(FuzzDomain::Refusal::kBroken)) return absl::UnavailableError("broken");
    if (kind == TransferKind::kRead) Read(transfers[0]);
    if (domain_->reads_at_once && kind == TransferKind::kRead) return Posted::kDone;
    posted_.push_back(op);
    return Posted::kPending;
  }
  bool Reclaim(std::unique_ptr<Region> region) override {
    region.reset();
    return domain_->reclaims;
  }
  void Abandon() override {}

  // What the provider does in its own time.
  bool Sent() {
    if (sending_.empty()) return false;
    domain_->ReleaseSlot(sending_.front());
    sending_.pop_front();
    return true;
  }
  void Complete(const absl::Status& status) {
    if (posted_.empty()) return;
    Operation* const op = posted_.front();
    posted_.pop_front();
    op->OnComplete(status);
  }
  void PassFence() {
    if (fences_.empty()) return;
    Operation* const passed = fences_.front();
    fences_.pop_front();
    passed->OnComplete(absl::OkStatus());
  }

 private:
  void Read(const Transfer& transfer) {
    const auto found = domain_->peer_memory.find(transfer.remote.key);
    if (found == domain_->peer_memory.end()) return;
    const ByteSpan there(found->second);
    std::copy_n(there.begin(), std::min<uint64_t>(there.size(), transfer.remote.length),
                transfer.local->memory().data() + transfer.local_offset);
  }

  FuzzDomain* const domain_;
  Seal* const opens_;            // null: what it sends is not sealed
  const Nonce128* const proof_;  // null: and does not end in one
  std::deque<SendSlot> sending_;
  std::deque<Operation*> posted_;
  std::deque<Operation*> fences_;  // are not told any more once the link ends
};

inline absl::StatusOr<std::unique_ptr<Link>> FuzzDomain::Make(LinkHandler* made_for) {
  if (Refuses(Refusal::kLink)) return absl::UnavailableError("no way there");
  auto made = std::make_unique<FuzzLink>(this);
  handler = made_for;
  link = made.get();
  return std::unique_ptr<Link>(std::move(made));
}

}  // namespace weft
