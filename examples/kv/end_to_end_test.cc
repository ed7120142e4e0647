// kv_server and kv_client as a user runs them: processes of their own, over each real path.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/strings.h"
#include "examples/testing/server_process.h"
#include "examples/testing/tls_files.h"

namespace kv {
namespace {

using examples::ChildProcess;
using examples::Finished;
using examples::ServerProcess;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr char kServer[] = "examples/kv/kv_server";
constexpr char kClient[] = "examples/kv/kv_client";
constexpr int kInterrupted = 130;

std::string TempFile(const std::string& name) { return testing::TempDir() + "/" + name; }

std::string FileOfLines(int lines) {
  std::string path = TempFile("lines.txt");
  std::ofstream file(path, std::ios::binary);
  for (int i = 1; i <= lines; ++i) file << "value " << i * 7 << "\n";
  return path;
}

std::set<std::string> SharedMemoryFiles() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    names.insert(entry.path().filename());
  }
  return names;
}

// A running server, and clients of it over one path.
class EndToEndTest : public testing::TestWithParam<const char*> {
 protected:
  // The server has its paths from this process.
  EndToEndTest()
      : paths_set_(setenv("WEFT_PATHS", "shm,tcp,ofi_tcp", /*overwrite=*/1)),
        server_({kServer, "--index_mib=32", "--address_file=" + TempFile("address")}) {}

  // No test is about deadlines: a minute is for machines that stand still for seconds.
  std::vector<std::string> ClientCommand(std::vector<std::string> words) const {
    words.push_back("--timeout_ms=60000");
    return server_.ClientCommand(kClient, GetParam(), words);
  }
  Finished Client(const std::vector<std::string>& words) const {
    return examples::RunToEnd(ClientCommand(words));
  }
  void ExpectServing() const {
    EXPECT_EQ(Client({"put", "still", "there"}).status, 0);
    EXPECT_EQ(Client({"get", "still"}).output, "there\n");
  }
  // A client that runs a workload until it is stopped; the records are stored when this returns.
  std::unique_ptr<ChildProcess> RunningYcsb() const {
    auto client = std::make_unique<ChildProcess>(
        ClientCommand({"ycsb", "--workload=A", "--records=1000", "--seconds=3600"}));
    EXPECT_THAT(client->ReadLine(), StartsWith("stored 1,000 records"));
    return client;
  }
  // What is in /dev/shm now and was not when the test began.
  std::vector<std::string> LeftBehind() const {
    std::vector<std::string> names;
    for (const std::string& name : SharedMemoryFiles()) {
      if (shared_memory_before_.count(name) == 0) names.push_back(name);
    }
    return names;
  }

  const std::set<std::string> shared_memory_before_ = SharedMemoryFiles();
  const int paths_set_;
  ServerProcess server_;
};

TEST_P(EndToEndTest, ALoadedFileVerifiesLineByLine) {
  const std::string file = FileOfLines(5000);
  const Finished load = Client({"load", file});
  EXPECT_EQ(load.status, 0) << load.output;
  EXPECT_THAT(load.output, HasSubstr(weft::StrCat("5,000 of 5,000 records over ", GetParam())));

  const Finished verify = Client({"verify", file});
  EXPECT_EQ(verify.status, 0) << verify.output;
  EXPECT_THAT(verify.output, HasSubstr("all 5,000 values are right"));

  EXPECT_EQ(Client({"scan", "0000002000", "--limit=2"}).output,
            "0000002000\tvalue 14000\n0000002001\tvalue 14007\n");
  EXPECT_EQ(Client({"delete", "0000002000"}).status, 0);
  EXPECT_EQ(Client({"verify", file}).status, 1) << "a value is missing";
  server_.Stop();
  EXPECT_THAT(LeftBehind(), IsEmpty());
}

// Larger than any eager frame: it travels by one-sided transfer, both ways.
TEST_P(EndToEndTest, AValueOfSixteenMebibytesComesBackAsItWas) {
  const std::string path = TempFile("large.txt");
  std::string text((size_t{16} << 20) - 1, 'x');
  for (size_t i = 0; i < text.size(); i += 4099) text[i] = static_cast<char>('a' + i % 26);
  std::ofstream(path, std::ios::binary) << text;
  EXPECT_EQ(Client({"load", path}).status, 0);
  EXPECT_EQ(Client({"verify", path}).status, 0);
  server_.Stop();
}

TEST_P(EndToEndTest, YcsbRunsAndReportsItsPath) {
  const std::string results = TempFile("results");
  std::filesystem::remove(results);
  const Finished ycsb = Client(
      {"ycsb", "--workload=A,E,F", "--records=1000", "--operations=1000", "--results=" + results});
  EXPECT_EQ(ycsb.status, 0) << ycsb.output;
  EXPECT_THAT(ycsb.output, HasSubstr(weft::StrCat("YCSB A over ", GetParam())));
  EXPECT_THAT(ycsb.output, HasSubstr("1,000 operations"));
  std::ifstream lines(results);
  std::string line;
  ASSERT_TRUE(std::getline(lines, line));
  EXPECT_THAT(line, StartsWith(weft::StrCat(GetParam(), "\tA\t32\t")));
  server_.Stop();
  EXPECT_THAT(LeftBehind(), IsEmpty());
}

