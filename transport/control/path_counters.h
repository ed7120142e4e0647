// What became of candidate paths, as counters of the engine:
//
//   path.opened.shm, path.opened.verbs.roce_v2, ...    connections that this path carries or has
//                                                      carried
//   path.rejected.shm, path.rejected.verbs.iwarp, ...  candidates that a handshake rejected,
//                                                      whether it opened a connection or not
//
// Threads: counted by the engine's; read by any (core/counters.h).
#pragma once

#include <string>
#include <vector>

#include "core/counters.h"
#include "transport/path.h"

namespace weft {

class PathCounters {
 public:
  // `set` outlives this.
  explicit PathCounters(CounterSet* set);
  ~PathCounters();

  // A handshake has ended, with a chosen candidate or with none.
  void Count(const std::vector<PathCandidate>& candidates);

 private:
  struct Row {
    PathKind kind;
    LinkKind link;  // kUnknown: of this kind, whatever it is
    const char* name;
    Counter opened = {};
    Counter rejected = {};
  };
  Row& RowOf(const PathCandidate& candidate);

  CounterSet* const set_;
  Row rows_[8] = {
      {PathKind::kShm, LinkKind::kUnknown, "shm"},
      {PathKind::kTcp, LinkKind::kUnknown, "tcp"},
      {PathKind::kOfiTcp, LinkKind::kUnknown, "ofi_tcp"},
      {PathKind::kVerbs, LinkKind::kInfiniBand, "verbs.infiniband"},
      {PathKind::kVerbs, LinkKind::kRoceV2, "verbs.roce_v2"},
      {PathKind::kVerbs, LinkKind::kRoceV1, "verbs.roce_v1"},
      {PathKind::kVerbs, LinkKind::kIwarp, "verbs.iwarp"},
      {PathKind::kVerbs, LinkKind::kUnknown, "verbs.unknown"},  // no device, or a denied kind
  };
};

}  // namespace weft
