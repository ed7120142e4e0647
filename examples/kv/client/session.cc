#include "examples/kv/client/session.h"

namespace kv::client {

std::string PathName(weft::Channel& channel) {
  const absl::StatusOr<weft::PathInfo> path = channel.path();
  return path.ok() ? std::string(weft::PathKindName(path->kind)) : "no path";
}

}  // namespace kv::client
