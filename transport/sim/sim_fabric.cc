#include "transport/sim/sim_fabric.h"

#include <algorithm>

#include "core/check.h"
#include "core/strings.h"
#include "transport/sim/sim_transport.h"

namespace weft {
namespace {

constexpr uint64_t kFnvPrime = 0x100000001b3;

uint64_t Mix(uint64_t hash, uint64_t value) {
  for (int byte = 0; byte < 8; ++byte) {
    hash = (hash ^ (value >> (8 * byte) & 0xff)) * kFnvPrime;
  }
  return hash;
}

// Two nodes that keep each other busy without any time passing are a bug, not a load.
constexpr int kMaxRoundsWithoutTime = 1'000'000;

}  // namespace

SimFabric::SimFabric(uint64_t seed, const SimOptions& options) : options_(options), random_(seed) {
  // User: how a test uses the simulated network
  WEFT_CHECK(options.slot_bytes >= kMinBatchBytes && options.slot_bytes <= 65536 &&
             options.slot_bytes % kFrameAlignment == 0);
  WEFT_CHECK(options.usual_slot_bytes == 0 || (options.usual_slot_bytes >= kMinBatchBytes &&
                                               options.usual_slot_bytes <= options.slot_bytes));
}

SimFabric::~SimFabric() {
  ending_ = true;
  for (auto& node : nodes_) node->engine.reset();
}

// --- nodes --------------------------------------------------------------------------------------

EngineCore& SimFabric::NodeEngine(const std::string& name) {
  for (auto& node : nodes_) {
    if (node->name == name) return *node->engine;
  }
  const NodeId id = node_count();
  nodes_.push_back(std::make_unique<Node>());
  nodes_.back()->name = name;
  EngineOptions options;
  options.drive = EngineOptions::Drive::kExternal;
  options.name = name;
  options.clock = &clock_;
  options.inbox_slots = options_.inbox_slots;
  auto engine = EngineCore::Create(
      options,
      [this, id](const EngineContext& context) -> absl::StatusOr<std::unique_ptr<Transport>> {
        return std::unique_ptr<Transport>(std::make_unique<SimTransport>(this, id, context));
      });
  WEFT_CHECK(engine.ok());  // User: how a test uses the simulated network
  nodes_.back()->engine = *std::move(engine);
  living_.push_back(id);
  return *nodes_.back()->engine;
}

SimFabric::NodeId SimFabric::IdOf(const std::string& name) const {
  for (NodeId id = 0; id < node_count(); ++id) {
    if (nodes_[id]->name == name) return id;
  }
  WEFT_CHECK(!"a Node() of this name");  // User: how a test uses the simulated network
  return 0;
}

// --- events -------------------------------------------------------------------------------------

uint64_t SimFabric::Transmit(NodeId from, NodeId to, uint64_t bytes, const char* what,
                             uint64_t digest, Task arrive, Way way) {
  if (ending_ || !alive(from)) return now_ns();
  Pair& pair = PairOf(from, to);
  if (pair.cut) {
    pair.held.push_back({bytes, what, digest, std::move(arrive), way});
    return now_ns();
  }
  const SimWire& wire = pair.wire;
  const uint64_t wire_ns = wire.bytes_per_s == 0
                               ? 0
                               : static_cast<uint64_t>(static_cast<double>(bytes) * kNsPerSec /
                                                       static_cast<double>(wire.bytes_per_s));
  Line& line = way == Way::kControl && options_.control_apart ? pair.control : pair.link;
  line.free_ns = std::max(line.free_ns, now_ns()) + wire_ns;
  const uint64_t jitter_ns = random_.UniformInRange(0, wire.jitter_ns);
  line.last_arrival_ns = std::max(line.last_arrival_ns, line.free_ns + wire.delay_ns + jitter_ns);
  AddEvent(line.last_arrival_ns, std::move(arrive), {from, to, bytes, what, digest});
  return line.free_ns;
}

void SimFabric::At(uint64_t time_ns, Task task) { AddEvent(time_ns, std::move(task), {}); }

void SimFabric::AddEvent(uint64_t time_ns, Task task, const Arrival& arrival) {
  if (free_places_.empty()) {
    free_places_.push_back(static_cast<uint32_t>(happening_.size()));
    happening_.emplace_back();
  }
  const uint32_t place = free_places_.back();
  free_places_.pop_back();
  happening_[place] = {std::move(task), arrival};
  events_.push_back({std::max(time_ns, now_ns()), next_sequence_++, place});
  std::push_heap(events_.begin(), events_.end(), Later());
}

void SimFabric::RunEvent(const Event& event) {
  Task task = std::move(happening_[event.place].task);
  const Arrival arrival = happening_[event.place].arrival;
  free_places_.push_back(event.place);
  if (arrival.what != nullptr) {
    Trace(arrival.what, arrival.from, arrival.to, arrival.bytes, arrival.digest);
    if (!alive(arrival.to)) return;
  }
  task();
}

void SimFabric::Deliver(NodeId node, Task task) {
  if (alive(node) && !ending_) nodes_[node]->delivered.push_back(std::move(task));
}

void SimFabric::DeliverBatch(NodeId node, Task task) {
  Node& target = *nodes_[node];
  // Not past one that still waits, from before SlowDown(node, 0).
  const bool others_wait = target.next_batch_ns >= now_ns();
  if (target.ns_per_batch == 0 && !others_wait) return Deliver(node, std::move(task));
  target.next_batch_ns = std::max(target.next_batch_ns, now_ns()) + target.ns_per_batch;
  At(target.next_batch_ns,
     [this, node, task = std::move(task)]() mutable { Deliver(node, std::move(task)); });
}

int SimFabric::RunDelivered(NodeId node, int budget) {
  std::deque<Task>& delivered = nodes_[node]->delivered;
  int count = 0;
  for (; count < budget && !delivered.empty() && alive(node); ++count) {
    Task task = std::move(delivered.front());
    delivered.pop_front();
    task();
  }
  return count;
}

// --- time ---------------------------------------------------------------------------------------

bool SimFabric::HasWork(const Node& node) const {
  return !node.delivered.empty() || !node.engine->IsIdleAt(now_ns()) || node.transport->has_work();
}

bool SimFabric::PollNode(NodeId id) {
  Node& node = *nodes_[id];
  if (!node.alive || node.frozen || node.polling || node.engine == nullptr || !HasWork(node)) {
    return false;
  }
  node.polling = true;
  const bool worked = node.engine->Poll() > 0;
  node.polling = false;
  return worked;
}

bool SimFabric::PollNodes() {
  if (polls_++ == 0) std::erase_if(living_, [this](NodeId id) { return !alive(id); });
  bool any = false;
  bool worked = true;
  for (int round = 0; worked; ++round) {
    WEFT_CHECK(round < kMaxRoundsWithoutTime);  // User: how a test uses the simulated network
    worked = false;
    // By index: there may be more of them meanwhile.
    for (size_t i = 0; i < living_.size(); ++i) worked |= PollNode(living_[i]);
    any |= worked;
  }
  --polls_;
  return any;
}

uint64_t SimFabric::NextTimerNs() const {
  uint64_t next_ns = kNever;
  for (const NodeId id : living_) {
    const Node& node = *nodes_[id];
    if (node.alive && !node.frozen && node.engine != nullptr) {
      next_ns = std::min(next_ns, node.engine->NextTimerNs());
    }
  }
  return next_ns;
}

bool SimFabric::Advance(uint64_t until_ns, bool timers_count) {
  const uint64_t event_ns = events_.empty() ? kNever : events_.front().time_ns;
  const uint64_t next_ns = timers_count ? std::min(event_ns, NextTimerNs()) : event_ns;
  if (next_ns == kNever || next_ns > until_ns) return false;
  MoveTo(next_ns);
  while (!events_.empty() && events_.front().time_ns <= now_ns()) {
    std::pop_heap(events_.begin(), events_.end(), Later());
    const Event event = events_.back();
    events_.pop_back();
    RunEvent(event);
  }
  return true;
}

void SimFabric::MoveTo(uint64_t time_ns) {
  if (time_ns > now_ns()) clock_.Set(time_ns);
}

bool SimFabric::Idle(NodeId node, uint64_t until_ns) {
  Node& blocked = *nodes_[node];
  // Polled from outside: who polls moves the time.
  if (blocked.polling) return false;
  blocked.polling = true;
  const bool worked = PollNodes() || HasDelivered(node) || Advance(until_ns, true);
  blocked.polling = false;
  if (worked) return true;
  WEFT_CHECK(until_ns != kNever);  // User: how a test uses the simulated network
  MoveTo(until_ns);
  return true;
}

// --- faults -------------------------------------------------------------------------------------

SimFabric::Pair& SimFabric::PairOf(NodeId from, NodeId to) {
  const auto [at, made] = pairs_.try_emplace({from, to});
  if (made) at->second.wire = options_.wire;
  return at->second;
}

void SimFabric::Cut(NodeId from, NodeId to) {
  Pair& pair = PairOf(from, to);
  if (pair.cut) return;
  Trace("cut", from, to, 0, 0);
  pair.cut = true;
  At(now_ns() + options_.lifeline_timeout_ns, [this, from, to, cut = ++pair.cuts] {
    const Pair& now = PairOf(from, to);
    if (!now.cut || now.cuts != cut) return;
    Deliver(to, [this, from, to] { transport(to)->OnPeerGone(from, /*dead=*/false); });
  });
}

void SimFabric::Heal(NodeId from, NodeId to) {
  Pair& pair = PairOf(from, to);
  if (!pair.cut) return;
  Trace("heal", from, to, 0, 0);
  pair.cut = false;
  std::deque<Held> held;
  held.swap(pair.held);
  for (Held& one : held) {
    Transmit(from, to, one.bytes, one.what, one.digest, std::move(one.arrive), one.way);
  }
}

void SimFabric::Kill(NodeId node) {
  if (!alive(node)) return;
  Trace("kill", node, node, 0, 0);
  nodes_[node]->alive = false;
  nodes_[node]->delivered.clear();
  At(now_ns() + options_.lifeline_delay_ns, [this, node] {
    for (NodeId other = 0; other < node_count(); ++other) {
      Deliver(other, [this, other, node] { transport(other)->OnPeerGone(node, /*dead=*/true); });
    }
  });
}

void SimFabric::Corrupt(NodeId from, NodeId to, Function<void(std::vector<std::byte>&)> change) {
  PairOf(from, to).corrupt = std::move(change);
}

void SimFabric::MaybeCorrupt(NodeId from, NodeId to, std::vector<std::byte>& batch) {
  Pair& pair = PairOf(from, to);
  if (!pair.corrupt) return;
  pair.corrupt(batch);
  pair.corrupt = nullptr;
}

// --- links and listeners ------------------------------------------------------------------------

uint64_t SimFabric::AddLink(SimLink* link) {
  links_[next_link_] = link;
  return next_link_++;
}

SimLink* SimFabric::FindLink(uint64_t id) const {
  const auto found = links_.find(id);
  return found == links_.end() ? nullptr : found->second;
}

bool SimFabric::AddListener(const std::string& name, NodeId node) {
  const auto [entry, is_new] = listeners_.emplace(name, node);
  if (!is_new && alive(entry->second)) return false;
  entry->second = node;
  return true;
}

void SimFabric::RemoveListener(const std::string& name, NodeId node) {
  const auto found = listeners_.find(name);
  if (found != listeners_.end() && found->second == node) listeners_.erase(found);
}

bool SimFabric::FindListener(const std::string& name, NodeId* node) const {
  const auto found = listeners_.find(name);
  if (found == listeners_.end()) return false;
  *node = found->second;
  return true;
}

// --- trace --------------------------------------------------------------------------------------

void SimFabric::Trace(const char* what, NodeId from, NodeId to, uint64_t bytes, uint64_t digest) {
  const uint64_t kind = Digest(AsBytes(what));
  for (uint64_t value : {now_ns(), kind, uint64_t{from}, uint64_t{to}, bytes, digest}) {
    trace_hash_ = Mix(trace_hash_, value);
  }
  if (!options_.keep_trace) return;
  trace_.push_back(StrCat(now_ns(), " ns ", NameOf(from), " > ", NameOf(to), ": ", what, ", ",
                          bytes, " bytes, digest ", digest));
}

// FNV-1a by words: payloads of many MiB go through here.
uint64_t SimFabric::Digest(ByteSpan bytes) {
  uint64_t hash = 0xcbf29ce484222325 ^ bytes.size();
  for (; bytes.size() >= 8; bytes = bytes.subspan(8)) {
    hash = (hash ^ LoadLe64(bytes.data())) * kFnvPrime;
  }
  for (const std::byte byte : bytes) hash = (hash ^ static_cast<uint64_t>(byte)) * kFnvPrime;
  return hash;
}

}  // namespace weft
