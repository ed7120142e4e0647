// A leader's writes alone as the quorum, in a simulated network: what is committed while followers
// look at nothing, what a deposed leader can still do, and what members owe that were killed.
#include "embed/raft/raft_remote_writes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/bytes.h"
#include "core/clock.h"
#include "core/crc32c.h"
#include "embed/raft/raft_log.h"
#include "embed/raft/raft_network.h"
#include "embed/raft/testing/raft_group.h"
#include "weft/channel.h"
#include "weft/remote_memory.h"
#include "weft/server.h"
#include "weft/service.h"
#include "weft/sim.h"

namespace weft::embed::test {
namespace {

RaftMachine::Options WithRemoteWrites(uint64_t ring_bytes = 64 << 10) {
  RaftMachine::Options options;
  options.network.replication = RaftReplication::kRemoteWrites;
  options.network.ring_bytes = ring_bytes;
  return options;
}

std::string Command(int number, size_t bytes) {
  std::string command = std::to_string(number) + ":";
  while (command.size() < bytes) command += static_cast<char>('a' + command.size() % 26);
  return command;
}

void TidyAll(RaftGroup& group) {
  for (auto& [id, machine] : group.machines()) machine->network().Tidy();
}

raft_index LastOf(RaftMachine& machine) { return LastIndex(machine.get()->log); }

// Ends when every follower was written to lately, and has all: with `commands`, which grows.
void CommitUntilAllAreWrittenTo(RaftGroup& group, std::vector<std::string>* commands) {
  for (int i = 0; i < 60; ++i) {
    std::map<raft_id, uint64_t> before;
    for (auto& [id, machine] : group.machines()) {
      before[id] = machine->network().stats().rings.taken;
    }
    commands->push_back(Command(static_cast<int>(commands->size()), 50));
    ASSERT_TRUE(group.Commit(commands->back()));
    ASSERT_TRUE(group.AllHave(commands->size()));
    TidyAll(group);
    bool all = true;
    for (auto& [id, machine] : group.machines()) {
      all = all && (machine->leads() || machine->network().stats().rings.taken > before[id]);
    }
    if (all) return;
    group.network().RunFor(100 * kNsPerMs);
  }
  FAIL() << "nobody is written to";
}

// Of the others in the group.
std::vector<RaftMachine*> FollowersOf(RaftGroup& group, raft_id leader) {
  std::vector<RaftMachine*> followers;
  for (auto& [id, machine] : group.machines()) {
    if (id != leader) followers.push_back(machine.get());
  }
  return followers;
}

TEST(RaftRemoteWrites, EntriesAreCommittedWhileFollowersLookAtNothing) {
  RaftGroup group(/*seed=*/1, {1, 2, 3}, WithRemoteWrites());
  std::vector<std::string> commands;
  CommitUntilAllAreWrittenTo(group, &commands);
  RaftMachine& leader = *group.Leader();
  const uint64_t acknowledged = leader.network().stats().rings.acknowledged;
  int unseen = 0;
  for (int i = 0; i < 20; ++i) {
    int status = 0;
    commands.push_back(Command(i, 100));
    leader.Propose(commands.back(), &status);
    ASSERT_TRUE(group.RunUntil([&status] { return status != 1; }));
    ASSERT_EQ(status, 0);
    bool has_one = false;
    for (RaftMachine* const follower : FollowersOf(group, leader.id())) {
      has_one = has_one || LastOf(*follower) >= LastOf(leader);
    }
    if (!has_one) ++unseen;
  }
  EXPECT_GT(unseen, 10) << "else a follower's libraft had it, by its tick";
  EXPECT_GE(leader.network().stats().rings.acknowledged, acknowledged + 20);
  ASSERT_TRUE(group.AllHave(commands.size()));
  for (auto& [id, machine] : group.machines()) {
    EXPECT_EQ(machine->applied(), commands) << "member " << id;
    EXPECT_EQ(machine->network().stats().refused, 0u);
  }
}

TEST(RaftRemoteWrites, EntriesOfEverySizeArriveWholeWhileRingsAreFullAndWrap) {
  RaftGroup group(/*seed=*/2, {1, 2, 3}, WithRemoteWrites(kMinRingBytes));
  std::vector<std::string> commands;
  CommitUntilAllAreWrittenTo(group, &commands);
  for (int round = 0; round < 3; ++round) {
    std::vector<int> statuses(60, 1);
    for (size_t i = 0; i < statuses.size(); ++i) {
      commands.push_back(Command(static_cast<int>(i), 2 + i * 40));
      group.Leader()->Propose(commands.back(), &statuses[i]);
    }
    ASSERT_TRUE(group.AllHave(commands.size()));
    for (const int status : statuses) EXPECT_EQ(status, 0);
    CommitUntilAllAreWrittenTo(group, &commands);
  }
  for (auto& [id, machine] : group.machines()) EXPECT_EQ(machine->applied(), commands);
  EXPECT_GT(group.Leader()->network().stats().rings.no_room, 0u);
}

// A follower took all that had come since its last tick in one go. Its engine, which over tcp moves
// the leader's writes, had no turn meanwhile, and of 64 commits under way each waited so long.
TEST(RaftRemoteWrites, WhatHasComeSinceTheLastTickIsTakenInSeveralTurns) {
  RaftGroup group(/*seed=*/14, {1, 2, 3}, WithRemoteWrites(/*ring_bytes=*/1 << 20));
  std::vector<std::string> commands;
  CommitUntilAllAreWrittenTo(group, &commands);
  group.network().RunFor(10 * kNsPerMs);
  RaftMachine& leader = *group.Leader();
  RaftMachine& follower = group.member(leader.id() == 1 ? 2 : 1);
  constexpr size_t kBytes = 1000;  // of a command
  std::vector<int> statuses(5 * RaftRemoteWrites::kAtOnceBytes / kBytes, 1);
  for (size_t i = 0; i < statuses.size(); ++i) {
    commands.push_back(Command(static_cast<int>(i), kBytes));
    leader.Propose(commands.back(), &statuses[i]);
  }
  const uint64_t first = follower.network().stats().rings.taken;
  uint64_t taken = first;
  uint64_t most_at_once = 0;
  // Looks between the engines' turns.
  ASSERT_TRUE(group.RunUntil([&] {
    const uint64_t now = follower.network().stats().rings.taken;
    most_at_once = std::max(most_at_once, now - taken);
    taken = now;
    return taken - first >= statuses.size();
  }));
  EXPECT_GT(most_at_once, 10u) << "else there was nothing to take at once";
  EXPECT_LE(most_at_once, RaftRemoteWrites::kAtOnceBytes / kBytes + 1);
  ASSERT_TRUE(group.AllHave(commands.size()));
  for (auto& [id, machine] : group.machines()) EXPECT_EQ(machine->applied(), commands);
  for (const int status : statuses) EXPECT_EQ(status, 0);
}

// What of it is left for later turns is taken before a term is left, as all that was written is.
TEST(RaftRemoteWrites, LeadershipIsTakenWithWhatATickHasLeft) {
  RaftGroup group(/*seed=*/15, {1, 2, 3}, WithRemoteWrites(/*ring_bytes=*/1 << 20));
  std::vector<std::string> commands;
  CommitUntilAllAreWrittenTo(group, &commands);
  group.network().RunFor(10 * kNsPerMs);
  RaftMachine& leader = *group.Leader();
  RaftMachine& follower = group.member(leader.id() == 1 ? 2 : 1);
  constexpr size_t kBytes = 1000;
  std::vector<int> statuses(5 * RaftRemoteWrites::kAtOnceBytes / kBytes, 1);
  for (size_t i = 0; i < statuses.size(); ++i) {
    commands.push_back(Command(static_cast<int>(i), kBytes));
    leader.Propose(commands.back(), &statuses[i]);
  }
  const uint64_t before = follower.network().stats().rings.taken;
  ASSERT_TRUE(group.RunUntil([&] { return follower.network().stats().rings.taken > before; }));
  ASSERT_LT(follower.network().stats().rings.taken, before + statuses.size());
  leader.Transfer(follower.id());
  ASSERT_TRUE(group.RunUntil([&] { return follower.leads(); }));
  ASSERT_TRUE(group.Commit("behind it"));
  commands.emplace_back("behind it");
  ASSERT_TRUE(group.AllHave(commands.size()));
  for (auto& [id, machine] : group.machines()) EXPECT_EQ(machine->applied(), commands);
}

TEST(RaftRemoteWrites, MembersThatSaySomethingElseGetMessages) {
  RaftMachine::Options options = WithRemoteWrites();
  options.without_rings = {2, 3};
  RaftGroup group(/*seed=*/3, {1, 2, 3}, options);
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(group.Commit(Command(i, 100)));
  ASSERT_TRUE(group.AllHave(50));
  for (auto& [id, machine] : group.machines()) {
    EXPECT_EQ(machine->network().stats().rings.written, 0u);
    EXPECT_EQ(machine->network().stats().refused, 0u);
    EXPECT_EQ(machine->applied(), group.member(1).applied());
  }
  EXPECT_FALSE(group.disk(2).memory_mark);
}

TEST(RaftRemoteWrites, ALeaderThatIsKilledLosesNothingThatWasCommitted) {
  RaftGroup group(/*seed=*/4, {1, 2, 3}, WithRemoteWrites());
  std::vector<std::string> commands;
  CommitUntilAllAreWrittenTo(group, &commands);
  for (int round = 0; round < 4; ++round) {
    const raft_id leader = group.Leader()->id();
    for (int i = 0; i < 3; ++i) {
      commands.push_back(Command(100 * round + i, 200));
      int status = 0;
      group.member(leader).Propose(commands.back(), &status);
      ASSERT_TRUE(group.RunUntil([&status] { return status != 1; }));
      ASSERT_EQ(status, 0);
    }
    // At once: nobody else has it but in the memory that it was written to.
    group.Kill(leader);
    commands.emplace_back("without it");
    ASSERT_TRUE(group.Commit(commands.back()));
    ASSERT_TRUE(group.AllHave(commands.size()));
    group.Restart(leader);
    ASSERT_TRUE(group.AllHave(commands.size()));
    ASSERT_TRUE(group.RunUntil([&] { return !group.member(leader).network().recovering(); }));
    CommitUntilAllAreWrittenTo(group, &commands);
  }
  for (auto& [id, machine] : group.machines()) EXPECT_EQ(machine->applied(), commands);
}

TEST(RaftRemoteWrites, LeadershipIsHandedOverWithAllThatWasWritten) {
  RaftGroup group(/*seed=*/5, {1, 2, 3}, WithRemoteWrites());
  std::vector<std::string> commands;
  CommitUntilAllAreWrittenTo(group, &commands);
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 5; ++i) {
      commands.push_back(Command(i, 100));
      ASSERT_TRUE(group.Commit(commands.back()));
    }
    const raft_id other = group.Leader()->id() == 1 ? 2 : 1;
    group.Leader()->Transfer(other);
    ASSERT_TRUE(group.RunUntil([&] { return group.member(other).leads(); }));
    CommitUntilAllAreWrittenTo(group, &commands);
  }
  for (auto& [id, machine] : group.machines()) EXPECT_EQ(machine->applied(), commands);
}

