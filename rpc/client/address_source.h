// Where the servers of a channel stand, from whoever knows: a list, a file, a name server.
//
//   state    from           to
//   new      construction   Start() -> running
//   running  Start()        destroyed
//
// Threads: the engine's, but for construction.
// Lifetime: the Balancer's, on whose engine it runs; destroyed on the engine's thread.
// Errors: OnSourceFailed(), any number of times; a source goes on after each.
// Invariants: neither function of the host is called inside Start(), Refresh() or the destructor.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "rpc/client/balancing.h"
#include "transport/engine.h"

namespace weft {

class AddressSource {
 public:
  class Host {
   public:
    // All servers there are: at least one, at most kMaxServersListed.
    virtual void OnServers(std::vector<ListedServer> servers) = 0;
    virtual void OnSourceFailed(const absl::Status& why) = 0;

   protected:
    ~Host() = default;
  };

  virtual ~AddressSource() = default;

  // Names servers from now on, and looks again every `refresh_us`. Both outlive it.
  virtual void Start(EngineCore& engine, Host* host, uint64_t refresh_us) = 0;
  // A server was lost: the answer may be another one now. It asks soon, if asking is cheap enough.
  virtual void Refresh() = 0;
  // SetServers() is for channels of this source.
  virtual bool takes_lists() const { return false; }
};

}  // namespace weft
