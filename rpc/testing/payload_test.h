// A client and a server of the payload service on a simulated network.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "rpc/client/bulk_call.h"
#include "rpc/client/channel.h"
#include "rpc/server/server.h"
#include "rpc/testing/payload_service.h"
#include "transport/sim/sim_fabric.h"
#include "transport/sim/sim_network.h"

namespace weft::test {

// How a callback call ended.
struct ParcelOutcome {
  Parcel reply;
  int completions = 0;
  absl::Status status;

  bool done() const { return completions > 0; }
  Function<void(absl::Status)> Callback() {
    return [this](absl::Status result) {
      ++completions;
      status = std::move(result);
    };
  }
};

// "server" serves PayloadService at "sim:server"; "client" has a channel to it. The wire takes 1 ms
// for 1 MB.
class PayloadTest : public testing::Test {
 protected:
  static constexpr size_t kServerBytes = 8 << 20;

  explicit PayloadTest(const SimOptions& options = {})
      : network_(/*seed=*/1, options), service_(kServerBytes) {}
  ~PayloadTest() override {
    service_.held.clear();
    service_.carried.clear();
    stub_.reset();
    channel_.reset();
    server_.reset();
    network_.Settle();  // peers learn of it
    EXPECT_TRUE(service_.memory().CanariesLive());
  }

  EngineCore& client() { return CoreOf(network_.Node("client")); }
  EngineCore& server_engine() { return CoreOf(network_.Node("server")); }

  void Start(const ChannelOptions& channel = {}, const ServerOptions& server = {}) {
    server_ = *Server::Create(server_engine(), server);
    ASSERT_TRUE(server_->AddService(&service_).ok());
    ASSERT_TRUE(server_->Listen("sim:server").ok());
    OpenChannel(channel);
  }
  void OpenChannel(const ChannelOptions& options = {}) {
    auto channel = Channel::Open(client(), "sim:server", options);
    ASSERT_TRUE(channel.ok()) << channel.status();
    channel_ = *std::move(channel);
    stub_.emplace(*channel_);
  }

  bool RunUntil(Function<bool()> done) {
    const bool result = network_.RunUntil(std::move(done), 100 * kNsPerSec);
    network_.CheckInvariants();
    return result;
  }

  // start(callback) begins what ends with a status: which, when it has ended.
  template <class Start>
  absl::Status EndOf(Start start) {
    std::optional<absl::Status> ended;
    start([&ended](absl::Status status) { ended = std::move(status); });
    EXPECT_TRUE(RunUntil([&] { return ended.has_value(); }));
    return ended.value_or(absl::UnknownError("it did not end"));
  }

  // Starts a held call that lends `bulk`, and waits until the server has it.
  void StartHeld(BulkCall& bulk, ParcelOutcome* outcome, CallOptions options = {}) {
    options.bulk = &bulk;
    const size_t before = service_.held.size();
    stub_->Hold(request_, &outcome->reply, options, outcome->Callback());
    ASSERT_TRUE(RunUntil([&] { return service_.held.size() > before || outcome->done(); }));
    ASSERT_FALSE(outcome->done()) << outcome->status;
  }
  PayloadService::HeldCall TakeHeld() {
    PayloadService::HeldCall call = std::move(service_.held.front());
    service_.held.pop_front();
    return call;
  }

  SimNetwork network_;
  PayloadService service_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<Channel> channel_;
  std::optional<Payloads::Stub> stub_;
  Parcel request_;
};

}  // namespace weft::test