// Its memory had what its disk had not: it was acknowledged, and libraft holds it for sent.
TEST(RaftRemoteWrites, AFollowerThatIsKilledIsSentWhatItsMemoryHad) {
  RaftGroup group(/*seed=*/6, {1, 2, 3}, WithRemoteWrites());
  std::vector<std::string> commands;
  CommitUntilAllAreWrittenTo(group, &commands);
  RaftMachine& leader = *group.Leader();
  const raft_id follower = leader.id() == 1 ? 2 : 1;
  group.disk(follower).sync_us = 1'000'000;
  for (int i = 0; i < 10; ++i) {
    commands.push_back(Command(i, 100));
    int status = 0;
    leader.Propose(commands.back(), &status);
    ASSERT_TRUE(group.RunUntil([&status] { return status != 1; }));
    ASSERT_EQ(status, 0);
  }
  EXPECT_LT(group.disk(follower).entries.size() + 5, LastOf(leader));
  EXPECT_TRUE(group.disk(follower).memory_mark);
  group.Kill(follower);
  group.disk(follower).sync_us = 100;
  group.Restart(follower);
  EXPECT_TRUE(group.member(follower).network().recovering());
  ASSERT_TRUE(group.RunUntil([&] { return !group.member(follower).network().recovering(); }));
  EXPECT_GE(group.disk(follower).entries.size(), commands.size());
  ASSERT_TRUE(group.AllHave(commands.size()));
  CommitUntilAllAreWrittenTo(group, &commands);
  for (auto& [id, machine] : group.machines()) EXPECT_EQ(machine->applied(), commands);
}

