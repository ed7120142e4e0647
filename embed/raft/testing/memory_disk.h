// The disk half of a raft_io in memory, on an engine's clock: for libraft in a simulated network.
//
// A MemoryDisk is what survives a restart; a MemoryDiskIo is one process's use of it. What is
// appended is there, and told to be there, `sync_us` later, one after the other; what a process
// that dies was still writing is lost.
//
// Threads: the engine's. Lifetime: the disk and the engine outlive their MemoryDiskIo, which
//   outlives libraft's use of io(). Errors: a disk may be told to fail (fail_writes).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "embed/raft/libraft.h"
#include "weft/coroutine.h"
#include "weft/engine.h"

namespace weft::embed::test {

struct MemoryDisk {
  struct Entry {
    raft_term term = 0;
    unsigned short type = RAFT_COMMAND;
    std::string bytes;
  };
  struct Server {
    raft_id id = 0;
    std::string address;
    int role = RAFT_VOTER;
  };
  struct Snapshot {
    raft_index index = 0;
    raft_term term = 0;
    std::vector<Server> configuration;
    raft_index configuration_index = 0;
    std::string bytes;
  };

  raft_term term = 0;
  raft_id voted_for = 0;
  raft_index first_index = 1;  // of entries
  std::deque<Entry> entries;
  std::optional<Snapshot> snapshot;
  bool memory_mark = false;  // RaftNetworkOptions::keep_memory_mark

  uint64_t sync_us = 100;
  bool fail_writes = false;  // from now on
};

class MemoryDiskIo {
 public:
  MemoryDiskIo(MemoryDisk& disk, Engine& engine, uint64_t seed);
  // Ends what is under way with RAFT_CANCELED.
  ~MemoryDiskIo();
  MemoryDiskIo(const MemoryDiskIo&) = delete;
  MemoryDiskIo& operator=(const MemoryDiskIo&) = delete;

  raft_io* io() { return &io_; }
  // The process is dead: callbacks that libraft waits for come at once, and nothing is written.
  void Die();
  // What it had to write when libraft closed it; libraft's own disk half is not right then.
  size_t left_at_close() const { return left_at_close_; }

 private:
  struct Functions;  // raft_io's

  // Something that is written: `carry_out` when its turn has come, then `tell`.
  struct Write {
    std::function<void()> carry_out;
    std::function<void(int status)> tell;
  };

  void Add(Write write);
  void Next();
  void Tick();

  MemoryDisk& disk_;
  Engine& engine_;
  raft_io io_ = {};
  std::mt19937_64 random_;
  unsigned tick_ms_ = 0;
  raft_io_tick_cb tick_ = nullptr;
  bool dead_ = false;
  size_t left_at_close_ = 0;
  std::deque<Write> writes_;
  Alarm ticks_;
  Alarm disk_turns_;
  Alarm closing_;
};

}  // namespace weft::embed::test
