// Both sides of leases against a peer that sends any grants in any order, for a fuzzer.
//
// Each byte chooses an event: a message of the peer, mostly with numbers that it was told; a wish
// of this side's user; a revoke; time that goes by. An owner that keeps the rules answers what it
// was asked, so that leases are held, renewed and lost as well; or nearly so.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
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
#include "transport/leases/export_table.h"
#include "transport/leases/grant_message.h"
#include "transport/leases/granted_leases.h"
#include "transport/leases/held_leases.h"

namespace weft {
namespace {

constexpr size_t kBytes = 256;
constexpr int kMostEvents = 300;

class FuzzRegion final : public Region {
 public:
  FuzzRegion(MutableByteSpan memory, int* open)
      : Region(memory, {7, 0, memory.size()}), open_(open) {
    ++*open_;
  }
  ~FuzzRegion() override { --*open_; }

 private:
  int* const open_;
};

struct OnceLease final : Lease {
  ~OnceLease() { WEFT_CHECK(endings == asked); }
  void OnGranted() override {
    WEFT_CHECK(endings < asked && state() == State::kHeld && AreRights(rights()));
    WEFT_CHECK(remote().offset + remote().length >= remote().length);
  }
  void OnEnded(const absl::Status& why) override { WEFT_CHECK(!why.ok() && ++endings <= asked); }
  int asked = 0;
  int endings = 0;
};

struct OnceDerivation final : Derivation {
  ~OnceDerivation() { WEFT_CHECK(endings == asked); }
  void OnDerived(const absl::Status&, const RegionHandle&) override {
    WEFT_CHECK(++endings <= asked);
  }
  int asked = 0;
  int endings = 0;
};

class Connection final : HeldLeases::Host, GrantedLeases::Host {
 public:
  explicit Connection(FuzzInput input) : input_(input) {
    ExportOptions options;
    options.rights = kAllRights;
    for (auto& exported : exports_) exported = table_.Add(memory_, options).value();
  }
  ~Connection() {
    held_.End(absl::UnavailableError("over"));
    granted_.End();
    WEFT_CHECK(regions_open_ == 0);
    for (size_t i = 0; i < exports_.size(); ++i) {
      if (exports_[i]->state() == Export::State::kOpen) exports_[i]->Revoke(0, nullptr);
      CompleteReclaims();
      timers_.Advance(clock_.NowNs() + 2 * kMaxLeaseNs);
      CompleteReclaims();
      WEFT_CHECK(exports_[i]->leases() == 0);
      WEFT_CHECK(exports_[i]->state() == Export::State::kReclaimed);
    }
  }

  void Run() {
    for (int i = 0; i < kMostEvents && input_.more() && !ended_; ++i) {
      switch (input_.Below(10)) {
        case 0:
        case 8:
          User();
          break;
        case 9:
          if (!Answer()) return;
          break;
        case 1:
          clock_.Advance(uint64_t{input_.U8()} * 100'000'000);
          timers_.Advance(clock_.NowNs());
          if (overdue_) held_.EndOverdue();
          overdue_ = false;
          break;
        case 2:
          Owner();
          break;
        default:
          if (!Peer()) return;
      }
      WEFT_CHECK(granted_.open() <= kMaxLeases);
    }
  }

 private:
  // HeldLeases::Host, GrantedLeases::Host
  void SendGrant(const GrantMessage& message) override {
    const GrantBytes encoded = EncodeGrant(message);
    GrantMessage decoded;
    WEFT_CHECK(DecodeGrant(encoded.bytes(), &decoded) && decoded.index() == message.index());
    if (const auto* granted = std::get_if<GrantGranted>(&message)) last_lease_ = granted->lease;
    if (const auto* derived = std::get_if<GrantDerived>(&message)) handle_ = derived->handle;
    if (const auto* asked = std::get_if<GrantResolve>(&message)) asked_.push_back(*asked);
    if (const auto* asked = std::get_if<GrantResolve>(&message)) last_ask_ = asked->ask;
    if (const auto* asked = std::get_if<GrantDerive>(&message)) last_ask_ = asked->ask;
    if (const auto* asked = std::get_if<GrantRenew>(&message)) renewed_ = asked->lease;
    if (const auto* returned = std::get_if<GrantReturn>(&message)) {
      granted_to_us_[SlabHandle::FromPacked(returned->lease).slot % kSlots] = 0;
    }
  }
  void OnLeasesOverdue() override { overdue_ = true; }
  absl::StatusOr<std::unique_ptr<Region>> RegisterLease(MutableByteSpan memory, Access) override {
    WEFT_CHECK(memory.data() >= memory_.data() && !memory.empty());
    WEFT_CHECK(memory.data() + memory.size() <= memory_.data() + memory_.size());
    if (refuses_) return absl::ResourceExhaustedError("locked memory");
    return std::unique_ptr<Region>(std::make_unique<FuzzRegion>(memory, &regions_open_));
  }
  void AllowAtomics(Region*) override {}
  void ForbidAtomics(Region*) override {}
  bool ReclaimLease(std::unique_ptr<Region> region, Operation* op) override {
    region.reset();
    if (pins_) reclaims_.push_back(op);
    return !pins_;
  }
  uint32_t peer_tenant() const override { return kDefaultTenant; }
  uint64_t peer_client() const override { return 1; }
  void EndConnection(std::string_view) override { ended_ = true; }

