// The commands against a server on the simulated network: the same rpc layer, virtual time, and a
// server that dies when the test says so.
#include "examples/kv/client/commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/strings.h"
#include "core/timer_wheel.h"
#include "examples/kv/client/ycsb_run.h"
#include "examples/kv/kv_service.h"
#include "transport/engine.h"
#include "weft/server.h"
#include "weft/sim.h"

namespace kv::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CommandsTest : public testing::Test {
 protected:
  CommandsTest() {
    server_ = *weft::Server::Create(network_.Node("db"));
    EXPECT_TRUE(server_->AddService(&service_).ok());
    EXPECT_TRUE(server_->Listen("sim:db").ok());
    channel_ = *weft::Channel::Open(network_.Node("client"), "sim:db");
    weft::CallOptions call;
    call.timeout_us = 1'000'000;
    session_ = std::make_unique<Session>(
        Session{*channel_, Kv::Stub(*channel_), call, /*outstanding=*/8, /*stop=*/nullptr});
  }

  static std::string FileWith(const std::string& text) {
    std::string path = testing::TempDir() + "/commands_test.txt";
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  static std::string ManyLines(int lines) {
    std::string text;
    for (int i = 0; i < lines; ++i) text += weft::StrCat("line ", i * i, "\n");
    return text;
  }
  // Runs a command and returns what it printed on stdout.
  template <class Command>
  std::string Printed(Command command) {
    testing::internal::CaptureStdout();
    status_ = command();
    std::fflush(stdout);
    return testing::internal::GetCapturedStdout();
  }

  Store store_;
  KvService service_{&store_};
  weft::SimNetwork network_{/*seed=*/1};
  std::unique_ptr<weft::Server> server_;
  std::unique_ptr<weft::Channel> channel_;
  std::unique_ptr<Session> session_;
  absl::Status status_;
};

TEST_F(CommandsTest, PutGetDelete) {
  EXPECT_EQ(Printed([&] { return Put(*session_, "key", "value"); }), "created\n");
  EXPECT_EQ(Printed([&] { return Put(*session_, "key", "a\nb"); }), "replaced\n");
  EXPECT_EQ(Printed([&] { return Get(*session_, "key"); }), "a\nb\n");
  EXPECT_EQ(Printed([&] { return Delete(*session_, "key"); }), "deleted\n");
  EXPECT_TRUE(absl::IsNotFound(Delete(*session_, "key")));
  EXPECT_TRUE(absl::IsNotFound(Get(*session_, "key")));
}

TEST_F(CommandsTest, ScanPrintsWhatATerminalCanShow) {
  const FieldView fields[] = {{"a", "1"}, {"b", "\x01"}};
  ASSERT_TRUE(store_.Replace("fields", fields).ok());
  ASSERT_TRUE(Put(*session_, "plain", "Ångström").ok());
  EXPECT_EQ(Printed([&] { return Scan(*session_, "f", 10); }),
            "fields\ta=1 b=\\x01\nplain\tÅngström\n");
  EXPECT_TRUE(status_.ok());
}

TEST_F(CommandsTest, EveryLoadedLineVerifies) {
  const std::string path = FileWith(ManyLines(1000) + "key\tvalue\nkey\tits last value\n\n");
  EXPECT_THAT(Printed([&] { return Load(*session_, path); }), HasSubstr("1,003 lines, 1,002 keys"));
  ASSERT_TRUE(status_.ok()) << status_;
  EXPECT_EQ(store_.size(), 1002u);
  EXPECT_THAT(Printed([&] { return Verify(*session_, path); }),
              HasSubstr("all 1,002 values are right"));
  EXPECT_TRUE(status_.ok()) << status_;
}

TEST_F(CommandsTest, VerifyFindsWhatIsWrongAndWhatIsMissing) {
  const std::string path = FileWith(ManyLines(100));
  ASSERT_TRUE(Load(*session_, path).ok());
  const FieldView wrong[] = {{"", "not this"}};
  ASSERT_TRUE(store_.Replace("0000000042", wrong).ok());
  ASSERT_TRUE(store_.Delete("0000000099"));
  testing::internal::CaptureStderr();
  const absl::Status status = Verify(*session_, path);
  const std::string shown = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("2 of 100"));
  EXPECT_THAT(shown, HasSubstr("\"0000000042\": expected \"line 1681\", there is \"not this\""));
  EXPECT_THAT(shown, HasSubstr("\"0000000099\": expected \"line 9604\", there is no record"));
}

TEST_F(CommandsTest, AnEmptyFileIsLoadedAndVerified) {
  const std::string path = FileWith("");
  EXPECT_TRUE(Load(*session_, path).ok());
  EXPECT_TRUE(Verify(*session_, path).ok());
}

// Kills a node at a point in virtual time.
class KillTimer final : public weft::Timer {
 public:
  KillTimer(weft::SimNetwork* network, std::string node)
      : network_(*network), node_(std::move(node)) {}

 private:
  void OnTimer() override { network_.Kill(node_); }

  weft::SimNetwork& network_;
  const std::string node_;
};

