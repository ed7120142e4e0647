// The two handshakes by themselves: what they answer to each event, in each of their states. No
// socket and no link: frames are handed over by the test, time is moved by it.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "gtest/gtest.h"
#include "transport/control/accept_handshake.h"
#include "transport/control/dial_handshake.h"
#include "transport/control/host_facts.h"
#include "transport/control/negotiate.h"
#include "transport/control/testing/faulty_domain.h"
#include "transport/framing/connection_table.h"

namespace weft {
namespace {

using Decision = HandshakeStep::Decision;
using Message = HandshakeStep::Message;

class NoAcceptor final : public Acceptor {
  absl::StatusOr<ConnectionHandler*> OnIncoming(Connection&) override {
    return absl::InternalError("not asked here");
  }
};

PathProvider Provider(PathKind kind, const bool* opens) {
  PathProvider provider;
  provider.kind = kind;
  provider.link = LinkKind::kIp;
  provider.provider = "test";
  provider.open = [opens](const PathOffer&,
                          BatchSink*) -> absl::StatusOr<std::unique_ptr<LinkDomain>> {
    if (!*opens) return absl::UnavailableError("no such provider");
    return std::unique_ptr<LinkDomain>(std::make_unique<FaultyDomain>(Fault::kLinkHangs));
  };
  return provider;
}

constexpr Nonce128 kOwnProof = {11, 12};
constexpr Nonce128 kPeersProof = {21, 22};

// One side: its paths, and the handshake about its connection.
struct Side {
  Side() : poller(*Poller::Create()), table(4) {
    std::vector<PathProvider> providers;
    providers.push_back(Provider(PathKind::kShm, &shm_opens));
    providers.push_back(Provider(PathKind::kTcp, &tcp_opens));
    domains =
        std::make_unique<DomainSet>(std::move(providers), FramingOptions{}, poller.get(), &table);
  }
  OwnSide own() { return {domains.get(), &clock, &neighbour, limits}; }
  OwnConnection connection() { return {7, 77, 777, &facts, {}, 0, kOwnProof}; }

  bool shm_opens = true;
  bool tcp_opens = true;
  FakeClock clock;
  std::unique_ptr<Poller> poller;
  ConnectionTable table;
  std::unique_ptr<DomainSet> domains;
  Neighbour neighbour;
  ControlLimits limits;
  ConnectionFacts facts;
};

constexpr uint32_t kShm = 0;  // candidates
constexpr uint32_t kTcp = 1;

template <class Handshake>
HandshakeStep Hear(Handshake& handshake, ControlType type, const std::string& body) {
  ControlFrame frame;
  frame.type = type;
  frame.body = AsBytes(body);
  return handshake.OnFrame(frame);
}

// What a step sends, by name: "PathFailed PathTry".
std::string Sent(const HandshakeStep& step) {
  std::string names;
  for (const Message& message : step.send) {
    names += (names.empty() ? "" : " ") + ControlTypeName(message.type);
  }
  return names;
}

// --- the client's --------------------------------------------------------------------------------

class DialHandshakeTest : public testing::Test {
 protected:
  DialHandshakeTest() { Restart(); }
  void Restart() {
    DialTerms terms;
    terms.server = "server:1";
    terms.policy = *ReadPathPolicy(Only({PathKind::kShm, PathKind::kTcp}));
    terms.deadline_ns = side_.clock.NowNs() + terms.options.link.connect_timeout_ns;
    dial_ = std::make_unique<DialHandshake>(side_.own(), side_.connection(), std::move(terms));
  }
  static LinkOptions Only(std::vector<PathKind> paths) {
    LinkOptions options;
    options.paths = std::move(paths);
    return options;
  }
  ServerHello Answer(bool with_shm) {
    ServerHello hello;
    hello.version = 1;
    hello.host = ReadHostFacts();
    hello.paths = {{PathKind::kShm, "test", 0, "", ""}, {PathKind::kTcp, "test", 0, "", ""}};
    hello.paths[1].link = LinkKind::kIp;
    hello.candidates = {{0, 0, with_shm ? "" : "different hosts"}, {1, 1, ""}};
    hello.local_socket = "weft-test";
    return hello;
  }
  HandshakeStep Greeted(bool with_shm = false) {
    EXPECT_EQ(Sent(dial_->Begin("127.0.0.1:4711")), "ClientHello");
    return Hear(*dial_, ControlType::kServerHello, Encode(Answer(with_shm)));
  }
  HandshakeStep Ready(uint32_t candidate) {
    return Hear(*dial_, ControlType::kPathReady,
                Encode(PathReady{candidate, "peer", {5, 6}, 4096}));
  }
  PathCandidate& candidate(uint32_t index) { return side_.facts.candidates[index]; }

