// What two tcp links say to each other, without sockets, for a fuzzer.
//
// Each side has its input and its output; between them is memory, out of which the fuzzer takes as
// many bytes as it likes at a time, and into which a kernel takes as few as it likes. Each byte
// chooses an event: a batch, a read, a write; some bytes leave, or arrive; a region goes; somebody
// on the way changes a byte. What was not changed arrives as it was sent, in order, and each
// operation ends once. (What links do with sockets: tcp_fuzz.)

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/bytes.h"
#include "core/check.h"
#include "core/testing/fuzz_input.h"
#include "transport/link.h"
#include "transport/tcp/tcp_frame.h"
#include "transport/tcp/tcp_input.h"
#include "transport/tcp/tcp_operations.h"
#include "transport/tcp/tcp_output.h"
#include "transport/tcp/tcp_regions.h"
#include "transport/tcp/tcp_slots.h"
#include "transport/tcp/testing/limited_sends.h"

namespace weft {
namespace {

constexpr int kMostEvents = 64;
constexpr uint32_t kSlotBytes = 1024;
constexpr uint32_t kMostRecords = 256;
// Three pieces of a transfer, and a little more.
constexpr size_t kMemoryBytes = 3 * kPieceBytes + 64;
// So much may be on its way, in bytes: then it arrives before more leaves.
constexpr size_t kMostOnTheWay = 2 * kMemoryBytes;

// All that regions ever have in them, and what was never there.
constexpr std::byte kRight{'r'};
constexpr std::byte kWrong{'w'};

// What one side keeps from one input to the next: making it costs more than what is fuzzed.
struct Parts {
  Parts() { slots.Ask(64); }
  void Grant() {
    region = regions.Register(MutableByteSpan(granted), Access::kRemoteReadWrite).value();
  }

  LinkDomainStats stats;
  TcpRegions regions{&stats};
  TcpSlots slots{kSlotBytes, /*wide=*/0, /*max_pool_bytes=*/1 << 20, &stats};
  TcpAnswers answers;
  TcpOperations operations{kMostRecords};
  TcpReceiveMemory memory{kSlotBytes};
  std::vector<std::byte> granted = std::vector<std::byte>(kMemoryBytes, kRight);
  // One half to read into, one to write from.
  std::vector<std::byte> local = std::vector<std::byte>(2 * kMemoryBytes, kRight);
  std::unique_ptr<Region> region;
};

// One link's way out, and its way in.
struct Side {
  explicit Side(Parts* of) : parts(*of) {
    if (parts.region == nullptr) parts.Grant();
    key = parts.region->remote().key;
  }
  ~Side() {
    output.Clear();
    input.Clear();
    for (TcpOperation* const operation : outstanding) parts.operations.Give(operation);
    WEFT_CHECK(parts.operations.size() == 0 && parts.stats.send_slots_in_use == 0);
  }

  Parts& parts;
  TcpOutput output{&parts.regions, &parts.slots, &parts.answers};
  TcpInput input{&parts.memory, &parts.regions, &parts.operations, &output};
  uint64_t key = 0;  // of the region, as the peer was told
  std::vector<TcpOperation*> outstanding;
  const TcpOperation* alone = nullptr;               // since it was posted no other was
  std::deque<std::pair<size_t, std::byte>> batches;  // on their way to the peer
  std::string on_the_way;                            // to the peer
  size_t arrived = 0;                                // of that
};

class World {
 public:
  World(Parts* parts, LimitedSends* kernel, FuzzInput input)
      : sides_{Side(&parts[0]), Side(&parts[1])}, kernel_(*kernel), input_(input) {}
  // A byte that changed on its way may be one of a write's: not for the next input to read.
  ~World() {
    if (!changed_) return;
    for (Side& side : sides_) {
      std::fill(side.parts.granted.begin(), side.parts.granted.end(), kRight);
    }
  }

  void Run() {
    for (int i = 0; i < kMostEvents && input_.more(); ++i) {
      if (!Event()) return;
    }
    if (changed_) return;
    // Everything arrives.
    for (int i = 0; i < 4096 && !AllIsQuiet(); ++i) {
      for (uint32_t side : {0u, 1u}) {
        WEFT_CHECK(Leave(side, LimitedSends::kAll, LimitedSends::kAll) && Arrive(side, ~size_t{0}));
      }
    }
    for (const Side& side : sides_) WEFT_CHECK(side.outstanding.empty() && side.batches.empty());
  }

