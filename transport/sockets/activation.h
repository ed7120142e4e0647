// Sockets that a service manager has opened for this process before it was started, as systemd does
// for a service with a .socket unit: sd_listen_fds(3)'s protocol, without that library.
//
//   LISTEN_PID      whose they are; a child of that process is another one
//   LISTEN_FDS      how many: descriptors 3, 4, ...
//   LISTEN_FDNAMES  FileDescriptorName= of each, with ':' between; may be missing
//
// A server listens at one of them with the address
//
//   systemd:NAME    the one of this name
//   systemd:        the one that there is
//
// The first look takes the variables out of the environment, as sd_listen_fds(1) does, and has the
// descriptors closed on exec: they are for this process and none that it starts. Programs change
// and read their environment on several threads at their own risk (getenv(3)).
//
// Threads: any. Lifetime: what nobody takes stays open.
// Errors: as said at each function, in words that name the variable.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "transport/descriptor.h"

namespace weft {

// Whether it is one of these addresses.
bool IsActivated(std::string_view address);

// The socket, which is nobody else's from now on. NOT_FOUND: there is none, none of this name, or
// it was taken before. INVALID_ARGUMENT: there are several, it is no stream socket that listens, or
// the variables make no sense. FAILED_PRECONDITION: they are another process's.
absl::StatusOr<Descriptor> TakeActivated(std::string_view address);

// --- the parts of that ---------------------------------------------------------------------------

inline constexpr int kFirstActivated = 3;
// More than any service has sockets; fewer than a process may open by default.
inline constexpr int kMostActivated = 512;

struct ActivatedSocket {
  int descriptor = -1;  // -1: taken
  std::string name;     // empty: none was told
};

// What the variables (null: not set) say to process `self`; empty without LISTEN_FDS.
absl::StatusOr<std::vector<ActivatedSocket>> ReadActivation(pid_t self, const char* listen_pid,
                                                            const char* listen_fds,
                                                            const char* listen_fdnames);

// Which of them the address means. REQUIRES: IsActivated(address).
absl::StatusOr<size_t> FindActivated(const std::vector<ActivatedSocket>& sockets,
                                     std::string_view address);

}  // namespace weft
