// The service of bulk payloads, as its tests want it, and memory that notices who writes beside it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <utility>
#include <vector>

#include "rpc/server/server_bulk.h"
#include "rpc/testing/payload_service.weft.h"
#include "transport/local_memory.h"
#include "transport/slice.h"

namespace weft::test {

// `bytes` bytes between canaries.
class GuardedMemory {
 public:
  explicit GuardedMemory(size_t bytes)
      : all_(bytes + 2 * kGuardBytes, kCanary),
        memory_(MutableByteSpan(all_).subspan(kGuardBytes, bytes)) {}

  LocalMemory& memory() { return memory_; }
  MutableByteSpan bytes() { return memory_.bytes(); }
  Slice slice(size_t offset, size_t length) { return {&memory_, offset, length}; }
  Slice all() { return slice(0, bytes().size()); }

  void Fill(uint8_t seed, size_t length) {
    for (size_t i = 0; i < length; ++i) bytes()[i] = PatternAt(seed, i);
  }
  void Fill(uint8_t seed) { Fill(seed, bytes().size()); }
  // Whether it holds what Fill(seed) would write, from `offset` on, in the order from `first` on.
  bool Holds(uint8_t seed, size_t offset, size_t length, size_t first = 0) {
    for (size_t i = 0; i < length; ++i) {
      if (bytes()[offset + i] != PatternAt(seed, first + i)) return false;
    }
    return true;
  }
  bool Holds(uint8_t seed) { return Holds(seed, 0, bytes().size()); }
  bool CanariesLive() const {
    const auto lives = [](std::byte byte) { return byte == kCanary; };
    return std::all_of(all_.begin(), all_.begin() + kGuardBytes, lives) &&
           std::all_of(all_.end() - kGuardBytes, all_.end(), lives);
  }

 private:
  static constexpr size_t kGuardBytes = 4096;
  static constexpr std::byte kCanary{0xC5};

  static std::byte PatternAt(uint8_t seed, size_t i) {
    return static_cast<std::byte>(seed + i * 7 + (i >> 8));
  }

  std::vector<std::byte> all_;
  LocalMemory memory_;
};

class PayloadService : public Payloads::Service {
 public:
  using HeldCall = UnaryCall<Parcel, Parcel>;
  using HeldStream = ServerReaderWriter<Part, Part>;

  explicit PayloadService(size_t bytes) : memory_(bytes) {}

  void StartExchange(HeldCall call) override {
    auto* held = new HeldCall(std::move(call));
    const uint64_t length = held->request().data().length();
    held->context().bulk().Fetch(
        held->request().data(), memory_.all(), [this, held, length](absl::Status fetched) {
          HeldCall call = std::move(*held);
          delete held;
          if (fetched.ok()) {
            call.context().bulk().Push(memory_.slice(0, length), call.reply()->mutable_data(),
                                       nullptr);
          }
          call.Finish(std::move(fetched));
        });
  }
  void StartHold(HeldCall call) override { held.push_back(std::move(call)); }
  void StartCarry(HeldStream stream) override { carried.push_back(std::move(stream)); }

  absl::Status Load(ServerContext& context, const Part& request, Parcel* reply) override {
    if (request.offset() == fail_at) return absl::AbortedError("as the test wants it");
    const uint64_t end = memory_.bytes().size();
    const uint64_t length = std::min(request.length(), end - std::min(end, request.offset()));
    if (length > 0) {
      context.bulk().Push(memory_.slice(request.offset(), length), reply->mutable_data(), nullptr);
    }
    return absl::OkStatus();
  }
  absl::Status Store(ServerContext& context, const Part& request, Parcel*) override {
    if (request.offset() == fail_at) return absl::AbortedError("as the test wants it");
    context.bulk().Fetch(request.data(), memory_.slice(request.offset(), request.data().length()),
                         nullptr);
    return absl::OkStatus();
  }

  GuardedMemory& memory() { return memory_; }

  std::deque<HeldCall> held;
  std::deque<HeldStream> carried;
  uint64_t fail_at = ~uint64_t{0};  // Load and Store of this offset fail

 private:
  GuardedMemory memory_;
};

}  // namespace weft::test