TEST_P(EndToEndTest, RecordsAreReadWithoutTheServer) {
  const std::string file = FileOfLines(5000);
  ASSERT_EQ(Client({"load", file}).status, 0);
  EXPECT_EQ(Client({"get", "0000002000", "--get=one-sided"}).output, "value 14000\n");
  EXPECT_EQ(Client({"get", "absent", "--get=one-sided"}).status, 1);
  const Finished verify = Client({"verify", file, "--get=one-sided"});
  EXPECT_EQ(verify.status, 0) << verify.output;
  EXPECT_THAT(verify.output, HasSubstr("all 5,000 values are right"));
  EXPECT_THAT(verify.output, HasSubstr("one-sided: 5,000 records read"));
  server_.Stop();
  EXPECT_THAT(LeftBehind(), IsEmpty());
}

TEST_P(EndToEndTest, ConcurrentWritersAndOneSidedReadersAreLinearizable) {
  const Finished check = Client({"check", "--seconds=1", "--get=one-sided", "--outstanding=16"});
  EXPECT_EQ(check.status, 0) << check.output;
  EXPECT_THAT(check.output, HasSubstr("0 errors"));
  EXPECT_THAT(check.output, HasSubstr("linearizable: "));
  server_.Stop();
}

TEST_P(EndToEndTest, AKilledServerLeavesALinearizableHistory) {
  ChildProcess check(ClientCommand({"check", "--seconds=3600", "--get=one-sided"}));
  EXPECT_THAT(check.ReadLine(), StartsWith("puts, deletes and gets"));
  server_.Signal(SIGKILL);
  EXPECT_EQ(server_.Wait(), -SIGKILL);
  EXPECT_EQ(check.Wait(), 1);
  EXPECT_THAT(check.output(), HasSubstr("linearizable: "));
}

TEST_P(EndToEndTest, YcsbComparesBothWaysToGet) {
  const std::vector<std::string> words = {"ycsb", "--workload=C", "--records=1000",
                                          "--operations=3000"};
  for (const std::string get : {"rpc", "one-sided"}) {
    std::vector<std::string> command = words;
    command.push_back("--get=" + get);
    const Finished ycsb = Client(command);
    EXPECT_EQ(ycsb.status, 0) << ycsb.output;
    EXPECT_THAT(ycsb.output, HasSubstr("gets " + get + ": 3,000 operations"));
    EXPECT_THAT(ycsb.output, HasSubstr("us of server CPU each"));
  }
  server_.Stop();
}

TEST_P(EndToEndTest, ExplainSaysWhichPathWasChosen) {
  const Finished explain = Client({"explain"});
  EXPECT_EQ(explain.status, 0);
  EXPECT_THAT(explain.output, ContainsRegex(weft::StrCat(GetParam(), " +chosen")));
}

TEST_P(EndToEndTest, AKilledClientLeavesTheServerServingOthers) {
  for (int i = 0; i < 3; ++i) {
    const auto client = RunningYcsb();
    client->Signal(SIGKILL);
    EXPECT_EQ(client->Wait(), -SIGKILL);
    ExpectServing();
  }
  server_.Stop();
}

TEST_P(EndToEndTest, CtrlCEndsAClientWithWhatItHas) {
  const auto client = RunningYcsb();
  client->Signal(SIGINT);
  EXPECT_EQ(client->Wait(), kInterrupted);
  EXPECT_THAT(client->output(), HasSubstr("YCSB A over"));
  ExpectServing();
  server_.Stop();
  EXPECT_THAT(LeftBehind(), IsEmpty());
}

TEST_P(EndToEndTest, AStoppedServerEndsItsClients) {
  const auto client = RunningYcsb();
  server_.Stop();
  EXPECT_THAT(server_.output(), HasSubstr("stopping on SIGTERM"));
  EXPECT_EQ(client->Wait(), 1);
  EXPECT_THAT(client->output(), HasSubstr("UNAVAILABLE"));
  EXPECT_THAT(LeftBehind(), IsEmpty());
}

TEST_P(EndToEndTest, TheAddressStandsInItsFileToo) {
  std::ifstream file(TempFile("address"));
  std::string address;
  std::getline(file, address);
  EXPECT_EQ(address, server_.address());
  EXPECT_THAT(address, StartsWith("127.0.0.1:"));
}

INSTANTIATE_TEST_SUITE_P(Paths, EndToEndTest, testing::Values("shm", "tcp", "ofi_tcp"),
                         [](const auto& info) { return std::string(info.param); });

// A server that wants to know who its clients are.
class TlsTest : public testing::TestWithParam<const char*> {
 protected:
  TlsTest() : server_(examples::With({kServer, "--index_mib=32"}, files_.FlagsOf("server"))) {}

  Finished Client(const std::vector<std::string>& words,
                  const std::vector<std::string>& flags) const {
    return examples::RunToEnd(
        examples::With(server_.ClientCommand(kClient, GetParam(), {"--timeout_ms=60000"}),
                       examples::With(words, flags)));
  }

