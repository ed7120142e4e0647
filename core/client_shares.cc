#include "core/client_shares.h"

#include <algorithm>

#include "core/check.h"

namespace weft {

void ClientShares::Take(uint64_t client, uint64_t amount) {
  all_ += amount;
  of_[client] += amount;
}

void ClientShares::Give(uint64_t client, uint64_t amount) {
  const auto found = of_.find(client);
  WEFT_CHECK(found != of_.end() && found->second >= amount);  // Ours: it has taken it
  all_ -= amount;
  found->second -= amount;
  if (found->second == 0) of_.erase(found);
}

uint64_t ClientShares::Of(uint64_t client) const {
  const auto found = of_.find(client);
  return found == of_.end() ? 0 : found->second;
}

uint64_t ClientShares::ShareOf(uint64_t most) const {
  return std::max(uint64_t{1}, most / (clients() + 1));
}

bool ClientShares::HasRoom(uint64_t client, uint64_t more, uint64_t most) const {
  if (most < all_ || more > most - all_) return false;
  if (all_ + more <= AllButReserve(most)) return true;
  const uint64_t of_client = Of(client);
  return of_client == 0 || of_client + more <= ShareOf(most);
}

}  // namespace weft
