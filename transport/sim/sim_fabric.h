// The machinery under SimNetwork: events in virtual time, and the nodes between which they travel.
// Internal to transport/sim.
//
// An event is a task at a time. Events of one time run in the order in which they were made. What
// one node sends to another arrives in order. An arriving event runs as the network card would run
// it, while the node does something else; what the node's program has to notice is handed to it
// with Deliver() and runs inside its engine's Poll().
//
// Threads: one. Invariants: time never runs backwards.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/function.h"
#include "core/random.h"
#include "transport/engine.h"
#include "transport/sim/sim_network.h"

namespace weft {

class SimLink;
class SimTransport;

class SimFabric {
 public:
  using Task = Function<void()>;
  using NodeId = uint32_t;
  // What carries it: the link, or the control connection beside it (SimOptions::control_apart).
  enum class Way : uint8_t { kLink = 1, kControl = 2 };

  SimFabric(uint64_t seed, const SimOptions& options);
  ~SimFabric();
  SimFabric(const SimFabric&) = delete;
  SimFabric& operator=(const SimFabric&) = delete;

  const SimOptions& options() const { return options_; }
  FakeClock& clock() { return clock_; }
  uint64_t now_ns() const { return clock_.NowNs(); }
  Random& random() { return random_; }

  // --- nodes ------------------------------------------------------------------------------------

  EngineCore& NodeEngine(const std::string& name);
  NodeId IdOf(const std::string& name) const;
  const std::string& NameOf(NodeId node) const { return nodes_[node]->name; }
  bool alive(NodeId node) const { return nodes_[node]->alive; }
  // Null before and after its life.
  SimTransport* transport(NodeId node) const { return nodes_[node]->transport; }
  NodeId node_count() const { return static_cast<NodeId>(nodes_.size()); }
  void SetTransport(NodeId node, SimTransport* transport) { nodes_[node]->transport = transport; }
  const PeerIdentity& identity(NodeId node) const { return nodes_[node]->identity; }
  void SetIdentity(NodeId node, PeerIdentity identity) {
    nodes_[node]->identity = std::move(identity);
  }

  // --- events -----------------------------------------------------------------------------------

  // Sends `bytes` from one node to another; `arrive` runs there, unless it is dead by then. `what`
  // and `digest` stand in the trace. Returns when the last byte has left.
  uint64_t Transmit(NodeId from, NodeId to, uint64_t bytes, const char* what, uint64_t digest,
                    Task arrive, Way way = Way::kLink);
  void At(uint64_t time_ns, Task task);
  // Runs `task` in the node's next Poll(). Dead nodes do nothing.
  void Deliver(NodeId node, Task task);
  // As Deliver(), at the pace of a slow receiver.
  void DeliverBatch(NodeId node, Task task);
  int RunDelivered(NodeId node, int budget);
  bool HasDelivered(NodeId node) const { return !nodes_[node]->delivered.empty(); }

  // --- time -------------------------------------------------------------------------------------

  // Polls nodes, in turn, until none has anything to do, but those that are being polled already.
  bool PollNodes();
  // Moves the time to the next event or timer, not beyond `until_ns`, and runs what is due. False:
  // there is nothing before `until_ns`; the time is not moved.
  bool Advance(uint64_t until_ns, bool timers_count);
  // For Transport::Idle(): the node itself is blocked, the others run.
  bool Idle(NodeId node, uint64_t until_ns);
  void MoveTo(uint64_t time_ns);

  // --- faults -----------------------------------------------------------------------------------

  void SetWire(NodeId from, NodeId to, const SimWire& wire) { PairOf(from, to).wire = wire; }
  // Neither is dead, and nothing is cut between them.
  bool Reaches(NodeId from, NodeId to) {
    return alive(from) && alive(to) && !PairOf(from, to).cut && !PairOf(to, from).cut;
  }
  void Cut(NodeId from, NodeId to);
  void Heal(NodeId from, NodeId to);
  void Kill(NodeId node);
  void SlowDown(NodeId node, uint64_t ns_per_batch) { nodes_[node]->ns_per_batch = ns_per_batch; }
  void Freeze(NodeId node) { nodes_[node]->frozen = true; }
  void Thaw(NodeId node) { nodes_[node]->frozen = false; }
  void StopAnswering(NodeId node) { nodes_[node]->answers = false; }
  bool answers(NodeId node) const { return nodes_[node]->answers; }
  void Corrupt(NodeId from, NodeId to, Function<void(std::vector<std::byte>&)> change);
  void MaybeCorrupt(NodeId from, NodeId to, std::vector<std::byte>& batch);

