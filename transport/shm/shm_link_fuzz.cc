// A link over shared memory whose peer keeps no rule, for a fuzzer: what it hands over, how it
// comes and leaves, what it writes into rings, words and its table of regions, and which files it
// says that its regions lie in.
//
// The first bytes choose who came first, and how well; then each chooses what this side's user does
// next (slots, batches, one-sided operations), or the peer. The peer writes right records where a
// byte does not say otherwise. All in one thread: changes in the middle of a step are pages_fuzz's.
// In the end another peer comes, which keeps the rules, and must be heard.

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/bytes.h"
#include "core/check.h"
#include "core/testing/fuzz_input.h"
#include "transport/descriptor.h"
#include "transport/link.h"
#include "transport/shm/asked_copies.h"
#include "transport/shm/domain_memory.h"
#include "transport/shm/link_memory.h"
#include "transport/shm/ring_steps.h"
#include "transport/shm/shm.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace weft {
namespace {

constexpr uint32_t kSlotBytes = 1024;
constexpr int kMostEvents = 200;
constexpr size_t kMostRegions = 100;
// More than is moved inside one call, and than is copied in one turn.
constexpr size_t kLargeBytes = (1 << 20) + 4096;
constexpr size_t kGrantedBytes = 2 * kCopyPieceBytes;
constexpr std::byte kCanary{0xCA};
constexpr uint32_t kOperations = 20;

struct OnceOperation final : Operation {
  void OnComplete(const absl::Status&) override { WEFT_CHECK(completions++ == 0); }
  int completions = 0;
};

struct OtherRegion final : Region {
  explicit OtherRegion(MutableByteSpan memory) : Region(memory, {7, 0, memory.size()}) {}
};

// One end of a link here, and what it was promised.
struct End final : LinkHandler {
  void OnLinkUp() override { WEFT_CHECK(ups++ == 0 && downs == 0); }
  void OnLinkDown(const absl::Status& why) override {
    WEFT_CHECK(downs++ == 0);
    WEFT_CHECK(absl::IsDataLoss(why) || absl::IsUnavailable(why));
  }
  void OnSlotsFree() override {}
  std::unique_ptr<Link> link;
  int ups = 0;
  int downs = 0;
};

// The memory of the peer's domain, all of which is open to it: also what RegionTable keeps to
// itself (shm_regions.cc has the layout of its table).
class PeerMemory {
 public:
  struct Entry {
    uint64_t key, base, length;
    uint32_t rights, unused;
    uint64_t file_identity, file_offset;
    int32_t file_descriptor;
    uint32_t padding[3];
  };
  struct Header {
    uint64_t magic, identity, identity_address;
  };
  static_assert(sizeof(Entry) == 64);

  int descriptor() const { return domain_->Show(); }
  RegionTable& regions() const { return domain_->regions(); }
  Header& header() const { return *reinterpret_cast<Header*>(domain_->table().data()); }
  Entry& entry(uint64_t key) const {
    return reinterpret_cast<Entry*>(domain_->table().data() + 64)[key % kMaxShmRegions];
  }

 private:
  const std::unique_ptr<DomainMemory> domain_ = DomainMemory::Create().value();
};

// Memory that stays, so that no input has to make it.
struct Host {
  std::vector<std::byte> granted = std::vector<std::byte>(kGrantedBytes + 128, kCanary);
  std::vector<std::byte> mine = std::vector<std::byte>(kLargeBytes);
  std::vector<std::byte> lent = std::vector<std::byte>(kLargeBytes);
  PeerMemory honest;  // of those peers that keep the rules
};

// A peer's end of a link, with hands of its own.
class PeerEnd {
 public:
  PeerEnd(LinkMemory view, std::byte* shown, bool here_is_passive)
      : view_(std::move(view)),
        here_is_passive_(here_is_passive),
        flags_(reinterpret_cast<SharedDomainMemory*>(shown)->ready_flags.of),
        reader_(here_is_passive ? view_->to_active : view_->to_passive,
                here_is_passive ? &view_->to_active_words : &view_->to_passive_words,
                kMaxRecordPayload),
        writer_(here_is_passive ? view_->to_passive : view_->to_active,
                here_is_passive ? &view_->to_passive_words : &view_->to_active_words) {}

