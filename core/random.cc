#include "core/random.h"

#include <sys/random.h>

#include <cerrno>

#include "core/check.h"

namespace weft {
namespace {

uint64_t SplitMix64(uint64_t* state) {
  uint64_t z = *state += 0x9E3779B97F4A7C15;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

__extension__ using Uint128 = unsigned __int128;

}  // namespace

Random::Random(uint64_t seed) {
  for (uint64_t& word : state_) word = SplitMix64(&seed);
}

Random::Random(const std::array<uint64_t, 4>& state) : state_(state) {
  WEFT_CHECK(state != (std::array<uint64_t, 4>{}));  // User: a test, of published numbers
}

// D. Lemire, "Fast Random Integer Generation in an Interval", ACM TOMACS 29, 2019.
uint64_t Random::Uniform(uint64_t bound) {
  WEFT_DCHECK(bound > 0);  // Ours: a number of places, of which there is one
  Uint128 product = Uint128{Next64()} * bound;
  if (static_cast<uint64_t>(product) < bound) {
    const uint64_t unfair = -bound % bound;
    while (static_cast<uint64_t>(product) < unfair) product = Uint128{Next64()} * bound;
  }
  return static_cast<uint64_t>(product >> 64);
}

uint64_t Random::UniformInRange(uint64_t low, uint64_t high) {
  WEFT_DCHECK(low <= high);  // Ours: bounds that were put in order
  const uint64_t width = high - low + 1;
  return width == 0 ? Next64() : low + Uniform(width);  // 0: all 2^64 values
}

void SecureRandomBytes(MutableByteSpan bytes) {
  while (!bytes.empty()) {
    const ssize_t filled = getrandom(bytes.data(), bytes.size(), 0);
    // System: has random numbers; without them nothing is secret
    WEFT_CHECK(filled > 0 || errno == EINTR);
    if (filled > 0) bytes = bytes.subspan(static_cast<std::size_t>(filled));
  }
}

uint64_t SecureRandom64() {
  uint64_t value;
  SecureRandomBytes(std::as_writable_bytes(std::span(&value, 1)));
  return value;
}

}  // namespace weft