  Side side_;
  std::unique_ptr<DialHandshake> dial_;
};

TEST_F(DialHandshakeTest, OpensInTheOrderOfItsStates) {
  HandshakeStep step = Greeted();
  EXPECT_EQ(Sent(step), "PathTry");
  EXPECT_EQ(dial_->state(), DialHandshake::State::kTrying);
  EXPECT_EQ(DecodePathTry(AsBytes(step.send[0].body))->candidate, kTcp);

  step = Ready(kTcp);
  EXPECT_EQ(step.decision, Decision::kStartLink);
  ASSERT_TRUE(step.link.has_value());
  EXPECT_TRUE(step.link->active);
  EXPECT_EQ(step.link->candidate, kTcp);
  EXPECT_EQ(step.link->peer.nonce, 5u);
  EXPECT_EQ(step.link->peer.nonce_low, 6u);
  EXPECT_EQ(step.link->peer.address, "127.0.0.1:4711") << "where the server listens for all";
  EXPECT_EQ(dial_->state(), DialHandshake::State::kLinking);

  step = dial_->OnLinkUp();
  EXPECT_EQ(Sent(step), "PathUp");
  EXPECT_EQ(dial_->state(), DialHandshake::State::kConfirming);

  step = Hear(*dial_, ControlType::kOpen, EncodeOpen(kTcp));
  EXPECT_EQ(step.decision, Decision::kOpen);
  EXPECT_EQ(candidate(kTcp).outcome, PathCandidate::Outcome::kChosen);
}

TEST_F(DialHandshakeTest, ProofsOfBatchesAreOfUseWhereTheServerKnowsThem) {
  for (const bool knows : {true, false}) {
    Restart();
    const std::string said = dial_->Begin("127.0.0.1:4711").send[0].body;
    EXPECT_EQ(DecodeClientHello(AsBytes(said))->batch_proof, kOwnProof);
    ServerHello answer = Answer(/*with_shm=*/false);
    answer.batch_proof = kPeersProof;
    if (knows) answer.features = {kProofsFeature};
    Hear(*dial_, ControlType::kServerHello, Encode(answer));
    const HandshakeStep step = Ready(kTcp);
    ASSERT_TRUE(step.link.has_value());
    EXPECT_EQ(step.link->agreement.has_proofs, knows);
    EXPECT_EQ(step.link->agreement.send_proof, kPeersProof);
    EXPECT_EQ(step.link->agreement.receive_proof, kOwnProof);
  }
}

TEST_F(DialHandshakeTest, SharedMemoryIsProvedFirstAndABusySocketIsAskedAgain) {
  HandshakeStep step = Greeted(/*with_shm=*/true);
  EXPECT_EQ(step.decision, Decision::kProve);
  ASSERT_TRUE(step.proof.has_value());
  EXPECT_EQ(step.proof->local_socket, "weft-test");
  EXPECT_EQ(dial_->state(), DialHandshake::State::kProving);

  const uint64_t before_ns = dial_->alarm_ns();
  EXPECT_EQ(dial_->OnProofBusy().decision, Decision::kWait);
  EXPECT_LT(dial_->alarm_ns(), before_ns);
  side_.clock.Set(dial_->alarm_ns());
  EXPECT_EQ(dial_->OnAlarm().decision, Decision::kProve);
  EXPECT_EQ(dial_->alarm_ns(), before_ns) << "asking again does not add to the candidate's time";

  step = dial_->OnProof(Neighbour());
  EXPECT_EQ(Sent(step), "PathTry");
  EXPECT_EQ(DecodePathTry(AsBytes(step.send[0].body))->candidate, kShm);
}

TEST_F(DialHandshakeTest, AFailedProofGivesWayToTheNextCandidate) {
  Greeted(/*with_shm=*/true);
  const HandshakeStep step = dial_->OnProof(absl::FailedPreconditionError("another namespace"));
  EXPECT_TRUE(step.drop_attempt);
  EXPECT_EQ(Sent(step), "PathFailed PathTry");
  EXPECT_EQ(candidate(kShm).reason, "another namespace");
  EXPECT_EQ(dial_->state(), DialHandshake::State::kTrying);
}

// A busy socket's retry was not cancelled once, when its candidate's time was over.
TEST_F(DialHandshakeTest, ACandidatesTimeIsItsOwn) {
  Greeted(/*with_shm=*/true);
  const uint64_t end_ns = dial_->alarm_ns();
  side_.clock.Set(end_ns - 1);
  dial_->OnProofBusy();
  side_.clock.Set(end_ns);
  const HandshakeStep step = dial_->OnAlarm();
  EXPECT_EQ(Sent(step), "PathFailed PathTry");
  EXPECT_EQ(candidate(kShm).reason,
            "it did not come up within 1000 ms (LinkOptions::path_timeout_ns)");
  EXPECT_EQ(dial_->alarm_ns(), end_ns + ConnectOptions().link.path_timeout_ns);
}

TEST_F(DialHandshakeTest, ALinkThatFailsEndsTheConnectWhereItWasTheLast) {
  Greeted();
  Ready(kTcp);
  const HandshakeStep step = dial_->OnLinkDown(absl::UnavailableError("the cable is cut"));
  EXPECT_TRUE(step.drop_attempt);
  EXPECT_EQ(Sent(step), "PathFailed Bye");
  EXPECT_EQ(step.decision, Decision::kEnd);
  EXPECT_TRUE(absl::IsUnavailable(step.why)) << step.why;
  EXPECT_EQ(candidate(kTcp).reason, "client: the cable is cut");
}

TEST_F(DialHandshakeTest, AProviderThatCannotBeOpenedIsGivenUpUntried) {
  side_.tcp_opens = false;
  const HandshakeStep step = Greeted();
  EXPECT_EQ(Sent(step), "PathFailed Bye");
  EXPECT_EQ(candidate(kTcp).reason, "client: no such provider");
}

TEST_F(DialHandshakeTest, WhatIsAboutAnotherCandidateIsIgnored) {
  Greeted();
  EXPECT_EQ(Ready(kShm).decision, Decision::kWait);
  EXPECT_EQ(Sent(Hear(*dial_, ControlType::kPathFailed, Encode(PathFailed{kShm, "no"}))), "");
  EXPECT_EQ(dial_->state(), DialHandshake::State::kTrying);
  // But an Open is not: the server believes that the connection is open.
  EXPECT_TRUE(absl::IsUnavailable(Hear(*dial_, ControlType::kOpen, EncodeOpen(kShm)).why));
}

TEST_F(DialHandshakeTest, AServerThatBreaksTheOrderIsToldSo) {
  const struct {
    ControlType type;
    std::string body;
  } kRude[] = {
      {ControlType::kServerHello, Encode(Answer(false))},  // a second one
      {ControlType::kOpen, EncodeOpen(kTcp)},              // before the link is up
      {ControlType::kPathUp, EncodePathUp(kTcp)},          // the client's
      {ControlType::kGrant, ""},
      {ControlType::kPathReady, "\xff\xff\xff"},
  };
  for (const auto& rude : kRude) {
    side_.facts = {};
    Restart();
    Greeted();
    const HandshakeStep step = Hear(*dial_, rude.type, rude.body);
    EXPECT_EQ(step.decision, Decision::kEnd) << ControlTypeName(rude.type);
    EXPECT_TRUE(absl::IsDataLoss(step.why)) << step.why;
    EXPECT_EQ(Sent(step), "Bye");
  }
}

TEST_F(DialHandshakeTest, ARefusalAndTheDeadlineEndIt) {
  dial_->Begin("127.0.0.1:4711");
  HandshakeStep step =
      Hear(*dial_, ControlType::kRefusal, EncodeRefusal(absl::ResourceExhaustedError("full")));
  EXPECT_EQ(step.decision, Decision::kEnd);
  EXPECT_TRUE(absl::IsResourceExhausted(step.why)) << step.why;
  EXPECT_EQ(Sent(step), "");

  Restart();
  dial_->Begin("127.0.0.1:4711");
  EXPECT_EQ(dial_->OnAlarm().decision, Decision::kWait) << "early";
  side_.clock.Set(dial_->alarm_ns());
  step = dial_->OnAlarm();
  EXPECT_EQ(step.why, absl::UnavailableError("connect to server:1: no success within 5000 ms, "
                                             "waiting for the server's hello"));
}

// --- the server's --------------------------------------------------------------------------------

class AcceptHandshakeTest : public testing::Test {
 protected:
  AcceptHandshakeTest()
      : listener_(&acceptor_, ListenOptions(),
                  *ReadPathPolicy(DialOptions({PathKind::kShm, PathKind::kTcp})),
                  std::make_shared<SharedListener>(/*load=*/nullptr)) {
    listener_.local_socket = "weft-test";
    Restart();
  }
  static LinkOptions DialOptions(std::vector<PathKind> paths) {
    LinkOptions options;
    options.paths = std::move(paths);
    return options;
  }
  void Restart() {
    accept_.reset();
    side_.facts = {};
    accept_ = std::make_unique<AcceptHandshake>(side_.own(), &listener_);
  }
  ClientHello Hello() {
    ClientHello hello;
    hello.versions = kProtocolVersions;
    hello.paths = {{PathKind::kShm, "test", 0, "", ""}, {PathKind::kTcp, "test", 0, "", ""}};
    hello.paths[1].link = LinkKind::kIp;
    hello.host = ReadHostFacts();
    return hello;
  }
  HandshakeStep Greet(const ClientHello& hello) {
    return Hear(*accept_, ControlType::kClientHello, Encode(hello));
  }
  // The handshake has offered its paths.
  ServerHello Offered() {
    EXPECT_EQ(Greet(Hello()).decision, Decision::kAdmit);
    EXPECT_TRUE(accept_->Decide(side_.connection()));
    const HandshakeStep step = accept_->Offer();
    EXPECT_EQ(Sent(step), "ServerHello");
    return *DecodeServerHello(AsBytes(step.send[0].body));
  }
  // One for each of as many others, so that nobody has two.
  void TakeAllConnections() {
    for (uint64_t i = 1; i <= listener_.options.max_connections; ++i) {
      ASSERT_TRUE(listener_.TakeConnection(i).ok());
    }
  }
  void EndAllConnections() {
    for (uint64_t i = 1; i <= listener_.options.max_connections; ++i) {
      listener_.EndConnection(i);
    }
    EXPECT_EQ(listener_.shared->connections(), 0u);
  }
  HandshakeStep Try(uint32_t candidate) {
    return Hear(*accept_, ControlType::kPathTry, Encode(PathTry{candidate, "peer", 4096}));
  }

