// Which number a server gives to each method that this client can call.
//
// Stubs bind their services to a channel once; the server's numbers are known when a connection
// opens, and looked up at the first call of a method on it. From then on a call costs one array
// access.
//
// Threads: Bind() from any; the rest on the engine's thread.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "rpc/hello.pb.h"
#include "rpc/service.h"

namespace weft {

class MethodTable {
 public:
  // Methods of all bound services; stubs beyond fail their calls with RESOURCE_EXHAUSTED. Two bytes
  // each.
  static constexpr uint32_t kMaxMethods = 2048;

  MethodTable() { Forget(); }

  // The channel's number of the service's first method.
  uint32_t Bind(const ServiceDescriptor& service);

  // A connection opened: the server's table. False: more methods than 16 bits can number.
  [[nodiscard]] bool Learn(const rpc::ServerHello& hello);

  // Numbers of a connection that is no more.
  void Forget() { numbers_.fill(kUnknown); }

  // The server's number of the channel's method `method`, or kUnknown.
  static constexpr uint16_t kUnknown = 0xFFFF;
  uint16_t Find(uint32_t method) const {
    return method < kMaxMethods ? numbers_[method] : kUnknown;
  }

  // For a method that Find() does not know: looks it up. UNIMPLEMENTED names what the server lacks.
  absl::StatusOr<uint16_t> Resolve(uint32_t method, const std::string& address);

 private:
  struct Bound {
    uint32_t first;
    const ServiceDescriptor* service;
  };
  struct Served {
    uint16_t first;
    std::vector<std::string> methods;
  };

  // Engine thread only.
  std::array<uint16_t, kMaxMethods> numbers_;
  std::string server_name_;
  std::unordered_map<std::string, Served> served_;

  // Guarded by mutex_.
  std::mutex mutex_;
  std::vector<Bound> bound_;
  uint32_t next_ = 0;
};

}  // namespace weft
