#include "transport/framing/batch.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/random.h"
#include "core/test_seed.h"

namespace weft {
namespace {

std::vector<std::byte> Bytes(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

// The example of docs/wire_format.md.
TEST(Batch, LooksAsDocumented) {
  std::vector<std::byte> batch(kBatchHeaderBytes + FrameBytes(2));
  EncodeBatchHeader(batch.data(), {3, 0x11223344, 2, 1, 1});
  EncodeFrameHeader(&batch[16], 2, FrameKind::kMessage);
  batch[24] = std::byte{'h'};
  batch[25] = std::byte{'i'};
  EXPECT_EQ(batch, Bytes({3, 0, 0, 0, 0x44, 0x33, 0x22, 0x11, 2,   0,   1, 0, 1, 0, 0, 0,  //
                          2, 0, 0, 0, 1,    0,    0,    0,    'h', 'i', 0, 0, 0, 0, 0, 0}));
}

TEST(Batch, SizesCountHeaderAndPadding) {
  EXPECT_EQ(FrameBytes(0), 8u);
  EXPECT_EQ(FrameBytes(1), 16u);
  EXPECT_EQ(FrameBytes(8), 16u);
  EXPECT_EQ(FrameBytes(9), 24u);
  for (size_t batch_bytes : {256, 257, 263, 264, 8192}) {
    const size_t most = MaxPayloadBytes(batch_bytes);
    EXPECT_LE(kBatchHeaderBytes + FrameBytes(most), batch_bytes);
    EXPECT_GT(kBatchHeaderBytes + FrameBytes(most + 1), batch_bytes);
  }
}

TEST(Batch, WhatIsWrittenIsRead) {
  BatchHeader header;
  std::vector<std::byte> bytes(kBatchHeaderBytes);
  EncodeBatchHeader(bytes.data(), {0xfffffffe, 0x80000001, 0xffff, 0xfffe, 0x12345678});
  ASSERT_TRUE(DecodeBatchHeader(bytes, &header));
  EXPECT_EQ(header.connection, 0xfffffffe);
  EXPECT_EQ(header.token, 0x80000001);
  EXPECT_EQ(header.credits, 0xffff);
  EXPECT_EQ(header.frames, 0xfffe);
  EXPECT_EQ(header.sequence, 0x12345678u);

  bytes.resize(LargeOffer::kBytes);
  EncodeLargeOffer(bytes.data(), {1, ~uint64_t{1}, 3, 4});
  LargeOffer offer;
  ASSERT_TRUE(DecodeLargeOffer(bytes, &offer));
  EXPECT_EQ(offer.id, 1u);
  EXPECT_EQ(offer.key, ~uint64_t{1});
  EXPECT_EQ(offer.offset, 3u);
  EXPECT_EQ(offer.length, 4u);

  bytes.resize(LargeDone::kBytes);
  EncodeLargeDone(bytes.data(), {5, 6});
  LargeDone done;
  ASSERT_TRUE(DecodeLargeDone(bytes, &done));
  EXPECT_EQ(done.id, 5u);
  EXPECT_EQ(done.status, 6u);
  bytes[12] = std::byte{1};
  EXPECT_FALSE(DecodeLargeDone(bytes, &done)) << "reserved bytes";
}

// Whatever a peer sends: frames lie inside of the batch, one after the other, and `complete` means
// that they fill it. (AddressSanitizer watches: the bytes have exactly their size.)
TEST(Batch, AnyBytesYieldFramesInsideOfThem) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(SeedTrace(seed));
  Random random(seed);
  int complete = 0;
  for (int round = 0; round < 200'000; ++round) {
    std::vector<std::byte> batch(random.Uniform(120));
    for (std::byte& byte : batch) {
      // Mostly small numbers, so that headers make sense often.
      byte = static_cast<std::byte>(random.Chance(0.7) ? 0 : random.Uniform(32));
    }
    BatchHeader header;
    if (!DecodeBatchHeader(batch, &header)) {
      EXPECT_LT(batch.size(), kBatchHeaderBytes);
      continue;
    }
    BatchReader reader(batch, header.frames);
    const std::byte* next = batch.data() + kBatchHeaderBytes;
    Frame frame;
    int frames = 0;
    for (; reader.Next(&frame); ++frames) {
      ASSERT_EQ(frame.payload.data(), next + kFrameHeaderBytes);
      next += FrameBytes(frame.payload.size());
      ASSERT_LE(next, batch.data() + batch.size());
    }
    if (!reader.complete()) continue;
    ++complete;
    ASSERT_EQ(frames, header.frames);
    ASSERT_EQ(next, batch.data() + batch.size());
  }
  EXPECT_GT(complete, 100) << "the test does not reach what it tests";
}

}  // namespace
}  // namespace weft
