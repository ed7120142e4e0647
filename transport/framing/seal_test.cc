#include "transport/framing/seal.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace weft {
namespace {

constexpr std::string_view kLabel = "weft 1 client batches";

LinkSecret Counting() {
  LinkSecret secret;
  for (size_t i = 0; i < secret.size(); ++i) secret[i] = static_cast<std::byte>(i);
  return secret;
}

std::string Hex(ByteSpan bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    for (const int shift : {4, 0}) {
      text += "0123456789abcdef"[(static_cast<int>(byte) >> shift) & 15];
    }
  }
  return text;
}

using Bytes = std::vector<std::byte>;

class SealTest : public testing::Test {
 protected:
  static constexpr uint64_t kPerKey = 4;

  // Ciphertext and tag.
  Bytes Encrypt(std::string_view plain, std::string_view header = "header") {
    Bytes record(plain.size() + Seal::kTagBytes);
    out_.Encrypt(AsBytes(header), AsBytes(plain), record.data(), &record[plain.size()]);
    return record;
  }
  // What was sealed; "?": it does not open.
  std::string Decrypt(const Bytes& record, std::string_view header = "header") {
    const size_t bytes = record.size() - Seal::kTagBytes;
    Bytes plain(bytes);
    const ByteSpan all(record);
    const bool opened =
        in_.Decrypt(AsBytes(header), all.first(bytes), all.subspan(bytes), plain.data());
    return opened ? std::string(AsStringView(plain)) : "?";
  }
  bool IsRecordAt(int64_t distance, const Bytes& record) {
    const size_t bytes = record.size() - Seal::kTagBytes;
    Bytes plain(bytes);
    const ByteSpan all(record);
    return in_.IsRecordAt(distance, AsBytes("header"), all.first(bytes), all.subspan(bytes),
                          plain.data());
  }

  const LinkSecret secret_ = Counting();
  Seal out_{Seal::Role::kEncrypts, secret_, kLabel, kPerKey};
  Seal in_{Seal::Role::kDecrypts, secret_, kLabel, kPerKey};
};

// Computed by another implementation: Python's hmac, and AESGCM of its package `cryptography`.
TEST(SealAnswersTest, RecordsAreAsTheWireFormatSays) {
  Seal seal(Seal::Role::kEncrypts, Counting(), kLabel, /*records_per_key=*/2);
  const std::vector<std::pair<std::string_view, std::string_view>> records = {
      {"the first record", "62f1388ea2bce971db28b8099dc3bed05f371f77a129363b6dac2b8b448fc372"},
      {"the second one", "8339102ef7b56c319c5395d63762da171f55fca116ac56eb3c9ff1978230"},
      {"under another key", "bae4460ce6c1ba28662689f404d51b78bb3105928878190cf0330db0b0d8b10c57"}};
  for (const auto& [plain, sealed] : records) {
    const std::string_view header = seal.records() < 2 ? "header" : "";
    Bytes record(plain.size() + Seal::kTagBytes);
    seal.Encrypt(AsBytes(header), AsBytes(plain), record.data(), &record[plain.size()]);
    EXPECT_EQ(Hex(record), sealed);
  }
}

TEST_F(SealTest, RecordsOpenInTheirOrderThroughManyKeys) {
  for (uint64_t i = 0; i < 10 * kPerKey; ++i) {
    const std::string plain(i * 7 % 50, static_cast<char>('a' + i % 26));
    EXPECT_EQ(Decrypt(Encrypt(plain)), plain) << i;
  }
  EXPECT_EQ(in_.records(), 10 * kPerKey);
}

TEST_F(SealTest, RecordsAreSealedAndOpenedInPlace) {
  std::string text = "in its place";
  auto* const data = reinterpret_cast<std::byte*>(text.data());
  std::byte tag[Seal::kTagBytes];
  out_.Encrypt({}, AsBytes(text), data, tag);
  EXPECT_NE(text, "in its place");
  ASSERT_TRUE(in_.Decrypt({}, AsBytes(text), tag, data));
  EXPECT_EQ(text, "in its place");
}

