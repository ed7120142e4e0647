// Channels and servers with security: who may call, what the others are told, and who a handler
// has before it. Over shared memory, by an internet address and by a Unix socket.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/log.h"
#include "rpc/client/channel.h"
#include "rpc/memory/remote_memory.h"
#include "rpc/server/exported_memory.h"
#include "rpc/server/server.h"
#include "rpc/testing/probe_service.h"
#include "transport/network.h"
#include "transport/sim/sim_network.h"
#include "transport/tls/testing/certificates.h"
#include "transport/tls/testing/security_options.h"

namespace weft::test {
namespace {

bool Contains(absl::string_view text, const std::string& part) {
  return text.find(part) != absl::string_view::npos;
}

// What is logged at level warning while this lives, by any thread.
class CapturedLog {
 public:
  CapturedLog() {
    SetLogSink(
        [this](const LogRecord& record) {
          const std::lock_guard<std::mutex> lock(mutex_);
          text_.append(record.text).append("\n");
        },
        LogLevel::kWarning);
  }
  ~CapturedLog() { SetLogSink({}); }
  std::string text() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return text_;
  }

 private:
  mutable std::mutex mutex_;
  std::string text_;
};

// Listens at a port of 127.0.0.1 and says nothing.
class SilentListener {
 public:
  SilentListener() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at = {};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof(at);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&at), bytes), 0);
    EXPECT_EQ(listen(fd_, 8), 0);
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&at), &bytes), 0);
    address_ = "127.0.0.1:" + std::to_string(ntohs(at.sin_port));
  }
  ~SilentListener() { close(fd_); }
  SilentListener(const SilentListener&) = delete;
  SilentListener& operator=(const SilentListener&) = delete;
  const std::string& address() const { return address_; }

 private:
  const int fd_;
  std::string address_;
};

class SecurityTest : public testing::Test {
 protected:
  static constexpr char kServerUri[] = "spiffe://example/server";

  static SecurityOptions Certified(const TestAuthority& authority, const std::string& name) {
    LeafOptions leaf;
    leaf.common_name = name;
    leaf.alternative_names += ",URI:spiffe://example/" + name;
    return weft::Certified(authority, leaf);
  }
  SecurityOptions Certified(const std::string& name) const { return Certified(authority_, name); }

  void Serve(ServerOptions options, const std::string& address = "127.0.0.1:0") {
    options.link.connect_timeout_ns = 50'000'000'000;
    server_ = *Server::Create(options);
    ASSERT_TRUE(server_->AddService(&service_).ok());
    const absl::Status listening = server_->Listen(address);
    ASSERT_TRUE(listening.ok()) << listening;
  }
  void Serve(const SecurityOptions& security, const std::string& address = "127.0.0.1:0") {
    ServerOptions options;
    options.security = security;
    Serve(options, address);
  }

  // On a machine that is busy with other tests the default limits are short.
  static ChannelOptions Patient(std::optional<SecurityOptions> security) {
    ChannelOptions options;
    options.link.path_timeout_ns = 25'000'000'000;
    options.link.connect_timeout_ns = 50'000'000'000;
    options.security = std::move(security);
    return options;
  }
  std::unique_ptr<Channel> Open(const std::optional<SecurityOptions>& security) {
    auto channel = Channel::Open(server_->address(), Patient(security));
    EXPECT_TRUE(channel.ok()) << channel.status();
    return channel.ok() ? *std::move(channel) : nullptr;
  }
  // What a call comes to, of a channel that is opened for it.
  absl::Status Call(const std::optional<SecurityOptions>& security) {
    ChannelOptions options = Patient(security);
    options.connect_at_once = false;
    const auto channel = Channel::Open(server_->address(), options);
    if (!channel.ok()) return channel.status();
    Data reply;
    return Probe::Stub(**channel).Echo(MakeData(7, 64), &reply);
  }
  void ExpectRefused(const std::optional<SecurityOptions>& security, absl::StatusCode code,
                     const std::string& words) {
    const absl::Status status = Call(security);
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_TRUE(Contains(status.message(), words)) << status;
    EXPECT_EQ(service_.echoes, 0);
  }

  const CapturedLog log_;
  const TestAuthority authority_;
  ProbeService service_;
  std::unique_ptr<Server> server_;
};

// --- who may call --------------------------------------------------------------------------------

