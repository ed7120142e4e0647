// A server of a simulated fleet: calls take some time each there, as many at a time as it has
// workers; more wait in the order in which they came. It can hang, and answer with errors.
//
// Threads: one, which drives the engine too. Lifetime: Stop() before the engine goes.
// Errors: those of weft::Server.
// Invariants: a call that has come is answered once, unless Stop() comes first.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "bench/fleet/fleet.weft.h"
#include "core/random.h"
#include "core/timer_wheel.h"
#include "rpc/server/server.h"
#include "transport/engine.h"

namespace weft::bench {

// Of a server that shuts down: far more than calls take here.
inline constexpr uint64_t kFleetGraceUs = 10'000'000;
// What a fleet's network and connections have: as little memory for each as will do.
inline constexpr uint32_t kFleetSlotBytes = 512;
inline constexpr uint32_t kFleetWindowSlots = 4;

// What calls take at a server.
struct FleetWork {
  uint32_t service_us = 5000;
  bool always_as_long = false;  // else that is the mean of an exponential distribution
  uint32_t workers = 0;         // so many calls at a time; 0: all that come
  uint32_t outstanding = 8;     // calls of one client: ServerOptions::max_outstanding_calls
};

class FleetServer final : public fleet::Work::Service {
 public:
  enum class Conduct : uint8_t {
    kAnswers = 1,
    kFails = 2,  // answers each call with INTERNAL, at once
    kHangs = 3,  // takes calls and answers none
  };

  FleetServer(EngineCore& engine, uint32_t number, const FleetWork& work, uint64_t seed);
  ~FleetServer() override;

  std::string address() const;
  absl::Status Start();
  // What it holds is answered, too, if it answers again.
  void Conducts(Conduct conduct);
  // What runs here ends, clients leave, and it serves again.
  absl::Status Restart();
  // Before its engine is gone; calls that it holds end as dropped.
  void Stop();

  void StartDo(UnaryCall<fleet::Task, fleet::Result> call) override;

  // --- figures ----------------------------------------------------------------------------------

  // Those of load begin anew.
  void ResetLoad();
  uint64_t calls() const { return calls_; }  // that have come
  // Calls that are here, and wait or run: their mean over the time, and the most at a time.
  double mean_here();
  uint64_t most_here() const { return most_here_; }

  bool is_busy() const { return !here_.empty(); }
  Conduct conduct() const { return conduct_; }
  uint64_t calls_again() const { return calls_ - calls_before_; }  // since Restart()
  // Of all Restart()s.
  uint64_t running_at_shutdown() const { return running_at_shutdown_; }
  uint64_t refused_by_shutdown() const { return refused_by_shutdown_; }
  // Calls that nobody waited for any more when they were answered, while it shut down.
  uint64_t cut_by_shutdown() const { return cut_by_shutdown_; }

 private:
  struct Running;

  void StartWaiting();
  void Answer(Running& running);
  // How many calls are here is about to change.
  void NoteHere();

  EngineCore& engine_;
  const uint32_t number_;
  const FleetWork work_;
  Random random_;
  Conduct conduct_ = Conduct::kAnswers;
  std::vector<std::unique_ptr<Running>> here_;
  std::deque<Running*> waiting_;  // of here_
  uint32_t at_work_ = 0;          // the others of here_
  uint64_t calls_ = 0;
  uint64_t calls_before_ = 0;  // Restart()
  uint64_t running_at_shutdown_ = 0;
  uint64_t refused_by_shutdown_ = 0;
  uint64_t cut_ = 0;  // as cut_by_shutdown_, at any time
  uint64_t cut_by_shutdown_ = 0;
  uint64_t load_since_ns_ = 0;
  uint64_t noted_ns_ = 0;
  double here_ns_ = 0;  // calls, each times its nanoseconds here, since load_since_ns_
  uint64_t most_here_ = 0;
  std::unique_ptr<Server> server_;
};

}  // namespace weft::bench
