// Random numbers: reproducible ones for simulation and workloads, unpredictable ones for keys.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "core/bytes.h"

namespace weft {

// A small fast generator: xoshiro256** (D. Blackman and S. Vigna, "Scrambled Linear Pseudorandom
// Number Generators", ACM TOMS 47, 2021), its state filled by splitmix64 (G. Steele, D. Lea and
// C. Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014). The same seed gives the
// same numbers on every platform and in every version. Anyone who sees a few numbers can tell the
// next: never for keys or tokens.
//
// Threads:  one thread at a time. For several threads or purposes, Fork() one generator for each.
class Random {
 public:
  using result_type = uint64_t;  // Random is a UniformRandomBitGenerator.

  explicit Random(uint64_t seed);

  // Continues from a state of the generator itself.
  // REQUIRES: not all words are 0.
  explicit Random(const std::array<uint64_t, 4>& state);

  uint64_t Next64() {
    const uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
    const uint64_t shifted = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= shifted;
    state_[3] = std::rotl(state_[3], 45);
    return result;
  }
  uint64_t operator()() { return Next64(); }
  static constexpr uint64_t min() { return 0; }
  static constexpr uint64_t max() { return ~uint64_t{0}; }

  // Uniform in [0, bound), without bias.
  // REQUIRES: bound > 0.
  uint64_t Uniform(uint64_t bound);

  // Uniform in [low, high].
  // REQUIRES: low <= high.
  uint64_t UniformInRange(uint64_t low, uint64_t high);

  // Uniform in [0, 1), a multiple of 2^-53.
  double UniformDouble() { return static_cast<double>(Next64() >> 11) * 0x1.0p-53; }

  // True with the given probability: never for 0, always for 1.
  bool Chance(double probability) { return UniformDouble() < probability; }

  // A generator whose numbers are unrelated to the further ones of this.
  Random Fork() { return Random(Next64()); }

 private:
  std::array<uint64_t, 4> state_;
};

// Numbers that nobody can predict, from the kernel (getrandom(2)). A system call each: for keys,
// never for the hot path. Aborts if the kernel has none to give, because nothing safe can follow.
//
// Threads:  any.
void SecureRandomBytes(MutableByteSpan bytes);
uint64_t SecureRandom64();

}  // namespace weft
