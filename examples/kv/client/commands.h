// The commands of kv_client. Results go to stdout, errors and progress to stderr.
//
// Threads:  main()'s.
// Errors:   what went wrong, for the user; CANCELLED after Ctrl-C.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "examples/kv/client/command_line.h"
#include "examples/kv/client/session.h"

namespace kv::client {

// Of one call each.
absl::Status Get(Session& session, const std::string& key);
absl::Status Put(Session& session, const std::string& key, const std::string& value);
absl::Status Delete(Session& session, const std::string& key);
absl::Status Scan(Session& session, const std::string& start, uint32_t limit);
absl::Status Explain(Session& session);

// Of a file (dataset.h), with session.outstanding calls under way.
absl::Status Load(Session& session, const std::string& path);
// DATA_LOSS when a value differs or is missing.
absl::Status Verify(Session& session, const std::string& path);

// Works on few keys for so long, and has what it saw checked for linearizability. DATA_LOSS: it is
// not. The first error of a call, if it is.
absl::Status Check(Session& session, double seconds);

// The workloads of the options, one after the other.
absl::Status Ycsb(Session& session, const YcsbOptions& options);

}  // namespace kv::client
