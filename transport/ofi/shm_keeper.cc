#include "transport/ofi/shm_keeper.h"

#include <map>
#include <mutex>
#include <utility>

#include "core/check.h"

namespace weft {
namespace {

struct Known {
  int users = 0;
  std::unique_ptr<ParkedEndpoint> parked;
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

void ShmKeeper::Opened(const std::string& address) {
  std::lock_guard<std::mutex> lock(mutex);
  Endpoints()[address];
}

void ShmKeeper::Learned(const std::string& address) {
  std::lock_guard<std::mutex> lock(mutex);
  const auto found = Endpoints().find(address);
  if (found != Endpoints().end()) ++found->second.users;
}

void ShmKeeper::Forgotten(const std::string& address) {
  std::unique_ptr<ParkedEndpoint> last_one_out;  // closed after the lock is released
  std::lock_guard<std::mutex> lock(mutex);
  const auto found = Endpoints().find(address);
  if (found == Endpoints().end()) return;
  WEFT_CHECK(found->second.users > 0);
  if (--found->second.users > 0 || found->second.parked == nullptr) return;
  last_one_out = std::move(found->second.parked);
  Endpoints().erase(found);
}

void ShmKeeper::Closed(const std::string& address, std::unique_ptr<ParkedEndpoint> endpoint) {
  std::lock_guard<std::mutex> lock(mutex);
  const auto found = Endpoints().find(address);
  WEFT_CHECK(found != Endpoints().end());
  if (found->second.users > 0) {
    found->second.parked = std::move(endpoint);
  } else {
    Endpoints().erase(found);
  }
}

}  // namespace weft
