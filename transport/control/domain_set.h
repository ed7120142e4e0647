// The providers of one engine's network, and their domains: one for each offer, opened when it is
// first needed.
//
// A domain that cannot be opened is a reason for a candidate path, never a failure of the
// network: the reason is remembered for a while, so that not every connect pays for the attempt.
//
// Threads: one engine's. Lifetime: poller and sink outlive it; connections are gone before it.
// Errors: from opening, in words for `explain`.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/function.h"
#include "transport/control/hello.h"
#include "transport/control/path_policy.h"
#include "transport/framing/framing_domain.h"
#include "transport/link.h"
#include "transport/poller.h"

namespace weft {

// One kind of path: what this host has of it, and how to open that.
struct PathProvider {
  PathKind kind = PathKind::kTcp;
  LinkKind link = LinkKind::kUnknown;  // where it is the same for all offers
  std::string provider;
  // The version of libfabric that it has: major << 16 | minor. Asked for what can be used alone,
  // for it loads the library, which takes some 0.3 s. Empty function: it needs none.
  Function<uint32_t()> fabric_version;
  // The devices and addresses that there are at this moment, in order of preference, those that
  // cannot be used at the end; kind, provider and version are filled in by the caller. At most
  // kMaxRdmaOffers, and at least one, which may be unavailable. Empty function: one offer, of no
  // device in particular. Called for each handshake: it remembers what is costly to find out.
  Function<std::vector<PathOffer>(const RdmaFilter& filter, uint64_t now_ns)> offers;
  // Takes its batches to `sink`. May take some 0.1 s the first time.
  Function<absl::StatusOr<std::unique_ptr<LinkDomain>>(const PathOffer& offer, BatchSink* sink)>
      open;
  // Its domains are bound to the address at which a peer has reached this host: a server has one
  // for each such address. A client's is bound to none, and does not listen.
  bool is_bound_to_host = false;
};

class DomainSet {
 public:
  // How long a failure to open is remembered: a connect that falls through then costs nothing
  // more, and what an administrator mends is noticed soon.
  static constexpr uint64_t kRetryOpenNs = 5'000'000'000;
  // Domains at one time: shm, tcp, and every address of a host with several RDMA ports. Each is
  // looked at in every turn. More can only be asked for where addresses come and go, and devices
  // get lost. So many failures are remembered, too.
  static constexpr size_t kMaxDomains = 24;
  static_assert(kMaxDomains <= kMaxPathNumbers / 2);
  // Of these, domains of one path that are bound to hosts: a peer chooses by which address it
  // comes, and this host may have many (all of 127.0.0.0/8). Other paths have theirs, and so has a
  // client.
  static constexpr size_t kMaxHosts = 8;

  DomainSet(std::vector<PathProvider> providers, const FramingOptions& framing, Poller* poller,
            BatchSink* sink);
  ~DomainSet();

  // What this process has, as the policy has it; nothing is opened. Kinds that are denied are not
  // asked for their devices. `host`: the numeric address at which the peer has reached this host;
  // empty: this side is the client.
  std::vector<PathOffer> Offers(const PathPolicy& policy, uint64_t now_ns, const std::string& host);
  // Of each kind the best offer that can be used, but for those that are bound to a host.
  void OpenBest(const PathPolicy& policy, uint64_t now_ns);
  // The open domain of this offer, opened now if it is not, or if the one that there is has lost
  // its device (not more often than every kRetryOpenNs): that one stays for the connections and
  // regions that it has. UNAVAILABLE and others: why there is none.
  absl::StatusOr<FramingDomain*> Open(const PathOffer& offer, uint64_t now_ns);

  // As LinkDomain::TakeSocket(), by whichever waits for it.
  absl::Status TakeSocket(Descriptor socket, const Nonce128& nonce);

  // A callback may open further domains: by index, therefore.
  int Poll(int budget) {
    int done = 0;
    for (size_t i = 0; i < polled_count_; ++i) done += polled_[i]->Poll(budget);
    return done;
  }
  bool Arm();
  bool busy() const;
  // The counts of all open domains together.
  LinkDomainStats TotalStats() const;

 private:
  // What makes a domain: its device, the address it is bound to, and the network of that.
  struct Key {
    explicit Key(const PathOffer& offer)
        : kind(offer.kind), link(offer.link), device(offer.device), host(offer.host) {}
    bool operator==(const Key&) const = default;
    PathKind kind;
    LinkKind link;
    std::string device;
    std::string host;
  };
  struct Entry {
    Key key;
    uint64_t opened_ns;
    std::unique_ptr<LinkDomain> links;
    std::unique_ptr<FramingDomain> framing;  // destroyed before the links
  };
  struct Failure {
    Key key;
    absl::Status why;
    uint64_t forget_ns;
  };

  PathProvider* Find(PathKind kind);
  absl::Status CheckRoom(const PathProvider& provider, const PathOffer& offer) const;
  absl::StatusOr<std::unique_ptr<LinkDomain>> OpenLinks(const PathOffer& offer);

  const FramingOptions framing_;
  Poller* const poller_;
  BatchSink* const sink_;
  std::vector<PathProvider> providers_;
  std::vector<Entry> open_;  // a handful: a loop is faster than any map
  size_t polled_count_ = 0;
  std::array<LinkDomain*, kMaxDomains> polled_;  // of open_, close together
  std::vector<Failure> failures_;
};

}  // namespace weft