  LinkMemory& view() { return view_; }
  SharedSide& mine() { return here_is_passive_ ? view_->active : view_->passive; }
  SharedSide& theirs() { return here_is_passive_ ? view_->passive : view_->active; }
  void Mark(SideState state, uint32_t flag) {
    mine().flag_index.store(flag, std::memory_order_relaxed);
    mine().state.store(state, std::memory_order_release);
    Ring();
  }
  void Ring() { flags_[theirs().flag_index.load() % kMaxShmLinks].store(1); }
  void Write(RecordKind kind, ByteSpan payload) {
    // (It may have broken its own ring.)
    static_cast<void>(writer_.TryWrite(kind, payload, reader_.acked()));
    Ring();
  }
  void Leave() {
    writer_.Close(reader_.acked());
    Mark(SideState::kLeft, 0);
  }
  // Takes a record; false: there is none.
  bool Read() {
    const uint64_t header = reader_.Find();
    RingReader::Record record;
    if (header == 0 || !reader_.Take(header, buffer_, &record)) return false;
    writer_.OnAcked(record.acked);
    reader_.AckConsumed();
    if (record.kind == RecordKind::kAsk && record.payload.size() >= kAskHeaderBytes) {
      asked_.push_back({LoadLe32(&record.payload[0]), LoadLe32(&record.payload[4]) == 1,
                        LoadLe32(&record.payload[24])});
    }
    return true;
  }

  struct Asked {
    uint32_t number = 0;
    bool is_read = false;
    uint32_t bytes = 0;
  };
  std::deque<Asked> asked_;  // and not answered

 private:
  LinkMemory view_;
  const bool here_is_passive_;
  ReadyFlag* const flags_;  // of the domain here
  RingReader reader_;
  RingWriter writer_;
  alignas(64) std::byte buffer_[kMaxRecordBytes];
};

class Here final : BatchSink {
 public:
  Here(Host* host, FuzzInput input) : host_(*host), input_(input) {
    const uint8_t how = input_.U8();
    ShmOptions options;
    options.sink = this;
    options.slot_bytes = kSlotBytes;
    options.max_outstanding_operations = kOperations;
    options.copies.mappings = (how & 1) == 0;
    options.copies.system_calls = (how & 2) == 0;
    domain_ = OpenShmDomain(options).value();
    WEFT_CHECK(domain_->AddSlots(64, 64).ok());
    shown_ = SealedMemory::Open(domain_->host_descriptor(), sizeof(SharedDomainMemory)).value();
    local_ = domain_->Register(MutableByteSpan(host_.mine), Access::kLocalOnly).value();
    granted_ = domain_
                   ->Register(MutableByteSpan(host_.granted).subspan(64, kGrantedBytes),
                              Access::kRemoteReadWrite)
                   .value();
    if ((how & 4) != 0) peer_memory_.header().magic ^= 1;
    if ((how & 8) != 0) peer_memory_.header().identity ^= 1;
    process_id_ = (how & 16) != 0 ? 0 : getpid();
    Publish(0);
    // Where there are more links than are always looked at, those that are quiet go cold.
    if ((how & 32) != 0) {
      for (int i = 0; i < 8; ++i) Come(&quiet_.emplace_back(), /*here_is_passive=*/true);
    }
  }
  ~Here() {
    for (size_t i = 0; i < 64; ++i) {
      WEFT_CHECK(host_.granted[i] == kCanary && host_.granted[64 + kGrantedBytes + i] == kCanary);
    }
  }

  void Run() {
    if (Meet()) {
      for (int i = 0; i < kMostEvents && input_.more() && end_.link != nullptr; ++i) Event();
      Close();
    }
    int completed = 0;
    for (const OnceOperation& operation : operations_) completed += operation.completions;
    WEFT_CHECK(completed == pending_);  // with the link, if not before
    WEFT_CHECK(domain_->stats().send_slots_in_use == 0);
    WEFT_CHECK(domain_->stats().links_open == quiet_.size());
    Honest();
    quiet_.clear();
  }

 private:
  void OnReceived(ByteSpan batch, LinkHandler* by) override {
    WEFT_CHECK(!batch.empty() && batch.size() <= kSlotBytes);
    if (by != &end_) {
      heard_ = AsStringView(batch);
    } else if (closes_inside_) {
      Close();
    }
  }
  void Close() {
    if (slot_.data != nullptr) domain_->ReleaseSlot(std::exchange(slot_, {}));
    end_.link.reset();
  }

  // --- how they come together
  // ---------------------------------------------------------------------

