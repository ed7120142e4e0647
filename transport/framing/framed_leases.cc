// Leases of FramedConnection.

#include "transport/framing/framed_connection.h"

namespace weft {

absl::Status FramedConnection::Resolve(const RegionHandle&, uint64_t, uint64_t, Lease*) {
  return absl::UnimplementedError("leases");
}

absl::Status FramedConnection::Renew(uint64_t, Lease*) {
  return absl::UnimplementedError("leases");
}

void FramedConnection::Return(Lease*) {}

absl::Status FramedConnection::Derive(const RegionHandle&, uint64_t, uint64_t, Rights, uint64_t,
                                      Derivation*) {
  return absl::UnimplementedError("leases");
}

}  // namespace weft
