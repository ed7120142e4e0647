// Streams of chunks, on a simulated network.
#include "rpc/client/bulk_stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "rpc/testing/payload_test.h"

namespace weft::test {
namespace {

constexpr size_t kChunk = 1000;
constexpr uint32_t kSlots = 3;

class BulkStreamTest : public PayloadTest {
 protected:
  BulkStreamTest() : ring_(kSlots * kChunk) {
    Start();
    service_.memory().Fill(1);
    stream_.emplace(*channel_, ring_.all(), kSlots);
  }
  ~BulkStreamTest() override {
    stream_.reset();
    EXPECT_TRUE(ring_.CanariesLive());
  }

  // Starts the call of a chunk, as programs do.
  BulkStream::StartChunk Loads() {
    return [this](BulkChunk& chunk, BulkChunk::Done done) {
      ++under_way_;
      most_under_way_ = std::max(most_under_way_, under_way_);
      Part request;
      request.set_offset(chunk.offset);
      request.set_length(chunk.memory.length);
      chunk.bulk.Receive(chunk.memory);
      stub_->Load(request, &replies_[chunk.slot], {.timeout_us = timeout_us_, .bulk = &chunk.bulk},
                  [this, &chunk, done = std::move(done)](absl::Status status) mutable {
                    --under_way_;
                    if (!status.ok()) return done(std::move(status));
                    const auto payload = chunk.bulk.Received(replies_[chunk.slot].data());
                    if (!payload.ok()) return done(payload.status());
                    done(payload->size());
                  });
    };
  }
  BulkStream::StartChunk Stores() {
    return [this](BulkChunk& chunk, BulkChunk::Done done) {
      Part request;
      request.set_offset(chunk.offset);
      chunk.bulk.Send(chunk.memory, request.mutable_data());
      stub_->Store(request, &replies_[chunk.slot], {.bulk = &chunk.bulk},
                   [length = chunk.memory.length,
                    done = std::move(done)](const absl::Status& status) mutable {
                     if (!status.ok()) return done(status);
                     done(length);
                   });
    };
  }
  BulkStream::Consume Keep() {
    return [this](uint64_t offset, ByteSpan bytes) {
      EXPECT_EQ(offset, kept_.size()) << "in order, without gaps";
      kept_.insert(kept_.end(), bytes.begin(), bytes.end());
      return absl::OkStatus();
    };
  }
  bool KeptIsTheServers(uint64_t bytes) {
    return kept_.size() == bytes &&
           std::equal(kept_.begin(), kept_.end(), service_.memory().bytes().begin());
  }

  GuardedMemory ring_;
  std::optional<BulkStream> stream_;
  Parcel replies_[kSlots];
  std::vector<std::byte> kept_;
  uint64_t timeout_us_ = 0;
  uint32_t under_way_ = 0;
  uint32_t most_under_way_ = 0;
};

TEST_F(BulkStreamTest, ManyChunksPassThroughFewSlotsInOrder) {
  EXPECT_EQ(stream_->chunk_bytes(), kChunk);
  const BulkStreamResult result = stream_->Receive(50 * kChunk + 1, Loads(), Keep());
  EXPECT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.good_bytes, 50 * kChunk + 1);
  EXPECT_TRUE(KeptIsTheServers(50 * kChunk + 1));
  EXPECT_EQ(most_under_way_, kSlots) << "several at once, and no more";
}

TEST_F(BulkStreamTest, StreamsOfEveryLengthAreWhole) {
  for (uint64_t length : {0, 1, 999, 1000, 1001, 2999, 3000, 3001, 4000}) {
    kept_.clear();
    const BulkStreamResult result = stream_->Receive(length, Loads(), Keep());
    EXPECT_TRUE(result.status.ok()) << result.status;
    EXPECT_EQ(result.good_bytes, length);
    EXPECT_TRUE(KeptIsTheServers(length)) << length;
  }
}

TEST_F(BulkStreamTest, AShortChunkEndsAStreamOfUnknownLength) {
  const uint64_t all = service_.memory().bytes().size();
  const BulkStreamResult result = stream_->Receive(BulkStream::kUnknownLength, Loads(), Keep());
  EXPECT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.good_bytes, all);
  EXPECT_TRUE(KeptIsTheServers(all));
}

