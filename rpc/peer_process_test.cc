// A peer in a process of its own, which dials this one, is killed, and comes back.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <utility>

#include "rpc/client/channel.h"
#include "rpc/server/server.h"
#include "rpc/testing/probe_service.h"
#include "rpc/testing/server_process.h"
#include "weft/status.h"

namespace weft::test {
namespace {

TEST(PeerProcessTest, AKilledPeerFailsItsCallsAndItsSuccessorIsFound) {
  ServerOptions options;
  options.peer_id = "parent";
  auto server = *Server::Create(options);
  ASSERT_TRUE(server->Listen("127.0.0.1:0").ok());
  auto channel = *server->OpenPeer("child", "", {});  // the child dials
  Probe::Stub stub(*channel);
  const CallOptions patient = {.timeout_us = 60'000'000, .wait_for_server = true};
  for (int i = 0; i < 3; ++i) {
    ServerProcess child("127.0.0.1:0", {"child", "parent", server->address()});
    Data reply;
    for (uint64_t number = 0; number < 100; ++number) {
      const absl::Status status = stub.Echo(MakeData(number, 100), &reply, patient);
      ASSERT_TRUE(status.ok()) << status;
      ASSERT_EQ(reply.number(), number);
    }
    EXPECT_EQ(server->stats().peers, 1u);
    // A call that the child never answers.
    absl::Status lost;
    int completions = 0;
    std::atomic<bool> done = false;
    stub.Hold(MakeData(1, 1), &reply, patient, [&](absl::Status status) {
      lost = std::move(status);
      ++completions;
      done.store(true);
      done.notify_one();
    });
    child.Kill();
    done.wait(false);
    EXPECT_TRUE(absl::IsUnavailable(lost)) << lost;
    EXPECT_EQ(completions, 1);
  }
}

}  // namespace
}  // namespace weft::test
