#include "examples/verify/history/checker.h"

#include <algorithm>
#include <map>

#include "core/strings.h"
#include "examples/verify/history/key_search.h"

namespace verify {
namespace {

std::map<uint64_t, History> ByKey(const History& history) {
  std::map<uint64_t, History> keys;
  for (const Operation& operation : history) keys[operation.key].push_back(operation);
  for (auto& [key, operations] : keys) {
    std::stable_sort(
        operations.begin(), operations.end(),
        [](const Operation& a, const Operation& b) { return a.invoked_ns < b.invoked_ns; });
  }
  return keys;
}

}  // namespace

Verdict CheckHistory(const History& history, const CheckLimits& limits) {
  Verdict verdict;
  for (const auto& [key, operations] : ByKey(history)) {
    KeySearch search(operations);
    const KeySearch::Result result = search.Run(limits.max_configurations);
    verdict.operations += operations.size();
    verdict.configurations += search.configurations();
    if (result == KeySearch::Result::kFound) continue;
    const bool none = result == KeySearch::Result::kNone;
    verdict.kind = none ? Verdict::Kind::kViolation : Verdict::Kind::kGaveUp;
    verdict.text = weft::StrCat(
        "key ", key, ": ",
        none ? "not linearizable: " + search.Explain()
             : weft::StrCat("gave up after ", search.configurations(), " configurations"));
    return verdict;
  }
  return verdict;
}

}  // namespace verify
