#include "tools/weft/explain_server.h"

#include <memory>
#include <utility>

#include "core/clock.h"
#include "core/status.h"
#include "core/strings.h"
#include "rpc/wire/frame.h"
#include "rpc/wire/hello.pb.h"
#include "transport/engine.h"
#include "transport/network.h"

namespace weft::tools {
namespace {

std::string ClientHelloText() {
  rpc::ClientHello hello;
  hello.set_protocol(kRpcProtocolVersion);
  hello.set_max_outstanding_calls(1);
  return hello.SerializeAsString();
}

std::string DescribeServer(const std::string& hello) {
  rpc::ServerHello server;
  if (!server.ParseFromString(hello) || server.protocol() == 0) {
    return "a server of plain messages: its hello is not one of the call protocol";
  }
  std::string text = server.name();
  for (const rpc::ServiceTable& service : server.services()) {
    text = StrCat(text, text.empty() ? "serves " : ", ", service.name());
  }
  return text;
}

// Not counted, at the start: they wake the server.
constexpr uint32_t kWakingProbes = 10;

// The client: waits for the end of the handshake, then sends one probe after the other.
class Visitor final : public ConnectionHandler, private Operation {
 public:
  Visitor(EngineCore* engine, const ExplainOptions& options, Explanation* explanation)
      : engine_(engine), options_(options), explanation_(explanation) {}

  // REQUIRES: the caller drives the engine.
  void Visit() {
    const uint64_t started_ns = Now();
    ConnectOptions options;
    options.link = options_.link;
    options.security = options_.security;
    options.hello = ClientHelloText();
    const auto connection = engine_->transport().Connect(explanation_->address, options, this);
    explanation_->connected = connection.status();
    if (!connection.ok()) return;
    engine_->Wait(decided_);
    explanation_->connect_ns = Now() - started_ns;
    if (connection_ == nullptr) return;
    if (options_.probes > 0) explanation_->measured = MeasureBoth();
    Leave();
  }

 private:
  static uint64_t Now() { return Clock::Real().NowNs(); }

  void Leave() {
    if (connection_ == nullptr) return;
    connection_->Close("explained");
    engine_->Wait(closed_);
  }

  absl::Status MeasureBoth() {
    const uint64_t deadline_ns = Now() + options_.probe_timeout_ns;
    LatencyHistogram waking;
    WEFT_RETURN_IF_ERROR(Measure(kWakingProbes, &waking, deadline_ns));
    WEFT_RETURN_IF_ERROR(Measure(options_.probes, &explanation_->round_trips, deadline_ns));
    for (uint32_t i = 0; i < options_.paused_probes; ++i) {
      Pause();
      WEFT_RETURN_IF_ERROR(Measure(1, &explanation_->paused_round_trips, deadline_ns));
    }
    return absl::OkStatus();
  }

  void Pause() {
    Waiter never;
    engine_->Wait(never, Now() + kPauseNs);
  }

  // `count` round trips, one after the other.
  absl::Status Measure(uint32_t count, LatencyHistogram* times, uint64_t deadline_ns) {
    if (connection_ == nullptr) return why_closed_;
    Waiter measured;
    measured_ = &measured;
    times_ = times;
    left_ = count;
    SendProbe();
    if (!engine_->Wait(measured, deadline_ns)) {
      measured_ = nullptr;
      return absl::DeadlineExceededError(
          StrCat("not all round trips within ", options_.probe_timeout_ns / kNsPerSec, " s"));
    }
    return result_;
  }

  void OnOpen(Connection& connection) override {
    connection_ = &connection;
    explanation_->path = connection.path();
    explanation_->candidates = connection.candidates();
    explanation_->server = DescribeServer(connection.peer_hello());
    engine_->Finish(decided_);
  }
  void OnMessage(Connection&, ByteSpan) override {}  // nothing was asked for
  void OnWritable(Connection&) override {
    if (waits_for_room_ && measured_ != nullptr) SendProbe();
  }
  void OnClosed(Connection& connection, const absl::Status& why) override {
    if (connection_ == nullptr) {
      explanation_->connected = why;
      explanation_->candidates = connection.candidates();
      return engine_->Finish(decided_);
    }
    connection_ = nullptr;
    why_closed_ = why;
    FinishMeasuring(why);
    engine_->Finish(closed_);
  }

  void SendProbe() {
    sent_ns_ = Now();
    const absl::Status sent = connection_->memory().Probe(this);
    waits_for_room_ = absl::IsResourceExhausted(sent);
    if (!sent.ok() && !waits_for_room_) FinishMeasuring(sent);
  }
  void OnComplete(const absl::Status& status) override {
    if (measured_ == nullptr) return;
    if (!status.ok()) return FinishMeasuring(status);
    times_->Record(Now() - sent_ns_);
    if (--left_ == 0) return FinishMeasuring(absl::OkStatus());
    SendProbe();
  }
  void FinishMeasuring(const absl::Status& status) {
    Waiter* const measured = std::exchange(measured_, nullptr);
    if (measured == nullptr) return;
    result_ = status;
    engine_->Finish(*measured);
  }

  EngineCore* const engine_;
  const ExplainOptions& options_;
  Explanation* const explanation_;
  Connection* connection_ = nullptr;  // open
  absl::Status why_closed_;
  Waiter decided_;
  Waiter closed_;
  // Of the measurement under way.
  Waiter* measured_ = nullptr;  // null: there is none
  LatencyHistogram* times_ = nullptr;
  uint32_t left_ = 0;  // round trips
  absl::Status result_;
  uint64_t sent_ns_ = 0;
  bool waits_for_room_ = false;
};

}  // namespace

Explanation ExplainServer(const std::string& address, const ExplainOptions& options) {
  Explanation explanation;
  explanation.address = address;
  EngineOptions engine_options;
  engine_options.drive = EngineOptions::Drive::kCaller;
  auto engine = OpenNetworkEngine(engine_options);
  if (!engine.ok()) {
    explanation.connected = engine.status();
    return explanation;
  }
  EngineCore& core = CoreOf(**engine);
  auto visitor = std::make_unique<Visitor>(&core, options, &explanation);
  core.Enter();
  visitor->Visit();
  core.Leave();
  engine->reset();  // before its handler
  return explanation;
}

}  // namespace weft::tools
