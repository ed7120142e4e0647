// What peers may change by atomics, and what requests against the rules are.

#include "transport/framing/requests.h"

#include <array>
#include <memory>
#include <vector>

#include "core/random.h"
#include "core/test_seed.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

// A region whose offsets do not count from 0, as on verbs.
constexpr uint64_t kKey = 0xabcdef;
constexpr uint64_t kBase = 0x7f00'0000'1000;

class TestRegion final : public Region {
 public:
  TestRegion(MutableByteSpan memory, uint64_t key, uint64_t base)
      : Region(memory, {key, base, memory.size()}) {}
};

class RequestsTest : public testing::Test {
 protected:
  RequestsTest() {
    region_ = std::make_unique<TestRegion>(Bytes(), kKey, kBase);
    regions_.Add(region_.get());
    answerer_.Start(&regions_);
  }
  MutableByteSpan Bytes() { return {reinterpret_cast<std::byte*>(words_.data()), 64}; }
  Reply Ask(RequestKind kind, uint64_t key, uint64_t offset, uint64_t operand,
            uint64_t expected = 0) {
    EXPECT_TRUE(answerer_.OnRequest({next_id_++, kind, key, offset, operand, expected}));
    Reply reply;
    EXPECT_TRUE(answerer_.NextReply(&reply));
    answerer_.Replied();
    EXPECT_FALSE(answerer_.has_reply());
    return reply;
  }

  std::array<uint64_t, 8> words_{};
  AtomicRegions regions_;
  std::unique_ptr<Region> region_;
  RequestAnswerer answerer_;
  uint64_t next_id_ = 0;
};

TEST_F(RequestsTest, OffsetsCountFromWhereTheRegionBegins) {
  words_[7] = 5;
  const Reply reply = Ask(RequestKind::kFetchAdd, kKey, kBase + 56, 10);
  EXPECT_EQ(reply.status, ReplyStatus::kDone);
  EXPECT_EQ(reply.before, 5u);
  EXPECT_EQ(words_[7], 15u);
  EXPECT_EQ(Ask(RequestKind::kCompareSwap, kKey, kBase, 9, 0).before, 0u);
  EXPECT_EQ(words_[0], 9u);
}

TEST_F(RequestsTest, NothingOutsideOfARegionIsTouched) {
  for (const uint64_t offset :
       {uint64_t{0}, uint64_t{8}, kBase - 8, kBase - 1, kBase + 57, kBase + 64, kBase + 1,
        ~uint64_t{0}, ~uint64_t{7}, kBase + (uint64_t{1} << 63)}) {
    const Reply reply = Ask(RequestKind::kFetchAdd, kKey, offset, 1);
    EXPECT_EQ(reply.status, ReplyStatus::kNotGranted) << offset;
    EXPECT_EQ(reply.before, 0u);
  }
  EXPECT_EQ(words_, (std::array<uint64_t, 8>{}));
}

// Alignment is that of the address, whatever the offset.
TEST_F(RequestsTest, ARegionThatBeginsAtAnOddAddressHasWordsToo) {
  const TestRegion odd(Bytes().subspan(4), 5, 0);
  regions_.Add(const_cast<TestRegion*>(&odd));
  EXPECT_EQ(Ask(RequestKind::kFetchAdd, 5, 0, 1).status, ReplyStatus::kNotGranted);
  EXPECT_EQ(Ask(RequestKind::kFetchAdd, 5, 4, 1).status, ReplyStatus::kDone);
  EXPECT_EQ(words_[1], 1u);
}

TEST_F(RequestsTest, ARegionOfLessThanAWordHasNone) {
  TestRegion tiny(Bytes().first(7), 6, 0);
  regions_.Add(&tiny);
  EXPECT_EQ(Ask(RequestKind::kFetchAdd, 6, 0, 1).status, ReplyStatus::kNotGranted);
}

