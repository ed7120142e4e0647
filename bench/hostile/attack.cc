#include "bench/hostile/attack.h"

#include "absl/status/status.h"
#include "bench/hostile/children.h"
#include "bench/hostile/members.h"
#include "bench/hostile/strangers.h"

namespace weft::bench {
namespace {

struct Attack {
  const char* name;
  absl::StatusOr<AttackReport> (*run)(const AttackOptions&);
};

// hostile.py has the order in which they come, and which of them are for which path.
constexpr Attack kAttacks[] = {
    {"strangers", RunStrangers},
    {"half-open", RunHalfOpen},
    {"garbage", RunGarbage},
    {"replay", RunReplay},
    {"hellos", RunHellos},
    {"offers", RunOffers},
    {"readers", RunReaders},
    {"bulk", RunBulk},
    {"streams", RunStreams},
    {"frames", RunFrames},
    {"tampered", RunTampered},
    {"killed", RunKilled},
    {"scribblers", RunScribblers},
    // Children's.
    {"killed-child", RunKilledChild},
    {"scribbler", RunScribbler},
};

}  // namespace

absl::StatusOr<AttackReport> RunAttack(const AttackOptions& options) {
  for (const Attack& attack : kAttacks) {
    if (options.name == attack.name) return attack.run(options);
  }
  return absl::InvalidArgumentError("no attack '" + options.name + "'");
}

std::optional<SecurityOptions> SecurityOf(const std::string& folder, const std::string& role) {
  if (folder.empty()) return std::nullopt;
  SecurityOptions security;
  security.certificate_file = folder + "/" + role + ".pem";
  security.key_file = folder + "/" + role + ".key";
  security.roots_file = folder + "/roots.pem";
  return security;
}

}  // namespace weft::bench
