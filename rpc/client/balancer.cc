#include "rpc/client/balancer.h"

#include <algorithm>
#include <mutex>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "core/log.h"
#include "core/status.h"
#include "core/strings.h"
#include "rpc/client/channel_lanes.h"
#include "rpc/client/client_connection.h"
#include "rpc/client/client_streams.h"
#include "rpc/operation/on_engine.h"
#include "rpc/wire/status_text.h"
#include "weft/status.h"

namespace weft {
namespace {

// More priorities and zones than these are one.
constexpr uint32_t kMaxTiers = 8;
constexpr uint64_t kHourUs = 3600 * uint64_t{1'000'000};

absl::Status Bounded(const char* name, uint64_t value, uint64_t least, uint64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat("BalancingOptions::", name, " is ", value, "; ", least, " to ", most, " are allowed"));
}

}  // namespace

absl::Status CheckBalancing(const BalancingOptions& balancing, const ChannelOptions& options) {
  const EjectionOptions& ejection = balancing.ejection;
  const auto policy = static_cast<uint64_t>(balancing.policy);
  WEFT_RETURN_IF_ERROR(Bounded("policy", policy, 1, 3));
  WEFT_RETURN_IF_ERROR(Bounded("min_local_percent", balancing.min_local_percent, 1, 100));
  WEFT_RETURN_IF_ERROR(Bounded("drain_us", balancing.drain_us, 0, kHourUs));
  WEFT_RETURN_IF_ERROR(Bounded("refresh_us", balancing.refresh_us, 1000, kHourUs));
  WEFT_RETURN_IF_ERROR(Bounded("max_servers", balancing.max_servers, 1, kMaxServers));
  WEFT_RETURN_IF_ERROR(
      Bounded("ejection.consecutive_failures", ejection.consecutive_failures, 0, 1000));
  WEFT_RETURN_IF_ERROR(Bounded("ejection.interval_us", ejection.interval_us, 0, kHourUs));
  WEFT_RETURN_IF_ERROR(Bounded("ejection.max_ejection_us", ejection.max_ejection_us, 1, kHourUs));
  WEFT_RETURN_IF_ERROR(
      Bounded("ejection.ejection_us", ejection.ejection_us, 1, ejection.max_ejection_us));
  WEFT_RETURN_IF_ERROR(Bounded("ejection.max_percent", ejection.max_percent, 0, 100));
  if (!options.retry.exactly_once) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "ChannelOptions::retry.exactly_once is set for a channel over many servers: the records that "
      "say that a call has run are one server's; open a channel to that server");
}

absl::Status CheckServers(const std::vector<ListedServer>& servers) {
  if (servers.size() > kMaxServersListed) {
    return absl::InvalidArgumentError(StrCat("a list of ", servers.size(), " servers; at most ",
                                             kMaxServersListed, " are possible"));
  }
  for (const ListedServer& server : servers) {
    if (server.address.empty()) {
      return absl::InvalidArgumentError("a list of servers has an empty address");
    }
  }
  return absl::OkStatus();
}

Balancer::Balancer(EngineCore& engine, ClientConnection& front, const std::string& target,
                   const ChannelOptions& options, const BalancingOptions& balancing,
                   std::unique_ptr<AddressSource> source)
    : engine_(engine),
      front_(front),
      target_(target),
      balancing_(balancing),
      client_number_(balancing.client_number.value_or(static_cast<uint32_t>(SecureRandom64()))),
      options_(options),
      // Clients that start together do not all begin with the first server, nor go on together.
      random_(ServerKeyOf(target) ^ engine.clock().NowNs() ^
              (uint64_t{client_number_} << 32 | client_number_)),
      next_(static_cast<uint32_t>(random_.Next64())),
      source_(std::move(source)) {}

Balancer::~Balancer() = default;

void Balancer::Start() {
  source_->Start(engine_, this, balancing_.refresh_us);
  if (balancing_.ejection.interval_us == 0) return;
  engine_.timers().Schedule(&sweep_,
                            engine_.clock().NowNs() + balancing_.ejection.interval_us * kNsPerUs);
}