TEST_F(SecurityTest, BothSidesKnowWhomTheyCallOverSharedMemory) {
  Serve(Certified("server"));
  PathInfo seen;
  service_.look = [&seen](ServerContext& context) { seen = context.path(); };
  const std::unique_ptr<Channel> channel = Open(Certified("client"));
  ASSERT_NE(channel, nullptr);
  Data reply;
  const absl::Status status = Probe::Stub(*channel).Echo(MakeData(7, 64), &reply);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(seen.kind, PathKind::kShm);
  EXPECT_EQ(seen.identity.authentication, Authentication::kCertificate);
  EXPECT_EQ(seen.identity.subject, "CN=client");
  EXPECT_EQ(seen.identity.dns_names, std::vector<std::string>{"localhost"});
  EXPECT_EQ(seen.identity.uris, std::vector<std::string>{"spiffe://example/client"});
  EXPECT_FALSE(seen.is_encrypted);
  const absl::StatusOr<PathInfo> path = channel->path();
  ASSERT_TRUE(path.ok());
  EXPECT_EQ(path->identity.subject, "CN=server");
  // The kernel knows as well who shares the memory.
  for (const PeerIdentity& identity : {seen.identity, path->identity}) {
    EXPECT_EQ(identity.process_id, getpid());
    EXPECT_EQ(identity.user_id, geteuid());
    EXPECT_EQ(identity.group_id, getegid());
  }
}

TEST_F(SecurityTest, UnixSocketsCarryTlsAndTheKernelsWord) {
  std::string folder = "/tmp/weft_security_XXXXXX";  // a socket's path has to be short
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string address = "unix:" + folder + "/server";
  Serve(Certified("server"), address);
  PathInfo seen;
  service_.look = [&seen](ServerContext& context) { seen = context.path(); };
  // Its address has no host that the certificate could name.
  ExpectRefused(Certified("client"), absl::StatusCode::kInvalidArgument,
                "set SecurityOptions::server_name or expected_uri");
  SecurityOptions client = Certified("client");
  client.expected_uri = kServerUri;
  const absl::Status status = Call(client);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(seen.identity.authentication, Authentication::kCertificate);
  EXPECT_EQ(seen.identity.subject, "CN=client");
  EXPECT_EQ(seen.identity.process_id, getpid());
  server_.reset();
  EXPECT_EQ(rmdir(folder.c_str()), 0);
}

TEST_F(SecurityTest, WithoutTlsTheKernelSaysWhoItIs) {
  Serve(ServerOptions());
  PathInfo seen;
  service_.look = [&seen](ServerContext& context) { seen = context.path(); };
  ASSERT_TRUE(Call(std::nullopt).ok());
  EXPECT_EQ(seen.identity.authentication, Authentication::kKernelCredentials);
  EXPECT_EQ(seen.identity.process_id, getpid());
  EXPECT_EQ(seen.identity.user_id, geteuid());
  // Nobody does of a peer behind a network.
  ChannelOptions options = Patient(std::nullopt);
  options.link.paths = {PathKind::kTcp};
  const auto channel = Channel::Open(server_->address(), options);
  ASSERT_TRUE(channel.ok()) << channel.status();
  Data reply;
  ASSERT_TRUE(Probe::Stub(**channel).Echo(MakeData(1, 1), &reply).ok());
  EXPECT_EQ(seen.identity.authentication, Authentication::kNone);
  EXPECT_EQ(seen.identity.process_id, 0);
  EXPECT_FALSE(seen.is_encrypted);
}

TEST_F(SecurityTest, ClientWithoutACertificateIsToldAndLogged) {
  Serve(Certified("server"));
  SecurityOptions client;
  client.roots_pem = authority_.certificate_pem();
  ExpectRefused(client, absl::StatusCode::kUnauthenticated,
                "the server requires a certificate of its clients: set SecurityOptions::");
  EXPECT_TRUE(Contains(log_.text(), "a client is refused, 127.0.0.1:")) << log_.text();
  EXPECT_TRUE(Contains(log_.text(), "did not return a certificate")) << log_.text();
}

TEST_F(SecurityTest, ClientsMayComeWithoutACertificateWhereTheServerSaysSo) {
  SecurityOptions server = Certified("server");
  server.require_client_certificate = false;
  Serve(server);
  PathInfo seen;
  service_.look = [&seen](ServerContext& context) { seen = context.path(); };
  SecurityOptions client;
  client.roots_pem = authority_.certificate_pem();
  const absl::Status status = Call(client);
  ASSERT_TRUE(status.ok()) << status;
  // TLS knows nothing of it; the kernel does.
  EXPECT_EQ(seen.identity.authentication, Authentication::kKernelCredentials);
  EXPECT_EQ(seen.identity.subject, "");
}