  // --- links and listeners ----------------------------------------------------------------------

  uint64_t AddLink(SimLink* link);
  void RemoveLink(uint64_t id) { links_.erase(id); }
  SimLink* FindLink(uint64_t id) const;  // null: closed

  // The listening nodes' names, as in "sim:NAME". A dead node's name may be taken over; until then
  // nobody answers there.
  bool AddListener(const std::string& name, NodeId node);
  void RemoveListener(const std::string& name, NodeId node);
  // False: nobody.
  bool FindListener(const std::string& name, NodeId* node) const;

  // --- trace ------------------------------------------------------------------------------------

  void Trace(const char* what, NodeId from, NodeId to, uint64_t bytes, uint64_t digest);
  uint64_t trace_hash() const { return trace_hash_; }
  const std::vector<std::string>& trace() const { return trace_; }
  static uint64_t Digest(ByteSpan bytes);

 private:
  struct Node {
    std::string name;
    PeerIdentity identity;  // as others see it
    std::unique_ptr<EngineCore> engine;
    SimTransport* transport = nullptr;
    bool alive = true;
    bool frozen = false;
    bool polling = false;
    std::deque<Task> delivered;
    uint64_t ns_per_batch = 0;
    bool answers = true;  // one-sided operations of others
    uint64_t next_batch_ns = 0;
  };
  struct Held {
    uint64_t bytes;
    const char* what;
    uint64_t digest;
    Task arrive;
    Way way;
  };
  // What leaves and arrives in order.
  struct Line {
    uint64_t free_ns = 0;  // when the last byte so far has left
    uint64_t last_arrival_ns = 0;
  };
  // One direction between two nodes.
  struct Pair {
    SimWire wire;
    Line link;
    Line control;       // used if SimOptions::control_apart
    uint64_t cuts = 0;  // ever; tells one cut from the next
    bool cut = false;
    std::deque<Held> held;
    Function<void(std::vector<std::byte>&)> corrupt;
  };
  // What Transmit() has put on the way.
  struct Arrival {
    NodeId from;
    NodeId to;
    uint64_t bytes;
    const char* what = nullptr;  // null: the event is no arrival
    uint64_t digest;
  };
  struct Event {
    uint64_t time_ns;
    uint64_t sequence;
    uint32_t place;  // of what it does, in happening_: a heap moves its elements about
  };
  struct Happening {
    Task task;
    Arrival arrival;
  };
  struct Later {
    bool operator()(const Event& a, const Event& b) const {
      return std::pair(a.time_ns, a.sequence) > std::pair(b.time_ns, b.sequence);
    }
  };

  Pair& PairOf(NodeId from, NodeId to);
  void AddEvent(uint64_t time_ns, Task task, const Arrival& arrival);
  void RunEvent(const Event& event);
  // A turn of it would find something.
  bool HasWork(const Node& node) const;
  uint64_t NextTimerNs() const;
  bool PollNode(NodeId node);

  const SimOptions options_;
  FakeClock clock_;
  Random random_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<NodeId> living_;  // of nodes_, in order, and some that are dead
  int polls_ = 0;               // PollNodes() that are under way: one inside of the other
  std::map<std::pair<NodeId, NodeId>, Pair> pairs_;
  std::vector<Event> events_;  // a heap by Later
  std::vector<Happening> happening_;
  std::vector<uint32_t> free_places_;  // of happening_
  uint64_t next_sequence_ = 0;
  std::map<uint64_t, SimLink*> links_;
  uint64_t next_link_ = 1;
  std::map<std::string, NodeId> listeners_;
  uint64_t trace_hash_ = 0xcbf29ce484222325;  // FNV-1a's
  std::vector<std::string> trace_;
  bool ending_ = false;
};

}  // namespace weft
