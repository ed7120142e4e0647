// Makes a known number of calls of one method, a window of them at a time: load and verify.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/clock.h"
#include "core/function.h"
#include "core/histogram.h"
#include "examples/kv/client/closed_loop.h"
#include "examples/kv/client/progress.h"
#include "examples/kv/client/session.h"

namespace kv::client {

// What came of it.
struct Outcome {
  uint64_t completed = 0;  // calls whose result was accepted
  absl::Status error;      // of the call that ended it early
  bool interrupted = false;
  double seconds = 0;
  weft::LatencyHistogram latency;

  double PerSecond() const { return seconds > 0 ? static_cast<double>(completed) / seconds : 0; }
};

// Calls number 0 to total - 1 of `method`, of the stub or of whatever stands for it, started in
// this order.
//
// `fill` writes the request of a call, over that of an earlier one. `check` looks at its result; an
// error from it ends the whole: nothing more is started, what is under way is waited for.
template <class Request, class Reply>
class CallAll {
 public:
  using StubMethod = void (Kv::Stub::*)(const Request&, Reply*, const weft::CallOptions&,
                                        weft::Function<void(absl::Status)>) const;
  // Starts one call; `lane` has no other.
  using Method = std::function<void(uint32_t lane, const Request& request, Reply* reply,
                                    weft::Function<void(absl::Status)> done)>;
  using Fill = std::function<void(uint64_t number, Request* request)>;
  using Check =
      std::function<absl::Status(uint64_t number, const absl::Status& status, const Reply& reply)>;

  CallAll(Session& session, Method method, uint64_t total, Fill fill, Check check)
      : session_(session),
        method_(std::move(method)),
        total_(total),
        fill_(std::move(fill)),
        check_(std::move(check)),
        lanes_(session.outstanding),
        loop_(session.channel.engine(), session.outstanding,
              [this](uint32_t lane) { return Start(lane); }) {}

  CallAll(Session& session, StubMethod method, uint64_t total, Fill fill, Check check)
      : CallAll(
            session,
            [&session, method](uint32_t, const Request& request, Reply* reply,
                               weft::Function<void(absl::Status)> done) {
              (session.kv.*method)(request, reply, session.call, std::move(done));
            },
            total, std::move(fill), std::move(check)) {}

  // `label` and `unit` for the progress line.
  Outcome Run(const std::string& label, const std::string& unit) {
    Progress progress(label, unit);
    const uint64_t start_ns = session_.NowNs();
    loop_.Run([&] {
      progress.Update(static_cast<double>(outcome_.completed) / static_cast<double>(total_),
                      outcome_.completed);
      outcome_.interrupted = outcome_.interrupted || session_.StopRequested();
      return !outcome_.interrupted;
    });
    outcome_.seconds = static_cast<double>(session_.NowNs() - start_ns) / weft::kNsPerSec;
    return std::move(outcome_);
  }

 private:
  struct Lane {
    uint64_t number = 0;
    uint64_t start_ns = 0;
    Request request;
    Reply reply;
  };

  bool Start(uint32_t index) {
    if (next_ == total_) return false;
    Lane& lane = lanes_[index];
    lane.number = next_++;
    fill_(lane.number, &lane.request);
    lane.start_ns = session_.NowNs();
    method_(index, lane.request, &lane.reply,
            [this, index](absl::Status status) { Done(index, status); });
    return true;
  }

  void Done(uint32_t index, const absl::Status& status) {
    const Lane& lane = lanes_[index];
    outcome_.latency.Record(session_.NowNs() - lane.start_ns);
    absl::Status verdict = check_(lane.number, status, lane.reply);
    if (verdict.ok()) {
      ++outcome_.completed;
    } else {
      if (outcome_.error.ok()) outcome_.error = std::move(verdict);
      loop_.Stop();
    }
    loop_.Done(index);
  }

  Session& session_;
  const Method method_;
  const uint64_t total_;
  const Fill fill_;
  const Check check_;
  uint64_t next_ = 0;
  Outcome outcome_;
  std::vector<Lane> lanes_;
  ClosedLoop loop_;
};

}  // namespace kv::client
