// An explanation as people and programs read it.
//
// Threads: pure functions.
#pragma once

#include <string>

#include "tools/weft/explain_server.h"

namespace weft::tools {

std::string ExplainText(const Explanation& explanation);
std::string ExplainJson(const Explanation& explanation);

}  // namespace weft::tools
