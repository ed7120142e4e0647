#include "transport/control/path_counters.h"

#include <algorithm>
#include <iterator>

#include "core/strings.h"

namespace weft {

PathCounters::PathCounters(CounterSet* set) : set_(set) {
  for (const Row& row : rows_) {
    set_->Register(StrCat("path.opened.", row.name), &row.opened);
    set_->Register(StrCat("path.rejected.", row.name), &row.rejected);
  }
}

PathCounters::~PathCounters() {
  for (const Row& row : rows_) {
    set_->Unregister(&row.opened);
    set_->Unregister(&row.rejected);
  }
}

void PathCounters::Count(const std::vector<PathCandidate>& candidates) {
  for (const PathCandidate& candidate : candidates) {
    if (candidate.outcome == PathCandidate::Outcome::kChosen) RowOf(candidate).opened.Increment();
    if (candidate.outcome == PathCandidate::Outcome::kRejected) {
      RowOf(candidate).rejected.Increment();
    }
  }
}

// The last row is for kinds of path that a peer made up, as well.
PathCounters::Row& PathCounters::RowOf(const PathCandidate& candidate) {
  const auto found =
      std::find_if(std::begin(rows_), std::prev(std::end(rows_)), [&candidate](const Row& row) {
        return row.kind == candidate.kind &&
               (row.link == LinkKind::kUnknown || row.link == candidate.link);
      });
  return *found;
}

}  // namespace weft
