// One subcommand of `weft`: a row of the table in main.cc.
//
// Adding one: a header with its function, a source, and its row. What it knows of networks comes
// from transport/*.h.
#pragma once

#include <string>
#include <vector>

namespace weft::tools {

// Exit statuses of every subcommand.
inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;  // it was tried; standard error says why not
inline constexpr int kUsage = 2;   // the command line is wrong; nothing was done

struct Command {
  const char* name;       // "devices"
  const char* arguments;  // "[--json]"; "" where it takes none
  const char* summary;    // one line for `weft help`
  const char* details;    // for `weft help NAME`: whole lines, or ""
  // Gets what stands behind the name; returns an exit status.
  int (*run)(const std::vector<std::string>& arguments);
};

}  // namespace weft::tools