void Balancer::Shutdown() {
  ended_ = true;
  ready_.clear();
  look_due_ = false;
  front_.calls().SetLastServer(nullptr);
  source_.reset();
  engine_.timers().Cancel(this);
  engine_.timers().Cancel(&sweep_);
  // Callbacks run inside: they find no server.
  const Servers servers = std::exchange(servers_, {});
  const Servers drained = std::exchange(drained_, {});
  for (const Servers* const some : {&servers, &drained}) {
    for (const std::unique_ptr<BalancedServer>& server : *some) {
      AddCounts(server->connection().stats(), past_);
    }
  }
}

// --- every call ---------------------------------------------------------------------------------

// Where in ready_ the search for a server begins. REQUIRES: there is one.
uint32_t Balancer::FirstPlace() {
  const auto count = static_cast<uint32_t>(ready_.size());
  if (balancing_.policy != BalancingPolicy::kLeastLoaded) return next_++ % count;
  if (count == 1) return 0;
  const uint32_t place = LessLoaded(count);
  return ready_[place]->may_be_spared() ? NotSpared(place) : place;
}

// LessLoaded() has drawn `place`, which may be spared; then the same among those that are not.
// REQUIRES: place < ready_.size().
uint32_t Balancer::NotSpared(uint32_t place) {
  const uint64_t now_ns = engine_.clock().NowNs();
  if (!ready_[place]->IsSpared(now_ns)) return place;
  const size_t count = ready_.size();
  BalancedServer* found = nullptr;
  uint32_t best = place;
  for (int draw = 0; draw < kSpareDraws; ++draw) {
    const auto other = static_cast<uint32_t>(random_.Uniform(count));
    BalancedServer* const server = ready_[other];
    if (server == found || server->IsSpared(now_ns)) continue;
    if (found != nullptr) return server->calls().load() < found->calls().load() ? other : best;
    found = server;
    best = other;
  }
  if (found != nullptr) return best;
  // Nearly all are.
  const uint64_t first = random_.Uniform(count);
  for (size_t i = 0; i < count; ++i) {
    const auto other = static_cast<uint32_t>((first + i) % count);
    if (!ready_[other]->IsSpared(now_ns)) return other;
  }
  return place;  // all are
}

// REQUIRES: count >= 2.
uint32_t Balancer::LessLoaded(uint32_t count) {
  // Two that differ, from the halves of one number: the bias, of one in 2^32 / count, is no matter.
  const uint64_t drawn = random_.Next64();
  const auto one = static_cast<uint32_t>(((drawn >> 32) * count) >> 32);
  auto other = static_cast<uint32_t>(((drawn & 0xFFFFFFFF) * (count - 1)) >> 32);
  if (other >= one) ++other;
  return ready_[other]->calls().load() < ready_[one]->calls().load() ? other : one;
}

// Of those that may be chosen, the first one on the ring from the key on. REQUIRES: there is one.
BalancedServer& Balancer::OfKey(uint64_t key) {
  for (uint32_t place = ring_.Find(key);; place = (place + 1) % ring_.size()) {
    BalancedServer& server = *servers_[ring_.ServerAt(place)];
    if (server.chosen) return server;
  }
}

ClientCalls::Sent Balancer::TryAt(ClientCall& call, BalancedServer& server) {
  ClientCalls& calls = server.calls();
  call.carrier = &calls;
  calls.PrefetchIfCold();
  const ClientCalls::Sent sent = calls.SendAttempt(call);
  if (sent != ClientCalls::Sent::kNotNow) {
    front_.calls().SetLastServer(&calls);
    return sent;
  }
  call.carrier = call.client;
  server.WantRoom();
  return ClientCalls::Sent::kNotNow;
}

// At all of them, each once, from `place` on: a call waits only if every server has told that it
// has no room.
ClientCalls::Sent Balancer::TryFrom(ClientCall& call, uint32_t place, const MetServers* avoid) {
  for (size_t i = 0; i < ready_.size(); ++i) {
    BalancedServer& server = *ready_[place];
    if (++place == ready_.size()) place = 0;
    if (avoid != nullptr && avoid->Has(&server.calls())) continue;
    const ClientCalls::Sent sent = TryAt(call, server);
    if (sent != ClientCalls::Sent::kNotNow) return sent;
  }
  return ClientCalls::Sent::kNotNow;
}

