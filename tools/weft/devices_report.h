// What `weft devices` prints: HostPaths for people, and for programs.
//
// Threads: pure functions.
#pragma once

#include <string>

#include "transport/host_paths.h"

namespace weft::tools {

// A row for each path; below it why it is used or not, and what else is known. Readable in 100
// columns where addresses are short.
std::string DevicesTable(const HostPaths& host);

// One JSON object. Names and meanings of its members are in docs/paths.md and stay; new ones may
// come. What is not known, or does not apply, is null.
std::string DevicesJson(const HostPaths& host);

}  // namespace weft::tools
