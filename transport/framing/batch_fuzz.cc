// The batches of a peer into a connection, and what its link does meanwhile, for a fuzzer.
//
// Each byte chooses an event: a batch, of frames that are mostly right; a completion of the link; a
// wish of this side's user; the end of a turn. A second connection of the same table stands by, and
// must not notice anything.
//
// The connection may be a sealed one. Then batches are also changed on their way, by somebody who
// has no key: none of those may deliver anything. Or batches end in a proof, and large messages
// alone are sealed: then strangers send some that have a bit of the proof wrong, and nothing
// happens.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/check.h"
#include "core/clock.h"
#include "core/counters.h"
#include "core/slab.h"
#include "core/testing/fuzz_input.h"
#include "core/timer_wheel.h"
#include "transport/framing/batch.h"
#include "transport/framing/connection_table.h"
#include "transport/framing/framed_connection.h"
#include "transport/framing/framing_domain.h"
#include "transport/framing/seal.h"
#include "transport/framing/testing/fuzz_link.h"
#include "transport/framing/testing/fuzz_peer.h"
#include "transport/framing/testing/fuzz_user.h"
#include "transport/leases/export_table.h"
#include "transport/leases/grant_message.h"
#include "transport/link.h"

namespace weft {
namespace {

constexpr uint32_t kSlotBytes = kFuzzSlotBytes;
constexpr size_t kMemoryBytes = FuzzPeer::kMemoryBytes;
constexpr std::byte kFirstOfSecret[] = {std::byte{1}};
constexpr int kMostEvents = 200;

// The owner of both connections, and the user of each.
class World final : private ConnectionOwner {
 public:
  explicit World(FuzzInput input) : input_(input), timers_(clock_.NowNs()) {}

  void Run() {
    const uint8_t how = input_.U8();
    more_ = input_.U8();
    domain_.set_frames_to_part(how & 1 ? 4 : 0);
    domain_.reads_at_once = (more_ & kReadsAtOnce) != 0;
    domain_.has_fence = (more_ & kFence) != 0;
    if ((more_ & kShm) != 0) domain_.set_kind(PathKind::kShm);
    domain_.reclaims = (how & 2) == 0;
    user_.keeps = (how & 4) != 0;
    user_.closes_at_message = (how & 8) != 0;
    if ((how & 128) != 0) BeginSealing();
    FramingOptions framing;
    framing.large_piece_bytes = kSlotBytes;
    if (holds_pool()) framing.large_receive_bytes = kMaxMessageBytes;
    framing_.emplace(&domain_, framing);
    StartBoth((how & 16) != 0);
    export_ = AddExport();
    for (int i = 0; i < kMostEvents && input_.more(); ++i) {
      if (input_.U8() % 8 < 5) {
        Receive();
      } else {
        Happen();
      }
      CheckInvariants();
    }
    EndTurn();
    WEFT_CHECK(bystander_->state() == Connection::State::kOpen && standing_by_.messages == 0);
    // What the bystander holds of the memory for large messages is the other's next.
    bystander_->End(absl::CancelledError("over"), /*peer_dead=*/false);
    if (connection_ != nullptr) EndTurn();
    if (connection_ != nullptr) connection_->End(absl::CancelledError("over"), (how & 32) != 0);
    connection_.reset();
    WEFT_CHECK(user_.closes == 1);
    region_.reset();
    sealed_region_.reset();
    atomic_region_.reset();
    // What was kept outlives its connection.
    if ((how & 64) != 0) user_.kept.clear();
    if (export_->state() == Export::State::kOpen) export_->Revoke(0, nullptr);
    WEFT_CHECK(export_->state() == Export::State::kReclaimed);
  }

