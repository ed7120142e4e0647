// Names of shm domains and endpoints, and who owns the files behind them.
//
//   /dev/shm/weft-0123456789abcdef                    a domain: its table of regions
//   /dev/shm/weft-0123456789abcdef-<nonce><a or p>    an endpoint of it, for one link: active or
//                                                     passive side; made by the provider
//
// A domain's digits are random: neither process numbers that repeat in containers nor restarts
// make two clash. An endpoint's name follows from its domain's and the link's nonce, so that each
// side knows the other's.
//
// The provider's handlers that would remove its files on a signal are disabled (signal_guard.h),
// and none runs on SIGKILL. So the owner of a domain holds a lock (flock) on the domain's file,
// which the kernel releases when the process ends, however it ends. Whoever can take that lock may
// remove all files of the domain: their owner is gone. That holds across process-number namespaces.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weft {

// A fresh name for a domain: "weft-0123456789abcdef".
std::string NewShmDomainName();

// INVALID_ARGUMENT for anything but such a name. It came from a peer.
absl::Status CheckShmDomainName(std::string_view name);

enum class ShmRole : char { kActive = 'a', kPassive = 'p' };

// REQUIRES: `domain` is a domain's name.
std::string ShmEndpointName(std::string_view domain, uint64_t nonce, ShmRole role);

// UNAVAILABLE when the file is not visible to this process, with the likely reason.
absl::Status CheckShmFileVisible(const std::string& name);

// Removes one file, if it is there. For an endpoint that both sides have mapped.
void RemoveShmFile(const std::string& name);

// A domain's file, locked: created by Create() and removed by the destructor.
class ShmOwnership {
 public:
  static absl::StatusOr<std::unique_ptr<ShmOwnership>> Create(const std::string& domain,
                                                              size_t bytes);
  ~ShmOwnership();
  ShmOwnership(const ShmOwnership&) = delete;
  ShmOwnership& operator=(const ShmOwnership&) = delete;

  int descriptor() const { return fd_; }

 private:
  ShmOwnership(std::string domain, int descriptor) : domain_(std::move(domain)), fd_(descriptor) {}

  const std::string domain_;
  const int fd_;
};

// Removes all files of a domain if its owner is gone. True when it was.
bool RemoveShmFilesOf(const std::string& domain);

// The same for every domain in /dev/shm. Domains younger than some seconds are left alone: they may
// not be locked yet. Returns how many there were.
int RemoveShmFilesOfDeadOwners();

}  // namespace weft
