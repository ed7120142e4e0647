// Writing and reading batches: what each fabric message costs, and each frame in it.
#include <cstring>
#include <vector>

#include "bench/counted.h"
#include "benchmark/benchmark.h"
#include "core/bytes.h"
#include "transport/framing/batch.h"

namespace weft {
namespace {

constexpr size_t kPayloadBytes = 80;  // a call of 64 bytes with its header

std::vector<std::byte> EncodeBatch(std::vector<std::byte> batch, uint16_t frames) {
  BatchHeader header;
  header.frames = frames;
  EncodeBatchHeader(batch.data(), header);
  std::byte* at = batch.data() + kBatchHeaderBytes;
  for (uint16_t i = 0; i < frames; ++i) {
    EncodeFrameHeader(at, kPayloadBytes, FrameKind::kMessage);
    std::memset(at + kFrameHeaderBytes, i, kPayloadBytes);
    at += FrameBytes(kPayloadBytes);
  }
  return batch;
}

size_t BatchBytes(int64_t frames) {
  return kBatchHeaderBytes + static_cast<size_t>(frames) * FrameBytes(kPayloadBytes);
}

void WriteBatch(benchmark::State& state) {
  std::vector<std::byte> batch(BatchBytes(state.range(0)));
  const Counted counted(state);
  for (auto _ : state) {
    batch = EncodeBatch(std::move(batch), static_cast<uint16_t>(state.range(0)));
    benchmark::DoNotOptimize(batch.data());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(WriteBatch)->Arg(1)->Arg(32);

void ReadBatch(benchmark::State& state) {
  const auto frames = static_cast<uint16_t>(state.range(0));
  const std::vector<std::byte> batch =
      EncodeBatch(std::vector<std::byte>(BatchBytes(state.range(0))), frames);
  const Counted counted(state);
  for (auto _ : state) {
    BatchHeader header;
    if (!DecodeBatchHeader(batch, &header)) state.SkipWithError("not a batch");
    BatchReader reader(batch, header.frames);
    Frame frame;
    while (reader.Next(&frame)) benchmark::DoNotOptimize(frame.payload.data());
    if (!reader.complete()) state.SkipWithError("malformed");
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(ReadBatch)->Arg(1)->Arg(32);

}  // namespace
}  // namespace weft
