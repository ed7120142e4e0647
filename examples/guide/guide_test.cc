// The guide's programs print what the guide says.
#include <gtest/gtest.h>

#include <csignal>
#include <string>

#include "examples/testing/child_process.h"
#include "examples/testing/tls_files.h"

namespace {

std::string OutputOf(const std::string& program) {
  const examples::Finished run = examples::RunToEnd({"examples/guide/" + program});
  EXPECT_EQ(run.status, 0) << program;
  return run.output;
}

TEST(GuideTest, ErrorsSayWhetherTheCallMayHaveRun) {
  EXPECT_EQ(OutputOf("deadlines"),
            "DEADLINE_EXCEEDED: send it again only if running twice does no harm\n"
            "UNAVAILABLE: send it again\n");
}

TEST(GuideTest, RulesSayWhoMayCallWhat) {
  EXPECT_EQ(OutputOf("authorization"),
            "1 word\n"
            "PERMISSION_DENIED, and has not run; refused: 1\n");
}

TEST(GuideTest, WhatIsMoreThanAServerTakesIsRefusedAtOnce) {
  EXPECT_EQ(OutputOf("overload"),
            "2 answered, 3 refused at once\n"
            "by the method's limit: 3\n");
}

TEST(GuideTest, MetadataDetailsAndACancelArrive) {
  EXPECT_EQ(OutputOf("contexts"),
            "hello anna, 3 words\n"
            "who are you? send the metadata \"user\"\n"
            "CANCELLED, and the handler stopped\n");
}

TEST(GuideTest, ACallIsSentAgainAndHedged) {
  EXPECT_EQ(OutputOf("retries"),
            "attempts before: none\n"
            "attempts before: 1\n"
            "attempts before: 2\n"
            "3 words in 1 call, with 1 retry and 1 hedge\n");
}

TEST(GuideTest, AChannelOverManyServersLosesNoCall) {
  EXPECT_EQ(OutputOf("many_servers"), "0 calls failed, and the new server answers\n");
}

TEST(GuideTest, ATransferHappensOnceThoughTheServerIsRestarted) {
  EXPECT_EQ(OutputOf("exactly_once"), "the answer says 70, the bank says 70\n");
}

TEST(GuideTest, AChannelTellsOfItsStateAndItsRoom) {
  EXPECT_EQ(OutputOf("channel_events"), "ready\n1000 calls\nidle\n");
}

TEST(GuideTest, AThousandCallsAreUnderWay) {
  EXPECT_EQ(OutputOf("async_calls"), "3000 words in 1000 calls\n");
}

TEST(GuideTest, MessagesThatNobodyAnswersArrive) {
  EXPECT_EQ(OutputOf("one_way"), "1000 notes have arrived\n3000 words\n");
}

TEST(GuideTest, UrgentCallsPassThoseThatCanWait) {
  EXPECT_EQ(OutputOf("priorities"),
            "the server lives; 0 parts of the backup are done\n"
            "100 parts of the backup are done\n");
}

TEST(GuideTest, ServersCallEachOtherAndFindEachOtherAgain) {
  EXPECT_EQ(OutputOf("peers"),
            "a: 3 copies of its log, up to entry 1; 2 peers are connected\n"
            "b: 3 copies of its log, up to entry 1; 2 peers are connected\n"
            "c: 3 copies of its log, up to entry 1; 2 peers are connected\n"
            "c: 3 copies of its log, up to entry 1 after a restart; 2 peers are connected\n"
            "a: 3 copies of its log, up to entry 2; 2 peers are connected\n");
}

TEST(GuideTest, StreamsCarryManyMessages) {
  EXPECT_EQ(OutputOf("streams"), "3000 words\n1\n2\n3\n");
}

TEST(GuideTest, CoroutinesAtBothEnds) {
  EXPECT_EQ(OutputOf("coroutines"), "6 words in 3 calls\n1\n2\n3\n");
}

TEST(GuideTest, InterceptorsRunAroundCallsAndTracesAreCarriedOn) {
  EXPECT_EQ(OutputOf("interceptors"),
            "guide.Notes/CountWords: PERMISSION_DENIED\n"
            "this server is Anna's\n"
            "trace 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\n"
            "guide.Notes/CountWords: OK\n");
}

TEST(GuideTest, LargeValuesStayWhereTheyWereReceived) {
  EXPECT_EQ(OutputOf("attachments"),
            "1048583 bytes are stored\n"
            "1048583 bytes came back, up to \"the end\"\n");
}

TEST(GuideTest, PayloadsComeBack) { EXPECT_EQ(OutputOf("bulk"), "1048576 bytes came back\n"); }

TEST(GuideTest, TheMessagesOfAStreamTellOfPayloads) {
  EXPECT_EQ(OutputOf("bulk_streams"), "5242880 bytes were fetched\n");
}

TEST(GuideTest, MemoryIsUsedInPlace) {
  EXPECT_EQ(OutputOf("remote_memory"), "account 7: 100, then 120\n");
}

TEST(GuideTest, AnApplicationsLoopDrivesTheEngineAndOtherThreadsBlock) {
  EXPECT_EQ(OutputOf("own_loop"), "4 words, and 3 for another thread\n");
}

TEST(GuideTest, AHostGivesItsMemoryThreadsClockAndLog) {
  EXPECT_EQ(OutputOf("hooks"),
            "8 words, each text on its shard's thread\n"
            "4 calls, 1 connection\n"
            "memory: all from the host, but for what peers share\n"
            "log: heard\n");
}

TEST(GuideTest, BothSidesKnowWhoTheOtherIs) {
  const std::string program = "examples/guide/tls";
  const examples::TlsFiles files;
  examples::ChildProcess server(examples::With({program}, files.FlagsOf("server")));
  const std::string address = server.ReadLine();
  const examples::Finished client = examples::RunToEnd(
      examples::With({program, address, "these are words"}, files.FlagsOf("client")));
  EXPECT_EQ(client.status, 0);
  EXPECT_EQ(client.output, "CN=server says: 3 words\n");
  EXPECT_EQ(server.ReadLine(), "CN=client asks");
  EXPECT_EQ(
      examples::RunToEnd(examples::With({program, address, "x"}, files.FlagsOfNobody())).status, 1)
      << "it has no certificate";
}

TEST(GuideTest, AServerThatEndsAnswersWhatItHasBegun) {
  examples::ChildProcess server({"examples/guide/shutdown"});
  const std::string address = server.ReadLine();
  examples::ChildProcess client({"examples/guide/shutdown", address, "these are words"});
  ASSERT_EQ(server.ReadLine(), "counting");
  server.Signal(SIGTERM);
  EXPECT_EQ(client.Wait(), 0);
  EXPECT_EQ(client.output(), "3 words\n");
  EXPECT_EQ(server.Wait(), 0);
  EXPECT_EQ(server.output(), "answered 1\n");
}

TEST(GuideTest, TwoServersThatAreRestartedInTurnLoseNoCall) {
  const std::string program = "examples/guide/shutdown";
  examples::ChildProcess first({program});
  examples::ChildProcess second({program});
  const std::string first_address = first.ReadLine();
  const std::string second_address = second.ReadLine();
  examples::ChildProcess client({program, first_address, second_address, "these are words"});
  ASSERT_EQ(first.ReadLine(), "counting");
  first.Signal(SIGTERM);
  EXPECT_EQ(first.Wait(), 0);
  examples::ChildProcess first_again({program, first_address});
  ASSERT_EQ(first_again.ReadLine(), first_address);
  ASSERT_EQ(second.ReadLine(), "counting");
  second.Signal(SIGTERM);
  EXPECT_EQ(second.Wait(), 0);
  EXPECT_EQ(client.Wait(), 0);
  EXPECT_EQ(client.output(), "3 words each time, and 2 switches\n");
}

}  // namespace
