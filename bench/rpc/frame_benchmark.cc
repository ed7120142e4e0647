// Headers of calls: a few stores and loads each. They must stay that.
#include <array>

#include "bench/counted.h"
#include "benchmark/benchmark.h"
#include "core/bytes.h"
#include "rpc/wire/frame.h"

namespace weft {
namespace {

using HeaderBytes = std::array<std::byte, kCallHeaderBytes>;

void EncodeRequestFrame(benchmark::State& state) {
  HeaderBytes frame;
  RequestHeader header = {{7, 11}, 3, 1'000'000};
  const Counted counted(state);
  for (auto _ : state) {
    benchmark::DoNotOptimize(header);
    EncodeRequest(header, frame.data());
    benchmark::DoNotOptimize(frame);
  }
}
BENCHMARK(EncodeRequestFrame);

void DecodeRequestFrame(benchmark::State& state) {
  HeaderBytes frame;
  EncodeRequest({{7, 11}, 3, 1'000'000}, frame.data());
  ByteSpan body;
  const Counted counted(state);
  for (auto _ : state) {
    benchmark::DoNotOptimize(frame);
    if (CallFrameKindOf(frame) != static_cast<uint16_t>(CallFrameKind::kRequest)) {
      state.SkipWithError("not a request");
    }
    benchmark::DoNotOptimize(DecodeRequest(frame, &body));
  }
}
BENCHMARK(DecodeRequestFrame);

void EncodeReplyFrame(benchmark::State& state) {
  HeaderBytes frame;
  ReplyHeader header = {{7, 11}, 0, 0};
  const Counted counted(state);
  for (auto _ : state) {
    benchmark::DoNotOptimize(header);
    EncodeReply(header, frame.data());
    benchmark::DoNotOptimize(frame);
  }
}
BENCHMARK(EncodeReplyFrame);

void DecodeReplyFrame(benchmark::State& state) {
  HeaderBytes frame;
  EncodeReply({{7, 11}, 0, 0}, frame.data());
  ReplyHeader header;
  ByteSpan body;
  const Counted counted(state);
  for (auto _ : state) {
    benchmark::DoNotOptimize(frame);
    if (CallFrameKindOf(frame) != static_cast<uint16_t>(CallFrameKind::kReply) ||
        !DecodeReply(frame, &header, &body)) {
      state.SkipWithError("not a reply");
    }
    benchmark::DoNotOptimize(header);
  }
}
BENCHMARK(DecodeReplyFrame);

}  // namespace
}  // namespace weft
