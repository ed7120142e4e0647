#include "rpc/layout/record.h"

#include <atomic>
#include <thread>

#include "core/check.h"

namespace weft {
namespace {

constexpr size_t kWord = sizeof(uint64_t);

// Attempts of LoadRecord(), each a copy of the record; after the first few the writer may need this
// thread's processor.
constexpr int kLoadTries = 10'000;
constexpr int kLoadTriesAtOnce = 100;

uint64_t WordAt(const std::byte* at) {
  uint64_t word;
  std::memcpy(&word, at, kWord);
  return word;
}

std::atomic_ref<uint64_t> Shared(std::byte* at) {
  return std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(at));
}

}  // namespace

// Each step is a bijection of the sum for a given word and of the word for a given sum, so records
// that differ in one word only never have the same checksum. The factor is 2^64 divided by the
// golden ratio, made odd: it spreads each bit over all above; the shift brings them down again.
uint64_t RecordChecksum(const std::byte* record, size_t bytes) {
  constexpr uint64_t kFactor = 0x9E3779B97F4A7C15;
  uint64_t sum = 0;
  for (size_t at = 0; at < bytes - kWord; at += kWord) {
    sum = (sum ^ WordAt(record + at)) * kFactor;
    sum ^= sum >> 32;
  }
  return sum;
}

bool IsWholeRecord(const std::byte* record, size_t bytes) {
  return WordAt(record) % 2 == 0 && RecordChecksum(record, bytes) == WordAt(record + bytes - kWord);
}

namespace internal {

// For readers of this process (LoadRecord), who check the sequence word alone: each word is stored
// with release, so whoever has seen one of them sees that the sequence is odd, or later.
void PublishRecord(std::byte* shared, std::byte* changed, size_t bytes) {
  const uint64_t sequence = Shared(shared).load(std::memory_order_relaxed);
  WEFT_CHECK(sequence % 2 == 0);  // User: one writer at a time
  const uint64_t next = sequence + 2;
  std::memcpy(changed, &next, kWord);
  const uint64_t checksum = RecordChecksum(changed, bytes);
  std::memcpy(changed + bytes - kWord, &checksum, kWord);
  Shared(shared).store(sequence + 1, std::memory_order_relaxed);
  for (size_t at = kWord; at < bytes; at += kWord) {
    Shared(shared + at).store(WordAt(changed + at), std::memory_order_release);
  }
  Shared(shared).store(next, std::memory_order_release);
}

bool LoadRecord(const std::byte* shared, std::byte* out, size_t bytes) {
  auto* from = const_cast<std::byte*>(shared);  // atomic_ref takes no const; nothing is stored
  for (int i = 0; i < kLoadTries; ++i) {
    const uint64_t before = Shared(from).load(std::memory_order_acquire);
    std::memcpy(out, &before, kWord);
    for (size_t at = kWord; at < bytes; at += kWord) {
      const uint64_t word = Shared(from + at).load(std::memory_order_acquire);
      std::memcpy(out + at, &word, kWord);
    }
    if (before % 2 == 0 && Shared(from).load(std::memory_order_relaxed) == before) return true;
    if (i >= kLoadTriesAtOnce) std::this_thread::yield();
  }
  return false;
}

}  // namespace internal
}  // namespace weft
