#include "rpc/client/server_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace weft {
namespace {

class Addresses {
 public:
  explicit Addresses(uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) texts_.push_back("10.0.0." + std::to_string(i) + ":4711");
  }
  void Remove(uint32_t at) { texts_.erase(texts_.begin() + at); }
  std::vector<std::string_view> views() const { return {texts_.begin(), texts_.end()}; }
  const std::string& at(uint32_t i) const { return texts_[i]; }

 private:
  std::vector<std::string> texts_;
};

std::set<std::string> PartOf(const Addresses& all, uint32_t most, uint32_t client) {
  std::set<std::string> part;
  for (const uint32_t at : SubsetOf(all.views(), most, client)) part.insert(all.at(at));
  return part;
}

// --- the ring -----------------------------------------------------------------------------------

TEST(HashRingTest, SpreadsKeysOverAllServers) {
  const Addresses servers(20);
  HashRing ring;
  ring.Build(servers.views());
  ASSERT_EQ(ring.size(), 20 * HashRing::kPoints);
  std::vector<int> keys(20);
  for (uint64_t key = 1; key <= 20'000; ++key) ++keys[ring.ServerAt(ring.Find(key))];
  const auto [least, most] = std::minmax_element(keys.begin(), keys.end());
  EXPECT_GT(*least, 700);  // of 1000
  EXPECT_LT(*most, 1300);
}

TEST(HashRingTest, MovesOnlyTheKeysOfAServerThatGoes) {
  Addresses servers(20);
  HashRing before;
  before.Build(servers.views());
  const std::string gone = servers.at(7);
  Addresses left = servers;
  left.Remove(7);
  HashRing after;
  after.Build(left.views());
  for (uint64_t key = 1; key <= 5000; ++key) {
    const std::string& old = servers.at(before.ServerAt(before.Find(key)));
    const std::string& now = left.at(after.ServerAt(after.Find(key)));
    if (old != gone) {
      EXPECT_EQ(now, old) << key;
    }
  }
}

TEST(HashRingTest, KeysOfTextAreTheSameInEveryVersion) {
  // Computed by another program.
  EXPECT_EQ(ServerKeyOf("user:7"), 977887655448102184u);
  EXPECT_NE(ServerKeyOf("user:7"), ServerKeyOf("user:8"));
  EXPECT_NE(ServerKeyOf(""), 0u);
}

// --- subsets ------------------------------------------------------------------------------------

TEST(SubsetTest, IsAllOfAShortList) {
  const Addresses servers(5);
  EXPECT_EQ(SubsetOf(servers.views(), 5, 3), (std::vector<uint32_t>{0, 1, 2, 3, 4}));
}

// Parts begin where van der Corput's sequence says. A server's clients are those whose part begins
// in the stretch of kPart places that ends at it, and of the sequence's first N points every
// stretch has its share, but for log2(N) / 3 + 1 at most (R. Bejian, H. Faure, Discrepance de la
// suite de van der Corput, 1977). If parts began at random, shares would have the deviation of
// chance, and of 4000 servers with two clients each in the mean more than 500 would have none.
TEST(SubsetTest, GivesEveryServerNearlyAsManyClients) {
  constexpr uint32_t kPart = 20;
  struct Size {
    uint32_t servers;
    uint32_t clients;
  };
  for (const auto [count, clients] : {Size{300, 100}, Size{300, 333}, Size{4000, 400}}) {
    SCOPED_TRACE(std::to_string(count) + " servers, " + std::to_string(clients) + " clients");
    const Addresses servers(count);
    std::map<std::string, int> load;
    for (uint32_t client = 0; client < clients; ++client) {
      const std::set<std::string> part = PartOf(servers, kPart, client);
      ASSERT_EQ(part.size(), kPart);
      for (const std::string& server : part) ++load[server];
    }
    ASSERT_EQ(load.size(), count) << "a server without clients";
    const double share = double{kPart} / count;
    const double mean = clients * share;
    const double most = std::log2(clients) / 3 + 1;
    double squares = 0;
    for (const auto& [server, its_clients] : load) {
      EXPECT_NEAR(its_clients, mean, most) << server;
      squares += (its_clients - mean) * (its_clients - mean);
    }
    const double deviation_of_chance = std::sqrt(mean * (1 - share));
    EXPECT_LT(std::sqrt(squares / count), deviation_of_chance / 2);
  }
}

TEST(SubsetTest, ChangesLittleWhenAServerComesOrGoes) {
  const Addresses servers(300);
  Addresses fewer = servers;
  fewer.Remove(121);
  for (uint32_t client = 0; client < 100; ++client) {
    const std::set<std::string> before = PartOf(servers, 20, client);
    const std::set<std::string> after = PartOf(fewer, 20, client);
    int kept = 0;
    for (const std::string& server : after) kept += static_cast<int>(before.count(server));
    EXPECT_GE(kept, 18) << client;
  }
}

// --- success rates ------------------------------------------------------------------------------

TEST(LowRatesTest, FindsTheServerThatFailsMoreThanTheOthers) {
  std::vector<SuccessCount> servers(10, {100, 0});
  servers[4] = {60, 40};
  EXPECT_EQ(LowRates(servers), (std::vector<uint32_t>{4}));
}

TEST(LowRatesTest, SaysNothingOfAFailureThatAllShare) {
  const std::vector<SuccessCount> servers(10, {20, 80});
  EXPECT_TRUE(LowRates(servers).empty());
}

// One failure in ten thousand lies many deviations below where all others have none.
TEST(LowRatesTest, LetsASingleFailurePass) {
  std::vector<SuccessCount> servers(10, {10'000, 0});
  servers[4] = {9'999, 1};
  EXPECT_TRUE(LowRates(servers).empty());
}

TEST(LowRatesTest, SaysNothingOfFewServersOrFewAnswers) {
  std::vector<SuccessCount> few(4, {100, 0});
  few[1] = {0, 100};
  EXPECT_TRUE(LowRates(few).empty());
  std::vector<SuccessCount> seldom(10, {100, 0});
  seldom[1] = {0, 49};
  EXPECT_TRUE(LowRates(seldom).empty());
}

}  // namespace
}  // namespace weft
