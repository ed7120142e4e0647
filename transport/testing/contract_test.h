// The contract suite: what transport.h promises, as tests that run against every transport.
//
// A transport takes part by a ContractWorld, two engines that can reach each other, and one line:
//
//   INSTANTIATE_TEST_SUITE_P(Shm, ContractTest, testing::Values(ContractParam{"shm", &MakeWorld}),
//                            ContractName);
//
// The tests speak a small language: an Endpoint (endpoint.h) is one end of a connection that
// remembers what it was told; Open() makes a pair of them; Run(until) lets both engines work.
//
// Threads: everything happens on the test's thread.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "core/function.h"
#include "transport/engine.h"
#include "transport/security.h"
#include "transport/testing/endpoint.h"
#include "transport/transport.h"

namespace weft {

// Two engines, driven by the test's thread.
class ContractWorld {
 public:
  // What connections take and must give back.
  struct Resources {
    uint64_t registrations = 0;
    uint64_t send_slots = 0;
    uint64_t receives = 0;
    uint64_t links = 0;
    uint64_t descriptors = 0;  // of the process
    uint64_t threads = 0;
    uint64_t shm_files = 0;
    bool operator==(const Resources&) const = default;
  };

  virtual ~ContractWorld() = default;
  virtual EngineCore& client() = 0;
  virtual EngineCore& server() = 0;
  // Where the server can listen: never in use yet.
  virtual std::string NewAddress() = 0;
  // An address of the right kind where nobody listens.
  virtual std::string DeadAddress() = 0;
  // Lets both engines work until `done`, or for long enough to call it a hang.
  virtual bool Run(Function<bool()> done) = 0;
  // Lets only the client work, for a while: the server is busy elsewhere.
  virtual void RunClientOnly() = 0;
  // Lets both engines work until nothing is under way.
  virtual void Settle() = 0;
  virtual Resources Count() = 0;
  // Of memory, made by both engines since they exist.
  virtual uint64_t RegistrationsEver() = 0;
  // What both sides have of it.
  virtual std::optional<SecurityOptions> security() { return std::nullopt; }
  // Sealed by framing, where a message may overtake a write (remote_access.h).
  virtual bool is_sealed_by_framing() { return false; }
};

// Prints resources in failures.
void PrintTo(const ContractWorld::Resources& resources, std::ostream* out);

struct ContractParam {
  const char* name;
  std::unique_ptr<ContractWorld> (*make)();
};

inline std::string ContractName(const testing::TestParamInfo<ContractParam>& info) {
  return info.param.name;
}

class ContractTest : public testing::TestWithParam<ContractParam> {
 protected:
  ContractTest() : world_(GetParam().make()) {}
  ~ContractTest() override;

  // Makes sure that the server listens.
  void Listen(const ListenOptions& options = {});
  // Starts to connect `endpoint`; the result comes with Run().
  void Connect(Endpoint& endpoint, const ConnectOptions& options = {});
  // A connected pair: client_ and server_end().
  void Open(const ConnectOptions& connect = {}, const ListenOptions& listen = {});
  Endpoint& server_end() { return *acceptor_.endpoints.back(); }

  bool Run(Function<bool()> done) { return world_->Run(std::move(done)); }
  void CloseClient();

  std::unique_ptr<ContractWorld> world_;
  TestAcceptor acceptor_;
  std::unique_ptr<Listener> listener_;
  Endpoint client_;
};

}  // namespace weft
