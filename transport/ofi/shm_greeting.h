// The first message of an shm link, from the active to the passive side: it tells which link the
// active side's endpoint belongs to, or that it is gone again.
//
// Layout, little-endian, 24 bytes: magic:8, kind:8, nonce:8. The magic is a random constant: no
// batch of connections begins like that.
//
// Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/bytes.h"

namespace weft {

enum class GreetingKind : uint64_t { kHello = 1, kGone = 2 };

struct Greeting {
  static constexpr size_t kBytes = 24;

  Greeting(GreetingKind kind, uint64_t nonce) {
    StoreLe64(bytes, kMagic);
    StoreLe64(bytes + 8, static_cast<uint64_t>(kind));
    StoreLe64(bytes + 16, nonce);
  }

  // REQUIRES: batch.size() == kBytes.
  static bool Is(ByteSpan batch) { return LoadLe64(batch.data()) == kMagic; }
  static bool IsHello(ByteSpan batch) {
    return LoadLe64(batch.data() + 8) == static_cast<uint64_t>(GreetingKind::kHello);
  }
  static uint64_t NonceOf(ByteSpan batch) { return LoadLe64(batch.data() + 16); }

  std::byte bytes[kBytes];

 private:
  static constexpr uint64_t kMagic = 0x9c1f'6ae7'50d3'b82b;
};

}  // namespace weft
