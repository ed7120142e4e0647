// A call that belongs to a test, for the parts of a client's connection that hold calls.
#pragma once

#include <memory>
#include <utility>

#include "rpc/client/client_call.h"
#include "rpc/client/client_connection.h"
#include "rpc/testing/loopback.h"

namespace weft::test {

// What a call refers to: a client that never connects.
class IdleClient {
 public:
  IdleClient() = default;
  ~IdleClient() { client_->Shutdown(); }
  IdleClient(const IdleClient&) = delete;
  IdleClient& operator=(const IdleClient&) = delete;

  ClientCalls& calls() { return client_->calls(); }

 private:
  const std::unique_ptr<Engine> engine_ = *OpenLoopbackEngine();
  // Deletes itself.
  ClientConnection* const client_ = new ClientConnection(CoreOf(*engine_), "nowhere", {});
};

class TestCall final : public ClientCall {
 public:
  explicit TestCall(IdleClient& client) : ClientCall(client.calls(), Kind::kBlocking) {}

  void Complete(absl::Status status) override {
    ++ends;
    outcome = std::move(status);
  }

  int ends = 0;
  absl::Status outcome;
};

}  // namespace weft::test
