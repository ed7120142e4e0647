// The honest clients: four that call in closed loops and are never to notice anything, and one that
// comes anew for each call.
//
// Threads: the caller's, besides one of its own for each client.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "transport/path.h"

namespace weft::bench {

struct HonestOptions {
  std::string address;
  PathKind path = PathKind::kShm;
  std::string tls_folder;
  uint64_t seed = 1;
};

// Works until the standard input ends. For each line of it, it writes one: a JSON object of what
// was called since the line before. INTERNAL: a client could not connect at the beginning.
absl::Status RunHonest(const HonestOptions& options);

}  // namespace weft::bench