 private:
  void BeginSealing() {
    const uint8_t how = input_.U8();
    if (how / 16 == 0xC) return BeginProving();
    peer_.seal.emplace(secret_, /*dialled=*/false);
    peer_.seals_batches = true;
    domain_.UseSealedPath((how & 1) != 0, (how & 2) == 0, &*peer_.seal->batches_in);
    only_sealed_ = (how & 4) != 0;
  }
  void BeginProving() {
    proves_ = true;
    domain_.UseProvedPath(&kPeersProof);
    // Both proofs in the order of client and server, and no nonce (docs/wire_format.md).
    LinkSecret numbers;
    StoreLe64(numbers.data(), kOwnProof.high);
    StoreLe64(numbers.data() + 8, kOwnProof.low);
    StoreLe64(numbers.data() + 16, kPeersProof.high);
    StoreLe64(numbers.data() + 24, kPeersProof.low);
    peer_.seal.emplace(numbers, /*dialled=*/false);
  }
  bool seals_large() const { return peer_.seal.has_value(); }
  bool sealed() const { return peer_.seals_batches; }
  bool holds_pool() const { return (more_ & kHeld) == kHeld && !seals_large(); }

  void StartBoth(bool late) {
    LinkAgreement agreement;
    agreement.peer_index = 3;
    agreement.peer_token = 33;
    agreement.send_window_slots = agreement.receive_window_slots = kMinWindowSlots;
    agreement.batch_bytes = kSlotBytes;
    if ((more_ & kWideWindow) != 0) {
      agreement.send_window_slots = agreement.receive_window_slots = 2 * kMaxRequests;
    }
    agreement.peer_answers = agreement.peer_leases = (more_ & kOldPeer) == 0;
    agreement.receive_sequence = FuzzPeer::kFirstSequence;
    agreement.has_proofs = proves_;
    agreement.send_proof = kPeersProof;
    agreement.receive_proof = kOwnProof;
    FramedConnection::Options options;
    options.token = kBystandersToken;
    options.first_sequence = FuzzPeer::kFirstSequence;
    options.max_outstanding_operations = 8;
    bystander_ = FramedConnection::Create(&table_, this, &standing_by_, options).value();
    WEFT_CHECK(bystander_->StartLink(&*framing_, {}, false, agreement).ok());
    bystander_->Open();
    if (holds_pool()) HoldPool();
    options.token = kToken;
    // Not the bystander's: nobody carries out what it holds, and it is to stay.
    if ((more_ & kPatience) != 0) options.patience = {&clock_, &timers_, kPatienceNs};
    agreement.only_sealed = only_sealed_;
    connection_ = FramedConnection::Create(&table_, this, &user_, options).value();
    peer_.connection = connection_->index();
    peer_.token = kToken;
    peer_.other_connection = bystander_->index();
    LinkPeer peer;
    if (sealed()) peer.secret = secret_;
    if ((more_ & kTriedBefore) != 0) TryOtherPaths(peer, agreement);
    WEFT_CHECK(connection_->StartLink(&*framing_, peer, true, agreement).ok());
    by_ = domain_.handler;
    link_ = domain_.link;
    by_->OnLinkUp();
    if (!late) table_.RunEvents(clock_);
    region_ = domain_.Register(memory_, Access::kRemoteReadWrite).value();
  }
  // Paths that come to nothing, as a peer's hello may have it, or the host.
  void TryOtherPaths(const LinkPeer& peer, const LinkAgreement& agreement) {
    const auto start = [&](const LinkPeer& to, const LinkAgreement& terms) {
      return connection_->StartLink(&*framing_, to, input_.Bit(), terms);
    };
    LinkAgreement wrong = agreement;
    wrong.send_window_slots = input_.Bit() ? kMaxWindowSlots + 1 : kMinWindowSlots - 1;
    WEFT_CHECK(!start(peer, wrong).ok());
    wrong = agreement;
    wrong.batch_bytes = input_.Bit() ? kSlotBytes + 1 : kMinBatchBytes - 1;
    WEFT_CHECK(!start(peer, wrong).ok());
    wrong = agreement;
    wrong.only_sealed = true;
    if (sealed()) WEFT_CHECK(!start({}, wrong).ok());
    domain_.refuses = FuzzDomain::Refusal::kSlots;
    WEFT_CHECK(!start(peer, agreement).ok());
    domain_.refuses = FuzzDomain::Refusal::kLink;
    WEFT_CHECK(!start(peer, agreement).ok());
    WEFT_CHECK(start(peer, agreement).ok());
    switch (input_.Below(3)) {
      case 0:
        break;
      case 1:
        domain_.handler->OnLinkDown(absl::UnavailableError("it never came up"));
        break;
      case 2:
        domain_.handler->OnLinkUp();
        break;
    }
    connection_->StopLink(/*peer_dead=*/input_.Bit());
  }
  // A peer of the bystander's lets it read the largest message, and then no byte of it: what others
  // are offered waits.
  void HoldPool() {
    const bool reads_at_once = std::exchange(domain_.reads_at_once, false);
    std::vector<std::byte> batch(kBatchHeaderBytes);
    std::byte payload[LargeOffer::kBytes];
    EncodeLargeOffer(payload, {0, 7, 0, kMaxMessageBytes});
    FuzzPeer::Append(batch, FrameKind::kLargeOffer, payload);
    EncodeBatchHeader(batch.data(), {bystander_->index(), kBystandersToken, 0, /*frames=*/1,
                                     FuzzPeer::kFirstSequence});
    table_.OnReceived(batch, domain_.tells_links() ? domain_.handler : nullptr);
    domain_.reads_at_once = reads_at_once;
  }
  std::unique_ptr<Export> AddExport() {
    ExportOptions options;
    options.rights = kAllRights;
    return exports_.Add(memory_, options).value();
  }

