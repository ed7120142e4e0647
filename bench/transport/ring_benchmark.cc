// A record through a ring between two processes, here both ends on one thread.
#include <cstddef>
#include <cstring>
#include <memory>
#include <vector>

#include "bench/counted.h"
#include "benchmark/benchmark.h"
#include "core/bytes.h"
#include "core/cache_line.h"
#include "transport/shm/ring_steps.h"

namespace weft {
namespace {

struct alignas(kCacheLineBytes) Ring {
  std::byte bytes[kRingBytes] = {};
  RingWords words = {};
};

void RingRecord(benchmark::State& state) {
  const auto ring = std::make_unique<Ring>();
  RingWriter writer(ring->bytes, &ring->words);
  RingReader reader(ring->bytes, &ring->words, kMaxRecordPayload);
  const std::vector<std::byte> payload(static_cast<size_t>(state.range(0)), std::byte{1});
  alignas(kCacheLineBytes) std::byte copy[kMaxRecordBytes];
  RingReader::Record record;
  const Counted counted(state);
  for (auto _ : state) {
    if (writer.TryWrite(RecordKind::kBatch, payload, /*acked=*/0) != RingWriter::Result::kWritten ||
        !reader.Take(reader.Find(), copy, &record)) {
      state.SkipWithError("the ring is stuck");
    }
    reader.AckConsumed();
    benchmark::DoNotOptimize(record.payload.data());
  }
}
BENCHMARK(RingRecord)->Arg(104)->Arg(1024)->Arg(8192);

}  // namespace
}  // namespace weft
