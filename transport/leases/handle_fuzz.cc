// Handles from a peer, for a fuzzer: any bytes, and good ones with something changed.
//
// What is good is what its owner has minted, byte by byte, for an export that is still there: also
// in the table of another engine that exports alike.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/clock.h"
#include "core/counters.h"
#include "core/testing/fuzz_input.h"
#include "core/timer_wheel.h"
#include "transport/leases/export_table.h"
#include "transport/leases/handle_code.h"
#include "transport/region_handle.h"

namespace weft {
namespace {

constexpr size_t kExportBytes = 4096;
constexpr uint32_t kTenant = 3;
constexpr std::byte kFirstOfKey[] = {std::byte{7}};

// Two exports of one owner, for as long as the process.
struct Owner {
  Owner() {
    ExportOptions options;
    options.rights = kMayRead | kMayWrite;
    options.tenant = kTenant;
    for (auto& exported : exports) exported = table.Add(memory, options).value();
    // One that is gone: its handles are stale for ever.
    auto gone = table.Add(memory, options).value();
    stale = gone->handle();
    WEFT_CHECK(gone->Revoke(0, nullptr));
  }
  FakeClock clock;
  TimerWheel timers{clock.NowNs()};
  CounterSet counters;
  ExportTable table{&clock, &timers, &counters, 1 << 20};
  std::vector<std::byte> bytes = std::vector<std::byte>(kExportBytes);
  const MutableByteSpan memory{bytes};
  std::array<std::unique_ptr<Export>, 2> exports;
  RegionHandle stale;
};

void CheckCode(const HandleCode& code, FuzzInput& input) {
  RegionHandle::Claim claim;
  claim.rights = input.U8();
  claim.slot = input.U32();
  claim.generation = input.U32();
  claim.tenant = input.U32();
  claim.offset = input.U64();
  claim.length = input.U64();
  claim.expires_ns = input.U64();
  const RegionHandle minted = code.Mint(claim);
  WEFT_CHECK(code.Verify(minted));
  const RegionHandle::Claim read = minted.claim();
  WEFT_CHECK(read.rights == claim.rights && read.slot == claim.slot &&
             read.generation == claim.generation && read.tenant == claim.tenant &&
             read.offset == claim.offset && read.length == claim.length &&
             read.expires_ns == claim.expires_ns);
  std::string changed = minted.ToBytes();
  const uint8_t with = input.U8();
  changed[input.U8() % changed.size()] ^= static_cast<char>(with);
  RegionHandle other;
  WEFT_CHECK(RegionHandle::FromBytes(changed, &other));
  WEFT_CHECK(code.Verify(other) == (with == 0));
}

// Whatever is found lies in its export, and within its rights.
void Look(Owner& owner, const RegionHandle& handle, uint32_t tenant) {
  const TableExport* const found = owner.table.Find(handle, tenant);
  if (found == nullptr) return;
  const RegionHandle::Claim claim = handle.claim();
  WEFT_CHECK(owner.table.code().Verify(handle) && tenant == claim.tenant);
  WEFT_CHECK(claim.offset <= kExportBytes && claim.length <= kExportBytes - claim.offset);
  WEFT_CHECK(claim.length > 0 && AreRights(claim.rights));
  WEFT_CHECK((claim.rights & ~(kMayRead | kMayWrite)) == 0);
  WEFT_CHECK(claim.expires_ns > owner.clock.NowNs());
}

// Another engine of the process, which exports of its own, and alike what two others export. What
// it refuses is as it was.
class Joined {
 public:
  Joined(Owner* first, FuzzInput input) : first_(*first), input_(input) {}
  ~Joined() {
    for (const auto& exported : exports_) WEFT_CHECK(exported->Revoke(0, nullptr));
  }

  void Run() {
    for (int i = 0; i < kMostEvents && input_.more(); ++i) {
      Event();
      uint64_t bytes = 0;
      for (const auto& exported : exports_) bytes += exported->memory().size();
      WEFT_CHECK(bytes <= kMostBytes);
    }
  }

 private:
  static constexpr int kMostEvents = 40;
  static constexpr uint64_t kMostBytes = 6 * kExportBytes;