  // ConnectionOwner
  void OnLinkUp(FramedConnection& connection) override { connection.Open(); }
  void OnBroken(FramedConnection& connection, const absl::Status& why) override {
    WEFT_CHECK(&connection == connection_.get());
    End(why);
  }
  void OnCloseRequested(FramedConnection& connection, std::string_view) override {
    WEFT_CHECK(&connection == connection_.get());
    End(absl::CancelledError("closed"));
  }
  void SendGrant(FramedConnection&, ByteSpan grant) override {
    GrantMessage message;
    WEFT_CHECK(DecodeGrant(grant, &message));
    if (const auto* asked = std::get_if<GrantResolve>(&message)) asked_ = *asked;
  }
  void End(const absl::Status& why) {
    connection_->End(why, /*peer_dead=*/false);
    connection_.reset();
    link_ = nullptr;
  }

  void EndTurn() {
    table_.RunEvents(clock_);
    table_.FlushAll();
  }
  void CheckInvariants() {
    if (connection_ != nullptr) connection_->CheckInvariants();
    bystander_->CheckInvariants();
    framing_->send_pool().CheckInvariants();
    framing_->receive_pool().CheckInvariants();
  }

  // --- what the peer sends ----------------------------------------------------------------------

  void Receive() {
    std::vector<std::byte> batch = peer_.MakeBatch();
    if (connection_ == nullptr) return;
    if (proves_) return DeliverProved(std::move(batch));
    if (!sealed()) return Deliver(batch);
    peer_.SealBatch(&batch);
    const uint8_t on_its_way = input_.U8();
    if (on_its_way < 240) return Deliver(batch);
    std::vector<std::byte> changed = peer_.ChangeOnItsWay(batch);
    const uint64_t messages = user_.messages;
    if (changed != batch) Deliver(changed);
    WEFT_CHECK(user_.messages == messages);
    if ((on_its_way & 1) != 0) return Deliver(batch);  // as well, in its time
    peer_.Forget(batch);
  }
  void Deliver(const std::vector<std::byte>& batch) {
    if (connection_ == nullptr) return;
    // In memory of exactly its size, which is gone afterwards.
    const auto received = std::make_unique<std::byte[]>(batch.size());
    std::copy(batch.begin(), batch.end(), received.get());
    table_.OnReceived(ByteSpan(received.get(), batch.size()),
                      domain_.tells_links() ? by_ : nullptr);
  }
  void DeliverProved(std::vector<std::byte> batch) {
    const size_t bytes = batch.size();
    batch.resize(bytes + Seal::kTagBytes);
    StoreLe64(&batch[bytes], kOwnProof.high);
    StoreLe64(&batch[bytes + 8], kOwnProof.low);
    const uint8_t how = input_.U8();
    if (how >= 240) {
      std::vector<std::byte> wrong = batch;
      wrong[bytes + how % Seal::kTagBytes] ^= std::byte{1} << input_.Below(8);
      const uint64_t messages = user_.messages;
      const Connection::State state = connection_->state();
      const uint64_t unknown = table_.stats().batches_unknown;
      Deliver(wrong);
      WEFT_CHECK(user_.messages == messages && connection_->state() == state);
      WEFT_CHECK(table_.stats().batches_unknown == unknown + 1);
    }
    Deliver(batch);
  }