ClientCalls::Sent Balancer::Send(ClientCall& call) {
  LookIfDue();
  if (ready_.empty()) return ClientCalls::Sent::kNotNow;
  const MetServers* const avoid = call.met == nullptr || call.met->count == 0 ? nullptr : call.met;
  uint32_t place = 0;
  if (balancing_.policy == BalancingPolicy::kConsistentHash && call.server_key != 0) {
    BalancedServer& server = OfKey(call.server_key);
    if (avoid == nullptr || !avoid->Has(&server.calls())) {
      const ClientCalls::Sent sent = TryAt(call, server);
      if (sent != ClientCalls::Sent::kNotNow) return sent;
    }
    // The same others for the same key, and not the same ones for all keys of that server.
    place = static_cast<uint32_t>(call.server_key % ready_.size());
  } else {
    place = FirstPlace();
  }
  if (avoid == nullptr) return TryFrom(call, place, nullptr);
  const ClientCalls::Sent sent = TryFrom(call, place, avoid);
  return sent != ClientCalls::Sent::kNotNow ? sent : TryFrom(call, place, nullptr);
}

ClientStreams* Balancer::ChooseStreams(uint64_t key) {
  LookIfDue();
  if (ready_.empty()) return nullptr;
  const bool by_key = balancing_.policy == BalancingPolicy::kConsistentHash && key != 0;
  const auto take = [this](BalancedServer& server) -> ClientStreams* {
    if (!server.calls().is_open() || !server.calls().streams().has_slot()) {
      server.WantRoom();
      return nullptr;
    }
    front_.calls().SetLastServer(&server.calls());
    return &server.calls().streams();
  };
  if (by_key) {
    if (ClientStreams* const streams = take(OfKey(key))) return streams;
  }
  size_t place = by_key ? key % ready_.size() : FirstPlace();
  for (size_t i = 0; i < ready_.size(); ++i) {
    if (ClientStreams* const streams = take(*ready_[place])) return streams;
    if (++place == ready_.size()) place = 0;
  }
  return nullptr;
}

bool Balancer::HasRoom() {
  LookIfDue();
  const auto count = static_cast<uint32_t>(ready_.size());
  for (uint32_t i = 0; i < count; ++i) {
    BalancedServer& server = *ready_[(next_ % count + i) % count];
    if (server.calls().HasRoom()) return true;
    server.WantRoom();
  }
  return false;
}

void Balancer::OnCallWaits() {
  // Servers without room tell when they have some. Without a server no attempt will fail, and end
  // what waits.
  if (ended_ || !servers_.empty() || !list_known_) return;
  failed_ = true;
  lost_ = true;
  WorkSoon();
}

void Balancer::OnServerRoom() { WorkSoon(); }

// --- the list -----------------------------------------------------------------------------------

absl::Status Balancer::SetServers(std::vector<ListedServer> servers) {
  if (ended_) return absl::FailedPreconditionError("the channel is being destroyed");
  WEFT_RETURN_IF_ERROR(CheckServers(servers));
  if (!source_->takes_lists()) {
    return absl::FailedPreconditionError(
        StrCat("the servers of ", target_,
               " are found there: SetServers() is for channels whose "
               "target begins with \"list:\""));
  }
  set_by_program_ = true;
  if (servers.empty()) {
    last_failure_ = absl::UnavailableError("SetServers() has named none");
    failed_ = true;  // ends what waits
  }
  new_list_ = std::move(servers);
  WorkSoon();
  return absl::OkStatus();
}

void Balancer::OnServers(std::vector<ListedServer> servers) {
  if (set_by_program_) return;  // before the source has said its list
  if (const absl::Status wrong = CheckServers(servers); !wrong.ok()) return OnSourceFailed(wrong);
  if (std::exchange(source_fails_, false)) {
    WEFT_LOG(kInfo, target_, " names servers again: ", servers.size());
  }
  if (!new_list_ && list_known_ && servers == list_) return;
  new_list_ = std::move(servers);
  WorkSoon();
}

