// Paths that look good and do not come up: the next one carries the connection, in bounded time,
// and both sides can say what happened.

#include <memory>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "transport/control/network_transport.h"
#include "transport/control/testing/network_world.h"
#include "transport/ofi/ofi.h"

namespace weft {
namespace {

// How a path fails.
enum class Fault : uint8_t {
  kNone = 1,
  kCannotOpen = 2,   // the provider is not there
  kRefusesLink = 3,  // Connect() and Accept() fail
  kLinkFails = 4,    // the link goes down instead of up
  kLinkHangs = 5,    // nothing happens
};

class FaultyLink final : public Link {
 public:
  // `polled`: where the domain keeps the link that it is about to poll.
  FaultyLink(Fault fault, LinkHandler* handler, FaultyLink** polled)
      : fault_(fault), handler_(handler), polled_(polled) {}
  ~FaultyLink() override {
    if (*polled_ == this) *polled_ = nullptr;
  }
  void Poll() {
    if (std::exchange(fault_, Fault::kLinkHangs) == Fault::kLinkFails) {
      handler_->OnLinkDown(absl::UnavailableError("the cable is cut"));
    }
  }
  absl::Status Send(SendSlot, uint32_t) override { return absl::UnavailableError("faulty"); }
  absl::Status Read(const Region&, size_t, const RemoteSpan&, Operation*) override {
    return absl::UnavailableError("faulty");
  }
  absl::Status Write(const Region&, size_t, const RemoteSpan&, Operation*) override {
    return absl::UnavailableError("faulty");
  }
  void Abandon() override { fault_ = Fault::kLinkHangs; }

 private:
  Fault fault_;
  LinkHandler* const handler_;
  FaultyLink** const polled_;
};

// A domain that is said to be shared memory and makes links that never work.
class FaultyDomain final : public LinkDomain {
 public:
  explicit FaultyDomain(Fault fault) : fault_(fault) { path_.kind = PathKind::kShm; }

  const PathInfo& path() const override { return path_; }
  const std::string& address() const override { return address_; }
  uint32_t slot_bytes() const override { return 4096; }
  absl::Status AddSlots(uint32_t, uint32_t receive) override {
    stats_.receives_posted += receive;
    return absl::OkStatus();
  }
  void RemoveSlots(uint32_t, uint32_t receive) override { stats_.receives_posted -= receive; }
  SendSlot AcquireSlot() override { return {}; }
  void ReleaseSlot(SendSlot) override {}
  absl::StatusOr<std::unique_ptr<Link>> Connect(const LinkPeer&, LinkHandler* handler) override {
    return Make(handler);
  }
  absl::StatusOr<std::unique_ptr<Link>> Accept(const LinkPeer&, LinkHandler* handler) override {
    return Make(handler);
  }
  absl::StatusOr<std::unique_ptr<Region>> Register(MutableByteSpan, Access) override {
    return absl::UnavailableError("faulty");
  }
  int Poll(int) override {
    if (newest_ == nullptr) return 0;
    std::exchange(newest_, nullptr)->Poll();
    return 1;
  }
  bool Arm() override { return true; }
  int descriptor() const override { return -1; }
  bool busy() const override { return false; }
  const LinkDomainStats& stats() const override { return stats_; }

 private:
  absl::StatusOr<std::unique_ptr<Link>> Make(LinkHandler* handler) {
    if (fault_ == Fault::kRefusesLink) return absl::ResourceExhaustedError("256 peers reached");
    auto link = std::make_unique<FaultyLink>(fault_, handler, &newest_);
    if (fault_ == Fault::kLinkFails) newest_ = link.get();
    return std::unique_ptr<Link>(std::move(link));
  }

