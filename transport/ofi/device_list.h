// The devices that libfabric sees, with what it says of their cards: to be shown beside what the
// kernel says.
//
// Threads: any. The first call in a process takes some 0.3 s.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace weft {

// One card of one provider. What the provider does not say is empty or 0.
struct FabricDevice {
  std::string provider;  // "verbs", "tcp"
  std::string name;      // "rxe0", "eth0"
  std::string vendor_id;
  std::string device_id;
  std::string firmware;
  std::string network;  // "Ethernet", "InfiniBand"
  std::string state;    // "up", "down"; empty: unknown
  uint64_t mtu_bytes = 0;
  double gbit_per_s = 0;
};

// The devices of `provider`, each once, in its order; empty if it works but does not describe its
// cards. UNAVAILABLE says why the provider cannot be used here.
absl::StatusOr<std::vector<FabricDevice>> ListFabricDevices(std::string_view provider);

}  // namespace weft
