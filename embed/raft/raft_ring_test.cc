// Entries that are written into other members' memory, in a simulated network: what arrives when
// rings wrap, are full, end and come back, and what peers can do that lie about them.
#include "embed/raft/raft_ring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
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
#include "embed/raft/raft_network.h"
#include "embed/raft/testing/raft_group.h"
#include "weft/channel.h"
#include "weft/memory.h"
#include "weft/remote_memory.h"
#include "weft/server.h"
#include "weft/service.h"
#include "weft/sim.h"

namespace weft::embed::test {
namespace {

constexpr uint64_t kRingBytes = kMinRingBytes;

RaftMachine::Options WithRings(uint64_t ring_bytes = kRingBytes) {
  RaftMachine::Options options;
  options.network.replication = RaftReplication::kRing;
  options.network.ring_bytes = ring_bytes;
  return options;
}

std::string Command(int number, size_t bytes) {
  std::string command = std::to_string(number) + ":";
  while (command.size() < bytes) command += static_cast<char>('a' + command.size() % 26);
  return command;
}

void ExpectNothingRefused(RaftGroup& group) {
  for (auto& [id, machine] : group.machines()) {
    EXPECT_EQ(machine->network().stats().refused, 0u) << "member " << id;
  }
}

void TidyAll(RaftGroup& group) {
  for (auto& [id, machine] : group.machines()) machine->network().Tidy();
}

// Ends when the leader writes into the rings of all others: with `commands`, which grows.
void CommitUntilAllTakeFromRings(RaftGroup& group, std::vector<std::string>* commands) {
  std::map<raft_id, uint64_t> before;
  for (auto& [id, machine] : group.machines()) before[id] = machine->network().stats().rings.taken;
  for (int i = 0; i < 50; ++i) {
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
  FAIL() << "no ring came into use";
}

TEST(RaftRings, EntriesOfEverySizeArriveWholeWhileRingsWrap) {
  RaftGroup group(/*seed=*/1, {1, 2, 3}, WithRings());
  std::vector<std::string> commands;
  CommitUntilAllTakeFromRings(group, &commands);
  for (int i = 0; i < 100; ++i) {
    // The last ones do not fit into half of a ring, and go as messages, attachments, and by bulk.
    const size_t bytes = i < 96 ? 2 + static_cast<size_t>(i) * 20 : size_t{2000} << (3 * (i - 96));
    commands.push_back(Command(i, bytes));
    ASSERT_TRUE(group.Commit(commands.back())) << bytes;
  }
  ASSERT_TRUE(group.AllHave(commands.size()));
  for (auto& [id, machine] : group.machines()) {
    EXPECT_EQ(machine->applied(), commands) << "member " << id;
    if (machine->leads()) continue;
    EXPECT_GT(machine->network().stats().rings.taken, 50u);
  }
  ExpectNothingRefused(group);
  EXPECT_EQ(group.Leader()->network().stats().rings.given_up, 0u);
}

TEST(RaftRings, WhatFindsNoRoomGoesByMessagesInTheSameOrder) {
  RaftGroup group(/*seed=*/2, {1, 2, 3}, WithRings());
  std::vector<std::string> commands;
  CommitUntilAllTakeFromRings(group, &commands);
  std::vector<int> statuses(100, 1);
  for (size_t i = 0; i < statuses.size(); ++i) {
    commands.push_back(Command(static_cast<int>(i), 300));
    group.Leader()->Propose(commands.back(), &statuses[i]);
  }
  ASSERT_TRUE(group.AllHave(commands.size()));
  for (auto& [id, machine] : group.machines()) EXPECT_EQ(machine->applied(), commands);
  for (const int status : statuses) EXPECT_EQ(status, 0);
  const RaftRings::Stats rings = group.Leader()->network().stats().rings;
  EXPECT_GT(rings.no_room, 0u);
  EXPECT_EQ(rings.given_up, 0u) << "it had room again soon";
  ExpectNothingRefused(group);
}

TEST(RaftRings, AMemberThatSaysMessagesGetsMessages) {
  RaftMachine::Options options = WithRings();
  options.without_rings = {3};
  RaftGroup group(/*seed=*/3, {1, 2, 3}, options);
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(group.Commit(Command(i, 100)));
  ASSERT_TRUE(group.AllHave(50));
  EXPECT_EQ(group.member(3).network().stats().rings.taken, 0u);
  EXPECT_EQ(group.member(3).network().stats().rings.written, 0u);
  EXPECT_EQ(group.member(1).applied(), group.member(3).applied());
  ExpectNothingRefused(group);
}

// Of the log that a follower keeps nothing may lie in the ring: it leads later, and others have the
// log from it.
TEST(RaftRings, ALeaderThatHasFollowedSendsWhatItHasTaken) {
  RaftGroup group(/*seed=*/4, {1, 2, 3}, WithRings());
  std::vector<std::string> commands;
  CommitUntilAllTakeFromRings(group, &commands);
  for (int i = 0; i < 100; ++i) {
    commands.push_back(Command(i, 200));
    ASSERT_TRUE(group.Commit(commands.back()));
  }
  ASSERT_TRUE(group.AllHave(commands.size()));
  group.Kill(group.Leader()->id());
  ASSERT_TRUE(group.HasLeader());
  group.Make(4).Start();
  int status = 0;
  group.Leader()->Add(4, &status);
  ASSERT_TRUE(group.RunUntil([&] { return status != 1; }));
  ASSERT_EQ(status, 0);
  group.Leader()->Assign(4, RAFT_VOTER, &status);
  ASSERT_TRUE(group.RunUntil([&] { return status != 1; }));
  ASSERT_EQ(status, 0);
  CommitUntilAllTakeFromRings(group, &commands);
  EXPECT_EQ(group.member(4).applied(), commands);
  EXPECT_EQ(group.member(4).restored(), 0);
}

TEST(RaftRings, AMemberThatIsStartedAgainGetsANewRing) {
  RaftGroup group(/*seed=*/5, {1, 2, 3}, WithRings());
  std::vector<std::string> commands;
  CommitUntilAllTakeFromRings(group, &commands);
  for (int round = 0; round < 3; ++round) {
    const raft_id follower = group.Leader()->id() == 1 ? 2 : 1;
    group.Kill(follower);
    ASSERT_TRUE(group.Commit("without it"));
    commands.emplace_back("without it");
    group.Restart(follower);
    ASSERT_TRUE(group.AllHave(commands.size()));
    CommitUntilAllTakeFromRings(group, &commands);
  }
  for (auto& [id, machine] : group.machines()) EXPECT_EQ(machine->applied(), commands);
}

TEST(RaftRings, LeadersFollowOneAnother) {
  RaftGroup group(/*seed=*/6, {1, 2, 3}, WithRings());
  std::vector<std::string> commands;
  CommitUntilAllTakeFromRings(group, &commands);
  for (int round = 0; round < 3; ++round) {
    const raft_id leader = group.Leader()->id();
    group.Kill(leader);
    ASSERT_TRUE(group.Commit("without it"));
    commands.emplace_back("without it");
    group.Restart(leader);
    ASSERT_TRUE(group.AllHave(commands.size()));
    CommitUntilAllTakeFromRings(group, &commands);
    const raft_id other = group.Leader()->id() == 1 ? 2 : 1;
    group.Leader()->Transfer(other);
    ASSERT_TRUE(group.RunUntil([&] { return group.member(other).leads(); }));
    CommitUntilAllTakeFromRings(group, &commands);
  }
  for (auto& [id, machine] : group.machines()) EXPECT_EQ(machine->applied(), commands);
}

TEST(RaftRings, AMemberThatWasCutOffComesBack) {
  RaftGroup group(/*seed=*/7, {1, 2, 3}, WithRings());
  std::vector<std::string> commands;
  CommitUntilAllTakeFromRings(group, &commands);
  RaftMachine& leader = *group.Leader();
  RaftMachine& away = group.member(leader.id() == 1 ? 2 : 1);
  for (auto& [id, machine] : group.machines()) {
    if (machine.get() != &away) group.network().Partition(away.node(), machine->node());
  }
  for (int i = 0; i < 100; ++i) {
    commands.push_back(Command(i, 300));
    ASSERT_TRUE(group.Commit(commands.back()));
    if (i % 10 == 0) group.network().RunFor(500 * kNsPerMs);
  }
  for (auto& [id, machine] : group.machines()) {
    if (machine.get() != &away) group.network().Heal(away.node(), machine->node());
  }
  ASSERT_TRUE(group.AllHave(commands.size()));
  CommitUntilAllTakeFromRings(group, &commands);
  for (auto& [id, machine] : group.machines()) EXPECT_EQ(machine->applied(), commands);
}

TEST(RaftRings, ClosingCallsEverythingBack) {
  RaftGroup group(/*seed=*/8, {1, 2, 3}, WithRings());
  std::vector<std::string> commands;
  CommitUntilAllTakeFromRings(group, &commands);
  RaftMachine& leader = *group.Leader();
  int status = 0;
  leader.Propose(Command(0, 1000), &status);
  bool closed = false;
  leader.Close(&closed);
  ASSERT_TRUE(group.RunUntil([&] { return closed; }));
  EXPECT_NE(status, 1);
}

TEST(RaftRings, ARingHasASize) {
  RaftMachine::Options options = WithRings(kMinRingBytes + 1);
  SimNetwork network(/*seed=*/1);
  MemoryDisk disk;
  MemoryDiskIo io(disk, network.Node("node"), 1);
  const auto half = RaftNetwork::Attach(io.io(), network.Node("node"), options.network);
  EXPECT_THAT(std::string(half.status().message()), testing::HasSubstr("multiple of 16"));
}

// --- what a leader sends by itself ---------------------------------------------------------------

// Of an earlier term: libraft takes nothing of it. Lives until it has been called back.
class Sent {
 public:
  Sent(RaftMachine* from, raft_id to, size_t entries) : address_(RaftMachine::Address(to)) {
    static char byte = 'x';
    raft_entry entry = {};
    entry.term = 1;
    entry.type = RAFT_COMMAND;
    entry.buf = {&byte, 1};
    entries_.assign(entries, entry);
    message_.type = RAFT_IO_APPEND_ENTRIES;
    message_.server_id = to;
    message_.server_address = address_.c_str();
    message_.append_entries = {1, 1, 1, 0, entries_.data(), static_cast<unsigned>(entries)};
    request_.data = this;
    raft_io* const io = from->get()->io;
    code_ = io->send(io, &request_, &message_, [](raft_io_send* request, int status) {
      static_cast<Sent*>(request->data)->status_ = status;
    });
  }
  Sent(const Sent&) = delete;
  Sent& operator=(const Sent&) = delete;

  int code() const { return code_; }                     // of send() itself
  std::optional<int> status() const { return status_; }  // nullopt: not called back

 private:
  const std::string address_;
  std::vector<raft_entry> entries_;
  raft_message message_ = {};
  raft_io_send request_ = {};
  int code_ = 0;
  std::optional<int> status_;
};

TEST(RaftRings, AMessageOfManySmallEntriesIsOvertakenAndItsRingGoesOn) {
  RaftGroup group(/*seed=*/14, {1, 2, 3}, WithRings(/*ring_bytes=*/1 << 20));
  std::vector<std::string> commands;
  CommitUntilAllTakeFromRings(group, &commands);
  RaftMachine& leader = *group.Leader();
  RaftMachine& follower = group.member(leader.id() == 1 ? 2 : 1);
  const RaftNetworkStats before = follower.network().stats();
  Sent many(&leader, follower.id(), 40'000);
  Sent one(&leader, follower.id(), 1);
  ASSERT_EQ(many.code(), 0);
  ASSERT_EQ(one.code(), 0);
  ASSERT_TRUE(group.RunUntil([&] {
    return many.status().has_value() && one.status().has_value() &&
           follower.network().stats().received >= before.received + 2;
  }));
  EXPECT_EQ(*many.status(), 0);
  EXPECT_EQ(*one.status(), 0);
  group.network().RunFor(100 * kNsPerMs);
  EXPECT_GT(follower.network().stats().rings.taken, before.rings.taken);
  ExpectNothingRefused(group);
  for (auto& [id, machine] : group.machines()) {
    EXPECT_EQ(machine->network().stats().rings.given_up, 0u) << "member " << id;
  }
}

// libraft also sends outside of callbacks of the engine, when its disk has written. A turn would
// hand it a message while it is on the stack; and what goes by a ring made one, for the look at
// whom the ring belongs to, or else waited for one.
TEST(RaftRings, WhatIsSentOutsideOfCallbacksMakesNoTurnOfTheEngine) {
  for (const RaftReplication replication :
       {RaftReplication::kMessages, RaftReplication::kRing, RaftReplication::kRemoteWrites}) {
    SCOPED_TRACE(static_cast<int>(replication));
    RaftMachine::Options options = WithRings();
    options.network.replication = replication;
    RaftGroup group(/*seed=*/17, {1, 2, 3}, options);
    std::vector<std::string> commands;
    if (replication == RaftReplication::kMessages) {
      ASSERT_TRUE(group.Commit("before"));
    } else {
      CommitUntilAllTakeFromRings(group, &commands);
    }
    group.network().RunFor(10 * kNsPerMs);  // nothing is under way
    RaftMachine& leader = *group.Leader();
    RaftMachine& follower = group.member(leader.id() == 1 ? 2 : 1);
    int ran = 0;
    ASSERT_TRUE(group.network().Node(leader.node()).Post([&ran] { ++ran; }));
    const Sent sent(&leader, follower.id(), 1);
    EXPECT_EQ(ran, 0);
    EXPECT_EQ(sent.code(), 0);
    EXPECT_FALSE(sent.status().has_value()) << "not inside of send()";
    ASSERT_TRUE(group.RunUntil([&] { return sent.status().has_value(); }));
    EXPECT_EQ(sent.status(), 0);
  }
}

TEST(RaftRings, AMessageInARingNeedsNoRoomInTheEnginesInbox) {
  RaftGroup group(/*seed=*/15, {1, 2, 3}, WithRings());
  std::vector<std::string> commands;
  CommitUntilAllTakeFromRings(group, &commands);
  group.network().RunFor(10 * kNsPerMs);
  RaftMachine& leader = *group.Leader();
  const raft_id follower = leader.id() == 1 ? 2 : 1;
  const RaftRings::Stats before = leader.network().stats().rings;
  Engine& engine = group.network().Node(leader.node());
  int ran = 0;
  while (engine.Post([&ran] { ++ran; })) {
  }
  const Sent sent(&leader, follower, 1);
  EXPECT_EQ(ran, 0);
  EXPECT_EQ(sent.code(), 0);
  EXPECT_EQ(leader.network().stats().rings.written, before.written + 1);
  ASSERT_TRUE(group.RunUntil([&] { return sent.status().has_value(); }));
  EXPECT_EQ(sent.status(), 0);
  CommitUntilAllTakeFromRings(group, &commands);
  for (auto& [id, machine] : group.machines()) EXPECT_EQ(machine->applied(), commands);
  EXPECT_EQ(leader.network().stats().rings.given_up, before.given_up);
}

// --- the rings of one member, alone --------------------------------------------------------------

// Those of member 1, and what member 2 says to it.
class RingsOfOneTest : public testing::Test {
 protected:
  RingsOfOneTest() : rings_(std::make_unique<RaftRings>(network_.Node("member-1"), kRingBytes)) {
    auto server = Server::Create(network_.Node("member-2"));
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    EXPECT_TRUE(server_->Listen("sim:member-2").ok());
    auto channel = Channel::Open(network_.Node("member-1"), "sim:member-2");
    EXPECT_TRUE(channel.ok()) << channel.status();
    channel_ = *std::move(channel);
    auto memory =
        ExportedMemory::Allocate(network_.Node("member-2"), 2 * kRingBytes, {.rights = kMayWrite});
    EXPECT_TRUE(memory.ok()) << memory.status();
    larger_ = *std::move(memory);
    memory = ExportedMemory::Allocate(network_.Node("member-2"), kRingBytes, {.rights = kMayWrite});
    EXPECT_TRUE(memory.ok()) << memory.status();
    memory_ = *std::move(memory);
  }

  // Member 1 asks, as far as it wants a ring; member 2 offers one. More than kPauseNs later.
  void Offer(uint64_t number) { Offer(number, *memory_); }
  void Offer(uint64_t number, ExportedMemory& memory) {
    network_.RunFor(RaftRings::kPauseNs + kNsPerMs);
    rings_->Tidy();
    wire::Message question;
    rings_->Tell(2, /*wants=*/true, &question);
    wire::Message answer;
    answer.set_from(2);
    answer.mutable_ring()->mutable_offer()->set_number(number);
    memory.handle(answer.mutable_ring()->mutable_offer()->mutable_memory());
    EXPECT_TRUE(rings_->Hear(answer, /*incarnation=*/0, channel_.get(), /*is_member=*/true).ok());
  }
  // A message with a place, if there is one for it.
  wire::Message Reserve() {
    static char bytes[] = "0123456789";
    raft_entry entry = {};
    entry.type = RAFT_COMMAND;
    entry.buf = {bytes, 10};
    raft_message message = {};
    message.type = RAFT_IO_APPEND_ENTRIES;
    message.append_entries = {1, 1, 1, 0, &entry, 1};
    wire::Message encoded;
    const bool reserved = rings_->Reserve(2, message, 10, &encoded);
    EXPECT_EQ(reserved, encoded.ring().has_place());
    return encoded;
  }
  // What member 1 answers to a message of member 2 that would have a ring; 0: it offers none.
  uint64_t Want(uint64_t incarnation) {
    wire::Message question;
    question.set_from(2);
    question.mutable_ring()->set_wanted(true);
    EXPECT_TRUE(rings_->Hear(question, incarnation, channel_.get(), /*is_member=*/true).ok());
    wire::Message answer;
    rings_->Tell(2, /*wants=*/false, &answer);
    return answer.ring().offer().number();
  }

  SimNetwork network_{/*seed=*/16};
  std::unique_ptr<Server> server_;
  std::unique_ptr<ExportedMemory> memory_;
  std::unique_ptr<ExportedMemory> larger_;
  std::unique_ptr<Channel> channel_;
  std::unique_ptr<RaftRings> rings_;  // goes first
};

TEST_F(RingsOfOneTest, ARingLargerThanItsOwnIsNotUsed) {
  Offer(1, *larger_);
  EXPECT_FALSE(Reserve().ring().has_place());
  Offer(2);
  EXPECT_TRUE(Reserve().ring().has_place());
}

TEST_F(RingsOfOneTest, APeerThatAnswersNoWriteHasTwoRingsAndHoldsNobodyUp) {
  Offer(1);
  wire::Message message = Reserve();
  ASSERT_TRUE(rings_->Write(2, *channel_, message).ok());
  network_.RunFor(100 * kNsPerMs);
  ASSERT_EQ(rings_->stats().writing, 0u) << "it has answered so far";
  network_.StopAnswering("member-2");
  for (uint64_t number = 2; number <= 3; ++number) {
    message = Reserve();
    ASSERT_TRUE(message.ring().has_place()) << number;
    ASSERT_TRUE(rings_->Write(2, *channel_, message).ok());
    Offer(number);  // this ends the ring before it
    Offer(number);
  }
  EXPECT_EQ(rings_->stats().writing, RaftRings::kMaxGivenUp);
  EXPECT_FALSE(Reserve().ring().has_place()) << "two that cannot go are enough";
  // Their deadlines pass, and then the connection's patience.
  for (int i = 0; i < 100 && !rings_->Forget(2, *channel_); ++i) {
    network_.RunFor(100 * kNsPerMs);
  }
  EXPECT_EQ(rings_->stats().writing, 0u);
  EXPECT_TRUE(rings_->Forget(2, *channel_));
  Offer(4);
  message = Reserve();
  ASSERT_TRUE(message.ring().has_place());
  ASSERT_TRUE(rings_->Write(2, *channel_, message).ok());
  network_.RunFor(100 * kNsPerMs);
  EXPECT_EQ(rings_->stats().writing, 1u);
  rings_.reset();  // comes back
}

TEST_F(RingsOfOneTest, WhatWasReservedInAnotherRingOfTheSameNumberIsNotSent) {
  Offer(1);
  const wire::Message early = Reserve();
  ASSERT_TRUE(early.ring().has_place());
  Offer(2);  // ends the first one
  Offer(2);
  ASSERT_EQ(Reserve().ring().place().number(), 2u);
  Offer(1);
  Offer(1);
  EXPECT_TRUE(absl::IsUnavailable(rings_->Write(2, *channel_, early)));
  const wire::Message late = Reserve();
  ASSERT_EQ(late.ring().place().number(), 1u);
  EXPECT_TRUE(rings_->Write(2, *channel_, late).ok());
  EXPECT_TRUE(absl::IsUnavailable(rings_->Write(2, *channel_, early))) << "it has the same place";
}

TEST_F(RingsOfOneTest, APeerThatWasStartedAgainIsNotOfferedWhatItHadBefore) {
  const uint64_t first = Want(/*incarnation=*/7);
  ASSERT_NE(first, 0u);
  EXPECT_EQ(Want(7), first) << "nothing has come in it";
  EXPECT_EQ(Want(8), 0u) << "one a second";
  network_.RunFor(RaftRings::kPauseNs + kNsPerMs);
  const uint64_t second = Want(8);
  EXPECT_NE(second, 0u);
  EXPECT_NE(second, first);
  EXPECT_EQ(Want(8), second);
}

// --- peers that lie ------------------------------------------------------------------------------

// Says that it is member 3, and writes into member 1's ring. Its messages are of a term that is
// over: libraft takes nothing of them.
class Liar final : public wire::RaftMember::Service {
 public:
  explicit Liar(RaftGroup* group, raft_id id = 3) : group_(*group), id_(id) {
    ServerOptions options;
    options.peer_id = RaftNetwork::PeerName("raft", id);
    auto server = Server::Create(group_.network().Node("liar"), options);
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    EXPECT_TRUE(server_->AddService(this).ok());
    EXPECT_TRUE(server_->Listen(RaftMachine::Address(id)).ok());
    auto channel = server_->OpenPeer(RaftNetwork::PeerName("raft", 1), RaftMachine::Address(1), {});
    EXPECT_TRUE(channel.ok()) << channel.status();
    channel_ = *std::move(channel);
  }

  RaftNetwork& victim() { return group_.member(1).network(); }

  wire::Message Append(uint64_t payload_bytes) const {
    wire::Message message;
    message.set_from(id_);
    message.set_from_address(RaftMachine::Address(id_));
    wire::AppendEntries* const entries = message.mutable_append_entries();
    entries->set_term(1);
    entries->set_prev_log_index(1000);
    entries->set_prev_log_term(1);
    if (payload_bytes == 0) return message;
    entries->add_entry_terms(1);
    entries->add_entry_types(RAFT_COMMAND);
    entries->add_entry_bytes(payload_bytes);
    return message;
  }

  // Returns when it was handed to libraft, true, or refused.
  bool Send(const wire::Message& message) {
    const RaftNetworkStats before = victim().stats();
    wire::RaftMember::Stub(*channel_).Deliver(message, {}, [](const absl::Status&) {});
    EXPECT_TRUE(group_.RunUntil([&] {
      const RaftNetworkStats now = victim().stats();
      return now.received + now.refused > before.received + before.refused &&
             now.rings.taken + now.refused >= before.rings.taken + before.refused;
    }));
    return victim().stats().refused == before.refused;
  }

  // A ring of its own that nobody has used yet.
  void AskForARing() {
    memory_.reset();
    offer_.reset();
    for (int i = 0; i < 50 && !offer_.has_value(); ++i) {
      wire::Message message = Append(0);
      message.mutable_ring()->set_wanted(true);
      message.mutable_ring()->set_last(last_);
      wire::RaftMember::Stub(*channel_).Deliver(message, {}, [](const absl::Status&) {});
      group_.network().RunFor(100 * kNsPerMs);
      victim().Tidy();
    }
    ASSERT_TRUE(offer_.has_value());
    last_ = offer_->number();
    auto memory = RemoteMemory::Open(*channel_, offer_->memory());
    ASSERT_TRUE(memory.ok()) << memory.status();
    memory_ = *std::move(memory);
  }
  bool was_offered() const { return offer_.has_value(); }

  // Writes what a record has at `position`, all of it or its first `written` bytes; returns its
  // CRC.
  uint32_t Write(uint64_t position, uint64_t payload_bytes, uint64_t written = ~uint64_t{0}) {
    auto buffer = channel_->AllocateBuffer(16 + payload_bytes);
    EXPECT_TRUE(buffer.ok());
    const MutableByteSpan bytes = (*buffer)->bytes();
    StoreLe64(bytes.data(), offer_->number());
    StoreLe64(bytes.data() + 8, position);
    for (uint64_t i = 0; i < payload_bytes; ++i) {
      bytes[16 + i] = static_cast<std::byte>(position + 7 * i + 1);
    }
    const RemotePiece piece{position % kRingBytes,
                            (*buffer)->slice(0, std::min<uint64_t>(written, bytes.size()))};
    EXPECT_TRUE(memory_->WriteAcknowledged({&piece, 1}).ok());
    return Crc32c(bytes);
  }
  wire::Message AppendAt(uint64_t position, uint64_t payload_bytes, uint32_t crc) const {
    wire::Message message = Append(payload_bytes);
    wire::Ring::Place* const place = message.mutable_ring()->mutable_place();
    place->set_number(offer_->number());
    place->set_position(position);
    place->set_crc32c(crc);
    return message;
  }
  bool SendAt(uint64_t position, uint64_t payload_bytes) {
    const uint32_t crc = Write(position, payload_bytes);
    return Send(AppendAt(position, payload_bytes, crc));
  }

 private:
  absl::Status Deliver(ServerContext&, const wire::Message& message) override {
    if (message.ring().has_offer()) offer_ = message.ring().offer();
    return absl::OkStatus();
  }

  RaftGroup& group_;
  const raft_id id_;
  uint64_t last_ = 0;
  std::optional<wire::Ring::Offer> offer_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<Channel> channel_;
  std::unique_ptr<RemoteMemory> memory_;  // goes first
};

struct Lie {
  const char* name;
  // Behind a good record of 100 bytes: 128 of the ring are taken. Returns the message.
  std::function<wire::Message(Liar& liar)> tell;
};

const Lie kLies[] = {
    {"NotAligned", [](Liar& liar) { return liar.AppendAt(129, 100, 0); }},
    {"MoreThanARingAhead",
     [](Liar& liar) {
       return liar.AppendAt(128 + kRingBytes + 16, 100, liar.Write(kRingBytes + 144, 100));
     }},
    {"BehindTheEnd", [](Liar& liar) { return liar.AppendAt(kRingBytes - 32, 100, 0); }},
    {"PositionThatOverflows", [](Liar& liar) { return liar.AppendAt(~uint64_t{15}, 100, 0); }},
    {"LongerThanHalfOfTheRing",
     [](Liar& liar) {
       return liar.AppendAt(128, kRingBytes / 2, liar.Write(128, kRingBytes / 2));
     }},
    {"LongerThanTheRing", [](Liar& liar) { return liar.AppendAt(128, kRingBytes, 0); }},
    {"LengthThatOverflows", [](Liar& liar) { return liar.AppendAt(128, ~uint64_t{0} >> 2, 0); }},
    {"NeverWritten", [](Liar& liar) { return liar.AppendAt(128, 100, 12345); }},
    {"AnOlderRecordsBytes",
     [](Liar& liar) {
       const uint32_t crc = liar.Write(kRingBytes + 128, 100);
       return liar.AppendAt(128, 100, crc);
     }},
    {"AnotherChecksum",
     [](Liar& liar) { return liar.AppendAt(128, 100, liar.Write(128, 100) + 1); }},
    {"HalfWritten", [](Liar& liar) { return liar.AppendAt(128, 100, liar.Write(128, 100, 60)); }},
};

class RaftRingLiesTest : public testing::TestWithParam<Lie> {};

TEST_P(RaftRingLiesTest, EndsItsRingAndNothingElse) {
  RaftGroup group(/*seed=*/9, {1, 2, 3}, WithRings());
  std::vector<std::string> commands;
  CommitUntilAllTakeFromRings(group, &commands);
  group.Kill(3);
  ASSERT_TRUE(group.HasLeader());
  {
    Liar liar(&group);
    liar.AskForARing();
    ASSERT_TRUE(liar.SendAt(0, 100));
    const uint64_t given_up = liar.victim().stats().rings.given_up;
    EXPECT_FALSE(liar.Send(GetParam().tell(liar)));
    EXPECT_EQ(liar.victim().stats().rings.given_up, given_up + 1);
    EXPECT_FALSE(liar.Send(liar.AppendAt(128, 100, 0))) << "of a ring that is over";
    EXPECT_TRUE(liar.Send(liar.Append(0))) << "messages are as good as before";
    // It may have another one.
    liar.AskForARing();
    EXPECT_TRUE(liar.SendAt(0, 100));
  }
  group.Restart(3);
  ASSERT_TRUE(group.AllHave(commands.size()));
  CommitUntilAllTakeFromRings(group, &commands);
  for (auto& [id, machine] : group.machines()) EXPECT_EQ(machine->applied(), commands);
}

INSTANTIATE_TEST_SUITE_P(All, RaftRingLiesTest, testing::ValuesIn(kLies),
                         [](const auto& lie) { return std::string(lie.param.name); });

// As a message that was still on its way.
TEST(RaftRings, ARecordOfAnotherRingIsDroppedAndTheRingGoesOn) {
  RaftGroup group(/*seed=*/10, {1, 2, 3}, WithRings());
  ASSERT_TRUE(group.Commit("before"));
  group.Kill(3);
  ASSERT_TRUE(group.HasLeader());
  Liar liar(&group);
  liar.AskForARing();
  wire::Message late = liar.AppendAt(0, 100, liar.Write(0, 100));
  late.mutable_ring()->mutable_place()->set_number(late.ring().place().number() + 2);
  EXPECT_FALSE(liar.Send(late));
  EXPECT_TRUE(liar.SendAt(0, 100));
  // To the end, and round.
  for (uint64_t position = 128; position < 5 * kRingBytes; position += 2048) {
    const uint64_t aligned = (position + 2047) / 2048 * 2048;
    EXPECT_TRUE(liar.SendAt(aligned, 2048 - 16)) << aligned;
  }
}

TEST(RaftRings, ARecordWhoseMessageWasOvertakenIsDroppedAndTheRingGoesOn) {
  RaftGroup group(/*seed=*/13, {1, 2, 3}, WithRings());
  ASSERT_TRUE(group.Commit("before"));
  group.Kill(3);
  ASSERT_TRUE(group.HasLeader());
  Liar liar(&group);
  liar.AskForARing();
  const uint64_t given_up = liar.victim().stats().rings.given_up;
  const wire::Message overtaken = liar.AppendAt(0, 100, liar.Write(0, 100));
  ASSERT_TRUE(liar.SendAt(128, 100));
  EXPECT_FALSE(liar.Send(overtaken));
  EXPECT_TRUE(liar.SendAt(256, 100));
  EXPECT_EQ(liar.victim().stats().rings.given_up, given_up);
}

TEST(RaftRings, APeerThatIsNoMemberGetsNone) {
  RaftGroup group(/*seed=*/11, {1, 2, 3}, WithRings());
  ASSERT_TRUE(group.Commit("before"));
  Liar liar(&group, /*id=*/100);
  const uint64_t offered = liar.victim().stats().rings.offered;
  wire::Message message = liar.Append(0);
  message.mutable_ring()->set_wanted(true);
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(liar.Send(message));
    group.network().RunFor(500 * kNsPerMs);
  }
  EXPECT_FALSE(liar.was_offered());
  EXPECT_EQ(liar.victim().stats().rings.offered, offered);
}

TEST(RaftRings, WhoAsksForOneAfterTheOtherGetsOneASecond) {
  RaftGroup group(/*seed=*/12, {1, 2, 3}, WithRings());
  ASSERT_TRUE(group.Commit("before"));
  group.Kill(3);
  ASSERT_TRUE(group.HasLeader());
  Liar liar(&group);
  liar.AskForARing();
  const uint64_t offered = liar.victim().stats().rings.offered;
  for (int i = 0; i < 40; ++i) {
    wire::Message message = liar.Append(0);
    message.mutable_ring()->set_wanted(true);
    message.mutable_ring()->set_last(~uint64_t{0});
    liar.Send(liar.AppendAt(0, 100, 0));  // which ends the ring
    liar.Send(message);
    group.network().RunFor(50 * kNsPerMs);
    liar.victim().Tidy();
  }
  EXPECT_LE(liar.victim().stats().rings.offered, offered + 3);
}

}  // namespace
}  // namespace weft::embed::test
