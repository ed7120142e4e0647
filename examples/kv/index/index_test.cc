// The index beside the store that it shows, read as a client reads it.
#include "examples/kv/index/index.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "core/random.h"
#include "core/strings.h"
#include "core/test_seed.h"
#include "examples/kv/index/key_hash.h"
#include "examples/kv/index/lookup.h"
#include "examples/kv/store.h"
#include "weft/remote_array.h"

namespace kv::index {
namespace {

constexpr uint64_t kHashSeed = 42;

struct alignas(64) Line {
  std::byte bytes[64];
};

class IndexTest : public testing::Test {
 protected:
  void Make(uint32_t buckets, size_t heap_bytes) {
    table_.resize(buckets * kBucketBytes / sizeof(Line));
    heap_.resize(heap_bytes / sizeof(Line));
    index_ = std::make_unique<Index>(Bytes(table_), Bytes(heap_), kHashSeed);
  }
  static weft::MutableByteSpan Bytes(std::vector<Line>& lines) {
    return {reinterpret_cast<std::byte*>(lines.data()), lines.size() * sizeof(Line)};
  }

  void Put(std::string_view key, std::string_view value) {
    const FieldView fields[] = {{"", value}};
    const auto created = store_.Replace(key, fields);
    ASSERT_TRUE(created.ok());
    index_->Put(key, *store_.Get(key), !*created);
  }
  void Delete(std::string_view key) {
    if (store_.Delete(key)) index_->Remove(key);
  }

  // As a client: by the bytes of both regions alone.
  Found Read(std::string_view key, std::string* value = nullptr) {
    const uint64_t hash = HashKey(key, kHashSeed);
    const uint32_t number = BucketOf(hash, index_->buckets());
    BucketLayout bucket;
    std::memcpy(&bucket, Bytes(table_).data() + number * kBucketBytes, sizeof(bucket));
    SlotLayout slot;
    const Found found = LookUp(bucket, hash, &slot);
    if (found != Found::kRecord) return found;
    EXPECT_TRUE(InHeap(slot, Bytes(heap_).size()));
    std::string_view block;
    const Found opened = OpenExtent(
        Bytes(heap_).subspan(slot.where * kExtentUnitBytes, slot.length), slot, key, &block);
    if (opened == Found::kRecord && value != nullptr) *value = OnlyField(block);
    return opened;
  }
  static std::string OnlyField(std::string_view block) {
    BlockReader reader(block);
    FieldView field;
    EXPECT_TRUE(reader.Next(&field));
    EXPECT_TRUE(reader.at_end());
    return std::string(field.value);
  }
  std::string Value(std::string_view key) {
    std::string value;
    EXPECT_EQ(Read(key, &value), Found::kRecord) << key;
    return value;
  }

