#include "bench/machine/aead.h"

#include <gtest/gtest.h>

namespace weft::bench {
namespace {

TEST(AeadTest, SealsAgainAndAgain) {
  Aead aead;
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(aead.SealRecord()) << i;
}

}  // namespace
}  // namespace weft::bench
