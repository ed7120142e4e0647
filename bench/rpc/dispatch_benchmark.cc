// From a method to its number at the client, and from the number to the handler at the server: an
// array each.
#include <cstdint>

#include "bench/counted.h"
#include "bench/rpc/echo.weft.h"
#include "benchmark/benchmark.h"
#include "rpc/client/method_table.h"
#include "rpc/server/dispatch.h"
#include "rpc/wire/hello.pb.h"

namespace weft {
namespace {

using bench::rpc::Echo;

void FindMethodNumber(benchmark::State& state) {
  Echo::Service service;
  DispatchTable server;
  rpc::ServerHello hello;
  MethodTable client;
  uint32_t method = client.Bind(Echo::descriptor());
  if (!server.Add(&service, nullptr).ok()) return state.SkipWithError("no service");
  server.Describe(&hello);
  if (!client.Learn(hello) || !client.Resolve(method, "").ok()) {
    return state.SkipWithError("no such method");
  }
  const Counted counted(state);
  for (auto _ : state) {
    benchmark::DoNotOptimize(method);
    benchmark::DoNotOptimize(client.Find(method));
  }
}
BENCHMARK(FindMethodNumber);

void FindHandler(benchmark::State& state) {
  Echo::Service service;
  DispatchTable server;
  if (!server.Add(&service, nullptr).ok()) return state.SkipWithError("no service");
  uint16_t number = 0;
  const Counted counted(state);
  for (auto _ : state) {
    benchmark::DoNotOptimize(number);
    benchmark::DoNotOptimize(server.Find(number));
  }
}
BENCHMARK(FindHandler);

}  // namespace
}  // namespace weft
