#include "core/bytes.h"

#include <array>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/random.h"
#include "core/test_seed.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

TEST(LittleEndian, LeastSignificantByteComesFirst) {
  std::array<std::byte, 8> bytes = {};
  StoreLe64(bytes.data(), 0x0807060504030201);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(std::to_integer<int>(bytes[i]), i + 1);
  EXPECT_EQ(LoadLe16(bytes.data()), 0x0201);
  EXPECT_EQ(LoadLe32(bytes.data()), 0x04030201u);
  EXPECT_EQ(LoadLe64(bytes.data()), 0x0807060504030201u);
}

TEST(LittleEndian, AnyAlignmentWorks) {
  std::array<std::byte, 16> bytes = {};
  for (int offset = 0; offset < 8; ++offset) {
    StoreLe64(bytes.data() + offset, 0x1122334455667788);
    EXPECT_EQ(LoadLe64(bytes.data() + offset), 0x1122334455667788u);
    StoreLe32(bytes.data() + offset, 0xA1B2C3D4);
    EXPECT_EQ(LoadLe32(bytes.data() + offset), 0xA1B2C3D4u);
    StoreLe16(bytes.data() + offset, 0xBEEF);
    EXPECT_EQ(LoadLe16(bytes.data() + offset), 0xBEEF);
  }
}

TEST(Bytes, TextAndBytesAreTwoViewsOfTheSame) {
  const std::string text = std::string("a\0b", 3);
  EXPECT_EQ(AsStringView(AsBytes(text)), text);
  EXPECT_EQ(AsBytes(text).size(), 3u);
  EXPECT_EQ(AsStringView(ByteSpan()), "");
}

TEST(AlignUp, RoundsToTheNextMultiple) {
  static_assert(AlignUp(uint32_t{0}, 64) == 0);
  static_assert(AlignUp(uint32_t{1}, 64) == 64);
  static_assert(AlignUp(uint32_t{64}, 64) == 64);
  static_assert(AlignUp(uint64_t{65}, 64) == 128);
  static_assert(AlignUp(std::size_t{7}, 1) == 7);
}

TEST(ByteReader, ReadsFieldsInOrder) {
  ByteReader reader(AsBytes(
      std::string_view("\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0ftail")));
  uint8_t a;
  uint16_t b;
  uint32_t c;
  uint64_t d;
  ASSERT_TRUE(reader.ReadU8(&a) && reader.ReadLe16(&b) && reader.ReadLe32(&c) &&
              reader.ReadLe64(&d));
  EXPECT_EQ(a, 0x01);
  EXPECT_EQ(b, 0x0302);
  EXPECT_EQ(c, 0x07060504u);
  EXPECT_EQ(d, 0x0f0e0d0c0b0a0908u);
  EXPECT_EQ(AsStringView(reader.rest()), "tail");
  ByteSpan view;
  ASSERT_TRUE(reader.Skip(1) && reader.ReadBytes(3, &view));
  EXPECT_EQ(AsStringView(view), "ail");
  EXPECT_EQ(reader.remaining(), 0u);
}

TEST(ByteReader, RefusalLeavesCursorAndResultAlone) {
  ByteReader reader(AsBytes("abc"));
  uint32_t value = 77;
  EXPECT_FALSE(reader.ReadLe32(&value));
  EXPECT_EQ(value, 77u);
  EXPECT_EQ(reader.position(), 0u);
  ByteSpan view;
  EXPECT_FALSE(reader.ReadBytes(4, &view));
  EXPECT_TRUE(view.empty());
  EXPECT_EQ(reader.remaining(), 3u);
}

TEST(ByteReader, HugeLengthDoesNotWrapAround) {
  ByteReader reader(AsBytes("abc"));
  ASSERT_TRUE(reader.Skip(2));
  ByteSpan view;
  EXPECT_FALSE(reader.ReadBytes(std::numeric_limits<std::size_t>::max(), &view));
  EXPECT_FALSE(reader.Skip(std::numeric_limits<std::size_t>::max() - 1));
}

TEST(ByteReader, EmptyInputOnlyGivesEmptyFields) {
  ByteReader reader{ByteSpan()};
  uint8_t byte;
  ByteSpan view;
  EXPECT_FALSE(reader.ReadU8(&byte));
  EXPECT_TRUE(reader.ReadBytes(0, &view));
}

// Whatever stands there in whatever order comes back, and the end is respected to the byte.
TEST(ByteReader, ReadsFieldsOfAllSizesInAnyOrder) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(SeedTrace(seed));
  Random random(seed);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::byte> bytes;
    std::vector<std::pair<int, uint64_t>> fields(random.Uniform(60));
    for (auto& [kind, value] : fields) {
      kind = static_cast<int>(random.Uniform(4));  // of 1 << kind bytes
      value = random.Next64() >> (64 - (8 << kind));
      std::array<std::byte, 8> field;
      StoreLe64(field.data(), value);
      bytes.insert(bytes.end(), field.begin(), field.begin() + (1 << kind));
    }
    ByteReader reader(bytes);
    for (const auto& [kind, value] : fields) {
      uint8_t u8 = 0;
      uint16_t u16 = 0;
      uint32_t u32 = 0;
      uint64_t u64 = 0;
      ASSERT_TRUE(kind == 0   ? reader.ReadU8(&u8)
                  : kind == 1 ? reader.ReadLe16(&u16)
                  : kind == 2 ? reader.ReadLe32(&u32)
                              : reader.ReadLe64(&u64));
      ASSERT_EQ(u8 + u16 + u32 + u64, value);
    }
    EXPECT_EQ(reader.remaining(), 0u);
    uint8_t beyond;
    EXPECT_FALSE(reader.ReadU8(&beyond));
  }
}

}  // namespace
}  // namespace weft
