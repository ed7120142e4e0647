// What all attacks have in common: what they are told, and what they have to tell.
//
// Threads: plain values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "core/clock.h"
#include "transport/path.h"
#include "transport/security.h"

namespace weft::bench {

struct AttackOptions {
  std::string name;
  std::string address;  // numeric: "127.0.0.1:4711"
  PathKind path = PathKind::kShm;
  double seconds = 1;
  uint64_t seed = 1;
  std::string tls_folder;  // empty: no TLS
  // Connections that strangers begin in a second, at the most. 0: what the attack is made for.
  uint32_t per_second = 0;
};

// What an attack has done, by name: "connections", 41213. Of strangers: "begun" connections, and
// those of them that the server's kernel has taken ("connections"), refused ("connects_failed"), or
// not answered in kAnswerNs ("unanswered", its queue was full); "put_out" by the server before they
// had done what they came for; and the "ms" that it took.
using AttackReport = std::map<std::string, uint64_t>;

// The attack of that name, for its time. INVALID_ARGUMENT: there is none, or not over this path.
absl::StatusOr<AttackReport> RunAttack(const AttackOptions& options);

// The certificates of `folder` as `role` ("server", "client") has them; nullopt: no folder.
std::optional<SecurityOptions> SecurityOf(const std::string& folder, const std::string& role);

// The end of an attack.
class AttackClock {
 public:
  explicit AttackClock(double seconds)
      : end_ns_(NowNs() + static_cast<uint64_t>(seconds * static_cast<double>(kNsPerSec))) {}

  static uint64_t NowNs() { return Clock::Real().NowNs(); }
  bool over() const { return NowNs() >= end_ns_; }
  // From now until then, `most` at the most.
  uint64_t LeftNs(uint64_t most) const {
    const uint64_t now_ns = NowNs();
    return now_ns >= end_ns_ ? 0 : std::min(most, end_ns_ - now_ns);
  }

 private:
  uint64_t end_ns_;
};

}  // namespace weft::bench