// With its vote, who lacks the entry would lead.
TEST(RaftRemoteWrites, AFollowerThatHasLostItsMemoryElectsNobody) {
  RaftGroup group(/*seed=*/7, {1, 2, 3}, WithRemoteWrites());
  std::vector<std::string> commands;
  CommitUntilAllAreWrittenTo(group, &commands);
  RaftMachine& leader = *group.Leader();
  const raft_id first = leader.id();
  const raft_id kept = first == 1 ? 2 : 1;
  const raft_id away = 6 - first - kept;
  // Nobody but the leader and the follower's memory has it.
  group.network().Partition(leader.node(), group.member(away).node());
  group.network().Partition(group.member(kept).node(), group.member(away).node());
  group.disk(kept).sync_us = 1'000'000;
  commands.push_back(Command(1, 100));
  int status = 0;
  leader.Propose(commands.back(), &status);
  ASSERT_TRUE(group.RunUntil([&status] { return status != 1; }));
  ASSERT_EQ(status, 0);
  group.Kill(kept);
  group.Kill(first);
  group.disk(kept).sync_us = 100;
  group.Restart(kept);
  EXPECT_FALSE(group.RunUntil([&] { return group.Leader() != nullptr; }, 20 * kNsPerSec));
  EXPECT_TRUE(group.member(kept).network().recovering());
  group.Restart(first);
  ASSERT_TRUE(group.HasLeader());
  EXPECT_EQ(group.Leader()->id(), first);
  commands.emplace_back("with it");
  ASSERT_TRUE(group.Commit(commands.back()));
  ASSERT_TRUE(group.AllHave(commands.size()));
  EXPECT_TRUE(group.RunUntil([&] { return !group.member(kept).network().recovering(); }));
  for (auto& [id, machine] : group.machines()) EXPECT_EQ(machine->applied(), commands);
}

TEST(RaftRemoteWrites, AGroupThatHasLostItsMemoryWaitsForADecision) {
  RaftGroup group(/*seed=*/10, {1, 2, 3}, WithRemoteWrites());
  std::vector<std::string> commands;
  CommitUntilAllAreWrittenTo(group, &commands);
  const raft_id other = group.Leader()->id() == 1 ? 2 : 1;
  group.Leader()->Transfer(other);
  ASSERT_TRUE(group.RunUntil([&] { return group.member(other).leads(); }));
  CommitUntilAllAreWrittenTo(group, &commands);
  for (const raft_id id : {1, 2, 3}) {
    EXPECT_TRUE(group.disk(id).memory_mark) << "all have followed";
    group.Kill(id);
  }
  for (const raft_id id : {1, 2, 3}) group.Restart(id);
  EXPECT_FALSE(group.RunUntil([&] { return group.Leader() != nullptr; }, 20 * kNsPerSec));
  for (const raft_id id : {1, 2, 3}) {
    group.Kill(id);
    group.disk(id).memory_mark = false;
  }
  for (const raft_id id : {1, 2, 3}) group.Restart(id);
  EXPECT_TRUE(group.HasLeader());
}

TEST(RaftRemoteWrites, AMemberThatIsClosedHasNothingToMakeUpFor) {
  RaftGroup group(/*seed=*/8, {1, 2, 3}, WithRemoteWrites());
  std::vector<std::string> commands;
  CommitUntilAllAreWrittenTo(group, &commands);
  group.network().RunFor(500 * kNsPerMs);
  const raft_id follower = group.Leader()->id() == 1 ? 2 : 1;
  ASSERT_TRUE(group.disk(follower).memory_mark);
  bool closed = false;
  group.member(follower).Close(&closed);
  ASSERT_TRUE(group.RunUntil([&] { return closed; }));
  EXPECT_FALSE(group.disk(follower).memory_mark);
}

