#include "bench/fleet/fleet_server.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/status.h"
#include "core/strings.h"

namespace weft::bench {

using fleet::Result;
using fleet::Task;

struct FleetServer::Running final : Timer {
  Running(FleetServer& its_server, UnaryCall<Task, Result> its_call)
      : server(its_server), call(std::move(its_call)) {}
  void OnTimer() override { server.Answer(*this); }
  FleetServer& server;
  UnaryCall<Task, Result> call;
};

FleetServer::FleetServer(EngineCore& engine, uint32_t number, const FleetWork& work, uint64_t seed)
    : engine_(engine), number_(number), work_(work), random_(seed) {}

FleetServer::~FleetServer() = default;

std::string FleetServer::address() const { return StrCat("sim:s", number_); }

absl::Status FleetServer::Start() {
  ServerOptions options;
  options.max_outstanding_calls = work_.outstanding;
  options.max_streams = 0;
  options.link.window_slots = kFleetWindowSlots;
  options.max_connections = 65536;
  WEFT_ASSIGN_OR_RETURN(server_, Server::Create(engine_, options));
  WEFT_RETURN_IF_ERROR(server_->AddService(this));
  return server_->Listen(address());
}

void FleetServer::Conducts(Conduct conduct) {
  conduct_ = conduct;
  StartWaiting();
}

absl::Status FleetServer::Restart() {
  running_at_shutdown_ += here_.size();
  const uint64_t cut_before = cut_;
  const uint64_t refused_before = server_->stats().refused;
  server_->Shutdown(kFleetGraceUs);
  cut_by_shutdown_ += cut_ - cut_before;
  refused_by_shutdown_ += server_->stats().refused - refused_before;
  server_.reset();
  calls_before_ = calls_;
  return Start();
}

void FleetServer::Stop() {
  waiting_.clear();
  here_.clear();
  server_.reset();
}

// --- calls --------------------------------------------------------------------------------------

void FleetServer::StartDo(UnaryCall<Task, Result> call) {
  ++calls_;
  if (conduct_ == Conduct::kFails) {
    call.Finish(absl::InternalError("this server of the fleet is to fail"));
    return;
  }
  NoteHere();
  here_.push_back(std::make_unique<Running>(*this, std::move(call)));
  most_here_ = std::max<uint64_t>(most_here_, here_.size());
  waiting_.push_back(here_.back().get());
  StartWaiting();
}

void FleetServer::StartWaiting() {
  if (conduct_ == Conduct::kHangs) return;
  while (!waiting_.empty() && (work_.workers == 0 || at_work_ < work_.workers)) {
    Running* const running = waiting_.front();
    waiting_.pop_front();
    ++at_work_;
    const double mean_ns = work_.service_us * 1e3;
    const double ns =
        work_.always_as_long ? mean_ns : -std::log(1 - random_.UniformDouble()) * mean_ns;
    engine_.timers().Schedule(running, engine_.clock().NowNs() + static_cast<uint64_t>(ns));
  }
}

void FleetServer::Answer(Running& running) {
  NoteHere();
  --at_work_;
  cut_ += running.call.context().cancelled();
  running.call.reply()->set_server(number_);
  running.call.Finish(absl::OkStatus());
  std::erase_if(here_, [&](const auto& one) { return one.get() == &running; });
  StartWaiting();
}

// --- figures ------------------------------------------------------------------------------------

void FleetServer::NoteHere() {
  const uint64_t now_ns = engine_.clock().NowNs();
  here_ns_ += static_cast<double>(here_.size()) * static_cast<double>(now_ns - noted_ns_);
  noted_ns_ = now_ns;
}

void FleetServer::ResetLoad() {
  calls_ = 0;
  calls_before_ = 0;
  most_here_ = here_.size();
  here_ns_ = 0;
  load_since_ns_ = noted_ns_ = engine_.clock().NowNs();
}

double FleetServer::mean_here() {
  NoteHere();
  return here_ns_ / static_cast<double>(std::max<uint64_t>(1, noted_ns_ - load_since_ns_));
}

}  // namespace weft::bench
