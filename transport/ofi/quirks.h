// What libfabric's providers do that one would not expect, what we do about it, and the test that
// shows it. docs/quirks.md tells the longer stories.
//
// A quirk with an id is asked for by the code; the others are worked around everywhere, because
// the way around costs nothing.
//
// Threads: pure functions over constants.
#pragma once

#include <cstdint>
#include <string_view>

namespace weft {

enum class QuirkId : uint8_t {
  kNone = 0,
  // The peer's memory is mapped by fi_av_insert(), not by the first message: files can be removed
  // as soon as both sides have inserted each other.
  kShmMapsAtOnce = 1,
  // A process spin lock in the endpoint's memory survives the death of its holder.
  kShmLockOutlivesHolder = 2,
};

struct ProviderQuirk {
  QuirkId id;
  std::string_view provider;
  uint32_t first_version;  // FI_VERSION(major, minor), both ends inclusive
  uint32_t last_version;
  std::string_view seen;  // year-month
  std::string_view symptom;
  std::string_view workaround;
  std::string_view test;
};

// All rows, in the order of docs/quirks.md.
const ProviderQuirk* begin_quirks();
const ProviderQuirk* end_quirks();

// Whether the library that this process runs with shows it.
bool HasQuirk(QuirkId id);

}  // namespace weft