void Balancer::OnSourceFailed(const absl::Status& why) {
  if (set_by_program_) return;
  // An empty "list:" is for the program to fill: until then its calls say so.
  if (!std::exchange(source_fails_, true) && !source_->takes_lists()) {
    WEFT_LOG(kWarning, target_, " names no servers, and the last ", servers_.size(),
             " are kept: ", ToStd(why.message()));
  }
  list_known_ = true;
  if (servers_.empty()) last_failure_ = why;
  failed_ = true;
  WorkSoon();
}

// What this client connects to, tier by tier.
std::vector<ListedServer> Balancer::PartOf(std::vector<ListedServer> list,
                                           std::vector<uint32_t>* tiers) {
  std::unordered_set<std::string_view> seen;
  std::vector<ListedServer*> all;
  for (ListedServer& server : list) {
    if (seen.insert(server.address).second) all.push_back(&server);
  }
  const auto rank = [this](const ListedServer& server) {
    return std::pair(server.priority, !balancing_.zone.empty() && server.zone != balancing_.zone);
  };
  std::stable_sort(all.begin(), all.end(), [&](const ListedServer* a, const ListedServer* b) {
    return rank(*a) < rank(*b);
  });
  std::vector<ListedServer> part;
  uint32_t tier = 0;
  for (size_t first = 0; first < all.size(); ++tier) {
    size_t end = first;
    std::vector<std::string_view> addresses;
    while (end < all.size() && (tier + 1 == kMaxTiers || rank(*all[end]) == rank(*all[first]))) {
      addresses.push_back(all[end++]->address);
    }
    for (const uint32_t at : SubsetOf(addresses, balancing_.max_servers, client_number_)) {
      part.push_back(std::move(*all[first + at]));
      tiers->push_back(tier);
    }
    first = end;
  }
  return part;
}

void Balancer::ApplyList() {
  std::vector<uint32_t> tiers;
  list_ = *std::exchange(new_list_, {});
  std::vector<ListedServer> part = PartOf(list_, &tiers);
  list_known_ = true;
  std::unordered_map<std::string, std::unique_ptr<BalancedServer>> known;
  for (std::unique_ptr<BalancedServer>& server : servers_) {
    std::string address = server->server().address;
    known.emplace(std::move(address), std::move(server));
  }
  servers_.clear();
  BalancedServer::Host& host = *this;
  for (size_t i = 0; i < part.size(); ++i) {
    std::unique_ptr<BalancedServer>& server = known[part[i].address];
    if (server == nullptr) {
      server = std::make_unique<BalancedServer>(host, engine_, part[i], options_,
                                                balancing_.ejection, &front_.calls());
    }
    server->SetServer(part[i]);
    server->tier = tiers[i];
    servers_.push_back(std::move(server));
  }
  for (auto& [address, server] : known) {
    if (server == nullptr) continue;
    drained_.push_back(std::move(server));
  }
  LookWhoIsReady();
  // As many as there may be servers: of more, those that have drained for longest end.
  const size_t most = size_t{balancing_.max_servers} * kMaxTiers;
  for (size_t i = 0; i < drained_.size(); ++i) {
    if (!drained_[i]->draining()) drained_[i]->Drain(balancing_.drain_us);
    if (drained_.size() - i > most) drained_[i]->Drain(0);
  }
  if (balancing_.policy != BalancingPolicy::kConsistentHash) return;
  std::vector<std::string_view> addresses;
  addresses.reserve(servers_.size());
  for (const auto& server : servers_) addresses.push_back(server->server().address);
  ring_.Build(addresses);
}

// --- who may be chosen --------------------------------------------------------------------------

void Balancer::WorkSoon() {
  if (!ended_ && !armed()) engine_.timers().Schedule(this, 0);
}

void Balancer::OnServerState(BalancedServer& server) {
  if (ended_) return;
  if (server.state() == BalancedServer::State::kDown) {
    last_failure_ = server.last_failure();
    failed_ = true;
    lost_ = true;
  }
  // Whoever drains is chosen no more; and one that is still down is no news.
  look_due_ |= !server.draining() &&
               (server.state() != server.seen || server.ejected() != server.seen_ejected);
  WorkSoon();
}

