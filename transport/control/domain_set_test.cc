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
  void OnReceived(ByteSpan) override {}
};

// A host whose RDMA domains open, or fail, as the test says.
class DomainSetTest : public testing::Test {
 protected:
  void SetUp() override {
    auto poller = Poller::Create();
    ASSERT_TRUE(poller.ok()) << poller.status();
    poller_ = *std::move(poller);
    PathProvider provider;
    provider.kind = PathKind::kVerbs;
    provider.open = [this](const PathOffer&,
                           BatchSink*) -> absl::StatusOr<std::unique_ptr<LinkDomain>> {
      ++opened_;
      if (fault_ == Fault::kCannotOpen) return absl::UnavailableError("port down");
      return std::unique_ptr<LinkDomain>(std::make_unique<FaultyDomain>(fault_));
    };
    std::vector<PathProvider> providers;
    providers.push_back(std::move(provider));
    domains_ = std::make_unique<DomainSet>(std::move(providers), FramingOptions(), poller_.get(),
                                           static_cast<BatchSink*>(&sink_));
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

}  // namespace
}  // namespace weft
