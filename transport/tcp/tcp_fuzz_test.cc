// The fuzz target on seeded records: mostly right, here and there wrong.

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/random.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace weft {
namespace {

constexpr uint64_t kSeed = 4711;
constexpr int kRounds = 3'000;

TEST(TcpFuzz, NothingThatAPeerSendsBreaksALinkButItsOwn) {
  Random random(kSeed);
  for (int round = 0; round < kRounds; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << kSeed << ", round " << round);
    std::vector<uint8_t> input(1 + 8 * (1 + random.Uniform(20)));
    for (uint8_t& byte : input) byte = static_cast<uint8_t>(random.Next64());
    for (size_t at = 1; at < input.size(); at += 8) {
      // Kinds that there are, and flags that there are, for most.
      if (random.Uniform(16) != 0) input[at] = static_cast<uint8_t>(1 + random.Uniform(5));
      if (random.Uniform(16) != 0) input[at + 1] &= 1;
      if (random.Uniform(8) != 0) input[at + 2] &= 63;
    }
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
}

}  // namespace
}  // namespace weft