  NoAcceptor acceptor_;
  Side side_;
  ListenerState listener_;
  std::unique_ptr<AcceptHandshake> accept_;
};

TEST_F(AcceptHandshakeTest, OpensWhenBothSidesAreUpInEitherOrder) {
  for (const bool client_first : {true, false}) {
    Restart();
    Offered();
    HandshakeStep step = Try(kTcp);
    EXPECT_EQ(step.decision, Decision::kStartLink);
    EXPECT_EQ(Sent(step), "PathReady");
    ASSERT_TRUE(step.link.has_value());
    EXPECT_FALSE(step.link->active);
    const Nonce128 told = DecodePathReady(AsBytes(step.send[0].body))->nonce;
    EXPECT_EQ(told.high, step.link->peer.nonce);
    EXPECT_EQ(told.low, step.link->peer.nonce_low);
    const auto up = [&](bool client) {
      return client ? Hear(*accept_, ControlType::kPathUp, EncodePathUp(kTcp))
                    : accept_->OnLinkUp();
    };
    EXPECT_EQ(up(client_first).decision, Decision::kWait);
    step = up(!client_first);
    EXPECT_EQ(step.decision, Decision::kOpen);
    EXPECT_EQ(Sent(step), "Open");
    EXPECT_EQ(side_.facts.candidates[kTcp].outcome, PathCandidate::Outcome::kChosen);
  }
}

TEST_F(AcceptHandshakeTest, ProofsOfBatchesAreOfUseWhereTheClientKnowsThem) {
  for (const bool knows : {true, false}) {
    Restart();
    ClientHello hello = Hello();
    hello.batch_proof = kPeersProof;
    if (knows) hello.features = {kProofsFeature};
    ASSERT_EQ(Greet(hello).decision, Decision::kAdmit);
    ASSERT_TRUE(accept_->Decide(side_.connection()));
    const std::string said = accept_->Offer().send[0].body;
    EXPECT_EQ(DecodeServerHello(AsBytes(said))->batch_proof, kOwnProof);
    const HandshakeStep step = Try(kTcp);
    ASSERT_TRUE(step.link.has_value());
    EXPECT_EQ(step.link->agreement.has_proofs, knows);
    EXPECT_EQ(step.link->agreement.send_proof, kPeersProof);
    EXPECT_EQ(step.link->agreement.receive_proof, kOwnProof);
  }
}

// A connection is taken when its path is up: the last one may have gone to somebody else by then.
TEST_F(AcceptHandshakeTest, APathThatIsUpTooLateForAConnectionIsToldSo) {
  Offered();
  Try(kTcp);
  EXPECT_EQ(accept_->OnLinkUp().decision, Decision::kWait);
  TakeAllConnections();
  const HandshakeStep step = Hear(*accept_, ControlType::kPathUp, EncodePathUp(kTcp));
  EXPECT_EQ(step.decision, Decision::kEnd);
  EXPECT_EQ(Sent(step), "Refusal");
  EXPECT_TRUE(absl::IsResourceExhausted(step.why)) << step.why;
  EXPECT_NE(side_.facts.candidates[kTcp].outcome, PathCandidate::Outcome::kChosen);
}

// Whose a connection is says the path that is up: it is counted as that client's.
TEST_F(AcceptHandshakeTest, AConnectionIsItsClientsWhoeverThePathSaysThatIs) {
  Offered();
  Try(kTcp);
  side_.facts.path.identity.authentication = Authentication::kKernelCredentials;
  side_.facts.path.identity.user_id = 77;
  accept_->OnLinkUp();
  const HandshakeStep step = Hear(*accept_, ControlType::kPathUp, EncodePathUp(kTcp));
  ASSERT_EQ(step.decision, Decision::kOpen);
  EXPECT_EQ(step.client_key, SharedListener::KeyOf(side_.facts.path.identity, /*host=*/0));
  EXPECT_EQ(listener_.shared->connections(), 1u);
  listener_.EndConnection(step.client_key);
  EXPECT_EQ(listener_.shared->connections(), 0u);
}

TEST_F(AcceptHandshakeTest, AWrongHelloIsRefused) {
  const HandshakeStep first = Try(kTcp);
  EXPECT_EQ(Sent(first), "Refusal");
  EXPECT_TRUE(absl::IsDataLoss(first.why)) << first.why;

  ClientHello newer = Hello();
  newer.versions = {7, 9};
  EXPECT_EQ(Sent(Greet(newer)), "Refusal");

  TakeAllConnections();
  EXPECT_TRUE(absl::IsResourceExhausted(Greet(Hello()).why));
  EndAllConnections();
  listener_.acceptor = nullptr;
  EXPECT_TRUE(absl::IsUnavailable(Greet(Hello()).why));
}

TEST_F(AcceptHandshakeTest, OtherProtocolsAreAnsweredInTheirs) {
  const absl::Status why = absl::FailedPreconditionError("another protocol");
  using Greeting = ControlFrameReader::Greeting;
  EXPECT_EQ(accept_->OnProtocolError(why, Greeting::kHttp).raw.substr(0, 12), "HTTP/1.1 400");
  EXPECT_EQ(accept_->OnProtocolError(why, Greeting::kOtherVersion).raw.size(), kPreambleBytes);
  EXPECT_EQ(accept_->OnProtocolError(why, Greeting::kForeign).raw, "");
  EXPECT_EQ(accept_->OnProtocolError(why, Greeting::kForeign).decision, Decision::kEnd);
}

TEST_F(AcceptHandshakeTest, ACandidateThatFailsLeavesRoomForTheNext) {
  Offered();
  HandshakeStep step = Try(kShm);
  EXPECT_EQ(Sent(step), "PathFailed") << "the client has not proved that it is here";
  EXPECT_TRUE(step.drop_attempt);
  EXPECT_EQ(accept_->state(), AcceptHandshake::State::kOffered);

  Try(kTcp);
  EXPECT_EQ(accept_->state(), AcceptHandshake::State::kLinking);
  step = accept_->OnLinkDown(absl::UnavailableError("the cable is cut"));
  EXPECT_EQ(Sent(step), "PathFailed");
  EXPECT_EQ(side_.facts.candidates[kTcp].reason, "server: the cable is cut");
  EXPECT_EQ(accept_->OnLinkUp().decision, Decision::kWait) << "too late";
}

TEST_F(AcceptHandshakeTest, AClientsFailureEndsTheAttempt) {
  Offered();
  Try(kTcp);
  const HandshakeStep step =
      Hear(*accept_, ControlType::kPathFailed, Encode(PathFailed{kTcp, "client: no"}));
  EXPECT_TRUE(step.drop_attempt);
  EXPECT_EQ(accept_->state(), AcceptHandshake::State::kOffered);
  EXPECT_EQ(side_.facts.candidates[kTcp].reason, "client: no");
}

TEST_F(AcceptHandshakeTest, ACandidateIsTriedOnceAndInOrder) {
  for (const uint32_t second : {kTcp, kShm}) {
    Restart();
    Offered();
    Try(kTcp);
    const HandshakeStep step = Try(second);
    EXPECT_TRUE(absl::IsDataLoss(step.why)) << step.why;
    EXPECT_EQ(Sent(step), "Bye");
  }
}

TEST_F(AcceptHandshakeTest, ANonceIsGoodForItsHandshakeAlone) {
  const ServerHello hello = Offered();
  ASSERT_EQ(listener_.awaited.size(), 1u);
  AcceptHandshake* const found = listener_.awaited.at(hello.local_nonce.high);
  const Nonce128 right = hello.local_nonce;
  EXPECT_TRUE(found->IsAwaiting(right));
  for (const Nonce128& wrong :
       {Nonce128{right.high, right.low + 1}, Nonce128{right.high + 1, right.low}, Nonce128()}) {
    EXPECT_FALSE(found->IsAwaiting(wrong));
  }
  Neighbour neighbour;
  neighbour.process.id = ReadHostFacts().process_id;
  EXPECT_TRUE(absl::IsNotFound(
      found->TakeNeighbour({hello.local_nonce.high, hello.local_nonce.low + 1}, &neighbour)
          .status()));
  EXPECT_TRUE(found->TakeNeighbour(hello.local_nonce, &neighbour).ok());
  accept_.reset();
  EXPECT_TRUE(listener_.awaited.empty());
}

// Fifteen offers of shared memory that differed in their names had been fifteen nonces, of which
// the end of the handshake forgot one: the others led to a handshake that was gone.
TEST_F(AcceptHandshakeTest, OffersOfOnePathUnderManyNamesAreRefused) {
  ClientHello hello = Hello();
  hello.paths.clear();
  for (int i = 0; i < 15; ++i) {
    hello.paths.push_back({PathKind::kShm, "test", 0, std::to_string(i), ""});
  }
  const HandshakeStep step = Greet(hello);
  EXPECT_TRUE(absl::IsDataLoss(step.why)) << step.why;
  EXPECT_TRUE(listener_.awaited.empty());
  accept_.reset();
  EXPECT_TRUE(listener_.awaited.empty());
}

TEST_F(AcceptHandshakeTest, WithoutACommonPathItSaysWhyAndEnds) {
  side_.shm_opens = side_.tcp_opens = false;
  EXPECT_EQ(Greet(Hello()).decision, Decision::kAdmit);
  EXPECT_FALSE(accept_->Decide(side_.connection()));
  const HandshakeStep step = accept_->EndWithoutPath();
  EXPECT_EQ(Sent(step), "ServerHello");
  EXPECT_EQ(DecodeServerHello(AsBytes(step.send[0].body))->candidates[kTcp].rejected,
            "server: no such provider");
  EXPECT_TRUE(absl::IsFailedPrecondition(step.why)) << step.why;
}

TEST_F(AcceptHandshakeTest, TimeEndsItWithoutAWordToAStranger) {
  side_.clock.Advance(listener_.options.link.connect_timeout_ns - 1);
  EXPECT_EQ(accept_->OnAlarm().decision, Decision::kWait) << "early";
  side_.clock.Advance(1);
  HandshakeStep step = accept_->OnAlarm();
  EXPECT_EQ(step.decision, Decision::kEnd);
  EXPECT_EQ(Sent(step), "");

  Restart();
  Offered();
  side_.clock.Set(accept_->alarm_ns());
  step = accept_->OnAlarm();
  EXPECT_EQ(Sent(step), "Bye");
  EXPECT_EQ(step.why, absl::UnavailableError("the handshake was not complete within 5000 ms"));
}

}  // namespace
}  // namespace weft
