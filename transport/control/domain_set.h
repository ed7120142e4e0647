// The providers of one engine's network, each opened when it is first needed.
//
// A provider that cannot be opened is a reason for a candidate path, never a failure of the
// network: the reason is remembered for a while, so that not every connect pays for the attempt.
//
// Threads: one engine's. Lifetime: poller and sink outlive it; connections are gone before it.
// Errors: from opening, in words for `explain`.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/function.h"
#include "transport/framing/framing_domain.h"
#include "transport/link.h"
#include "transport/poller.h"

namespace weft {

// How to open one path. What is known without opening it stands in the hello.
struct PathProvider {
  PathKind kind = PathKind::kTcp;
  std::string provider;
  uint32_t fabric_version = 0;  // major << 16 | minor
  // Takes its batches to `sink`. May take some 0.1 s the first time.
  Function<absl::StatusOr<std::unique_ptr<LinkDomain>>(BatchSink* sink)> open;
  // Completes an address of this path's domain that leaves its host open ("*:4711"); empty: none
  // does.
  Function<std::string(const std::string& address, const std::string& host)> with_host;
};

class DomainSet {
 public:
  // How long a failure to open is remembered: a connect that falls through then costs nothing
  // more, and what an administrator mends is noticed soon.
  static constexpr uint64_t kRetryOpenNs = 5'000'000'000;

  DomainSet(std::vector<PathProvider> providers, const FramingOptions& framing, Poller* poller,
            BatchSink* sink);
  ~DomainSet();

  std::vector<PathProvider>& providers() { return providers_; }
  // The open domain of this kind, opened now if it is not. UNAVAILABLE and others: why there is
  // none.
  absl::StatusOr<FramingDomain*> Open(PathKind kind, uint64_t now_ns);

  // A peer's address with the host at which the peer was reached, where it leaves that open.
  std::string Complete(PathKind kind, const std::string& address, const std::string& host);

  // A callback may open further domains: by index, therefore.
  int Poll(int budget) {
    int done = 0;
    for (size_t i = 0; i < open_.size(); ++i) done += open_[i].links->Poll(budget);
    return done;
  }
  bool Arm();
  bool busy() const;
  // The counts of all open domains together.
  LinkDomainStats TotalStats() const;

 private:
  PathProvider* Find(PathKind kind);

  struct Entry {
    std::unique_ptr<LinkDomain> links;
    std::unique_ptr<FramingDomain> framing;  // destroyed before the links
  };
  struct Failure {
    PathKind kind;
    absl::Status why;
    uint64_t forget_ns;
  };

  const FramingOptions framing_;
  Poller* const poller_;
  BatchSink* const sink_;
  std::vector<PathProvider> providers_;
  std::vector<Entry> open_;  // a handful: a loop is faster than any map
  std::vector<Failure> failures_;
};

}  // namespace weft