  void CompleteReclaims() {
    for (Operation* op : std::exchange(reclaims_, {})) op->OnComplete(absl::OkStatus());
  }
  RegionHandle Handle() {
    const uint8_t how = input_.U8();
    if (how < 128) return exports_[how % exports_.size()]->handle();
    if (how < 224) return handle_;
    std::string bytes = handle_.ToBytes();
    bytes[input_.U8() % bytes.size()] ^= static_cast<char>(input_.U8());
    RegionHandle handle;
    WEFT_CHECK(RegionHandle::FromBytes(bytes, &handle));
    return handle;
  }
  uint64_t LeaseId() {
    return input_.Below(4) < 3 ? last_lease_ - input_.Below(4) : input_.Number();
  }
  uint64_t AskId() { return input_.Below(4) < 3 ? last_ask_ - input_.Below(3) : input_.Number(); }
  uint64_t Time() {
    return input_.Below(8) < 7 ? kMinLeaseNs * (1 + input_.Below(60)) : input_.Number();
  }

  // False: it has broken the rules.
  bool Peer() {
    GrantMessage message;
    switch (input_.Below(9)) {
      case 0:
        message = GrantResolve{input_.Number(), Time(), input_.Below(8) / 7, Handle()};
        break;
      case 1:
        message = GrantGranted{AskId(),
                               LeaseId(),
                               Time(),
                               {7, input_.Number(), input_.Number()},
                               static_cast<Rights>(input_.Below(10))};
        break;
      case 2:
        message = GrantRefused{AskId(), static_cast<absl::StatusCode>(input_.Below(18)),
                               input_.Below(3), input_.Text(input_.Below(9))};
        break;
      case 3:
        message = GrantRenew{LeaseId(), Time()};
        break;
      case 4:
        message = GrantRenewed{LeaseId(), Time()};
        break;
      case 5:
        message = GrantReturn{LeaseId()};
        break;
      case 6:
        message = GrantEnded{LeaseId(), static_cast<absl::StatusCode>(input_.Below(18)), Time()};
        break;
      case 7:
        message = GrantDerive{input_.Number(),
                              input_.Number(),
                              input_.Number(),
                              input_.Number(),
                              static_cast<Rights>(input_.Below(10)),
                              Handle()};
        break;
      case 8:
        message = GrantDerived{AskId(), Handle()};
        break;
    }
    return Receive(message);
  }
  bool Receive(const GrantMessage& message) {
    const GrantBytes encoded = EncodeGrant(message);
    std::vector<std::byte> bytes(encoded.bytes().begin(), encoded.bytes().end());
    const uint8_t how = input_.U8();
    if (how == 255) bytes[input_.U8() % bytes.size()] ^= static_cast<std::byte>(input_.U8());
    if (how == 254) bytes.resize(input_.U8());
    GrantMessage received;
    if (!DecodeGrant(bytes, &received)) return true;  // the connection would end; go on
    return std::visit([this](const auto& decoded) { return On(decoded); }, received);
  }
  // What an owner answers that keeps the rules, or breaks one of them. False: it has been seen to.
  bool Answer() {
    const uint8_t how = input_.U8();
    const uint32_t slot = input_.Below(kSlots);
    const uint64_t lease = SlabHandle{slot, generation_ + (how == 255 ? 1 : 0)}.packed();
    switch (how % 6) {
      case 0:
      case 1:
      case 2: {
        if (asked_.empty()) return true;
        const size_t at = how / 8 % asked_.size();
        const GrantResolve asked = asked_[at];
        asked_.erase(asked_.begin() + static_cast<ptrdiff_t>(at));
        GrantGranted granted = {
            asked.ask, lease, asked.lease_ns, {7, 0, asked.handle.length()}, asked.handle.rights()};
        switch (input_.Below(16)) {  // one of these is not as it was asked
          case 12:
            ++granted.lease_ns;
            break;
          case 13:
            --granted.remote.length;
            break;
          case 14:
            granted.rights = kMayRead;
            break;
          case 15:
            granted.lease = SlabHandle{kMaxLeases + slot, 1}.packed();
            break;
          default:
            granted_to_us_[slot] = lease;
            ++generation_;
        }
        return Receive(granted);
      }
      case 3:  // a renewal that was asked for, or not
        return Receive(
            GrantRenewed{input_.Below(8) == 7 ? granted_to_us_[slot] : renewed_, Time()});
      case 4:
        return Receive(GrantEnded{
            granted_to_us_[slot],
            input_.Bit() ? absl::StatusCode::kAborted : absl::StatusCode::kDeadlineExceeded, 0});
      default: {
        constexpr absl::StatusCode kCodes[] = {absl::StatusCode::kPermissionDenied,
                                               absl::StatusCode::kFailedPrecondition,
                                               absl::StatusCode::kResourceExhausted};
        if (asked_.empty()) return true;
        const uint64_t ask = asked_.back().ask;
        asked_.pop_back();
        return Receive(GrantRefused{ask, kCodes[how / 6 % 3], how, input_.Text(input_.Below(9))});
      }
    }
  }
  bool On(const GrantResolve& m) { return granted_.OnResolve(m).ok(); }
  bool On(const GrantDerive& m) { return granted_.OnDerive(m).ok(); }
  bool On(const GrantRenew& m) { return granted_.OnRenew(m), true; }
  bool On(const GrantReturn& m) { return granted_.OnReturn(m), true; }
  bool On(const GrantGranted& m) { return held_.OnGranted(m); }
  bool On(const GrantRefused& m) { return held_.OnRefused(m); }
  bool On(const GrantRenewed& m) { return held_.OnRenewed(m); }
  bool On(const GrantDerived& m) { return held_.OnDerived(m); }
  bool On(const GrantEnded& m) { return held_.OnEnded(m), true; }

