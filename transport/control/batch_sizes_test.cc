// Ends that take batches of different sizes over tcp: they agree on the smaller, and who does not
// keep to it loses that connection and no other.

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "transport/control/testing/network_world.h"
#include "transport/control/testing/relay.h"
#include "transport/transfer_table.h"

namespace weft {
namespace {

constexpr uint32_t kWide = TransfersOf(PathKind::kTcp).widest_bytes;

// Too small a pool for wide batches: none is larger than `slot_bytes`.
NetworkOptions Narrow(uint32_t slot_bytes) {
  NetworkOptions options;
  options.slot_bytes = slot_bytes;
  options.max_pool_bytes = uint64_t{32} << 20;
  return options;
}

// Everything that is near a bound of either end, and a byte each way.
std::vector<size_t> Sizes() {
  std::vector<size_t> sizes = {1, 100, 1000, 4096, 16 << 10, 32 << 10, 70 << 10};
  for (const size_t bound : {size_t{8192}, size_t{64} << 10, size_t{kWide}}) {
    for (size_t less = 0; less <= 64; less += 8) sizes.push_back(bound - less);
    sizes.insert(sizes.end(), {bound - 1, bound + 1});
  }
  return sizes;
}

std::string Message(size_t bytes) {
  std::string text(bytes, ' ');
  for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>('a' + (i * 7 + bytes) % 26);
  return text;
}

class BatchSizesTest : public NetworkTest {
 protected:
  void SetUp() override {}
  void Start(const NetworkOptions& server, const NetworkOptions& client) {
    server_ = NewNetworkEngine(server);
    client_ = NewNetworkEngine(client);
    ASSERT_TRUE(server_ != nullptr && client_ != nullptr);
    Listen("127.0.0.1:0");
  }
  // Both ends of a new connection, the client's first.
  std::vector<NetworkEnd*> Open(Relay* relay = nullptr) {
    const size_t before = acceptor_.ends.size();
    ConnectOptions options = Over({PathKind::kTcp});
    options.link.window_slots = window_slots_;
    NetworkEnd* const end =
        DialAt(relay != nullptr ? relay->address() : listener_->address(), options);
    EXPECT_TRUE(Run([&] {
      if (relay != nullptr) relay->Turn();
      return end->closed() ||
             (end->opened() && acceptor_.ends.size() > before && acceptor_.ends.back()->opened());
    }));
    EXPECT_TRUE(end->opened() && !end->closed());
    return {end, acceptor_.ends.back().get()};
  }
  // Messages of every size from each end to the other; small ones may overtake large ones.
  void ExchangeAllSizes(const std::vector<NetworkEnd*>& ends) {
    std::vector<std::string> all;
    for (const size_t bytes : Sizes()) all.push_back(Message(bytes));
    for (NetworkEnd* const end : ends) end->received.clear();
    for (const std::string& message : all) {
      for (NetworkEnd* const end : ends) {
        ASSERT_TRUE(Run([&] { return end->closed() || end->Send(message); }));
        ASSERT_FALSE(end->closed()) << message.size() << ": " << end->why();
      }
    }
    std::sort(all.begin(), all.end());
    for (NetworkEnd* const end : ends) {
      ASSERT_TRUE(Run([&] { return end->closed() || end->received.size() == all.size(); }));
      ASSERT_FALSE(end->closed()) << end->why();
      std::sort(end->received.begin(), end->received.end());
      EXPECT_TRUE(end->received == all);
    }
  }

  uint32_t window_slots_ = 64;  // of the client's connections from now on
};

TEST_F(BatchSizesTest, TwoWideEndsUseWideBatches) {
  Start({}, {});
  const auto ends = Open();
  for (NetworkEnd* const end : ends) EXPECT_GT(end->connection().eager_bytes(), size_t{64} << 10);
  ExchangeAllSizes(ends);
}

TEST_F(BatchSizesTest, ANarrowServerSetsTheSizeForBoth) {
  Start(Narrow(8192), {});
  const auto ends = Open();
  for (NetworkEnd* const end : ends) EXPECT_LT(end->connection().eager_bytes(), 8192u);
  ExchangeAllSizes(ends);
}

TEST_F(BatchSizesTest, ANarrowClientSetsTheSizeForBoth) {
  Start({}, Narrow(8192));
  const auto ends = Open();
  for (NetworkEnd* const end : ends) EXPECT_LT(end->connection().eager_bytes(), 8192u);
  ExchangeAllSizes(ends);
}

// The relay says a larger size to the server than the client has said: so the server sends batches
// that none of the client's receives holds. Each takes one of those that all connections share, so
// it is done as often as there are receives.
TEST_F(BatchSizesTest, ABatchThatNoReceiveHoldsEndsItsConnectionOnly) {
  window_slots_ = 4;
  Start({}, Narrow(16384));
  const auto honest = Open();
  for (uint32_t lie = 0; lie < 2 * window_slots_; ++lie) {
    Relay relay(listener_->address());
    relay.Replace("\x18\x80\x80\x01", "\x18\xC0\x84\x04");  // batch_bytes: 16,384 and 66,112
    const auto lied_to = Open(&relay);
    NetworkEnd* const client = lied_to[0];
    NetworkEnd* const server = lied_to[1];
    ASSERT_LT(client->connection().eager_bytes(), 16384u);
    ASSERT_GT(server->connection().eager_bytes(), size_t{64} << 10);
    ASSERT_TRUE(server->Send(Message(40 << 10)));
    ASSERT_TRUE(Run([&] {
      relay.Turn();
      return client->closed() && server->closed();
    }));
    EXPECT_TRUE(client->received.empty());
  }
  ExchangeAllSizes(honest);
  ExchangeAllSizes(Open());
}

}  // namespace
}  // namespace weft
