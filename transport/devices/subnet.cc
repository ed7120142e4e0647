#include "transport/devices/subnet.h"

#include <arpa/inet.h>

#include <algorithm>
#include <optional>

#include "absl/strings/numbers.h"
#include "core/strings.h"

namespace weft {
namespace {

constexpr uint32_t kV4Bits = 32;
constexpr uint32_t kV6Bits = 128;

// "8.8.8.8/24" is not a subnet but an address in one: the rest must be 0.
bool IsZeroBeyond(const uint8_t* bytes, uint32_t prefix_bits, uint32_t all_bits) {
  for (uint32_t bit = prefix_bits; bit < all_bits; ++bit) {
    if ((bytes[bit / 8] >> (7 - bit % 8) & 1) != 0) return false;
  }
  return true;
}

bool SamePrefix(const uint8_t* a, const uint8_t* b, uint32_t prefix_bits) {
  const uint32_t whole = prefix_bits / 8;
  if (!std::equal(a, a + whole, b)) return false;
  if (prefix_bits % 8 == 0) return true;
  const auto mask = static_cast<uint8_t>(0xff << (8 - prefix_bits % 8));
  return ((a[whole] ^ b[whole]) & mask) == 0;
}

// The subnet of this address alone.
std::optional<Subnet> ParseHost(std::string_view text) {
  Subnet host;
  host.text = std::string(text);
  if (inet_pton(AF_INET, host.text.c_str(), host.bytes) == 1) {
    host.prefix_bits = kV4Bits;
    return host;
  }
  if (inet_pton(AF_INET6, host.text.c_str(), host.bytes) != 1) return std::nullopt;
  host.is_v6 = true;
  host.prefix_bits = kV6Bits;
  return host;
}

absl::Status NoSubnet(std::string_view text, std::string_view why) {
  return absl::InvalidArgumentError(StrCat("\"", text.substr(0, 64), "\" is no subnet: ", why,
                                           "; use a form as in 10.1.0.0/16 or fd00::/8"));
}

}  // namespace

bool Subnet::Contains(std::string_view numeric_host) const {
  const std::optional<Subnet> host = ParseHost(numeric_host);
  return host.has_value() && host->is_v6 == is_v6 && SamePrefix(bytes, host->bytes, prefix_bits);
}

absl::StatusOr<Subnet> ParseSubnet(std::string_view text) {
  const size_t slash = text.find('/');
  std::optional<Subnet> subnet = ParseHost(text.substr(0, slash));
  if (!subnet.has_value()) return NoSubnet(text, "it does not begin with a numeric address");
  subnet->text = std::string(text);
  if (slash == std::string_view::npos) return *std::move(subnet);
  const uint32_t all_bits = subnet->prefix_bits;
  uint32_t prefix_bits = 0;
  if (!absl::SimpleAtoi(ToAbsl(text.substr(slash + 1)), &prefix_bits) || prefix_bits > all_bits) {
    return NoSubnet(text, StrCat("the prefix must be 0..", all_bits, " bits"));
  }
  if (!IsZeroBeyond(subnet->bytes, prefix_bits, all_bits)) {
    return NoSubnet(text, "bits after the prefix are set");
  }
  subnet->prefix_bits = prefix_bits;
  return *std::move(subnet);
}

bool ShareSubnet(std::string_view a, uint32_t a_prefix_bits, std::string_view b,
                 uint32_t b_prefix_bits) {
  const std::optional<Subnet> first = ParseHost(a);
  const std::optional<Subnet> second = ParseHost(b);
  if (!first.has_value() || !second.has_value() || first->is_v6 != second->is_v6) return false;
  if (std::max(a_prefix_bits, b_prefix_bits) > first->prefix_bits) return false;
  return SamePrefix(first->bytes, second->bytes, std::min(a_prefix_bits, b_prefix_bits));
}

}  // namespace weft