TEST_F(RequestsTest, ADestroyedRegionIsForgottenAndItsKeyMayComeBack) {
  region_.reset();
  EXPECT_EQ(Ask(RequestKind::kFetchAdd, kKey, kBase, 1).status, ReplyStatus::kNotGranted);
  region_ = std::make_unique<TestRegion>(Bytes(), kKey, 0);
  regions_.Add(region_.get());
  EXPECT_EQ(Ask(RequestKind::kFetchAdd, kKey, 0, 1).status, ReplyStatus::kDone);
}

TEST_F(RequestsTest, EachOfManyRegionsIsFound) {
  std::vector<std::unique_ptr<TestRegion>> many;
  for (uint64_t key = 1; key <= 1000; ++key) {
    many.push_back(std::make_unique<TestRegion>(Bytes().subspan(8 * (key % 8), 8), key, key * 8));
    regions_.Add(many.back().get());
  }
  for (uint64_t key = 1; key <= 1000; ++key) {
    EXPECT_EQ(Ask(RequestKind::kFetchAdd, key, key * 8, 1).status, ReplyStatus::kDone);
  }
  EXPECT_EQ(words_[3], 125u);
}

TEST_F(RequestsTest, WhatBreaksTheRulesIsFalse) {
  const auto probe = [](uint64_t id) { return Request{id, RequestKind::kProbe, 0, 0, 0, 0}; };
  EXPECT_FALSE(answerer_.OnRequest(probe(1)));
  EXPECT_FALSE(answerer_.OnRequest({0, static_cast<RequestKind>(0), 0, 0, 0, 0}));
  EXPECT_FALSE(answerer_.OnRequest({0, static_cast<RequestKind>(4), 0, 0, 0, 0}));
  for (uint64_t id = 0; id < kMaxRequests; ++id) ASSERT_TRUE(answerer_.OnRequest(probe(id)));
  EXPECT_FALSE(answerer_.OnRequest(probe(kMaxRequests))) << "more than may wait";
}

class CountingOperation final : public Operation {
 public:
  void OnComplete(const absl::Status&) override { ++completions; }
  int completions = 0;
};

TEST(RequestSender, AReplyAnswersTheOldestRequestOrNothing) {
  RequestSender sender;
  sender.Start();
  CountingOperation probe;
  EXPECT_FALSE(sender.OnReply({0, 0, ReplyStatus::kDone}));
  Request request;
  sender.Ask(&request, &probe, nullptr);
  sender.Ask(&request, &probe, nullptr);
  EXPECT_EQ(request.id, 1u);
  EXPECT_FALSE(sender.OnReply({1, 0, ReplyStatus::kDone}));
  EXPECT_FALSE(sender.OnReply({0, 0, static_cast<ReplyStatus>(2)}));
  EXPECT_FALSE(sender.OnReply({0, 0, ReplyStatus::kNotGranted})) << "a probe needs no grant";
  EXPECT_EQ(probe.completions, 0);
  EXPECT_TRUE(sender.OnReply({0, 0, ReplyStatus::kDone}));
  EXPECT_FALSE(sender.OnReply({0, 0, ReplyStatus::kDone}));
  EXPECT_EQ(probe.completions, 1);
  sender.End(absl::UnavailableError("gone"));
  sender.End(absl::UnavailableError("gone"));
  EXPECT_EQ(probe.completions, 2);
}

// Whatever a peer asks: words of the region change, and nothing beside it. (AddressSanitizer
// watches.)
TEST_F(RequestsTest, AnyRequestIsAnsweredOrRefused) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Random random(seed);
  for (int round = 0; round < 100'000; ++round) {
    std::array<std::byte, Request::kBytes> bytes;
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.Next64());
    if (random.Uniform(4) != 0) StoreLe64(&bytes[0], next_id_);
    if (random.Uniform(4) != 0) StoreLe64(&bytes[8], random.Uniform(5));
    if (random.Uniform(4) != 0) StoreLe64(&bytes[16], kKey);
    if (random.Uniform(2) != 0) StoreLe64(&bytes[24], kBase - 64 + random.Uniform(192));
    Request request;
    if (!DecodeRequest(bytes, &request) || !answerer_.OnRequest(request)) continue;
    ++next_id_;
    answerer_.Replied();
  }
  EXPECT_GT(next_id_, 1000u);
}

}  // namespace
}  // namespace weft
