// Who comes to a listener, and who is put out, for a fuzzer: crowds of hosts with hellos of any
// size, in any order, by a clock that is moved by hand.
//
// Each byte chooses what happens next: some come, say a hello, become clients, leave; or time goes
// by. What is promised holds behind each: so many at most, and who is put out was nobody that had
// to be spared. Sockets are not in this: they are arrivals_fuzz's.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/check.h"
#include "core/clock.h"
#include "core/counters.h"
#include "core/testing/fuzz_input.h"
#include "transport/control/newcomers.h"

namespace weft {
namespace {

constexpr int kMostEvents = 60;
constexpr uint32_t kHosts = 4;       // by name; further ones come once each
constexpr size_t kMostClients = 64;  // more than are put out of anything
constexpr size_t kLargestHello = size_t{256} << 10;

struct Guest final : Newcomer {
  enum class Is : uint8_t { kStranger, kHandshake, kClient, kOut };

  void PutOut() override {
    WEFT_CHECK(is == Is::kStranger || is == Is::kHandshake);
    WEFT_CHECK(is == Is::kHandshake || !waits);
    is = Is::kOut;
  }
  bool tries_path() const override { return tries; }
  bool waits_for_us() const override { return waits; }
  bool is_unread() const override { return !waits; }  // of a stranger

  Is is = Is::kStranger;
  bool tries = false;
  bool waits = false;
};

class Listener {
 public:
  explicit Listener(FuzzInput input) : input_(input) {}
  ~Listener() {
    for (const auto& guest : guests_) newcomers_.Leave(guest.get());
    WEFT_CHECK(!newcomers_.HasHandshakes());
    // All places are free again: as many come as there are.
    std::vector<Guest> last(Newcomers::kPlaces);
    for (Guest& guest : last) {
      newcomers_.AddStranger(&guest, 1, clock_.NowNs());
      WEFT_CHECK(newcomers_.BeginHandshake(&guest, 0, clock_.NowNs()).ok());
      guest.is = Guest::Is::kHandshake;
    }
    for (Guest& guest : last) {
      WEFT_CHECK(guest.is == Guest::Is::kHandshake);
      newcomers_.Leave(&guest);
    }
  }

  void Run() {
    for (int i = 0; i < kMostEvents && input_.more(); ++i) {
      Event();
      std::erase_if(guests_, [this](const auto& guest) {
        if (guest->is == Guest::Is::kOut) newcomers_.Leave(guest.get());  // as it does once more
        return guest->is == Guest::Is::kOut;
      });
      WEFT_CHECK(Count(Guest::Is::kStranger) <= Newcomers::kMaxStrangers);
      WEFT_CHECK(Count(Guest::Is::kHandshake) <= Newcomers::kPlaces + Newcomers::kReserved);
      WEFT_CHECK(newcomers_.HasHandshakes() || Count(Guest::Is::kHandshake) == 0);
    }
  }

 private:
  size_t Count(Guest::Is is) const {
    return static_cast<size_t>(std::count_if(guests_.begin(), guests_.end(),
                                             [is](const auto& guest) { return guest->is == is; }));
  }
  // The one that has been this for longest, or another of them.
  Guest* Any(Guest::Is is, uint8_t which) {
    const size_t count = Count(is);
    if (count == 0) return nullptr;
    size_t left = which % count;
    for (const auto& guest : guests_) {
      if (guest->is == is && left-- == 0) return guest.get();
    }
    return nullptr;
  }
  uint64_t Host(uint8_t which) { return which % 8 < kHosts ? which % 8 : ++hosts_ + kHosts; }

  void Event() {
    const uint8_t event = input_.U8();
    switch (event % 8) {
      case 0:
      case 1: {  // strangers, one or a crowd
        const uint8_t host = input_.U8();
        for (int count = Many(event); count > 0; --count) Come(Host(host), event >= 248);
        return;
      }
      case 2:
      case 3: {  // they say their hello
        const size_t bytes =
            event / 8 % 4 == 3 ? input_.U16() * size_t{8} % kLargestHello : event / 8;
        for (int count = Many(event); count > 0; --count) SayHello(bytes);
        return;
      }
      case 4: {  // and come at once with it
        const uint8_t host = input_.U8();
        for (int count = Many(event); count > 0; --count) {
          if (Come(Host(host), false) != nullptr) SayHello(event);
        }
        return;
      }
      case 5:
        if (Guest* const one = Any(Guest::Is::kHandshake, event / 8)) {
          if (event < 128) {
            one->tries = true;
          } else if (Count(Guest::Is::kClient) < kMostClients) {
            newcomers_.BecomeClient(one);
            one->is = Guest::Is::kClient;
          }
        }
        return;
      case 6: {
        const auto is = static_cast<Guest::Is>(event / 8 % 3);
        Guest* const one = Any(is, input_.U8());
        if (one == nullptr) return;
        newcomers_.Leave(one);
        one->is = Guest::Is::kOut;
        return;
      }
      default:
        clock_.Advance(uint64_t{event / 8u} * Newcomers::kGraceNs / 16);
    }
  }
  int Many(uint8_t event) {
    return event / 8 % 8 == 7 ? 400 : event / 8 % 8 == 6 ? 150 : 1 + event / 8 % 8;
  }
  Guest* Come(uint64_t host, bool waits) {
    if (!newcomers_.MakeRoom(clock_.NowNs())) return nullptr;
    guests_.push_back(std::make_unique<Guest>());
    Guest* const guest = guests_.back().get();
    guest->waits = waits;
    newcomers_.AddStranger(guest, host, clock_.NowNs());
    return guest;
  }
  void SayHello(size_t bytes) {
    const auto stranger = std::find_if(guests_.rbegin(), guests_.rend(), [](const auto& guest) {
      return guest->is == Guest::Is::kStranger;
    });
    if (stranger == guests_.rend()) return;
    const absl::Status status = newcomers_.BeginHandshake(stranger->get(), bytes, clock_.NowNs());
    WEFT_CHECK(status.ok() || absl::IsResourceExhausted(status));
    if (status.ok()) {
      (*stranger)->is = Guest::Is::kHandshake;
      (*stranger)->tries = bytes % 2 == 1;
    } else {
      newcomers_.Leave(stranger->get());
      (*stranger)->is = Guest::Is::kOut;
    }
  }

  FuzzInput input_;
  FakeClock clock_;
  CounterSet counters_;
  Newcomers newcomers_{&counters_};
  std::vector<std::unique_ptr<Guest>> guests_;
  uint64_t hosts_ = 0;  // that have come but once
};

}  // namespace
}  // namespace weft

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  weft::Listener(weft::FuzzInput(data, size)).Run();
  return 0;
}