// What waits for the engine's turn may find that it has no room to ask for one.
TEST(RaftRemoteWrites, ARecordThatTheEngineHasNoRoomForEndsItsRing) {
  RaftGroup group(/*seed=*/13, {1, 2, 3}, WithRemoteWrites());
  std::vector<std::string> commands;
  CommitUntilAllAreWrittenTo(group, &commands);
  group.network().RunFor(10 * kNsPerMs);
  RaftMachine& leader = *group.Leader();
  const RaftRings::Stats before = leader.network().stats().rings;
  Engine& engine = group.network().Node(leader.node());
  int ran = 0;
  while (engine.Post([&ran] { ++ran; })) {
  }
  const raft_term term = leader.get()->current_term;
  const raft_index last = LastOf(leader);
  char byte = 'x';
  raft_entry entry = {};
  entry.term = term;
  entry.type = RAFT_COMMAND;
  entry.buf = {&byte, 1};
  raft_message message = {};
  message.type = RAFT_IO_APPEND_ENTRIES;
  message.server_id = leader.id() == 1 ? 2 : 1;
  const std::string address = RaftMachine::Address(message.server_id);
  message.server_address = address.c_str();
  message.append_entries = {term, last, TermAt(leader.get()->log, last), 0, &entry, 1};
  bool called_back = false;
  raft_io_send request = {};
  request.data = &called_back;
  raft_io* const io = leader.get()->io;
  EXPECT_EQ(io->send(io, &request, &message,
                     [](raft_io_send* each, int) { *static_cast<bool*>(each->data) = true; }),
            RAFT_TOOMANY);
  EXPECT_EQ(ran, 0);
  EXPECT_EQ(leader.network().stats().rings.given_up, before.given_up + 1);
  group.network().RunFor(10 * kNsPerMs);
  EXPECT_EQ(leader.network().stats().rings.written, before.written);
  EXPECT_FALSE(called_back) << "it was refused at once";
  CommitUntilAllAreWrittenTo(group, &commands);
  for (auto& [id, machine] : group.machines()) EXPECT_EQ(machine->applied(), commands);
}

TEST(RaftRemoteWrites, ItNeedsAMarkThatIsKept) {
  RaftMachine::Options options = WithRemoteWrites();
  SimNetwork network(/*seed=*/1);
  MemoryDisk disk;
  MemoryDiskIo io(disk, network.Node("node"), 1);
  const auto half = RaftNetwork::Attach(io.io(), network.Node("node"), options.network);
  EXPECT_THAT(std::string(half.status().message()), testing::HasSubstr("keep_memory_mark"));
}

// --- one member, and what others say to it -------------------------------------------------------

// Says that it is a member, and what it is told to say; speaks with one member.
class Actor final : public wire::RaftMember::Service {
 public:
  Actor(RaftGroup* group, raft_id id, raft_id with = 1) : group_(*group), id_(id) {
    ServerOptions options;
    options.peer_id = RaftNetwork::PeerName("raft", id);
    auto server = Server::Create(group_.network().Node("actor-" + std::to_string(id)), options);
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    EXPECT_TRUE(server_->AddService(this).ok());
    EXPECT_TRUE(server_->Listen(RaftMachine::Address(id)).ok());
    auto channel =
        server_->OpenPeer(RaftNetwork::PeerName("raft", with), RaftMachine::Address(with), {});
    EXPECT_TRUE(channel.ok()) << channel.status();
    channel_ = *std::move(channel);
  }

  wire::Message Message() const {
    wire::Message message;
    message.set_from(id_);
    message.set_from_address(RaftMachine::Address(id_));
    return message;
  }
  // `count` entries of ten bytes behind entry `before`, in the leader's term.
  wire::Message Append(raft_term term, raft_index before, raft_term before_term, int count) const {
    wire::Message message = Message();
    wire::AppendEntries* const entries = message.mutable_append_entries();
    entries->set_term(term);
    entries->set_prev_log_index(before);
    entries->set_prev_log_term(before_term);
    for (int i = 0; i < count; ++i) {
      entries->add_entry_terms(term);
      entries->add_entry_types(RAFT_COMMAND);
      entries->add_entry_bytes(10);
    }
    return message;
  }
  wire::Message RequestVote(raft_term term, raft_index last, raft_term last_term) const {
    wire::Message message = Message();
    wire::RequestVote* const request = message.mutable_request_vote();
    request->set_term(term);
    request->set_candidate_id(id_);
    request->set_last_log_index(last);
    request->set_last_log_term(last_term);
    request->set_disrupt_leader(true);
    return message;
  }
  void Say(const wire::Message& message) const {
    wire::RaftMember::Stub(*channel_).Deliver(message, {}, [](const absl::Status&) {});
  }
  // The last vote that was given or refused; nullopt: none came.
  std::optional<bool> AskForVote(const wire::Message& request, uint64_t limit_ns = kNsPerSec) {
    vote_.reset();
    Say(request);
    return AwaitVote(limit_ns);
  }
  std::optional<bool> AwaitVote(uint64_t limit_ns) {
    group_.RunUntil([this] { return vote_.has_value(); }, limit_ns);
    return vote_;
  }

