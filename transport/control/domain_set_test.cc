#include "transport/control/domain_set.h"

#include <memory>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "transport/control/testing/faulty_domain.h"

namespace weft {
namespace {

constexpr uint64_t kStartNs = 1'000'000'000'000;

class NoSink final : public BatchSink {
  void OnReceived(ByteSpan, LinkHandler*) override {}
};

// A host whose RDMA domains open, or fail, as the test says.
class DomainSetTest : public testing::Test {
 protected:
  void SetUp() override {
    auto poller = Poller::Create();
    ASSERT_TRUE(poller.ok()) << poller.status();
    poller_ = *std::move(poller);
    std::vector<PathProvider> providers;
    providers.push_back(Provider(PathKind::kVerbs));
    providers.push_back(Provider(PathKind::kOfiTcp));
    providers.back().is_bound_to_host = true;
    domains_ = std::make_unique<DomainSet>(std::move(providers), FramingOptions(), poller_.get(),
                                           static_cast<BatchSink*>(&sink_));
  }
  PathProvider Provider(PathKind kind) {
    PathProvider provider;
    provider.kind = kind;
    provider.open = [this](const PathOffer&,
                           BatchSink*) -> absl::StatusOr<std::unique_ptr<LinkDomain>> {
      ++opened_;
      if (fault_ == Fault::kCannotOpen) return absl::UnavailableError("port down");
      return std::unique_ptr<LinkDomain>(std::make_unique<FaultyDomain>(fault_));
    };
    return provider;
  }
  absl::StatusOr<FramingDomain*> Open(const std::string& host, uint64_t now_ns = kStartNs) {
    PathOffer offer;
    offer.kind = PathKind::kVerbs;
    offer.device = "mlx5_0:1";
    offer.host = host;
    return domains_->Open(offer, now_ns);
  }

  NoSink sink_;
  std::unique_ptr<Poller> poller_;
  std::unique_ptr<DomainSet> domains_;
  Fault fault_ = Fault::kNone;
  int opened_ = 0;
};

TEST_F(DomainSetTest, OpensOneDomainForEachAddress) {
  const auto first = Open("10.0.0.1");
  const auto second = Open("10.0.0.2");
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE(*first, *second);
  EXPECT_EQ(*Open("10.0.0.1"), *first);
  EXPECT_EQ(opened_, 2);
}

TEST_F(DomainSetTest, RemembersAFailureForAWhile) {
  fault_ = Fault::kCannotOpen;
  EXPECT_FALSE(Open("10.0.0.1").ok());
  fault_ = Fault::kNone;
  const auto early = Open("10.0.0.1", kStartNs + DomainSet::kRetryOpenNs - 1);
  EXPECT_EQ(early.status(), absl::UnavailableError("port down"));
  EXPECT_TRUE(Open("10.0.0.2").ok()) << "another address is another matter";
  EXPECT_TRUE(Open("10.0.0.1", kStartNs + DomainSet::kRetryOpenNs).ok());
}

// A card that was reset took its domain with it, and every later connection until the process
// ended. What comes back must not need a new process.
TEST_F(DomainSetTest, ReplacesADomainThatHasLostItsDevice) {
  fault_ = Fault::kLost;
  const auto lost = Open("10.0.0.1");
  ASSERT_TRUE(lost.ok());
  fault_ = Fault::kNone;
  const auto early = Open("10.0.0.1", kStartNs + 1);
  EXPECT_EQ(early.status(), absl::UnavailableError("the device is gone"));
  const auto next = Open("10.0.0.1", kStartNs + DomainSet::kRetryOpenNs);
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_NE(*next, *lost);
  EXPECT_EQ(*Open("10.0.0.1", kStartNs + DomainSet::kRetryOpenNs + 1), *next);
}

TEST_F(DomainSetTest, OpensABoundedNumber) {
  for (size_t i = 0; i < DomainSet::kMaxDomains; ++i) {
    ASSERT_TRUE(Open("10.0.0." + std::to_string(i)).ok());
  }
  EXPECT_EQ(Open("10.0.1.1").status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(Open("10.0.0.1").ok()) << "those that are open go on";
}

// Whoever reaches a host by all of 127.0.0.0/8 would otherwise use up the domains of all paths.
TEST_F(DomainSetTest, BindsAPathToAFewHostsOnly) {
  const auto open_at = [this](const std::string& host) {
    PathOffer offer;
    offer.kind = PathKind::kOfiTcp;
    offer.host = host;
    return domains_->Open(offer, kStartNs);
  };
  const auto open = [&](size_t i) { return open_at("127.0.0." + std::to_string(i)); };
  for (size_t i = 0; i < DomainSet::kMaxHosts; ++i) ASSERT_TRUE(open(i).ok());
  for (size_t i = DomainSet::kMaxHosts; i < 256; ++i) {
    EXPECT_EQ(open(i).status().code(), absl::StatusCode::kResourceExhausted);
  }
  EXPECT_TRUE(open(0).ok()) << "those that are open go on";
  EXPECT_TRUE(open_at("").ok()) << "and this side may be a client";
  EXPECT_TRUE(Open("10.0.0.1").ok()) << "and other paths are not concerned";
}

TEST_F(DomainSetTest, OffersAPathAtTheHostThatThePeerHasReached) {
  PathPolicy policy;
  policy.allowed = {PathKind::kVerbs, PathKind::kOfiTcp};
  const std::vector<PathOffer> offers = domains_->Offers(policy, kStartNs, "10.0.0.7");
  ASSERT_EQ(offers.size(), 2u);
  EXPECT_EQ(offers[0].host, "");
  EXPECT_EQ(offers[1].host, "10.0.0.7");
  domains_->OpenBest(policy, kStartNs);
  EXPECT_EQ(opened_, 1) << "of the other nobody knows yet where";
}

}  // namespace
}  // namespace weft
