// The seed of a randomized test.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>

#include "core/random.h"
#include "core/strings.h"

namespace weft {

// A new seed in every run, or the one in WEFT_TEST_SEED. Put SeedTrace(seed) into a SCOPED_TRACE,
// so that a failure prints how to run it again.
inline uint64_t TestSeed() {
  const char* wanted = std::getenv("WEFT_TEST_SEED");
  return wanted == nullptr ? SecureRandom64() : std::strtoull(wanted, nullptr, 10);
}

inline std::string SeedTrace(uint64_t seed) {
  return StrCat("to replay, run with --test_env=WEFT_TEST_SEED=", seed);
}

}  // namespace weft