TEST_F(SecurityTest, ServersOfAnotherNameAreNotCalled) {
  Serve(Certified("server"));
  SecurityOptions client = Certified("client");
  client.server_name = "db7.example";
  ExpectRefused(client, absl::StatusCode::kUnauthenticated, "does not name \"db7.example\"");
  client.server_name.clear();
  client.expected_uri = "spiffe://example/another";
  ExpectRefused(client, absl::StatusCode::kUnauthenticated,
                "does not have the expected URI spiffe://example/another");
  EXPECT_TRUE(Contains(log_.text(), "the peer refuses")) << log_.text();
}

TEST_F(SecurityTest, StrangersToTheAuthorityAreRefusedOnBothSides) {
  Serve(Certified("server"));
  const TestAuthority another;
  SecurityOptions client = Certified("client");
  client.roots_pem = another.certificate_pem();
  ExpectRefused(client, absl::StatusCode::kUnauthenticated,
                "the peer's certificate is not accepted");
  client = Certified(another, "client");
  client.roots_pem = authority_.certificate_pem();
  ExpectRefused(client, absl::StatusCode::kUnauthenticated, "the peer refuses");
}

TEST_F(SecurityTest, SharedSecretsAreCompared) {
  Serve(WithPsk('x'));
  ExpectRefused(WithPsk('y'), absl::StatusCode::kUnauthenticated, "TLS");
  EXPECT_TRUE(Contains(log_.text(), "does not know the key \"fleet\"")) << log_.text();
  PathInfo seen;
  service_.look = [&seen](ServerContext& context) { seen = context.path(); };
  const absl::Status status = Call(WithPsk('x'));
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(seen.identity.authentication, Authentication::kPreSharedKey);
  EXPECT_EQ(seen.identity.psk_name, "fleet");
}

TEST_F(SecurityTest, ChannelWithoutSecurityIsToldWhatToSet) {
  Serve(Certified("server"));
  ExpectRefused(std::nullopt, absl::StatusCode::kFailedPrecondition,
                "the server requires TLS: set `security`");
  EXPECT_TRUE(Contains(log_.text(), "the server requires TLS")) << log_.text();
}

TEST_F(SecurityTest, ServerWithoutSecurityIsToldWhatToSet) {
  Serve(ServerOptions());
  ExpectRefused(Certified("client"), absl::StatusCode::kFailedPrecondition,
                "the peer does not speak TLS: its options have no `security`");
}

// In TLS 1.3 a client is through before the server has seen its certificate, and sends its hello
// and its call right behind.
TEST_F(SecurityTest, AStrangerMakesNoWorkForHandlersNorForAnythingBeforeThem) {
  int taken = 0;
  ServerOptions options;
  options.security = Certified("server");
  options.tenant_of = [&taken](const PathInfo&) {
    ++taken;
    return 1u;
  };
  Serve(options);
  SecurityOptions without_certificate;
  without_certificate.roots_pem = authority_.certificate_pem();
  SecurityOptions of_another = Certified(TestAuthority(), "client");
  of_another.roots_pem = authority_.certificate_pem();
  for (const std::optional<SecurityOptions>& stranger :
       {std::optional<SecurityOptions>(), std::optional(without_certificate),
        std::optional(of_another), std::optional(WithPsk('x'))}) {
    EXPECT_FALSE(Call(stranger).ok());
    EXPECT_EQ(taken, 0) << "nobody asked whose a connection is: there was none";
    EXPECT_EQ(server_->stats().requests, 0u);
    EXPECT_EQ(server_->stats().protocol_errors, 0u);
    EXPECT_EQ(service_.echoes, 0);
  }
  const absl::Status status = Call(Certified("client"));
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_GT(taken, 0);
  EXPECT_EQ(server_->stats().requests, 1u);
}

