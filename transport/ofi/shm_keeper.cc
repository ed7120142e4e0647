#include "transport/ofi/shm_keeper.h"

#include <map>
#include <mutex>
#include <utility>

#include "core/check.h"

namespace weft {
namespace {

struct Known {
  int users = 0;
  std::unique_ptr<ShmEndpoint> parked;
};

std::mutex mutex;
// Leaked on purpose: engines may close during static destruction.
std::map<std::string, Known>& Endpoints() {
  static auto* endpoints = new std::map<std::string, Known>;
  return *endpoints;
}

}  // namespace

ShmKeeper& ShmKeeper::Get() {
  static ShmKeeper keeper;
  return keeper;
}

void ShmKeeper::Opened(const std::string& name) {
  std::lock_guard<std::mutex> lock(mutex);
  Endpoints()[name];
}

void ShmKeeper::Learned(const std::string& name) {
  std::lock_guard<std::mutex> lock(mutex);
  const auto found = Endpoints().find(name);
  if (found != Endpoints().end()) ++found->second.users;
}

void ShmKeeper::Forgotten(const std::string& name) {
  std::unique_ptr<ShmEndpoint> last_one_out;  // closed after the lock is released
  std::lock_guard<std::mutex> lock(mutex);
  const auto found = Endpoints().find(name);
  if (found == Endpoints().end()) return;
  WEFT_CHECK(found->second.users > 0);
  if (--found->second.users > 0 || found->second.parked == nullptr) return;
  last_one_out = std::move(found->second.parked);
  Endpoints().erase(found);
}

void ShmKeeper::Closed(std::unique_ptr<ShmEndpoint> endpoint) {
  std::lock_guard<std::mutex> lock(mutex);
  const auto found = Endpoints().find(endpoint->name());
  WEFT_CHECK(found != Endpoints().end());
  if (found->second.users > 0) {
    found->second.parked = std::move(endpoint);
    return;
  }
  Endpoints().erase(found);
}  // destroys the endpoint, after the lock is released

}  // namespace weft
