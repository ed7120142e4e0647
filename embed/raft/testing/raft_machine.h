// Members of a Raft group on machines of a simulated network: libraft with its repair, Weft's
// network half, and a disk in memory.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "embed/raft/libraft.h"
#include "embed/raft/raft_network.h"
#include "embed/raft/raft_repair.h"
#include "embed/raft/testing/memory_disk.h"
#include "weft/sim.h"

namespace weft::embed::test {

// One process. Its state machine is the list of commands that were applied.
class RaftMachine {
 public:
  struct Options {
    unsigned snapshot_threshold = 1024;
    std::string address = {};  // empty: Address(id)
    RaftNetworkOptions network = {};
    std::set<raft_id> without_rings = {};  // members that say kMessages
  };

  RaftMachine(SimNetwork& network, std::string node, raft_id id, MemoryDisk& disk,
              const Options& options)
      : id_(id), node_(std::move(node)), disk_(disk, network.Node(node_), id) {
    fsm_.version = 1;
    fsm_.data = this;
    fsm_.apply = Apply;
    fsm_.snapshot = TakeSnapshot;
    fsm_.restore = Restore;
    RaftNetworkOptions network_options = options.network;
    network_options.memory_was_lost = disk.memory_mark;
    network_options.keep_memory_mark = [&disk](bool mark) {
      disk.memory_mark = mark;
      return absl::OkStatus();
    };
    auto half = RaftNetwork::Attach(disk_.io(), network.Node(node_), network_options);
    EXPECT_TRUE(half.ok()) << half.status();
    half_ = *std::move(half);
    WrapIo(disk_.io());
    const std::string address = options.address.empty() ? Address(id) : options.address;
    EXPECT_EQ(raft_init(&raft_, disk_.io(), &fsm_, id, address.c_str()), 0);
    raft_set_snapshot_threshold(&raft_, options.snapshot_threshold);
    raft_set_snapshot_trailing(&raft_, 8);
    raft_set_pre_vote(&raft_, true);
  }
  // Dead or alive.
  ~RaftMachine() {
    disk_.Die();
    half_.reset();
    if (!closed_) raft_close(&raft_, nullptr);
  }
  RaftMachine(const RaftMachine&) = delete;
  RaftMachine& operator=(const RaftMachine&) = delete;

  static std::string Address(raft_id id) { return "sim:member-" + std::to_string(id); }

  void Bootstrap(const std::vector<raft_id>& voters) {
    raft_configuration configuration;
    raft_configuration_init(&configuration);
    for (const raft_id id : voters) {
      raft_configuration_add(&configuration, id, Address(id).c_str(), RAFT_VOTER);
    }
    EXPECT_EQ(raft_bootstrap(&raft_, &configuration), 0);
    raft_configuration_close(&configuration);
  }
  void Start() { EXPECT_EQ(raft_start(&raft_), 0) << raft_errmsg(&raft_); }

  // Starts to apply; its result is at *status then, which is 1 before.
  void Propose(const std::string& command, int* status) {
    *status = 1;
    auto* const request = new Request{{}, status};
    request->apply.data = request;
    raft_buffer buffer = {raft_malloc(command.size()), command.size()};
    std::memcpy(buffer.base, command.data(), command.size());
    const int code = raft_apply(&raft_, &request->apply, &buffer, 1, OnApplied);
    if (code == 0) return;
    raft_free(buffer.base);
    *status = code;
    delete request;
  }
  void Add(raft_id id, int* status) { Add(id, Address(id), status); }
  void Add(raft_id id, const std::string& address, int* status) {
    Change(status, [&](raft_change* change) {
      return raft_add(&raft_, change, id, address.c_str(), OnChanged);
    });
  }
  void Assign(raft_id id, int role, int* status) {
    Change(status,
           [&](raft_change* change) { return raft_assign(&raft_, change, id, role, OnChanged); });
  }
  void Remove(raft_id id, int* status) {
    Change(status, [&](raft_change* change) { return raft_remove(&raft_, change, id, OnChanged); });
  }
  void Transfer(raft_id id) {
    EXPECT_EQ(raft_transfer(&raft_, &transfer_, id, [](struct raft_transfer*) {}), 0);
  }
  void Close(bool* closed) {
    closed_ = true;
    raft_.data = closed;
    raft_close(&raft_, [](struct raft* r) { *static_cast<bool*>(r->data) = true; });
  }