TEST_F(SecurityTest, OptionsThatDoNotFitAreNamed) {
  SecurityOptions half;
  half.psk_name = "fleet";
  ServerOptions options;
  options.security = half;
  server_ = *Server::Create(options);
  const absl::Status listening = server_->Listen("127.0.0.1:0");
  EXPECT_TRUE(absl::IsInvalidArgument(listening)) << listening;
  EXPECT_TRUE(Contains(listening.message(), "psk_name and psk_secret belong together"))
      << listening;
  server_.reset();
  Serve(Certified("server"));
  ExpectRefused(half, absl::StatusCode::kInvalidArgument, "belong together");
}

TEST_F(SecurityTest, TheSimulatedNetworkHasNone) {
  SimNetwork network(/*seed=*/1);
  ServerOptions options;
  options.security = WithPsk('x');
  const auto server = *Server::Create(network.Node("server"), options);
  const absl::Status listening = server->Listen("sim:server");
  EXPECT_TRUE(absl::IsInvalidArgument(listening)) << listening;
  EXPECT_TRUE(Contains(listening.message(), "leave `security` out")) << listening;
}

// --- who is who ----------------------------------------------------------------------------------

TEST_F(SecurityTest, TenantsComeFromCertificates) {
  ServerOptions options;
  options.security = Certified("server");
  options.tenant_of = [](const PathInfo& path) {
    return path.identity.authentication != Authentication::kCertificate ? 0u
           : path.identity.subject == "CN=blue"                         ? 1u
                                                                        : 2u;
  };
  Serve(options);
  const auto memory = server_->AllocateExport(4096, {.rights = kMayRead});
  ASSERT_TRUE(memory.ok()) << memory.status();
  const auto blues = (*memory)->Derive({.length = 64, .tenant = 1});
  ASSERT_TRUE(blues.ok()) << blues.status();
  const std::unique_ptr<Channel> blue = Open(Certified("blue"));
  const std::unique_ptr<Channel> red = Open(Certified("red"));
  ASSERT_TRUE(blue != nullptr && red != nullptr);
  EXPECT_EQ(RemoteMemory::Open(*blue, *blues).status(), absl::OkStatus());
  const absl::Status stolen = RemoteMemory::Open(*red, *blues).status();
  EXPECT_TRUE(absl::IsPermissionDenied(stolen)) << stolen;
}

// --- peers ---------------------------------------------------------------------------------------

class PeerSecurityTest : public SecurityTest {
 protected:
  std::unique_ptr<Server> NewPeer(const std::string& id, ProbeService* service) {
    return NewPeer(id, service, Certified(id));
  }
  std::unique_ptr<Server> NewPeer(const std::string& id, ProbeService* service,
                                  const SecurityOptions& security) {
    ServerOptions options;
    options.peer_id = id;
    options.security = security;
    options.link.connect_timeout_ns = 50'000'000'000;
    auto server = Server::Create(options);
    EXPECT_TRUE(server.ok()) << server.status();
    EXPECT_TRUE((*server)->AddService(service).ok());
    EXPECT_TRUE((*server)->Listen("127.0.0.1:0").ok());
    return *std::move(server);
  }
  ChannelOptions Wanting(const std::string& own, const std::string& peer) {
    ChannelOptions options = Patient(Certified(own));
    options.security->expected_uri = "spiffe://example/" + peer;
    return options;
  }
  static absl::Status CallOn(Channel& channel) {
    Data reply;
    return Probe::Stub(channel).Echo(MakeData(1, 10), &reply, {.wait_for_server = true});
  }
  // The first call that ends as refused; between two attempts they are UNAVAILABLE.
  static absl::Status RefusalOn(Channel& channel) {
    absl::Status status;
    for (int i = 0; i < 100'000 && !absl::IsUnauthenticated(status); ++i) {
      Data reply;
      status = Probe::Stub(channel).Echo(MakeData(1, 10), &reply);
      if (status.ok()) break;
    }
    return status;
  }
  // Somebody whom the authority knows by the name "c" calls `a`, and says that it is b.
  absl::Status CallAsFalseB(const Server& a) {
    const auto false_b = NewPeer("b", &c_service_, Certified("c"));
    const auto to_a = false_b->OpenPeer("a", a.address(), Wanting("c", "a"));
    return to_a.ok() ? RefusalOn(**to_a) : to_a.status();
  }

  ProbeService a_service_;
  ProbeService b_service_;
  ProbeService c_service_;
};

