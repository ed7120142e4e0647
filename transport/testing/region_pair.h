// What the contract's tests of one-sided operations have in common.
//
// Threads: the test's.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "transport/testing/endpoint.h"
#include "transport/testing/post.h"
#include "transport/testing/test_memory.h"
#include "transport/transport.h"

namespace weft {

inline constexpr size_t kRegionBytes = size_t{1} << 20;

// Memory of both ends, registered; the server's can be used by the client. Destroyed before the
// engines, because tests make it inside their body.
class RegionPair {
 public:
  RegionPair(Endpoint& client, Endpoint& server, Access access = Access::kRemoteReadWrite)
      : server_memory(Pattern(1, kRegionBytes)),
        client_memory(Pattern(2, kRegionBytes)),
        client_(client) {
    server_region = Register(server, server_memory.bytes(), access);
    client_region = Register(client, client_memory, Access::kLocalOnly);
  }

  absl::Status Read(size_t local_offset, const RemoteSpan& remote, TestOperation* op) {
    return weft::Read(client_.connection(), *client_region, local_offset, remote, op);
  }
  absl::Status Write(size_t local_offset, const RemoteSpan& remote, TestOperation* op) {
    return weft::Write(client_.connection(), *client_region, local_offset, remote, op);
  }
  absl::Status WriteAcknowledged(size_t local_offset, const RemoteSpan& remote, TestOperation* op) {
    return weft::WriteAcknowledged(client_.connection(), *client_region, local_offset, remote, op);
  }
  absl::Status WriteUnordered(size_t local_offset, const RemoteSpan& remote, TestOperation* op) {
    return weft::WriteUnordered(client_.connection(), *client_region, local_offset, remote, op);
  }
  RemoteSpan Remote(uint64_t from, uint64_t bytes) {
    return server_region->remote().Slice(from, bytes);
  }
  // `bytes` bytes of both memories are the same.
  bool Same(size_t client_from, size_t server_from, size_t bytes) const {
    return std::memcmp(&client_memory[client_from], &server_memory[server_from], bytes) == 0;
  }

  TestMemory server_memory;
  std::vector<std::byte> client_memory;
  std::unique_ptr<Region> server_region;
  std::unique_ptr<Region> client_region;

 private:
  static std::unique_ptr<Region> Register(Endpoint& end, MutableByteSpan memory, Access access) {
    auto region = end.connection().memory().Register(memory, access);
    EXPECT_TRUE(region.ok()) << region.status();
    return region.ok() ? *std::move(region) : nullptr;
  }

  Endpoint& client_;
};

inline bool AllDone(const std::vector<TestOperation>& operations) {
  return std::all_of(operations.begin(), operations.end(), [](auto& op) { return op.done(); });
}

inline RemoteSpan WithWrongKey(RemoteSpan span) {
  span.key ^= 0x5555;
  return span;
}

}  // namespace weft