  bool leads() { return raft_state(&raft_) == RAFT_LEADER; }
  raft_id id() const { return id_; }
  const std::string& node() const { return node_; }
  const std::vector<std::string>& applied() const { return applied_; }
  int restored() const { return restored_; }
  RaftNetwork& network() { return *half_; }
  struct raft* get() {
    return &raft_;
  }

 private:
  struct Request {
    struct raft_apply apply;
    int* status;
  };
  struct Changing {
    raft_change change;
    int* status;
  };

  static RaftMachine& Self(const raft_fsm* fsm) { return *static_cast<RaftMachine*>(fsm->data); }
  static RaftMachine& Self(const raft_io* io) { return Self(static_cast<raft*>(io->data)->fsm); }

  void WrapIo(raft_io* io) {
    wrapped_ = *io;
    io->load = [](raft_io* each, raft_term* term, raft_id* voted_for, raft_snapshot** snapshot,
                  raft_index* start_index, raft_entry** entries, size_t* n_entries) {
      RaftMachine& self = Self(each);
      const int code =
          self.wrapped_.load(each, term, voted_for, snapshot, start_index, entries, n_entries);
      if (code == 0 && *snapshot != nullptr) self.repair_.KeepSnapshot(**snapshot);
      return code;
    };
    io->snapshot_put = [](raft_io* each, unsigned trailing, raft_io_snapshot_put* request,
                          const raft_snapshot* snapshot, raft_io_snapshot_put_cb callback) {
      Self(each).repair_.KeepSnapshot(*snapshot);
      return Self(each).wrapped_.snapshot_put(each, trailing, request, snapshot, callback);
    };
    io->send = [](raft_io* each, raft_io_send* request, const raft_message* message,
                  raft_io_send_cb callback) {
      RaftMachine& self = Self(each);
      const bool was_sending = std::exchange(self.sending_, true);
      const int code = self.wrapped_.send(each, request, message, callback);
      self.sending_ = was_sending;
      return code;
    };
    io->start = [](raft_io* each, unsigned msecs, raft_io_tick_cb tick, raft_io_recv_cb receive) {
      Self(each).receive_ = receive;
      return Self(each).wrapped_.start(each, msecs, tick,
                                       [](raft_io* later, raft_message* message) {
                                         RaftMachine& self = Self(later);
                                         EXPECT_FALSE(self.sending_) << "libraft is on the stack";
                                         self.repair_.BeforeMessage(&self.raft_, *message);
                                         self.receive_(later, message);
                                       });
    };
  }

  static int Apply(raft_fsm* fsm, const raft_buffer* buffer, void** result) {
    *result = nullptr;
    Self(fsm).applied_.emplace_back(static_cast<const char*>(buffer->base), buffer->len);
    return 0;
  }
  static int TakeSnapshot(raft_fsm* fsm, raft_buffer** buffers, unsigned* count) {
    if (!Self(fsm).repair_.PermitSnapshot(&Self(fsm).raft_)) return RAFT_BUSY;
    std::string all;
    for (const std::string& command : Self(fsm).applied_) {
      all += std::to_string(command.size()) + ":" + command;
    }
    *buffers = static_cast<raft_buffer*>(raft_malloc(sizeof(raft_buffer)));
    (*buffers)[0] = {raft_malloc(all.size() + 1), all.size()};
    std::memcpy((*buffers)[0].base, all.data(), all.size());
    *count = 1;
    return 0;
  }
  static int Restore(raft_fsm* fsm, raft_buffer* buffer) {
    RaftMachine& self = Self(fsm);
    std::string all(static_cast<const char*>(buffer->base), buffer->len);
    raft_free(buffer->base);
    self.applied_.clear();
    ++self.restored_;
    for (size_t at = 0; at < all.size();) {
      const size_t colon = all.find(':', at);
      const size_t bytes = std::stoul(all.substr(at, colon - at));
      self.applied_.push_back(all.substr(colon + 1, bytes));
      at = colon + 1 + bytes;
    }
    return 0;
  }
  static void OnApplied(struct raft_apply* apply, int status, void*) {
    auto* const request = static_cast<Request*>(apply->data);
    *request->status = status;
    delete request;
  }
  template <class Call>
  void Change(int* status, Call call) {
    *status = 1;
    auto* const changing = new Changing{{}, status};
    changing->change.data = changing;
    if (const int code = call(&changing->change); code != 0) {
      *status = code;
      delete changing;
    }
  }
  static void OnChanged(raft_change* change, int status) {
    auto* const changing = static_cast<Changing*>(change->data);
    *changing->status = status;
    delete changing;
  }