  struct Visit {
    End end;
    std::unique_ptr<PeerEnd> peer;
  };
  // A peer that keeps the rules.
  void Come(Visit* visit, bool here_is_passive) {
    const Descriptor memory(LinkMemory::Create().value());
    visit->peer = std::make_unique<PeerEnd>(LinkMemory::Open(memory.get()).value(), shown_.data(),
                                            here_is_passive);
    LinkPeer peer;
    peer.memory_descriptor = memory.get();
    peer.host_descriptor = host_.honest.descriptor();
    peer.process_id = getpid();
    if (!here_is_passive) visit->peer->Mark(SideState::kHere, 1);
    visit->end.link = here_is_passive ? domain_->Accept(peer, &visit->end).value()
                                      : domain_->Connect(peer, &visit->end).value();
    if (here_is_passive) visit->peer->Mark(SideState::kHere, 1);
    for (int i = 0; visit->end.ups == 0; ++i) {
      WEFT_CHECK(i < 1000 && visit->end.downs == 0);
      domain_->Poll(64);
    }
  }
  void Honest() {
    Visit visit;
    Come(&visit, input_.Bit());
    visit.peer->Write(RecordKind::kBatch, AsBytes("still here"));
    for (int i = 0; heard_ != "still here"; ++i) {
      WEFT_CHECK(i < 1'000'000 && visit.end.downs == 0);
      domain_->Poll(64);
    }
  }
  // False: it was refused.
  bool Meet() {
    const uint8_t how = input_.U8();
    const bool passive = (how & 1) != 0;
    const Descriptor memory(passive ? domain_->NewLinkMemory().value()
                                    : LinkMemory::Create().value());
    peer_ =
        std::make_unique<PeerEnd>(LinkMemory::Open(memory.get()).value(), shown_.data(), passive);
    LinkPeer peer;
    peer.memory_descriptor = memory.get();
    peer.host_descriptor = peer_memory_.descriptor();
    if ((how & 2) != 0) peer_memory_.header().magic ^= 1;
    peer.process_id = process_id_;
    Descriptor other;
    if (how >= 224) other = AnyFile(1, input_.U8());
    if (how >= 240) peer.memory_descriptor = other.get();
    if (how >= 224 && how < 240) peer.host_descriptor = other.get();
    const uint8_t mark = input_.U8();
    const uint32_t flag = mark < 128 ? mark : static_cast<uint32_t>(input_.Number());
    const SideState state = mark % 8 == 7   ? SideState::kLeft
                            : mark % 8 == 6 ? static_cast<SideState>(input_.U8())
                                            : SideState::kHere;
    if (mark % 16 == 5) peer_->theirs().state.store(SideState::kHere);
    if (!passive && mark % 16 != 4) peer_->Mark(state, flag);
    absl::StatusOr<std::unique_ptr<Link>> link =
        passive ? domain_->Accept(peer, &end_) : domain_->Connect(peer, &end_);
    if (!link.ok()) return false;
    end_.link = *std::move(link);
    if (passive && mark % 16 != 4) peer_->Mark(state, flag);
    domain_->Poll(64);
    return true;
  }

  // --- events
  // ---------------------------------------------------------------------------------

  void Event() {
    const uint8_t event = input_.U8();
    switch (event % 16) {
      case 0:
        return Take(event);
      case 1:
        return SendIt(event);
      case 2:
        if (event < 128) end_.link->HasRoom();
        if (event >= 240) closes_inside_ = true;
        return;
      case 3:
      case 4:
        return Post(event);
      case 5: {
        const RemoteSpan remote = Remote(event / 16);
        if (remote.length > kLargeBytes) return;
        end_.link->MoveNow(event >= 128 ? TransferKind::kRead : TransferKind::kWrite,
                           MutableByteSpan(host_.mine).first(remote.length), remote);
        return;
      }
      case 6:
        return Poll(event / 16 * (event / 16));
      case 7:
        return Finish(event);
      case 8:
        return peer_->Write(RecordKind::kBatch, Filled(1 + input_.U16() % (kSlotBytes + 64)));
      case 9:
        return AskHere(event);
      case 10:
        return AnswerHere(event);
      case 11:
        for (int count = event / 16; count >= 0 && peer_->Read(); --count) {
        }
        return;
      case 12:
        return Scribble(event);
      case 13:
        if (event >= 240) return peer_->Leave();
        if (event >= 208) return peer_->Write(static_cast<RecordKind>(input_.U8() | 1), {});
        return peer_->Mark(static_cast<SideState>(event / 16), input_.U8());
      case 14:
        return Publish(input_.U8());
      default:
        if (event >= 240) return files_.clear();  // the peer closes them
        Poll(1);
    }
  }
  void Poll(int turns) {
    for (int i = 0; i <= turns; ++i) domain_->Poll(64);
  }
  ByteSpan Filled(uint32_t bytes) const { return ByteSpan(host_.lent).first(bytes); }

