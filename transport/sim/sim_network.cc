#include "transport/sim/sim_network.h"

#include <utility>

#include "core/check.h"
#include "transport/sim/sim_fabric.h"
#include "transport/sim/sim_transport.h"

namespace weft {

SimNetwork::SimNetwork(uint64_t seed, const SimOptions& options)
    : fabric_(std::make_unique<SimFabric>(seed, options)) {}

SimNetwork::~SimNetwork() = default;

Engine& SimNetwork::Node(const std::string& name) { return fabric_->NodeEngine(name); }

Clock& SimNetwork::clock() { return fabric_->clock(); }

bool SimNetwork::RunUntil(Function<bool()> done, uint64_t limit_ns) {
  const uint64_t now_ns = fabric_->now_ns();
  const uint64_t until_ns = limit_ns > kNever - now_ns ? kNever : now_ns + limit_ns;
  for (;;) {
    fabric_->PollNodes();
    if (done()) return true;
    if (fabric_->Advance(until_ns, /*timers_count=*/true)) continue;
    // Nothing is to come; but done() may have begun something, as the end of a connection.
    if (fabric_->PollNodes()) continue;
    if (until_ns != kNever) fabric_->MoveTo(until_ns);
    return false;
  }
}

void SimNetwork::RunFor(uint64_t ns) {
  RunUntil([] { return false; }, ns);
}

void SimNetwork::Settle() {
  do {
    fabric_->PollNodes();
  } while (fabric_->Advance(kNever, /*timers_count=*/false));
}

void SimNetwork::SetWire(const std::string& from, const std::string& to, const SimWire& wire) {
  fabric_->SetWire(fabric_->IdOf(from), fabric_->IdOf(to), wire);
}

void SimNetwork::Cut(const std::string& from, const std::string& to) {
  fabric_->Cut(fabric_->IdOf(from), fabric_->IdOf(to));
}

void SimNetwork::Partition(const std::string& a, const std::string& b) {
  Cut(a, b);
  Cut(b, a);
}

void SimNetwork::Heal(const std::string& a, const std::string& b) {
  fabric_->Heal(fabric_->IdOf(a), fabric_->IdOf(b));
  fabric_->Heal(fabric_->IdOf(b), fabric_->IdOf(a));
}

void SimNetwork::Kill(const std::string& name) { fabric_->Kill(fabric_->IdOf(name)); }

void SimNetwork::Freeze(const std::string& name) { fabric_->Freeze(fabric_->IdOf(name)); }

void SimNetwork::Thaw(const std::string& name) { fabric_->Thaw(fabric_->IdOf(name)); }

void SimNetwork::SlowDown(const std::string& name, uint64_t ns_per_batch) {
  fabric_->SlowDown(fabric_->IdOf(name), ns_per_batch);
}

void SimNetwork::StopAnswering(const std::string& name) {
  fabric_->StopAnswering(fabric_->IdOf(name));
}

void SimNetwork::Corrupt(const std::string& from, const std::string& to,
                         Function<void(std::vector<std::byte>&)> change) {
  fabric_->Corrupt(fabric_->IdOf(from), fabric_->IdOf(to), std::move(change));
}

void SimNetwork::SetIdentity(const std::string& name, PeerIdentity identity) {
  fabric_->SetIdentity(fabric_->IdOf(name), std::move(identity));
}

uint64_t SimNetwork::trace_hash() const { return fabric_->trace_hash(); }

const std::vector<std::string>& SimNetwork::trace() const { return fabric_->trace(); }

void SimNetwork::CheckInvariants() {
  for (SimFabric::NodeId node = 0; node < fabric_->node_count(); ++node) {
    if (fabric_->alive(node)) fabric_->transport(node)->CheckInvariants();
  }
}

}  // namespace weft
