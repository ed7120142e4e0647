// What the store itself costs, and what each of its two indexes is good for.
//
// bazel run --config=opt //examples/kv:store_benchmark
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "core/random.h"
#include "core/strings.h"
#include "examples/kv/store.h"

namespace kv {
namespace {

constexpr int kRecords = 100'000;

// As YCSB's keys: a common prefix, then digits in no order.
std::string KeyOf(uint64_t number) { return weft::StrCat("user", weft::Random(number).Next64()); }

const std::vector<std::string>& Keys() {
  static const auto* const keys = [] {
    auto* made = new std::vector<std::string>;
    for (int i = 0; i < kRecords; ++i) made->push_back(KeyOf(i));
    return made;
  }();
  return *keys;
}

const std::vector<FieldView>& TenFields() {
  static const auto* const value = new std::string(100, 'v');
  static const auto* const fields = new std::vector<FieldView>{
      {"field0", *value}, {"field1", *value}, {"field2", *value}, {"field3", *value},
      {"field4", *value}, {"field5", *value}, {"field6", *value}, {"field7", *value},
      {"field8", *value}, {"field9", *value}};
  return *fields;
}

Store& FullStore() {
  static auto* const store = [] {
    auto* made = new Store;
    for (const std::string& key : Keys()) made->Replace(key, TenFields()).IgnoreError();
    return made;
  }();
  return *store;
}

void Get(benchmark::State& state) {
  const Store& store = FullStore();
  weft::Random random(1);
  for (auto _ : state) benchmark::DoNotOptimize(store.Get(Keys()[random.Uniform(kRecords)]));
}
BENCHMARK(Get);

// The alternative: the tree alone.
void GetFromATreeAlone(benchmark::State& state) {
  absl::btree_map<std::string, Record> tree;
  for (const std::string& key : Keys()) tree.emplace(key, Record(TenFields()));
  weft::Random random(1);
  for (auto _ : state) benchmark::DoNotOptimize(tree.find(Keys()[random.Uniform(kRecords)]));
}
BENCHMARK(GetFromATreeAlone);

void UpdateOneField(benchmark::State& state) {
  Store& store = FullStore();
  weft::Random random(1);
  for (auto _ : state) {
    const FieldView field = TenFields()[random.Uniform(TenFields().size())];
    benchmark::DoNotOptimize(store.Update(Keys()[random.Uniform(kRecords)], {&field, 1}));
  }
}
BENCHMARK(UpdateOneField);

void ReplaceRecord(benchmark::State& state) {
  Store& store = FullStore();
  weft::Random random(1);
  for (auto _ : state) {
    benchmark::DoNotOptimize(store.Replace(Keys()[random.Uniform(kRecords)], TenFields()));
  }
}
BENCHMARK(ReplaceRecord);

void ScanFiftyRecords(benchmark::State& state) {
  const Store& store = FullStore();
  weft::Random random(1);
  for (auto _ : state) {
    int left = 50;
    store.Scan(Keys()[random.Uniform(kRecords)], [&](std::string_view, const Record& record) {
      benchmark::DoNotOptimize(record.bytes());
      return --left > 0;
    });
  }
}
BENCHMARK(ScanFiftyRecords);

}  // namespace
}  // namespace kv
