// The state of the replicated key-value server: records, sessions, snapshots, and what a crash
// leaves.
#include "examples/raftkv/state_machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace raftkv {
namespace {

class StateMachineTest : public testing::Test {
 protected:
  StateMachineTest() {
    static int number = 0;
    folder_ = testing::TempDir() + "/state-" + std::to_string(++number);
    std::filesystem::remove_all(folder_);
    Open();
  }

  void Open() {
    state_.reset();
    auto state = StateMachine::Open(folder_, options_);
    ASSERT_TRUE(state.ok()) << state.status();
    state_ = *std::move(state);
  }
  // As by SIGKILL: what was not flushed is gone.
  void Crash() { Open(); }

  Outcome Apply(const Command& command) {
    Entry entry;
    *entry.add_commands() = command;
    const absl::Status status = state_->Apply(++index_, EncodeEntry(entry));
    EXPECT_TRUE(status.ok()) << status;
    return state_->outcomes().at(0);
  }
  static Command PutOf(const std::string& key, const std::string& value, uint64_t session = 0,
                       uint64_t sequence = 0) {
    Command command;
    command.mutable_put()->set_key(key);
    command.mutable_put()->add_fields()->set_value(value);
    command.mutable_put()->mutable_call_id()->set_session(session);
    command.mutable_put()->mutable_call_id()->set_sequence(sequence);
    return command;
  }
  Outcome Put(const std::string& key, const std::string& value, uint64_t session = 0,
              uint64_t sequence = 0) {
    return Apply(PutOf(key, value, session, sequence));
  }
  Outcome Delete(const std::string& key, uint64_t session = 0, uint64_t sequence = 0) {
    Command command;
    command.mutable_remove()->set_key(key);
    command.mutable_remove()->mutable_call_id()->set_session(session);
    command.mutable_remove()->mutable_call_id()->set_sequence(sequence);
    return Apply(command);
  }
  Outcome OpenSession(uint64_t id) {
    Command command;
    command.mutable_open_sessions()->add_ids(id);
    return Apply(command);
  }
  std::string Get(const std::string& key) {
    kv::GetReply reply;
    const absl::Status status = state_->Get(key, &reply);
    if (absl::IsNotFound(status)) return "(none)";
    EXPECT_TRUE(status.ok()) << status;
    std::string text;
    for (const kv::Field& field : reply.fields()) {
      text += (text.empty() ? "" : " ") + (field.name().empty() ? "" : field.name() + "=");
      text += field.value();
    }
    return text;
  }
  std::string Snapshot() {
    std::vector<std::string> pieces;
    EXPECT_TRUE(state_->TakeSnapshot()->Read(&pieces).ok());
    std::string all;
    for (const std::string& piece : pieces) all += piece;
    return all;
  }
  // All that a client can see, and the sessions.
  std::string Everything() {
    kv::ScanReply reply;
    EXPECT_TRUE(state_->Scan({}, &reply).ok());
    return reply.ShortDebugString() + state_->header().ShortDebugString() +
           state_->lead().ShortDebugString() + std::to_string(state_->sessions());
  }

