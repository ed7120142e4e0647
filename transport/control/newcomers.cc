#include "transport/control/newcomers.h"

#include <algorithm>

#include "core/check.h"
#include "core/strings.h"

namespace weft {

Newcomers::Newcomers(CounterSet* counters) : counters_(counters) {
  counters_->Register("listener.strangers_put_out", &strangers_put_out_);
  counters_->Register("listener.handshakes_put_out", &handshakes_put_out_);
}

Newcomers::~Newcomers() {
  counters_->Unregister(&strangers_put_out_);
  counters_->Unregister(&handshakes_put_out_);
}

bool Newcomers::MakeRoom(uint64_t now_ns) {
  if (stranger_count_ < kMaxStrangers) return true;
  absl::flat_hash_map<uint64_t, size_t> from_host;
  size_t most = 0;
  for (const Newcomer& stranger : strangers_) most = std::max(most, ++from_host[stranger.host_]);
  for (Newcomer& stranger : strangers_) {
    if (from_host[stranger.host_] < most || stranger.waits_for_us()) continue;
    if (now_ns - stranger.since_ns_ < kGraceNs) return false;
    PutOut(&stranger, &strangers_put_out_);
    return true;
  }
  return false;
}

bool Newcomers::HasHandshakes() {
  if (handshakes_.CountSlowly() > 0) return true;
  for (const Newcomer& stranger : strangers_) {
    if (!stranger.is_unread()) return true;
  }
  return false;
}

void Newcomers::AddStranger(Newcomer* newcomer, uint64_t host, uint64_t now_ns) {
  newcomer->standing_ = Newcomer::Standing::kStranger;
  newcomer->host_ = host;
  newcomer->since_ns_ = now_ns;
  strangers_.PushBack(newcomer);
  ++stranger_count_;
}

absl::Status Newcomers::BeginHandshake(Newcomer* newcomer, size_t hello_bytes, uint64_t now_ns) {
  // Ours: a hello is taken once, from a stranger
  WEFT_DCHECK(newcomer->standing_ == Newcomer::Standing::kStranger);
  const uint64_t host = newcomer->host_;
  const auto places = static_cast<uint32_t>(1 + hello_bytes / kBytesPerPlace);
  const auto known = hosts_.find(host);
  const bool has_client = known != hosts_.end() && known->second.clients > 0;
  while (places_ + places > kPlaces) {
    const bool all_taken = places_ + places > kPlaces + kReserved;
    const bool share_taken = !has_client && PlacesOfHostsWithoutClients() + places > kPlaces;
    if (!all_taken && !share_taken) break;
    Newcomer* const victim = Victim(host, places, /*without_clients=*/share_taken, now_ns);
    if (victim == nullptr) {
      return absl::ResourceExhaustedError(StrCat("the server has too many handshakes in progress (",
                                                 handshakes_.CountSlowly(), "); try again"));
    }
    PutOut(victim, &handshakes_put_out_);
  }
  List::Remove(newcomer);
  --stranger_count_;
  handshakes_.PushBack(newcomer);
  newcomer->standing_ = Newcomer::Standing::kHandshake;
  newcomer->since_ns_ = now_ns;
  newcomer->places_ = places;
  places_ += places;
  hosts_[host].places += places;
  return absl::OkStatus();
}

uint32_t Newcomers::PlacesOfHostsWithoutClients() const {
  uint32_t places = 0;
  for (const auto& [number, host] : hosts_) {
    if (host.clients == 0) places += host.places;
  }
  return places;
}

Newcomer* Newcomers::Victim(uint64_t host, uint32_t places, bool without_clients, uint64_t now_ns) {
  const auto places_of = [&](uint64_t number, const Host& counts) -> uint32_t {
    if (without_clients && counts.clients > 0) return 0;
    return counts.places + (number == host ? places : 0);
  };
  uint32_t most = places;
  for (const auto& [number, counts] : hosts_) most = std::max(most, places_of(number, counts));
  Newcomer* oldest = nullptr;
  for (Newcomer& handshake : handshakes_) {
    if (places_of(handshake.host_, hosts_[handshake.host_]) < most) continue;
    if (now_ns - handshake.since_ns_ >= kGraceNs || !handshake.tries_path()) return &handshake;
    if (oldest == nullptr) oldest = &handshake;
  }
  return oldest;
}

void Newcomers::PutOut(Newcomer* victim, Counter* count) {
  count->Increment();
  Leave(victim);
  victim->PutOut();
}

void Newcomers::BecomeClient(Newcomer* newcomer) {
  const uint64_t host = newcomer->host_;
  Leave(newcomer);
  newcomer->standing_ = Newcomer::Standing::kClient;
  ++hosts_[host].clients;
}

void Newcomers::Leave(Newcomer* newcomer) {
  const Newcomer::Standing standing = newcomer->standing_;
  newcomer->standing_ = Newcomer::Standing::kNobody;
  if (newcomer->linked()) List::Remove(newcomer);
  if (standing == Newcomer::Standing::kStranger) --stranger_count_;
  if (standing != Newcomer::Standing::kHandshake && standing != Newcomer::Standing::kClient) return;
  const auto found = hosts_.find(newcomer->host_);
  if (standing == Newcomer::Standing::kClient) --found->second.clients;
  found->second.places -= newcomer->places_;
  places_ -= newcomer->places_;
  newcomer->places_ = 0;
  if (found->second.places == 0 && found->second.clients == 0) hosts_.erase(found);
}

}  // namespace weft
