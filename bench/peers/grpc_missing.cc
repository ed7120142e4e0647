// In place of grpc_ends.cc, where gRPC is not built in.

#include "absl/status/status.h"
#include "bench/peers/grpc_ends.h"

namespace weft::bench {
namespace {

constexpr char kWhy[] =
    "gRPC is not built in (./dev perf --peers builds it; Debian's libgrpc++-dev and "
    "protobuf-compiler-grpc)";

}  // namespace

std::string WhyNotGrpc(const Cell&, const PerfPath&) { return kWhy; }

absl::StatusOr<std::unique_ptr<ClientEnd>> OpenGrpcClient(const WorkloadOptions&) {
  return absl::UnimplementedError(kWhy);
}

absl::StatusOr<std::unique_ptr<ServerEnd>> OpenGrpcServer(const WorkloadOptions&) {
  return absl::UnimplementedError(kWhy);
}

}  // namespace weft::bench