  const Fault fault_;
  PathInfo path_;
  std::string address_ = "faulty";
  LinkDomainStats stats_;
  FaultyLink* newest_ = nullptr;
};

std::unique_ptr<Engine> EngineWithFaultyShm(Fault fault) {
  const auto make = [fault](const EngineContext& engine) {
    NetworkTransportOptions options;
    options.providers.resize(2);
    options.providers[0].kind = PathKind::kShm;
    options.providers[0].open =
        [fault](BatchSink* sink) -> absl::StatusOr<std::unique_ptr<LinkDomain>> {
      OfiOptions ofi;
      ofi.sink = sink;
      if (fault == Fault::kNone) return OpenShmDomain(ofi);
      if (fault == Fault::kCannotOpen) return absl::UnavailableError("provider not built in");
      return std::unique_ptr<LinkDomain>(std::make_unique<FaultyDomain>(fault));
    };
    options.providers[1].kind = PathKind::kTcp;
    options.providers[1].open = [](BatchSink* sink) {
      OfiOptions ofi;
      ofi.sink = sink;
      return OpenTcpDomain(ofi);
    };
    options.providers[1].with_host = [](const std::string& address, const std::string& host) {
      return WithHost(address, host);
    };
    return absl::StatusOr<std::unique_ptr<Transport>>(
        std::make_unique<NetworkTransport>(engine, std::move(options)));
  };
  EngineOptions options;
  options.drive = EngineOptions::Drive::kExternal;
  auto engine = Engine::Create(options, make);
  EXPECT_TRUE(engine.ok()) << engine.status();
  return *std::move(engine);
}

struct FaultCase {
  Fault client;
  Fault server;
  const char* reason;  // for shm, in the client's words
};

class FallThroughTest : public NetworkTest, public testing::WithParamInterface<FaultCase> {
 protected:
  void SetUp() override {
    client_ = EngineWithFaultyShm(GetParam().client);
    server_ = EngineWithFaultyShm(GetParam().server);
  }
};

// Short, so that the tests are; what they claim does not depend on it.
ConnectOptions Impatient() {
  ConnectOptions options;
  options.link.path_timeout_ns = 200'000'000;
  options.link.connect_timeout_ns = 20'000'000'000;
  return options;
}

TEST_P(FallThroughTest, TcpCarriesTheConnectionAndBothKnowWhy) {
  acceptor_.echo = true;
  Listen("127.0.0.1:0");
  NetworkEnd* const end = Dial(Impatient());
  ASSERT_TRUE(RunUntilDecided(*end));
  ASSERT_TRUE(end->opened()) << end->why();
  EXPECT_EQ(end->path(), "tcp");
  EXPECT_NE(end->explained().find(GetParam().reason), std::string::npos) << end->explained();
  ASSERT_TRUE(end->Send("all the same"));
  ASSERT_TRUE(Run([&] { return !end->received.empty(); }));
  EXPECT_NE(acceptor_.ends[0]->explained().find("shm   rejected"), std::string::npos)
      << acceptor_.ends[0]->explained();
}

TEST_P(FallThroughTest, WithoutAnotherPathTheConnectFails) {
  Listen("127.0.0.1:0");
  ConnectOptions options = Impatient();
  options.link.paths = {PathKind::kShm};
  NetworkEnd* const end = Dial(options);
  ASSERT_TRUE(RunUntilDecided(*end));
  ASSERT_TRUE(end->closed());
  EXPECT_NE(std::string(end->why().message()).find(GetParam().reason), std::string::npos)
      << end->why();
  // Whoever the server had found to handle it hears of the end as well.
  ASSERT_TRUE(Run([&] { return acceptor_.ends.empty() || acceptor_.ends[0]->closed(); }));
}

INSTANTIATE_TEST_SUITE_P(
    Faults, FallThroughTest,
    testing::Values(FaultCase{Fault::kCannotOpen, Fault::kNone, "client: provider not built in"},
                    FaultCase{Fault::kNone, Fault::kCannotOpen, "server: provider not built in"},
                    FaultCase{Fault::kRefusesLink, Fault::kLinkHangs, "client: 256 peers reached"},
                    FaultCase{Fault::kNone, Fault::kRefusesLink, "server: 256 peers reached"},
                    FaultCase{Fault::kLinkFails, Fault::kLinkHangs, "client: the cable is cut"},
                    FaultCase{Fault::kLinkHangs, Fault::kLinkFails, "server: the cable is cut"},
                    FaultCase{Fault::kLinkHangs, Fault::kLinkHangs,
                              "did not come up within 200 ms"},
                    FaultCase{Fault::kLinkFails, Fault::kLinkFails, "the cable is cut"}));

}  // namespace
}  // namespace weft