TEST_F(PeerSecurityTest, PeersUseOneConnectionAndKnowEachOther) {
  const auto a = NewPeer("a", &a_service_);
  const auto b = NewPeer("b", &b_service_);
  PathInfo seen_by_a;
  PathInfo seen_by_b;
  a_service_.look = [&](ServerContext& context) { seen_by_a = context.path(); };
  b_service_.look = [&](ServerContext& context) { seen_by_b = context.path(); };
  const auto to_b = a->OpenPeer("b", b->address(), Wanting("a", "b"));
  ASSERT_TRUE(to_b.ok()) << to_b.status();
  EXPECT_EQ(CallOn(**to_b), absl::OkStatus());
  EXPECT_EQ(seen_by_b.identity.subject, "CN=a");
  const auto to_a = b->OpenPeer("a", /*address=*/"", Wanting("b", "a"));
  ASSERT_TRUE(to_a.ok()) << to_a.status();
  EXPECT_EQ(CallOn(**to_a), absl::OkStatus());
  EXPECT_EQ(seen_by_a.identity.subject, "CN=b");
}

// The id is the peer's own word. A channel that asked for a certificate's name got the connection
// of whoever had dialed with the id, and any certificate of the authority.
TEST_F(PeerSecurityTest, APeerThatHasDialedProvesToBeWhoIsWanted) {
  const auto a = NewPeer("a", &a_service_);
  const auto b = NewPeer("b", &b_service_);
  const auto to_b = a->OpenPeer("b", b->address(), Wanting("a", "b"));
  ASSERT_TRUE(to_b.ok()) << to_b.status();
  ASSERT_EQ(CallOn(**to_b), absl::OkStatus());
  const auto to_a = b->OpenPeer("a", /*address=*/"", Wanting("b", "another"));
  ASSERT_TRUE(to_a.ok()) << to_a.status();
  const std::string words =
      "peer a is connected, and has not proved to be \"spiffe://example/another\"";
  absl::Status status;
  for (int i = 0; i < 10'000 && !Contains(status.message(), words); ++i) {
    Data reply;
    status = Probe::Stub(**to_a).Echo(MakeData(1, 10), &reply);
    ASSERT_FALSE(status.ok());
  }
  EXPECT_TRUE(Contains(status.message(), words)) << status;
  EXPECT_EQ(a_service_.echoes, 0);
}

// A connection took the place of the one that was there by its id alone. Who had any certificate of
// the authority could cut a session of others, as often as it liked: only then was it looked at.
TEST_F(PeerSecurityTest, AnIdTakesNobodysPlace) {
  const auto a = NewPeer("a", &a_service_);
  const auto b = NewPeer("b", &b_service_);
  const auto to_a = b->OpenPeer("a", a->address(), Wanting("b", "a"));
  ASSERT_TRUE(to_a.ok()) << to_a.status();
  ASSERT_EQ(CallOn(**to_a), absl::OkStatus());
  const absl::Status refusal = CallAsFalseB(*a);
  EXPECT_TRUE(absl::IsUnauthenticated(refusal)) << refusal;
  EXPECT_TRUE(Contains(refusal.message(), "has not proved to be the peer that is connected"))
      << refusal;
  EXPECT_EQ(CallOn(**to_a), absl::OkStatus());
  EXPECT_EQ((*to_a)->stats().connects, 1u);
  EXPECT_EQ(a_service_.echoes, 2);
}

TEST_F(PeerSecurityTest, AnIdTakesNoPlaceWhereAChannelSaysWhomItWants) {
  const auto a = NewPeer("a", &a_service_);
  const auto b = NewPeer("b", &b_service_);
  const auto to_b = a->OpenPeer("b", b->address(), Wanting("a", "b"));
  ASSERT_TRUE(to_b.ok()) << to_b.status();
  ASSERT_EQ(CallOn(**to_b), absl::OkStatus());
  const absl::Status refusal = CallAsFalseB(*a);
  EXPECT_TRUE(absl::IsUnauthenticated(refusal)) << refusal;
  EXPECT_TRUE(Contains(refusal.message(), "has not proved to be \"spiffe://example/b\""))
      << refusal;
  EXPECT_EQ(CallOn(**to_b), absl::OkStatus());
  EXPECT_EQ((*to_b)->stats().connects, 1u);
  EXPECT_EQ(a_service_.echoes, 0);
}

