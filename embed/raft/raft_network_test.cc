// libraft over Weft, in a simulated network: elections, logs, snapshots, members that die.
#include "embed/raft/raft_network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "embed/raft/testing/raft_group.h"

namespace weft::embed::test {
namespace {

TEST(RaftNetwork, AGroupElectsALeaderAndAppliesEverywhereInOneOrder) {
  RaftGroup group(/*seed=*/1, {1, 2, 3});
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(group.Commit("command " + std::to_string(i)));
  ASSERT_TRUE(group.AllHave(50));
  for (auto& [id, machine] : group.machines()) {
    EXPECT_EQ(machine->applied(), group.member(1).applied());
    EXPECT_GT(machine->network().stats().received, 0u);
    EXPECT_EQ(machine->network().stats().refused, 0u);
  }
}

TEST(RaftNetwork, EntriesOfEverySizeArriveWhole) {
  RaftGroup group(/*seed=*/2, {1, 2, 3});
  std::vector<std::string> commands;
  // Within the message, as an attachment, by bulk; and the borders between them.
  for (const size_t bytes :
       {size_t{0}, size_t{1}, size_t{4096}, size_t{RaftNetwork::kInlineBytes},
        size_t{RaftNetwork::kInlineBytes} + 1, size_t{200'000}, size_t{RaftNetwork::kLargeBytes},
        size_t{RaftNetwork::kLargeBytes} + 1, size_t{5'000'000}}) {
    std::string command(bytes, '\0');
    for (size_t i = 0; i < bytes; ++i) command[i] = static_cast<char>(i * 31 + bytes);
    commands.push_back(command);
    ASSERT_TRUE(group.Commit(command)) << bytes;
  }
  ASSERT_TRUE(group.AllHave(commands.size()));
  for (auto& [id, machine] : group.machines()) EXPECT_EQ(machine->applied(), commands);
}

// A leader that heard many answers in one turn of its engine made the entries that followed, and
// sent them at the turn's end: its follower, which takes as long for an entry as the leader does,
// had nothing to do meanwhile. Two members made two thirds of the commits of libraft's own TCP.
TEST(RaftNetwork, AnEntryIsUnderWayWhileItsLeaderMakesTheNext) {
  RaftGroup group(/*seed=*/15, {1, 2}, {}, {.keep_trace = true});
  ASSERT_TRUE(group.Commit("before"));
  ASSERT_TRUE(group.AllHave(1));
  RaftMachine& leader = *group.Leader();
  RaftMachine& follower = group.member(leader.id() == 1 ? 2 : 1);
  const std::string way = " " + leader.node() + " > " + follower.node() + ": batch,";
  const auto batches = [&] {
    const std::vector<std::string>& trace = group.network().trace();
    return std::count_if(trace.begin(), trace.end(), [&](const std::string& line) {
      return line.find(way) != std::string::npos;
    });
  };
  const auto before = batches();
  int statuses[3] = {1, 1, 1};
  ASSERT_TRUE(group.network().Node(leader.node()).Post([&] {
    for (int& status : statuses) leader.Propose("a command", &status);
  }));
  ASSERT_TRUE(group.RunUntil([&] { return leader.applied().size() == 4; }));
  EXPECT_GE(batches() - before, 3) << "each left when libraft sent it";
}

TEST(RaftNetwork, ALeaderThatDiesIsReplacedAndCatchesUpWhenItIsBack) {
  RaftGroup group(/*seed=*/3, {1, 2, 3});
  ASSERT_TRUE(group.Commit("before"));
  const raft_id first = group.Leader()->id();
  group.Kill(first);
  ASSERT_TRUE(group.Commit("without it"));
  EXPECT_NE(group.Leader()->id(), first);
  group.Restart(first);
  ASSERT_TRUE(group.Commit("with it"));
  ASSERT_TRUE(group.AllHave(3));
  EXPECT_EQ(group.member(first).applied(),
            (std::vector<std::string>{"before", "without it", "with it"}));
}

TEST(RaftNetwork, AMemberThatWasAwayTooLongGetsASnapshot) {
  RaftGroup group(/*seed=*/4, {1, 2, 3}, {.snapshot_threshold = 16});
  ASSERT_TRUE(group.Commit("first"));
  const raft_id away = group.Leader()->id() == 1 ? 2 : 1;
  group.Kill(away);
  // More than one message holds.
  for (int i = 0; i < 60; ++i) ASSERT_TRUE(group.Commit(std::string(100'000, 'a' + i % 26)));
  group.Restart(away);
  ASSERT_TRUE(group.AllHave(61));
  EXPECT_EQ(group.member(away).restored(), 1);
  EXPECT_GT(group.member(away).network().stats().large_received, 0u);
  EXPECT_EQ(group.member(away).applied(), group.Leader()->applied());
}

TEST(RaftNetwork, MembersJoinArePromotedAndLeave) {
  RaftGroup group(/*seed=*/5, {1});
  ASSERT_TRUE(group.Commit("alone"));
  for (const raft_id id : {2, 3}) {
    group.Make(id).Start();
    int status = 0;
    group.Leader()->Add(id, &status);
    ASSERT_TRUE(group.RunUntil([&] { return status != 1; }));
    ASSERT_EQ(status, 0);
    group.Leader()->Assign(id, RAFT_VOTER, &status);
    ASSERT_TRUE(group.RunUntil([&] { return status != 1; }));
    ASSERT_EQ(status, 0);
  }
  ASSERT_TRUE(group.Commit("three"));
  ASSERT_TRUE(group.AllHave(2));
  group.Leader()->Transfer(2);
  ASSERT_TRUE(group.RunUntil([&] { return group.member(2).leads(); }));
  int status = 0;
  group.member(2).Remove(1, &status);
  ASSERT_TRUE(group.RunUntil([&] { return status != 1; }));
  EXPECT_EQ(status, 0);
  ASSERT_TRUE(group.Commit("two"));
}

TEST(RaftNetwork, AMemberThatIsCutOffDoesNotLead) {
  RaftGroup group(/*seed=*/6, {1, 2, 3});
  ASSERT_TRUE(group.Commit("before"));
  RaftMachine* const old = group.Leader();
  for (auto& [id, machine] : group.machines()) {
    if (machine.get() != old) group.network().Partition(old->node(), machine->node());
  }
  ASSERT_TRUE(group.RunUntil(
      [&] { return group.Leader() != nullptr && group.Leader() != old && !old->leads(); }));
  ASSERT_TRUE(group.Commit("without it"));
  for (auto& [id, machine] : group.machines()) {
    if (machine.get() != old) group.network().Heal(old->node(), machine->node());
  }
  ASSERT_TRUE(group.AllHave(2));
}

// The first address that anybody told for a member was kept: a peer that took member 3's name, and
// named an address of its own, kept the others from ever sending to the real one.
TEST(RaftNetwork, AMemberIsReachedWhereTheConfigurationSaysAndNotWhereAPeerTells) {
  RaftGroup group(/*seed=*/8, {1, 2, 3});
  group.Kill(3);
  {
    ServerOptions options;
    options.peer_id = RaftNetwork::PeerName("raft", 3);
    auto liar = Server::Create(group.network().Node("liar"), options);
    ASSERT_TRUE(liar.ok());
    ASSERT_TRUE((*liar)->Listen("sim:elsewhere").ok());
    wire::Message vote;
    vote.set_from(3);
    vote.set_from_address("sim:elsewhere");
    vote.mutable_request_vote()->set_term(1);
    vote.mutable_request_vote()->set_candidate_id(3);
    for (const raft_id id : {1, 2}) {
      auto channel =
          (*liar)->OpenPeer(RaftNetwork::PeerName("raft", id), RaftMachine::Address(id), {});
      ASSERT_TRUE(channel.ok()) << channel.status();
      const auto received = [&] { return group.member(id).network().stats().received; };
      const uint64_t before = received();
      bool sent = false;
      wire::RaftMember::Stub(**channel).Deliver(vote, {},
                                                [&](const absl::Status&) { sent = true; });
      ASSERT_TRUE(group.RunUntil([&] { return sent && received() > before; }));
    }
  }
  group.Restart(3);
  ASSERT_TRUE(group.Commit("to all three"));
  ASSERT_TRUE(group.AllHave(1));
}

// A member that said it led in the term of another leader ended that one's process by one message:
// libraft asserts that there is no such leader, is built without assertions, and took its list of
// members for a follower's note of who leads. Bytes that are no configuration, in an entry that has
// one, it read beyond their end.
TEST(RaftNetwork, WhoSaysThatHeLeadsInALeadersTermIsRefused) {
  RaftGroup group(/*seed=*/16, {1, 2, 3});
  ASSERT_TRUE(group.Commit("before"));
  RaftMachine& leader = *group.Leader();
  const raft_id liar_id = leader.id() == 3 ? 2 : 3;
  group.Kill(liar_id);
  ServerOptions options;
  options.peer_id = RaftNetwork::PeerName("raft", liar_id);
  auto liar = Server::Create(group.network().Node("liar"), options);
  ASSERT_TRUE(liar.ok());
  ASSERT_TRUE((*liar)->Listen("sim:liar").ok());
  auto channel = (*liar)->OpenPeer(RaftNetwork::PeerName("raft", leader.id()),
                                   RaftMachine::Address(leader.id()), {});
  ASSERT_TRUE(channel.ok()) << channel.status();
  wire::Message message;
  message.set_from(liar_id);
  message.set_from_address(RaftMachine::Address(liar_id));
  const raft_term term = leader.get()->current_term;
  const auto is_refused = [&] {
    const RaftNetworkStats before = leader.network().stats();
    wire::RaftMember::Stub(**channel).Deliver(message, {}, [](const absl::Status&) {});
    return group.RunUntil([&] { return leader.network().stats().refused > before.refused; });
  };
  message.mutable_append_entries()->set_term(term);
  EXPECT_TRUE(is_refused());
  wire::InstallSnapshot* const snapshot = message.mutable_install_snapshot();
  snapshot->set_term(term);
  snapshot->set_last_index(1000);
  snapshot->set_last_term(term);
  wire::Server* const member = snapshot->add_configuration();
  member->set_id(liar_id);
  member->set_address(RaftMachine::Address(liar_id));
  member->set_role(RAFT_VOTER);
  EXPECT_TRUE(is_refused());
  // Of a term to come.
  wire::AppendEntries* const entries = message.mutable_append_entries();
  entries->set_term(term + 1);
  entries->set_prev_log_index(1);
  entries->set_prev_log_term(1);
  entries->add_entry_terms(term + 1);
  entries->add_entry_types(RAFT_CHANGE);
  entries->add_entry_bytes(1);
  message.set_payload("\x01");
  EXPECT_TRUE(is_refused());

  EXPECT_TRUE(leader.leads());
  EXPECT_EQ(leader.get()->current_term, term);
  ASSERT_TRUE(group.Commit("after"));
}

// Every name that a peer took made a channel, which stayed.
TEST(RaftNetwork, PeersThatAreNoMembersAreFew) {
  RaftGroup group(/*seed=*/9, {1});
  ASSERT_TRUE(group.Commit("alone"));
  RaftNetwork& network = group.member(1).network();
  ServerOptions options;
  for (raft_id id = 100; id < 100 + 2 * RaftNetwork::kMaxStrangers; ++id) {
    options.peer_id = RaftNetwork::PeerName("raft", id);
    const std::string address = "sim:stranger-" + std::to_string(id);
    auto stranger = Server::Create(group.network().Node("stranger-" + std::to_string(id)), options);
    ASSERT_TRUE(stranger.ok());
    ASSERT_TRUE((*stranger)->Listen(address).ok());
    auto channel =
        (*stranger)->OpenPeer(RaftNetwork::PeerName("raft", 1), RaftMachine::Address(1), {});
    ASSERT_TRUE(channel.ok()) << channel.status();
    wire::Message vote;
    vote.set_from(id);
    vote.set_from_address(address);
    vote.mutable_request_vote()->set_term(1);
    vote.mutable_request_vote()->set_candidate_id(id);
    const uint64_t before = network.stats().received;
    wire::RaftMember::Stub(**channel).Deliver(vote, {}, [](const absl::Status&) {});
    ASSERT_TRUE(group.RunUntil([&] { return network.stats().received > before; }));
    const bool is_known =
        network.PathTo(id).status().message().find("never sent") == std::string::npos;
    EXPECT_EQ(is_known, id < 100 + RaftNetwork::kMaxStrangers) << id;
  }
  // Nobody was sent anything since: the next Tidy() but one lets them go.
  network.Tidy();
  network.Tidy();
  EXPECT_THAT(std::string(network.PathTo(100).status().message()),
              testing::HasSubstr("never sent"));
}

TEST(RaftNetwork, AMemberThatMovesIsFoundAgain) {
  RaftGroup group(/*seed=*/10, {1, 2, 3});
  ASSERT_TRUE(group.Commit("before"));
  const raft_id leader = group.Leader()->id();
  const raft_id moves = leader == 3 ? 2 : 3;
  int status = 0;
  group.Leader()->Remove(moves, &status);
  ASSERT_TRUE(group.RunUntil([&] { return status != 1; }));
  ASSERT_EQ(status, 0);
  group.Kill(moves);
  group.disk(moves) = {};
  group.Move(moves, "sim:moved");
  group.Make(moves).Start();
  group.Leader()->Add(moves, "sim:moved", &status);
  ASSERT_TRUE(group.RunUntil([&] { return status != 1; }));
  ASSERT_EQ(status, 0);
  group.Leader()->Assign(moves, RAFT_VOTER, &status);
  group.network().RunFor(200'000'000);
  group.Leader()->network().Tidy();
  ASSERT_TRUE(group.RunUntil([&] { return status != 1; }));
  ASSERT_EQ(status, 0);
  ASSERT_TRUE(group.Commit("after"));
  ASSERT_TRUE(group.AllHave(2));
}

// Outside of the engine's turns, as a disk's callback is, the first message to a member made its
// channel at once, for which the engine made turns: they handed libraft a message while it was
// sending one, and it freed its log's entries twice.
TEST(RaftNetwork, SendingMakesNoTurnsOfTheEngine) {
  RaftGroup group(/*seed=*/11, {1, 2, 3});
  ASSERT_TRUE(group.Commit("before"));
  RaftMachine& leader = *group.Leader();
  bool turned = false;
  ASSERT_TRUE(group.network().Node(leader.node()).Post([&turned] { turned = true; }));

  raft_io* const io = leader.get()->io;
  raft_message message = {};
  message.type = RAFT_IO_TIMEOUT_NOW;
  message.server_id = 4;
  message.server_address = "sim:member-4";
  message.timeout_now.term = leader.get()->current_term;
  int ended = 1;
  raft_io_send request = {};
  request.data = &ended;
  ASSERT_EQ(
      io->send(io, &request, &message,
               [](raft_io_send* each, int status) { *static_cast<int*>(each->data) = status; }),
      0);
  EXPECT_FALSE(turned);
  EXPECT_EQ(ended, 1) << "not inside of send()";
  // Nobody is there.
  ASSERT_TRUE(group.RunUntil([&] { return ended != 1; }));
  EXPECT_EQ(ended, RAFT_NOCONNECTION);
  EXPECT_TRUE(turned);
}

TEST(RaftNetwork, ClosingCallsEverythingBack) {
  RaftGroup group(/*seed=*/7, {1, 2, 3});
  ASSERT_TRUE(group.Commit("before"));
  RaftMachine& leader = *group.Leader();
  int status = 0;
  leader.Propose(std::string(3'000'000, 'x'), &status);
  bool closed = false;
  leader.Close(&closed);
  ASSERT_TRUE(group.RunUntil([&] { return closed; }));
  EXPECT_NE(status, 1);
}

// libraft's own disk half calls back once for each thing that ends after it was closed, where
// several end late. dqlite then closed its loop's handles twice, and ended with an assertion.
TEST(RaftNetwork, ADiskHalfThatSaysTwiceThatItIsClosedIsHeardOnce) {
  SimNetwork network(/*seed=*/1);
  MemoryDisk disk;
  MemoryDiskIo io(disk, network.Node("node"), 1);
  io.io()->close = [](raft_io* each, raft_io_close_cb closed) {
    closed(each);
    closed(each);
  };
  RaftNetworkOptions options;
  options.group = "group";
  const auto half = RaftNetwork::Attach(io.io(), network.Node("node"), options);
  ASSERT_TRUE(half.ok()) << half.status();
  static int times = 0;
  io.io()->close(io.io(), [](raft_io*) { ++times; });
  EXPECT_EQ(times, 1);
}

TEST(RaftNetwork, ARaftIoHasOneNetworkHalf) {
  SimNetwork network(/*seed=*/1);
  MemoryDisk disk;
  Engine& engine = network.Node("node");
  MemoryDiskIo io(disk, engine, 1);
  RaftNetworkOptions options;
  options.group = "group";
  auto half = RaftNetwork::Attach(io.io(), engine, options);
  ASSERT_TRUE(half.ok()) << half.status();
  const auto send = io.io()->send;
  const absl::Status second = RaftNetwork::Attach(io.io(), engine, options).status();
  EXPECT_TRUE(absl::IsAlreadyExists(second)) << second;
  EXPECT_EQ(io.io()->send, send) << "it is still the first one's";
  half->reset();
  EXPECT_NE(io.io()->send, send);
  EXPECT_TRUE(RaftNetwork::Attach(io.io(), engine, options).ok());
}

}  // namespace
}  // namespace weft::embed::test
