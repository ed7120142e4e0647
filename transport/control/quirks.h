// What a person should know about a provider that works, but not as one would hope.
//
// Threads: pure functions over constants.
#pragma once

#include <cstdint>
#include <string_view>

#include "transport/path.h"

namespace weft {

// One row: a provider, the libfabric versions (major << 16 | minor) that show it, and the words for
// `explain`. docs/paths.md has the longer story of each.
struct Quirk {
  PathKind kind;
  uint32_t first_version;
  uint32_t last_version;
  std::string_view note;
};

inline constexpr Quirk kQuirks[] = {
    // The longer story, the workaround and its test: transport/ofi/quirks.cc.
    {PathKind::kShm, (1u << 16) | 0, (1u << 16) | 17,
     "a peer killed in mid-send leaves this libfabric's lock taken; a guard thread opens it (200 "
     "kills under load: 0 hangs), but not beside an engine that the application drives, where 1 "
     "kill in 6 hung (docs/quirks.md)"},
};

// Empty: nothing to say.
constexpr std::string_view QuirkNote(PathKind kind, uint32_t fabric_version) {
  for (const Quirk& quirk : kQuirks) {
    if (quirk.kind == kind && fabric_version >= quirk.first_version &&
        fabric_version <= quirk.last_version) {
      return quirk.note;
    }
  }
  return {};
}

}  // namespace weft
