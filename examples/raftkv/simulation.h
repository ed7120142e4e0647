// A whole group in the simulator: libraft with its clock, random numbers, ticks and disk in
// simulation, Weft's simulated network between members and to clients, RocksDB in memory. Where
// the kernel's random numbers are a seed's too, as in simulation_test, a seed is one run, event by
// event.
//
// Threads: one (RocksDB's own apart, which have nothing to do: a state of up to 32 MiB stays in its
// memtable). Lifetime: the network outlives members.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "embed/raft/raft_network.h"
#include "embed/raft/testing/memory_disk.h"
#include "examples/raftkv/replica.h"
#include "examples/raftkv/services.h"
#include "examples/raftkv/state_machine.h"
#include "weft/server.h"
#include "weft/sim.h"

namespace rocksdb {
class Env;
}  // namespace rocksdb

namespace raftkv::test {

// What outlives a member's processes.
struct Disk {
  weft::embed::test::MemoryDisk log;
  std::string state;  // what RocksDB had flushed last, as a snapshot; may be empty
};

// One process.
class SimMember {
 public:
  // `node`: its machine, another one for each process. Bootstraps with `voters`, if there are any.
  SimMember(weft::SimNetwork& network, std::string node, raft_id id, Disk* disk,
            unsigned snapshot_entries, const std::vector<raft_id>& voters,
            weft::embed::RaftReplication replication = weft::embed::RaftReplication::kMessages);
  ~SimMember();
  SimMember(const SimMember&) = delete;
  SimMember& operator=(const SimMember&) = delete;

  static std::string MemberAddress(raft_id id) { return "sim:member-" + std::to_string(id); }
  static std::string ClientAddress(raft_id id) { return "sim:kv-" + std::to_string(id); }

  // What was applied is on the disk from now on, as when RocksDB flushes by itself.
  void FlushState();
  // All that clients can see, and how far it has come.
  std::string Everything() const;

  raft_id id() const { return id_; }
  const std::string& node() const { return node_; }
  Replica& replica() { return *replica_; }
  const weft::embed::test::MemoryDiskIo& disk_io() const { return io_; }
  weft::embed::RaftNetwork& network() { return *half_; }
  const StateHeader& header() const { return state_->header(); }
  // Its disk has failed: the process would have ended.
  bool failed() const { return failed_; }

 private:
  const raft_id id_;
  const std::string node_;
  Disk& disk_;
  bool failed_ = false;
  const std::unique_ptr<rocksdb::Env> env_;
  std::unique_ptr<StateMachine> state_;
  weft::embed::test::MemoryDiskIo io_;
  std::unique_ptr<weft::embed::RaftNetwork> half_;
  std::unique_ptr<Replica> replica_;
  std::unique_ptr<KvService> kv_;
  std::unique_ptr<ClusterService> cluster_;
  std::unique_ptr<weft::Server> server_;
};

}  // namespace raftkv::test