  // Leads, and ends when it may write. The log of member 1 has its first entry, of term 1.
  void AskForRing(raft_term term, raft_index last_index, raft_term last_term) {
    wire::Message message = Append(term, last_index, last_term, 0);
    message.mutable_remote_writes()->set_wanted(true);
    message.mutable_remote_writes()->set_last(last_);
    Say(message);
  }
  void Lead(raft_term term) {
    for (int i = 0; i < 40 && !offer_.has_value(); ++i) {
      AskForRing(term, 1, 1);
      group_.network().RunFor(50 * kNsPerMs);
    }
    ASSERT_TRUE(offer_.has_value());
    EXPECT_EQ(offer_term_, term);
    last_ = offer_->number();
    auto memory = RemoteMemory::Open(*channel_, offer_->memory());
    ASSERT_TRUE(memory.ok()) << memory.status();
    memory_ = *std::move(memory);
    at_ = 0;
  }
  void ForgetRing() {
    memory_.reset();
    offer_.reset();
  }

  // As a leader writes it: all of it, or its first `written` bytes.
  absl::Status Write(const wire::Message& message, size_t written = ~size_t{0}) {
    const RemotePiece piece = Place(message, written);
    return memory_->WriteAcknowledged({&piece, 1});
  }
  // Does not wait for its end, which is then in *ended.
  void StartWrite(const wire::Message& message, std::optional<absl::Status>* ended) {
    const RemotePiece piece = Place(message, ~size_t{0});
    memory_->WriteAcknowledged({&piece, 1},
                               [ended](const absl::Status& status) { *ended = status; });
  }

  // What member 1 has told last.
  uint64_t lost() const { return lost_; }
  const std::optional<wire::RequestVote>& asked_for_vote() const { return asked_; }

 private:
  absl::Status Deliver(ServerContext&, const wire::Message& message) override {
    if (message.remote_writes().has_offer()) {
      offer_ = message.remote_writes().offer();
      offer_term_ = message.remote_writes().term();
    }
    if (message.remote_writes().lost() != 0) lost_ = message.remote_writes().lost();
    if (message.has_request_vote_result()) vote_ = message.request_vote_result().vote_granted();
    if (message.has_request_vote() && !asked_.has_value()) asked_ = message.request_vote();
    return absl::OkStatus();
  }

  // The next record, in memory that the one before is not written from any more.
  RemotePiece Place(const wire::Message& message, size_t written) {
    const std::string text = message.SerializeAsString();
    const size_t payload = 10 * static_cast<size_t>(message.append_entries().entry_bytes_size());
    const size_t bytes = 16 + 32 + text.size() + payload;
    auto buffer = channel_->AllocateBuffer(bytes);
    EXPECT_TRUE(buffer.ok());
    buffer_ = *std::move(buffer);
    const MutableByteSpan to = buffer_->bytes();
    StoreLe64(to.data(), offer_->number());
    StoreLe64(to.data() + 8, at_);
    StoreLe32(to.data() + 20, static_cast<uint32_t>(text.size()));
    StoreLe64(to.data() + 24, payload);
    StoreLe64(to.data() + 32, at_);
    StoreLe64(to.data() + 40, at_);
    std::memcpy(to.data() + 48, text.data(), text.size());
    std::memset(to.data() + 48 + text.size(), 'x', payload);
    StoreLe32(to.data() + 16, Crc32c({to.data() + 20, bytes - 20}));
    const RemotePiece piece{at_, buffer_->slice(0, std::min(written, bytes))};
    at_ += 16 + (bytes - 16 + 15) / 16 * 16;
    return piece;
  }

  RaftGroup& group_;
  const raft_id id_;
  std::optional<wire::Ring::Offer> offer_;
  raft_term offer_term_ = 0;
  uint64_t last_ = 0;
  uint64_t at_ = 0;
  uint64_t lost_ = 0;
  std::optional<bool> vote_;
  std::optional<wire::RequestVote> asked_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<Channel> channel_;
  std::unique_ptr<Buffer> buffer_;        // of the last record
  std::unique_ptr<RemoteMemory> memory_;  // goes first
};

// Member 1 alone of three, with what 2 and 3 say.
class OneMemberTest : public testing::Test {
 protected:
  explicit OneMemberTest(const SimOptions& network = {})
      : group_(/*seed=*/9, {1, 2, 3}, WithRemoteWrites(kMinRingBytes), network) {
    group_.Kill(2);
    group_.Kill(3);
    leader_ = std::make_unique<Actor>(&group_, 3);
    candidate_ = std::make_unique<Actor>(&group_, 2);
  }
  ~OneMemberTest() override {
    leader_.reset();
    candidate_.reset();
  }

  raft_index Last() { return LastOf(group_.member(1)); }
  raft_term Term() { return group_.member(1).get()->current_term; }

  RaftGroup group_;
  std::unique_ptr<Actor> leader_;
  std::unique_ptr<Actor> candidate_;
};

TEST_F(OneMemberTest, AVoteIsGivenWithAllThatWasWritten) {
  leader_->Lead(/*term=*/100);
  // Between two looks.
  ASSERT_TRUE(leader_->Write(leader_->Append(100, 1, 1, 2)).ok());
  ASSERT_TRUE(leader_->Write(leader_->Append(100, 3, 100, 1)).ok());
  EXPECT_EQ(candidate_->AskForVote(candidate_->RequestVote(101, 1, 1)), false);
  EXPECT_EQ(Term(), 101u);
  EXPECT_EQ(Last(), 4u);
  EXPECT_EQ(candidate_->AskForVote(candidate_->RequestVote(102, 4, 100)), true);
}

