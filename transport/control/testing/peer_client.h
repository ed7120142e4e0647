// A client of peer processes, over one path. The test drives it.
//
// Threads: the test's.
#pragma once

#include <cstdlib>
#include <string>

#include "gtest/gtest.h"
#include "transport/control/testing/network_world.h"
#include "transport/control/testing/peer_process.h"

namespace weft {

class PeerClientTest : public NetworkTest, public testing::WithParamInterface<PathKind> {
 protected:
  // Peers get it from this process. (ofi_tcp has to be named.)
  PeerClientTest() {
    setenv("WEFT_PATHS", std::string(PathKindName(GetParam())).c_str(), /*overwrite=*/1);
  }
  ~PeerClientTest() override { unsetenv("WEFT_PATHS"); }

  template <class Done>
  bool RunClient(Done done) {
    return RunEngines({client_.get()}, [&] {
      OnTurn();
      return done();
    });
  }
  NetworkEnd* Open(const std::string& address) {
    NetworkEnd* const end = DialAt(address, Over({GetParam()}));
    EXPECT_TRUE(RunClient([&] { return end->opened() || end->closed(); }));
    EXPECT_TRUE(end->opened()) << end->why();
    return end;
  }
  NetworkEnd* Open(const Peer& peer) { return Open(peer.address()); }
  void ExpectEcho(NetworkEnd* end) {
    const size_t before = end->received.size();
    ASSERT_TRUE(end->Send("are you there?"));
    ASSERT_TRUE(RunClient([&] { return end->received.size() > before || end->closed(); }));
    EXPECT_FALSE(end->closed()) << end->why();
  }

 private:
  // Before each look at whether RunClient() is done.
  virtual void OnTurn() {}
};

}  // namespace weft