// The first tiers, until enough of the first one's number is usable.
uint32_t Balancer::LastTierInUse() const {
  if (servers_.empty()) return 0;
  const uint32_t last = servers_.back()->tier;
  uint32_t first_size = 0;
  for (const auto& server : servers_) first_size += server->tier == 0;
  const uint32_t enough =
      std::max<uint32_t>(1, (first_size * balancing_.min_local_percent + 99) / 100);
  uint32_t usable = 0;
  uint32_t tier = 0;
  for (const auto& server : servers_) {
    if (server->tier != tier && usable >= enough) return tier;
    tier = server->tier;
    usable += server->usable();
  }
  return last;
}

void Balancer::LookWhoIsReady() {
  look_due_ = false;
  connect_due_ = true;
  servers_looked_at_ += servers_.size();
  last_tier_ = LastTierInUse();
  ready_.clear();
  for (const auto& server : servers_) {
    server->seen = server->state();
    server->seen_ejected = server->ejected();
    server->chosen = server->tier <= last_tier_ && server->ready() && !server->ejected();
    if (server->chosen) ready_.push_back(server.get());
  }
  if (!ready_.empty()) return;
  for (const auto& server : servers_) {
    server->chosen = server->ready();
    if (server->chosen) ready_.push_back(server.get());
  }
}

ChannelState Balancer::state() {
  LookIfDue();
  if (!ready_.empty()) return ChannelState::kReady;
  if (servers_.empty()) return list_known_ ? ChannelState::kIdle : ChannelState::kConnecting;
  const bool connecting = std::any_of(servers_.begin(), servers_.end(),
                                      [](const auto& server) { return server->connecting(); });
  return connecting ? ChannelState::kConnecting : ChannelState::kTransientFailure;
}

absl::Status Balancer::NoServer() const {
  return NoServerError(
      target_, last_failure_.ok() ? absl::UnavailableError("no server is known") : last_failure_);
}

void Balancer::OnTimer() {
  if (new_list_) ApplyList();
  DestroyDrained();
  LookIfDue();
  if (std::exchange(connect_due_, false)) {
    for (const auto& server : servers_) {
      if (server->tier <= last_tier_) server->Connect();
    }
  }
  if (std::exchange(lost_, false)) source_->Refresh();
  const ChannelState now = state();
  // Each failed attempt comes by here: whether a lane without servers stands aside depends on the
  // others, which may have come back since its own state changed.
  if (now != std::exchange(told_, now) || now != ChannelState::kReady) {
    front_.OnServersChanged(now);
  }
  const bool failed = std::exchange(failed_, false);
  if (now == ChannelState::kReady) {
    front_.calls().Pump();
  } else if (failed && now != ChannelState::kConnecting) {
    front_.OnNoServer(NoServer());
  }
}

void Balancer::DestroyDrained() {
  // Callbacks may run inside.
  Servers gone;
  for (size_t i = 0; i < drained_.size();) {
    if (drained_[i]->state() != BalancedServer::State::kDrained) {
      ++i;
      continue;
    }
    gone.push_back(std::move(drained_[i]));
    drained_.erase(drained_.begin() + static_cast<ptrdiff_t>(i));
  }
  if (!gone.empty()) front_.calls().SetLastServer(nullptr);
  for (const auto& server : gone) AddCounts(server->connection().stats(), past_);
}

// --- ejection -----------------------------------------------------------------------------------

bool Balancer::MayEject() const {
  // Of those in use alone: servers of other zones do not make up for those of this one.
  const uint32_t last_tier = LastTierInUse();
  uint32_t count = 0;
  uint32_t ejected = 0;
  for (const auto& server : servers_) {
    if (server->tier > last_tier) continue;
    ++count;
    ejected += server->ejected();
  }
  const uint32_t percent = balancing_.ejection.max_percent;
  const uint32_t most = percent == 0 ? 0 : std::max<uint32_t>(1, count * percent / 100);
  return count > 1 && ejected < most;
}

