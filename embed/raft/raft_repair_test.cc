// Changes of members that a new leader does not have, and what counts when they are gone; an
// election whose vote cannot be stored; what entries hold that nobody has written.
//
// Each of these stories ended badly with libraft 0.15 alone: the first by a null pointer in
// membershipRollback(), the second and third with a configuration that no entry of the log has, the
// one with the vote by free() of what was no pointer.
#include "embed/raft/raft_repair.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "embed/raft/raft_log.h"
#include "embed/raft/testing/dirty_heap.h"
#include "embed/raft/testing/raft_group.h"

namespace weft::embed::test {
namespace {

using testing::ElementsAre;

std::vector<raft_id> MembersOf(RaftMachine& machine) {
  const raft_configuration& configuration = machine.get()->configuration;
  std::vector<raft_id> ids;
  for (unsigned i = 0; i < configuration.n; ++i) ids.push_back(configuration.servers[i].id);
  return ids;
}

// A raft_io that is repaired, with nothing behind it: of a libraft that does not hear what comes,
// so that what the repair has done by then is seen.
class RepairedIo {
 public:
  explicit RepairedIo(raft* raft) {
    io_.data = raft;
    io_.impl = this;
    io_.start = [](raft_io* io, unsigned, raft_io_tick_cb tick, raft_io_recv_cb receive) {
      Self(io).tick_ = tick;
      Self(io).receive_ = receive;
      return 0;
    };
    io_.time = [](raft_io*) { return raft_time{kNowMs}; };
    io_.send = [](raft_io* io, raft_io_send*, const raft_message* message, raft_io_send_cb) {
      Self(io).sent_ = *message;
      return 0;
    };
    io_.append = [](raft_io*, raft_io_append*, const raft_entry*, unsigned, raft_io_append_cb) {
      return 0;
    };
    io_.snapshot_put = [](raft_io*, unsigned, raft_io_snapshot_put*, const raft_snapshot*,
                          raft_io_snapshot_put_cb) { return 0; };
    repair_.emplace(&io_);
    const raft_io_recv_cb hears = [](raft_io* io, raft_message* message) {
      const auto* const libraft = static_cast<struct raft*>(io->data);
      Self(io).heard_ = *message;
      Self(io).leader_then_ = libraft->follower_state.current_leader.id;
      for (unsigned i = 0; i < libraft->configuration.n; ++i) {
        const raft_server& server = libraft->configuration.servers[i];
        if (server.id == libraft->id) Self(io).role_then_ = server.role;
      }
    };
    EXPECT_EQ(io_.start(
                  &io_, 100, [](raft_io*) {}, hears),
              0);
  }

  static constexpr raft_time kNowMs = 1'000;

  raft_io* io() { return &io_; }
  void Tick() { tick_(&io_); }
  void Hear(raft_message message) { receive_(&io_, &message); }
  // This member's, and its leader, while libraft heard the last message.
  int role_then() const { return role_then_; }
  raft_id leader_then() const { return leader_then_; }
  const raft_message& heard() const { return heard_; }
  raft_index Say(const raft_append_entries_result& result) {
    raft_message message = {};
    message.type = RAFT_IO_APPEND_ENTRIES_RESULT;
    message.append_entries_result = result;
    EXPECT_EQ(io_.send(&io_, nullptr, &message, nullptr), 0);
    return sent_.append_entries_result.last_log_index;
  }
  // An entry's bytes, as they are stored.
  std::string Append(decltype(raft_entry::type) type, std::string bytes) {
    raft_entry entry = {};
    entry.type = type;
    entry.buf = {bytes.data(), bytes.size()};
    EXPECT_EQ(io_.append(&io_, nullptr, &entry, 1, nullptr), 0);
    return bytes;
  }
  void PutSnapshot(const raft_snapshot& snapshot) {
    EXPECT_EQ(io_.snapshot_put(&io_, 1, nullptr, &snapshot, nullptr), 0);
  }

