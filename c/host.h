// A program's log, read.
//
// Threads: pure functions.
#pragma once

#include "absl/status/statusor.h"
#include "core/log.h"
#include "weft/c_host.h"

namespace weft::c {

struct HostLog {
  LogSink sink;
  LogLevel min_level;
};

absl::StatusOr<HostLog> ReadHostLog(const weft_log& given);

}  // namespace weft::c