  void Event() {
    const uint8_t event = input_.U8();
    Export& first = *first_.exports[event / 8 % 2];
    switch (event % 8) {
      case 0:
        return Add();
      case 1:
        return AddAlike(first_.table.OriginOf(first));
      case 2: {  // whose origin is not as it was told
        ExportOrigin origin = first_.table.OriginOf(first);
        if (event < 64) origin.code = nullptr;
        if (event >= 64) origin.handle = Changed(origin.handle);
        return AddAlike(origin);
      }
      case 3: {
        static ExportTable* const third_table =
            new ExportTable(&first_.clock, &first_.timers, &first_.counters, 1 << 20);
        static const auto* const third = new auto(third_table->Add(first_.memory, Right()).value());
        return AddAlike(third_table->OriginOf(**third));
      }
      case 4:
        if (exports_.empty()) return;
        WEFT_CHECK(exports_[event / 8 % exports_.size()]->Revoke(0, nullptr));
        exports_.erase(exports_.begin() + event / 8 % static_cast<ptrdiff_t>(exports_.size()));
        return;
      case 5:
        return Look(event < 128 ? first.handle() : Changed(first.handle()));
      case 6:
        if (exports_.empty()) return;
        return Look(exports_[event / 8 % exports_.size()]->handle());
      default: {
        RegionHandle handle;
        if (RegionHandle::FromBytes(input_.Text(RegionHandle::kBytes), &handle)) Look(handle);
      }
    }
  }
  static ExportOptions Right() {
    ExportOptions options;
    options.rights = kMayRead | kMayWrite;
    options.tenant = kTenant;
    return options;
  }
  RegionHandle Changed(const RegionHandle& handle) {
    std::string bytes = handle.ToBytes();
    bytes[input_.U8() % bytes.size()] ^= static_cast<char>(input_.U8());
    RegionHandle changed;
    WEFT_CHECK(RegionHandle::FromBytes(bytes, &changed));
    return changed;
  }
  void Add() {
    ExportOptions options = Right();
    const uint8_t how = input_.U8();
    if (how % 8 == 1) options.rights = static_cast<Rights>(input_.U8());
    if (how % 8 == 2) options.layout_name.assign(input_.U16(), 'l');
    if (how % 8 == 3) options.max_lease_ns = input_.Number();
    const size_t bytes = how < 128 ? kExportBytes : input_.U16() % (kExportBytes + 1);
    absl::StatusOr<std::unique_ptr<Export>> added = table_.Add(first_.memory.first(bytes), options);
    if (!added.ok()) return;
    WEFT_CHECK(bytes > 0 && AreRights(options.rights));
    exports_.push_back(*std::move(added));
  }
  void AddAlike(const ExportOrigin& origin) {
    const bool is_right = origin.code != nullptr && origin.code->Verify(origin.handle);
    absl::StatusOr<std::unique_ptr<Export>> added = table_.AddAlike(origin, first_.memory, Right());
    WEFT_CHECK(is_right || !added.ok());
    if (!added.ok()) return;
    WEFT_CHECK((*added)->handle() == origin.handle);
    WEFT_CHECK(table_.Find(origin.handle, kTenant) == added->get());
    exports_.push_back(*std::move(added));
  }
  // Only what is exported here is found here.
  void Look(const RegionHandle& handle) {
    const TableExport* const found = table_.Find(handle, kTenant);
    if (found == nullptr) return;
    size_t count = 0;
    for (const auto& exported : exports_) count += exported.get() == found;
    WEFT_CHECK(count == 1 && table_.code(*found).Verify(handle));
  }

  Owner& first_;
  FuzzInput input_;
  CounterSet counters_;
  ExportTable table_{&first_.clock, &first_.timers, &counters_, kMostBytes};
  std::vector<std::unique_ptr<Export>> exports_;
};

}  // namespace
}  // namespace weft

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using weft::RegionHandle;
  static auto* const owner = new weft::Owner;
  static const auto* const code = new weft::HandleCode(weft::HandleCode::Key(weft::kFirstOfKey));
  weft::FuzzInput input(data, size);
  RegionHandle handle;
  const uint8_t how = input.U8();
  if (how >= 248) {
    weft::Joined(owner, input).Run();
    return 0;
  }
  switch (how % 4) {
    case 0:
      weft::CheckCode(*code, input);
      break;
    case 1: {  // any bytes
      const std::string bytes(weft::AsStringView(input.Rest()));
      if (!RegionHandle::FromBytes(bytes, &handle)) break;
      weft::Look(*owner, handle, weft::kTenant);
      WEFT_CHECK(!code->Verify(handle) || code->Mint(handle.claim()) == handle);
      break;
    }
    case 2: {  // what the owner signs, true or not
      RegionHandle::Claim claim = owner->exports[input.Below(2)]->handle().claim();
      if (input.Bit()) claim = owner->stale.claim();
      claim.rights = input.Bit() ? input.U8() : claim.rights;
      claim.slot += input.U8() / 128;
      claim.generation += input.U8() / 128;
      claim.offset = input.Number();
      claim.length = input.Number();
      claim.expires_ns = input.Number();
      weft::Look(*owner, owner->table.code().Mint(claim), input.Below(5));
      break;
    }
    case 3: {  // what a holder may ask for of an export
      const uint64_t offset = input.Number();
      const uint64_t length = input.Number();
      const auto rights = static_cast<weft::Rights>(input.U8() % 8);
      const auto part =
          owner->exports[0]->Derive(offset, length, rights, weft::kTenant, input.Number());
      if (!part.ok()) break;
      WEFT_CHECK(owner->table.Find(*part, weft::kTenant) != nullptr);
      WEFT_CHECK(owner->table.Find(*part, weft::kTenant + 1) == nullptr);
      weft::Look(*owner, *part, weft::kTenant);
      break;
    }
  }
  return 0;
}