  // --- this side --------------------------------------------------------------------------------

  void Happen() {
    if (connection_ == nullptr) return;
    const bool open = connection_->state() == Connection::State::kOpen;
    const uint8_t event = input_.U8();
    if (event >= 240) return HappenRarely(open);
    switch (event % (sealed() ? 20 : 16)) {
      case 16:
      case 17:
      case 18:
      case 19:
        return HappenSealed();
      case 0:
        if (link_->Sent()) by_->OnSlotsFree();
        return;
      case 1:
        // Whatever was read: what is delivered of it was sealed.
        if (seals_large()) user_.only = FuzzPeer::kInLarge;
        link_->Complete(absl::OkStatus());
        user_.only.reset();
        return;
      case 2:
        return link_->Complete(absl::PermissionDeniedError("no such key"));
      case 3:
        return by_->OnLinkDown(absl::UnavailableError("the cable is cut"));
      case 4:
        return connection_->Close("the user's wish");
      case 5:
        return Say(input_.U8());
      case 6:
        return Say(kSlotBytes + 64 * input_.U8());  // a large one
      case 7:
        atomic_.posted +=
            open &&
            connection_->memory().FetchAdd({7, input_.Below(9) * uint64_t{8}, 8}, 1, &atomic_).ok();
        return;
      case 8:
        operation_.posted += open && connection_->memory().Probe(&operation_).ok();
        return;
      case 9: {
        if (!open) return;
        const Transfer transfer = {region_.get(), 0, {9, 0, kMemoryBytes}};
        const auto kind = input_.Bit() ? TransferKind::kRead : TransferKind::kWrite;
        operation_.posted += IsPending(
            connection_->memory().Post(kind, absl::MakeConstSpan(&transfer, 1), &operation_));
        return;
      }
      case 10: {
        auto region = domain_.Register(memory_, Access::kRemoteReadWrite);
        if (!region.ok()) return;
        if (!connection_->memory().Reclaim(*std::move(region), &operation_)) ++operation_.posted;
        return;
      }
      case 11:
        if (open && lease_.state() == Lease::State::kIdle) {
          lease_.asked +=
              connection_->memory().Resolve(export_->handle(), 0, kMinLeaseNs, &lease_).ok();
        }
        return;
      case 12:
        if (open && lease_.state() == Lease::State::kHeld) connection_->memory().Return(&lease_);
        return;
      case 13:
        return connection_->OnGrant(peer_.MakeGrant(export_->handle()));
      case 14:
        clock_.Advance(uint64_t{input_.U8()} * 300'000'000);
        timers_.Advance(clock_.NowNs());
        return;
      default:
        return EndTurn();
    }
  }
  void HappenRarely(bool open) {
    using Refusal = FuzzDomain::Refusal;
    RemoteAccess& memory = connection_->memory();
    switch (input_.Below(16)) {
      case 0:  // as much as was reserved, less of it, or nothing
      case 1:
        return Reserve(input_.Below(64) * size_t{8});
      case 2:
        return Reserve(kSlotBytes + 64 * input_.U8());
      case 3:
        WEFT_CHECK(!connection_->Reserve(kMaxMessageBytes + 1).ok());
        return;
      case 4: {
        const RemoteSpan word = {FuzzDomain::kFirstKey, input_.Below(9) * uint64_t{8}, 8};
        const uint64_t expected = input_.U8();
        atomic_.posted += memory.CompareSwap(word, expected, input_.U8(), &atomic_).ok();
        WEFT_CHECK(!memory.FetchAdd({word.key, 0, 4}, 1, &atomic_).ok());
        return;
      }
      case 5:  // as many as there is room for
        while (memory.Probe(&operation_).ok()) ++operation_.posted;
        return;
      case 6:
        if (open && lease_.state() == Lease::State::kHeld) {
          memory.Renew(kMinLeaseNs, &lease_).IgnoreError();
        }
        return;
      case 7:
        derivation_.posted +=
            memory.Derive(export_->handle(), 0, 8, kMayRead, 0, &derivation_).ok();
        return;
      case 8: {
        const Transfer transfer = {region_.get(), 0, {9, 0, kMemoryBytes}};
        const std::string text(input_.Below(64) * size_t{8}, 'b');
        operation_.posted += IsPending(
            memory.WriteThenSend(absl::MakeConstSpan(&transfer, 1), AsBytes(text), &operation_));
        return;
      }
      case 9:
        domain_.refuses = static_cast<Refusal>(3 + input_.Below(3));
        return;
      case 10:
        if (link_ != nullptr) link_->PassFence();
        return;
      case 11:
        by_->OnSlotsFree();
        return;
      case 12: {
        const ConnectionStats stats = connection_->stats();
        WEFT_CHECK(stats.large_received <= stats.messages_received);
        WEFT_CHECK(stats.messages_received == user_.messages);
        return;
      }
      case 13:
        user_.kept.clear();
        return;
      case 14:
        return Patience();
      default:
        return input_.Bit() ? AnswerGrant() : AllowAtomics();
    }
  }
  // What the peer may change by its requests.
  void AllowAtomics() {
    auto region = connection_->memory().Register(atomic_memory_, Access::kRemoteReadWrite);
    if (!region.ok()) return;
    atomic_region_ = *std::move(region);
    peer_.atomic_region = atomic_region_.get();
  }
  // More than a peer is given for anything.
  void Patience() {
    clock_.Advance(8 * kPatienceNs);
    timers_.Advance(clock_.NowNs());
  }
  void Reserve(size_t bytes) {
    if (connection_->state() != Connection::State::kOpen) return;
    const absl::StatusOr<std::byte*> space = connection_->Reserve(bytes);
    if (!space.ok()) return;
    const uint8_t how = input_.U8();
    const size_t used = how < 64 ? std::min<size_t>(bytes, how / 4) : bytes;
    if (how % 4 == 3) return connection_->Abandon();
    std::memset(*space, 'r', used);
    connection_->Commit(used);
  }
  // As an owner answers that keeps the rules.
  void AnswerGrant() {
    if (!asked_.has_value()) return;
    const GrantResolve asked = *std::exchange(asked_, std::nullopt);
    const GrantBytes granted = EncodeGrant(GrantGranted{asked.ask,
                                                        SlabHandle{input_.Below(4), 1}.packed(),
                                                        asked.lease_ns,
                                                        {7, 0, asked.handle.length()},
                                                        asked.handle.rights()});
    connection_->OnGrant(granted.bytes());
  }
  // What is carried out by engines.
  void HappenSealed() {
    if (connection_->state() != Connection::State::kOpen) return;
    RemoteAccess& memory = connection_->memory();
    Transfer transfers[3];
    const uint32_t count = 1 + input_.Below(3);
    for (uint32_t i = 0; i < count; ++i) {
      const uint64_t offset = input_.U8();
      transfers[i] = {region_.get(), offset, {9, kSealedOffset + offset, kMemoryBytes - offset}};
    }
    const auto chosen = absl::MakeConstSpan(transfers, count);
    switch (input_.Below(4)) {
      case 0:
        operation_.posted += IsPending(memory.Post(TransferKind::kRead, chosen, &operation_));
        return;
      case 1:
        operation_.posted += IsPending(memory.Post(TransferKind::kWrite, chosen, &operation_));
        return;
      case 2:
        operation_.posted += IsPending(
            memory.WriteThenSend(chosen, AsBytes(std::string_view("behind")), &operation_));
        return;
      case 3:  // the last one goes
        sealed_region_.reset();
        sealed_region_ = memory.Register(sealed_memory_, Access::kRemoteReadWrite).value();
        peer_.sealed_region = sealed_region_.get();
        return;
    }
  }
  void Say(size_t bytes) {
    if (connection_->state() != Connection::State::kOpen) return;
    const MessageSpace space = connection_->Append(bytes);
    if (space.data != nullptr) std::memset(space.data, 'w', bytes);
  }

