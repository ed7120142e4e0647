// Handles on their way through messages: the transport's value <-> the .proto's message.
//
// Threads: pure functions.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/strings.h"
#include "transport/region_handle.h"
#include "weft/memory.pb.h"

namespace weft {

inline void ToProto(const RegionHandle& handle, RemoteRegion* region) {
  region->set_capability(handle.ToBytes());
}

// INVALID_ARGUMENT: not a handle's number of bytes. Whether it is a good one, its owner alone can
// tell.
inline absl::StatusOr<RegionHandle> FromProto(const RemoteRegion& region) {
  RegionHandle handle;
  if (RegionHandle::FromBytes(region.capability(), &handle)) return handle;
  return absl::InvalidArgumentError(StrCat("a weft.RemoteRegion has ", RegionHandle::kBytes,
                                           " bytes; this one has ", region.capability().size()));
}

}  // namespace weft
