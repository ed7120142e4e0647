// Paths of libfabric that tests can use: ofi_tcp, which both sides have to name, and in the lab, or
// on a machine with a card, verbs: ./dev lab -- 'bazel-bin/rpc/NAME_test --gtest_filter=*verbs*'.
#pragma once

#include <algorithm>
#include <string>
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

// Empty, or why this one of them is not there after all: libfabric, or this provider of it, is not
// installed.
inline std::string WhyNot(PathKind kind) {
  if (kind != PathKind::kOfiTcp) return "";
  const auto host = ListHostPaths({});
  if (!host.ok()) return host.status().ToString();
  return host->fabric.find("tcp") != std::string::npos ? "" : "no ofi_tcp: " + host->fabric;
}

// These, and what needs no libfabric.
inline std::vector<PathKind> AllPaths() {
  std::vector<PathKind> kinds = FabricPaths();
  kinds.insert(kinds.begin(), {PathKind::kShm, PathKind::kTcp});
  return kinds;
}

}  // namespace weft::test