// An attempt of this side was given up for whoever came with the id.
TEST_F(PeerSecurityTest, AnIdEndsNoAttemptAndTakesNoFreePlace) {
  const SilentListener silent;  // the attempt goes on for as long as nobody answers
  for (const std::string& address : {silent.address(), std::string()}) {
    const auto a = NewPeer("a", &a_service_);
    const auto to_b = a->OpenPeer("b", address, Wanting("a", "b"));
    ASSERT_TRUE(to_b.ok()) << to_b.status();
    const absl::Status refusal = CallAsFalseB(*a);
    EXPECT_TRUE(absl::IsUnauthenticated(refusal)) << refusal;
    EXPECT_TRUE(Contains(refusal.message(), "has not proved to be \"spiffe://example/b\""))
        << refusal;
    EXPECT_EQ(a->stats().peers, 0u);
    EXPECT_EQ(a_service_.echoes, 0);
  }
}

// With another certificate of the same names.
TEST_F(PeerSecurityTest, APeerThatWasStartedAgainTakesItsOwnPlace) {
  const auto a = NewPeer("a", &a_service_);
  const auto b = NewPeer("b", &b_service_);
  const auto to_a = b->OpenPeer("a", a->address(), Wanting("b", "a"));
  ASSERT_TRUE(to_a.ok()) << to_a.status();
  ASSERT_EQ(CallOn(**to_a), absl::OkStatus());
  const auto again = NewPeer("b", &c_service_);
  const auto again_to_a = again->OpenPeer("a", a->address(), Wanting("b", "a"));
  ASSERT_TRUE(again_to_a.ok()) << again_to_a.status();
  EXPECT_EQ(CallOn(**again_to_a), absl::OkStatus());
  EXPECT_EQ((*again_to_a)->stats().connects, 1u);
}

// OpenSSL looks at the names of who is dialed. Those of a peer that dials were compared as text: it
// depended on who dialed whether two peers met.
TEST_F(PeerSecurityTest, DnsNamesMeanTheSameWhicheverSideDials) {
  const struct {
    const char* of_certificate;
    const char* wanted;
    bool is_it;
  } cases[] = {
      {"b.example.org", "B.Example.ORG", true},    {"*.Example.org", "b.example.ORG", true},
      {"*.example.org", "x.b.example.org", false}, {"*.example.org", "example.org", false},
      {"*.example.org", "b_1.example.org", false}, {"*.org", "example.org", false},
      {"b*.example.org", "b1.example.org", false}, {"b.*.org", "b.example.org", false},
  };
  const auto a = NewPeer("a", &a_service_);
  for (const auto& test : cases) {
    SCOPED_TRACE(std::string(test.of_certificate) + " for " + test.wanted);
    LeafOptions leaf;
    leaf.alternative_names = std::string("DNS:") + test.of_certificate;
    const CertificateAndKey made = authority_.Sign(leaf);
    SecurityOptions of_b = Certified("b");
    of_b.certificate_pem = made.certificate_pem;
    of_b.key_pem = made.key_pem;
    const auto b = NewPeer("b", &b_service_, of_b);
    ChannelOptions wanting = Wanting("a", "b");
    wanting.security->expected_uri.clear();
    wanting.security->server_name = test.wanted;
    {
      const auto dialing = a->OpenPeer("b", b->address(), wanting);
      ASSERT_TRUE(dialing.ok()) << dialing.status();
      const absl::Status status = test.is_it ? CallOn(**dialing) : RefusalOn(**dialing);
      EXPECT_EQ(status.ok(), test.is_it) << status;
    }
    const auto waiting = a->OpenPeer("b", /*address=*/"", wanting);
    ASSERT_TRUE(waiting.ok()) << waiting.status();
    ChannelOptions wanting_a = Patient(of_b);
    wanting_a.security->expected_uri = "spiffe://example/a";
    const auto to_a = b->OpenPeer("a", a->address(), wanting_a);
    ASSERT_TRUE(to_a.ok()) << to_a.status();
    const absl::Status status = test.is_it ? CallOn(**waiting) : RefusalOn(**to_a);
    EXPECT_EQ(status.ok(), test.is_it) << status;
  }
}