 private:
  static RepairedIo& Self(raft_io* io) { return *static_cast<RepairedIo*>(io->impl); }

  raft_io io_ = {};
  std::optional<RaftRepair> repair_;
  raft_io_tick_cb tick_ = nullptr;
  raft_io_recv_cb receive_ = nullptr;
  raft_message sent_ = {};
  raft_message heard_ = {};
  int role_then_ = 0;
  raft_id leader_then_ = 0;
};

// As libraft asks for one; false: it is to ask again.
bool TakesSnapshot(RaftMachine& machine) {
  raft_fsm* const fsm = machine.get()->fsm;
  raft_buffer* buffers = nullptr;
  unsigned count = 0;
  const int code = fsm->snapshot(fsm, &buffers, &count);
  if (code != 0) {
    EXPECT_EQ(code, RAFT_BUSY);
    return false;
  }
  for (unsigned i = 0; i < count; ++i) raft_free(buffers[i].base);
  raft_free(buffers);
  return true;
}

// A leader that is cut off with a change that nobody else has.
class LostChange {
 public:
  explicit LostChange(uint64_t seed, unsigned snapshot_threshold)
      : group_(seed, {1, 2, 3}, {.snapshot_threshold = snapshot_threshold}) {
    for (int i = 0; i < 40; ++i) EXPECT_TRUE(group_.Commit("before " + std::to_string(i)));
    EXPECT_TRUE(group_.AllHave(40));
    leader_ = group_.Leader()->id();
  }

  void CutOff() {
    for (auto& [id, machine] : group_.machines()) {
      if (id != leader_) group_.network().Partition(leader().node(), machine->node());
    }
  }
  // Its own log has the change now.
  void AddAlone() {
    leader().Add(4, &status_);
    EXPECT_TRUE(group_.RunUntil([this] { return MembersOf(leader()).size() == 4; }));
    const raft_index index = raft_last_index(leader().get());
    EXPECT_TRUE(group_.RunUntil([this, index] { return leader().get()->last_stored >= index; }));
  }
  // The others elect, and commit what takes the place of the change.
  void GoOnWithoutIt() {
    EXPECT_TRUE(group_.RunUntil([this] {
      for (auto& [id, machine] : group_.machines()) {
        if (id != leader_ && machine->leads()) return true;
      }
      return false;
    }));
    for (auto& [id, machine] : group_.machines()) {
      if (id == leader_ || !machine->leads()) continue;
      int status = 0;
      machine->Propose("instead", &status);
      EXPECT_TRUE(group_.RunUntil([&status] { return status != 1; }));
      EXPECT_EQ(status, 0);
    }
  }
  void Heal() {
    for (auto& [id, machine] : group_.machines()) {
      if (id != leader_) group_.network().Heal(leader().node(), machine->node());
    }
    EXPECT_TRUE(group_.AllHave(41));
  }

  RaftGroup& group() { return group_; }
  RaftMachine& leader() { return group_.member(leader_); }
  raft_id leader_id() const { return leader_; }

