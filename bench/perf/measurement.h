// What perf measures, and what comes out.
//
//   kRoundTrip  one request of 64 bytes at a time; the reply is awaited; each round trip is timed.
//   kRate       64 requests of 64 bytes outstanding, each answered by a reply of 64 bytes. Counted
//               are pairs of request and reply.
//   kOneWay     64 messages of 64 bytes outstanding in one direction; the receiver confirms every
//               32nd. Counted are messages. (Raw only: a call always has a reply.)
//   kRead       one one-sided read of 64 bytes at a time; each is timed.
//   kReadRate   64 one-sided reads of 64 bytes outstanding.
//   kWrite      one-sided writes of 1 MiB, a few outstanding. The clock stops when the receiver has
//               confirmed that all of it is in its memory.
//   kBulk       calls whose reply carries 1 MiB, a few outstanding: the client lends memory, the
//               server writes there and then replies. Raw has the same messages and the same
//               one-sided write, by hand.
//   kBulkChecked  kBulk with a CRC32C that the server makes and the client checks. (Weft only.)
//
// Threads: plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/histogram.h"

namespace weft::bench {

enum class Measurement : uint8_t {
  kRoundTrip = 1,
  kRate = 2,
  kOneWay = 3,
  kRead = 4,
  kReadRate = 5,
  kWrite = 6,
  kBulk = 7,
  kBulkChecked = 8,
};

inline constexpr uint32_t kSmallBytes = 64;
inline constexpr uint32_t kOutstanding = 64;
inline constexpr uint32_t kBulkBytes = 1 << 20;
inline constexpr uint32_t kBulkOutstanding = 4;  // enough to keep a loopback wire busy
// What bulk is written to and from, and small reads walk through: 16 different places of 1 MiB,
// more than a cache near a core holds.
inline constexpr size_t kBulkRegionBytes = 16 << 20;
// At the start of each run, what is measured runs for this share of its time without being counted:
// caches and branch predictors belong to the leg that ran before.
inline constexpr double kWarmUpShare = 0.1;

// The result of one run. What the measurement does not yield is 0.
struct Figures {
  double p50_us = 0;
  double p99_us = 0;
  double p999_us = 0;
  double per_s = 0;
  double gbytes_per_s = 0;  // 10^9 bytes
};

Figures RoundTripFigures(const LatencyHistogram& latency);

std::string_view NameOf(Measurement measurement);  // "round_trip"
std::optional<Measurement> MeasurementNamed(std::string_view name);

// One line for pipes between processes, and back. nullopt: not such a line.
std::string ToLine(const Figures& figures);
std::optional<Figures> FiguresFrom(const std::string& line);

}  // namespace weft::bench
