// The real network: one address for each server, a control connection for each peer, and the best
// path that both have for the messages.
//
//   NetworkListener    takes clients in
//   ControlConnection  one connection: its handshake, its life, its end (control_connection.h)
//   DomainSet          the providers, opened when first needed
//   PathCounters       what is counted: path.opened.*, path.rejected.*
//   ConnectionTable    where batches find their connection (transport/framing/)
//
// A turn costs what its domains cost: control connections run only when their socket, their link
// or their alarm has something for them. Descriptors are the engine's poller's business.
//
// Threads: one engine's. Lifetime: Transport's; listeners may outlive it.
// Errors: as connection.h says.
// Invariants: every control connection is in the context's `members` or in `retired`; a retired one
//   is deleted in Poll(), outside of callbacks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport/control/control_connection.h"
#include "transport/control/domain_set.h"
#include "transport/control/network_listener.h"
#include "transport/engine.h"
#include "transport/framing/connection_table.h"
#include "transport/leases/export_table.h"
#include "transport/transport.h"

namespace weft {

struct NetworkTransportOptions {
  std::vector<PathProvider> providers;  // in default order of preference
  FramingOptions framing;
  uint64_t max_exported_bytes = kDefaultExportedBytes;
};

class NetworkTransport final : public Transport {
 public:
  // Connections at one time; as many descriptors as the engine's poller takes.
  static constexpr uint32_t kMaxConnections = Poller::kMaxDescriptors / 2;
  // How long newcomers have a turn of the engine to themselves: as long as everything else has had
  // since their last one, and at least this. What a handshake does at once costs 20 to 100 us, most
  // of it in system calls, and a flood of hellos makes dozens ready together: calls wait for a few
  // of them, and not for all, while newcomers have half of the time. One at least runs. At most,
  // for time that nobody has used is no reason to make calls wait: what a call over tcp takes under
  // load.
  static constexpr uint64_t kNewcomersTurnNs = 100'000;
  static constexpr uint64_t kNewcomersLongestTurnNs = 1'000'000;

  NetworkTransport(const EngineContext& engine, NetworkTransportOptions options);
  ~NetworkTransport() override;

  absl::StatusOr<std::unique_ptr<Listener>> Listen(const std::string& address,
                                                   const ListenOptions& options,
                                                   Acceptor* acceptor) override;
  absl::StatusOr<std::unique_ptr<Listener>> JoinListener(
      const std::shared_ptr<SharedListener>& shared, const ListenOptions& options,
      Acceptor* acceptor) override;
  // A name in `address` is looked up here, before anything else, and that may block (address.h).
  absl::StatusOr<Connection*> Connect(const std::string& address, const ConnectOptions& options,
                                      ConnectionHandler* handler) override;
  int Poll(int budget, uint64_t now_ns) override;
  void FlushAll() override { table_.FlushAll(); }
  Exports& exports() override { return exports_; }
  uint32_t first_path_number() const override { return first_path_number_; }
  bool Arm() override;
  bool busy() const override { return domains_.busy(); }

  // --- for tests and diagnosis ------------------------------------------------------------------

  LinkDomainStats domain_stats() const { return domains_.TotalStats(); }
  const ConnectionTable& table() const { return table_; }

 private:
  FramingOptions WithCounters(FramingOptions framing);
  absl::StatusOr<PathPolicy> CheckListen(const ListenOptions& options) const;
  std::unique_ptr<Listener> Keep(std::unique_ptr<NetworkListener> listener,
                                 const PathPolicy& policy);
  // Somebody waits for a turn: what domains, sockets, alarms or users have brought about.
  bool HasNews() const;
  int TellNews();
  int RunReady();
  void DeleteRetired();

  const uint32_t first_path_number_;
  ExportTable exports_;
  ConnectionTable table_;
  RegionCounters region_counters_;
  DomainSet domains_;
  PathCounters counters_;
  CounterSet* const counter_set_;
  ControlContext context_;
  Newcomers newcomers_;
  PeerGroups peers_;
  SharedTls tls_;
  IntrusiveList<NetworkListener, ListenerTag> listeners_;
  uint64_t newcomers_ran_ns_ = 0;  // when their last turn was over
  bool closing_ = false;
};

}  // namespace weft
