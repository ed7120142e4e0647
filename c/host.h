// A program's log, read.
//
// Threads: pure functions.
#pragma once

#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/log.h"
#include "weft/c_host.h"

namespace weft::c {

struct HostLog {
  LogSink sink;
  LogLevel min_level;
};

absl::StatusOr<HostLog> ReadHostLog(const weft_log& given);
// That of an engine or a server: into *log, and *to points there. Null: none, and nothing changes.
absl::Status ReadLog(const weft_log* given, std::optional<Log>* log, Log** to);

}  // namespace weft::c