  const examples::TlsFiles files_;
  ServerProcess server_;
};

TEST_P(TlsTest, BothSidesKnowEachOtherAndRecordsAreServed) {
  const std::vector<std::string> client = files_.FlagsOf("client");
  const std::string file = FileOfLines(2000);
  EXPECT_EQ(Client({"load", file}, client).status, 0);
  EXPECT_EQ(Client({"verify", file}, client).status, 0);
  EXPECT_EQ(Client({"verify", file, "--get=one-sided"}, client).status, 0);
  const Finished explain = Client({"explain"}, client);
  EXPECT_EQ(explain.status, 0);
  EXPECT_THAT(explain.output, ContainsRegex("\npeer: certificate \"CN=server\""));
  EXPECT_THAT(explain.output, HasSubstr("the server says: peer: certificate \"CN=client\""));
  server_.Stop();
}

TEST_P(TlsTest, WhoProvesNothingIsNotServed) {
  EXPECT_EQ(Client({"get", "key"}, {}).status, 1) << "in the clear";
  EXPECT_EQ(Client({"get", "key"}, files_.FlagsOfNobody()).status, 1) << "no certificate";
  EXPECT_EQ(Client({"get", "key"}, examples::TlsFiles().FlagsOf("client")).status, 1)
      << "another authority's";
  EXPECT_EQ(Client({"put", "key", "value"}, files_.FlagsOf("client")).status, 0);
  server_.Stop();
}

TEST_P(TlsTest, ThePolicySaysWhoMayCallWhat) {
  const std::string policy = TempFile("kv.policy");
  std::ofstream(policy) << "allow subject:CN=reader kv.Kv/Get\nallow subject:CN=writer kv.Kv/*\n";
  const ServerProcess server(
      examples::With({kServer, "--index_mib=0", "--policy=" + policy}, files_.FlagsOf("server")));
  const auto client = [&](const char* who, const std::vector<std::string>& words) {
    return examples::RunToEnd(
        examples::With(server.ClientCommand(kClient, GetParam(), {"--timeout_ms=60000"}),
                       examples::With(words, files_.FlagsOf(who))));
  };
  EXPECT_EQ(client("writer", {"put", "key", "value"}).status, 0);
  EXPECT_EQ(client("reader", {"get", "key"}).output, "value\n");
  EXPECT_EQ(client("reader", {"put", "key", "other"}).status, 1);
  EXPECT_EQ(client("nobody", {"get", "key"}).status, 1);
  EXPECT_EQ(client("reader", {"get", "key"}).output, "value\n") << "what was refused has not run";
}

INSTANTIATE_TEST_SUITE_P(Paths, TlsTest, testing::Values("shm", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

TEST(ClientTest, ACommandLineThatIsWrongIsSaidSo) {
  EXPECT_EQ(examples::RunToEnd({kClient, "--server=127.0.0.1:1", "--tls-kye=k", "explain"}).status,
            2);
  EXPECT_EQ(examples::RunToEnd({kServer, "--tls-kye=k"}).status, 2);
  EXPECT_EQ(examples::RunToEnd({kServer, "--tls-key=/none", "--tls-certificate=/none"}).status, 1);
  EXPECT_EQ(examples::RunToEnd({kClient, "--server=127.0.0.1:1", "fetch"}).status, 2);
  EXPECT_EQ(examples::RunToEnd({kServer, "surplus"}).status, 2);
}

TEST(ServerTest, APolicyThatPermitsNothingIsSaidSoLoudly) {
  const std::string policy = TempFile("empty.policy");
  std::ofstream(policy) << "# nobody yet\n";
  // It says so before it looks at the address, which is none.
  const Finished server = examples::RunToEnd(
      {"/bin/sh", "-c", weft::StrCat(kServer, " --listen=none --policy=", policy, " 2>&1")});
  EXPECT_EQ(server.status, 1);
  EXPECT_THAT(server.output, HasSubstr("permits nothing to anybody"));
  EXPECT_EQ(examples::RunToEnd({kServer, "--policy=/none"}).status, 1);
}

TEST(ServerTest, OneClientCannotBeGivenMoreConnectionsThanThereAre) {
  const Finished server = examples::RunToEnd(
      {"/bin/sh", "-c",
       weft::StrCat(kServer, " --max_connections=4 --max_connections_of_one=5 2>&1")});
  EXPECT_EQ(server.status, 1);
  EXPECT_THAT(server.output, HasSubstr("max_connections_of_one is 5; 0 to 4"));
}

TEST(ClientTest, WithoutAnIndexOneSidedGetsAreRefused) {
  const ServerProcess server({kServer, "--index_mib=0"});
  const Finished get =
      examples::RunToEnd(server.ClientCommand(kClient, "shm", {"--get=one-sided", "get", "key"}));
  EXPECT_EQ(get.status, 1);
}

TEST(ClientTest, WithoutAServerItFails) {
  EXPECT_EQ(examples::RunToEnd({kClient, "--server=127.0.0.1:1", "get", "key"}).status, 1);
}

}  // namespace
}  // namespace kv
