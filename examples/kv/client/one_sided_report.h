// What one-sided Gets did, as a line for people.
//
// Threads:  that of the engine's driver.
#pragma once

#include <string>

#include "absl/strings/str_format.h"
#include "examples/kv/client/one_sided_gets.h"
#include "examples/kv/client/report.h"

namespace kv::client {

inline std::string OneSidedLine(OneSidedGets& gets) {
  const OneSidedStats& stats = gets.stats();
  std::string line = absl::StrFormat(
      "  one-sided: %s records read, %s of them at once, %s seen to be absent, %s read again, "
      "%s got by calls\n",
      WithCommas(stats.records), WithCommas(stats.at_once), WithCommas(stats.absent),
      WithCommas(stats.again + gets.torn_buckets()), WithCommas(stats.calls));
  if (stats.read_errors > 0) {
    absl::StrAppendFormat(&line, "  %s reads failed, the last with %s\n",
                          WithCommas(stats.read_errors), stats.last_error.ToString());
  }
  return line;
}

}  // namespace kv::client
