#include "core/crc32c.h"

#include <array>
#include <cstdint>
#include <numeric>
#include <string_view>
#include <vector>

#include "core/random.h"
#include "core/test_seed.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

uint32_t CrcOf(const std::vector<uint8_t>& bytes) {
  return Crc32c(std::as_bytes(std::span(bytes)));
}

// One bit after the other, as the polynomial says.
uint32_t BitByBit(ByteSpan bytes) {
  constexpr uint32_t kReversedPolynomial = 0x82F63B78;
  uint32_t crc = ~uint32_t{0};
  for (const std::byte byte : bytes) {
    crc ^= std::to_integer<uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kReversedPolynomial : 0);
  }
  return ~crc;
}

// RFC 3720, B.4.
TEST(Crc32c, AgreesWithTheVectorsOfIscsi) {
  std::vector<uint8_t> bytes(32, 0);
  EXPECT_EQ(CrcOf(bytes), 0x8A9136AAu);
  bytes.assign(32, 0xFF);
  EXPECT_EQ(CrcOf(bytes), 0x62A8AB43u);
  std::iota(bytes.begin(), bytes.end(), uint8_t{0});
  EXPECT_EQ(CrcOf(bytes), 0x46DD794Eu);
  std::iota(bytes.rbegin(), bytes.rend(), uint8_t{0});
  EXPECT_EQ(CrcOf(bytes), 0x113FDB5Cu);
  // An iSCSI SCSI Read (10) command.
  bytes.assign(48, 0);
  bytes[0] = 0x01;
  bytes[1] = 0xC0;
  bytes[16] = 0x14;
  bytes[22] = 0x04;
  bytes[27] = 0x14;
  bytes[31] = 0x18;
  bytes[32] = 0x28;
  bytes[40] = 0x02;
  EXPECT_EQ(CrcOf(bytes), 0xD9963A56u);
}

TEST(Crc32c, TheCheckValueIsThatOfTheCatalogue) {
  EXPECT_EQ(Crc32c(AsBytes("123456789")), 0xE3069283u);
}

TEST(Crc32c, OfNothingIsZero) {
  EXPECT_EQ(Crc32c({}), 0u);
  EXPECT_EQ(Crc32c({}, 0x1234), 0x1234u);
}

TEST(Crc32c, AnyLengthAtAnyAddressCutAnywhereIsTheSame) {
  Random random(TestSeed());
  std::vector<std::byte> bytes(5000);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.Uniform(256));
  for (int round = 0; round < 300; ++round) {
    const size_t from = random.Uniform(64);
    const ByteSpan whole = ByteSpan(bytes).subspan(from, random.Uniform(bytes.size() - from));
    const size_t cut = random.Uniform(whole.size() + 1);
    const uint32_t crc = Crc32c(whole);
    EXPECT_EQ(crc, BitByBit(whole));
    EXPECT_EQ(crc, Crc32c(whole.subspan(cut), Crc32c(whole.first(cut))));
  }
}

}  // namespace
}  // namespace weft