 private:
  RaftGroup group_;
  raft_id leader_ = 0;
  int status_ = 0;
};

TEST(RaftRepair, AChangeGoesWhenASnapshotHasTakenThePlaceOfTheOneBeforeIt) {
  LostChange story(/*seed=*/21, /*snapshot_threshold=*/10);
  ASSERT_GT(story.leader().get()->log.offset, 1u) << "the first configuration is still in the log";
  story.CutOff();
  story.AddAlone();
  story.GoOnWithoutIt();
  story.Heal();
  EXPECT_THAT(MembersOf(story.leader()), ElementsAre(1, 2, 3));
  EXPECT_EQ(story.leader().get()->configuration_uncommitted_index, 0u);
  ASSERT_TRUE(story.group().Commit("after"));
  ASSERT_TRUE(story.group().AllHave(42));
}

TEST(RaftRepair, AChangeGoesAsWellAfterItsMemberWasStartedAgain) {
  for (const unsigned threshold : {10u, 1000u}) {
    LostChange story(/*seed=*/22, threshold);
    story.CutOff();
    story.AddAlone();
    story.GoOnWithoutIt();
    const raft_id id = story.leader_id();
    story.group().Kill(id);
    story.group().Restart(id);
    EXPECT_THAT(MembersOf(story.leader()), ElementsAre(1, 2, 3, 4)) << "as its log has it";
    ASSERT_TRUE(story.group().AllHave(41));
    EXPECT_THAT(MembersOf(story.leader()), ElementsAre(1, 2, 3)) << threshold;
    ASSERT_TRUE(story.group().Commit("after"));
  }
}

// A snapshot that an entry makes due while a change is under way is taken when it has ended: here
// the leader, whose change goes, has none of it.
TEST(RaftRepair, NoSnapshotHasAChangeThatIsUnderWay) {
  LostChange story(/*seed=*/23, /*snapshot_threshold=*/1000);
  RaftMachine& leader = story.leader();
  EXPECT_TRUE(TakesSnapshot(leader));
  story.CutOff();
  story.AddAlone();
  EXPECT_FALSE(TakesSnapshot(leader));
  story.GoOnWithoutIt();
  EXPECT_FALSE(TakesSnapshot(leader));
  story.Heal();
  EXPECT_TRUE(TakesSnapshot(leader));
}

// A message about an entry that is not in the log any more, of term 0: no term is 0, so libraft
// refuses it, and the log keeps its change. The configuration went all the same.
TEST(RaftRepair, WhatLibraftRefusesChangesNothing) {
  LostChange story(/*seed=*/24, /*snapshot_threshold=*/10);
  story.CutOff();
  story.AddAlone();
  raft* const leader = story.leader().get();
  const raft_log& log = leader->log;
  const raft_index kept = log.snapshot.last_index;
  ASSERT_GT(log.offset, 1u);

  raft_configuration earlier;
  raft_configuration_init(&earlier);
  ASSERT_EQ(raft_configuration_add(&earlier, 1, "one", RAFT_VOTER), 0);
  raft_snapshot snapshot = {};
  snapshot.configuration = earlier;
  snapshot.configuration_index = 1;
  RepairedIo io(leader);
  io.PutSnapshot(snapshot);
  raft_configuration_close(&earlier);

  raft_message message = {};
  message.type = RAFT_IO_APPEND_ENTRIES;
  raft_append_entries& append = message.append_entries;
  append.term = leader->current_term + 1;
  append.prev_log_index = log.offset < kept ? log.offset : kept - 1;
  append.prev_log_term = 0;
  std::vector<raft_entry> entries;
  for (raft_index at = append.prev_log_index + 1; at <= raft_last_index(leader); ++at) {
    raft_entry& entry = entries.emplace_back();
    entry.term = at == kept ? log.snapshot.last_term
                            : log.entries[(log.front + at - log.offset - 1) % log.size].term;
  }
  ASSERT_FALSE(entries.empty());
  entries.back().term = append.term;  // in the place of the change
  append.entries = entries.data();
  append.n_entries = static_cast<unsigned>(entries.size());
  io.Hear(message);
  EXPECT_THAT(MembersOf(story.leader()), ElementsAre(1, 2, 3, 4)) << "as its log has it";
  EXPECT_NE(leader->configuration_uncommitted_index, 0u);
}

// Another member's snapshot took the place of a log, but ended before the change that was under way
// in it: what came to stand there is no change, and libraft would take it for one when it goes.
TEST(RaftRepair, AChangeWhosePlaceAnotherEntryHasTakenIsForgotten) {
  RaftGroup group(/*seed=*/26, {1, 2, 3});
  ASSERT_TRUE(group.Commit("one"));
  raft* const leader = group.Leader()->get();
  const raft_index index = raft_last_index(leader);
  ASSERT_GT(index, leader->log.snapshot.last_index);
  leader->configuration_uncommitted_index = index;  // of the command
  raft_message message = {};
  message.type = RAFT_IO_APPEND_ENTRIES_RESULT;
  RepairedIo(leader).Hear(message);
  EXPECT_EQ(leader->configuration_uncommitted_index, 0u);
}

// Leadership is handed to a member whose disk fails at that moment. The simulator found it: of a
// thousand groups under random faults one process ended in free().
TEST(RaftRepair, AMemberThatIsToLeadAndCannotStoreItsVoteEndsWithAnError) {
  RaftGroup group(/*seed=*/25, {1, 2, 3});
  ASSERT_TRUE(group.Commit("one"));
  ASSERT_TRUE(group.AllHave(1));
  const raft_id leader = group.Leader()->id();
  const raft_id next = leader % 3 + 1;
  RaftMachine& follower = group.member(next);
  group.disk(next).fail_writes = true;
  group.Leader()->Transfer(next);
  ASSERT_TRUE(group.RunUntil([&] { return raft_state(follower.get()) == RAFT_UNAVAILABLE; }));
  ASSERT_TRUE(group.RunUntil([&] {
    RaftMachine* const now = group.Leader();
    return now != nullptr && now->get()->transfer == nullptr;
  }));
  EXPECT_TRUE(group.Commit("two")) << "the other two go on";
}

// A group of four under random faults stood still for good when all was well again: a member that
// had become a voter did not know it yet, held a leader that had stepped down for alive, and gave
// no vote; another one had lost its memory and waited for a leader.
TEST(RaftRepair, ANonVoterHearsACandidateAsAVoterWhenItsLeaderIsSilent) {
  raft_io clock = {};
  clock.time = [](raft_io*) { return raft_time{1'000}; };
  raft libraft = {};
  libraft.io = &clock;
  libraft.id = 2;
  libraft.state = RAFT_FOLLOWER;
  libraft.follower_state.randomized_election_timeout = 150;
  libraft.follower_state.current_leader.id = 1;
  raft_configuration_init(&libraft.configuration);
  ASSERT_EQ(raft_configuration_add(&libraft.configuration, 1, "one", RAFT_VOTER), 0);
  ASSERT_EQ(raft_configuration_add(&libraft.configuration, 2, "two", RAFT_SPARE), 0);
  RepairedIo io(&libraft);
  raft_message request = {};
  request.type = RAFT_IO_REQUEST_VOTE;

  libraft.election_timer_start = 851;
  io.Hear(request);
  EXPECT_EQ(io.role_then(), RAFT_SPARE) << "its leader may be alive";
  EXPECT_EQ(io.leader_then(), 1u);
  libraft.election_timer_start = 850;
  io.Hear(request);
  EXPECT_EQ(io.role_then(), RAFT_VOTER);
  EXPECT_EQ(io.leader_then(), 0u);
  raft_message other = {};
  other.type = RAFT_IO_TIMEOUT_NOW;
  io.Hear(other);
  EXPECT_EQ(io.role_then(), RAFT_SPARE) << "that alone: it asks for no votes itself";
  EXPECT_EQ(io.leader_then(), 1u) << "as before";
  raft_configuration_close(&libraft.configuration);
}

// A member was elected that had the removal of another one in its log, and not on its slow disk
// yet: it led with the members from before, and made the next change of those, so that who had been
// removed and ended was a voter again. (libraft_defects_test has what came of it.)
TEST(RaftRepair, TheLastChangeInTheLogCountsWhenAMemberVotesOrStandsForElection) {
  // So many members, 1 and so on.
  const auto configure = [](unsigned members, raft_configuration* configuration) {
    raft_configuration_init(configuration);
    for (raft_id id = 1; id <= members; ++id) {
      ASSERT_EQ(raft_configuration_add(configuration, id, std::to_string(id).c_str(), RAFT_VOTER),
                0);
    }
  };
  raft libraft = {};
  RepairedIo io(&libraft);
  libraft.io = io.io();
  libraft.id = 1;
  libraft.state = RAFT_FOLLOWER;
  libraft.follower_state.randomized_election_timeout = 150;
  raft_entry entries[3] = {};  // 11: four members; 12; 13: five
  for (raft_entry& entry : entries) entry.term = 1;
  for (const unsigned at : {0, 2}) {
    raft_configuration members;
    configure(at == 0 ? 4 : 5, &members);
    entries[at].type = RAFT_CHANGE;
    ASSERT_EQ(raft_configuration_encode(&members, &entries[at].buf), 0);
    raft_configuration_close(&members);
  }
  entries[1].type = RAFT_COMMAND;
  libraft.log.entries = entries;
  libraft.log.size = 4;  // one that is free
  libraft.log.back = 3;
  libraft.log.offset = 10;
  // The members that count when libraft has that configuration, and has applied so far.
  const auto members_after = [&](unsigned members, raft_index uncommitted, raft_index applied,
                                 const auto& event) {
    configure(members, &libraft.configuration);
    libraft.configuration_uncommitted_index = uncommitted;
    libraft.last_applied = applied;
    event();
    const unsigned now = libraft.configuration.n;
    EXPECT_EQ(libraft.configuration_uncommitted_index, now == 5 ? 13 : uncommitted);
    raft_configuration_close(&libraft.configuration);
    return now;
  };
  const auto hear = [&io](decltype(raft_message::type) type) {
    return [&io, type] {
      raft_message message = {};
      message.type = type;
      io.Hear(message);
    };
  };
  const auto tick = [&](raft_time silent_ms) {
    return [&io, &libraft, silent_ms] {
      libraft.election_timer_start = RepairedIo::kNowMs - silent_ms;
      io.Tick();
    };
  };
  EXPECT_EQ(members_after(3, 0, 10, hear(RAFT_IO_TIMEOUT_NOW)), 5u);
  EXPECT_EQ(members_after(3, 0, 10, hear(RAFT_IO_REQUEST_VOTE)), 5u);
  EXPECT_EQ(members_after(3, 0, 10, tick(150)), 5u);
  EXPECT_EQ(members_after(3, 0, 10, tick(149)), 3u) << "it does not stand for election";
  EXPECT_EQ(members_after(4, 11, 10, tick(150)), 5u) << "the disk has the first";
  EXPECT_EQ(members_after(4, 0, 12, tick(150)), 5u) << "it is applied";
  EXPECT_EQ(members_after(5, 0, 12, tick(150)), 5u) << "after a start";
  EXPECT_EQ(members_after(4, 0, 13, tick(150)), 4u) << "both are applied: libraft knows";
  libraft.state = RAFT_LEADER;
  EXPECT_EQ(members_after(4, 0, 10, hear(RAFT_IO_REQUEST_VOTE)), 4u) << "it knows its own";
  for (const unsigned at : {0, 2}) raft_free(entries[at].buf.base);
}

// A leader whose own snapshot ended one entry before a follower's sent that one again and again:
// the follower refused all that began where it had no log any more.
TEST(RaftRepair, OfAMessageThatBeginsBeforeTheSnapshotWhatIsBehindItIsHeard) {
  raft libraft = {};
  libraft.state = RAFT_FOLLOWER;
  libraft.current_term = 7;
  libraft.last_stored = 20;
  libraft.log.offset = 20;
  libraft.log.snapshot.last_index = 20;
  libraft.log.snapshot.last_term = 5;
  RepairedIo io(&libraft);
  // So many entries behind `before`, whose bytes are their indices.
  const auto hear = [&](raft_term term, raft_index before, unsigned entries) {
    raft_message message = {};
    message.type = RAFT_IO_APPEND_ENTRIES;
    message.append_entries = {term, before, 4, 0, nullptr, entries};
    if (entries > 0) {
      auto* const bytes = static_cast<char*>(raft_malloc(entries));
      message.append_entries.entries =
          static_cast<raft_entry*>(raft_calloc(entries, sizeof(raft_entry)));
      for (unsigned i = 0; i < entries; ++i) {
        bytes[i] = static_cast<char>(before + 1 + i);
        message.append_entries.entries[i] = {5, RAFT_COMMAND, {bytes + i, 1}, bytes};
      }
    }
    io.Hear(message);
    return io.heard().append_entries;
  };
  const auto expect = [](const raft_append_entries& heard, raft_index before, unsigned entries) {
    EXPECT_EQ(heard.prev_log_index, before);
    EXPECT_EQ(heard.n_entries, entries);
    EXPECT_EQ(heard.entries == nullptr, entries == 0);
    if (entries == 0) return;
    EXPECT_EQ(*static_cast<char*>(heard.entries[0].buf.base), static_cast<char>(before + 1));
    raft_free(heard.entries[0].batch);
    raft_free(heard.entries);
  };
  expect(hear(7, 19, 0), 20, 0);
  expect(hear(7, 10, 3), 20, 0);
  expect(hear(7, 10, 10), 20, 0);
  const raft_append_entries some = hear(7, 10, 13);
  EXPECT_EQ(some.prev_log_term, 5u);
  expect(some, 20, 3);
  expect(hear(7, 0, 22), 20, 2);
  expect(hear(7, 20, 2), 20, 2);
  expect(hear(7, 25, 0), 25, 0);
  expect(hear(6, 19, 0), 19, 0);  // of a term that is over: libraft refuses it
  libraft.last_stored = 0;
  libraft.snapshot.put.data = &libraft;
  expect(hear(7, 19, 0), 19, 0);  // the snapshot is being installed
}

// What a follower stores for an old leader while a new one has an entry of its own there, too.
TEST(RaftRepair, AnAnswerSaysNoMoreThanItsLeaderHasAskedAbout) {
  RaftGroup group(/*seed=*/26, {1, 2, 3});
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(group.Commit("entry " + std::to_string(i)));
  ASSERT_TRUE(group.AllHave(5));
  raft* const follower = group.member(group.Leader()->id() % 3 + 1).get();
  const raft_term term = follower->current_term;
  const raft_index last = raft_last_index(follower);
  RepairedIo io(follower);
  const auto hear = [&](raft_term from, raft_index before, raft_term term_before) {
    raft_message message = {};
    message.type = RAFT_IO_APPEND_ENTRIES;
    message.append_entries.term = from;
    message.append_entries.prev_log_index = before;
    message.append_entries.prev_log_term = term_before;
    io.Hear(message);
  };
  const auto said = [&](raft_term to, raft_index rejected = 0) {
    return io.Say({to, rejected, last});
  };
  EXPECT_EQ(said(term), 0u) << "no leader has asked";
  hear(term, last - 2, term);
  EXPECT_EQ(said(term), last - 2);
  hear(term, last, term + 7);  // another entry than this member's: it refuses
  EXPECT_EQ(said(term), last - 2);
  EXPECT_EQ(said(term, /*rejected=*/last), last) << "a hint where to go on";
  hear(term, last - 3, term);  // has come late
  EXPECT_EQ(said(term), last - 2);
  hear(term, last, term);
  EXPECT_EQ(said(term), last);
  hear(term + 1, last - 4, term);
  EXPECT_EQ(said(term + 1), last - 4) << "of a new leader";
  EXPECT_EQ(said(term + 2), 0u) << "of one who has said nothing yet";
  raft_message snapshot = {};
  snapshot.type = RAFT_IO_INSTALL_SNAPSHOT;
  snapshot.install_snapshot.term = term + 1;
  snapshot.install_snapshot.last_index = last;
  io.Hear(snapshot);
  EXPECT_EQ(said(term + 1), last);
}

// With each barrier members stored eight bytes of their leader's heap, and some with most changes
// of members: so two runs of one simulated group were not the same, and what had been freed went to
// other machines.
TEST(RaftRepair, EntriesHoldNothingOfTheHeap) {
  DirtyHeap heap;
  RaftGroup group(/*seed=*/27, {1, 2, 3});
  ASSERT_TRUE(group.Commit("one"));
  struct raft_barrier barrier = {};
  bool ended = false;
  barrier.data = &ended;
  ASSERT_EQ(raft_barrier(group.Leader()->get(), &barrier,
                         [](struct raft_barrier* request, int status) {
                           EXPECT_EQ(status, 0);
                           *static_cast<bool*>(request->data) = true;
                         }),
            0);
  ASSERT_TRUE(group.RunUntil([&] { return ended; }));
  int added = 1;
  group.Leader()->Add(4, &added);
  ASSERT_TRUE(group.RunUntil([&] { return added != 1; }));
  EXPECT_EQ(added, 0);
  ASSERT_TRUE(group.Commit("two"));
  ASSERT_TRUE(group.AllHave(2));
  for (const raft_id id : {1, 2, 3}) {
    SCOPED_TRACE("member " + std::to_string(id));
    const raft_log& log = group.member(id).get()->log;
    std::vector<unsigned> types;
    for (raft_index index = 1; index <= LastIndex(log); ++index) {
      const raft_entry* const entry = EntryAt(log, index);
      ASSERT_NE(entry, nullptr);
      types.push_back(entry->type);
      const std::string bytes(static_cast<const char*>(entry->buf.base), entry->buf.len);
      EXPECT_EQ(bytes.find(DirtyHeap::kDirt), std::string::npos) << "entry " << index;
    }
    EXPECT_THAT(types, testing::IsSupersetOf({RAFT_COMMAND, RAFT_BARRIER, RAFT_CHANGE}));
    // The first entry is there before libraft has loaded it.
    const std::deque<MemoryDisk::Entry>& stored = group.disk(id).entries;
    for (size_t i = 1; i < stored.size(); ++i) {
      EXPECT_EQ(stored[i].bytes.find(DirtyHeap::kDirt), std::string::npos) << "entry " << i + 1;
    }
  }
}

// A configuration's entry with one member: what is written of it has 20 bytes.
std::string WrittenConfiguration() {
  std::string bytes("\1", 1);                   // the encoding
  bytes += std::string("\1\0\0\0\0\0\0\0", 8);  // so many members
  bytes += std::string("\7\0\0\0\0\0\0\0", 8);  // its id
  bytes += std::string("a\0", 2);               // its address
  bytes += static_cast<char>(RAFT_VOTER);
  return bytes;
}

// libraft leaves seven bytes at the most behind a configuration, and eight of a barrier.
TEST(RaftRepair, MoreThanLibraftLeavesUnwrittenStaysAsItIs) {
  const std::string written = WrittenConfiguration();
  ASSERT_EQ(written.size(), 20u);
  raft libraft = {};
  RepairedIo io(&libraft);
  EXPECT_EQ(io.Append(RAFT_CHANGE, written), written);
  EXPECT_EQ(io.Append(RAFT_CHANGE, written + std::string(4, 'x')), written + std::string(4, '\0'));
  EXPECT_EQ(io.Append(RAFT_CHANGE, written + std::string(7, 'x')), written + std::string(7, '\0'));
  for (const size_t more : {8, 12, 100}) {
    const std::string extended = written + std::string(more, 'x');
    EXPECT_EQ(io.Append(RAFT_CHANGE, extended), extended) << more;
  }
  EXPECT_EQ(io.Append(RAFT_BARRIER, std::string(8, 'x')), std::string(8, '\0'));
  EXPECT_EQ(io.Append(RAFT_BARRIER, std::string(9, 'x')), std::string(9, 'x'));
  EXPECT_EQ(io.Append(RAFT_COMMAND, std::string(8, 'x')), std::string(8, 'x'));
}

// Members came to have different entries at one place (libraft_defects_test): a leader whose disk
// had refused one put the next one there, of the same term.
TEST(RaftRepair, ALeaderThatHasLostAnAppendAppendsNothingMoreAndAnotherOneLeads) {
  RaftGroup group(/*seed=*/26, {1, 2, 3});
  ASSERT_TRUE(group.Commit("one"));
  ASSERT_TRUE(group.AllHave(1));
  RaftMachine& first = *group.Leader();
  MemoryDisk& disk = group.disk(first.id());
  disk.fail_writes = true;
  disk.sync_us = 10'000;  // the others have it by then
  int status = 0;
  first.Propose("refused", &status);
  ASSERT_TRUE(group.RunUntil([&status] { return status != 1; }));
  EXPECT_EQ(status, RAFT_IOERR);
  disk.fail_writes = false;
  ASSERT_TRUE(first.leads());
  first.Propose("in its place", &status);
  EXPECT_EQ(status, RAFT_IOERR);
  ASSERT_TRUE(group.RunUntil([&] { return !first.leads() && group.Leader() != nullptr; }));
  ASSERT_TRUE(group.Commit("two"));
  ASSERT_TRUE(group.AllHave(3));
  for (auto& [id, machine] : group.machines()) {
    EXPECT_THAT(machine->applied(), ElementsAre("one", "refused", "two")) << id;
  }
}

int NoStart(raft_io*, unsigned, raft_io_tick_cb, raft_io_recv_cb) { return 0; }
int NoSend(raft_io*, raft_io_send*, const raft_message*, raft_io_send_cb) { return 0; }
int OtherSend(raft_io*, raft_io_send*, const raft_message*, raft_io_send_cb) { return 1; }

// A network half that is between the repair and the disk, and goes first, has put the disk's
// functions back; the repair must not bring the network's back then.
TEST(RaftRepair, WhenItGoesItPutsBackWhatIsStillItsOwn) {
  raft_io io = {};
  io.start = NoStart;
  io.send = NoSend;
  {
    RaftRepair repair(&io);
    EXPECT_NE(io.start, NoStart);
    EXPECT_NE(io.send, NoSend);
    io.send = OtherSend;
  }
  EXPECT_EQ(io.start, NoStart);
  EXPECT_EQ(io.send, OtherSend);
  RaftRepair another(&io);
  EXPECT_NE(io.send, OtherSend);
}

// libraft's disk half ends its use of a raft_io inside the callback of raft_close(), as dqlite does
// it, and says later once more that it is closed: nothing of the repair is in its way.
TEST(RaftRepair, MayGoInsideTheCallbackOfTheEnd) {
  static std::optional<RaftRepair> repair;
  static raft_io_close_cb closed;
  raft_fsm fsm = {};
  fsm.version = 1;
  raft_io io = {};
  io.version = 1;
  io.init = [](raft_io*, raft_id, const char*) { return 0; };
  io.load = [](raft_io*, raft_term* term, raft_id* voted_for, raft_snapshot** snapshot,
               raft_index* start_index, raft_entry** entries, size_t* n_entries) {
    *term = 0;
    *voted_for = 0;
    *snapshot = nullptr;
    *start_index = 1;
    *entries = nullptr;
    *n_entries = 0;
    return 0;
  };
  io.start = NoStart;
  io.time = [](raft_io*) { return raft_time{0}; };
  io.random = [](raft_io*, int min, int) { return min; };
  io.close = [](raft_io*, raft_io_close_cb callback) { closed = callback; };
  struct raft raft = {};
  repair.emplace(&io);
  ASSERT_EQ(raft_init(&raft, &io, &fsm, 1, "one"), 0);
  ASSERT_EQ(raft_start(&raft), 0);
  EXPECT_NE(raft.fsm, &fsm);
  raft_close(&raft, [](struct raft*) { repair.reset(); });
  closed(&io);
  EXPECT_FALSE(repair.has_value());
  EXPECT_EQ(io.start, NoStart);
}

}  // namespace
}  // namespace weft::embed::test
