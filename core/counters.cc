#include "core/counters.h"

#include <algorithm>
#include <map>

#include "core/fork_guard.h"

namespace weft {

CounterSet::CounterSet() : forks_(ForkCount()) {}

void CounterSet::Register(std::string_view name, const Counter* counter) {
  std::lock_guard<std::mutex> lock(mutex_);
  entries_.push_back({std::string(name), counter});
}

void CounterSet::Unregister(const Counter* counter) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto entry = std::find_if(entries_.begin(), entries_.end(),
                                  [counter](const Entry& e) { return e.counter == counter; });
  if (entry == entries_.end()) return;
  const auto retired = std::find_if(retired_.begin(), retired_.end(),
                                    [&](const auto& r) { return r.first == entry->name; });
  if (retired != retired_.end()) {
    retired->second += counter->value();
  } else {
    retired_.emplace_back(entry->name, counter->value());
  }
  entries_.erase(entry);
}

CounterSet::Values CounterSet::Snapshot() const {
  if (forks_ != ForkCount()) return {};
  std::map<std::string, uint64_t> sums;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [name, value] : retired_) sums[name] += value;
    for (const Entry& entry : entries_) sums[entry.name] += entry.counter->value();
  }
  return Values(sums.begin(), sums.end());
}

}  // namespace weft
