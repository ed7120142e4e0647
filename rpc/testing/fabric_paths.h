// Paths of libfabric that tests can use: ofi_tcp, which both sides have to name, and in the lab, or
// on a machine with a card, verbs: ./dev lab -- 'bazel-bin/rpc/NAME_test --gtest_filter=*verbs*'.
#pragma once

#include <algorithm>
#include <vector>

#include "transport/host_paths.h"
#include "transport/options.h"
#include "transport/path.h"

namespace weft::test {

inline std::vector<PathKind> FabricPaths() {
  std::vector<PathKind> kinds = {PathKind::kOfiTcp};
  LinkOptions verbs;
  verbs.paths = {PathKind::kVerbs};
  const auto host = ListHostPaths(verbs);
  const auto usable = [](const HostPath& path) {
    return path.kind == PathKind::kVerbs && path.place > 0;
  };
  if (host.ok() && std::any_of(host->paths.begin(), host->paths.end(), usable))
    kinds.push_back(PathKind::kVerbs);
  return kinds;
}

// These, and what needs no libfabric.
inline std::vector<PathKind> AllPaths() {
  std::vector<PathKind> kinds = FabricPaths();
  kinds.insert(kinds.begin(), {PathKind::kShm, PathKind::kTcp});
  return kinds;
}

}  // namespace weft::test
