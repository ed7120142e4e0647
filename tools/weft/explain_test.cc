// `weft explain` against servers of this process.
#include "tools/weft/explain.h"

#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "rpc/server/server.h"
#include "tools/weft/explain_report.h"
#include "transport/network.h"
#include "transport/tls/testing/certificates.h"

namespace weft::tools {
namespace {

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// On a machine that is busy with other tests the default limits are short.
ExplainOptions Patient(std::vector<PathKind> paths) {
  ExplainOptions options;
  options.link.paths = std::move(paths);
  options.link.path_timeout_ns = 25'000'000'000;
  options.link.connect_timeout_ns = 50'000'000'000;
  options.probe_timeout_ns = 50'000'000'000;
  options.probes = 100;
  options.paused_probes = 10;
  return options;
}

std::unique_ptr<Server> NewServer(ServerOptions options = {}) {
  options.link.connect_timeout_ns = 50'000'000'000;
  auto server = Server::Create(options);
  EXPECT_TRUE(server.ok()) << server.status();
  EXPECT_TRUE((*server)->Listen("127.0.0.1:0").ok());
  return *std::move(server);
}

TEST(Explain, MeasuresTheChosenPathOfAnyRpcServer) {
  const std::unique_ptr<Server> server = NewServer();
  for (const PathKind kind : {PathKind::kShm, PathKind::kTcp}) {
    const Explanation explanation = ExplainServer(server->address(), Patient({kind}));
    ASSERT_TRUE(explanation.connected.ok()) << explanation.connected;
    EXPECT_EQ(explanation.path.kind, kind);
    EXPECT_TRUE(explanation.measured.ok()) << explanation.measured;
    EXPECT_EQ(explanation.round_trips.count(), 100u);
    const std::string text = ExplainText(explanation);
    EXPECT_TRUE(Contains(text, "chosen")) << text;
    EXPECT_TRUE(Contains(text, "denied by its options (paths = ")) << text;
    EXPECT_TRUE(Contains(text, "round trip: min ")) << text;
    EXPECT_TRUE(Contains(text, "(100 probes, one after the other)")) << text;
    EXPECT_EQ(explanation.paused_round_trips.count(), 10u);
    EXPECT_TRUE(Contains(text, "\nserver awake,  round trip: min ")) << text;
    EXPECT_TRUE(Contains(text, "\nserver asleep, round trip: min ")) << text;
    EXPECT_TRUE(Contains(text, "(10 probes, each after 1 ms of silence)")) << text;
  }
}

TEST(Explain, SaysWhoASecuredServerIs) {
  const TestAuthority authority;
  const CertificateAndKey leaf = authority.Sign({.common_name = "store-7"});
  ServerOptions server_options;
  server_options.security.emplace();
  server_options.security->certificate_pem = leaf.certificate_pem;
  server_options.security->key_pem = leaf.key_pem;
  server_options.security->require_client_certificate = false;
  const std::unique_ptr<Server> server = NewServer(server_options);
  ExplainOptions options = Patient({PathKind::kShm});
  options.security.emplace().roots_pem = authority.certificate_pem();
  const Explanation explanation = ExplainServer(server->address(), options);
  ASSERT_TRUE(explanation.connected.ok()) << explanation.connected;
  const std::string text = ExplainText(explanation);
  EXPECT_TRUE(
      Contains(text, "\npeer: certificate \"CN=store-7\", names localhost, 127.0.0.1; process "))
      << text;
  EXPECT_TRUE(Contains(text, "; TLS 1.3 for the handshake")) << text;
  EXPECT_FALSE(Contains(text, "has no security")) << text;
  const std::string json = ExplainJson(explanation);
  EXPECT_TRUE(Contains(json, "\"tls\": \"1.3\", \"encrypted\": false")) << json;
  EXPECT_TRUE(Contains(json, "\"authentication\": \"certificate\"")) << json;
  EXPECT_TRUE(Contains(json, "\"dns_names\": [\"localhost\"]")) << json;
}

// Its errors named SecurityOptions, which nobody gives at a command line.
TEST(Explain, NamesTheFlagsThatAServerWithSecurityWants) {
  const TestAuthority authority;
  const CertificateAndKey leaf = authority.Sign({.common_name = "store-7"});
  ServerOptions server_options;
  server_options.security.emplace();
  server_options.security->certificate_pem = leaf.certificate_pem;
  server_options.security->key_pem = leaf.key_pem;
  server_options.security->roots_pem = authority.certificate_pem();
  std::unique_ptr<Server> server = NewServer(server_options);
  ExplainOptions options = Patient({PathKind::kTcp});
  const auto said = [&options](const std::string& address) {
    const Explanation explanation = ExplainServer(address, options);
    EXPECT_FALSE(explanation.connected.ok());
    const std::string text = ExplainText(explanation);
    EXPECT_FALSE(Contains(text, "SecurityOptions")) << text;
    return text;
  };
  std::string text = said(server->address());
  EXPECT_TRUE(Contains(text, "the server requires TLS: give the --tls-... flags that its clients"))
      << text;
  options.security.emplace().roots_pem = authority.certificate_pem();
  text = said(server->address());
  EXPECT_TRUE(Contains(text, "a certificate of its clients: give --tls-certificate and --tls-key"))
      << text;
  std::string folder = "/tmp/weft_explain_XXXXXX";  // a socket's path has to be short
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  ASSERT_TRUE(server->Listen("unix:" + folder + "/server").ok());
  text = said("unix:" + folder + "/server");
  EXPECT_TRUE(Contains(text, "certificate could name; give --tls-name or --tls-uri")) << text;
  options.security->certificate_pem = leaf.certificate_pem;
  text = said(server->address());
  EXPECT_TRUE(Contains(text, "--tls-... flags: a certificate and its key belong together")) << text;
  options.security->certificate_pem.clear();
  text = said(NewServer()->address());
  EXPECT_TRUE(Contains(text, "has no security, so leave the --tls-... flags out, or it is another"))
      << text;
  server.reset();
  EXPECT_EQ(rmdir(folder.c_str()), 0);
}

TEST(Explain, SaysThatAServerHasNoSecurity) {
  const std::unique_ptr<Server> server = NewServer();
  const Explanation explanation = ExplainServer(server->address(), Patient({PathKind::kTcp}));
  ASSERT_TRUE(explanation.connected.ok()) << explanation.connected;
  const std::string text = ExplainText(explanation);
  EXPECT_TRUE(Contains(text, "\npeer: nobody has proved who it is; no TLS: whoever is on the way"))
      << text;
  EXPECT_TRUE(Contains(text, "\nthe server has no security (ServerOptions::security; ")) << text;
  const std::string json = ExplainJson(explanation);
  EXPECT_TRUE(Contains(json, "\"tls\": null, \"encrypted\": false")) << json;
  EXPECT_TRUE(Contains(json, "\"authentication\": \"none\"")) << json;
}

// In the lab the variable says that there must be RDMA.
TEST(Explain, MeasuresVerbsWhereThereIsRdma) {
  const std::unique_ptr<Server> server = NewServer();
  ExplainOptions options = Patient({PathKind::kVerbs});
  const Explanation explanation = ExplainServer(server->address(), options);
  if (!explanation.connected.ok() && std::getenv("WEFT_TEST_RDMA") == nullptr) {
    GTEST_SKIP() << explanation.connected;
  }
  ASSERT_TRUE(explanation.connected.ok()) << explanation.connected;
  EXPECT_EQ(explanation.path.kind, PathKind::kVerbs);
  EXPECT_EQ(explanation.round_trips.count(), 100u) << explanation.measured;
  EXPECT_TRUE(Contains(ExplainText(explanation), " in a common subnet (")) << "of the candidate";
  options.link.gid_index = 77;
  const absl::Status denied = ExplainServer(server->address(), options).connected;
  EXPECT_TRUE(Contains(std::string(denied.message()), "GID index 77 (WEFT_GID_INDEX)")) << denied;
}

TEST(Explain, SaysWhatItDidNotHaveTimeFor) {
  const std::unique_ptr<Server> server = NewServer();
  ExplainOptions options = Patient({PathKind::kTcp});
  options.probe_timeout_ns = 0;
  const Explanation explanation = ExplainServer(server->address(), options);
  ASSERT_TRUE(explanation.connected.ok()) << explanation.connected;
  EXPECT_EQ(explanation.measured.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(Contains(ExplainText(explanation), "not measured: not all round trips within 0 s"))
      << ExplainText(explanation);
}

TEST(Explain, MeasuresNothingWhereNothingIsAsked) {
  const std::unique_ptr<Server> server = NewServer();
  ExplainOptions options = Patient({PathKind::kTcp});
  options.probes = 0;
  const Explanation explanation = ExplainServer(server->address(), options);
  EXPECT_TRUE(explanation.connected.ok()) << explanation.connected;
  EXPECT_TRUE(explanation.measured.ok()) << explanation.measured;
  EXPECT_FALSE(Contains(ExplainText(explanation), "round trip"));
}

TEST(Explain, ShowsEveryReasonWhereNoPathIsLeft) {
  ServerOptions options;
  options.link.paths = {PathKind::kTcp};
  const std::unique_ptr<Server> server = NewServer(options);
  const Explanation explanation = ExplainServer(server->address(), Patient({PathKind::kShm}));
  EXPECT_EQ(explanation.connected.code(), absl::StatusCode::kFailedPrecondition);
  const std::string text = ExplainText(explanation);
  EXPECT_TRUE(Contains(text, "rejected")) << text;
  EXPECT_TRUE(Contains(text, "server: denied by its options (paths = tcp)")) << text;
  EXPECT_TRUE(Contains(text, "client: denied by its options (paths = shm)")) << text;
  EXPECT_TRUE(Contains(text, "no connection to 127.0.0.1:")) << text;
}

TEST(Explain, SaysWhereNobodyListens) {
  const Explanation explanation = ExplainServer("127.0.0.1:1", Patient({}));
  EXPECT_FALSE(explanation.connected.ok());
  EXPECT_TRUE(explanation.candidates.empty());
  EXPECT_TRUE(Contains(ExplainText(explanation), "no connection to 127.0.0.1:1: "));
}

TEST(Explain, NamesAnOptionThatCannotBe) {
  ExplainOptions options;
  options.link.subnets = {"eth0"};
  const Explanation explanation = ExplainServer("127.0.0.1:1", options);
  EXPECT_EQ(explanation.connected.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(Contains(ExplainText(explanation), "no connection to 127.0.0.1:1: --subnets"))
      << ExplainText(explanation);
}

// A server that knows nothing of calls.
class PlainServer final : private Acceptor, private ConnectionHandler {
 public:
  PlainServer() {
    EngineOptions options;
    options.drive = EngineOptions::Drive::kOwnThread;
    engine_ = *OpenNetworkEngine(options);
    Waiter listening;
    engine_->Post([this, &listening] {
      ListenOptions listen;
      listen.hello = "\xff plain";
      listener_ = *engine_->transport().Listen("127.0.0.1:0", listen, this);
      address_ = listener_->address();
      CoreOf(*engine_).Finish(listening);
    });
    CoreOf(*engine_).Wait(listening);
  }
  ~PlainServer() {
    Waiter closed;
    engine_->Post([this, &closed] {
      listener_.reset();
      CoreOf(*engine_).Finish(closed);
    });
    CoreOf(*engine_).Wait(closed);
  }
  const std::string& address() const { return address_; }

 private:
  absl::StatusOr<ConnectionHandler*> OnIncoming(Connection&) override {
    return static_cast<ConnectionHandler*>(this);
  }
  void OnOpen(Connection&) override {}
  void OnMessage(Connection&, ByteSpan) override {}
  void OnClosed(Connection&, const absl::Status&) override {}

  std::string address_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Listener> listener_;
};

TEST(Explain, WorksWithServersOfPlainMessages) {
  const PlainServer server;
  const Explanation explanation = ExplainServer(server.address(), Patient({PathKind::kTcp}));
  ASSERT_TRUE(explanation.connected.ok()) << explanation.connected;
  EXPECT_TRUE(Contains(ExplainText(explanation), "a server of plain messages"));
  EXPECT_EQ(explanation.round_trips.count(), 100u) << explanation.measured;
}

TEST(ParseExplain, TakesTheSamePolicyAsPrograms) {
  const auto command = ParseExplain({"host:1", "--json", "--paths=verbs,tcp", "--deny=tcp",
                                     "--devices=mlx5_0,mlx5_1:1", "--subnets=10.0.0.0/8",
                                     "--gid-index=3", "--routed", "--probes=5"});
  ASSERT_TRUE(command.ok()) << command.status();
  const LinkOptions& link = command->options.link;
  EXPECT_EQ(command->address, "host:1");
  EXPECT_TRUE(command->as_json);
  EXPECT_EQ(link.paths, (std::vector<PathKind>{PathKind::kVerbs, PathKind::kTcp}));
  EXPECT_EQ(link.denied_paths, (std::vector<PathKind>{PathKind::kTcp}));
  EXPECT_EQ(link.devices, (std::vector<std::string>{"mlx5_0", "mlx5_1:1"}));
  EXPECT_EQ(link.subnets, (std::vector<std::string>{"10.0.0.0/8"}));
  EXPECT_EQ(link.gid_index, 3);
  EXPECT_TRUE(link.allow_routed);
  EXPECT_EQ(command->options.probes, 5u);
  EXPECT_EQ(command->options.paused_probes, 1u);
}

TEST(ParseExplain, TakesTheTlsFlagsOfAllPrograms) {
  const auto command = ParseExplain({"--tls-roots", "ca.pem", "host:1", "--tls-name=store"});
  ASSERT_TRUE(command.ok()) << command.status();
  EXPECT_EQ(command->address, "host:1");
  ASSERT_TRUE(command->options.security.has_value());
  EXPECT_EQ(command->options.security->roots_file, "ca.pem");
  EXPECT_EQ(command->options.security->server_name, "store");
  EXPECT_FALSE(ParseExplain({"host:1"})->options.security.has_value());
}

TEST(ParseExplain, NamesWhatItDoesNotUnderstand) {
  const struct {
    std::vector<std::string> arguments;
    const char* why;
  } kCases[] = {{{}, "An address is needed"},
                {{"--json"}, "An address is needed"},
                {{"a:1", "b:2"}, "\"b:2\" is not understood"},
                {{"a:1", "--xml"}, "\"--xml\" is not understood"},
                {{"a:1", "--colour=red"}, "\"--colour\" is not understood"},
                {{"a:1", "--tls-colour=red"}, "\"--tls-colour\" is not understood"},
                {{"a:1", "--paths=ib"}, "--paths=ib"},
                {{"a:1", "--probes=-1"}, "--probes=-1: it must be a number, 0..1000000"},
                {{"a:1", "--gid-index=x"}, "0..4095"}};
  for (const auto& c : kCases) {
    const absl::Status status = ParseExplain(c.arguments).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.why;
    EXPECT_TRUE(Contains(std::string(status.message()), c.why)) << status;
  }
}

TEST(ExplainReport, HasALineForEachCandidateAndItsReasonBelow) {
  Explanation explanation;
  explanation.address = "host:1";
  explanation.connect_ns = 12'000'000;
  explanation.path = {PathKind::kVerbs, LinkKind::kRoceV2, "verbs (libfabric 1.17)",
                      "rxe0:1",         "192.168.77.1:1",  "192.168.77.2:2"};
  explanation.candidates = {
      {PathKind::kShm, PathCandidate::Outcome::kRejected, "different hosts"},
      {PathKind::kVerbs, PathCandidate::Outcome::kChosen, "RoCE v2 in a common subnet",
       LinkKind::kRoceV2, "rxe0:1", "192.168.77.1", "rxe0:1", "192.168.77.2"}};
  for (uint64_t ns = 1'000; ns <= 100'000; ns += 1'000) explanation.round_trips.Record(ns);
  const std::string text = ExplainText(explanation);
  EXPECT_TRUE(Contains(text, "chosen    verbs  RoCE v2  rxe0:1 192.168.77.1  rxe0:1 192.168.77.2"))
      << text;
  EXPECT_TRUE(Contains(text, "\n    RoCE v2 in a common subnet\n")) << text;
  EXPECT_TRUE(Contains(text, "connected to host:1 in 12 ms\n")) << text;
  EXPECT_TRUE(Contains(text, "min 1.0 us")) << text;
  EXPECT_FALSE(Contains(text, "asleep")) << text;
  std::string json = ExplainJson(explanation);
  EXPECT_TRUE(Contains(json, "\"round_trip_asleep_ns\": null")) << json;
  explanation.paused_round_trips.Record(25'000);
  EXPECT_TRUE(Contains(ExplainText(explanation), "server asleep, round trip: min 25.0 us"))
      << ExplainText(explanation);
  json = ExplainJson(explanation);
  EXPECT_FALSE(Contains(json, "\"round_trip_asleep_ns\": null")) << json;
  EXPECT_TRUE(Contains(json, "\"peer_address\": \"192.168.77.2\"")) << json;
  EXPECT_TRUE(Contains(json, "\"count\": 100")) << json;
  EXPECT_TRUE(Contains(json, "\"error\": null")) << json;
}

}  // namespace
}  // namespace weft::tools
