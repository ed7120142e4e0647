// What two processes share, rewritten by one of them while the other reads it, for a fuzzer.
//
// A domain of ours has a link to a peer, which is a thread here: it stores words of the fuzzer's
// into the link's memory, and into what domains show to each other, over and over, while the domain
// is polled, sends, and copies. A second link, which nobody touches, must carry what it is given.
// Runs differ, as threads do: what is found here is found again by running its input many times.

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/testing/fuzz_input.h"
#include "transport/descriptor.h"
#include "transport/link.h"
#include "transport/shm/domain_memory.h"
#include "transport/shm/link_memory.h"
#include "transport/shm/shm.h"

namespace weft {
namespace {

constexpr uint32_t kSlotBytes = 1024;
constexpr size_t kMostStores = 64;
constexpr int kTurns = 12;

// Stores a list of words in turn, as long as it has one.
class Rewriter {
 public:
  struct Store {
    std::atomic<uint64_t>* at = nullptr;
    uint64_t word = 0;
  };

  Rewriter() : thread_([this] { Run(); }) { thread_.detach(); }  // as long as the process

  // Until Stop(), which waits for the last store.
  void Start(std::vector<Store> stores) {
    stores_ = std::move(stores);
    begun_.store(false, std::memory_order_relaxed);
    works_.store(true, std::memory_order_release);
    while (!begun_.load(std::memory_order_acquire)) std::this_thread::yield();
  }
  void Stop() {
    works_.store(false, std::memory_order_relaxed);
    while (!rests_.load(std::memory_order_acquire)) std::this_thread::yield();
  }

 private:
  void Run() {
    for (;;) {
      rests_.store(true, std::memory_order_release);
      while (!works_.load(std::memory_order_acquire)) std::this_thread::yield();
      rests_.store(false, std::memory_order_relaxed);
      begun_.store(true, std::memory_order_release);
      while (works_.load(std::memory_order_relaxed)) {
        for (const Store& store : stores_) store.at->store(store.word, std::memory_order_relaxed);
      }
    }
  }

  std::vector<Store> stores_;
  std::atomic<bool> works_{false};
  std::atomic<bool> begun_{false};
  std::atomic<bool> rests_{false};
  std::thread thread_;
};

struct End final : LinkHandler {
  void OnLinkUp() override { WEFT_CHECK(ups++ == 0); }
  void OnLinkDown(const absl::Status& why) override {
    WEFT_CHECK(downs++ == 0);
    WEFT_CHECK(why.code() == absl::StatusCode::kDataLoss ||
               why.code() == absl::StatusCode::kUnavailable);
  }
  void OnSlotsFree() override {}
  std::unique_ptr<Link> link;
  int ups = 0;
  int downs = 0;
};

struct OnceOperation final : Operation {
  void OnComplete(const absl::Status&) override { WEFT_CHECK(completions++ == 0); }
  int completions = 0;
};

struct Side final : BatchSink {
  explicit Side(bool may_reach) {
    ShmOptions options;
    options.sink = this;
    options.slot_bytes = kSlotBytes;
    options.copies.mappings = options.copies.system_calls = may_reach;
    domain = OpenShmDomain(options).value();
    WEFT_CHECK(domain->AddSlots(64, 64).ok());
  }
  void OnReceived(ByteSpan batch, LinkHandler* by) override {
    WEFT_CHECK(!batch.empty() && batch.size() <= kSlotBytes);
    for (const std::byte byte : batch) sum += static_cast<unsigned>(byte);  // all can be read
    if (by == honest) heard = AsStringView(batch);
  }
  bool Send(End& end, std::string_view text) {
    if (end.link == nullptr || end.downs > 0) return false;
    const SendSlot slot = end.link->TakeSlot(static_cast<uint32_t>(text.size()));
    if (slot.data == nullptr) return false;
    std::copy(text.begin(), text.end(), reinterpret_cast<char*>(slot.data));
    return end.link->Send(slot, static_cast<uint32_t>(text.size())).ok();
  }
  std::unique_ptr<LinkDomain> domain;
  LinkHandler* honest = nullptr;
  std::string heard;
  unsigned sum = 0;
};

// Ours is "here"; "there" is what the peer's process was before it turned hostile.
class World {
 public:
  explicit World(bool may_reach) : here_(may_reach), there_(may_reach) {
    views_.push_back(Open(honest_there_, honest_here_));
    here_.honest = &honest_here_;
    shown_ =
        SealedMemory::Open(here_.domain->host_descriptor(), sizeof(SharedDomainMemory)).value();
    region_ = here_.domain->Register(MutableByteSpan(granted_), Access::kRemoteReadWrite).value();
    local_ = here_.domain->Register(MutableByteSpan(mine_), Access::kLocalOnly).value();
    theirs_ = there_.domain->Register(MutableByteSpan(lent_), Access::kRemoteReadWrite).value();
  }