  StateOptions options_;
  std::string folder_;
  std::unique_ptr<StateMachine> state_;
  uint64_t index_ = 0;
};

absl::StatusCode CodeOf(const Outcome& outcome) {
  return static_cast<absl::StatusCode>(outcome.code());
}

TEST_F(StateMachineTest, PutsReplaceUpdatesMergeAndDeletesRemove) {
  EXPECT_TRUE(Put("a", "1").flag());
  EXPECT_FALSE(Put("a", "2").flag());
  EXPECT_EQ(Get("a"), "2");
  Command update;
  update.mutable_put()->set_mode(kv::PutRequest::UPDATE);
  update.mutable_put()->set_key("a");
  update.mutable_put()->add_fields()->set_name("more");
  update.mutable_put()->mutable_fields(0)->set_value("3");
  EXPECT_EQ(Apply(update).code(), 0);
  EXPECT_EQ(Get("a"), "2 more=3");
  update.mutable_put()->set_key("b");
  EXPECT_EQ(CodeOf(Apply(update)), absl::StatusCode::kNotFound);
  EXPECT_TRUE(Delete("a").flag());
  EXPECT_FALSE(Delete("a").flag());
  EXPECT_EQ(Get("a"), "(none)");
  EXPECT_EQ(state_->header().records(), 0u);
  EXPECT_EQ(state_->header().bytes(), 0u);
}

TEST_F(StateMachineTest, CommandsOfOneEntrySeeEachOther) {
  Entry entry;
  *entry.add_commands() = PutOf("a", "1");
  *entry.add_commands() = PutOf("a", "2");
  entry.add_commands()->mutable_remove()->set_key("a");
  *entry.add_commands() = PutOf("a", "3");
  ASSERT_TRUE(state_->Apply(++index_, EncodeEntry(entry)).ok());
  const std::vector<Outcome>& outcomes = state_->outcomes();
  ASSERT_EQ(outcomes.size(), 4u);
  EXPECT_TRUE(outcomes[0].flag());
  EXPECT_FALSE(outcomes[1].flag());
  EXPECT_TRUE(outcomes[2].flag());
  EXPECT_TRUE(outcomes[3].flag());
  EXPECT_EQ(Get("a"), "3");
  EXPECT_EQ(state_->header().records(), 1u);
}

TEST_F(StateMachineTest, WhatTheLimitsForbidChangesNothing) {
  options_.limits.max_bytes = 1000;
  Open();
  EXPECT_EQ(CodeOf(Put("", "x")), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(Put(std::string(1025, 'k'), "x")), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Put("a", std::string(500, 'x')).code(), 0);
  EXPECT_EQ(CodeOf(Put("b", std::string(500, 'x'))), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Get("b"), "(none)");
  EXPECT_EQ(state_->header().records(), 1u);
}

// What no state takes went into the log, and to all members, to be refused by each of them: one
// request of 64 MiB, of 33 million empty fields, cost every member 5 GiB and half a minute.
TEST_F(StateMachineTest, WhatNoStateTakesIsFoundBeforeItGoesIntoTheLog) {
  const auto code = [](const kv::PutRequest& request) {
    return StateMachine::Check(request, kv::StoreLimits{.max_record_bytes = 100}).code();
  };
  kv::PutRequest request = PutOf("a", "1").put();
  EXPECT_EQ(code(request), absl::StatusCode::kOk);
  request.set_mode(kv::PutRequest::UPDATE);
  EXPECT_EQ(code(request), absl::StatusCode::kOk);
  request.set_mode(static_cast<kv::PutRequest::Mode>(7));
  EXPECT_EQ(code(request), absl::StatusCode::kInvalidArgument);
  request = PutOf(std::string(1025, 'k'), "1").put();
  EXPECT_EQ(code(request), absl::StatusCode::kInvalidArgument);
  request = PutOf("a", std::string(101, 'x')).put();
  EXPECT_EQ(code(request), absl::StatusCode::kInvalidArgument);
  request = PutOf("a", "1").put();
  for (int i = 0; i < 100'000; ++i) request.add_fields();
  EXPECT_EQ(code(request), absl::StatusCode::kInvalidArgument);
}

TEST_F(StateMachineTest, ACallOfASessionRunsOnceAndKeepsItsOutcome) {
  OpenSession(7);
  EXPECT_TRUE(Put("a", "1", 7, 1).flag());
  EXPECT_TRUE(Put("a", "1", 7, 1).flag()) << "as the first time: it was new";
  Put("a", "of another", 0, 0);
  EXPECT_TRUE(Put("a", "1", 7, 1).flag());
  EXPECT_EQ(Get("a"), "of another");
  EXPECT_TRUE(Delete("a", 7, 2).flag());
  EXPECT_TRUE(Delete("a", 7, 2).flag());
  EXPECT_EQ(CodeOf(Put("a", "late", 7, 1)), absl::StatusCode::kAborted);
  EXPECT_EQ(Get("a"), "(none)");
}

TEST_F(StateMachineTest, AnErrorIsAnOutcomeAsWell) {
  OpenSession(7);
  EXPECT_EQ(CodeOf(Put("", "x", 7, 1)), absl::StatusCode::kInvalidArgument);
  const Outcome again = Put("a", "another request by the same name", 7, 1);
  EXPECT_EQ(CodeOf(again), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Get("a"), "(none)");
}

TEST_F(StateMachineTest, ASessionThatIsNotKnownRunsNothing) {
  EXPECT_EQ(CodeOf(Put("a", "1", 7, 1)), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Get("a"), "(none)");
}

TEST_F(StateMachineTest, OfTooManySessionsTheOneThatWasNotUsedIsForgotten) {
  options_.max_sessions = 3;
  Open();
  for (const uint64_t id : {1, 2, 3}) OpenSession(id);
  Put("a", "1", 1, 1);
  Put("c", "1", 3, 1);
  OpenSession(4);
  EXPECT_EQ(state_->sessions(), 3u);
  EXPECT_EQ(CodeOf(Put("b", "1", 2, 1)), absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(Put("a", "1", 1, 2).flag());
  ASSERT_TRUE(state_->Flush().ok());
  Crash();
  EXPECT_EQ(state_->sessions(), 3u);
}

TEST_F(StateMachineTest, WhatWasNotFlushedIsAppliedAgainAndWhatWasIsNot) {
  OpenSession(7);
  Put("a", "1", 7, 1);
  ASSERT_TRUE(state_->Flush().ok());
  const uint64_t flushed = index_;
  Put("b", "1", 7, 2);
  const std::string before = Everything();
  Crash();
  EXPECT_EQ(state_->header().applied_index(), flushed);
  EXPECT_EQ(Get("b"), "(none)");
  // The log from its start, as libraft does.
  index_ = 0;
  Entry entry;
  entry.add_commands()->mutable_open_sessions()->add_ids(7);
  ASSERT_TRUE(state_->Apply(++index_, EncodeEntry(entry)).ok());
  EXPECT_TRUE(state_->outcomes().empty());
  *entry.mutable_commands(0) = PutOf("a", "1", 7, 1);
  ASSERT_TRUE(state_->Apply(++index_, EncodeEntry(entry)).ok());
  Put("b", "1", 7, 2);
  EXPECT_EQ(Everything(), before);
}

TEST_F(StateMachineTest, ASnapshotMakesTheSameStateElsewhere) {
  OpenSession(7);
  Command lead;
  lead.mutable_lead()->set_id(2);
  lead.mutable_lead()->set_client_address("there");
  Apply(lead);
  // More than a piece.
  for (int i = 0; i < 60; ++i) Put("key" + std::to_string(i), std::string(100'000, 'a' + i % 26));
  Put("a", "1", 7, 1);
  const std::string snapshot = Snapshot();
  const std::string before = Everything();
  // The machine goes on, and another one begins with something else.
  Put("a", "2", 7, 2);
  state_.reset();
  std::filesystem::remove_all(folder_);
  index_ = 0;
  Open();
  Put("not in the snapshot", "1");
  ASSERT_TRUE(state_->Restore(snapshot).ok());
  EXPECT_EQ(Everything(), before);
  index_ = state_->header().applied_index();
  EXPECT_TRUE(Put("a", "1", 7, 1).flag()) << "the session came with it";
}

TEST_F(StateMachineTest, AnOlderSnapshotChangesNothing) {
  Put("a", "1");
  const std::string snapshot = Snapshot();
  Put("a", "2");
  ASSERT_TRUE(state_->Restore(snapshot).ok());
  EXPECT_EQ(Get("a"), "2");
}

TEST_F(StateMachineTest, BytesThatAreNoSnapshotChangeNothing) {
  Put("a", "1");
  Put("b", "2");
  const std::string snapshot = Snapshot();
  const std::string before = Everything();
  std::vector<std::string> broken = {"", "x", snapshot + "x"};
  for (size_t bytes = 0; bytes < snapshot.size(); ++bytes) {
    broken.push_back(snapshot.substr(0, bytes));
  }
  // Lengths of the first pair that lead beyond the end, or to nothing.
  const size_t first = std::string("weft raftkv 1\n").size();
  for (const size_t at : {first, first + 4}) {
    for (const char* length : {"\xff\xff\xff\xff", "\xff\xff\xff\x7f"}) {
      broken.push_back(std::string(snapshot).replace(at, 4, length));
    }
  }
  broken.push_back(std::string(snapshot).replace(first, 4, 4, '\0'));
  for (const std::string& bytes : broken) {
    const absl::Status status = state_->Restore(bytes);
    EXPECT_TRUE(status.ok() || absl::IsDataLoss(status)) << status;
    ASSERT_EQ(Everything(), before);
  }
}

std::string PairOf(const std::string& key, const std::string& value) {
  std::string pair;
  for (const size_t bytes : {key.size(), value.size()}) {
    pair += static_cast<char>(bytes);  // in four bytes; here it is below 128
    pair.append(3, '\0');
  }
  return pair + key + value;
}

// It was found out when such a snapshot had taken the state's place already: then nothing was said
// to have changed, and the member went on without its records.
TEST_F(StateMachineTest, ANewerSnapshotOfWhichAPartCannotBeReadChangesNothing) {
  Put("a", "1");
  const std::string before = Everything();
  StateHeader header;
  header.set_applied_index(index_ + 1);
  const std::string newer = "weft raftkv 1\n" + PairOf("m", header.SerializeAsString());
  const std::vector<std::string> unreadable = {
      PairOf("l", "\xff"),          // a leader
      PairOf("s12345678", "\xff"),  // a session
      PairOf("s1", ""),             // and its number
      PairOf("t", ""),              // what no state has
  };
  for (const std::string& pair : unreadable) {
    EXPECT_TRUE(absl::IsDataLoss(state_->Restore(newer + pair)));
    ASSERT_EQ(Everything(), before);
  }
  EXPECT_TRUE(state_->Restore(newer).ok());
  EXPECT_EQ(Get("a"), "(none)");
}

TEST_F(StateMachineTest, EntriesThatCannotBeReadDoNothing) {
  Put("a", "1");
  for (const std::string& bytes :
       {std::string(), std::string("abc"), std::string("\xff\xff\xff\x7f....", 8),
        std::string("\x04\0\0\0\xff\xff\xff\xff", 8), std::string(64, '\0')}) {
    EXPECT_TRUE(state_->Apply(++index_, bytes).ok());
    EXPECT_TRUE(state_->outcomes().empty());
  }
  EXPECT_EQ(Get("a"), "1");
  EXPECT_EQ(state_->header().applied_index(), index_);
}

TEST_F(StateMachineTest, ADamagedStateIsMadeAgain) {
  Put("a", "1");
  ASSERT_TRUE(state_->Flush().ok());
  state_.reset();
  for (const auto& file : std::filesystem::directory_iterator(folder_)) {
    if (file.path().extension() == ".sst") std::filesystem::resize_file(file.path(), 7);
  }
  Open();
  EXPECT_EQ(state_->header().applied_index(), 0u);
  EXPECT_EQ(Get("a"), "(none)");
}

TEST_F(StateMachineTest, ScansGoOnWhereTheyEnded) {
  for (const char* key : {"b", "a", "c", "d"}) Put(key, key);
  OpenSession(7);
  kv::ScanRequest request;
  request.set_start("b");
  request.set_limit(2);
  kv::ScanReply reply;
  ASSERT_TRUE(state_->Scan(request, &reply).ok());
  ASSERT_EQ(reply.records_size(), 2);
  EXPECT_EQ(reply.records(0).key(), "b");
  EXPECT_TRUE(reply.more());
  request.set_start(std::string("c\0", 2));
  reply.Clear();
  ASSERT_TRUE(state_->Scan(request, &reply).ok());
  ASSERT_EQ(reply.records_size(), 1) << "and nothing of the sessions";
  EXPECT_FALSE(reply.more());
}

TEST_F(StateMachineTest, TwoProcessesDoNotShareAFolder) {
  const auto second = StateMachine::Open(folder_, options_);
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(std::string(second.status().message()), testing::HasSubstr("another member"));
}

}  // namespace
}  // namespace raftkv
