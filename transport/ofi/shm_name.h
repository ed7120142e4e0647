// Names of shm endpoints, and who owns the files behind them.
//
// An endpoint is the file /dev/shm/weft-<16 hex digits>, and the same with ".regions": random, so
// that neither process numbers that repeat in containers nor restarts make two endpoints clash. The
// provider's handlers that would remove the file on a signal are disabled (signal_guard.h), and no
// handler runs on SIGKILL; so the owner holds a lock (flock) on its file, which the kernel releases
// when the process ends, however it ends. Whoever can take the lock may remove the file: the owner
// is gone. That holds across process-number namespaces.
//
// Threads: any.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weft {

// A fresh name as the provider takes it: "fi_ns://weft-0123456789abcdef".
std::string NewShmAddress();

// INVALID_ARGUMENT for anything but such a name. It came from a peer.
absl::Status CheckShmAddress(std::string_view address);

// UNAVAILABLE when the file is not visible to this process, with the likely reason.
absl::Status CheckShmVisible(const std::string& address);

// The second file of an endpoint, its table of regions, as for shm_open(3).
std::string ShmRegionsFile(std::string_view address);

// Marks the file as owned by this process until destruction, and then removes it.
class ShmOwnership {
 public:
  // REQUIRES: the endpoint is enabled: its file exists.
  static absl::StatusOr<std::unique_ptr<ShmOwnership>> Claim(const std::string& address);
  // The same for a file by its name.
  static absl::StatusOr<std::unique_ptr<ShmOwnership>> ClaimFile(std::string file);
  ~ShmOwnership();
  ShmOwnership(const ShmOwnership&) = delete;
  ShmOwnership& operator=(const ShmOwnership&) = delete;

 private:
  ShmOwnership(std::string file, int descriptor) : file_(std::move(file)), fd_(descriptor) {}

  const std::string file_;
  const int fd_;
};

// Removes an endpoint's files if their owner is gone. True when it was.
bool RemoveShmFilesOf(const std::string& address);

// The same for every file in /dev/shm that follows our naming and is older than some seconds (a
// younger one may not be locked yet). Returns how many were removed.
int RemoveShmFilesOfDeadOwners();

}  // namespace weft
