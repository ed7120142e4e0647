#include "transport/devices/port_mtu.h"

namespace weft {
namespace {

// Global route header 40, UDP 8, base transport 12, XRC 4, atomic 28, checksum 4.
constexpr uint32_t kRoceHeaderBytes = 96;
constexpr uint32_t kIpoibHeaderBytes = 4;

uint32_t LargestFabricMtu(uint32_t limit) {
  for (const uint32_t mtu : {4096u, 2048u, 1024u, 512u, 256u}) {
    if (mtu <= limit) return mtu;
  }
  return 0;
}

}  // namespace

uint32_t PortMtu(LinkKind link, uint32_t interface_mtu, std::string_view ipoib_mode) {
  switch (link) {
    case LinkKind::kRoceV1:
    case LinkKind::kRoceV2:
      return interface_mtu < kRoceHeaderBytes ? 0
                                              : LargestFabricMtu(interface_mtu - kRoceHeaderBytes);
    case LinkKind::kIwarp:
      return interface_mtu;
    case LinkKind::kInfiniBand:
      if (interface_mtu == 0 || ipoib_mode == "connected") return 0;
      return LargestFabricMtu(interface_mtu + kIpoibHeaderBytes);
    default:
      return 0;
  }
}

}  // namespace weft
