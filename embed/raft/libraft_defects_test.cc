// What libraft 0.15 does wrong by itself, played in libraft's own simulated cluster: its network
// and its disks, without Weft's. So whose these defects are is shown, and not only read in its
// source. They are those of raft_repair.h but the ninth. Each story is played twice: without the
// repair, and (WithTheRepair...) with it, but for one that libraft's cluster does not survive then.
//
// A test without the repair passes as long as libraft has the defect. One that fails with a newer
// libraft says that this release has mended it: where older ones need not be served any more, take
// away the story, its part of RaftRepair, and its words in docs/embedding.md; else skip it from
// that release on.
//
// In a log, C is a change of members, e any other entry.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "embed/raft/libraft.h"
#include "embed/raft/raft_log.h"
#include "embed/raft/testing/dirty_heap.h"
#include "embed/raft/testing/libraft_cluster.h"

namespace weft::embed::test {
namespace {

// snapshot(C1 e e) e C2: C2 goes, and membershipRollback() looks for C1 in the log alone.

// Plays it until the entry comes that takes the change's place.
void ChangeBehindASnapshot(LibraftCluster& cluster) {
  cluster.StartAndElect();
  cluster.SnapshotAfter(/*entries=*/5);
  for (int i = 0; i < 10; ++i) {
    cluster.Propose(0);
    cluster.AllApply(0, {0, 1, 2});
  }
  cluster.Settle();  // the last snapshot is stored
  ASSERT_TRUE(ChangesIn(cluster.member(0).log).empty());
  cluster.CutOff();
  cluster.AddFourthAlone();
  cluster.GoOnWithout0(/*entries=*/1);
}

TEST(LibraftDefectsDeathTest, AChangeIsTakenBackToOneThatASnapshotHas) {
  LibraftCluster cluster;
  ChangeBehindASnapshot(cluster);
  EXPECT_DEATH(
      {
        cluster.Heal();
        cluster.AllApply(1, {0});
      },
      "");
}

TEST(LibraftDefects, WithTheRepairItIsTakenBackToTheSnapshots) {
  LibraftCluster cluster;
  cluster.Repair();
  ChangeBehindASnapshot(cluster);
  cluster.Heal();
  cluster.AllApply(1, {0});
  EXPECT_EQ(cluster.member(0).configuration.n, 3u);
  EXPECT_EQ(cluster.member(0).configuration_uncommitted_index, 0u);
}

// C1 e C2, after a start: restoreEntries() holds C2 for committed, so that it is in force when its
// entry has gone.

// Disks have C1 e, and member 0's has C2 behind it, which adds a fourth one.
void StoreChange(LibraftCluster& cluster) {
  raft_entry entry = {};
  entry.term = 1;
  entry.type = RAFT_COMMAND;
  for (unsigned i = 0; i < 3; ++i) {
    entry.buf = BufferOf("command");
    raft_fixture_add_entry(cluster.fixture(), i, &entry);
  }
  raft_configuration four;
  ASSERT_EQ(raft_fixture_configuration(cluster.fixture(), 3, &four), 0);
  ASSERT_EQ(raft_configuration_add(&four, 4, "4", RAFT_SPARE), 0);
  entry.type = RAFT_CHANGE;
  ASSERT_EQ(raft_configuration_encode(&four, &entry.buf), 0);
  raft_configuration_close(&four);
  raft_fixture_add_entry(cluster.fixture(), 0, &entry);
}

// Plays it until the entry has gone.
void ChangeBeforeAStart(LibraftCluster& cluster) {
  StoreChange(cluster);
  cluster.Start();
  const raft& member = cluster.member(0);
  ASSERT_EQ(member.configuration.n, 4u) << "as its log has it";
  raft_fixture_elect(cluster.fixture(), 1);
  cluster.Settle();
  cluster.Propose(1);
  cluster.AllApply(1, {0, 1, 2});
  EXPECT_EQ(ChangesIn(member.log), std::vector<raft_index>{1});
  EXPECT_EQ(cluster.member(1).configuration.n, 3u);
}

TEST(LibraftDefects, AChangeStaysInForceWhenItsEntryHasGoneAfterAStart) {
  LibraftCluster cluster;
  ChangeBeforeAStart(cluster);
  EXPECT_EQ(cluster.member(0).configuration.n, 4u) << "libraft has taken the change back: mended";
}

TEST(LibraftDefects, WithTheRepairItGoesWithItsEntry) {
  LibraftCluster cluster;
  cluster.Repair();
  ChangeBeforeAStart(cluster);
  EXPECT_EQ(cluster.member(0).configuration.n, 3u);
}

// C1 e C2, and a snapshot at e: takeSnapshot() stores the members of C2 with the index of C1, and
// they stay in it when C2 has gone.
struct Stored {  // member 0's last snapshot
  raft_index index = 0;
  unsigned members = 0;
  raft_index configuration_index = 0;
};

Stored& LastStored() {
  static Stored stored;
  return stored;
}

// Plays it until the snapshot is due.
void SnapshotDuringAChange(LibraftCluster& cluster) {
  static int (*put)(raft_io*, unsigned, raft_io_snapshot_put*, const raft_snapshot*,
                    raft_io_snapshot_put_cb);
  LastStored() = {};
  cluster.StartAndElect();
  raft_io& io = *cluster.member(0).io;
  put = io.snapshot_put;
  io.snapshot_put = [](raft_io* to, unsigned trailing, raft_io_snapshot_put* request,
                       const raft_snapshot* snapshot, raft_io_snapshot_put_cb callback) {
    LastStored() = {snapshot->index, snapshot->configuration.n, snapshot->configuration_index};
    return put(to, trailing, request, snapshot, callback);
  };
  raft_set_snapshot_threshold(&cluster.member(0), 1);
  cluster.Propose(0);
  const raft_index entry = raft_last_index(&cluster.member(0));
  for (const unsigned other : {1, 2}) {
    ASSERT_TRUE(raft_fixture_step_until_delivered(cluster.fixture(), 0, other, kLimitMs));
  }
  ASSERT_EQ(cluster.member(0).last_stored, entry);
  ASSERT_EQ(raft_last_applied(&cluster.member(0)), entry - 1) << "nobody has answered yet";
  // The answers come; the change, which is not sent and long in being stored, is under way when the
  // snapshot is taken.
  for (const unsigned other : {1, 2}) raft_fixture_saturate(cluster.fixture(), 0, other);
  raft_fixture_set_disk_latency(cluster.fixture(), 0, 500);
  ASSERT_EQ(cluster.AddFourth(0), 0);
  ASSERT_TRUE(raft_fixture_step_until_applied(cluster.fixture(), 0, entry, kLimitMs));
}

// And the change goes.
void LoseTheChange(LibraftCluster& cluster) {
  cluster.CutOff();
  cluster.GoOnWithout0(/*entries=*/1);
  cluster.Heal();
  cluster.AllApply(1, {0});
  EXPECT_EQ(cluster.member(0).configuration.n, 3u);
}

TEST(LibraftDefects, ASnapshotHasTheMembersOfAChangeThatIsUnderWay) {
  LibraftCluster cluster;
  SnapshotDuringAChange(cluster);
  EXPECT_EQ(LastStored().index, 2u);
  EXPECT_EQ(LastStored().configuration_index, 1u);
  EXPECT_EQ(LastStored().members, 4u) << "C1 has three: mended";
  raft_set_snapshot_threshold(&cluster.member(0), 1000);
  LoseTheChange(cluster);
  EXPECT_EQ(LastStored().index, 2u) << "its disk has the same snapshot";
}

TEST(LibraftDefects, WithTheRepairTheSnapshotWaitsForTheChangesEnd) {
  LibraftCluster cluster;
  cluster.Repair();
  SnapshotDuringAChange(cluster);
  EXPECT_EQ(LastStored().index, 0u);
  LoseTheChange(cluster);
  EXPECT_GT(LastStored().index, 2u);
  EXPECT_EQ(LastStored().configuration_index, 1u);
  EXPECT_EQ(LastStored().members, 3u);
}

// C1 e C2, and another member's snapshot takes the place of all: C2 counts as under way for good,
// so that a member that leads refuses each change of members.

// Plays it until member 0, which had the change, leads again.
void ChangeBeforeAnothersSnapshot(LibraftCluster& cluster) {
  cluster.StartAndElect();
  cluster.Propose(0);
  cluster.AllApply(0, {0, 1, 2});
  cluster.SnapshotAfter(/*entries=*/5);
  cluster.CutOff();
  cluster.AddFourthAlone();
  raft& member = cluster.member(0);
  const raft_index change = raft_last_index(&member);
  cluster.GoOnWithout0(/*entries=*/10);
  cluster.Heal();
  cluster.AllApply(1, {0, 1, 2});
  ASSERT_GT(member.log.snapshot.last_index, change) << "its log was not taken the place of";
  EXPECT_EQ(member.configuration.n, 3u) << "as the snapshot has it";
  static struct raft_transfer transfer;
  transfer = {};
  ASSERT_EQ(raft_transfer(&cluster.member(1), &transfer, member.id, nullptr), 0);
  ASSERT_TRUE(raft_fixture_step_until_state_is(cluster.fixture(), 0, RAFT_LEADER, kLimitMs));
}

TEST(LibraftDefects, AChangeIsUnderWayForGoodWhenASnapshotHasTakenItsPlace) {
  LibraftCluster cluster;
  ChangeBeforeAnothersSnapshot(cluster);
  EXPECT_NE(cluster.member(0).configuration_uncommitted_index, 0u) << "cleared: mended";
  EXPECT_EQ(cluster.AddFourth(0), RAFT_CANTCHANGE);
}

TEST(LibraftDefects, WithTheRepairItIsForgottenAndAnotherOneMayBegin) {
  LibraftCluster cluster;
  cluster.Repair();
  ChangeBeforeAnothersSnapshot(cluster);
  EXPECT_EQ(cluster.member(0).configuration_uncommitted_index, 0u);
  EXPECT_EQ(cluster.AddFourth(0), 0);
}

// A member that is told to lead, and whose disk fails at that moment: convertToCandidate() makes it
// a follower whose leader's address is what a candidate's flags were, and it is freed.

// Plays it until the member hears of it.
void HandOverToAFailingDisk(LibraftCluster& cluster) {
  cluster.StartAndElect();
  cluster.Propose(0);
  cluster.AllApply(0, {0, 1, 2});
  static struct raft_transfer transfer;
  transfer = {};
  ASSERT_EQ(raft_transfer(&cluster.member(0), &transfer, cluster.member(1).id, nullptr), 0);
  raft_fixture_io_fault(cluster.fixture(), 1, /*delay=*/0, /*repeat=*/-1);
}

TEST(LibraftDefectsDeathTest, ACandidateThatCannotStoreItsVoteFreesItsFlags) {
  LibraftCluster cluster;
  HandOverToAFailingDisk(cluster);
  EXPECT_DEATH(raft_fixture_step_until_state_is(cluster.fixture(), 1, RAFT_UNAVAILABLE, kLimitMs),
               "");
}

TEST(LibraftDefects, WithTheRepairItSaysThatItIsUnavailable) {
  LibraftCluster cluster;
  cluster.Repair();
  HandOverToAFailingDisk(cluster);
  EXPECT_TRUE(raft_fixture_step_until_state_is(cluster.fixture(), 1, RAFT_UNAVAILABLE, kLimitMs));
}

// C1 e, where e is of a leader that nobody else heard. A follower answers a heartbeat with the end
// of its log, also where that is beyond what the heartbeat was about. If the leader has an entry
// there by then, it takes it for the same, and counts it: here e is taken for the new leader's,
// which is committed although that leader alone has it, and goes with it.
void AnswerAboutAnotherEntry(LibraftCluster& cluster) {  // until the new leader commits
  raft_entry entry = {};
  entry.term = 1;
  entry.type = RAFT_COMMAND;
  entry.buf = BufferOf("nobody else's");
  raft_fixture_add_entry(cluster.fixture(), 0, &entry);
  cluster.Start();
  raft_fixture_elect(cluster.fixture(), 1);
  raft_fixture_saturate(cluster.fixture(), 1, 2);  // it has given its vote, and gets no entries
  cluster.Propose(1);                              // before member 0's answer comes
  for (int step = 0; cluster.member(1).commit_index < 2; ++step) {
    ASSERT_LT(step, 10'000);
    raft_fixture_step(cluster.fixture());
  }
  ASSERT_EQ(TermAt(cluster.member(1).log, 2), 2u);
  ASSERT_EQ(raft_last_index(&cluster.member(2)), 1u) << "it has none";
}

TEST(LibraftDefects, AnEntryThatOneMemberHasIsCommitted) {
  LibraftCluster cluster;
  AnswerAboutAnotherEntry(cluster);
  EXPECT_EQ(TermAt(cluster.member(0).log, 2), 1u) << "it was committed when another had it: mended";
}

TEST(LibraftDefects, WithTheRepairItIsNotCommittedUntilAnotherHasIt) {
  LibraftCluster cluster;
  cluster.Repair();
  AnswerAboutAnotherEntry(cluster);
  EXPECT_EQ(TermAt(cluster.member(0).log, 2), 2u);
  raft_fixture_desaturate(cluster.fixture(), 1, 2);
  cluster.AllApply(1, {0, 1, 2});
}

// A barrier's entry has eight bytes that nobody writes, and a configuration some behind it, up to a
// multiple of eight: all members get what the leader's heap had there.

// What member 1 has of a barrier, and behind the members of a change: an encoding and a count, and
// four ids, addresses with zeros, and roles have 53 bytes.
struct Unwritten {
  std::string of_barrier;
  std::string of_change;
};

Unwritten BarrierAndChange(LibraftCluster& cluster) {
  static struct raft_barrier barrier;
  barrier = {};
  cluster.StartAndElect();
  {
    DirtyHeap heap;
    EXPECT_EQ(raft_barrier(&cluster.member(0), &barrier, nullptr), 0);
    EXPECT_EQ(cluster.AddFourth(0), 0);
  }
  cluster.AllApply(0, {0, 1, 2});
  const raft_log& log = cluster.member(1).log;
  const auto bytes_of = [&log](raft_index index, int type) {
    const raft_entry* const entry = EntryAt(log, index);
    EXPECT_NE(entry, nullptr);
    EXPECT_EQ(entry->type, type);
    return std::string(static_cast<const char*>(entry->buf.base), entry->buf.len);
  };
  const std::string of_change = bytes_of(LastIndex(log), RAFT_CHANGE);
  EXPECT_EQ(of_change.size(), 56u);
  return {bytes_of(LastIndex(log) - 1, RAFT_BARRIER), of_change.substr(53)};
}

TEST(LibraftDefects, EntriesHoldWhatTheHeapHad) {
  LibraftCluster cluster;
  const Unwritten unwritten = BarrierAndChange(cluster);
  EXPECT_EQ(unwritten.of_barrier, std::string(8, DirtyHeap::kDirt)) << "mended";
  EXPECT_EQ(unwritten.of_change, std::string(3, DirtyHeap::kDirt)) << "mended";
}

TEST(LibraftDefects, WithTheRepairTheyHoldZeros) {
  LibraftCluster cluster;
  cluster.Repair();
  const Unwritten unwritten = BarrierAndChange(cluster);
  EXPECT_EQ(unwritten.of_barrier, std::string(8, '\0'));
  EXPECT_EQ(unwritten.of_change, std::string(3, '\0'));
}

// C makes member 2 a voter; members 0 and 1 have it, and member 0 goes. Member 1 needs one vote of
// the other two, and member 2, which has not got C, gives none, nor asks for one.
void LeaderOfANewVoterGoes(LibraftCluster& cluster) {
  cluster.StartAndElect();
  raft_fixture_saturate(cluster.fixture(), 0, 2);
  cluster.MakeVoter(2);
  for (int step = 0; ChangesIn(cluster.member(1).log).size() < 2; ++step) {
    ASSERT_LT(step, 10'000);
    raft_fixture_step(cluster.fixture());
  }
  ASSERT_EQ(ChangesIn(cluster.member(2).log).size(), 1u);
  cluster.CutOff();
}

TEST(LibraftDefects, AVoterThatDoesNotKnowItYetGivesNoVote) {
  LibraftCluster cluster(/*voters=*/2);
  LeaderOfANewVoterGoes(cluster);
  EXPECT_FALSE(raft_fixture_step_until_state_is(cluster.fixture(), 1, RAFT_LEADER, kLimitMs))
      << "it has got the vote: mended";
}

TEST(LibraftDefects, WithTheRepairItGivesIt) {
  LibraftCluster cluster(/*voters=*/2);
  cluster.Repair();
  LeaderOfANewVoterGoes(cluster);
  ASSERT_TRUE(raft_fixture_step_until_state_is(cluster.fixture(), 1, RAFT_LEADER, kLimitMs));
  cluster.Propose(1);
  cluster.AllApply(1, {1, 2});
  EXPECT_EQ(ChangesIn(cluster.member(2).log).size(), 2u);
}

// C adds a fourth member, and is committed by members 0 and 2. Member 1 has it in its log, and not
// on its disk yet, when it is elected: it leads with three members, and the change that it makes of
// those takes C back. A simulated group had removed a member, which was ended, and had it again: of
// four voters one was gone, another one did not vote until it was led, and the two others were no
// majority.

// Plays it until member 0 has committed, and member 1 has not stored.
void ChangeOnOtherDisks(LibraftCluster& cluster) {
  cluster.StartAndElect();
  raft_fixture_set_disk_latency(cluster.fixture(), 1, 10'000);
  ASSERT_EQ(cluster.AddFourth(0), 0);
  cluster.AllApply(0, {0});
  for (int step = 0; ChangesIn(cluster.member(1).log).size() < 2; ++step) {
    ASSERT_LT(step, 10'000);
    raft_fixture_step(cluster.fixture());
  }
}

void AwaitElectionOf1(LibraftCluster& cluster) {
  ASSERT_TRUE(raft_fixture_step_until_state_is(cluster.fixture(), 1, RAFT_LEADER, kLimitMs));
  ASSERT_LT(cluster.member(1).last_stored, ChangesIn(cluster.member(1).log).back());
}

void HandOverBeforeTheDiskHasAChange(LibraftCluster& cluster) {
  ChangeOnOtherDisks(cluster);
  static struct raft_transfer transfer;
  transfer = {};
  ASSERT_EQ(raft_transfer(&cluster.member(0), &transfer, cluster.member(1).id, nullptr), 0);
  AwaitElectionOf1(cluster);
}

TEST(LibraftDefects, AChangeThatTheNewLeadersDiskDoesNotHaveYetIsTakenBack) {
  LibraftCluster cluster;
  HandOverBeforeTheDiskHasAChange(cluster);
  EXPECT_EQ(cluster.member(1).configuration.n, 3u) << "as its log has it: mended";
  ASSERT_EQ(cluster.AddFifth(1), 0);
  cluster.AllApply(1, {0, 1, 2});
  for (const unsigned i : {0, 1, 2}) {
    const raft_configuration& members = cluster.member(i).configuration;
    ASSERT_EQ(members.n, 4u) << i;
    EXPECT_EQ(members.servers[3].id, 5u) << i;
  }
}

TEST(LibraftDefects, WithTheRepairTheNewLeaderHasIt) {
  LibraftCluster cluster;
  cluster.Repair();
  HandOverBeforeTheDiskHasAChange(cluster);
  EXPECT_EQ(cluster.member(1).configuration.n, 4u);
  EXPECT_EQ(cluster.AddFifth(1), RAFT_CANTCHANGE) << "it has not applied the first one";
  cluster.Propose(1);
  cluster.AllApply(1, {0, 1, 2});
  ASSERT_EQ(cluster.AddFifth(1), 0);
  cluster.AllApply(1, {0, 1, 2});
  for (const unsigned i : {0, 1, 2}) EXPECT_EQ(cluster.member(i).configuration.n, 5u) << i;
}

// The same where nobody hands over: member 1 has heard of no leader for long enough.
void LeaderGoesBeforeTheDiskHasAChange(LibraftCluster& cluster) {
  ChangeOnOtherDisks(cluster);
  raft_fixture_set_randomized_election_timeout(cluster.fixture(), 2, kNoElectionMs);
  cluster.CutOff();
  AwaitElectionOf1(cluster);
}

TEST(LibraftDefects, WhoAsksForVotesBeforeItsDiskHasAChangeLeadsWithoutIt) {
  LibraftCluster cluster;
  LeaderGoesBeforeTheDiskHasAChange(cluster);
  EXPECT_EQ(cluster.member(1).configuration.n, 3u) << "as its log has it: mended";
}

TEST(LibraftDefects, WithTheRepairItLeadsWithIt) {
  LibraftCluster cluster;
  cluster.Repair();
  LeaderGoesBeforeTheDiskHasAChange(cluster);
  EXPECT_EQ(cluster.member(1).configuration.n, 4u);
}

// e, and leads again: of three members, 0 has an entry of its first term that nobody else has, and
// 1 has one of a later term at the same place. Member 0 leads again, and as soon as 2 has its
// entry, too, takes it for committed. But 1, whose log ends with the later term, gets 2's vote.

// Plays it until member 0 leads again, and returns the place. What it appends from then on is so
// long in being stored.
raft_index TwoEntriesAtOnePlace(LibraftCluster& cluster, unsigned disk_latency_ms) {
  cluster.StartAndElect();
  raft_fixture* const fixture = cluster.fixture();
  const raft_index place = raft_last_index(&cluster.member(0)) + 1;
  cluster.CutOff();
  cluster.Propose(0);
  cluster.AwaitStored(0, place);
  EXPECT_TRUE(raft_fixture_step_until_state_is(fixture, 1, RAFT_LEADER, kLimitMs));
  cluster.Separate(1, 2);
  cluster.Propose(1);
  cluster.AwaitStored(1, place);
  EXPECT_EQ(raft_last_index(&cluster.member(2)), place - 1);
  EXPECT_TRUE(raft_fixture_step_until_state_is(fixture, 0, RAFT_FOLLOWER, kLimitMs));
  cluster.Join(0, 2);
  raft_fixture_set_disk_latency(fixture, 0, disk_latency_ms);
  cluster.member(0).follower_state.randomized_election_timeout = kElectionMs;
  raft_fixture_set_randomized_election_timeout(fixture, 0, kElectionMs);
  EXPECT_TRUE(raft_fixture_step_until_state_is(fixture, 0, RAFT_LEADER, kLimitMs));
  EXPECT_LT(TermAt(cluster.member(0).log, place), TermAt(cluster.member(1).log, place));
  return place;
}

// Plays it until member 0 has committed the entry.
raft_index CommitEntryOfAnEarlierTerm(LibraftCluster& cluster) {
  const raft_index place = TwoEntriesAtOnePlace(cluster, /*disk_latency_ms=*/10);
  for (int step = 0; cluster.member(0).commit_index < place; ++step) {
    if (step == 10'000) {
      ADD_FAILURE() << "it is not committed";
      break;
    }
    raft_fixture_step(cluster.fixture());
  }
  return place;
}

TEST(LibraftDefects, AnEntryOfAnEarlierTermIsCommittedAndTakenAway) {
  LibraftCluster cluster;
  const raft_index place = CommitEntryOfAnEarlierTerm(cluster);
  const raft& member = cluster.member(0);
  ASSERT_LT(TermAt(member.log, member.commit_index), member.current_term)
      << "an entry of its own term was committed with it: mended";
  cluster.CutOff();
  cluster.Join(1, 2);
  ASSERT_TRUE(raft_fixture_step_until_state_is(cluster.fixture(), 1, RAFT_LEADER, kLimitMs));
  cluster.Propose(1);
  cluster.AllApply(1, {1, 2});
  EXPECT_NE(TermAt(cluster.member(2).log, place), TermAt(member.log, place));
  EXPECT_GE(member.commit_index, place);
}

TEST(LibraftDefects, WithTheRepairItIsCommittedWithOneOfTheLeadersTerm) {
  LibraftCluster cluster;
  cluster.Repair();
  const raft_index place = CommitEntryOfAnEarlierTerm(cluster);
  const raft& member = cluster.member(0);
  const raft_term term = TermAt(member.log, place);
  EXPECT_EQ(TermAt(member.log, member.commit_index), member.current_term);
  EXPECT_EQ(TermAt(cluster.member(2).log, member.commit_index), member.current_term);
  cluster.Heal();
  cluster.Join(1, 2);
  cluster.AllApply(0, {0, 1, 2});
  for (const unsigned i : {0, 1, 2}) EXPECT_EQ(TermAt(cluster.member(i).log, place), term) << i;
}

// If the leader's own disk has only the earlier term's entry, it would give its vote after a start.
TEST(LibraftDefects, WithTheRepairTheLeadersOwnDiskHasOneAsWell) {
  LibraftCluster cluster;
  cluster.Repair();
  const raft_index place = TwoEntriesAtOnePlace(cluster, /*disk_latency_ms=*/5'000);
  const raft& member = cluster.member(0);
  ASSERT_EQ(member.last_stored, place) << "the barrier came too early";
  cluster.AwaitStored(2, place + 1);
  cluster.Settle();
  EXPECT_LT(member.commit_index, place);
  cluster.AllApply(0, {0, 2});
}

// e, of which the leader's disk says that it has failed when the others have it: it goes off the
// leader's log, and the next entry, of the same term, comes to its place. The others keep theirs.
// With the repair the leader's log stays shorter, which libraft's cluster takes for a defect of its
// own, and ends: raft_repair_test plays that.

struct FailingDisk {                           // member 0's
  decltype(raft_io::append) append = nullptr;  // where nothing fails
  bool holds = false;
  raft_io_append* held = nullptr;
  raft_io_append_cb callback = nullptr;
};

FailingDisk& Disk() {
  static FailingDisk disk;
  return disk;
}

void MayFail(LibraftCluster& cluster) {
  raft_io& io = *cluster.member(0).io;
  Disk() = {.append = io.append};
  io.append = [](raft_io* to, raft_io_append* request, const raft_entry* entries, unsigned n,
                 raft_io_append_cb callback) {
    if (!Disk().holds) return Disk().append(to, request, entries, n, callback);
    Disk().held = request;
    Disk().callback = callback;
    return 0;
  };
}

// Plays it until the entry has gone, and returns its place.
raft_index LoseAnAppend(LibraftCluster& cluster) {
  cluster.StartAndElect();
  Disk().holds = true;
  cluster.Propose(0, "first");
  const raft_index place = raft_last_index(&cluster.member(0));
  for (const unsigned other : {1, 2}) cluster.AwaitStored(other, place);
  Disk().holds = false;
  Disk().callback(Disk().held, RAFT_IOERR);
  EXPECT_EQ(raft_last_index(&cluster.member(0)), place - 1);
  EXPECT_EQ(raft_state(&cluster.member(0)), RAFT_LEADER);
  return place;
}

std::string TextAt(LibraftCluster& cluster, unsigned i, raft_index index) {
  const raft_entry* const entry = EntryAt(cluster.member(i).log, index);
  return entry == nullptr ? "none" : static_cast<const char*>(entry->buf.base);
}

TEST(LibraftDefects, ALeaderPutsAnotherEntryInThePlaceOfOneThatItsDiskHasRefused) {
  LibraftCluster cluster;
  MayFail(cluster);
  const raft_index place = LoseAnAppend(cluster);
  cluster.Propose(0, "second");
  cluster.AllApply(0, {0, 1, 2});
  EXPECT_EQ(TextAt(cluster, 0, place), "second");
  for (const unsigned other : {1, 2}) {
    EXPECT_EQ(TextAt(cluster, other, place), "first") << "it has the leader's: mended";
  }
}

// Another member's snapshot, which is long in being stored. Who waits for it hears of no leader
// meanwhile, and stands for election; when it is stored, it answers the leader that it had, and
// finds a candidate's votes and flags in the place of that one's id and address.
raft_id& LastAnswered() {
  static raft_id last;
  return last;
}

// Before the repair, so that what it lets through is seen.
void WatchAnswersOf2(LibraftCluster& cluster) {
  static decltype(raft_io::send) send;
  raft_io& io = *cluster.member(2).io;
  send = io.send;
  LastAnswered() = 0;
  io.send = [](raft_io* from, raft_io_send* request, const raft_message* message,
               raft_io_send_cb callback) {
    if (message->type == RAFT_IO_APPEND_ENTRIES_RESULT) LastAnswered() = message->server_id;
    return send(from, request, message, callback);
  };
}

// Plays it until the snapshot is stored.
void StandForElectionWithoutASnapshot(LibraftCluster& cluster) {
  cluster.StartAndElect();
  raft& member = cluster.member(2);
  cluster.SnapshotAfter(/*entries=*/5);
  for (const unsigned other : {0, 1}) cluster.Separate(other, 2);
  for (int i = 0; i < 10; ++i) {
    cluster.Propose(0);
    cluster.AllApply(0, {0, 1});
  }
  cluster.Settle();
  raft_fixture_set_disk_latency(cluster.fixture(), 2, 10'000);
  for (const unsigned other : {0, 1}) cluster.Join(other, 2);
  for (int step = 0; member.snapshot.put.data == nullptr; ++step) {
    ASSERT_LT(step, 10'000) << "no snapshot has come";
    raft_fixture_step(cluster.fixture());
  }
  for (const unsigned other : {0, 1}) cluster.Separate(other, 2);
  ASSERT_TRUE(raft_fixture_step_until_state_is(cluster.fixture(), 2, RAFT_CANDIDATE, kLimitMs));
  for (int step = 0; member.snapshot.put.data != nullptr; ++step) {
    ASSERT_LT(step, 10'000);
    raft_fixture_step(cluster.fixture());
  }
}

TEST(LibraftDefects, ACandidateAnswersTheLeaderThatItHadWhenItsSnapshotIsStored) {
  LibraftCluster cluster;
  WatchAnswersOf2(cluster);
  StandForElectionWithoutASnapshot(cluster);
  EXPECT_GT(LastAnswered(), 3u) << "that is a member's id: mended";
}

TEST(LibraftDefects, WithTheRepairItAnswersNobody) {
  LibraftCluster cluster;
  WatchAnswersOf2(cluster);
  cluster.Repair();
  StandForElectionWithoutASnapshot(cluster);
  EXPECT_LE(LastAnswered(), 3u);
  for (const unsigned other : {0, 1}) cluster.Join(other, 2);
  cluster.AllApply(0, {0, 1, 2});
}

// Member 0 has an entry that nobody else has, and did not hear of two elections that member 1 has
// won by member 2's vote. Then member 1 is gone. Member 2 refuses member 0's pre-vote, for its term
// is later, and says only the term that it was asked about; member 0 refuses member 2's, for its
// log is longer. A simulated group of three stood still for good: the third one had lost its
// memory.

// Plays it until members 0 and 2 hear each other.
void MissTwoElections(LibraftCluster& cluster) {
  for (const unsigned i : {0, 1, 2}) raft_set_pre_vote(&cluster.member(i), true);
  cluster.StartAndElect();
  raft_fixture* const fixture = cluster.fixture();
  cluster.Separate(0, 2);
  cluster.Propose(0);  // member 1 has it, so that it wins, and not member 2
  cluster.AwaitStored(1, raft_last_index(&cluster.member(0)));
  cluster.CutOff();
  cluster.Propose(0);
  cluster.AwaitStored(0, raft_last_index(&cluster.member(0)));
  for (int election = 0; election < 2; ++election) {
    ASSERT_TRUE(raft_fixture_step_until_state_is(fixture, 1, RAFT_LEADER, kLimitMs));
    cluster.Separate(1, 2);
    ASSERT_TRUE(raft_fixture_step_until_state_is(fixture, 1, RAFT_FOLLOWER, kLimitMs));
    if (election == 0) cluster.Join(1, 2);
  }
  ASSERT_TRUE(raft_fixture_step_until_state_is(fixture, 0, RAFT_FOLLOWER, kLimitMs));
  ASSERT_GT(cluster.member(2).current_term, cluster.member(0).current_term + 1);
  ASSERT_LT(raft_last_index(&cluster.member(2)), raft_last_index(&cluster.member(0)));
  cluster.member(0).follower_state.randomized_election_timeout = kElectionMs;
  raft_fixture_set_randomized_election_timeout(fixture, 0, kElectionMs);
  cluster.Join(0, 2);
}

TEST(LibraftDefects, WhoHasTheLongerLogDoesNotHearOfALaterTerm) {
  LibraftCluster cluster;
  MissTwoElections(cluster);
  EXPECT_FALSE(raft_fixture_step_until_state_is(cluster.fixture(), 0, RAFT_LEADER, kLimitMs))
      << "it has heard of it: mended";
}

TEST(LibraftDefects, WithTheRepairItHearsOfItAndLeads) {
  LibraftCluster cluster;
  cluster.Repair();
  MissTwoElections(cluster);
  ASSERT_TRUE(raft_fixture_step_until_state_is(cluster.fixture(), 0, RAFT_LEADER, kLimitMs));
  cluster.Propose(0);
  cluster.AllApply(0, {0, 2});
}

// C1 e C2, after a start: whoever leads holds C2 for committed, so that it takes another change at
// once, and says that this one is done when C2 is.
int status_of_second = 0;  // 1: nothing was said

int AddBeforeAChangeIsApplied(LibraftCluster& cluster) {
  static raft_change second;
  StoreChange(cluster);
  cluster.Start();
  raft_fixture_elect(cluster.fixture(), 0);
  raft& leader = cluster.member(0);
  EXPECT_LT(raft_last_applied(&leader), ChangesIn(leader.log).back());
  raft_fixture_set_disk_latency(cluster.fixture(), 0, 5'000);  // it commits what its disk has
  second = {};
  status_of_second = 1;
  return raft_add(&leader, &second, 5, "5",
                  [](raft_change*, int status) { status_of_second = status; });
}

TEST(LibraftDefects, AfterAStartAChangeIsDoneWhenTheOneBeforeItIs) {
  LibraftCluster cluster;
  ASSERT_EQ(AddBeforeAChangeIsApplied(cluster), 0) << "refused: mended";
  raft& leader = cluster.member(0);
  const std::vector<raft_index> changes = ChangesIn(leader.log);
  ASSERT_EQ(changes.size(), 3u);
  for (int step = 0; raft_last_applied(&leader) < changes[1]; ++step) {
    ASSERT_LT(step, 10'000);
    raft_fixture_step(cluster.fixture());
  }
  EXPECT_LT(leader.commit_index, changes[2]);
  EXPECT_EQ(status_of_second, 0);
}

TEST(LibraftDefects, WithTheRepairItWaitsForTheOneBeforeIt) {
  LibraftCluster cluster;
  cluster.Repair();
  EXPECT_EQ(AddBeforeAChangeIsApplied(cluster), RAFT_CANTCHANGE);
  cluster.Propose(0);
  cluster.AllApply(0, {0, 1, 2});
  EXPECT_EQ(cluster.AddFifth(0), 0);
}

// C removes member 0, which leads, and leaves member 1 as the only voter. Member 1 elects itself in
// the term in which it has given its vote to member 0: two members lead in one term, and what one
// of them puts at a place of the log, the other one's followers take for their own. Member 2, which
// has no vote, has an entry that nobody has committed in the place of one that was acknowledged,
// and keeps it.

// Until member 1, which has C on its disk, is the only voter, and member 0 leads and does not know
// how far member 1 is.
void LeaderRemovesItself(LibraftCluster& cluster) {
  cluster.StartAndElect();
  raft_fixture_saturate(cluster.fixture(), 1, 0);
  cluster.Remove0();
  const raft_index change = raft_last_index(&cluster.member(0));
  cluster.AwaitStored(1, change);
  cluster.AwaitStored(2, change);
  ASSERT_EQ(raft_state(&cluster.member(0)), RAFT_LEADER);
}

// Until both have led, and member 2 has heard both. Returns the place.
raft_index TwoLeadersOfOneVoter(LibraftCluster& cluster) {
  LeaderRemovesItself(cluster);
  const raft_index place = raft_last_index(&cluster.member(0)) + 1;
  cluster.Separate(0, 1);
  cluster.Separate(1, 2);
  cluster.Propose(0, "never committed");
  cluster.AwaitStored(2, place);
  EXPECT_TRUE(raft_fixture_step_until_state_is(cluster.fixture(), 1, RAFT_LEADER, kLimitMs));
  cluster.Propose(1, "acknowledged");
  cluster.AllApply(1, {1});
  cluster.CutOff();
  cluster.Join(1, 2);
  cluster.Propose(1);
  cluster.AllApply(1, {1, 2});
  return place;
}

TEST(LibraftDefects, TheOnlyVoterElectsItselfInAnothersTerm) {
  LibraftCluster cluster(/*voters=*/2);
  const raft_index place = TwoLeadersOfOneVoter(cluster);
  EXPECT_EQ(TextAt(cluster, 1, place), "acknowledged");
  EXPECT_EQ(TextAt(cluster, 2, place), "never committed") << "mended";
}

TEST(LibraftDefects, WithTheRepairItBeginsATermOfItsOwn) {
  LibraftCluster cluster(/*voters=*/2);
  cluster.Repair();
  const raft_index place = TwoLeadersOfOneVoter(cluster);
  EXPECT_EQ(TextAt(cluster, 1, place), "acknowledged");
  EXPECT_EQ(TextAt(cluster, 2, place), "acknowledged");
}

// The same where the leader hands over when it has removed itself.
void HandOverToTheOnlyVoter(LibraftCluster& cluster) {
  LeaderRemovesItself(cluster);
  static struct raft_transfer transfer;
  transfer = {};
  ASSERT_EQ(raft_transfer(&cluster.member(0), &transfer, cluster.member(1).id, nullptr), 0);
  ASSERT_TRUE(raft_fixture_step_until_state_is(cluster.fixture(), 1, RAFT_LEADER, kLimitMs));
}

TEST(LibraftDefectsDeathTest, WhoIsHandedTheLeadershipAloneTakesTheTermWithIt) {
  LibraftCluster cluster(/*voters=*/2);
  EXPECT_DEATH(HandOverToTheOnlyVoter(cluster), "both leaders in term") << "mended";
}

TEST(LibraftDefects, WithTheRepairItLeavesTheTerm) {
  LibraftCluster cluster(/*voters=*/2);
  cluster.Repair();
  HandOverToTheOnlyVoter(cluster);
  EXPECT_GT(cluster.member(1).current_term, cluster.member(0).current_term);
  EXPECT_EQ(cluster.member(1).voted_for, cluster.member(1).id);
}

// And where the only voter is started again: whom it gave its vote in that term may lead still.
void StartTheOnlyVoter(LibraftCluster& cluster) {
  raft_fixture_set_term(cluster.fixture(), 0, 5);
  cluster.Start();
  ASSERT_EQ(raft_state(&cluster.member(0)), RAFT_LEADER);
}

TEST(LibraftDefects, TheOnlyVoterLeadsInTheTermThatItsDiskHas) {
  LibraftCluster cluster(/*voters=*/1);
  StartTheOnlyVoter(cluster);
  EXPECT_EQ(cluster.member(0).current_term, 5u) << "mended";
}

TEST(LibraftDefects, WithTheRepairItLeadsInTheNextOne) {
  LibraftCluster cluster(/*voters=*/1);
  cluster.Repair();
  StartTheOnlyVoter(cluster);
  EXPECT_EQ(cluster.member(0).current_term, 6u);
  EXPECT_EQ(cluster.member(0).voted_for, cluster.member(0).id);
  cluster.Propose(0);
  cluster.AllApply(0, {0, 1, 2});
}

// Who is elected while there is no memory appends no barrier, and held all answers back until
// somebody had a command: what the leader before it had not committed stayed so, and no member
// caught up.
TEST(RaftRepairMemory, WhoCouldAppendNoBarrierTriesAgain) {
  LibraftCluster cluster;
  cluster.Repair();
  cluster.StartAndElect();
  cluster.Propose(0);
  const raft_index entry = raft_last_index(&cluster.member(0));
  raft_fixture_saturate(cluster.fixture(), 1, 0);
  raft_fixture_saturate(cluster.fixture(), 2, 0);
  cluster.AwaitStored(1, entry);
  cluster.AwaitStored(2, entry);
  cluster.CutOff();
  {
    DirtyHeap no_barriers(/*refused=*/8);
    ASSERT_TRUE(raft_fixture_step_until_state_is(cluster.fixture(), 1, RAFT_LEADER, kLimitMs));
  }
  ASSERT_EQ(raft_last_index(&cluster.member(1)), entry);
  EXPECT_TRUE(raft_fixture_step_until_applied(cluster.fixture(), 1, entry, kLimitMs));
}

// An append of a leader that has lost the leadership, and has it again, fails: libraft takes the
// entry and all behind it off the log, the barrier too, whose request stays in its queue. Put there
// again, the queue was a ring without an end, and the process hung.
TEST(RaftRepairQueue, ABarrierThatAFailedAppendTookAwayIsNotPutThereTwice) {
  LibraftCluster cluster;
  MayFail(cluster);
  raft& member = cluster.member(0);
  cluster.Repair();
  cluster.StartAndElect();
  for (const unsigned other : {1, 2}) raft_fixture_saturate(cluster.fixture(), other, 0);
  cluster.Propose(0);
  const raft_index stored = raft_last_index(&member);
  cluster.AwaitStored(0, stored);
  cluster.CutOff();
  cluster.Separate(1, 2);
  Disk().holds = true;
  cluster.Propose(0);
  ASSERT_NE(Disk().held, nullptr);
  Disk().holds = false;
  ASSERT_TRUE(raft_fixture_step_until_state_is(cluster.fixture(), 0, RAFT_FOLLOWER, kLimitMs));
  for (const unsigned other : {1, 2}) {
    ASSERT_TRUE(
        raft_fixture_step_until_state_is(cluster.fixture(), other, RAFT_CANDIDATE, kLimitMs));
  }
  cluster.Heal();
  member.follower_state.randomized_election_timeout = kElectionMs;
  raft_fixture_set_randomized_election_timeout(cluster.fixture(), 0, kElectionMs);
  ASSERT_TRUE(raft_fixture_step_until_state_is(cluster.fixture(), 0, RAFT_LEADER, kLimitMs));
  ASSERT_EQ(raft_last_index(&member), stored + 2) << "no barrier";
  Disk().callback(Disk().held, RAFT_IOERR);
  ASSERT_EQ(raft_last_index(&member), stored);
  cluster.Settle();
  cluster.CutOff();
  EXPECT_TRUE(raft_fixture_step_until_state_is(cluster.fixture(), 0, RAFT_FOLLOWER, kLimitMs))
      << "it ends the leadership, and all requests in the queue";
}

}  // namespace
}  // namespace weft::embed::test