  const raft_id id_;
  const std::string node_;
  MemoryDiskIo disk_;
  raft_fsm fsm_ = {};
  struct raft raft_ = {};
  struct raft_transfer transfer_ = {};
  RaftRepair repair_;
  raft_io wrapped_ = {};
  raft_io_recv_cb receive_ = nullptr;
  bool sending_ = false;  // libraft is
  std::unique_ptr<RaftNetwork> half_;
  std::vector<std::string> applied_;
  int restored_ = 0;
  bool closed_ = false;
};

// A group, whose members are killed and started again.
class RaftGroup {
 public:
  RaftGroup(uint64_t seed, const std::vector<raft_id>& voters, RaftMachine::Options options = {},
            const SimOptions& network = {})
      : options_(std::move(options)), network_(seed, network) {
    for (const raft_id id : voters) {
      RaftMachine& machine = Make(id);
      machine.Bootstrap(voters);
      machine.Start();
    }
  }
  ~RaftGroup() {
    machines_.clear();
    dead_.clear();
  }

  RaftMachine& Make(raft_id id) {
    const std::string node = "node-" + std::to_string(id) + "-" + std::to_string(++started_);
    auto& machine = machines_[id];
    RaftMachine::Options options = options_;
    options.address = addresses_[id];
    if (options.without_rings.contains(id)) {
      options.network.replication = RaftReplication::kMessages;
    }
    machine = std::make_unique<RaftMachine>(network_, node, id, disks_[id], options);
    return *machine;
  }
  // Where it is from its next start on.
  void Move(raft_id id, const std::string& address) { addresses_[id] = address; }
  // When no write of it into another's memory is under way, or about to be: what a killed node had
  // begun ends with the network, which is too late for who waits for it.
  void Kill(raft_id id) {
    RaftNetwork& half = machines_.at(id)->network();
    while (half.stats().rings.written > 0) {
      network_.RunFor(1);  // what is to be sent is sent then
      if (half.stats().rings.writing == 0) break;
      if (!RunUntil([&] { return half.stats().rings.writing == 0; })) break;
    }
    network_.Kill(machines_.at(id)->node());
    dead_.push_back(std::move(machines_.at(id)));
    machines_.erase(id);
  }
  void Restart(raft_id id) { Make(id).Start(); }

  RaftMachine* Leader() {
    for (auto& [id, machine] : machines_) {
      if (machine->leads()) return machine.get();
    }
    return nullptr;
  }
  bool RunUntil(Function<bool()> done, uint64_t limit_ns = uint64_t{60'000'000'000}) {
    const bool result = network_.RunUntil(std::move(done), limit_ns);
    network_.CheckInvariants();
    return result;
  }
  bool HasLeader() {
    return RunUntil([this] { return Leader() != nullptr; });
  }
  // By whoever leads, as often as it takes.
  bool Commit(const std::string& command) {
    for (int i = 0; i < 20; ++i) {
      if (!HasLeader()) return false;
      int status = 0;
      Leader()->Propose(command, &status);
      if (!RunUntil([&status] { return status != 1; })) return false;
      if (status == 0) return true;
    }
    return false;
  }
  bool AllHave(size_t commands) {
    return RunUntil([this, commands] {
      for (auto& [id, machine] : machines_) {
        if (machine->applied().size() < commands) return false;
      }
      return true;
    });
  }

  SimNetwork& network() { return network_; }
  RaftMachine& member(raft_id id) { return *machines_.at(id); }
  std::map<raft_id, std::unique_ptr<RaftMachine>>& machines() { return machines_; }
  MemoryDisk& disk(raft_id id) { return disks_[id]; }

 private:
  const RaftMachine::Options options_;
  std::map<raft_id, MemoryDisk> disks_;
  std::map<raft_id, std::string> addresses_;  // of those that have moved
  SimNetwork network_;
  std::map<raft_id, std::unique_ptr<RaftMachine>> machines_;
  std::vector<std::unique_ptr<RaftMachine>> dead_;
  int started_ = 0;
};

}  // namespace weft::embed::test
