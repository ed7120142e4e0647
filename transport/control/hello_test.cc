#include "transport/control/hello.h"

#include <string>

#include "gtest/gtest.h"
#include "transport/control/control_frame.h"
#include "transport/control/hello.pb.h"

namespace weft {
namespace {

bool Contains(const absl::Status& status, const std::string& part) {
  return std::string(status.message()).find(part) != std::string::npos;
}

ClientHello FullClientHello() {
  ClientHello hello;
  hello.versions = {1, 3};
  hello.features = {"a", "b"};
  hello.limits.window_slots = 4;
  hello.limits.peer_timeout_ns = 3'000'000'000;
  hello.limits.heartbeats = true;
  hello.limits.engine_key = {7, 8};
  hello.connection_index = 7;
  hello.connection_token = 0xfeedbeef;
  hello.first_sequence = 0xfffffffe;
  hello.batch_proof = {11, ~uint64_t{0}};
  hello.paths = {{PathKind::kShm, "shm", 1u << 16 | 17, "shm", ""},
                 {PathKind::kTcp, "tcp", 1u << 16 | 17, "eth0", "denied by WEFT_PATHS=shm"},
                 {PathKind::kVerbs, "verbs", 1u << 16 | 17, "mlx5_0:1", "", LinkKind::kRoceV2,
                  "10.0.0.7", 24}};
  hello.allow_routed = true;
  hello.first_port = 3;
  hello.host = {"5f3c", 1000, 4711};
  hello.hello = std::string("\0opaque\xff", 8);
  return hello;
}

ServerHello FullServerHello() {
  ServerHello hello;
  hello.version = 1;
  hello.connection_index = 1;
  hello.connection_token = 2;
  hello.batch_proof = {21, 22};
  hello.candidates = {{0, PathPair::kNone, "different hosts"}, {1, 2, ""}};
  hello.local_socket = "weft-0123";
  hello.local_nonce = {~uint64_t{0}, 1};
  hello.hello = "server";
  return hello;
}

// A valid message, changed; what its decoder says.
template <class Proto>
absl::Status DecodeChanged(const std::string& encoded, void (*change)(Proto&)) {
  Proto proto;
  EXPECT_TRUE(proto.ParseFromString(encoded));
  change(proto);
  const std::string changed = proto.SerializeAsString();
  if constexpr (std::is_same_v<Proto, control::ClientHello>) {
    return DecodeClientHello(AsBytes(changed)).status();
  } else if constexpr (std::is_same_v<Proto, control::ServerHello>) {
    return DecodeServerHello(AsBytes(changed)).status();
  } else {
    return DecodePathTry(AsBytes(changed)).status();
  }
}

TEST(Hello, ComesBackAsItWasSent) {
  const auto client = DecodeClientHello(AsBytes(Encode(FullClientHello())), "5f3c");
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_EQ(client->versions.max, 3u);
  EXPECT_EQ(client->features, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(client->limits.window_slots, 4u);
  EXPECT_EQ(client->limits.peer_timeout_ns, 3'000'000'000u);
  EXPECT_TRUE(client->limits.heartbeats);
  EXPECT_EQ(client->limits.engine_key, (Nonce128{7, 8}));
  EXPECT_EQ(client->connection_token, 0xfeedbeef);
  EXPECT_EQ(client->first_sequence, 0xfffffffe);
  EXPECT_EQ(client->batch_proof, FullClientHello().batch_proof);
  ASSERT_EQ(client->paths.size(), 3u);
  EXPECT_EQ(client->paths[1].unavailable, "denied by WEFT_PATHS=shm");
  EXPECT_EQ(client->paths[2].device, "mlx5_0:1");
  EXPECT_EQ(client->paths[2].link, LinkKind::kRoceV2);
  EXPECT_EQ(client->paths[2].host, "10.0.0.7");
  EXPECT_EQ(client->paths[2].prefix_bits, 24u);
  EXPECT_TRUE(client->allow_routed);
  EXPECT_EQ(client->first_port, 3u);
  EXPECT_EQ(client->host.boot_id, "5f3c");
  EXPECT_EQ(client->host.user_id, 1000u);
  EXPECT_EQ(client->host.process_id, 4711);
  EXPECT_EQ(client->hello, FullClientHello().hello);

  const auto server = DecodeServerHello(AsBytes(Encode(FullServerHello())));
  ASSERT_TRUE(server.ok()) << server.status();
  ASSERT_EQ(server->candidates.size(), 2u);
  EXPECT_EQ(server->candidates[0].client_offer, 0);
  EXPECT_EQ(server->candidates[0].server_offer, PathPair::kNone);
  EXPECT_EQ(server->candidates[0].rejected, "different hosts");
  EXPECT_EQ(server->candidates[1].client_offer, 1);
  EXPECT_EQ(server->candidates[1].server_offer, 2);
  EXPECT_EQ(server->candidates[1].rejected, "");
  EXPECT_TRUE(server->local_nonce == FullServerHello().local_nonce);
  EXPECT_EQ(server->batch_proof, FullServerHello().batch_proof);

  const auto wanted = DecodePathTry(AsBytes(Encode(PathTry{39, "*:1", 4096})));
  ASSERT_TRUE(wanted.ok()) << wanted.status();
  EXPECT_EQ(wanted->candidate, 39u);
  EXPECT_EQ(wanted->batch_bytes, 4096u);
  EXPECT_EQ(*DecodeOpen(AsBytes(EncodeOpen(9))), 9u);
  EXPECT_EQ(*DecodePathUp(AsBytes(EncodePathUp(9))), 9u);
  EXPECT_EQ(*DecodeBye(AsBytes(EncodeBye("so long"))), "so long");
}

TEST(Hello, AServerSaysWhichOfItsEnginesHasTheConnection) {
  ServerHello hello = FullServerHello();
  const auto older = DecodeServerHello(AsBytes(Encode(hello)));
  ASSERT_TRUE(older.ok()) << older.status();
  EXPECT_EQ(older->engines, 0u) << "it does not say";
  hello.engine = 2;
  hello.engines = 3;
  const auto said = DecodeServerHello(AsBytes(Encode(hello)));
  ASSERT_TRUE(said.ok()) << said.status();
  EXPECT_EQ(said->engine, 2u);
  EXPECT_EQ(said->engines, 3u);
  hello.engine = 3;
  const absl::Status beyond = DecodeServerHello(AsBytes(Encode(hello))).status();
  EXPECT_EQ(beyond.code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(Contains(beyond, "engine 3 of 3")) << beyond;
  hello.engines = kMaxToldEngines + 1;
  EXPECT_FALSE(DecodeServerHello(AsBytes(Encode(hello))).ok());
  hello.engines = 0;
  EXPECT_FALSE(DecodeServerHello(AsBytes(Encode(hello))).ok());
}

TEST(Hello, TheLargestOfTheApplicationPasses) {
  ClientHello hello = FullClientHello();
  hello.hello.assign(kMaxHelloBytes, 'x');
  EXPECT_TRUE(DecodeClientHello(AsBytes(Encode(hello))).ok());
}

// Whoever could connect was told the kernel's boot id, user and process, which say of two addresses
// that they are one machine, and since when.
TEST(Hello, TellsOfItsHostOnlyToThoseWhoAreOnIt) {
  ClientHello hello = FullClientHello();
  hello.host.boot_id = "0f8fad5b-d9cb-469f-a165-70867728950e";
  const std::string encoded = Encode(hello);
  EXPECT_EQ(encoded.find("0f8f"), std::string::npos);
  control::ClientHello once;
  control::ClientHello again;
  ASSERT_TRUE(once.ParseFromString(encoded));
  ASSERT_TRUE(again.ParseFromString(Encode(hello)));
  EXPECT_NE(once.host().nonce(), again.host().nonce());
  EXPECT_NE(once.host().code(), again.host().code()) << "two hellos of one host, and nothing alike";
  EXPECT_NE(once.host().hidden_process_id(), 4711u);

  for (const char* stranger : {"another host's", ""}) {
    const auto there = DecodeClientHello(AsBytes(encoded), stranger);
    ASSERT_TRUE(there.ok()) << there.status();
    EXPECT_EQ(there->host.boot_id, HostFacts::kOtherBootId);
    EXPECT_EQ(there->host.user_id, 0u);
    EXPECT_EQ(there->host.process_id, 0);
  }
  // A server that sends back what it was sent is no neighbour.
  ServerHello echo = FullServerHello();
  control::ServerHello server;
  ASSERT_TRUE(server.ParseFromString(Encode(echo)));
  *server.mutable_host() = once.host();
  const auto echoed = DecodeServerHello(AsBytes(server.SerializeAsString()), hello.host.boot_id);
  ASSERT_TRUE(echoed.ok()) << echoed.status();
  EXPECT_EQ(echoed->host.boot_id, HostFacts::kOtherBootId);

  hello.host.boot_id = "";
  const auto unknown = DecodeClientHello(AsBytes(Encode(hello)), "");
  ASSERT_TRUE(unknown.ok()) << unknown.status();
  EXPECT_EQ(unknown->host.boot_id, "");
}

TEST(Hello, SharedMemoryOfOlderReleasesIsUnavailableAndSaysWhy) {
  control::ClientHello proto;
  ASSERT_TRUE(proto.ParseFromString(Encode(FullClientHello())));
  proto.mutable_paths(0)->set_kind(1);
  const auto hello = DecodeClientHello(AsBytes(proto.SerializeAsString()));
  ASSERT_TRUE(hello.ok()) << hello.status();
  EXPECT_NE(hello->paths[0].unavailable.find("update the older side"), std::string::npos);
}

TEST(Hello, HasABoundBesideTheApplicationsPart) {
  control::ClientHello proto;
  ASSERT_TRUE(proto.ParseFromString(Encode(FullClientHello())));
  proto.mutable_paths(0)->set_unavailable(std::string(50'000, 'x'));
  EXPECT_TRUE(Contains(DecodeClientHello(AsBytes(proto.SerializeAsString())).status(),
                       "more than 49152 bytes beside the application's hello"));
}

TEST(Hello, WhatIsOutOfBoundsIsRefusedByName) {
  const std::string good = Encode(FullClientHello());
  using Change = void (*)(control::ClientHello&);
  const struct {
    const char* why;
    Change change;
  } kCases[] = {
      {"version_min > version_max", [](control::ClientHello& p) { p.set_version_min(4); }},
      {"window_slots is 3",
       [](control::ClientHello& p) { p.mutable_limits()->set_window_slots(3); }},
      {"window_slots is 1025",
       [](control::ClientHello& p) { p.mutable_limits()->set_window_slots(1025); }},
      {"window_slots is 0", [](control::ClientHello& p) { p.clear_limits(); }},
      // A pace of heartbeats that would be a flood.
      {"peer_timeout_ns is 1",
       [](control::ClientHello& p) { p.mutable_limits()->set_peer_timeout_ns(1); }},
      {"peer_timeout_ns is 18446744073709551615",
       [](control::ClientHello& p) { p.mutable_limits()->set_peer_timeout_ns(~uint64_t{0}); }},
      {"shm is offered twice", [](control::ClientHello& p) { *p.add_paths() = p.paths(0); }},
      {"verbs is offered twice", [](control::ClientHello& p) { *p.add_paths() = p.paths(2); }},
      {"host is too long",
       [](control::ClientHello& p) { p.mutable_paths(2)->set_host(std::string(65, '1')); }},
      {"129 bits", [](control::ClientHello& p) { p.mutable_paths(2)->set_prefix_bits(129); }},
      {"17 paths",
       [](control::ClientHello& p) {
         while (p.paths_size() < 17) p.add_paths();
       }},
      {"65 features",
       [](control::ClientHello& p) {
         while (p.features_size() < 65) p.add_features("f");
       }},
      {"name has 0 bytes", [](control::ClientHello& p) { p.add_features(""); }},
      {"name has 65 bytes", [](control::ClientHello& p) { p.add_features(std::string(65, 'f')); }},
      {"262145 bytes",
       [](control::ClientHello& p) { p.set_hello(std::string(kMaxHelloBytes + 1, 'x')); }},
  };
  for (const auto& c : kCases) {
    const absl::Status status = DecodeChanged<control::ClientHello>(good, c.change);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << c.why;
    EXPECT_TRUE(Contains(status, c.why)) << c.why << ": " << status;
  }
}

TEST(Hello, ServersAreCheckedAsWell) {
  const std::string good = Encode(FullServerHello());
  using Change = void (*)(control::ServerHello&);
  const Change kCases[] = {
      [](control::ServerHello& p) { p.set_local_socket(std::string(108, 'x')); },
      [](control::ServerHello& p) { p.clear_limits(); },
      [](control::ServerHello& p) {
        while (p.verdicts_size() < 41) p.add_verdicts();
      },
      [](control::ServerHello& p) { p.mutable_verdicts(0)->set_client_offer(17); },
      [](control::ServerHello& p) { p.mutable_verdicts(0)->set_server_offer(0xffffffffu); },
  };
  for (const Change change : kCases) {
    EXPECT_EQ(DecodeChanged<control::ServerHello>(good, change).code(),
              absl::StatusCode::kDataLoss);
  }
}

TEST(Hello, AReleaseWithoutHeartbeatsNeitherWatchesNorPromises) {
  control::ClientHello proto;
  ASSERT_TRUE(proto.ParseFromString(Encode(FullClientHello())));
  proto.mutable_limits()->clear_peer_timeout_ns();
  proto.mutable_limits()->clear_heartbeats();
  const auto hello = DecodeClientHello(AsBytes(proto.SerializeAsString()));
  ASSERT_TRUE(hello.ok()) << hello.status();
  EXPECT_EQ(hello->limits.peer_timeout_ns, 0u);
  EXPECT_FALSE(hello->limits.heartbeats);
}

// Verdicts name paths by their place: those that are not known keep theirs.
TEST(Hello, PathsThatThisReleaseDoesNotKnowKeepTheirPlaceAndAreUnavailable) {
  control::ClientHello proto;
  ASSERT_TRUE(proto.ParseFromString(Encode(FullClientHello())));
  for (const uint32_t kind : {3u, 77u, 257u, 0xffffffffu}) proto.add_paths()->set_kind(kind);
  proto.mutable_paths(2)->set_link(99);
  const auto hello = DecodeClientHello(AsBytes(proto.SerializeAsString()));
  ASSERT_TRUE(hello.ok()) << hello.status();
  ASSERT_EQ(hello->paths.size(), 7u);
  EXPECT_EQ(hello->paths[2].link, LinkKind::kUnknown);
  EXPECT_EQ(PathKindName(hello->paths[5].kind), "unknown");
  EXPECT_EQ(hello->paths[5].unavailable, "paths of kind 257 are newer than this release");
}

// 40 candidates and 16 offers with the longest texts there are, and the application's largest
// hello.
TEST(Hello, TheLargestFitsIntoAFrame) {
  ServerHello hello = FullServerHello();
  hello.features.assign(kMaxFeatures, std::string(kMaxFeatureBytes, 'f'));
  PathOffer offer;
  offer.kind = PathKind::kVerbs;
  offer.provider = offer.device = std::string(128, 'd');
  offer.host = std::string(60, '1');
  offer.unavailable = std::string(5'000, 'u');
  hello.paths.assign(kMaxOfferedPaths, offer);
  hello.candidates.assign(kMaxCandidates, {15, 15, std::string(5'000, 'r')});
  hello.hello.assign(kMaxHelloBytes, 'x');
  EXPECT_LE(Encode(hello).size(), kMaxHelloBodyBytes);
}

TEST(Hello, TextsOfAPeerAreHarmless) {
  ClientHello hello = FullClientHello();
  hello.paths[1].unavailable = "\x1b[2J" + std::string(5'000, 'x');
  const auto decoded = DecodeClientHello(AsBytes(Encode(hello)));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->paths[1].unavailable.substr(0, 5), "?[2Jx");
  EXPECT_LE(decoded->paths[1].unavailable.size(), kMaxHelloReasonBytes + 3);
}

// Whoever reached a server could fill its log: each text of a hello that was not UTF-8 made
// protobuf write a line to the standard error, as often as somebody connected and said so.
TEST(Hello, TextsThatAreNotUtf8AreTakenWithoutALineInTheLog) {
  const ClientHello hello = FullClientHello();
  const std::string text = "denied by WEFT_PATHS=shm";
  std::string encoded = Encode(hello);
  encoded.replace(encoded.find(text), text.size(), text.size(), '\xff');
  testing::internal::CaptureStderr();
  const auto decoded = DecodeClientHello(AsBytes(encoded));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->paths[1].unavailable, std::string(text.size(), '?'));
}

TEST(PathTry, IsBoundedToo) {
  const std::string good = Encode(PathTry{0, "*:1", 4096});
  using Change = void (*)(control::PathTry&);
  const Change kCases[] = {
      [](control::PathTry& p) { p.set_candidate(40); },
      [](control::PathTry& p) { p.set_address(std::string(257, 'x')); },
      [](control::PathTry& p) { p.set_batch_bytes(255); },
      [](control::PathTry& p) { p.set_batch_bytes((1 << 20) + 1); },
  };
  for (const Change change : kCases) {
    EXPECT_EQ(DecodeChanged<control::PathTry>(good, change).code(), absl::StatusCode::kDataLoss);
  }
}

TEST(Refusal, CarriesTheServersCodeAndWords) {
  const absl::Status status =
      DecodeRefusal(AsBytes(EncodeRefusal(absl::ResourceExhaustedError("full"))));
  EXPECT_EQ(status, absl::ResourceExhaustedError("the server refused: full"));
}

TEST(Refusal, IsNeverOk) {
  for (const uint32_t code : {0u, 17u, 0xffffffffu}) {
    control::Refusal proto;
    proto.set_code(code);
    EXPECT_EQ(DecodeRefusal(AsBytes(proto.SerializeAsString())).code(),
              absl::StatusCode::kDataLoss);
  }
}

TEST(Printable, KeepsTextAndReplacesTheRest) {
  EXPECT_EQ(Printable("gr\xc3\xbc\xc3\x9f dich \xe4\xb8\x96\xe7\x95\x8c \xf0\x9f\x98\x80"),
            "gr\xc3\xbc\xc3\x9f dich \xe4\xb8\x96\xe7\x95\x8c \xf0\x9f\x98\x80");
  EXPECT_EQ(Printable(std::string("a\0b\n\x7f", 5)), "a?b??");
  // U+0080 to U+009F, which move a terminal's cursor as ESC does: U+009B is "ESC [".
  EXPECT_EQ(Printable("a\xc2\x9b"
                      "2J\xc2\x80\xc2\x9f\xc2\xa0"),
            "a?2J??\xc2\xa0");
  // Not UTF-8: a lone continuation, overlong, surrogate, beyond Unicode, cut off.
  EXPECT_EQ(Printable("\x80"), "?");
  EXPECT_EQ(Printable("\xc0\xaf"), "??");
  EXPECT_EQ(Printable("\xed\xa0\x80"), "???");
  EXPECT_EQ(Printable("\xf4\x90\x80\x80"), "????");
  EXPECT_EQ(Printable("x\xe4\xb8"), "x??");
}

TEST(Printable, CutsBetweenCharacters) {
  EXPECT_EQ(Printable("abc\xc3\xbc", 4), "abc...");
  EXPECT_EQ(Printable("abc\xc3\xbc", 5), "abc\xc3\xbc");
}

}  // namespace
}  // namespace weft
