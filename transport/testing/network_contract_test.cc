// The contract, on shm, tcp and ofi_tcp, and on verbs where there is RDMA; and sealed: by TLS on
// tcp, by framing on the others.

#include <cstdlib>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/testing/descriptors.h"
#include "transport/control/network_transport.h"
#include "transport/control/rdma_offers.h"
#include "transport/network.h"
#include "transport/testing/contract_test.h"
#include "transport/testing/test_memory.h"

namespace weft {
namespace {

// Two engines of this process that meet over one kind of path.
class NetworkWorld final : public ContractWorld {
 public:
  explicit NetworkWorld(const char* paths, bool memory_in_files = false,
                        const NetworkOptions& options = {}) {
    TestMemory::UseFiles(memory_in_files);
    setenv("WEFT_PATHS", paths, /*overwrite=*/1);
    client_ = NewEngine(options);
    server_ = NewEngine(options);
  }
  ~NetworkWorld() override {
    client_.reset();
    server_.reset();
    unsetenv("WEFT_PATHS");
    TestMemory::UseFiles(false);
  }

  EngineCore& client() override { return CoreOf(*client_); }
  EngineCore& server() override { return CoreOf(*server_); }
  std::string NewAddress() override { return "127.0.0.1:0"; }
  std::string DeadAddress() override { return "127.0.0.1:1"; }

  bool Run(Function<bool()> done) override {
    const uint64_t give_up_ns = Now() + 240 * kNsPerSec;  // then it is a hang
    while (!done()) {
      Turn();
      if (Now() > give_up_ns) return false;
    }
    return true;
  }
  void RunClientOnly() override {
    for (int turn = 0; turn < 1'000; ++turn) client_->Poll();
  }
  // Nothing has happened for longer than the engines wait between looks at their descriptors, and
  // not because this process did not run.
  void Settle() override {
    constexpr int kIdleTurns = 20'000;
    const uint64_t give_up_ns = Now() + 10 * kNsPerSec;
    uint64_t idle_since_ns = Now();
    int idle_turns = 0;
    while (idle_turns < kIdleTurns || Now() - idle_since_ns < 5 * kNsPerMs) {
      ++idle_turns;
      if (Now() > give_up_ns) return;
      if (Turn() == 0) continue;
      idle_turns = 0;
      idle_since_ns = Now();
    }
  }
  Resources Count() override {
    Resources resources;
    for (Engine* engine : {client_.get(), server_.get()}) {
      const LinkDomainStats stats =
          static_cast<NetworkTransport&>(engine->transport()).domain_stats();
      resources.registrations += stats.registrations_open;
      resources.send_slots += stats.send_slots_in_use;
      resources.receives += stats.receives_posted;
      resources.links += stats.links_open;
    }
    resources.descriptors = static_cast<uint64_t>(CountDescriptors());
    resources.threads = EntriesOf("/proc/self/task").size();
    resources.shm_files = EntriesOf("/dev/shm").size();
    return resources;
  }
  std::optional<SecurityOptions> security() override { return security_; }
  bool is_sealed_by_framing() override { return security_.has_value() && !seals_by_tls_; }
  void UseSecurity(bool by_tls) {
    seals_by_tls_ = by_tls;
    security_.emplace();
    security_->psk_name = "contract";
    security_->psk_secret = std::string(kMinPskBytes, 's');
  }
  uint64_t RegistrationsEver() override {
    uint64_t sum = 0;
    for (Engine* engine : {client_.get(), server_.get()}) {
      sum += static_cast<NetworkTransport&>(engine->transport()).domain_stats().registrations;
    }
    return sum;
  }

 private:
  static uint64_t Now() { return Clock::Real().NowNs(); }
  static std::unique_ptr<Engine> NewEngine(const NetworkOptions& network) {
    EngineOptions options;
    options.drive = EngineOptions::Drive::kExternal;
    auto engine = OpenNetworkEngine(options, network);
    EXPECT_TRUE(engine.ok()) << engine.status();
    return *std::move(engine);
  }
  int Turn() { return client_->Poll() + server_->Poll(); }

  std::optional<SecurityOptions> security_;
  bool seals_by_tls_ = false;
  std::unique_ptr<Engine> client_;
  std::unique_ptr<Engine> server_;
};

std::unique_ptr<ContractWorld> MakeShmWorld() { return std::make_unique<NetworkWorld>("shm"); }
std::unique_ptr<ContractWorld> MakeMappedShmWorld() {
  return std::make_unique<NetworkWorld>("shm", /*memory_in_files=*/true);
}
std::unique_ptr<ContractWorld> MakeAskingShmWorld() {
  NetworkOptions asking;
  asking.shm_mappings = asking.shm_system_calls = false;
  return std::make_unique<NetworkWorld>("shm", /*memory_in_files=*/false, asking);
}
std::unique_ptr<ContractWorld> MakeTcpWorld() { return std::make_unique<NetworkWorld>("tcp"); }
std::unique_ptr<ContractWorld> MakeOfiTcpWorld() {
  return std::make_unique<NetworkWorld>("ofi_tcp");
}

std::unique_ptr<ContractWorld> Sealed(const char* paths, bool by_tls = false) {
  auto world = std::make_unique<NetworkWorld>(paths);
  world->UseSecurity(by_tls);
  return world;
}
std::unique_ptr<ContractWorld> MakeSealedTcpWorld() { return Sealed("tcp", /*by_tls=*/true); }
std::unique_ptr<ContractWorld> MakeSealedOfiTcpWorld() { return Sealed("ofi_tcp"); }
std::unique_ptr<ContractWorld> MakeSealedVerbsWorld() { return Sealed("verbs"); }

std::unique_ptr<ContractWorld> MakeVerbsWorld() { return std::make_unique<NetworkWorld>("verbs"); }

std::string WhyNoVerbs() {
  RdmaOffers offers([] { return ReadRdmaView(/*wanted_lock_bytes=*/0); });
  const PathOffer best = offers.Choose({}, Clock::Real().NowNs())[0];
  if (best.unavailable.empty()) return "";
  return "no usable RDMA port here, so the contract is not tested over verbs: " + best.unavailable;
}

INSTANTIATE_TEST_SUITE_P(Network, ContractTest,
                         testing::Values(ContractParam{"shm", &MakeShmWorld},
                                         ContractParam{"shm_mapped", &MakeMappedShmWorld},
                                         ContractParam{"shm_asking", &MakeAskingShmWorld},
                                         ContractParam{"tcp", &MakeTcpWorld},
                                         ContractParam{"tcp_sealed", &MakeSealedTcpWorld},
                                         ContractParam{"ofi_tcp", &MakeOfiTcpWorld},
                                         ContractParam{"ofi_tcp_sealed", &MakeSealedOfiTcpWorld}),
                         ContractName);
// Only where there is RDMA: ./dev lab has it.
std::vector<ContractParam> VerbsWorlds() {
  if (!WhyNoVerbs().empty()) return {};
  return {ContractParam{"verbs", &MakeVerbsWorld},
          ContractParam{"verbs_sealed", &MakeSealedVerbsWorld}};
}
INSTANTIATE_TEST_SUITE_P(Verbs, ContractTest, testing::ValuesIn(VerbsWorlds()), ContractName);

// Stands for all of them where there is none.
TEST(VerbsContract, IsTested) {
  if (const std::string why = WhyNoVerbs(); !why.empty()) GTEST_SKIP() << why;
}

}  // namespace
}  // namespace weft