void Balancer::Eject(BalancedServer& server) {
  if (ended_ || server.ejected() || server.draining() || !MayEject()) return;
  const EjectionOptions& ejection = balancing_.ejection;
  const uint64_t times = ++server.ejections_due;
  const uint64_t us = std::min(ejection.ejection_us * times, ejection.max_ejection_us);
  WEFT_LOG(kInfo, target_, ": server ", server.server().address, " is ejected for ",
           DurationText(us), ": it keeps failing");
  server.Eject(engine_.clock().NowNs() + us * kNsPerUs);
}

void Balancer::OnServerFailing(BalancedServer& server) { Eject(server); }

void Balancer::OnInterval() {
  engine_.timers().Schedule(&sweep_,
                            engine_.clock().NowNs() + balancing_.ejection.interval_us * kNsPerUs);
  std::vector<SuccessCount> counts;
  counts.reserve(servers_.size());
  for (const auto& server : servers_) {
    counts.push_back(server->TakeCount());
    if (!server->ejected() && server->ejections_due > 0) --server->ejections_due;
  }
  for (const uint32_t low : LowRates(counts)) Eject(*servers_[low]);
}

// --- facts --------------------------------------------------------------------------------------

std::vector<ServerFacts> Balancer::Facts() {
  std::vector<ServerFacts> facts;
  for (const Servers* const some : {&servers_, &drained_}) {
    for (const auto& server : *some) facts.push_back(server->facts());
  }
  return facts;
}

absl::StatusOr<PathInfo> Balancer::path() {
  LookIfDue();
  if (!ready_.empty()) return ready_[0]->connection().path();
  return NoServer();
}

std::string Balancer::Explain() {
  LookIfDue();
  std::string text = StrCat(target_, ": ", servers_.size(), " servers, ", ready_.size(),
                            " of them may be chosen\n");
  for (const ServerFacts& facts : Facts()) {
    absl::StrAppend(&text, facts.server.address, facts.server.zone.empty() ? "" : " in zone ",
                    facts.server.zone, ": ", ToAbsl(ChannelStateName(facts.state)),
                    facts.ejected ? ", ejected" : "", facts.draining ? ", draining" : "", ", ",
                    facts.under_way, " under way, ", facts.answers_ok, " ok, ", facts.failures,
                    " failures\n");
  }
  return text;
}

void Balancer::AddTo(ChannelStats& stats) {
  Add(past_, stats);
  for (const Servers* const some : {&servers_, &drained_}) {
    for (const auto& server : *some) Add(server->connection().stats(), stats);
  }
}

// --- the functions of balancing.h ---------------------------------------------------------------

absl::Status SetServers(Channel& channel, std::vector<ListedServer> servers) {
  if (const ChannelLanes* const lanes = internal::LanesOf(channel); lanes != nullptr) {
    if (std::any_of(lanes->engines().begin(), lanes->engines().end(),
                    [](EngineCore* engine) { return engine->InTurn(); })) {
      return absl::FailedPreconditionError(
          StrCat("SetServers() on ", lanes->engines().size(),
                 " engines, inside a callback of one of "
                 "them, which cannot wait for the others: call it on another thread"));
    }
    if (lanes->engines().front()->forked()) return EngineCore::ForkedError();
    const std::lock_guard<std::mutex> lock(lanes->list_mutex());
    for (const std::unique_ptr<Channel>& lane : lanes->all()) {
      WEFT_RETURN_IF_ERROR(SetServers(*lane, servers));
    }
    return absl::OkStatus();
  }
  absl::Status set = absl::FailedPreconditionError(StrCat("the channel to ", channel.address(),
                                                          " is to one address: SetServers() is for "
                                                          "channels of OpenBalanced()"));
  EngineCore& engine = CoreOf(channel.engine());
  const bool ran = RunOnEngine(engine, [&] {
    Balancer* const balancer = internal::ConnectionOf(channel).balancer();
    if (balancer != nullptr) set = balancer->SetServers(std::move(servers));
  });
  return ran ? set : NotPostedError(engine);
}

std::vector<ServerFacts> ServersOf(Channel& channel) {
  std::vector<ServerFacts> facts;
  Channel& here = channel.here();
  RunOnEngine(CoreOf(here.engine()), [&] {
    Balancer* const balancer = internal::ConnectionOf(here).balancer();
    if (balancer != nullptr) facts = balancer->Facts();
  });
  return facts;
}

}  // namespace weft
