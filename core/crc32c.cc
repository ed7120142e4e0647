#include "core/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <cstddef>

namespace weft {

uint32_t Crc32c(ByteSpan bytes, uint32_t before) {
  // crc32_iscsi counts in int: more goes in rounds.
  constexpr size_t kRoundBytes = size_t{1} << 30;
  // It takes and gives the register as it stands; the checksum is its complement.
  uint32_t crc = ~before;
  while (!bytes.empty()) {
    const ByteSpan round = bytes.first(std::min(bytes.size(), kRoundBytes));
    // Declared without const, but read only.
    auto* from = const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(round.data()));
    crc = crc32_iscsi(from, static_cast<int>(round.size()), crc);
    bytes = bytes.subspan(round.size());
  }
  return ~crc;
}

}  // namespace weft
