#include "transport/control/rdma_offers.h"

#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "transport/devices/testing/recorded_tree.h"

namespace weft {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kStartNs = 1'000'000'000'000;

// A recorded host, and how often it was read.
class RecordedHost {
 public:
  explicit RecordedHost(const std::string& name) : tree_(name), offers_([this] { return Read(); }) {
    process_.memlock_bytes = ~uint64_t{0};
    process_.wanted_lock_bytes = 69 * kMiB;
  }

  RecordedTree& tree() { return tree_; }
  RdmaProcessFacts& process() { return process_; }
  int reads() const { return reads_; }
  std::vector<PathOffer> Choose(const RdmaFilter& filter = {}, uint64_t now_ns = kStartNs) {
    return offers_.Choose(filter, now_ns);
  }

 private:
  RdmaView Read() {
    ++reads_;
    RdmaView view;
    view.ports = tree_.Ports();
    if (view.ports.empty()) view.why_none = WhyNoRdma(tree_.sources());
    view.process = process_;
    return view;
  }

  RecordedTree tree_;
  RdmaProcessFacts process_;
  int reads_ = 0;
  RdmaOffers offers_;
};

TEST(RdmaOffers, AreAddressesOfPortsWithTheirNetwork) {
  RecordedHost host("rxe");
  const std::vector<PathOffer> offers = host.Choose();
  ASSERT_FALSE(offers.empty());
  EXPECT_EQ(offers[0].unavailable, "");
  EXPECT_EQ(offers[0].device.substr(0, 3), "rxe");
  EXPECT_EQ(offers[0].link, LinkKind::kRoceV2);
  EXPECT_FALSE(offers[0].host.empty());
  EXPECT_GT(offers[0].prefix_bits, 0u);
}

TEST(RdmaOffers, WithoutRdmaOneOfferSaysWhy) {
  RecordedHost host("no_rdma");
  const std::vector<PathOffer> offers = host.Choose();
  ASSERT_EQ(offers.size(), 1u);
  EXPECT_NE(offers[0].unavailable.find("no RDMA device"), std::string::npos)
      << offers[0].unavailable;
  EXPECT_EQ(offers[0].device, "");
}

TEST(RdmaOffers, SayWhatLimitIsTooSmall) {
  RecordedHost host("rxe");
  host.process().memlock_bytes = 8 * kMiB;
  const std::vector<PathOffer> offers = host.Choose();
  ASSERT_FALSE(offers.empty());
  EXPECT_EQ(offers[0].unavailable.find("memlock 8 MiB is too small for the pool of 69 MiB"), 0u)
      << offers[0].unavailable;
}

TEST(RdmaOffers, AreReadOnceInAWhileAndAgainWhenOld) {
  RecordedHost host("rxe");
  for (int i = 0; i < 10; ++i) host.Choose({}, kStartNs + static_cast<uint64_t>(i));
  EXPECT_EQ(host.reads(), 1);
  host.Choose({}, kStartNs + RdmaOffers::kRefreshNs);
  EXPECT_EQ(host.reads(), 2);
}

// The filter belongs to a connection, what was read to the host.
TEST(RdmaOffers, FiltersNeedNoReading) {
  RecordedHost host("rxe");
  EXPECT_EQ(host.Choose()[0].unavailable, "");
  RdmaFilter filter;
  filter.devices = {"mlx5_7"};
  EXPECT_NE(host.Choose(filter)[0].unavailable.find("WEFT_DEVICES"), std::string::npos);
  EXPECT_EQ(host.reads(), 1);
}

TEST(RdmaOffers, FitIntoAHelloHoweverManyPortsThereAre) {
  RdmaOffers offers([] {
    RdmaView view;
    for (uint32_t i = 1; i <= 64; ++i) {
      RdmaPort port;
      port.device = "mlx5_0";
      port.port = i;
      view.ports.push_back(std::move(port));
    }
    return view;
  });
  EXPECT_EQ(offers.Choose({}, kStartNs).size(), kMaxRdmaOffers);
}

TEST(RdmaView, IsReadHere) {
  const RdmaView view = ReadRdmaView(kMiB);
  EXPECT_EQ(view.ports.empty(), !view.why_none.empty());
}

}  // namespace
}  // namespace weft