TEST_F(OneMemberTest, ADeposedLeadersWriteIsRefused) {
  leader_->Lead(/*term=*/100);
  ASSERT_TRUE(leader_->Write(leader_->Append(100, 1, 1, 2)).ok());
  EXPECT_EQ(candidate_->AskForVote(candidate_->RequestVote(101, 3, 100)), true);
  EXPECT_FALSE(leader_->Write(leader_->Append(100, 3, 100, 1)).ok());
  group_.network().RunFor(500 * kNsPerMs);
  EXPECT_EQ(Last(), 3u);
}

TEST_F(OneMemberTest, AnyMessageOfAHigherTermTakesTheWrittenFirst) {
  leader_->Lead(/*term=*/100);
  ASSERT_TRUE(leader_->Write(leader_->Append(100, 1, 1, 2)).ok());
  // A new leader, that knows of the first of them alone.
  wire::Message message = candidate_->Append(101, 2, 100, 1);
  message.set_payload(std::string(10, 'y'));
  candidate_->Say(message);
  ASSERT_TRUE(group_.RunUntil([this] { return Term() == 101; }));
  EXPECT_EQ(Last(), 3u);
  EXPECT_EQ(TermAt(group_.member(1).get()->log, 3), 101u);
  EXPECT_FALSE(leader_->Write(leader_->Append(100, 3, 100, 1)).ok());
}

TEST_F(OneMemberTest, ACandidacyOfItsOwnComesWithAllThatWasWritten) {
  leader_->Lead(/*term=*/100);
  ASSERT_TRUE(leader_->Write(leader_->Append(100, 1, 1, 5)).ok());
  ASSERT_TRUE(group_.RunUntil([this] { return candidate_->asked_for_vote().has_value(); }));
  EXPECT_EQ(candidate_->asked_for_vote()->last_log_index(), 6u);
  EXPECT_FALSE(leader_->Write(leader_->Append(100, 6, 100, 1)).ok());
}

// While it writes, the others have a leader, though it says nothing.
TEST_F(OneMemberTest, WhoWritesLeads) {
  leader_->Lead(/*term=*/100);
  for (raft_index last = 1; last < 21; ++last) {
    ASSERT_TRUE(leader_->Write(leader_->Append(100, last, last == 1 ? 1 : 100, 1)).ok());
    group_.network().RunFor(250 * kNsPerMs);
  }
  EXPECT_EQ(Last(), 21u);
  EXPECT_EQ(Term(), 100u);
  EXPECT_FALSE(candidate_->asked_for_vote().has_value());
}

TEST_F(OneMemberTest, WhatIsNotWholeOrHasNoPredecessorIsNotTaken) {
  leader_->Lead(/*term=*/100);
  ASSERT_TRUE(leader_->Write(leader_->Append(100, 1, 1, 1)).ok());
  ASSERT_TRUE(leader_->Write(leader_->Append(100, 2, 100, 1), /*written=*/70).ok());
  ASSERT_TRUE(leader_->Write(leader_->Append(100, 3, 100, 1)).ok());
  EXPECT_EQ(candidate_->AskForVote(candidate_->RequestVote(101, 2, 100)), true);
  EXPECT_EQ(Last(), 2u);
  EXPECT_EQ(Term(), 101u);
}

TEST_F(OneMemberTest, ARecordWaitsForTheMessageBeforeIt) {
  leader_->Lead(/*term=*/100);
  ASSERT_TRUE(leader_->Write(leader_->Append(100, 3, 100, 1)).ok());
  group_.network().RunFor(300 * kNsPerMs);
  EXPECT_EQ(Last(), 1u);
  wire::Message message = leader_->Append(100, 1, 1, 2);
  message.set_payload(std::string(20, 'y'));
  leader_->Say(message);
  ASSERT_TRUE(group_.RunUntil([this] { return Last() == 4; }));
  // Without it, it is forgotten with the term: the leader had no word that 4 is there.
  ASSERT_TRUE(leader_->Write(leader_->Append(100, 5, 100, 1)).ok());
  EXPECT_EQ(candidate_->AskForVote(candidate_->RequestVote(101, 4, 100)), true);
  EXPECT_EQ(Last(), 4u);
}

TEST_F(OneMemberTest, AMemberThatHasLostItsMemoryVotesWhenALeaderHasMadeUpForIt) {
  leader_->Lead(/*term=*/100);
  ASSERT_TRUE(leader_->Write(leader_->Append(100, 1, 1, 3)).ok());
  leader_->ForgetRing();
  group_.Kill(1);
  ASSERT_TRUE(group_.disk(1).memory_mark);
  ASSERT_EQ(group_.disk(1).entries.size(), 1u) << "the disk has nothing of it";
  group_.Restart(1);
  EXPECT_EQ(candidate_->AskForVote(candidate_->RequestVote(101, 1, 1), 5 * kNsPerSec),
            std::nullopt);
  EXPECT_FALSE(candidate_->asked_for_vote().has_value()) << "nor does it ask";
  leader_->Say(leader_->Append(100, 1, 1, 0));
  ASSERT_TRUE(group_.RunUntil([this] { return leader_->lost() != 0; }));
  // An answer to another process, and to what is not there yet.
  wire::Message message = leader_->Append(100, 1, 1, 3);
  message.set_payload(std::string(30, 'x'));
  message.mutable_remote_writes()->set_log_end(1);
  message.mutable_remote_writes()->set_lost_heard(leader_->lost() + 2);
  leader_->Say(message);
  group_.network().RunFor(100 * kNsPerMs);
  EXPECT_TRUE(group_.member(1).network().recovering());
  message = leader_->Append(100, 4, 100, 0);
  message.mutable_remote_writes()->set_log_end(5);
  message.mutable_remote_writes()->set_lost_heard(leader_->lost());
  leader_->Say(message);
  group_.network().RunFor(100 * kNsPerMs);
  EXPECT_TRUE(group_.member(1).network().recovering());
  message = leader_->Append(100, 4, 100, 1);
  message.set_payload(std::string(10, 'x'));
  message.mutable_remote_writes()->set_log_end(5);
  message.mutable_remote_writes()->set_lost_heard(leader_->lost());
  leader_->Say(message);
  ASSERT_TRUE(group_.RunUntil([this] { return !group_.member(1).network().recovering(); }));
  EXPECT_EQ(candidate_->AskForVote(candidate_->RequestVote(101, 1, 1)), false);
  EXPECT_EQ(candidate_->AskForVote(candidate_->RequestVote(102, 5, 100)), true);
}