  void Take(uint8_t how) {
    if (slot_.data == nullptr) {
      slot_ = end_.link->TakeSlot(1 + how * 4);
    } else if (how < 128) {
      const uint32_t used = std::min(Room(), uint32_t{how});
      end_.link->GrowSlot(&slot_, used);
    } else {
      domain_->ReleaseSlot(std::exchange(slot_, {}));
    }
    if (slot_.data != nullptr) std::memset(slot_.data, 's', Room());
  }
  uint32_t Room() const { return std::min(slot_.room, kSlotBytes); }
  // As often as it goes, or once.
  void SendIt(uint8_t how) {
    for (int count = how >= 192 ? 100 : 1; count > 0; --count) {
      if (slot_.data == nullptr) slot_ = end_.link->TakeSlot(1);
      if (slot_.data == nullptr) return;
      const uint32_t bytes = 1 + how * 4u % Room();
      std::memset(slot_.data, 'b', bytes);
      end_.link->Send(std::exchange(slot_, {}), bytes).IgnoreError();
    }
  }
  RemoteSpan Remote(uint8_t which) {
    RemoteSpan remote;
    const uint8_t how = input_.U8();
    remote.key = keys_[which % keys_.size()];
    if (how >= 248) remote.key ^= input_.Number();
    if (how % 4 == 3) remote.offset = input_.Number();
    remote.length = how % 16 == 2   ? kLargeBytes
                    : how % 16 == 6 ? (600 << 10)
                    : how % 16 < 12 ? 1 + input_.U8() * uint64_t{64}
                                    : input_.Number();
    return remote;
  }
  void Post(uint8_t how) {
    static const OtherRegion* const other = new OtherRegion(MutableByteSpan(host_.mine));
    std::vector<Transfer> transfers(how >= 224 ? 1 + input_.Below(kOperations + 2) : 1);
    for (Transfer& transfer : transfers) {
      transfer.local = how == 3 ? static_cast<const Region*>(other) : local_.get();
      transfer.remote = Remote(input_.U8());
    }
    const auto result = end_.link->Post(how % 32 < 16 ? TransferKind::kRead : TransferKind::kWrite,
                                        transfers, &operations_.emplace_back());
    pending_ += result.ok() && *result == Posted::kPending;
  }
  void Finish(uint8_t how) {
    if (how < 64) return;
    if (how < 128) {  // the region goes, and another comes
      static_cast<void>(end_.link->Reclaim(std::move(granted_)));
      return Grant();
    }
    if (how < 192) return end_.link->Abandon();
    Close();
  }
  void Grant() {
    granted_ = domain_
                   ->Register(MutableByteSpan(host_.granted).subspan(64, kGrantedBytes),
                              Access::kRemoteRead)
                   .value();
  }

  // --- the peer
  // -------------------------------------------------------------------------------

