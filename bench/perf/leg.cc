#include "bench/perf/leg.h"

#include <utility>

#include "core/status.h"
#include "core/strings.h"

namespace weft::bench {

PairLeg::PairLeg(ProcessPair* pair, Measurement measurement)
    : pair_(pair),
      measurement_(measurement),
      name_(StrCat(pair->options().kind, " ", NameOf(measurement))) {}

absl::StatusOr<std::vector<Sample>> PairLeg::Run(double seconds) {
  WEFT_ASSIGN_OR_RETURN(const Figures figures, pair_->Run(measurement_, seconds));
  return SamplesOf(pair_->options().kind, path(), measurement_, figures);
}

std::vector<Sample> SamplesOf(const std::string& kind, const std::string& path,
                              Measurement measurement, const Figures& figures) {
  const bool is_raw = kind == "raw";
  switch (measurement) {
    case Measurement::kRoundTrip: {
      const std::string stem = StrCat(path, is_raw ? ".raw_rtt_64B." : ".unary_64B.");
      return {{stem + "p50_us", figures.p50_us},
              {stem + "p99_us", figures.p99_us},
              {stem + "p999_us", figures.p999_us}};
    }
    case Measurement::kRate:
      return {
          {StrCat(path, is_raw ? ".raw_rate_64B.per_s" : ".unary_64B.rate_per_s"), figures.per_s}};
    case Measurement::kOneWay:
      return {
          {StrCat(path, is_raw ? ".raw_oneway_64B.per_s" : ".oneway_64B.per_s"), figures.per_s}};
    case Measurement::kRead:
      return {{StrCat(path, is_raw ? ".raw_read_64B.p50_us" : ".read_64B.p50_us"), figures.p50_us}};
    case Measurement::kReadRate:
      return {{StrCat(path, is_raw ? ".raw_read_64B.per_s" : ".read_64B.per_s"), figures.per_s}};
    case Measurement::kWrite:
      return {{StrCat(path, is_raw ? ".raw_write_1MiB.GBps" : ".write_1MiB.GBps"),
               figures.gbytes_per_s}};
    case Measurement::kBulk:
      return {
          {StrCat(path, is_raw ? ".raw_bulk_1MiB.GBps" : ".bulk_1MiB.GBps"), figures.gbytes_per_s}};
    case Measurement::kBulkChecked:
      return {{StrCat(path, ".bulk_1MiB_crc.GBps"), figures.gbytes_per_s}};
  }
  return {};
}

}  // namespace weft::bench