// A leader went on to send what comes behind the entries that a follower's memory had lost, and
// took its refusals for old ones: libraft heard that a message had failed as send() returned, of
// which it takes no note, and not by the message's callback.
TEST(RaftRemoteWrites, ALeaderHearsByACallbackThatAMemberHasLostItsMemory) {
  RaftGroup group(/*seed=*/12, {1, 2, 3}, WithRemoteWrites());
  std::vector<std::string> commands;
  CommitUntilAllAreWrittenTo(group, &commands);
  RaftMachine& leader = *group.Leader();
  const raft_id follower = leader.id() == 1 ? 2 : 1;
  group.network().RunFor(kNsPerSec);  // libraft was told of all that was written
  group.Kill(follower);
  const Actor next(&group, follower, leader.id());
  const auto failed = [&leader] { return leader.network().stats().failed; };
  group.network().RunFor(10 * kNsPerSec);  // what was under way to the other process fails
  const uint64_t before = failed();
  wire::Message message = next.Message();
  message.mutable_append_entries_result()->set_term(leader.get()->current_term);
  message.mutable_remote_writes()->set_lost(7);
  next.Say(message);
  ASSERT_TRUE(group.RunUntil([&] { return failed() > before; }));
  group.network().RunFor(2 * kNsPerSec);
  EXPECT_EQ(failed(), before + 1) << "once";
}

// Anybody could take the leader's ring by one request, and have its connection closed.
TEST_F(OneMemberTest, AVoteThatLibraftRefusesForItsLeaderTakesNothingFromThatOne) {
  leader_->Lead(/*term=*/100);
  ASSERT_TRUE(leader_->Write(leader_->Append(100, 1, 1, 2)).ok());
  wire::Message request = candidate_->RequestVote(101, 3, 100);
  request.mutable_request_vote()->set_disrupt_leader(false);
  EXPECT_EQ(candidate_->AskForVote(request), false);
  EXPECT_EQ(Term(), 100u);
  EXPECT_TRUE(leader_->Write(leader_->Append(100, 3, 100, 1)).ok());
}

// As where a card cannot say at once that nothing comes any more. Who is silent is given up late,
// so that it is not that what ends a connection here.
class PinnedMemoryTest : public OneMemberTest {
 protected:
  static SimOptions Late() {
    SimOptions options;
    options.late_placing_ns = 50'000;
    options.lifeline_timeout_ns = 100 * kNsPerSec;
    return options;
  }
  PinnedMemoryTest() : OneMemberTest(Late()) {}

  // Nothing comes from the leader any more, until it thaws: what it has begun to write comes then.
  void FreezeLeader() { group_.network().Cut("actor-3", group_.member(1).node()); }
  void ThawLeader() { group_.network().Heal("actor-3", group_.member(1).node()); }
  uint64_t LeadersClosed() { return group_.member(1).network().stats().rings.leaders_closed; }
  uint64_t Received() { return group_.member(1).network().stats().received; }
};