  void AskHere(uint8_t how) {
    std::vector<std::byte> ask(kAskHeaderBytes);
    const bool is_read = how < 128;
    const uint64_t bytes = input_.Below(8) < 7 ? input_.U8() * uint64_t{16} : input_.Number();
    StoreLe32(&ask[0], asks_++ + (how >= 240));
    StoreLe32(&ask[4], is_read ? 1u : 2u);
    StoreLe64(&ask[8], granted_->remote().key ^ (how % 128 < 112 ? 0 : input_.Number()));
    StoreLe64(&ask[16], input_.Number());
    StoreLe32(&ask[24], static_cast<uint32_t>(bytes));
    if (!is_read) ask.resize(kAskHeaderBytes + std::min<uint64_t>(bytes, kCopyPieceBytes));
    peer_->Write(RecordKind::kAsk, ask);
  }
  void AnswerHere(uint8_t how) {
    PeerEnd::Asked asked;
    if (!peer_->asked_.empty()) {
      asked = peer_->asked_.front();
      peer_->asked_.pop_front();
    }
    std::vector<std::byte> answer(kAnswerHeaderBytes);
    StoreLe32(&answer[0], asked.number + (how >= 240));
    StoreLe32(&answer[4], 1 + (how >= 208));
    if (asked.is_read && how < 224) {
      answer.resize(answer.size() + std::min(asked.bytes, kCopyPieceBytes));
    }
    peer_->Write(RecordKind::kAnswer, answer);
  }
  // Any word of the link's memory. (Those of the domain's are pages_fuzz's.)
  void Scribble(uint8_t how) {
    auto* const words = reinterpret_cast<std::atomic<uint64_t>*>(peer_->view().operator->());
    size_t at = input_.U16() % (sizeof(SharedLinkMemory) / 8);
    if (how >= 128) at = 16 + at % 112;  // sides and words
    uint64_t word = input_.Number();
    if ((how & 64) != 0) {  // as a header: length, kind, number, acked
      word = uint64_t{input_.U16()} % 1100 | uint64_t{1 + input_.Below(5)} << 16 |
             uint64_t{input_.U8()} << 24 | uint64_t{input_.U8()} << 40;
    }
    words[at].store(word);
    peer_->Ring();
  }
  // A region of the peer's, and in which file it says that it lies. What is reached without a file
  // is lent, whatever the table says: it is this process that would be written to.
  void Publish(uint8_t how) {
    const int count = how >= 252 ? 40 : 1;  // more files than are mapped at once
    for (int i = 0; i < count && keys_.size() < kMostRegions; ++i) {
      constexpr Access kAccess[] = {Access::kRemoteReadWrite, Access::kRemoteRead,
                                    Access::kRemoteWrite};
      const uint64_t key = peer_memory_.regions().NewKey().value();
      const size_t bytes = how < 192 ? kLargeBytes : size_t{64} * (how - 191);
      peer_memory_.regions().Publish(key, MutableByteSpan(host_.lent).first(bytes),
                                     kAccess[how / 16 % 3]);
      keys_.push_back(key);
      const uint8_t kind = how >= 252 ? 1 : how % 16;
      if (kind == 0) continue;
      PeerMemory::Entry& entry = peer_memory_.entry(key);
      entry.file_identity = ++identities_;
      entry.file_offset = kind == 15 ? input_.Number() : 0;
      Descriptor file = AnyFile(identities_, kind);
      entry.file_descriptor = file.get();
      if (kind != 14) files_.push_back(std::move(file));
    }
  }
  static Descriptor AnyFile(uint64_t identity, uint8_t kind) {
    char name[32];
    std::snprintf(name, sizeof(name), "weft-%016llx",
                  static_cast<unsigned long long>(identity + (kind == 5)));
    off_t bytes = kLargeBytes;
    int seals = F_SEAL_SHRINK | F_SEAL_GROW;
    switch (kind) {
      case 2:
        seals = 0;
        break;
      case 3:
        bytes = 1000;
        break;
      case 4:
        seals |= F_SEAL_FUTURE_WRITE;
        break;
      case 6:
        bytes = 0;
        break;
      case 7:
        return Descriptor(::memfd_create(name, MFD_CLOEXEC));
      case 8:
        return Descriptor(::eventfd(0, EFD_CLOEXEC));
      case 9:
        return Descriptor(::open("/dev/null", O_RDWR | O_CLOEXEC));
      case 10:
        bytes = off_t{1} << 41;
        break;
      case 11:
        bytes = sizeof(SharedLinkMemory);
        break;
      case 12:
        bytes = sizeof(SharedDomainMemory);
        break;
      case 13:
        return Descriptor();
      default:
        break;
    }
    Descriptor file(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
    static_cast<void>(::ftruncate(file.get(), bytes));  // what a limit forbids stays empty
    if (seals != 0) ::fcntl(file.get(), F_ADD_SEALS, seals);
    return file;
  }

  Host& host_;
  FuzzInput input_;
  PeerMemory peer_memory_;
  std::unique_ptr<LinkDomain> domain_;
  SealedMemory shown_;
  std::unique_ptr<Region> local_;
  std::unique_ptr<Region> granted_;
  std::deque<Visit> quiet_;
  std::unique_ptr<PeerEnd> peer_;
  End end_;
  SendSlot slot_;
  std::deque<OnceOperation> operations_;
  int pending_ = 0;
  std::string heard_;
  bool closes_inside_ = false;
  int32_t process_id_ = 0;
  std::vector<uint64_t> keys_;  // of the peer's regions
  std::vector<Descriptor> files_;
  uint64_t identities_ = 0;
  uint32_t asks_ = 0;
};

}  // namespace
}  // namespace weft

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static weft::Host* const host = new weft::Host;
  weft::Here(host, weft::FuzzInput(data, size)).Run();
  return 0;
}
