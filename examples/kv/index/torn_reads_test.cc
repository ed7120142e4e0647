// Readers that copy the index out of this process while another thread changes it, as shared memory
// and network cards do: nobody stops the writer, nobody waits for it. What they saw is recorded and
// checked for linearizability.
#include <gtest/gtest.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/strings.h"
#include "examples/kv/index/index.h"
#include "examples/kv/index/key_hash.h"
#include "examples/kv/index/lookup.h"
#include "examples/kv/store.h"
#include "examples/verify/history/checker.h"
#include "examples/verify/history/recorder.h"
#include "weft/remote_array.h"

namespace kv::index {
namespace {

using verify::Before;
using verify::Kind;

constexpr uint64_t kHashSeed = 7;
constexpr uint64_t kKeys = 2;
constexpr uint64_t kWritten = 20'000;
// Values of one length, so that extents are used again at once; long enough to be read torn.
constexpr size_t kValueBytes = 32'000;

struct alignas(64) Line {
  std::byte bytes[64];
};

weft::MutableByteSpan Bytes(std::vector<Line>& lines) {
  return {reinterpret_cast<std::byte*>(lines.data()), lines.size() * sizeof(Line)};
}

std::string KeyName(uint64_t key) { return weft::StrCat("key", key); }

// The number, and its last byte all over: a mixture of two values is seen.
std::string ValueOf(uint64_t number) {
  std::string value(kValueBytes, static_cast<char>(number));
  std::memcpy(value.data(), &number, sizeof(number));
  return value;
}

bool IsWhole(const BucketLayout& bucket) {
  return weft::IsWholeRecord(reinterpret_cast<const std::byte*>(&bucket), sizeof(bucket));
}

// By the kernel, past the language's and the sanitizers' notion of memory.
void CopyOut(const std::byte* from, void* to, size_t bytes) {
  iovec local = {to, bytes};
  iovec remote = {const_cast<std::byte*>(from), bytes};
  ASSERT_EQ(process_vm_readv(getpid(), &local, 1, &remote, 1, 0), static_cast<ssize_t>(bytes));
}

class TornReadsTest : public testing::Test {
 protected:
  void Write() {
    verify::Lane& lane = recorder_.lane(0);
    for (uint64_t i = 0; i < kWritten; ++i) {
      const uint64_t number = ++last_number_;
      const uint64_t key = number % kKeys;
      const bool remove = number % 7 == 0;
      lane.Invoke(remove ? Kind::kDelete : Kind::kPut, key, remove ? verify::kAbsent : number);
      lane.ReturnWrite(remove ? Delete(KeyName(key)) : Put(KeyName(key), ValueOf(number)));
    }
    done_ = true;
  }

  Before Put(const std::string& key, const std::string& value) {
    const FieldView fields[] = {{"", value}};
    const bool created = *store_.Replace(key, fields);
    index_.Put(key, *store_.Get(key), !created);
    return created ? Before::kAbsent : Before::kThere;
  }
  Before Delete(const std::string& key) {
    if (!store_.Delete(key)) return Before::kAbsent;
    index_.Remove(key);
    return Before::kThere;
  }

  void Read(uint32_t number, SelfCheck check) {
    verify::Lane& lane = recorder_.lane(number);
    std::vector<SlotLayout> remembered(kKeys);
    for (uint64_t i = 0; !done_; ++i) {
      lane.Invoke(Kind::kGet, i % kKeys);
      lane.ReturnGet(Get(KeyName(i % kKeys), check, &remembered[i % kKeys]));
    }
  }

  // `remembered`: where the record was the last time, as OneSidedGets does it.
  verify::Value Get(const std::string& key, SelfCheck check, SlotLayout* remembered) {
    const uint64_t hash = HashKey(key, kHashSeed);
    const uint32_t number = BucketOf(hash, index_.buckets());
    while (true) {
      if (check == SelfCheck::kOn && remembered->version != 0) {
        const SlotLayout slot = std::exchange(*remembered, SlotLayout{});
        std::string_view block;
        if (ReadExtent(slot, key, check, &block) == Found::kRecord) {
          *remembered = slot;
          return Number(block);
        }
      }
      BucketLayout bucket;
      CopyOut(Bytes(table_).data() + number * kBucketBytes, &bucket, sizeof(bucket));
      SlotLayout slot;
      if (check == SelfCheck::kOn && !IsWhole(bucket)) continue;
      if (LookUp(bucket, hash, &slot) == Found::kAbsent) return verify::kAbsent;
      if (!InHeap(slot, Bytes(heap_).size())) continue;
      std::string_view block;
      if (ReadExtent(slot, key, check, &block) != Found::kRecord) continue;
      *remembered = slot;
      return Number(block);
    }
  }

  // `block` lies in memory of this thread, until its next one.
  Found ReadExtent(const SlotLayout& slot, const std::string& key, SelfCheck check,
                   std::string_view* block) {
    thread_local std::vector<std::byte> extent;
    extent.resize(slot.length);
    CopyOut(Bytes(heap_).data() + size_t{slot.where} * kExtentUnitBytes, extent.data(),
            extent.size());
    return OpenExtent(extent, slot, key, block, check);
  }

  verify::Value Number(std::string_view block) {
    BlockReader reader(block);
    FieldView field;
    if (!reader.Next(&field) || field.value.size() != kValueBytes) return ++mixed_, 0;
    uint64_t number;
    std::memcpy(&number, field.value.data(), sizeof(number));
    if (field.value != ValueOf(number)) ++mixed_;
    return number;
  }

  void Run(SelfCheck check) {
    done_ = false;
    std::thread first([&] { Read(1, check); });
    std::thread second([&] { Read(2, check); });
    Write();
    first.join();
    second.join();
    index_.CheckInvariants();
  }

  Store store_;
  std::vector<Line> table_ = std::vector<Line>(4 * kBucketBytes / sizeof(Line));
  std::vector<Line> heap_ = std::vector<Line>(ExtentHeap::kSlabBytes / sizeof(Line));
  Index index_{Bytes(table_), Bytes(heap_), kHashSeed};
  verify::Recorder recorder_{weft::Clock::Real(), 3};
  uint64_t last_number_ = 0;
  std::atomic<bool> done_{false};
  std::atomic<uint64_t> mixed_{0};
};

TEST_F(TornReadsTest, ReadersBesideAWriterSeeALinearizableRecord) {
  Run(SelfCheck::kOn);
  EXPECT_EQ(mixed_, 0u);
  const verify::Verdict verdict = verify::CheckHistory(recorder_.Merge());
  EXPECT_TRUE(verdict.ok()) << verdict.text;
  EXPECT_GT(verdict.operations, kWritten);
}

// That the test above can fail: readers that believe whatever they have read are found out. When is
// the scheduler's to say; so there are more rounds than it takes.
TEST_F(TornReadsTest, WithoutTheirCheckReadersAreFoundOut) {
  constexpr int kRounds = 20;
  bool found_out = false;
  for (int round = 0; round < kRounds && !found_out; ++round) {
    Run(SelfCheck::kOff);
    found_out = mixed_ > 0 || !verify::CheckHistory(recorder_.Merge()).ok();
  }
  EXPECT_TRUE(found_out);
}

}  // namespace
}  // namespace kv::index