TEST_F(PinnedMemoryTest, AVoteWaitsUntilTheLeadersSideHasAnswered) {
  leader_->Lead(/*term=*/100);
  ASSERT_TRUE(leader_->Write(leader_->Append(100, 1, 1, 2)).ok());
  const wire::Message request = candidate_->RequestVote(101, 3, 100);
  const uint64_t received = Received();
  EXPECT_EQ(candidate_->AskForVote(request, 250'000), std::nullopt) << "two probes are under way";
  EXPECT_EQ(Term(), 100u);
  EXPECT_EQ(Received(), received) << "libraft has not got it yet";
  EXPECT_EQ(candidate_->AwaitVote(10 * kNsPerMs), true) << "and it is not asked again";
  EXPECT_EQ(Received(), received + 1);
  EXPECT_FALSE(leader_->Write(leader_->Append(100, 3, 100, 1)).ok());
  EXPECT_EQ(Last(), 3u);
  EXPECT_EQ(LeadersClosed(), 0u) << "who answers keeps its connection";
}

// A request to vote was kept, and its sender led without this vote. What was kept then took the
// ring of that leader away, and could close its connection.
TEST_F(PinnedMemoryTest, AVoteThatIsKeptTakesNothingFromALeaderWhoHasComeMeanwhile) {
  leader_->Lead(/*term=*/100);
  ASSERT_TRUE(leader_->Write(leader_->Append(100, 1, 1, 2)).ok());
  // Until there may be another grant.
  for (uint64_t ns = 0; ns <= RaftRings::kPauseNs; ns += 100 * kNsPerMs) {
    leader_->Say(leader_->Append(100, 3, 100, 0));
    group_.network().RunFor(100 * kNsPerMs);
  }
  EXPECT_EQ(candidate_->AskForVote(candidate_->RequestVote(101, 3, 100), 200'000), std::nullopt);
  for (int i = 0; i < 14 && Term() == 100; ++i) {
    candidate_->AskForRing(/*term=*/101, /*last_index=*/3, /*last_term=*/100);
    group_.network().RunFor(50'000);
  }
  EXPECT_EQ(Term(), 101u) << "before the kept request is looked at again";
  candidate_->Lead(/*term=*/101);
  group_.network().RunFor(50 * kNsPerMs);
  EXPECT_TRUE(candidate_->Write(candidate_->Append(101, 3, 100, 1)).ok());
  EXPECT_EQ(LeadersClosed(), 0u);
}

TEST_F(PinnedMemoryTest, AFrozenLeadersConnectionIsClosedAndThenAVoteIsGiven) {
  leader_->Lead(/*term=*/100);
  ASSERT_TRUE(leader_->Write(leader_->Append(100, 1, 1, 2)).ok());
  FreezeLeader();
  std::optional<absl::Status> late;
  leader_->StartWrite(leader_->Append(100, 3, 100, 1), &late);
  group_.network().RunFor(kNsPerMs);
  EXPECT_EQ(candidate_->AskForVote(candidate_->RequestVote(101, 3, 100), 10 * kNsPerMs),
            std::nullopt)
      << "it could still be written to";
  EXPECT_EQ(Term(), 100u);
  EXPECT_EQ(LeadersClosed(), 0u);
  EXPECT_EQ(candidate_->AwaitVote(50 * kNsPerMs), true) << "and it is not asked again";
  EXPECT_EQ(LeadersClosed(), 1u);
  EXPECT_EQ(Last(), 3u);
  // What was written before the vote comes now.
  ThawLeader();
  ASSERT_TRUE(group_.RunUntil([&late] { return late.has_value(); }));
  EXPECT_FALSE(late->ok());
  group_.network().RunFor(500 * kNsPerMs);
  EXPECT_EQ(Last(), 3u);
  EXPECT_EQ(Term(), 101u);
  // They speak to each other again, and it may lead again.
  leader_->ForgetRing();
  leader_->Lead(/*term=*/102);
  ASSERT_TRUE(leader_->Write(leader_->Append(102, 3, 100, 1)).ok());
  EXPECT_EQ(candidate_->AskForVote(candidate_->RequestVote(103, 4, 102)), true);
}

TEST_F(PinnedMemoryTest, AFrozenLeadersConnectionIsClosedAndThenAMemberStandsForElection) {
  leader_->Lead(/*term=*/100);
  ASSERT_TRUE(leader_->Write(leader_->Append(100, 1, 1, 5)).ok());
  FreezeLeader();
  ASSERT_TRUE(
      group_.RunUntil([this] { return candidate_->asked_for_vote().has_value(); }, 10 * kNsPerSec));
  EXPECT_EQ(candidate_->asked_for_vote()->last_log_index(), 6u);
  EXPECT_EQ(LeadersClosed(), 1u);
}

// --- leaders that lie ----------------------------------------------------------------------------

struct Lie {
  const char* name;
  std::function<void(wire::Message* message)> change;
};

const Lie kLies[] = {
    {"AnotherTerm",
     [](wire::Message* message) { message->mutable_append_entries()->set_term(99); }},
    {"AnotherMember", [](wire::Message* message) { message->set_from(2); }},
    {"NoEntries", [](wire::Message* message) { message->clear_append_entries(); }},
    {"AnotherLength",
     [](wire::Message* message) { message->mutable_append_entries()->set_entry_bytes(0, 11); }},
    {"LengthsThatOverflow",
     [](wire::Message* message) {
       message->mutable_append_entries()->set_entry_bytes(0, ~uint64_t{0});
     }},
    {"FewerTerms",
     [](wire::Message* message) { message->mutable_append_entries()->clear_entry_terms(); }},
    {"AChangeOfMembers",
     [](wire::Message* message) {
       message->mutable_append_entries()->set_entry_types(0, RAFT_CHANGE);
     }},
    {"AVote", [](wire::Message* message) { message->mutable_request_vote()->set_term(200); }},
};

class RaftRemoteWritesLiesTest : public OneMemberTest, public testing::WithParamInterface<Lie> {};

TEST_P(RaftRemoteWritesLiesTest, ChangeNothingAndVotesGoOn) {
  leader_->Lead(/*term=*/100);
  ASSERT_TRUE(leader_->Write(leader_->Append(100, 1, 1, 1)).ok());
  wire::Message lie = leader_->Append(100, 2, 100, 1);
  GetParam().change(&lie);
  ASSERT_TRUE(leader_->Write(lie).ok());
  group_.network().RunFor(300 * kNsPerMs);
  EXPECT_EQ(Last(), 2u);
  EXPECT_EQ(Term(), 100u);
  // Messages are as good as before.
  wire::Message message = leader_->Append(100, 2, 100, 1);
  message.set_payload(std::string(10, 'x'));
  leader_->Say(message);
  ASSERT_TRUE(group_.RunUntil([this] { return Last() == 3; }));
  EXPECT_EQ(candidate_->AskForVote(candidate_->RequestVote(101, 3, 100)), true);
}

INSTANTIATE_TEST_SUITE_P(All, RaftRemoteWritesLiesTest, testing::ValuesIn(kLies),
                         [](const auto& lie) { return std::string(lie.param.name); });

}  // namespace
}  // namespace weft::embed::test
