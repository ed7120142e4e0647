// Three members in libraft's own simulated cluster: its network and its disks, without Weft's.
//
//   LibraftCluster cluster;
//   cluster.Repair();         // or not
//   cluster.StartAndElect();  // member 0 leads
//   cluster.Propose(0);
//   cluster.AllApply(0, {0, 1, 2});
//
// Members are 0, 1 and 2, whose ids are 1, 2 and 3. Time is the cluster's: it goes on in steps. No
// leader's log may become shorter while it leads: the cluster then reads a null pointer.
//
// Threads: one.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <iterator>
#include <list>
#include <vector>

#include "embed/raft/libraft.h"
#include "embed/raft/raft_log.h"
#include "embed/raft/raft_repair.h"

extern "C" {
#include <raft/fixture.h>
}

namespace weft::embed::test {

// Of simulated time, for what takes a second or two: a guard against a cluster that hangs.
inline constexpr unsigned kLimitMs = 60'000;
// As soon as libraft's cluster lets a member ask for votes.
inline constexpr unsigned kElectionMs = 1000;
// An election that does not come by itself: longer than any story takes.
inline constexpr unsigned kNoElectionMs = 1'000'000;

inline raft_buffer BufferOf(const char* text) {
  const size_t bytes = std::strlen(text) + 1;
  void* const copy = raft_malloc(bytes);
  std::memcpy(copy, text, bytes);
  return {copy, bytes};
}

class LibraftCluster {
 public:
  // The first `voters` of its three members are.
  explicit LibraftCluster(unsigned voters = 3) {
    fsm_.version = 1;
    fsm_.apply = [](raft_fsm*, const raft_buffer*, void** result) {
      *result = nullptr;
      return 0;
    };
    fsm_.snapshot = [](raft_fsm*, raft_buffer** buffers, unsigned* count) {
      *buffers = static_cast<raft_buffer*>(raft_malloc(sizeof(raft_buffer)));
      (*buffers)[0] = BufferOf("state");
      *count = 1;
      return 0;
    };
    fsm_.restore = [](raft_fsm*, raft_buffer* buffer) {
      raft_free(buffer->base);
      return 0;
    };
    EXPECT_EQ(raft_fixture_initialize(&fixture_), 0);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(raft_fixture_grow(&fixture_, &fsm_), 0);
    raft_configuration first;
    EXPECT_EQ(raft_fixture_configuration(&fixture_, voters, &first), 0);
    EXPECT_EQ(raft_fixture_bootstrap(&fixture_, &first), 0);
    raft_configuration_close(&first);
  }
  ~LibraftCluster() { raft_fixture_close(&fixture_); }
  LibraftCluster(const LibraftCluster&) = delete;
  LibraftCluster& operator=(const LibraftCluster&) = delete;

  // Of all members, before they start.
  void Repair() {
    for (unsigned i = 0; i < 3; ++i) repairs_.emplace_back(member(i).io);
  }
  void Start() { ASSERT_EQ(raft_fixture_start(&fixture_), 0); }
  // Member 0 leads.
  void StartAndElect() {
    Start();
    raft_fixture_elect(&fixture_, 0);
    ASSERT_EQ(raft_state(&member(0)), RAFT_LEADER);
    Settle();
    // Once it follows again, it waits.
    raft_fixture_set_randomized_election_timeout(&fixture_, 0, kNoElectionMs);
  }
  // Some heartbeats, and their answers: who leads knows how far the others are.
  void Settle() { raft_fixture_step_until_elapsed(&fixture_, 300); }
  // All but the last entry before it leave the log.
  void SnapshotAfter(unsigned entries) {
    for (unsigned i = 0; i < 3; ++i) {
      raft_set_snapshot_threshold(&member(i), entries);
      raft_set_snapshot_trailing(&member(i), 1);
    }
  }

  raft_fixture* fixture() { return &fixture_; }
  raft& member(unsigned i) { return *raft_fixture_get(&fixture_, i); }

  void Propose(unsigned i, const char* text = "command") {
    ASSERT_LT(proposed_, std::size(proposals_));
    const raft_buffer command = BufferOf(text);
    ASSERT_EQ(raft_apply(&member(i), &proposals_[proposed_++], &command, 1, nullptr), 0);
  }
  // Of some members all have applied what member i's log ends with.
  void AllApply(unsigned i, const std::vector<unsigned>& who) {
    const raft_index last = raft_last_index(&member(i));
    for (const unsigned each : who) {
      ASSERT_TRUE(raft_fixture_step_until_applied(&fixture_, each, last, kLimitMs)) << each;
    }
  }
  void MakeVoter(unsigned i) {
    ASSERT_EQ(raft_assign(&member(0), &change_, member(i).id, RAFT_VOTER, nullptr), 0);
  }
  void Remove0() { ASSERT_EQ(raft_remove(&member(0), &change_, member(0).id, nullptr), 0); }
  // A fourth member, and a fifth one, that nobody has started.
  int AddFourth(unsigned i) { return raft_add(&member(i), &change_, 4, "4", nullptr); }
  int AddFifth(unsigned i) { return raft_add(&member(i), &change_, 5, "5", nullptr); }
  void AddFourthAlone() {
    ASSERT_EQ(AddFourth(0), 0);
    ASSERT_EQ(member(0).configuration.n, 4u);
    AwaitStored(0, raft_last_index(&member(0)));
  }
  // On member i's disk.
  void AwaitStored(unsigned i, raft_index index) {
    for (int step = 0; member(i).last_stored < index; ++step) {
      ASSERT_LT(step, 10'000);
      raft_fixture_step(&fixture_);
    }
  }
  // Between two members nothing arrives any more.
  void Separate(unsigned a, unsigned b) {
    raft_fixture_saturate(&fixture_, a, b);
    raft_fixture_saturate(&fixture_, b, a);
  }
  void Join(unsigned a, unsigned b) {
    raft_fixture_desaturate(&fixture_, a, b);
    raft_fixture_desaturate(&fixture_, b, a);
  }
  // Member 0 alone.
  void CutOff() {
    for (const unsigned other : {1, 2}) Separate(0, other);
  }
  void Heal() {
    for (const unsigned other : {1, 2}) Join(0, other);
  }
  // Members 1 and 2 elect 1, and commit so many entries.
  void GoOnWithout0(int entries) {
    ASSERT_TRUE(raft_fixture_step_until_state_is(&fixture_, 1, RAFT_LEADER, kLimitMs));
    for (int i = 0; i < entries; ++i) {
      Propose(1);
      AllApply(1, {1, 2});
    }
    ASSERT_TRUE(raft_fixture_step_until_state_is(&fixture_, 0, RAFT_FOLLOWER, kLimitMs))
        << "it hears of nobody";
  }

 private:
  raft_fixture fixture_ = {};
  std::list<RaftRepair> repairs_;
  raft_fsm fsm_ = {};
  raft_change change_ = {};
  struct raft_apply proposals_[64] = {};  // libraft has them until their entries have gone
  size_t proposed_ = 0;
};

// Of changes in the log.
inline std::vector<raft_index> ChangesIn(const raft_log& log) {
  std::vector<raft_index> changes;
  for (raft_index index = log.offset + 1; index <= LastIndex(log); ++index) {
    if (EntryAt(log, index)->type == RAFT_CHANGE) changes.push_back(index);
  }
  return changes;
}

}  // namespace weft::embed::test
