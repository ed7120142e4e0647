// The README's first program does what the README says.
#include <gtest/gtest.h>

#include "examples/testing/child_process.h"

namespace {

constexpr char kEcho[] = "examples/echo/echo";

TEST(EchoTest, OneProcessServesAndAnotherCalls) {
  examples::ChildProcess server({kEcho});
  const std::string address = server.ReadLine();
  const examples::Finished call = examples::RunToEnd({kEcho, address, "hello, world"});
  EXPECT_EQ(call.status, 0);
  EXPECT_EQ(call.output, "hello, world\n");
}

}  // namespace