TEST_F(CommandsTest, ADyingServerEndsALoadWithWhatIsDone) {
  const std::string path = FileWith(ManyLines(100'000));
  KillTimer kill(&network_, "db");
  weft::EngineCore& client = weft::CoreOf(network_.Node("client"));
  client.timers().Schedule(&kill, client.clock().NowNs() + 5 * weft::kNsPerMs);
  const std::string printed = Printed([&] { return Load(*session_, path); });
  EXPECT_TRUE(absl::IsUnavailable(status_)) << status_;
  EXPECT_GT(store_.size(), 0u);
  EXPECT_LT(store_.size(), 100'000u);
  EXPECT_THAT(printed, HasSubstr("of 100,000 records"));
}

TEST_F(CommandsTest, CtrlCEndsALoadEarly) {
  examples::StopSignal stop;
  session_->stop = &stop;
  ASSERT_EQ(raise(SIGINT), 0);  // blocked since StopSignal: it waits to be looked at
  const std::string path = FileWith(ManyLines(100'000));
  Printed([&] { return Load(*session_, path); });
  EXPECT_TRUE(absl::IsCancelled(status_)) << status_;
  EXPECT_LT(store_.size(), 100'000u);
}

YcsbOptions SmallYcsb(char workload) {
  YcsbOptions options;
  options.workloads = {*ycsb::FindWorkload(workload)};
  options.records = 200;
  options.fields = 3;
  options.value_bytes = 10;
  options.operations = 2000;
  return options;
}

TEST_F(CommandsTest, EveryYcsbWorkloadRunsWithoutErrors) {
  for (const char name : {'A', 'B', 'C', 'D', 'E', 'F'}) {
    SCOPED_TRACE(std::string(1, name));
    const YcsbOptions options = SmallYcsb(name);
    ASSERT_TRUE(StoreYcsbRecords(*session_, options).ok());
    const auto result = RunYcsbWorkload(*session_, options, options.workloads[0]);
    EXPECT_EQ(result->errors, 0u) << result->first_error;
    EXPECT_EQ(result->operations, 2000u);
    EXPECT_EQ(result->latency.count(), 2000u);
    const uint64_t modified =
        result->latency_of[static_cast<size_t>(ycsb::OperationKind::kReadModifyWrite)].count();
    EXPECT_EQ(result->calls, 2000u + modified);
    EXPECT_EQ(modified > 0, name == 'F');
  }
  store_.CheckInvariants();
  network_.CheckInvariants();
}

TEST_F(CommandsTest, UpdatesOfYcsbChangeOneFieldOfTheRecord) {
  const YcsbOptions options = SmallYcsb('A');
  ASSERT_TRUE(StoreYcsbRecords(*session_, options).ok());
  ASSERT_EQ(RunYcsbWorkload(*session_, options, options.workloads[0])->errors, 0u);
  EXPECT_EQ(store_.size(), 200u);
  store_.Scan("", [](std::string_view, const Record& record) {
    std::vector<std::string> names;
    for (const FieldView& field : record) {
      names.emplace_back(field.name);
      EXPECT_EQ(field.value.size(), 10u);
    }
    EXPECT_THAT(names, ElementsAre("field0", "field1", "field2"));
    return true;
  });
}

TEST_F(CommandsTest, InsertsOfYcsbAddRecords) {
  const YcsbOptions options = SmallYcsb('D');
  ASSERT_TRUE(StoreYcsbRecords(*session_, options).ok());
  const auto result = RunYcsbWorkload(*session_, options, options.workloads[0]);
  const uint64_t inserted =
      result->latency_of[static_cast<size_t>(ycsb::OperationKind::kInsert)].count();
  EXPECT_GT(inserted, 0u);
  EXPECT_EQ(store_.size(), 200 + inserted);
}

TEST_F(CommandsTest, YcsbNoticesRecordsThatAreNotAsStored) {
  const YcsbOptions options = SmallYcsb('C');
  ASSERT_TRUE(StoreYcsbRecords(*session_, options).ok());
  for (uint64_t record = 0; record < options.records; ++record) {
    ASSERT_TRUE(store_.Replace(ycsb::RecordKey(record), {}).ok());
  }
  const auto result = RunYcsbWorkload(*session_, options, options.workloads[0]);
  EXPECT_EQ(result->operations, 0u);
  EXPECT_EQ(result->errors, 2000u);
  EXPECT_TRUE(absl::IsDataLoss(result->first_error)) << result->first_error;
}

TEST_F(CommandsTest, YcsbRunsForTheTimeItIsGiven) {
  YcsbOptions options = SmallYcsb('C');
  options.operations = 0;
  options.seconds = 0.05;  // of virtual time
  ASSERT_TRUE(StoreYcsbRecords(*session_, options).ok());
  const auto result = RunYcsbWorkload(*session_, options, options.workloads[0]);
  EXPECT_GE(result->seconds, 0.05);
  EXPECT_LT(result->seconds, 0.06);
  EXPECT_GT(result->operations, 1000u);
}

TEST_F(CommandsTest, ResultsAreAppendedForScripts) {
  YcsbOptions options = SmallYcsb('A');
  options.workloads.push_back(*ycsb::FindWorkload('C'));
  options.results = FileWith("");
  ASSERT_TRUE(Ycsb(*session_, options).ok());
  std::ifstream results(options.results);
  std::vector<std::string> lines;
  for (std::string line; std::getline(results, line);) lines.push_back(line);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_THAT(lines[0],
              testing::MatchesRegex(
                  "sim\tA\t8\t[0-9]+\t[0-9]+\t[0-9.]+\t[0-9.]+\t[0-9.]+\t0\trpc\t[0-9.]+"));
  EXPECT_THAT(lines[1], testing::StartsWith("sim\tC\t8\t"));
}

TEST_F(CommandsTest, ExplainNamesThePathAndItsEnds) {
  const std::string said = Printed([&] { return Explain(*session_); });
  EXPECT_THAT(said, HasSubstr("sim"));
  EXPECT_THAT(said, HasSubstr("the server says: peer: "));
}

}  // namespace
}  // namespace kv::client