  // Bits of more_.
  static constexpr uint8_t kPatience = 1;
  static constexpr uint8_t kReadsAtOnce = 2;
  static constexpr uint8_t kTriedBefore = 4;
  static constexpr uint8_t kOldPeer = 8;  // it answers no requests, and knows no leases
  static constexpr uint8_t kFence = 16;
  static constexpr uint8_t kWideWindow = 32;
  static constexpr uint8_t kShm = 64;
  static constexpr uint8_t kHeld = 64 + 128;
  static constexpr uint64_t kPatienceNs = 1'000'000'000;

  static constexpr Nonce128 kOwnProof = {1, 2};
  static constexpr Nonce128 kPeersProof = {3, 4};
  static constexpr uint32_t kToken = 77;
  static constexpr uint32_t kBystandersToken = 77'000;

  FuzzInput input_;
  const LinkSecret secret_{kFirstOfSecret};
  bool proves_ = false;  // large messages are sealed, and batches end in proofs
  uint8_t more_ = 0;
  bool only_sealed_ = false;
  FakeClock clock_;
  TimerWheel timers_;
  CounterSet counters_;
  ExportTable exports_{&clock_, &timers_, &counters_, /*max_bytes=*/1 << 20};
  std::vector<std::byte> bytes_ = std::vector<std::byte>(kMemoryBytes);
  const MutableByteSpan memory_{bytes_};
  std::vector<std::byte> sealed_bytes_ = std::vector<std::byte>(kMemoryBytes);
  const MutableByteSpan sealed_memory_{sealed_bytes_};
  std::vector<uint64_t> atomic_words_ = std::vector<uint64_t>(8);
  const MutableByteSpan atomic_memory_{reinterpret_cast<std::byte*>(atomic_words_.data()),
                                       8 * sizeof(uint64_t)};
  FuzzDomain domain_;
  FuzzPeer peer_{&input_, &domain_};
  ConnectionTable table_{4, &exports_};
  std::optional<FramingDomain> framing_;
  FuzzUser standing_by_;
  FuzzUser user_;
  OnceOperation operation_;
  OnceAtomic atomic_;
  OnceLease lease_;
  OnceDerivation derivation_;
  std::optional<GrantResolve> asked_;  // of the peer last, and not answered
  std::unique_ptr<Region> region_;
  std::unique_ptr<Region> atomic_region_;  // null: none is registered, or not yet
  std::unique_ptr<Region> sealed_region_;  // null: none is registered, or not yet
  std::unique_ptr<Export> export_;
  std::unique_ptr<FramedConnection> bystander_;
  std::unique_ptr<FramedConnection> connection_;
  LinkHandler* by_ = nullptr;
  FuzzLink* link_ = nullptr;
};

}  // namespace
}  // namespace weft

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  weft::World(weft::FuzzInput(data, size)).Run();
  return 0;
}
