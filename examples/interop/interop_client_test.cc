// The client of the scenarios says what differs, and fails; that they pass is interop_test's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/status/status.h"
#include "examples/interop/expectations.h"
#include "examples/testing/server_process.h"
#include "examples/testing/tls_files.h"

namespace interop {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kClient[] = "examples/interop/interop_client";
constexpr char kServer[] = "examples/interop/interop_server";

TEST(ExpectationsTest, WhatIsAsExpectedIsNoFailure) {
  Expectations expect;
  expect.Number("replies", 4, 4);
  expect.Text("value", "text", "text");
  expect.Zeros("the reply", 2, std::string(2, '\0'));
  expect.Ok("the call", absl::OkStatus());
  expect.Code("the end", absl::StatusCode::kCancelled, absl::CancelledError("in any words"));
  expect.Status("the end", absl::UnknownError("text"), absl::UnknownError("text"));
  EXPECT_THAT(expect.failures(), IsEmpty());
}

TEST(ExpectationsTest, WhatDiffersIsSaidBesideWhatWasExpected) {
  Expectations expect;
  expect.Number("replies", 4, 3);
  expect.Text("value", "\xab", "");
  expect.Zeros("the reply", 2, std::string("\0x", 2));
  expect.Ok("the call", absl::AbortedError("a\n"));
  expect.Code("the end", absl::StatusCode::kCancelled, absl::OkStatus());
  expect.Status("the end", absl::UnknownError("text"), absl::UnknownError("tex"));
  EXPECT_THAT(expect.failures(),
              ElementsAre("replies: expected 4, came 3", R"(value: expected "\xab", came "")",
                          "zeros in the reply: expected 2, came 1",
                          R"(the call: expected OK, came ABORTED "a\n")",
                          "the end: expected CANCELLED, came OK",
                          R"(the end: expected UNKNOWN "text", came UNKNOWN "tex")"));
}

TEST(InteropClientTest, WithoutAServerEveryScenarioFails) {
  const examples::Finished client =
      examples::RunToEnd({kClient, "--server=127.0.0.1:1", "--paths=tcp"});
  EXPECT_EQ(client.status, 1);
  EXPECT_THAT(client.output, HasSubstr("connecting: expected OK, came UNAVAILABLE"));
  EXPECT_THAT(client.output, HasSubstr("\n0 passed, 14 failed\n"));
}

TEST(InteropClientTest, EveryScenarioPassesByTlsToo) {
  const examples::TlsFiles files;
  examples::ServerProcess server(examples::With({kServer}, files.FlagsOf("server")));
  const examples::Finished client = examples::RunToEnd(
      examples::With({kClient, "--server=" + server.address()}, files.FlagsOf("client")));
  EXPECT_EQ(client.status, 0) << client.output;
  EXPECT_THAT(client.output, HasSubstr("\n28 passed, 0 failed\n"));
  server.Signal(SIGTERM);
  EXPECT_EQ(server.Wait(), 0);
}

TEST(InteropClientTest, ACommandLineThatIsWrongIsSaidSo) {
  EXPECT_EQ(examples::RunToEnd({kClient, "--server=127.0.0.1:1", "--tls-kye=k"}).status, 2);
  EXPECT_EQ(examples::RunToEnd({kServer, "--tls-kye=k"}).status, 2);
  EXPECT_EQ(examples::RunToEnd({kClient}).status, 2);
  EXPECT_EQ(examples::RunToEnd({kClient, "--server=127.0.0.1:1", "surplus"}).status, 2);
  EXPECT_EQ(examples::RunToEnd({kClient, "--server=127.0.0.1:1", "--paths=pigeon"}).status, 2);
}

}  // namespace
}  // namespace interop
