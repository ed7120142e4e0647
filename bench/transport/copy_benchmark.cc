// One-sided access to a peer's memory over shm: what one copy costs, mapped and by system call.
// (The peer is this process: both have the memory in their caches.)
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <vector>

#include "benchmark/benchmark.h"
#include "transport/mapped_memory.h"
#include "transport/shm/old_mappings.h"
#include "transport/shm/shm_regions.h"

namespace weft {
namespace {

constexpr size_t kBytes = size_t{4} << 20;

void Copy(benchmark::State& state, bool is_read, const CopyWays& ways) {
  void* const shared =
      mmap(nullptr, RegionTable::kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  const auto pins = std::make_unique<SharedRegionPins>();
  RegionTable table(static_cast<std::byte*>(shared), pins.get());
  MappedMemoryOptions options;
  options.source = MappedMemoryOptions::Source::kMemfd;
  const MappedMemory memory = *MappedMemory::Map(kBytes, options);
  const uint64_t key = *table.NewKey();
  table.Publish(key, memory.bytes(), Access::kRemoteReadWrite);
  bool has_old = false;
  OldMappings old_mappings(&has_old, {});
  const auto peer = *PeerRegions::Open(static_cast<std::byte*>(shared), pins.get(), getpid(), ways,
                                       &old_mappings);
  std::vector<std::byte> here(kBytes);
  const auto bytes = static_cast<uint64_t>(state.range(0));
  uint64_t offset = 0;
  for (auto _ : state) {
    if (!peer->Transfer(is_read, &here[offset], bytes, key, offset).ok()) {
      state.SkipWithError("refused");
    }
    offset = (offset + bytes) % kBytes;
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
  munmap(shared, RegionTable::kBytes);
}

void ReadMapped(benchmark::State& state) { Copy(state, /*is_read=*/true, {true, false}); }
void WriteMapped(benchmark::State& state) { Copy(state, /*is_read=*/false, {true, false}); }
void ReadByCall(benchmark::State& state) { Copy(state, /*is_read=*/true, {false, true}); }
void WriteByCall(benchmark::State& state) { Copy(state, /*is_read=*/false, {false, true}); }
BENCHMARK(ReadMapped)->Arg(64)->Arg(4 << 10)->Arg(256 << 10);
BENCHMARK(WriteMapped)->Arg(64)->Arg(4 << 10)->Arg(256 << 10);
BENCHMARK(ReadByCall)->Arg(64)->Arg(4 << 10)->Arg(256 << 10);
BENCHMARK(WriteByCall)->Arg(64)->Arg(4 << 10)->Arg(256 << 10);

}  // namespace
}  // namespace weft
