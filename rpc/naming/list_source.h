// The servers that the target itself names.
//
// Threads, lifetime: AddressSource's. Errors: the list is empty: whoever waits for a server hears
// it.
#pragma once

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/timer_wheel.h"
#include "rpc/client/address_source.h"
#include "transport/engine.h"

namespace weft {

class ListSource final : public AddressSource, private Timer {
 public:
  explicit ListSource(std::vector<ListedServer> servers) : servers_(std::move(servers)) {}

  void Start(EngineCore& engine, Host* host, uint64_t) override {
    host_ = host;
    engine.timers().Schedule(this, 0);
  }
  void Refresh() override {}
  bool takes_lists() const override { return true; }

 private:
  void OnTimer() override {
    if (!servers_.empty()) return host_->OnServers(std::move(servers_));
    host_->OnSourceFailed(
        absl::UnavailableError("the list is empty: name servers in the target, "
                               "or by SetServers()"));
  }

  std::vector<ListedServer> servers_;
  Host* host_ = nullptr;
};

}  // namespace weft
