#include "transport/control/handshake.h"

#include <mutex>

#include "core/clock.h"
#include "core/fork_guard.h"
#include "core/log.h"
#include "core/rate_budget.h"
#include "core/status.h"
#include "core/strings.h"
#include "transport/framing/seal.h"

namespace weft {
namespace {

// Lines about paths tell of each client that comes, with reasons that are his, and anybody may come
// as often as he likes. So they have the budget of the audit log (rpc/server/audit_log.h): at once,
// what two clients with the most candidates make, and then 20 in a second for the process.
bool MayLogPath() {
  static constinit ProcessMutex mutex;
  static RateBudget lines(/*burst=*/100, /*interval_ns=*/50'000'000);
  if (!LogEnabled(LogLevel::kInfo)) return false;
  const uint64_t now_ns = Clock::Real().NowNs();
  const std::lock_guard lock(mutex);
  if (!lines.permits(now_ns)) return false;
  lines.Take(now_ns);
  return true;
}

}  // namespace

void HandshakeStep::EndWithBye(const absl::Status& status) {
  Send(ControlType::kBye, EncodeBye(ToStd(status.message())));
  End(status);
}

void WithdrawIfUnsealed(PathOffer* offer) {
  if (!offer->unavailable.empty()) return;    // for a reason that is there anyway
  if (offer->kind == PathKind::kShm) return;  // the kernel vouches for who shares the memory
  if (offer->kind == PathKind::kTcp) return;  // its links have TLS of their own
  if (IsSealedByFraming(offer->kind)) return;
  offer->unavailable = "security is on, and this path is not sealed";
}

std::string SealingReason(const OwnSide& own, const ControlLimits& peer, PathKind kind) {
  if (!own.is_secured || !IsSealedByFraming(kind)) return "";
  if (!own.limits.require_encryption && !peer.require_encryption) {
    return ", messages and payloads sealed with AES-256-GCM, one-sided access in the clear";
  }
  return StrCat(", sealed with AES-256-GCM, no one-sided access: ",
                own.limits.require_encryption ? "this side" : "the peer", " requires encryption");
}

void RejectCandidate(ConnectionFacts* facts, size_t index, std::string_view reason) {
  PathCandidate& candidate = facts->candidates[index];
  if (MayLogPath()) WEFT_LOG(kInfo, "path ", CandidateName(candidate), " rejected: ", reason);
  candidate.outcome = PathCandidate::Outcome::kRejected;
  candidate.reason = std::string(reason);
}

void ChooseCandidate(ConnectionFacts* facts, size_t index, std::string_view reason) {
  PathCandidate& chosen = facts->candidates[index];
  chosen.outcome = PathCandidate::Outcome::kChosen;
  chosen.reason = std::string(reason);
  const std::string name = CandidateName(chosen);
  for (PathCandidate& candidate : facts->candidates) {
    if (candidate.outcome == PathCandidate::Outcome::kNotTried) {
      candidate.reason = StrCat(name, " comes before it and works");
    }
  }
  if (MayLogPath()) WEFT_LOG(kInfo, "path ", name, " chosen: ", reason);
}

bool IsUntried(const ConnectionFacts& facts, size_t candidate) {
  return candidate < facts.candidates.size() &&
         facts.candidates[candidate].outcome == PathCandidate::Outcome::kNotTried;
}

}  // namespace weft