  Store store_;
  std::vector<Line> table_;
  std::vector<Line> heap_;
  std::unique_ptr<Index> index_;
};

TEST_F(IndexTest, ShowsWhatIsPutReplacedAndDeleted) {
  Make(16, 2 * ExtentHeap::kSlabBytes);
  EXPECT_EQ(Read("key"), Found::kAbsent);
  Put("key", "one");
  EXPECT_EQ(Value("key"), "one");
  Put("key", "another one, which is longer than a cache line, so that it needs a larger extent");
  EXPECT_EQ(Value("key"),
            "another one, which is longer than a cache line, so that it needs a larger extent");
  Delete("key");
  EXPECT_EQ(Read("key"), Found::kAbsent);
  EXPECT_EQ(index_->heap_used_bytes(), 0u);
  index_->CheckInvariants();
}

TEST_F(IndexTest, AnOverfullBucketSaysAsk) {
  Make(1, ExtentHeap::kSlabBytes);
  for (uint32_t i = 0; i < kSlots; ++i) Put(weft::StrCat("key", i), "value");
  EXPECT_EQ(Read("absent"), Found::kAbsent);
  Put("one more", "value");
  EXPECT_EQ(Read("one more"), Found::kAsk);
  EXPECT_EQ(Read("absent"), Found::kAsk) << "it may be among those that found no place";
  EXPECT_EQ(Value("key0"), "value") << "what is there needs no asking";
  Delete("one more");
  EXPECT_EQ(Read("absent"), Found::kAbsent);
  index_->CheckInvariants();
}

TEST_F(IndexTest, ARecordThatFindsAPlaceLaterIsShownFromThenOn) {
  Make(1, ExtentHeap::kSlabBytes);
  for (uint32_t i = 0; i <= kSlots; ++i) Put(weft::StrCat("key", i), "value");
  const std::string last = weft::StrCat("key", kSlots);
  EXPECT_EQ(Read(last), Found::kAsk);
  Delete("key0");
  EXPECT_EQ(Read(last), Found::kAsk) << "nobody looks for it";
  Put(last, "written again");
  EXPECT_EQ(Value(last), "written again");
  EXPECT_EQ(Read("key0"), Found::kAbsent);
  EXPECT_EQ(index_->missing(), 0u);
}

TEST_F(IndexTest, AFullHeapSaysAskAndNeverShowsAnOldValue) {
  Make(4, ExtentHeap::kSlabBytes);
  const std::string large(60'000, 'x');
  for (int i = 0; i < 4; ++i) Put(weft::StrCat("key", i), large);
  EXPECT_EQ(index_->missing(), 0u);
  Put("key0", large + "y");
  EXPECT_EQ(Read("key0"), Found::kAsk);
  Put("key0", large + "z");
  EXPECT_EQ(Value("key0"), large + "z") << "the place of its old value is free again";
  index_->CheckInvariants();
}

TEST_F(IndexTest, ARecordThatIsTooLargeSaysAsk) {
  Make(4, 4 * ExtentHeap::kSlabBytes);
  Put("key", std::string(kMaxExtentBytes, 'x'));
  EXPECT_EQ(Read("key"), Found::kAsk);
  Put("key", "small");
  EXPECT_EQ(Value("key"), "small");
}

TEST_F(IndexTest, AnExtentOfAnotherKeyWithTheSameHashIsAskedFor) {
  Make(1, ExtentHeap::kSlabBytes);
  Put("key", "value");
  BucketLayout bucket;
  std::memcpy(&bucket, Bytes(table_).data(), sizeof(bucket));
  SlotLayout slot;
  ASSERT_EQ(LookUp(bucket, HashKey("key", kHashSeed), &slot), Found::kRecord);
  std::string_view block;
  const auto extent = Bytes(heap_).subspan(slot.where * kExtentUnitBytes, slot.length);
  EXPECT_EQ(OpenExtent(extent, slot, "another", &block), Found::kAsk);
}

TEST_F(IndexTest, AReaderWhoRemembersASlotSeesThatTheRecordHasChanged) {
  Make(1, 2 * ExtentHeap::kSlabBytes);  // the two values are of different size classes
  const auto slot_of = [this](std::string_view key) {
    SlotLayout slot;
    EXPECT_EQ(LookUp(*reinterpret_cast<BucketLayout*>(Bytes(table_).data()),
                     HashKey(key, kHashSeed), &slot),
              Found::kRecord);
    return slot;
  };
  const auto open = [this](const SlotLayout& slot) {
    std::string_view block;
    return OpenExtent(Bytes(heap_).subspan(slot.where * kExtentUnitBytes, slot.length), slot, "key",
                      &block);
  };
  Put("key", "first");
  const SlotLayout first = slot_of("key");
  EXPECT_EQ(open(first), Found::kRecord);
  Put("key", "a second one that is longer, and lies elsewhere: nobody uses the first place again");
  EXPECT_EQ(open(first), Found::kStale);
  const SlotLayout second = slot_of("key");
  EXPECT_EQ(open(second), Found::kRecord);
  Delete("key");
  EXPECT_EQ(open(second), Found::kStale);
}

TEST_F(IndexTest, ALateReaderOfAnExtentUsedAgainIsToldSo) {
  Make(1, ExtentHeap::kSlabBytes);
  Put("key", "first value");
  BucketLayout bucket;
  std::memcpy(&bucket, Bytes(table_).data(), sizeof(bucket));
  SlotLayout slot;
  ASSERT_EQ(LookUp(bucket, HashKey("key", kHashSeed), &slot), Found::kRecord);
  Delete("key");
  Put("key", "other value");
  std::string_view block;
  const auto extent = Bytes(heap_).subspan(slot.where * kExtentUnitBytes, slot.length);
  EXPECT_EQ(OpenExtent(extent, slot, "key", &block), Found::kStale);
  EXPECT_EQ(OpenExtent(extent, slot, "key", &block, SelfCheck::kOff), Found::kRecord)
      << "the same place, the same length: without its check nothing would tell";
}

TEST(LookUpTest, HostileSlotsAndExtentsAreRefused) {
  SlotLayout slot;
  EXPECT_FALSE(InHeap(slot, 1 << 20)) << "shorter than a head";
  slot.length = kMaxExtentBytes + 1;
  EXPECT_FALSE(InHeap(slot, 1 << 20));
  slot = SlotLayout();
  slot.where = ~uint32_t{0};
  slot.length = 64;
  EXPECT_FALSE(InHeap(slot, 1 << 20));
  slot.where = (1 << 20) / kExtentUnitBytes - 1;
  EXPECT_TRUE(InHeap(slot, 1 << 20));
  slot.length = 65;
  EXPECT_FALSE(InHeap(slot, 1 << 20));

  // Lengths that overflow.
  ExtentHead head = {1, ~uint32_t{0}, ~uint32_t{0}};
  std::vector<std::byte> extent(64);
  std::memcpy(extent.data(), &head, sizeof(head));
  slot.length = 64;
  std::string_view block;
  EXPECT_EQ(OpenExtent(extent, slot, "", &block, SelfCheck::kOff), Found::kStale);
}

TEST(BlockReaderTest, LengthsThatDoNotFitEndIt) {
  const FieldView fields[] = {{"name", "value"}, {"other", ""}};
  const Record record(fields);
  std::string block(record.block());
  BlockReader good(block);
  FieldView field;
  EXPECT_TRUE(good.Next(&field));
  EXPECT_EQ(field, fields[0]);
  EXPECT_TRUE(good.Next(&field));
  EXPECT_EQ(field, fields[1]);
  EXPECT_FALSE(good.Next(&field));
  EXPECT_TRUE(good.at_end());
  for (size_t length = 1; length < block.size(); ++length) {
    BlockReader cut(std::string_view(block).substr(0, length));
    while (cut.Next(&field)) {
    }
    EXPECT_EQ(cut.at_end(), length == 17) << length;
  }
}

// Every read during every change: any part of the bytes before it with the rest of those after it.
TEST_F(IndexTest, AMixtureOfBeforeAndAfterIsNeverBelieved) {
  Make(1, ExtentHeap::kSlabBytes);
  Put("key", "0");
  for (int change = 1; change <= 20; ++change) {
    BucketLayout before;
    std::memcpy(&before, Bytes(table_).data(), sizeof(before));
    change % 3 == 0 ? Delete("key") : Put("key", weft::StrCat(change));
    BucketLayout after;
    std::memcpy(&after, Bytes(table_).data(), sizeof(after));
    ASSERT_NE(std::memcmp(&before, &after, sizeof(after)), 0);
    for (size_t cut = 4; cut < sizeof(BucketLayout); cut += 4) {
      for (const bool new_first : {false, true}) {
        BucketLayout mixed = new_first ? after : before;
        const BucketLayout& rest = new_first ? before : after;
        std::memcpy(reinterpret_cast<std::byte*>(&mixed) + cut,
                    reinterpret_cast<const std::byte*>(&rest) + cut, sizeof(BucketLayout) - cut);
        const bool whole = std::memcmp(&mixed, &before, sizeof(mixed)) == 0 ||
                           std::memcmp(&mixed, &after, sizeof(mixed)) == 0;
        EXPECT_EQ(weft::IsWholeRecord(reinterpret_cast<const std::byte*>(&mixed), sizeof(mixed)),
                  whole)
            << cut;
      }
    }
  }
}

TEST_F(IndexTest, AgreesWithTheStoreThroughRandomChanges) {
  const uint64_t seed = weft::TestSeed();
  SCOPED_TRACE(weft::SeedTrace(seed));
  weft::Random random(seed);
  Make(64, 4 * ExtentHeap::kSlabBytes);
  int asked = 0;
  for (int i = 0; i < 20'000; ++i) {
    const std::string key = weft::StrCat("key", random.Uniform(500));
    if (random.Chance(0.3)) {
      Delete(key);
    } else {
      Put(key, std::string(random.Uniform(uint64_t{1} << random.Uniform(14)), 'x'));
    }
    const std::string other = weft::StrCat("key", random.Uniform(500));
    const Record* record = store_.Get(other);
    std::string value;
    const Found found = Read(other, &value);
    ASSERT_NE(found, Found::kStale);
    if (found == Found::kAsk) ++asked;
    if (found == Found::kAbsent) {
      ASSERT_EQ(record, nullptr);
    }
    if (found == Found::kRecord) {
      ASSERT_NE(record, nullptr);
      ASSERT_EQ((*record->begin()).value, value);
    }
    if (i % 1000 == 0) index_->CheckInvariants();
  }
  index_->CheckInvariants();
  EXPECT_EQ(index_->records() + index_->missing(), store_.size());
  EXPECT_GT(asked, 0) << "the table is small enough to overflow";
}

}  // namespace
}  // namespace kv::index
