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
    // 2023-01, libfabric 1.17.0: the provider takes a spin lock in the receiver's shared memory for
    // each send. A peer that is killed while it holds our lock leaves it locked.
    {PathKind::kShm, (1u << 16) | 0, (1u << 16) | 17,
     "on this libfabric a peer killed in mid-send can leave its lock in this process's shared "
     "memory"},
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
