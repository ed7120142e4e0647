// Subnets of IP addresses, of both families.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace weft {

// A subnet: "10.1.0.0/16", "fd00::/8".
struct Subnet {
  std::string text;
  uint8_t bytes[16] = {};
  uint32_t prefix_bits = 0;
  bool is_v6 = false;

  bool Contains(std::string_view numeric_host) const;
};

// A single address, without a slash, is the subnet of that address alone. INVALID_ARGUMENT says
// what is wrong.
absl::StatusOr<Subnet> ParseSubnet(std::string_view text);

// Two numeric addresses of one family with a common subnet: the shorter prefix counts. False if
// either is no numeric address, or its prefix is longer than the address.
bool ShareSubnet(std::string_view a, uint32_t a_prefix_bits, std::string_view b,
                 uint32_t b_prefix_bits);

}  // namespace weft
