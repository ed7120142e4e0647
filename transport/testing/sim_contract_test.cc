// The contract, on the simulated network.

#include <string>

#include "transport/sim/sim_fabric.h"
#include "transport/sim/sim_network.h"
#include "transport/sim/sim_transport.h"
#include "transport/testing/contract_test.h"

namespace weft {
namespace {

class SimWorld final : public ContractWorld {
 public:
  explicit SimWorld(const SimOptions& options = {})
      : sealed_(options.sealed), network_(/*seed=*/1, options) {}

  EngineCore& client() override { return CoreOf(network_.Node("client")); }
  EngineCore& server() override { return CoreOf(network_.Node("server")); }
  std::string NewAddress() override { return "sim:server" + std::to_string(next_address_++); }
  std::string DeadAddress() override { return "sim:nobody"; }
  bool Run(Function<bool()> done) override {
    const bool result = network_.RunUntil(std::move(done), /*limit_ns=*/100 * kNsPerSec);
    network_.CheckInvariants();
    return result;
  }
  void RunClientOnly() override {
    for (int turn = 0; turn < 10; ++turn) client().Poll();
  }
  void Settle() override {
    network_.Settle();
    network_.CheckInvariants();
  }
  bool is_sealed_by_framing() override { return sealed_; }
  Resources Count() override {
    Resources resources;
    for (const char* name : {"client", "server"}) {
      SimFabric& fabric = network_.fabric();
      SimTransport& transport = *fabric.transport(fabric.IdOf(name));
      const LinkDomainStats& stats = transport.links().stats();
      resources.registrations += stats.registrations_open;
      resources.send_slots += stats.send_slots_in_use;
      resources.receives += stats.receives_posted;
      resources.links += stats.links_open;
    }
    return resources;
  }
  uint64_t RegistrationsEver() override {
    uint64_t sum = 0;
    for (const char* name : {"client", "server"}) {
      SimFabric& fabric = network_.fabric();
      sum += fabric.transport(fabric.IdOf(name))->links().stats().registrations;
    }
    return sum;
  }

 private:
  const bool sealed_;
  SimNetwork network_;
  int next_address_ = 0;
};

std::unique_ptr<ContractWorld> MakeSimWorld() { return std::make_unique<SimWorld>(); }

// Two sizes of batches, as tcp has.
std::unique_ptr<ContractWorld> MakeWideSimWorld() {
  SimOptions options;
  options.slot_bytes = 65536;
  options.usual_slot_bytes = 8192;
  return std::make_unique<SimWorld>(options);
}

std::unique_ptr<ContractWorld> MakeSealedSimWorld() {
  SimOptions options;
  options.sealed = true;
  return std::make_unique<SimWorld>(options);
}

INSTANTIATE_TEST_SUITE_P(Sim, ContractTest,
                         testing::Values(ContractParam{"sim", &MakeSimWorld},
                                         ContractParam{"wide", &MakeWideSimWorld},
                                         ContractParam{"sealed", &MakeSealedSimWorld}),
                         ContractName);

}  // namespace
}  // namespace weft
