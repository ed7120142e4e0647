// Figures as a person reads them, and as a script does.
//
// Threads:  all functions are pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/histogram.h"

namespace kv::client {

// 1234567 -> "1,234,567".
std::string WithCommas(uint64_t number);

// Three digits and a unit that suits them: "640 ns", "12.4 us", "3.21 ms", "1.50 s".
std::string Duration(uint64_t ns);

// Head and lines of a table of latencies: count, p50, p99, p99.9, maximum.
std::string LatencyHead();
std::string LatencyLine(std::string_view name, const weft::LatencyHistogram& latency);

}  // namespace kv::client
