// What two transports tell each other about leases, beside the data path: small messages of fixed
// layout. docs/wire_format.md has the table of bytes.
//
//   holder -> owner   Resolve  -> Granted or Refused
//                     Renew    -> Renewed or Ended
//                     Derive   -> Derived or Refused
//                     Return   -> nothing
//   owner -> holder   Ended, whenever the owner ends a lease
//
// `ask` is the holder's number for one Resolve or Derive, `lease` the owner's for one lease: the
// other side gives them back as they are, and what gets one back believes nothing of it.
//
// Threads: plain values and pure functions.
// Errors: a message that is not exactly as it has to be, in length, reserved bytes and ranges, is
// false from Decode().
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "core/bytes.h"
#include "transport/lease.h"
#include "transport/region.h"
#include "transport/region_handle.h"

namespace weft {

// The largest is a Refused with a layout's name.
inline constexpr size_t kMaxGrantBytes = 160;
inline constexpr size_t kMaxLayoutNameBytes = 128;

struct GrantResolve {
  uint64_t ask = 0;
  uint64_t lease_ns = 0;  // kMinLeaseNs..kMaxLeaseNs
  uint64_t layout = 0;
  RegionHandle handle;
};

struct GrantGranted {
  uint64_t ask = 0;
  uint64_t lease = 0;
  uint64_t lease_ns = 0;  // 1..kMaxLeaseNs, from the owner's yes on
  RemoteSpan remote;      // at least 1 byte; does not end beyond 2^64
  Rights rights = 0;
};

struct GrantRefused {
  uint64_t ask = 0;
  // kPermissionDenied, kFailedPrecondition (another layout) or kResourceExhausted.
  absl::StatusCode code = absl::StatusCode::kPermissionDenied;
  uint64_t layout = 0;      // another layout: the owner's
  std::string layout_name;  // and its name; kMaxLayoutNameBytes
};

struct GrantRenew {
  uint64_t lease = 0;
  uint64_t lease_ns = 0;  // kMinLeaseNs..kMaxLeaseNs
};

struct GrantRenewed {
  uint64_t lease = 0;
  uint64_t lease_ns = 0;  // 1..kMaxLeaseNs
};

struct GrantReturn {
  uint64_t lease = 0;
};

struct GrantEnded {
  uint64_t lease = 0;
  // kAborted: revoked. kDeadlineExceeded: its time is over.
  absl::StatusCode code = absl::StatusCode::kAborted;
  uint64_t grace_ns = 0;  // 0..kMaxLeaseNs: what has begun may take so long
};

struct GrantDerive {
  uint64_t ask = 0;
  uint64_t offset = 0;  // in what the handle names
  uint64_t length = 0;  // at least 1
  uint64_t lifetime_ns = 0;
  Rights rights = 0;
  RegionHandle handle;
};

struct GrantDerived {
  uint64_t ask = 0;
  RegionHandle handle;
};

using GrantMessage = std::variant<GrantResolve, GrantGranted, GrantRefused, GrantRenew,
                                  GrantRenewed, GrantReturn, GrantEnded, GrantDerive, GrantDerived>;

// One message as it travels.
class GrantBytes {
 public:
  ByteSpan bytes() const { return ByteSpan(bytes_).first(size_); }

 private:
  friend GrantBytes EncodeGrant(const GrantMessage& message);

  std::array<std::byte, kMaxGrantBytes> bytes_ = {};
  size_t size_ = 0;
};

// REQUIRES: fields in their ranges.
GrantBytes EncodeGrant(const GrantMessage& message);
[[nodiscard]] bool DecodeGrant(ByteSpan bytes, GrantMessage* message);

}  // namespace weft