  void User() {
    OnceLease& lease = leases_[input_.Below(static_cast<uint32_t>(leases_.size()))];
    const RegionHandle handle = exports_[0]->handle();
    switch (input_.Below(7)) {
      case 4:  // for a time, or of a handle, that is none
        if (lease.state() != Lease::State::kIdle) return;
        WEFT_CHECK(!held_.Resolve(handle, 0, kMaxLeaseNs + 1 + input_.U8(), &lease).ok());
        WEFT_CHECK(!held_.Resolve(RegionHandle(), 0, kMinLeaseNs, &lease).ok());
        WEFT_CHECK(!held_.Derive(handle, 0, 0, kMayRead, 0, &derivation_).ok());
        return;
      case 5:  // as long as there is room for questions
        while (held_.Derive(handle, 0, 8, kMayRead, 0, &derivation_).ok()) ++derivation_.asked;
        return;
      case 6: {  // nobody asks for more than the peer can answer
        if (lease.state() != Lease::State::kHeld) return;
        WEFT_CHECK(!held_.Renew(0, &lease).ok());
        return;
      }
      case 0:
        if (lease.state() != Lease::State::kIdle) return;
        lease.asked += held_.Resolve(handle, 0, kMinLeaseNs * (1 + input_.Below(4)), &lease).ok();
        return;
      case 1:
        if (lease.state() != Lease::State::kHeld) return;
        held_.Renew(kMinLeaseNs * (1 + input_.Below(60)), &lease).IgnoreError();
        return;
      case 2:
        if (lease.state() != Lease::State::kIdle) held_.Return(&lease);
        return;
      case 3:
        derivation_.asked += held_.Derive(handle, 0, 8, kMayRead, 0, &derivation_).ok();
        return;
    }
  }
  void Owner() {
    const uint8_t how = input_.U8();
    if (how >= 248) return exports_[how % 2]->EndHolders();
    switch (how % 4) {
      case 0: {
        Export& exported = *exports_[input_.Below(2)];
        if (exported.state() == Export::State::kOpen) {
          exported.Revoke(uint64_t{input_.U8()} * 100'000'000, nullptr);
        }
        return;
      }
      case 1:
        pins_ = input_.Bit();
        return;
      case 2:
        refuses_ = input_.Bit();
        return;
      case 3:
        return CompleteReclaims();
    }
  }

  FuzzInput input_;
  FakeClock clock_;
  TimerWheel timers_{clock_.NowNs()};
  CounterSet counters_;
  ExportTable table_{&clock_, &timers_, &counters_, 1 << 20};
  std::vector<std::byte> bytes_ = std::vector<std::byte>(kBytes);
  const MutableByteSpan memory_{bytes_};
  std::array<std::unique_ptr<Export>, 2> exports_;
  std::array<OnceLease, 3> leases_;
  OnceDerivation derivation_;
  HeldLeases held_{this, &clock_, &timers_};
  GrantedLeases granted_{this, &table_};
  std::vector<Operation*> reclaims_;
  static constexpr uint32_t kSlots = 4;
  RegionHandle handle_;              // that the peer was given last
  std::vector<GrantResolve> asked_;  // of the peer, and not answered; <= kMaxLeases
  std::array<uint64_t, kSlots> granted_to_us_ = {};
  uint32_t generation_ = 1;  // of the next lease that the peer grants
  uint64_t renewed_ = 0;     // that the peer was asked to renew last
  uint64_t last_lease_ = 0;
  uint64_t last_ask_ = 0;
  int regions_open_ = 0;
  bool pins_ = false;
  bool refuses_ = false;
  bool overdue_ = false;
  bool ended_ = false;
};

}  // namespace
}  // namespace weft

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  weft::Connection(weft::FuzzInput(data, size)).Run();
  return 0;
}