TEST_F(BulkStreamTest, TheFirstErrorOfAChunkEndsTheStreamAndSaysWhatIsGood) {
  service_.fail_at = 7 * kChunk;
  const BulkStreamResult result = stream_->Receive(20 * kChunk, Loads(), Keep());
  EXPECT_TRUE(absl::IsAborted(result.status)) << result.status;
  EXPECT_EQ(result.good_bytes, 7 * kChunk);
  EXPECT_TRUE(KeptIsTheServers(7 * kChunk));
  EXPECT_EQ(under_way_, 0u) << "nothing is left behind";

  // The same object serves the next stream.
  service_.fail_at = ~uint64_t{0};
  kept_.clear();
  EXPECT_TRUE(stream_->Receive(5 * kChunk, Loads(), Keep()).status.ok());
  EXPECT_TRUE(KeptIsTheServers(5 * kChunk));
}

TEST_F(BulkStreamTest, AnErrorOfTheConsumerEndsTheStream) {
  const BulkStreamResult result =
      stream_->Receive(20 * kChunk, Loads(), [](uint64_t offset, ByteSpan) {
        return offset < 4 * kChunk ? absl::OkStatus() : absl::ResourceExhaustedError("disk full");
      });
  EXPECT_TRUE(absl::IsResourceExhausted(result.status)) << result.status;
  EXPECT_EQ(result.good_bytes, 4 * kChunk);
  EXPECT_EQ(under_way_, 0u);
}

TEST_F(BulkStreamTest, AServerThatDiesEndsTheStreamAndGivesTheRingBack) {
  bool killed = false;
  const BulkStreamResult result =
      stream_->Receive(20 * kChunk, Loads(), [&](uint64_t offset, ByteSpan) {
        if (offset == 5 * kChunk && !killed) network_.Kill("server");
        killed = killed || offset == 5 * kChunk;
        return absl::OkStatus();
      });
  EXPECT_TRUE(absl::IsUnavailable(result.status)) << result.status;
  EXPECT_GE(result.good_bytes, 6 * kChunk);
  stream_.reset();
  ring_.Fill(9);
  network_.RunFor(kNsPerSec);
  EXPECT_TRUE(ring_.Holds(9));
}

TEST_F(BulkStreamTest, ChunksThatLieAboutTheirLengthAreDataLoss) {
  const BulkStreamResult result = stream_->Receive(
      2 * kChunk, [&](BulkChunk& chunk, BulkChunk::Done done) { done(chunk.memory.length + 1); },
      Keep());
  EXPECT_TRUE(absl::IsDataLoss(result.status)) << result.status;
  EXPECT_EQ(result.good_bytes, 0u);
}

TEST_F(BulkStreamTest, WhatIsProducedArrivesWhole) {
  for (uint64_t length : {0, 1, 1000, 2999, 3000, 25'500}) {
    GuardedMemory source(length);
    source.Fill(static_cast<uint8_t>(length));
    const BulkStreamResult result =
        stream_->Send(Stores(), [&](uint64_t offset, MutableByteSpan into) {
          const size_t bytes = std::min<size_t>(into.size(), length - offset);
          std::copy_n(source.bytes().begin() + offset, bytes, into.begin());
          return bytes;
        });
    EXPECT_TRUE(result.status.ok()) << result.status;
    EXPECT_EQ(result.good_bytes, length);
    EXPECT_TRUE(service_.memory().Holds(static_cast<uint8_t>(length), 0, length)) << length;
  }
}

TEST_F(BulkStreamTest, TheFirstErrorOfAStoreSaysWhatIsGood) {
  service_.fail_at = 6 * kChunk;
  const BulkStreamResult result =
      stream_->Send(Stores(), [](uint64_t, MutableByteSpan into) { return into.size(); });
  EXPECT_TRUE(absl::IsAborted(result.status)) << result.status;
  EXPECT_EQ(result.good_bytes, 6 * kChunk);
}

TEST_F(BulkStreamTest, AnErrorOfTheProducerComesAfterWhatItHadProduced) {
  const BulkStreamResult result =
      stream_->Send(Stores(), [](uint64_t offset, MutableByteSpan into) -> absl::StatusOr<size_t> {
        if (offset >= 5 * kChunk) return absl::NotFoundError("the disk is gone");
        return into.size();
      });
  EXPECT_TRUE(absl::IsNotFound(result.status)) << result.status;
  EXPECT_EQ(result.good_bytes, 5 * kChunk);
}

}  // namespace
}  // namespace weft::test
