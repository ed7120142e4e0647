#include "transport/control/network_transport.h"

#include <algorithm>
#include <utility>

#include "core/status.h"
#include "core/strings.h"
#include "transport/connection_quota.h"
#include "transport/sockets/address.h"

namespace weft {

NetworkTransport::NetworkTransport(const EngineContext& engine, NetworkTransportOptions options)
    : first_path_number_(options.framing.first_path_number),
      exports_(engine.clock, engine.timers, engine.counters, options.max_exported_bytes),
      table_(kMaxConnections, &exports_),
      domains_(std::move(options.providers), WithCounters(options.framing), engine.poller, &table_),
      counters_(engine.counters),
      counter_set_(engine.counters),
      newcomers_(engine.counters),
      peers_(engine.clock, engine.timers),
      tls_(engine.counters) {
  counter_set_->Register("memory.registrations", &region_counters_.registrations);
  counter_set_->Register("memory.registered_bytes", &region_counters_.registered_bytes);
  context_.engine = engine;
  context_.domains = &domains_;
  context_.table = &table_;
  context_.paths = &counters_;
  context_.newcomers = &newcomers_;
  context_.peers = &peers_;
  context_.tls = &tls_;
  counter_set_->Register("listener.connections_refused", &context_.connections_refused);
  counter_set_->Register("listener.hung_up", &context_.hung_up);
  counter_set_->Register("listener.joins_refused", &context_.joins_refused);
  counter_set_->Register("listener.handovers_refused", &context_.handovers_refused);
  counter_set_->Register("listener.accepted", &context_.accepted);
}

NetworkTransport::~NetworkTransport() {
  closing_ = true;
  while (NetworkListener* listener = listeners_.PopFront()) listener->Stop();
  while (ControlConnection* member = context_.members.Front()) member->Shutdown();
  DeleteRetired();
  counter_set_->Unregister(&context_.connections_refused);
  counter_set_->Unregister(&context_.hung_up);
  counter_set_->Unregister(&context_.joins_refused);
  counter_set_->Unregister(&context_.handovers_refused);
  counter_set_->Unregister(&context_.accepted);
  counter_set_->Unregister(&region_counters_.registrations);
  counter_set_->Unregister(&region_counters_.registered_bytes);
}

FramingOptions NetworkTransport::WithCounters(FramingOptions framing) {
  framing.region_counters = &region_counters_;
  return framing;
}

absl::StatusOr<std::unique_ptr<Listener>> NetworkTransport::Listen(const std::string& address,
                                                                   const ListenOptions& options,
                                                                   Acceptor* acceptor) {
  WEFT_ASSIGN_OR_RETURN(const PathPolicy policy, CheckListen(options));
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<NetworkListener> listener,
                        NetworkListener::Open(&context_, address, options, policy, acceptor));
  return Keep(std::move(listener), policy);
}

absl::StatusOr<std::unique_ptr<Listener>> NetworkTransport::JoinListener(
    const std::shared_ptr<SharedListener>& shared, const ListenOptions& options,
    Acceptor* acceptor) {
  if (shared == nullptr) {
    return absl::InvalidArgumentError("the listener to join is of another kind of network");
  }
  WEFT_ASSIGN_OR_RETURN(const PathPolicy policy, CheckListen(options));
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<NetworkListener> listener,
                        NetworkListener::Join(&context_, shared, options, policy, acceptor));
  return Keep(std::move(listener), policy);
}

absl::StatusOr<PathPolicy> NetworkTransport::CheckListen(const ListenOptions& options) const {
  if (closing_) return absl::FailedPreconditionError("the engine ends");
  WEFT_RETURN_IF_ERROR(CheckLinkOptions(options.link, options.hello));
  WEFT_RETURN_IF_ERROR(CheckConnectionQuota(options));
  return ReadPathPolicy(options.link);
}

std::unique_ptr<Listener> NetworkTransport::Keep(std::unique_ptr<NetworkListener> listener,
                                                 const PathPolicy& policy) {
  domains_.OpenBest(policy, context_.now_ns());
  listeners_.PushBack(listener.get());
  return listener;
}

absl::StatusOr<Connection*> NetworkTransport::Connect(const std::string& address,
                                                      const ConnectOptions& options,
                                                      ConnectionHandler* handler) {
  if (closing_) return absl::FailedPreconditionError("the engine ends");
  WEFT_RETURN_IF_ERROR(CheckLinkOptions(options.link, options.hello));
  WEFT_ASSIGN_OR_RETURN(PathPolicy policy, ReadPathPolicy(options.link));
  WEFT_ASSIGN_OR_RETURN(const ServerAddress server, ParseServerAddress(address));
  if (server.kind == ServerAddress::Kind::kInternet && server.port == 0) {
    return absl::InvalidArgumentError(
        StrCat("address \"", address, "\": nobody can be reached at port 0"));
  }
  WEFT_ASSIGN_OR_RETURN(std::vector<KernelAddress> found, Resolve(server));
  return ControlConnection::Dial(&context_, server, std::move(found), options, std::move(policy),
                                 handler);
}

int NetworkTransport::Poll(int budget, uint64_t) {
  const int done = domains_.Poll(budget);
  if (!HasNews()) [[likely]]
    return done;
  // Replies leave before connections hear their news, which may be a large message whose handler
  // takes long.
  table_.FlushAll();
  return done + TellNews();
}

bool NetworkTransport::HasNews() const {
  return table_.has_events() || !context_.ready.empty() || !context_.retired.empty() ||
         !tls_.line().empty();
}

int NetworkTransport::TellNews() {
  const int done = table_.RunEvents(*context_.engine.clock) + tls_.line().RunTurn() + RunReady();
  DeleteRetired();
  return done;
}

// Those that become ready meanwhile wait for the next turn; so do newcomers that time is too short
// for, in front of them.
int NetworkTransport::RunReady() {
  IntrusiveList<ControlConnection, ReadyTag> now;
  IntrusiveList<ControlConnection, ReadyTag> later;
  now.SpliceBack(context_.ready);
  const uint64_t start_ns = context_.now_ns();
  uint64_t left_ns =
      std::clamp(start_ns - newcomers_ran_ns_, kNewcomersTurnNs, kNewcomersLongestTurnNs);
  int count = 0;
  while (ControlConnection* const connection = now.PopFront()) {
    const bool is_newcomer = connection->is_newcomer();
    if (is_newcomer && left_ns == 0) {
      later.PushBack(connection);
      continue;
    }
    const uint64_t begin_ns = is_newcomer ? context_.now_ns() : 0;
    connection->Run();
    ++count;
    if (!is_newcomer) continue;
    newcomers_ran_ns_ = context_.now_ns();
    left_ns -= std::min(left_ns, newcomers_ran_ns_ - begin_ns);
  }
  later.SpliceBack(context_.ready);
  context_.ready.SpliceBack(later);
  return count;
}

void NetworkTransport::DeleteRetired() {
  while (ControlConnection* retired = context_.retired.PopFront()) delete retired;
}

bool NetworkTransport::Arm() { return !HasNews() && domains_.Arm(); }

}  // namespace weft
