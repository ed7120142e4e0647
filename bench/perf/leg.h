// One thing that perf measures again and again: a measurement, of one kind, on one path.
//
// Threads: one. Lifetime: the pair outlives its legs.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/perf/measurement.h"
#include "bench/perf/process_pair.h"

namespace weft::bench {

struct Sample {
  std::string metric;  // "shm.raw_rtt_64B.p50_us"
  double value = 0;
};

class Leg {
 public:
  virtual ~Leg() = default;
  virtual const std::string& name() const = 0;  // "raw round_trip"
  virtual const std::string& path() const = 0;  // "shm"
  virtual absl::StatusOr<std::vector<Sample>> Run(double seconds) = 0;
};

// A leg run by two worker processes.
class PairLeg final : public Leg {
 public:
  PairLeg(ProcessPair* pair, Measurement measurement);

  const std::string& name() const override { return name_; }
  const std::string& path() const override { return pair_->options().path.name; }
  absl::StatusOr<std::vector<Sample>> Run(double seconds) override;

 private:
  ProcessPair* const pair_;
  const Measurement measurement_;
  const std::string name_;
};

// The metrics of one run of `kind` ("raw", "weft") on `path`.
std::vector<Sample> SamplesOf(const std::string& kind, const std::string& path,
                              Measurement measurement, const Figures& figures);

}  // namespace weft::bench
