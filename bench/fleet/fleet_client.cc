#include "bench/fleet/fleet_client.h"

#include <cmath>
#include <utility>

#include "bench/fleet/fleet_server.h"
#include "core/status.h"

namespace weft::bench {

using fleet::Result;

struct FleetClient::UnderWay {
  Result result;
  size_t key = 0;  // its place in keys_
  uint64_t begin_ns = 0;
};

ChannelOptions FleetChannelOptions(uint32_t outstanding) {
  ChannelOptions options;
  options.connect_at_once = false;
  options.max_outstanding_calls = outstanding;
  options.max_streams = 0;
  options.link.window_slots = kFleetWindowSlots;
  options.retry.max_attempts = 3;
  return options;
}

FleetClient::FleetClient(EngineCore& engine, double calls_per_s, uint32_t timeout_us, uint64_t seed)
    : engine_(engine), timeout_us_(timeout_us), gap_ns_(1e9 / calls_per_s), random_(seed) {}

absl::Status FleetClient::Open(const std::string& target, const ChannelOptions& options,
                               const BalancingOptions& balancing) {
  WEFT_ASSIGN_OR_RETURN(auto channel, OpenBalanced(engine_, target, options, balancing));
  channels_.push_back(std::move(channel));
  stubs_.emplace_back(*channels_.back());
  return absl::OkStatus();
}

absl::Status FleetClient::OpenEach(const std::vector<std::string>& addresses,
                                   ChannelOptions options) {
  options.connect_at_once = true;  // else each would connect when its first call comes
  for (const std::string& address : addresses) {
    WEFT_ASSIGN_OR_RETURN(auto channel, Channel::Open(engine_, address, options));
    channels_.push_back(std::move(channel));
    stubs_.emplace_back(*channels_.back());
  }
  return absl::OkStatus();
}

void FleetClient::UseKeys(const std::vector<uint64_t>& keys) {
  keys_ = &keys;
  servers_of_keys_.assign(keys.size(), kNone);
}

void FleetClient::SetRate(double calls_per_s) {
  gap_ns_ = 1e9 / calls_per_s;
  Begin();
}

void FleetClient::Close() {
  stubs_.clear();
  channels_.clear();
}

void FleetClient::Begin() {
  next_ns_ = engine_.clock().NowNs();
  DrawNext();
}

void FleetClient::DrawNext() {
  const double gap_ns = -std::log(1 - random_.UniformDouble()) * gap_ns_;
  next_ns_ += static_cast<uint64_t>(gap_ns);
  engine_.timers().Schedule(this, next_ns_);
}

void FleetClient::OnTimer() {
  while (next_ns_ <= engine_.clock().NowNs()) {
    StartCall();
    DrawNext();
  }
}

void FleetClient::StartCall() {
  task_.set_number(task_.number() + 1);
  auto* const call = new UnderWay;
  call->begin_ns = engine_.clock().NowNs();
  CallOptions options = {.timeout_us = timeout_us_};
  if (keys_ != nullptr) {
    call->key = random_.Uniform(keys_->size());
    options.server_key = (*keys_)[call->key];
  } else if (new_keys_) {
    options.server_key = random_.Next64() | 1;
  }
  fleet::Work::Stub& stub = stubs_[stubs_.size() == 1 ? 0 : random_.Uniform(stubs_.size())];
  stub.Do(task_, &call->result, options, [this, call](const absl::Status& end) {
    OnEnd(*call, end);
    delete call;
  });
}

void FleetClient::OnEnd(const UnderWay& call, const absl::Status& end) {
  if (!end.ok()) {
    ++failed_;
    return;
  }
  if (latency_ != nullptr) latency_->Record(engine_.clock().NowNs() - call.begin_ns);
  if (keys_ == nullptr) return;
  const uint64_t last = std::exchange(servers_of_keys_[call.key], call.result.server());
  moved_ += last != kNone && last != call.result.server();
}

}  // namespace weft::bench
