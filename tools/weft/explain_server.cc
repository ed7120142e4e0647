#include "tools/weft/explain_server.h"

#include <memory>
#include <utility>

#include "core/clock.h"
#include "core/strings.h"
#include "rpc/frame.h"
#include "rpc/hello.pb.h"
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

// The client: waits for the end of the handshake, then sends one probe after the other.
class Visitor final : public ConnectionHandler, private Operation {
 public:
  Visitor(Engine* engine, const ExplainOptions& options, Explanation* explanation)
      : engine_(engine), options_(options), explanation_(explanation) {}

  // REQUIRES: the caller drives the engine.
  void Visit() {
    const uint64_t started_ns = Now();
    ConnectOptions options;
    options.link = options_.link;
    options.hello = ClientHelloText();
    const auto connection = engine_->transport().Connect(explanation_->address, options, this);
    explanation_->connected = connection.status();
    if (!connection.ok()) return;
    engine_->Wait(decided_);
    explanation_->connect_ns = Now() - started_ns;
    if (connection_ == nullptr || options_.probes == 0) return Leave();
    measuring_ = true;
    SendProbe();
    if (!engine_->Wait(measured_, Now() + options_.probe_timeout_ns)) {
      explanation_->measured = absl::DeadlineExceededError(
          StrCat("not all round trips within ", options_.probe_timeout_ns / kNsPerSec, " s"));
      measuring_ = false;
    }
    Leave();
  }

 private:
  static uint64_t Now() { return Clock::Real().NowNs(); }

  void Leave() {
    if (connection_ == nullptr) return;
    connection_->Close("explained");
    engine_->Wait(closed_);
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
    if (waits_for_room_ && measuring_) SendProbe();
  }
  void OnClosed(Connection& connection, const absl::Status& why) override {
    if (connection_ == nullptr) {
      explanation_->connected = why;
      explanation_->candidates = connection.candidates();
      return engine_->Finish(decided_);
    }
    connection_ = nullptr;
    FinishMeasuring(why);
    engine_->Finish(closed_);
  }

  void SendProbe() {
    sent_ns_ = Now();
    const absl::Status sent = connection_->Probe(this);
    waits_for_room_ = absl::IsResourceExhausted(sent);
    if (!sent.ok() && !waits_for_room_) FinishMeasuring(sent);
  }
  void OnComplete(const absl::Status& status) override {
    if (!measuring_) return;
    if (!status.ok()) return FinishMeasuring(status);
    explanation_->round_trips.Record(Now() - sent_ns_);
    if (explanation_->round_trips.count() == options_.probes) {
      return FinishMeasuring(absl::OkStatus());
    }
    SendProbe();
  }
  void FinishMeasuring(const absl::Status& status) {
    if (!std::exchange(measuring_, false)) return;
    explanation_->measured = status;
    engine_->Finish(measured_);
  }

  Engine* const engine_;
  const ExplainOptions& options_;
  Explanation* const explanation_;
  Connection* connection_ = nullptr;  // open
  Waiter decided_;
  Waiter measured_;
  Waiter closed_;
  uint64_t sent_ns_ = 0;
  bool measuring_ = false;
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
  auto visitor = std::make_unique<Visitor>(engine->get(), options, &explanation);
  (*engine)->Enter();
  visitor->Visit();
  (*engine)->Leave();
  engine->reset();  // before its handler
  return explanation;
}

}  // namespace weft::tools
