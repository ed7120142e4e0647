// What a peer says on its control socket, as bytes: for tests that say it themselves.
//
// Threads: values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/bytes.h"
#include "transport/control/control_frame.h"

namespace weft {

inline std::string Preamble() { return std::string(AsStringView(EncodePreamble())); }

inline std::string Frame(ControlType type, const std::string& body, uint16_t flags = 0) {
  std::vector<std::byte> bytes;
  AppendControlFrame(type, flags, AsBytes(body), &bytes);
  return std::string(AsStringView(bytes));
}

}  // namespace weft