TEST_F(PeerSecurityTest, NumericAddressesNameNoPeer) {
  const auto a = NewPeer("a", &a_service_);
  for (const char* numeric : {"127.0.0.1", "10.0.0.07", "::1", "fd77::1"}) {
    ChannelOptions options = Wanting("a", "b");
    options.security->server_name = numeric;
    const auto channel = a->OpenPeer("b", "127.0.0.1:1", options);
    EXPECT_TRUE(absl::IsInvalidArgument(channel.status())) << channel.status();
    EXPECT_TRUE(Contains(channel.status().message(), "wants a certificate of the numeric address"))
        << channel.status();
  }
  ChannelOptions options = Wanting("a", "b");
  options.security->server_name = "store-7.node7";
  EXPECT_EQ(a->OpenPeer("b", /*address=*/"", options).status(), absl::OkStatus());
}

TEST_F(PeerSecurityTest, AChannelToAPeerSaysWhoseCertificateItWants) {
  const auto a = NewPeer("a", &a_service_);
  const auto channel = a->OpenPeer("b", "127.0.0.1:1", Patient(Certified("a")));
  EXPECT_TRUE(absl::IsInvalidArgument(channel.status())) << channel.status();
  EXPECT_TRUE(Contains(channel.status().message(), "set SecurityOptions::expected_uri"))
      << channel.status();
}

// --- a server at work ----------------------------------------------------------------------------

// Replaces the file, as those who renew certificates do.
void WriteFile(const std::string& path, const std::string& text) {
  std::ofstream(path + ".new") << text;
  ASSERT_EQ(rename((path + ".new").c_str(), path.c_str()), 0);
}

TEST_F(SecurityTest, ChangedFilesTakeEffectAndBrokenOnesDoNot) {
  const std::string certificate = testing::TempDir() + "/server.pem";
  const std::string key = testing::TempDir() + "/server.key";
  const auto install = [&](const SecurityOptions& made) {
    WriteFile(key, made.key_pem);
    WriteFile(certificate, made.certificate_pem);
  };
  SecurityOptions server = Certified("first");
  install(server);
  server.certificate_pem.clear();
  server.key_pem.clear();
  server.certificate_file = certificate;
  server.key_file = key;
  Serve(server);
  const auto call = [&](const std::string& name) {
    SecurityOptions client = Certified("client");
    client.expected_uri = "spiffe://example/" + name;
    return Call(client);
  };
  EXPECT_EQ(call("first"), absl::OkStatus());
  install(Certified("second"));
  bool changed = false;  // the files are looked at once in a second
  for (int i = 0; i < 100'000 && !changed; ++i) changed = call("second").ok();
  EXPECT_TRUE(changed);
  EXPECT_TRUE(absl::IsUnauthenticated(call("first")));

  WriteFile(certificate, "half a certifica");
  const std::string words = "changed TLS files cannot be used, the old ones stay in use";
  for (int i = 0; i < 100'000 && !Contains(log_.text(), words); ++i) {
    ASSERT_EQ(call("second"), absl::OkStatus());
  }
  EXPECT_EQ(call("second"), absl::OkStatus());
  const std::string text = log_.text();
  EXPECT_NE(text.find(words), std::string::npos) << text;
  EXPECT_EQ(text.find(words), text.rfind(words)) << text;
}

TEST_F(SecurityTest, ServerWithoutItSaysSoOnceIfOthersMayReachIt) {
  const std::string words = "has no security: it serves whoever reaches it";
  Serve(ServerOptions(), "127.0.0.1:0");
  ASSERT_TRUE(server_->Listen("[::1]:0").ok());
  EXPECT_FALSE(Contains(log_.text(), words)) << log_.text();
  ASSERT_TRUE(server_->Listen("0.0.0.0:0").ok());
  ASSERT_TRUE(server_->Listen("[::]:0").ok());
  const std::string text = log_.text();
  EXPECT_NE(text.find("the server at 0.0.0.0:"), std::string::npos) << text;
  EXPECT_NE(text.find(words), std::string::npos) << text;
  EXPECT_EQ(text.find(words), text.rfind(words)) << text;
}

TEST_F(SecurityTest, ServerWithItHasNothingToSay) {
  Serve(Certified("server"), "0.0.0.0:0");
  EXPECT_FALSE(Contains(log_.text(), "has no security")) << log_.text();
}

TEST_F(SecurityTest, ChannelsExplainWhoTheServerIs) {
  Serve(Certified("server"));
  const std::unique_ptr<Channel> channel = Open(Certified("client"));
  ASSERT_NE(channel, nullptr);
  EXPECT_TRUE(Contains(channel->Explain(), "peer: certificate \"CN=server\", names localhost, "))
      << channel->Explain();
}

}  // namespace
}  // namespace weft::test