 private:
  bool AllIsQuiet() const {
    return std::all_of(std::begin(sides_), std::end(sides_), [](const Side& side) {
      return side.output.empty() && side.arrived == side.on_the_way.size();
    });
  }

  // False: a link has ended.
  bool Event() {
    const uint8_t event = input_.U8();
    const uint32_t side = event & 1;
    switch (event / 2 % 12) {
      case 0:
      case 1:
        return AddBatch(sides_[side]), true;
      case 2:
      case 3:
        return Post(side, /*is_read=*/true), true;
      case 4:
      case 5:
        return Post(side, /*is_read=*/false), true;
      case 6:
        return Leave(side, LimitedSends::kAll, LimitedSends::kAll);
      case 7: {
        const size_t at_once = 1 + input_.Number() % kMemoryBytes;
        return Leave(side, at_once, input_.Bit() ? at_once : at_once + 1 + input_.U8());
      }
      case 8:
        return Arrive(side, ~size_t{0});
      case 9:
        return Arrive(side, 1 + input_.Number() % kMemoryBytes);
      case 10:
        return LoseRegion(side);
      default:
        return Interfere(side);
    }
  }

  void AddBatch(Side& side) {
    const SendSlot slot = side.parts.slots.Take();
    if (slot.data == nullptr) return;
    const uint8_t how = input_.U8();
    const uint32_t bytes = how < 240 ? 1 + how : kSlotBytes - how % 16;
    const std::byte value{static_cast<uint8_t>(side.batches.size())};
    std::fill_n(slot.data, bytes, value);
    side.batches.emplace_back(bytes, value);
    side.output.AddBatch(TcpSlots::SlotOf(slot), bytes);
  }

  uint64_t Length() {
    const uint8_t how = input_.U8();
    if (how < 200) return 1 + how;
    if (how < 248) return 2000 + 4 * (how - 200u);  // about what is copied
    return kPieceBytes * (1 + how % 3) - 4 + input_.Below(8);
  }
  // As TcpLink::Post().
  void Post(uint32_t to, bool is_read) {
    Side& side = sides_[to];
    const Side& peer = sides_[1 - to];
    const uint8_t how = input_.U8();
    const uint32_t records = how < 192 ? 1 : 1 + how % 40;
    TcpOperations& operations = side.parts.operations;
    if (!operations.HasRoomFor(records)) return;
    TcpOperation* const operation = operations.Take();
    operation->output = &side.output;
    operation->is_read = is_read;
    operation->in_order = how % 4 != 3;
    operation->records = records;
    TcpOperation* last = nullptr;
    const uint64_t length = Length();
    for (uint32_t i = 0; i < records; ++i) {
      TcpOperation* const record = last == nullptr ? operation : operations.TakeRecord();
      record->local = side.parts.local.data() + (is_read ? 0 : kMemoryBytes);
      record->remote = {how % 16 == 15 ? how : peer.key, 0, i == 0 ? length : 1 + i};
      record->remote.offset = input_.U16() % (kMemoryBytes - record->remote.length + 1);
      if (how == 191) record->remote.offset = ~uint64_t{0};
      if (is_read) record->local[0] = record->local[record->remote.length - 1] = kWrong;
      operation->bytes_left += record->remote.length;
      if (last != nullptr) last->next = record;
      last = record;
    }
    operation->current = operation;
    side.alone = side.outstanding.empty() ? operation : nullptr;
    side.outstanding.push_back(operation);
    if (is_read) {
      side.output.AddRead(operation);
    } else {
      side.output.AddWrite(operation);
    }
  }

  // The kernel takes `most` bytes, `at_once` by each call.
  bool Leave(uint32_t from, size_t at_once, size_t most) {
    Side& side = sides_[from];
    if (side.on_the_way.size() - side.arrived > kMostOnTheWay) return true;
    kernel_.at_once = at_once;
    kernel_.left = most;
    const TcpOutput::Result result = side.output.Pump(/*socket=*/-1);
    WEFT_CHECK((result == TcpOutput::Result::kDone) == side.output.empty());
    WEFT_CHECK(result != TcpOutput::Result::kBroken);
    if (side.arrived > 0) side.on_the_way.erase(0, side.arrived);
    side.arrived = 0;
    side.on_the_way += kernel_.taken;
    kernel_.taken.clear();
    return true;
  }

