// A member of a Raft group (raft_group.h) on a machine of a simulated network: libraft with its
// repair, Weft's network half, and a disk in memory.
//
// Threads: one. Lifetime: the network and the disk outlive it.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <optional>
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
    WatchStack(disk_.io());
    repair_.emplace(disk_.io());
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

  // Fails where a message comes in while libraft sends: it must not be called then.
  void WatchStack(raft_io* io) {
    watched_ = *io;
    io->send = [](raft_io* each, raft_io_send* request, const raft_message* message,
                  raft_io_send_cb callback) {
      RaftMachine& self = Self(each);
      const bool was_sending = std::exchange(self.sending_, true);
      const int code = self.watched_.send(each, request, message, callback);
      self.sending_ = was_sending;
      return code;
    };
    io->start = [](raft_io* each, unsigned msecs, raft_io_tick_cb tick, raft_io_recv_cb receive) {
      Self(each).receive_ = receive;
      return Self(each).watched_.start(each, msecs, tick,
                                       [](raft_io* later, raft_message* message) {
                                         RaftMachine& self = Self(later);
                                         EXPECT_FALSE(self.sending_) << "libraft is on the stack";
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
  std::unique_ptr<RaftNetwork> half_;
  raft_io watched_ = {};
  raft_io_recv_cb receive_ = nullptr;
  bool sending_ = false;  // libraft is
  std::optional<RaftRepair> repair_;
  std::vector<std::string> applied_;
  int restored_ = 0;
  bool closed_ = false;
};

}  // namespace weft::embed::test
