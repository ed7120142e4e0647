#include "transport/record_cipher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace weft {
namespace {

using Role = RecordCipher::Role;
using Bytes = std::vector<std::byte>;

Bytes Hex(std::string_view digits) {
  Bytes bytes;
  for (size_t i = 0; i + 1 < digits.size(); i += 2) {
    bytes.push_back(
        static_cast<std::byte>(std::stoi(std::string(digits.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

const Bytes kZeroIv(RecordCipher::kIvBytes);

// Test cases 2 and 14 of "The Galois/Counter Mode of Operation": a key, a nonce and a block of
// zeros.
TEST(RecordCipherTest, SealsAsTheStandardSays) {
  const struct {
    size_t key_bytes;
    const char* sealed;
    const char* tag;
  } kCases[] = {
      {16, "0388dace60b6a392f328c2b971b2fe78", "ab6e47d42cec13bdf53a67b21257bddf"},
      {32, "cea7403d4d606b6e074ec5d3baf39d18", "d0d1c8a799996bf0265b98b5d48ab919"},
  };
  for (const auto& known : kCases) {
    RecordCipher cipher(Role::kEncrypts);
    cipher.UseKey(Bytes(known.key_bytes), kZeroIv);
    Bytes record(16), tag(RecordCipher::kTagBytes);
    cipher.Begin(0, {});
    cipher.Add(record, record.data());
    cipher.MakeTag(tag.data());
    EXPECT_EQ(record, Hex(known.sealed));
    EXPECT_EQ(tag, Hex(known.tag));
  }
}

TEST(RecordCipherTest, PartsOfAllSizesAreOneRecord) {
  const Bytes key(32, std::byte{7});
  const Bytes iv(RecordCipher::kIvBytes, std::byte{9});
  const Bytes header(5, std::byte{23});
  Bytes plain(5000);
  for (size_t i = 0; i < plain.size(); ++i) plain[i] = static_cast<std::byte>(i * 7);
  RecordCipher seals(Role::kEncrypts), opens(Role::kDecrypts);
  seals.UseKey(key, iv);
  opens.UseKey(key, iv);
  Bytes whole(plain.size()), whole_tag(RecordCipher::kTagBytes);
  seals.Begin(3, header);
  seals.Add(plain, whole.data());
  seals.MakeTag(whole_tag.data());
  for (const size_t step : {1, 15, 16, 17, 33, 1000, 4999}) {
    Bytes in_place = plain, tag(RecordCipher::kTagBytes), opened(plain.size());
    seals.Begin(3, header);
    opens.Begin(3, header);
    for (size_t at = 0; at < plain.size(); at += step) {
      const size_t bytes = std::min(step, plain.size() - at);
      seals.Add(ByteSpan(in_place).subspan(at, bytes), in_place.data() + at);
      opens.Add(ByteSpan(whole).subspan(at, bytes), opened.data() + at);
    }
    seals.MakeTag(tag.data());
    EXPECT_EQ(in_place, whole) << step;
    EXPECT_EQ(tag, whole_tag) << step;
    EXPECT_TRUE(opens.CheckTag(whole_tag)) << step;
    EXPECT_EQ(opened, plain) << step;
  }
}

TEST(RecordCipherTest, AnotherNumberHeaderKeyOrTagDoesNotOpen) {
  const Bytes key(16, std::byte{1}), other_key(16, std::byte{2}), header(5), other_header(6);
  RecordCipher seals(Role::kEncrypts), opens(Role::kDecrypts);
  seals.UseKey(key, kZeroIv);
  opens.UseKey(key, kZeroIv);
  Bytes record(100), tag(RecordCipher::kTagBytes), room(100);
  constexpr uint64_t kNumber = 0x0102030405060708;
  seals.Begin(kNumber, header);
  seals.Add(record, record.data());
  seals.MakeTag(tag.data());
  const auto opens_as = [&](uint64_t number, ByteSpan of_header, ByteSpan of_tag) {
    opens.Begin(number, of_header);
    opens.Add(record, room.data());
    return opens.CheckTag(of_tag);
  };
  EXPECT_TRUE(opens_as(kNumber, header, tag));
  for (int bit = 0; bit < 64; ++bit) EXPECT_FALSE(opens_as(kNumber ^ 1ull << bit, header, tag));
  EXPECT_FALSE(opens_as(kNumber, other_header, tag));
  EXPECT_FALSE(opens_as(kNumber, {}, tag));
  Bytes other_tag = tag;
  other_tag.back() ^= std::byte{1};
  EXPECT_FALSE(opens_as(kNumber, header, other_tag));
  opens.UseKey(other_key, kZeroIv);
  EXPECT_FALSE(opens_as(kNumber, header, tag));
  opens.UseKey(key, kZeroIv);
  EXPECT_TRUE(opens_as(kNumber, header, tag)) << "what did not open leaves nothing behind";
}

}  // namespace
}  // namespace weft
