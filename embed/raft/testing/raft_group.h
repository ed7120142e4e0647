// A Raft group on a simulated network, whose members are killed and started again.
//
// Threads: one. Lifetime: disks are the group's, and outlive its members.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "embed/raft/testing/memory_disk.h"
#include "embed/raft/testing/raft_machine.h"
#include "weft/sim.h"

namespace weft::embed::test {

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
