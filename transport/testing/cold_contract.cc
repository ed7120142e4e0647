// Of many connections, those that are not used: what is prefetched before they are touched.

#include <memory>
#include <vector>

#include "transport/prefetch_list.h"
#include "transport/testing/contract_test.h"

namespace weft {
namespace {

// Of more than are polled for their own sake.
constexpr size_t kConnections = 20;

// One of a thousand connections met what a message touches line by line, each a miss behind the
// other: 2 us at each side over tcp.
TEST_P(ContractTest, WhatAColdConnectionTouchesIsPrefetchedBeforeItsMessage) {
  std::vector<std::unique_ptr<Endpoint>> clients;
  Listen();
  const auto end = [&](size_t i) -> Endpoint& { return *acceptor_.endpoints[i]; };
  for (size_t i = 0; i < kConnections; ++i) {
    clients.push_back(std::make_unique<Endpoint>());
    Connect(*clients[i]);
    ASSERT_TRUE(Run(
        [&] { return clients[i]->opened() && acceptor_.endpoints.size() > i && end(i).opened(); }));
  }
  size_t were_cold = 0;
  for (size_t call = 0; call < 3 * kConnections; ++call) {
    const size_t i = call % kConnections;
    const PrefetchList& prefetch = end(i).connection().prefetch();
    bool at_message = true;
    end(i).on_message = [&](ByteSpan) { at_message = prefetch.wanted(); };
    were_cold += prefetch.wanted();
    clients[i]->Send("request");
    ASSERT_TRUE(Run([&] { return end(i).received_count == call / kConnections + 1; }));
    EXPECT_FALSE(at_message) << call;
    end(i).Send("reply");
    ASSERT_TRUE(Run([&] { return clients[i]->received.size() == call / kConnections + 1; }));
  }
  for (const auto& client : clients) client->connection().Close("done");
  ASSERT_TRUE(Run([&] {
    for (size_t i = 0; i < kConnections; ++i) {
      if (!clients[i]->closed() || !end(i).closed()) return false;
    }
    return true;
  }));
  if (were_cold == 0) GTEST_SKIP() << "no connection goes cold here";
}

}  // namespace
}  // namespace weft
