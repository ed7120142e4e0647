// libraft's messages on the wire: what is sent is what arrives, and what no member sends is
// refused.
#include "embed/raft/raft_wire.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

namespace weft::embed {
namespace {

// An AppendEntries of these commands.
class Entries {
 public:
  explicit Entries(std::vector<std::string> commands) : commands_(std::move(commands)) {
    for (std::string& command : commands_) {
      entries_.push_back({7, RAFT_COMMAND, {command.data(), command.size()}, nullptr});
    }
    message_.type = RAFT_IO_APPEND_ENTRIES;
    message_.append_entries = {9, 5, 4, 3, entries_.data(), static_cast<unsigned>(entries_.size())};
  }
  const raft_message& message() const { return message_; }

 private:
  std::vector<std::string> commands_;
  std::vector<raft_entry> entries_;
  raft_message message_ = {};
};

wire::Message Encoded(const raft_message& message) {
  wire::Message encoded;
  EXPECT_TRUE(EncodeRaftMessage(message, 2, "10.0.0.2:9001", &encoded).ok());
  return encoded;
}

absl::Status Decode(const wire::Message& encoded) { return ReceivedMessage().Decode(encoded); }

TEST(RaftWire, EntriesArriveWithTheirBytes) {
  const Entries sent({"one", "", std::string(100'000, 'x')});
  const wire::Message encoded = Encoded(sent.message());
  ReceivedMessage received;
  ASSERT_TRUE(received.Decode(encoded).ok());
  ASSERT_EQ(received.payload_bytes(), PayloadBytes(sent.message()));
  CopyPayload(sent.message(), received.payload());
  EXPECT_EQ(std::string(received.payload(), received.payload_bytes()),
            std::string(GatherPayload(sent.message())));

  raft_message* const message = received.Release();
  EXPECT_EQ(message->server_id, 2u);
  EXPECT_STREQ(message->server_address, "10.0.0.2:9001");
  const raft_append_entries& entries = message->append_entries;
  EXPECT_EQ(entries.term, 9u);
  EXPECT_EQ(entries.prev_log_index, 5u);
  EXPECT_EQ(entries.prev_log_term, 4u);
  EXPECT_EQ(entries.leader_commit, 3u);
  ASSERT_EQ(entries.n_entries, 3u);
  EXPECT_EQ(entries.entries[0].term, 7u);
  EXPECT_EQ(std::string(static_cast<char*>(entries.entries[0].buf.base), 3), "one");
  EXPECT_EQ(entries.entries[1].buf.len, 0u);
  EXPECT_EQ(entries.entries[2].buf.len, 100'000u);
  raft_free(entries.entries[0].batch);
  raft_free(entries.entries);
}

// libraft frees a batch by raft_free(): so it is not the memory in which the entries lie.
TEST(RaftWire, EntriesMayStayWhereTheyLie) {
  const Entries sent({"one", "", std::string(1000, 'x')});
  const wire::Message encoded = Encoded(sent.message());
  std::string place(PayloadBytes(sent.message()), '\0');
  CopyPayload(sent.message(), place.data());
  ReceivedMessage received;
  ASSERT_TRUE(received.Decode(encoded, place.data()).ok());
  const raft_append_entries& entries = received.Release()->append_entries;
  ASSERT_EQ(entries.n_entries, 3u);
  EXPECT_EQ(entries.entries[0].buf.base, place.data());
  EXPECT_EQ(entries.entries[1].buf.len, 0u);
  EXPECT_EQ(entries.entries[2].buf.base, place.data() + 3);
  for (unsigned i = 0; i < 3; ++i) EXPECT_EQ(entries.entries[i].batch, entries.entries[0].batch);
  raft_free(entries.entries[0].batch);
  raft_free(entries.entries);
  // What is not released frees no more than it has made.
  EXPECT_TRUE(ReceivedMessage().Decode(encoded, place.data()).ok());
}

TEST(RaftWire, EveryKindComesBackAsItWas) {
  raft_message sent = {};
  sent.type = RAFT_IO_REQUEST_VOTE;
  sent.request_vote = {8, 2, 6, 5, true, true};
  ReceivedMessage vote;
  ASSERT_TRUE(vote.Decode(Encoded(sent)).ok());
  EXPECT_EQ(std::memcmp(&vote.Release()->request_vote.term, &sent.request_vote.term,
                        4 * sizeof(raft_term)),
            0);

  for (const raft_tribool pre_vote :
       {raft_tribool_unknown, raft_tribool_true, raft_tribool_false}) {
    sent = {};
    sent.type = RAFT_IO_REQUEST_VOTE_RESULT;
    sent.request_vote_result = {8, true, pre_vote};
    ReceivedMessage result;
    ASSERT_TRUE(result.Decode(Encoded(sent)).ok());
    const raft_request_vote_result& came = result.Release()->request_vote_result;
    EXPECT_TRUE(came.term == 8 && came.vote_granted && came.pre_vote == pre_vote);
  }

  sent = {};
  sent.type = RAFT_IO_APPEND_ENTRIES_RESULT;
  sent.append_entries_result = {8, 7, 6};
  ReceivedMessage result;
  ASSERT_TRUE(result.Decode(Encoded(sent)).ok());
  EXPECT_EQ(result.Release()->append_entries_result.rejected, 7u);

  sent = {};
  sent.type = RAFT_IO_TIMEOUT_NOW;
  sent.timeout_now = {8, 7, 6};
  ReceivedMessage now;
  ASSERT_TRUE(now.Decode(Encoded(sent)).ok());
  EXPECT_EQ(now.Release()->timeout_now.last_log_term, 6u);
}

TEST(RaftWire, ASnapshotComesWithItsConfiguration) {
  std::string data = "the state";
  raft_message sent = {};
  sent.type = RAFT_IO_INSTALL_SNAPSHOT;
  raft_configuration_init(&sent.install_snapshot.conf);
  raft_configuration_add(&sent.install_snapshot.conf, 1, "a:1", RAFT_VOTER);
  raft_configuration_add(&sent.install_snapshot.conf, 2, "b:2", RAFT_STANDBY);
  sent.install_snapshot.last_index = 40;
  sent.install_snapshot.data = {data.data(), data.size()};
  const wire::Message encoded = Encoded(sent);
  raft_configuration_close(&sent.install_snapshot.conf);

  ReceivedMessage received;
  ASSERT_TRUE(received.Decode(encoded).ok());
  EXPECT_EQ(received.payload_bytes(), data.size());
  raft_install_snapshot& came = received.Release()->install_snapshot;
  EXPECT_EQ(came.last_index, 40u);
  ASSERT_EQ(came.conf.n, 2u);
  EXPECT_STREQ(came.conf.servers[1].address, "b:2");
  EXPECT_EQ(came.conf.servers[1].role, RAFT_STANDBY);
  raft_configuration_close(&came.conf);
  raft_free(came.data.base);
}

TEST(RaftWire, WhatNoMemberSendsIsRefused) {
  const wire::Message right = Encoded(Entries({"one", "two"}).message());
  EXPECT_TRUE(Decode(right).ok());

  const auto refuses = [&right](auto change) {
    wire::Message wrong = right;
    change(wrong);
    return absl::IsInvalidArgument(Decode(wrong));
  };
  EXPECT_TRUE(refuses([](wire::Message& m) { m.set_from(0); }));
  EXPECT_TRUE(refuses([](wire::Message& m) { m.clear_kind(); }));
  EXPECT_TRUE(refuses([](wire::Message& m) { m.set_from_address(std::string(257, 'a')); }));
  EXPECT_TRUE(refuses([](wire::Message& m) { m.set_from_address(std::string("a\0b", 3)); }));
  EXPECT_TRUE(refuses([](wire::Message& m) { m.mutable_append_entries()->add_entry_terms(1); }));
  EXPECT_TRUE(
      refuses([](wire::Message& m) { m.mutable_append_entries()->set_entry_types(0, 77); }));
  EXPECT_TRUE(refuses(
      [](wire::Message& m) { m.mutable_append_entries()->set_entry_bytes(0, ~uint64_t{0}); }));
  EXPECT_TRUE(refuses([](wire::Message& m) {  // the sum wraps around
    m.mutable_append_entries()->set_entry_bytes(0, uint64_t{1} << 62);
    m.mutable_append_entries()->set_entry_bytes(1, uint64_t{1} << 62);
  }));
  EXPECT_TRUE(refuses([](wire::Message& m) { m.mutable_append_entries()->set_entry_terms(0, 0); }));
  EXPECT_TRUE(refuses([](wire::Message& m) { m.mutable_request_vote()->set_candidate_id(3); }));
  EXPECT_TRUE(refuses([](wire::Message& m) {  // without members
    m.mutable_install_snapshot()->set_last_index(40);
  }));
  EXPECT_TRUE(refuses([](wire::Message& m) {
    m.mutable_install_snapshot()->add_configuration()->set_address("a:1");
  }));
  EXPECT_TRUE(refuses([](wire::Message& m) {  // one member twice
    for (int i = 0; i < 2; ++i) {
      wire::Server* const server = m.mutable_install_snapshot()->add_configuration();
      server->set_id(1);
      server->set_address("a:1");
    }
  }));
}

// libraft decodes the members of a change without a look at where its bytes end, and compares each
// with all before it.
TEST(RaftWire, AChangeOfMembersIsDecodedBeforeLibraftDoes) {
  const auto number = [](uint64_t value) {
    std::string bytes;
    for (int shift = 0; shift < 64; shift += 8) bytes.push_back(static_cast<char>(value >> shift));
    return bytes;
  };
  const auto member = [&](uint64_t id, const std::string& address, char role = RAFT_VOTER) {
    return number(id) + address + '\0' + role;
  };
  const auto check = [](std::string bytes) {
    raft_entry entry = {1, RAFT_CHANGE, {bytes.data(), bytes.size()}, nullptr};
    raft_message message = {};
    message.type = RAFT_IO_APPEND_ENTRIES;
    message.append_entries.entries = &entry;
    message.append_entries.n_entries = 1;
    const absl::Status status = CheckChanges(message);
    entry.type = RAFT_COMMAND;
    EXPECT_TRUE(CheckChanges(message).ok()) << "what a command has is the state machine's matter";
    return status;
  };
  const std::string two = '\1' + number(2) + member(1, "a:1") + member(2, "b:2", RAFT_SPARE);
  EXPECT_TRUE(check(two).ok());
  EXPECT_TRUE(check(two + std::string(7, '\0')).ok()) << "up to a multiple of eight";
  for (size_t bytes = 0; bytes < two.size(); ++bytes) {
    EXPECT_FALSE(check(two.substr(0, bytes)).ok()) << bytes << " bytes of " << two.size();
  }
  EXPECT_FALSE(check('\2' + two.substr(1)).ok()) << "another encoding";
  EXPECT_FALSE(check('\1' + number(0)).ok()) << "nobody";
  EXPECT_FALSE(check('\1' + number(~uint64_t{0}) + member(1, "a:1")).ok());
  EXPECT_FALSE(check('\1' + number(1) + member(0, "a:1")).ok());
  EXPECT_FALSE(check('\1' + number(1) + member(1, "a:1", 77)).ok()) << "no such role";
  EXPECT_FALSE(check('\1' + number(1) + member(1, std::string(257, 'a'))).ok());
  EXPECT_FALSE(check('\1' + number(2) + member(1, "a:1") + member(1, "b:2")).ok()) << "twice";
  std::string many = '\1' + number(kMaxServers + 1);
  for (uint64_t id = 1; id <= kMaxServers + 1; ++id) many += member(id, std::to_string(id));
  EXPECT_FALSE(check(many).ok());
}

// libraft frees a batch by the first entry that has it.
TEST(RaftWire, EntriesWithoutBytesHaveABatch) {
  ReceivedMessage received;
  ASSERT_TRUE(received.Decode(Encoded(Entries({"", ""}).message())).ok());
  raft_message* const message = received.Release();
  ASSERT_EQ(message->append_entries.n_entries, 2u);
  EXPECT_NE(message->append_entries.entries[0].batch, nullptr);
  raft_free(message->append_entries.entries[0].batch);
  raft_free(message->append_entries.entries);
}

}  // namespace
}  // namespace weft::embed
