#include "examples/kv/client/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/flags/reflection.h"

namespace kv::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Every test starts from the flags' defaults.
class CommandLineTest : public testing::Test {
 protected:
  static absl::StatusOr<CommandLine> Parse(std::vector<std::string> words) {
    words.insert(words.begin(), "kv_client");
    std::vector<char*> argv;
    argv.reserve(words.size());
    for (std::string& word : words) argv.push_back(word.data());
    return ParseCommandLine(static_cast<int>(argv.size()), argv.data());
  }
  static void ExpectRefused(const std::vector<std::string>& words, const std::string& text) {
    const absl::Status status = Parse(words).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  }

  absl::FlagSaver saver_;
};

// It said "No flags matched": flags were looked for in a file that is named as the program is.
TEST_F(CommandLineTest, HelpListsTheFlags) {
  const auto ends = [](int status) { return WIFEXITED(status); };
  const auto help = [] {
    dup2(STDERR_FILENO, STDOUT_FILENO);
    Parse({"--help"}).IgnoreError();
  };
  EXPECT_EXIT(help(), ends, "--value_size");
}

TEST_F(CommandLineTest, FlagsMayStandBeforeAndAfterTheCommand) {
  const auto line = Parse({"--server=host:1", "put", "--paths=tcp,shm", "key", "value"});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(line->command, CommandKind::kPut);
  EXPECT_THAT(line->arguments, ElementsAre("key", "value"));
  EXPECT_EQ(line->server, "host:1");
  EXPECT_THAT(line->paths, ElementsAre(weft::PathKind::kTcp, weft::PathKind::kShm));
}

TEST_F(CommandLineTest, TlsFlagsAreThoseOfAllPrograms) {
  const auto line = Parse({"--server=host:1", "--tls-roots=ca.pem", "explain"});
  ASSERT_TRUE(line.ok()) << line.status();
  ASSERT_TRUE(line->security.has_value());
  EXPECT_EQ(line->security->roots_file, "ca.pem");
  ExpectRefused({"--server=host:1", "--tls-rots=ca.pem", "explain"}, "--tls-rots");
  EXPECT_THAT(CommandHelp(), HasSubstr("--tls-roots=FILE"));
}

TEST_F(CommandLineTest, WithoutFlagsThereAreDefaults) {
  const auto line = Parse({"--server=host:1", "ycsb"});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_THAT(line->paths, IsEmpty());
  EXPECT_FALSE(line->security.has_value());
  EXPECT_EQ(line->timeout_us, 5'000'000u);
  ASSERT_EQ(line->ycsb.workloads.size(), 1u);
  EXPECT_EQ(line->ycsb.workloads[0].name, 'A');
  EXPECT_EQ(line->ycsb.fields, 10u);
  EXPECT_EQ(line->ycsb.value_bytes, 100u);
  EXPECT_TRUE(line->ycsb.load);
}

TEST_F(CommandLineTest, EveryYcsbFlagArrives) {
  const auto line = Parse({"--server=h:1", "ycsb", "--workload=c,f", "--records=7",
                           "--operations=8", "--seconds=0.5", "--outstanding=9", "--value_size=10",
                           "--fields=11", "--seed=12", "--noload", "--results=file"});
  ASSERT_TRUE(line.ok()) << line.status();
  const YcsbOptions& ycsb = line->ycsb;
  ASSERT_EQ(ycsb.workloads.size(), 2u);
  EXPECT_EQ(ycsb.workloads[0].name, 'C');
  EXPECT_EQ(ycsb.workloads[1].name, 'F');
  EXPECT_EQ(ycsb.records, 7u);
  EXPECT_EQ(ycsb.operations, 8u);
  EXPECT_EQ(ycsb.seconds, 0.5);
  EXPECT_EQ(line->outstanding, 9u);
  EXPECT_EQ(ycsb.value_bytes, 10u);
  EXPECT_EQ(ycsb.fields, 11u);
  EXPECT_EQ(ycsb.seed, 12u);
  EXPECT_FALSE(ycsb.load);
  EXPECT_EQ(ycsb.results, "file");
}

TEST_F(CommandLineTest, WhatIsMissingOrWrongIsNamed) {
  ExpectRefused({"get", "key"}, "--server");
  ExpectRefused({"--server=h:1"}, "no command");
  ExpectRefused({"--server=h:1", "fetch"}, "no command \"fetch\": give one of get, put,");
  ExpectRefused({"--server=h:1", "get"}, "use: get KEY");
  ExpectRefused({"--server=h:1", "put", "key"}, "use: put KEY VALUE");
  ExpectRefused({"--server=h:1", "explain", "more"}, "use: explain");
}

TEST_F(CommandLineTest, EveryFlagHasItsBounds) {
  for (const char* flag :
       {"--records=0", "--fields=0", "--fields=257", "--value_size=0", "--seconds=0",
        "--seconds=nan", "--outstanding=0", "--outstanding=4097", "--timeout_ms=0", "--workload=g",
        "--workload=", "--paths=carrier_pigeon"}) {
    SCOPED_TRACE(flag);
    absl::FlagSaver saver;
    EXPECT_TRUE(absl::IsInvalidArgument(Parse({"--server=h:1", flag, "ycsb"}).status()));
  }
}

TEST(CommandTest, EachHasItsArguments) {
  for (const auto& [words, kind] : std::vector<std::pair<std::vector<std::string>, CommandKind>>{
           {{"get", "k"}, CommandKind::kGet},
           {{"put", "k", "v"}, CommandKind::kPut},
           {{"delete", "k"}, CommandKind::kDelete},
           {{"scan"}, CommandKind::kScan},
           {{"scan", "k"}, CommandKind::kScan},
           {{"load", "f"}, CommandKind::kLoad},
           {{"verify", "f"}, CommandKind::kVerify},
           {{"explain"}, CommandKind::kExplain},
           {{"ycsb"}, CommandKind::kYcsb},
       }) {
    const auto command = ParseCommand(words);
    ASSERT_TRUE(command.ok()) << command.status();
    EXPECT_EQ(command->kind, kind);
    EXPECT_THAT(CommandHelp(), HasSubstr(words[0]));
  }
}

}  // namespace
}  // namespace kv::client