  void Run(FuzzInput input) {
    static Rewriter* const rewriter = new Rewriter;
    End here, there;
    std::vector<OnceOperation> operations(kTurns);
    int posted = 0;
    {
      LinkMemory view = Open(there, here);
      const uint8_t how = input.U8();
      if ((how & 1) != 0) there_.Send(there, "before it turned");
      const bool shows_domains = (how & 6) == 6;
      rewriter->Start(Stores(input, view, shows_domains));
      // A region that ends while the peer may say that it still copies from it.
      std::unique_ptr<Region> passing;
      if (shows_domains) {
        passing = here_.domain->Register(MutableByteSpan(mine_), Access::kRemoteRead).value();
      }
      for (int turn = 0; turn < kTurns; ++turn) {
        here_.Send(here, std::string(1 + (turn * 97 + how) % (kSlotBytes - 1), 'h'));
        if (here.link != nullptr && here.downs == 0 && (how & 8) != 0) {
          const Transfer transfer = {local_.get(), 0, theirs_->remote()};
          const auto result = here.link->Post(
              turn % 2 == 0 ? TransferKind::kRead : TransferKind::kWrite,
              absl::MakeConstSpan(&transfer, 1), &operations[static_cast<size_t>(turn)]);
          posted += result.ok() && *result == Posted::kPending;
        }
        (void)here_.domain->Arm();  // whatever it says: there is nobody who would sleep
        here_.domain->Poll(64);
        if ((how & 16) != 0) there_.domain->Poll(64);
      }
      passing.reset();
      rewriter->Stop();
      here.link.reset();
      there.link.reset();
    }
    int completed = 0;
    for (const OnceOperation& operation : operations) completed += operation.completions;
    WEFT_CHECK(completed == posted);
    WEFT_CHECK(here_.domain->stats().links_open == 1);
    WEFT_CHECK(here_.domain->stats().send_slots_in_use == 0);
    // The other link goes on. (Whose ready flag the peer has cleared is only found later.)
    here_.heard.clear();
    WEFT_CHECK(there_.Send(honest_there_, "still here"));
    for (int i = 0; here_.heard != "still here"; ++i) {
      WEFT_CHECK(i < 1'000'000 && honest_here_.downs == 0);
      here_.domain->Poll(64);
    }
  }

 private:
  LinkMemory Open(End& active, End& passive) {
    const Descriptor memory(here_.domain->NewLinkMemory().value());
    LinkPeer peer;
    peer.memory_descriptor = memory.get();
    peer.process_id = getpid();
    peer.host_descriptor = there_.domain->host_descriptor();
    passive.link = here_.domain->Accept(peer, &passive).value();
    peer.host_descriptor = here_.domain->host_descriptor();
    active.link = there_.domain->Connect(peer, &active).value();
    while (active.ups == 0 || passive.ups == 0) {
      here_.domain->Poll(64);
      there_.domain->Poll(64);
    }
    return LinkMemory::Open(memory.get()).value();
  }
  std::vector<Rewriter::Store> Stores(FuzzInput& input, LinkMemory& view, bool domains) {
    std::vector<Rewriter::Store> stores;
    auto* const link = reinterpret_cast<std::atomic<uint64_t>*>(view.operator->());
    // Behind the magic: ready flags and pins.
    constexpr size_t kShown = offsetof(SharedDomainMemory, ready_flags);
    auto* const shown = reinterpret_cast<std::atomic<uint64_t>*>(shown_.data() + kShown);
    while (input.more() && stores.size() < kMostStores) {
      const uint8_t where = input.U8();
      if (domains && where % 8 == 7) {
        stores.push_back(
            {shown + input.U16() % ((sizeof(SharedDomainMemory) - kShown) / 8), input.U64()});
        continue;
      }
      // Where headers and counts stand: the words, and the first lines of each ring.
      size_t at = 1 + input.U16() % (sizeof(SharedLinkMemory) / 8 - 1);
      if (where % 4 == 0) at = offsetof(SharedLinkMemory, to_passive) / 8 + input.U8() / 8 * 8;
      if (where % 4 == 1) at = offsetof(SharedLinkMemory, to_active) / 8 + input.U8() / 8 * 8;
      if (where % 4 == 2) at = 16 + input.U8() % 112;  // sides and words
      uint64_t word = input.Number();
      if (where >= 64) {  // as a header: length, kind, number
        word = uint64_t{input.U16()} % 1100 | uint64_t{1 + input.Below(5)} << 16 |
               uint64_t{input.Below(4)} << 24 | uint64_t{input.U8()} << 40;
      }
      stores.push_back({link + at, word});
    }
    return stores;
  }

  std::vector<std::byte> granted_ = std::vector<std::byte>(4096);
  std::vector<std::byte> mine_ = std::vector<std::byte>(8192);
  std::vector<std::byte> lent_ = std::vector<std::byte>(6000);
  Side here_;
  Side there_;
  End honest_here_;
  End honest_there_;
  std::vector<LinkMemory> views_;
  SealedMemory shown_;
  std::unique_ptr<Region> region_;
  std::unique_ptr<Region> local_;
  std::unique_ptr<Region> theirs_;
};

}  // namespace
}  // namespace weft

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // Where copies are this side's work, and where the peer is asked for them.
  static auto* const worlds = new std::array<weft::World*, 2>{new weft::World(/*may_reach=*/true),
                                                              new weft::World(/*may_reach=*/false)};
  weft::FuzzInput input(data, size);
  (*worlds)[input.U8() % 2]->Run(input);
  return 0;
}