  bool Arrive(uint32_t from, size_t most) {
    Side& sender = sides_[from];
    Side& side = sides_[1 - from];
    while (most > 0 && sender.arrived < sender.on_the_way.size()) {
      const TcpInput::Room room = side.input.MakeRoom();
      const size_t bytes =
          std::min({most, room.bytes(), sender.on_the_way.size() - sender.arrived});
      const char* const at = sender.on_the_way.data() + sender.arrived;
      const size_t placed = std::min(bytes, room.place().iov_len);
      if (placed > 0) std::memcpy(room.place().iov_base, at, placed);
      std::memcpy(room.buffer().iov_base, at + placed, bytes - placed);
      sender.arrived += bytes;
      most -= bytes;
      TcpInput::Received received = side.input.OnReceived(room, bytes);
      while (!received.empty()) {
        if (!Take(side, sender, side.input.Next(&received))) return false;
      }
    }
    return true;
  }
  bool Take(Side& side, Side& sender, TcpInput::Event event) {
    switch (event) {
      case TcpInput::Event::kNone:
        return true;
      case TcpInput::Event::kBatch:
        return Check(sender, side.input.batch()), true;
      case TcpInput::Event::kBatchInCell: {
        Block cell = side.input.TakeCell();
        Check(sender, side.input.batch());
        side.parts.memory.GiveCell(std::move(cell));
        return true;
      }
      case TcpInput::Event::kDone:
      case TcpInput::Event::kRefused:
        return Complete(side, side.input.operation(), event == TcpInput::Event::kDone), true;
      case TcpInput::Event::kBroken:
        WEFT_CHECK(changed_ && !side.input.error().ok());
        return false;
    }
    return false;
  }
  void Check(Side& sender, ByteSpan batch) {
    WEFT_CHECK(!batch.empty() && batch.size() <= kSlotBytes);
    if (changed_) return;
    const auto [bytes, value] = sender.batches.front();
    sender.batches.pop_front();
    WEFT_CHECK(batch.size() == bytes);
    for (const std::byte byte : batch) WEFT_CHECK(byte == value);
  }
  void Complete(Side& side, TcpOperation* operation, bool done) {
    const auto found = std::find(side.outstanding.begin(), side.outstanding.end(), operation);
    WEFT_CHECK(found != side.outstanding.end());
    side.outstanding.erase(found);
    if (done && operation->is_read && !changed_ && side.alone == operation) {
      for (const TcpOperation* record = operation; record != nullptr; record = record->next) {
        WEFT_CHECK(record->local[0] == kRight);
        WEFT_CHECK(record->local[record->remote.length - 1] == kRight);
      }
    }
    side.parts.operations.Give(operation);
  }

  // Its memory is something else's until another is granted, whose key the peer is told.
  bool LoseRegion(uint32_t of) {
    Side& side = sides_[of];
    side.parts.region.reset();
    std::byte& byte = side.parts.granted[input_.U16() % kMemoryBytes];
    byte = kWrong;
    const bool goes_on = Arrive(1 - of, 1 + input_.U8());
    WEFT_CHECK(byte == kWrong);
    byte = kRight;
    side.parts.Grant();
    if (input_.Bit()) side.key = side.parts.region->remote().key;
    return goes_on;
  }

  // A byte changes on the way, or the socket breaks.
  bool Interfere(uint32_t from) {
    Side& side = sides_[from];
    const uint8_t how = input_.U8();
    if (how >= 240) {
      if (side.output.empty()) return true;
      kernel_.error = EPIPE;
      const TcpOutput::Result result = side.output.Pump(/*socket=*/-1);
      kernel_.error = 0;
      WEFT_CHECK(result == TcpOutput::Result::kBroken && side.output.error() == EPIPE);
      return false;
    }
    const size_t left = side.on_the_way.size() - side.arrived;
    if (left == 0) return true;
    // Most likely of a header.
    const size_t at = how < 128 ? how % 48 : input_.U16();
    char& byte = side.on_the_way[side.arrived + at % left];
    byte = static_cast<char>(byte ^ input_.U8());
    changed_ = true;
    return true;
  }

  Side sides_[2];
  LimitedSends& kernel_;
  FuzzInput input_;
  bool changed_ = false;  // on the way
};

}  // namespace
}  // namespace weft

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static auto* const parts = new weft::Parts[2];
  static auto* const kernel = new weft::LimitedSends;
  weft::World(parts, kernel, weft::FuzzInput(data, size)).Run();
  return 0;
}
