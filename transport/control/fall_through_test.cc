// Paths that look good and do not come up: the next one carries the connection, in bounded time,
// and both sides can say what happened.

#include <memory>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "transport/control/network_transport.h"
#include "transport/control/testing/faulty_domain.h"
#include "transport/control/testing/network_world.h"
#include "transport/control/testing/two_path_engine.h"
#include "transport/shm/shm.h"

namespace weft {
namespace {

std::unique_ptr<Engine> EngineWithFaultyShm(Fault fault) {
  return TwoPathEngine([fault] {
    PathProvider shm;
    shm.kind = PathKind::kShm;
    shm.open = [fault](const PathOffer&,
                       BatchSink* sink) -> absl::StatusOr<std::unique_ptr<LinkDomain>> {
      ShmOptions shm_options;
      shm_options.sink = sink;
      if (fault == Fault::kNone) return OpenShmDomain(shm_options);
      if (fault == Fault::kCannotOpen) return absl::UnavailableError("provider not built in");
      return std::unique_ptr<LinkDomain>(std::make_unique<FaultyDomain>(fault));
    };
    return shm;
  });
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
                    FaultCase{Fault::kRefusesLink, Fault::kLinkHangs, "client: no slots left"},
                    FaultCase{Fault::kNone, Fault::kRefusesLink, "server: no slots left"},
                    FaultCase{Fault::kLinkFails, Fault::kLinkHangs, "client: the cable is cut"},
                    FaultCase{Fault::kLinkHangs, Fault::kLinkFails, "server: the cable is cut"},
                    FaultCase{Fault::kLinkHangs, Fault::kLinkHangs,
                              "did not come up within 1000 ms"},
                    FaultCase{Fault::kLinkFails, Fault::kLinkFails, "the cable is cut"}));

}  // namespace
}  // namespace weft