TEST_F(SealTest, NoBitOfARecordOrItsHeaderCanBeChanged) {
  const Bytes record = Encrypt("twelve bytes");
  for (size_t bit = 0; bit < record.size() * 8; ++bit) {
    Bytes changed = record;
    changed[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    EXPECT_EQ(Decrypt(changed), "?") << "bit " << bit;
  }
  for (size_t bit = 0; bit < 6 * 8; ++bit) {
    std::string header = "header";
    header[bit / 8] = static_cast<char>(header[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_EQ(Decrypt(record, header), "?") << "bit " << bit;
  }
  EXPECT_EQ(Decrypt(Bytes(record.begin(), record.end() - 1)), "?") << "shorter";
  EXPECT_EQ(Decrypt(record), "twelve bytes") << "it was no other test's fault";
}

TEST_F(SealTest, WhatComesAgainOrOutOfOrderDoesNotOpen) {
  const Bytes first = Encrypt("first");
  const Bytes second = Encrypt("second");
  EXPECT_EQ(Decrypt(second), "?") << "one is missing";
  EXPECT_EQ(Decrypt(first), "first");
  EXPECT_EQ(Decrypt(first), "?") << "again";
  EXPECT_EQ(Decrypt(second), "second");
}

TEST_F(SealTest, RecordsElsewhereAreKnownUnderTheKeyInUse) {
  std::vector<Bytes> records;
  for (uint64_t i = 0; i < 2 * kPerKey; ++i) records.push_back(Encrypt("some text"));
  for (uint64_t i = 0; i < kPerKey - 1; ++i) ASSERT_EQ(Decrypt(records[i]), "some text");
  EXPECT_TRUE(IsRecordAt(-1, records[kPerKey - 2]));
  EXPECT_TRUE(IsRecordAt(0, records[kPerKey - 1]));
  EXPECT_FALSE(IsRecordAt(-1, records[kPerKey - 1])) << "another place";
  EXPECT_FALSE(IsRecordAt(1, records[kPerKey])) << "the next key's";
  EXPECT_FALSE(IsRecordAt(-1000, records[0])) << "before the first";
  EXPECT_EQ(Decrypt(records[kPerKey - 1]), "some text") << "looking changes nothing";
  EXPECT_FALSE(IsRecordAt(-1, records[kPerKey - 1])) << "its key is gone";
}

TEST_F(SealTest, DirectionsAndUsesHaveKeysOfTheirOwn) {
  ConnectionSeal client(secret_, /*dialled=*/true);
  ConnectionSeal server(secret_, /*dialled=*/false);
  std::byte sealed[4];
  std::byte tag[Seal::kTagBytes];
  std::byte opened[4];
  client.batches_out->Encrypt({}, AsBytes("text"), sealed, tag);
  EXPECT_FALSE(server.large_in.Decrypt({}, sealed, tag, opened));
  EXPECT_FALSE(client.batches_in->Decrypt({}, sealed, tag, opened)) << "it comes back";
  ASSERT_TRUE(server.batches_in->Decrypt({}, sealed, tag, opened));
  EXPECT_EQ(AsStringView(opened), "text");
  client.large_out.Encrypt({}, AsBytes("long"), sealed, tag);
  ASSERT_TRUE(server.large_in.Decrypt({}, sealed, tag, opened));
  server.large_out.Encrypt({}, AsBytes("back"), sealed, tag);
  EXPECT_TRUE(client.large_in.Decrypt({}, sealed, tag, opened));
}

// As over ofi_tcp without security: a connection makes no keys that it does not use.
TEST_F(SealTest, WhereLargeMessagesAloneAreSealedThereAreNoKeysForBatches) {
  ConnectionSeal client(secret_, /*dialled=*/true, /*only_large=*/true);
  ConnectionSeal server(secret_, /*dialled=*/false);
  EXPECT_FALSE(client.batches_out.has_value());
  EXPECT_FALSE(client.batches_in.has_value());
  std::byte sealed[4];
  std::byte tag[Seal::kTagBytes];
  std::byte opened[4];
  client.large_out.Encrypt({}, AsBytes("long"), sealed, tag);
  ASSERT_TRUE(server.large_in.Decrypt({}, sealed, tag, opened)) << "the same keys as ever";
  EXPECT_EQ(AsStringView(opened), "long");
}

}  // namespace
}  // namespace weft
