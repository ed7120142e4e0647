// etcd as a source of servers, and as the place where one stands: against a small etcd that does
// what it is told. On a clock that each turn of the engine moves by a millisecond, so that pauses
// and deadlines cost nothing. (etcd itself: rpc/etcd_process_test.cc)
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/strings.h"
#include "rpc/client/address_source.h"
#include "rpc/naming/etcd_lease.h"
#include "rpc/naming/etcd_source.h"
#include "rpc/naming/targets.h"
#include "rpc/naming/testing/fake_etcd.h"
#include "rpc/naming/testing/heard.h"
#include "rpc/testing/loopback.h"
#include "transport/engine.h"

namespace weft::test {
namespace {

constexpr uint64_t kTurnNs = 1'000'000;
constexpr uint64_t kRefreshUs = 30'000'000;
constexpr int kTurnsOfASecond = 1000;
// A hang is one that lasts for so many turns: ten minutes of the clock's, some seconds of ours.
constexpr int kMostTurns = 600 * kTurnsOfASecond;
constexpr int kMostWaits = 100;  // of a millisecond: the kernel's own pauses are of 40

const char kRange[] = "/v3/kv/range";
const char kWatch[] = "/v3/watch";
const char kPut[] = "/v3/kv/put";
const char kGrant[] = "/v3/lease/grant";
const char kKeepAlive[] = "/v3/lease/keepalive";
const char kRevoke[] = "/v3/lease/revoke";

using Addresses = std::vector<std::string>;

class EtcdTest : public testing::Test {
 protected:
  std::unique_ptr<EngineCore> MakeEngine() {
    EngineOptions options;
    options.drive = EngineOptions::Drive::kCaller;
    options.spin_ns = kSpinForever;
    options.clock = &clock_;
    return *EngineCore::Create(options, [](const EngineContext&) {
      return absl::StatusOr<std::unique_ptr<Transport>>(std::make_unique<LoopbackTransport>());
    });
  }
  void Turn() {
    engine_->Poll();
    clock_.Advance(kTurnNs);
  }
  // The first turns in which nothing comes wait for it. On a busy machine the kernel took longer to
  // bring what one socket of this process had sent to the other than the source, whose time is made
  // up here, watches before it begins anew: so it never heard of it.
  bool RunUntil(const std::function<bool()>& done) {
    int waits = kMostWaits;
    for (int turn = 0; turn < kMostTurns; ++turn) {
      if (done()) return true;
      if (engine_->Poll() == 0 && waits > 0) {
        engine_->poller().Wait(kNsPerMs);
        --waits;
      }
      clock_.Advance(kTurnNs);
    }
    return done();
  }
  void RunFor(int seconds) {
    for (int turn = 0; turn < seconds * kTurnsOfASecond; ++turn) Turn();
  }

  FakeClock clock_;
  std::unique_ptr<EngineCore> engine_ = MakeEngine();
  FakeEtcd etcd_{*engine_};
};

// --- targets ------------------------------------------------------------------------------------

TEST(EtcdTargetTest, SaysWhatIsWrong) {
  for (const char* wrong :
       {"etcd:", "etcd:host", "etcd:host:1", "etcd:host:1/", "etcd:host:1//", "etcd:/kv",
        "etcd::1/kv", "etcd:host/kv", "etcd:host:0/kv", "etcd:host:65536/kv", "etcd:a:1,/kv",
        "etcd:a:1,b/kv", "etcd:u@a:1/kv", "etcd:[::1/kv", "etcd:::1:2379/kv", "etcd:a:1/k v",
        "etcd:a:1/\x80", "etcd:http://a:1/kv"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(MakeAddressSource(wrong).status())) << wrong;
  }
  const std::string long_prefix(EtcdTarget::kMaxPrefixBytes + 1, 'k');
  EXPECT_TRUE(absl::IsInvalidArgument(MakeAddressSource("etcd:a:1/" + long_prefix).status()));
  for (const char* good : {"etcd:host:2379/kv", "etcd:a:1,b:2,[::1]:3/services/kv/"}) {
    EXPECT_TRUE(MakeAddressSource(good).ok()) << MakeAddressSource(good).status();
  }
  EXPECT_EQ(ParseEtcdTarget("a:1,b:2/x/y//", {})->prefix, "/x/y/");
  EXPECT_EQ(ParseEtcdTarget("a:1,b:2/x", {})->endpoints, (Addresses{"a:1", "b:2"}));
}

TEST(EtcdTargetTest, OptionsGoTogether) {
  const auto refused = [](const EtcdOptions& options) {
    return absl::IsInvalidArgument(ParseEtcdTarget("a:1/x", options).status());
  };
  EXPECT_TRUE(refused({.ca_file = "ca", .certificate_file = "c"}));
  EXPECT_TRUE(refused({.ca_file = "ca", .key_file = "k"}));
  EXPECT_TRUE(refused({.certificate_file = "c", .key_file = "k"}));
  EXPECT_TRUE(refused({.password = "p"}));
  EXPECT_TRUE(refused({.user = "u\n"}));
  EXPECT_TRUE(refused({.user = "u", .password = "\xFF"}));
  EXPECT_FALSE(refused({.ca_file = "ca", .certificate_file = "c", .key_file = "k", .user = "u"}));
}

// --- the source ---------------------------------------------------------------------------------

class EtcdSourceTest : public EtcdTest {
 protected:
  ~EtcdSourceTest() override { source_.reset(); }

  void Start(const std::string& members, const EtcdOptions& options = {}) {
    auto source = MakeAddressSource("etcd:" + members + "/kv", options);
    ASSERT_TRUE(source.ok()) << source.status();
    source_ = *std::move(source);
    source_->Start(*engine_, &heard_, refresh_us_);
    EXPECT_EQ(heard_.times + heard_.failures, 0) << "nothing is said inside Start()";
  }
  void Start() { Start(etcd_.address()); }
  // It has read the list and watches it.
  void StartAndWatch() {
    Start();
    ASSERT_TRUE(RunUntil([&] { return etcd_.watches() == 1; })) << heard_.failure;
  }
  // It has begun to watch for the n-th time, and the fake has noticed that others are over.
  bool WatchesAgain(int times) {
    return RunUntil([&] { return etcd_.requests[kWatch] == times && etcd_.watches() == 1; });
  }
  bool Names(const Addresses& addresses) {
    return RunUntil([&] { return heard_.addresses() == addresses; });
  }
  absl::Status NextFailure() {
    const int failures = heard_.failures;
    EXPECT_TRUE(RunUntil([&] { return heard_.failures > failures; }));
    return heard_.failure;
  }

  uint64_t refresh_us_ = kRefreshUs;
  Heard heard_;
  std::unique_ptr<AddressSource> source_;
};

TEST_F(EtcdSourceTest, NamesTheServersBelowItsPrefix) {
  etcd_.Put("/kv/1", "a:1");
  etcd_.Put("/kv/deeper/2", " b:2@rack-2 # one\n");
  etcd_.Put("/kv", "c:3");
  etcd_.Put("/kvs/1", "c:4");
  etcd_.Put("/kv0", "c:5");
  Start();
  EXPECT_TRUE(Names({"a:1", "b:2"})) << heard_.failure;
  EXPECT_EQ(heard_.servers[1].zone, "rack-2");
}

TEST_F(EtcdSourceTest, ServersComeAndGoAsEtcdSaysIt) {
  etcd_.Put("/kv/1", "a:1");
  StartAndWatch();
  EXPECT_EQ(etcd_.last_start_revision, etcd_.revision() + 1);
  etcd_.Put("/kv/2", "b:2", /*lease=*/7);
  EXPECT_TRUE(Names({"a:1", "b:2"}));
  etcd_.Put("/kv/1", "a:9@x");
  EXPECT_TRUE(Names({"a:9", "b:2"}));
  etcd_.EndLeases();
  EXPECT_TRUE(Names({"a:9"}));
  etcd_.Put("/kv/3", "c:3");
  etcd_.Delete("/kv/1");
  EXPECT_TRUE(Names({"c:3"}));
  EXPECT_EQ(etcd_.requests[kRange], 1);
  EXPECT_EQ(heard_.failures, 0);
}

// Each telling has the whole list: a fleet that starts would have it copied and looked at for each
// of its servers.
TEST_F(EtcdSourceTest, ChangesThatComeCloseTogetherAreToldTogether) {
  constexpr int kServers = 200;
  etcd_.Put("/kv/0", "a:1");
  StartAndWatch();
  for (int i = 1; i < kServers; ++i) etcd_.Put(StrCat("/kv/", i), StrCat("a:", i + 1));
  ASSERT_TRUE(RunUntil([&] { return heard_.servers.size() == kServers; })) << heard_.failure;
  EXPECT_LT(heard_.times, kServers / 4);
  // The last one is not forgotten, nor is one that comes by itself.
  etcd_.Delete("/kv/0");
  ASSERT_TRUE(RunUntil([&] { return heard_.servers.size() == kServers - 1; }));
  RunFor(1);
  etcd_.Delete("/kv/1");
  ASSERT_TRUE(RunUntil([&] { return heard_.servers.size() == kServers - 2; }));
}

TEST_F(EtcdSourceTest, AValueThatIsNoServerIsLeftOut) {
  etcd_.Put("/kv/1", "a:1");
  etcd_.Put("/kv/2", "nonsense");
  etcd_.Put("/kv/3", "");
  etcd_.Put("/kv/4", "b:4\nc:4");
  etcd_.Put("/kv/5", std::string(EtcdSource::kMaxValueBytes, 'x') + ":1");
  etcd_.Put("/kv/6", std::string("\0\xFF\n", 3));
  StartAndWatch();
  EXPECT_TRUE(Names({"a:1"}));
  etcd_.Put("/kv/2", "b:2");
  EXPECT_TRUE(Names({"a:1", "b:2"}));
  etcd_.Put("/kv/1", "{}");
  EXPECT_TRUE(Names({"b:2"}));
}

TEST_F(EtcdSourceTest, TheLastServersStayWhenNoneIsLeft) {
  etcd_.Put("/kv/1", "a:1");
  StartAndWatch();
  etcd_.Delete("/kv/1");
  EXPECT_TRUE(absl::IsUnavailable(NextFailure())) << heard_.failure;
  EXPECT_EQ(heard_.addresses(), (Addresses{"a:1"}));
  etcd_.Put("/kv/2", "b:2");
  EXPECT_TRUE(Names({"b:2"}));
  EXPECT_EQ(etcd_.requests[kRange], 1) << "the watch goes on";
}

// What has changed between the list and the watch, or while nobody watched, is not lost.
TEST_F(EtcdSourceTest, ACompactedRevisionIsReadAnew) {
  etcd_.Put("/kv/1", "a:1");
  StartAndWatch();
  etcd_.TellWatchersRaw("{\"result\":{}}\n");  // no header: another cluster's
  EXPECT_TRUE(absl::IsUnavailable(NextFailure()));
  etcd_.Put("/kv/2", "b:2");
  EXPECT_TRUE(Names({"a:1", "b:2"}));
  ASSERT_TRUE(WatchesAgain(2));
  etcd_.CancelWatches();
  const absl::Status why = NextFailure();
  EXPECT_NE(why.message().find("compacted away"), absl::string_view::npos) << why;
  etcd_.Delete("/kv/1");
  EXPECT_TRUE(Names({"b:2"}));
}

TEST_F(EtcdSourceTest, AWatchIsBegunAgainEveryRefresh) {
  etcd_.Put("/kv/1", "a:1");
  StartAndWatch();
  etcd_.Put("/other", "x");  // another's: the watch is not told, and the revision moves on
  RunFor(5 * kRefreshUs / 1'000'000);
  EXPECT_GE(etcd_.requests[kWatch], 5);
  EXPECT_EQ(etcd_.requests[kRange], 1);
  EXPECT_EQ(heard_.failures, 0) << heard_.failure;
  etcd_.Put("/kv/2", "b:2");
  EXPECT_TRUE(Names({"a:1", "b:2"}));
}

TEST_F(EtcdSourceTest, AnEtcdThatHasLostItsDataIsReadAnew) {
  etcd_.Put("/kv/1", "a:1");
  etcd_.Put("/kv/2", "b:2");
  StartAndWatch();
  etcd_.LoseAll();
  EXPECT_TRUE(absl::IsUnavailable(NextFailure()));
  EXPECT_EQ(heard_.addresses(), (Addresses{"a:1", "b:2"})) << "an empty etcd names nobody";
  etcd_.Put("/kv/3", "c:3");
  EXPECT_TRUE(Names({"c:3"}));
}

TEST_F(EtcdSourceTest, EtcdIsDownAndTheServersStay) {
  etcd_.Put("/kv/1", "a:1");
  StartAndWatch();
  etcd_.SetDown(true);
  EXPECT_TRUE(absl::IsUnavailable(NextFailure())) << heard_.failure;
  RunFor(60);
  EXPECT_EQ(heard_.addresses(), (Addresses{"a:1"}));
  EXPECT_EQ(heard_.times, 1);
  // Pauses of 100 ms, 200 ms, ... 10 s, the half of each by chance: 6 until 6.3 s, then one in 5 s.
  EXPECT_LE(etcd_.turned_away, 7 + 55 / 5);
  EXPECT_GE(etcd_.turned_away, 6);
  etcd_.Put("/kv/1", "a:2");
  etcd_.SetDown(false);
  EXPECT_TRUE(Names({"a:2"}));
}

TEST_F(EtcdSourceTest, AMemberThatIsDownIsPassedOver) {
  FakeEtcd other(*engine_);
  etcd_.Put("/kv/1", "a:1");
  other.Put("/kv/1", "a:1");
  Start(etcd_.address() + "," + other.address());
  EXPECT_TRUE(Names({"a:1"}));
  etcd_.SetDown(true);
  other.Put("/kv/2", "b:2");
  EXPECT_TRUE(Names({"a:1", "b:2"})) << heard_.failure;
  etcd_.Put("/kv/3", "c:3");
  etcd_.SetDown(false);
  other.SetDown(true);
  EXPECT_TRUE(Names({"a:1", "c:3"})) << heard_.failure;
}

// It takes a request, and never answers: the list, or in the middle of a watch.
TEST_F(EtcdSourceTest, AMemberThatHangsIsPassedOver) {
  FakeEtcd other(*engine_);
  etcd_.Put("/kv/1", "a:1");
  other.Put("/kv/1", "a:1");
  other.FallSilent(kRange);
  Start(etcd_.address() + "," + other.address());
  EXPECT_TRUE(Names({"a:1"}));
  ASSERT_TRUE(RunUntil([&] { return etcd_.watches() == 1; }));
  other.Speak();
  other.Put("/kv/2", "b:2");
  etcd_.FallSilent(kWatch);
  EXPECT_TRUE(Names({"a:1", "b:2"})) << heard_.failure;
  EXPECT_NE(heard_.failure.message().find("no answer within 5 s"), absl::string_view::npos)
      << heard_.failure;
}

// With a refresh shorter than the time for an answer, each refresh began the watch again, and with
// it that time: a member that hung was never left.
TEST_F(EtcdSourceTest, AMemberThatHangsIsPassedOverHoweverOftenTheWatchIsBegunAgain) {
  FakeEtcd other(*engine_);
  etcd_.Put("/kv/1", "a:1");
  other.Put("/kv/1", "a:1");
  other.FallSilent(kRange);
  refresh_us_ = 1'000'000;
  Start(etcd_.address() + "," + other.address());
  EXPECT_TRUE(Names({"a:1"}));
  ASSERT_TRUE(RunUntil([&] { return etcd_.requests[kWatch] >= 3 && etcd_.watches() == 1; }));
  other.Speak();
  other.Put("/kv/2", "b:2");
  etcd_.FallSilent(kWatch);
  const int watches = etcd_.requests[kWatch];
  EXPECT_TRUE(Names({"a:1", "b:2"})) << heard_.failure;
  EXPECT_NE(heard_.failure.message().find("no answer within 5 s"), absl::string_view::npos)
      << heard_.failure;
  EXPECT_EQ(etcd_.requests[kWatch], watches + 1) << "the watch is not begun again unanswered";
}

// --- what is hostile until it is checked --------------------------------------------------------

TEST_F(EtcdSourceTest, AListThatMakesNoSenseNamesNobody) {
  const std::string deep(100'000, '[');
  const std::vector<std::string> bodies = {
      "",
      "{",
      "[]",
      "7",
      "\"\xFF\"",
      std::string("\0\0", 2),
      deep,
      "{\"kvs\":" + deep,
      "{\"unknown\":" + deep,
      "{}",
      R"({"header":{"revision":"0"}})",
      R"({"header":{"revision":"-5"}})",
      R"({"header":{"revision":"9223372036854775807"}})",
      R"({"header":{"revision":"9223372036854775808"}})",
      R"({"header":{"revision":{}}})",
      R"({"header":{"revision":"3"},"kvs":7})",
      R"({"header":{"revision":"3"},"kvs":[{"key":"!","value":7}]})",
      R"({"header":{"revision":"3"},"kvs":[{}],"more":true})",
  };
  const std::vector<std::string> raw = {
      "nonsense\r\n\r\n",
      "HTTP/1.1 200 So\r\nContent-Length: -1\r\n\r\n",
      "HTTP/1.1 200 So\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffffff\r\n",
      "HTTP/1.1 999\r\nContent-Length: 0\r\n\r\n",
      "HTTP/1.1 200 So\r\n" + std::string(EtcdClient::kMaxHeaderBytes + 1, 'h') + ": x\r\n\r\n",
      "HTTP/1.1 302 So\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\n\r\n",
  };
  for (const std::string& body : bodies) etcd_.AnswerJson(kRange, body);
  for (const std::string& answer : raw) etcd_.AnswerRaw(kRange, answer);
  etcd_.AnswerJson(kRange, R"({"message":"what","code":0})", 500);
  etcd_.AnswerJson(kRange, R"({"message":"what","code":-7})", 500);
  Start();
  for (size_t wrong = 0; wrong < bodies.size() + raw.size() + 2; ++wrong) {
    const absl::Status why = NextFailure();
    EXPECT_TRUE(absl::IsUnavailable(why)) << wrong << " " << why;
    EXPECT_NE(why.message().find(etcd_.address()), absl::string_view::npos) << wrong << " " << why;
  }
  EXPECT_EQ(heard_.times, 0);
  etcd_.Put("/kv/1", "a:1");
  EXPECT_TRUE(Names({"a:1"}));
}

TEST_F(EtcdSourceTest, AWatchThatMakesNoSenseIsLeft) {
  // A watch that is begun anew meanwhile would lose the line on its way: on a busy machine the
  // kernel may take longer for that than the test's clock for half a minute.
  refresh_us_ = 3'600'000'000;
  const std::string deep(100'000, '[');
  etcd_.Put("/kv/1", "a:1");
  StartAndWatch();
  int watches = 1;
  for (const std::string& line :
       std::vector<std::string>{"x\n", "{\n", deep + "\n",
                                R"({"error":{"message":"no leader"}})"
                                "\n",
                                R"({"result":{"header":{"cluster_id":"7"}}})"
                                "\n",
                                R"({"result":{"events":7}})"
                                "\n",
                                std::string("\0\n", 2)}) {
    etcd_.TellWatchersRaw(line);
    EXPECT_TRUE(absl::IsUnavailable(NextFailure())) << line.substr(0, 100) << heard_.failure;
    ASSERT_TRUE(WatchesAgain(++watches)) << line.substr(0, 100);
  }
  EXPECT_EQ(heard_.addresses(), (Addresses{"a:1"}));
  etcd_.Put("/kv/2", "b:2");
  EXPECT_TRUE(Names({"a:1", "b:2"}));
}

// Keys that were not asked for, deletions of what is not there, revisions out of order: whoever
// says them is mistaken, and harms nobody.
TEST_F(EtcdSourceTest, EventsThatMakeNoSenseChangeNothing) {
  etcd_.Put("/kv/1", "a:1");
  StartAndWatch();
  const std::string header = R"({"result":{"header":{"cluster_id":"9223372036854775808"},)";
  // "/other" and "b:2"; "/kv/2" in the words of another version.
  etcd_.TellWatchersRaw(header +
                        R"("events":[{"kv":{"key":"L290aGVy","value":"Yjoy"}}]}})"
                        "\n" +
                        header +
                        R"("events":[{},{"kv":{}},{"type":"DELETE"},{"kv":{"key":"L2t2LzI="}}]}})"
                        "\n\n" +
                        header +
                        R"("events":[{"kv":{"mod_revision":"9223372036854775807"}}]}})"
                        "\n");
  etcd_.Put("/kv/3", "c:3");
  EXPECT_TRUE(Names({"a:1", "c:3"}));
  EXPECT_EQ(heard_.failures, 0) << heard_.failure;
  EXPECT_EQ(heard_.times, 2);
}

// A message may come in any pieces.
TEST_F(EtcdSourceTest, AWatchIsReadInPieces) {
  etcd_.Put("/kv/1", "a:1");
  StartAndWatch();
  const std::string events =
      R"({"result":{"header":{"cluster_id":"9223372036854775808","revision":"3"},)"
      R"("events":[{"kv":{"key":"L2t2LzI=","value":"Yjoy","mod_revision":"3"}}]}})"
      "\n";
  for (const char c : events) {
    EXPECT_EQ(heard_.times, 1);
    etcd_.TellWatchersRaw(std::string(1, c));
    for (int turn = 0; turn < 10; ++turn) Turn();
  }
  EXPECT_TRUE(Names({"a:1", "b:2"}));
}

TEST_F(EtcdSourceTest, WhatIsTooLongIsCutOff) {
  const std::string much(EtcdClient::kMaxMessageBytes + 1, ' ');
  etcd_.AnswerJson(kRange, much);
  Start();
  absl::Status why = NextFailure();
  EXPECT_NE(why.message().find("more was sent"), absl::string_view::npos) << why;
  etcd_.Put("/kv/1", "a:1");
  EXPECT_TRUE(Names({"a:1"}));
  ASSERT_TRUE(RunUntil([&] { return etcd_.watches() == 1; }));
  etcd_.TellWatchersRaw(much);
  why = NextFailure();
  EXPECT_NE(why.message().find("more was sent"), absl::string_view::npos) << why;
}

// The values of servers were bounded, and their keys were kept as they came: a watch could bring
// 16,384 of them, each as long as a message.
TEST_F(EtcdSourceTest, AKeyThatIsTooLongIsLeftOut) {
  const std::string much(4096, 'x');
  etcd_.Put("/kv/1", "a:1");
  etcd_.Put("/kv/" + much, "b:2");
  StartAndWatch();
  EXPECT_TRUE(Names({"a:1"}));
  etcd_.Put("/kv/2" + much, "c:3");
  etcd_.Put("/kv/" + std::string(1000, 'y'), "d:4");
  EXPECT_TRUE(Names({"a:1", "d:4"}));
  EXPECT_EQ(heard_.failures, 0) << heard_.failure;
}

// Objects with nothing in them were read one by one: 16 MiB of them held the engine for seconds.
TEST_F(EtcdSourceTest, MoreObjectsThanAListHasAreNotRead) {
  std::string json = R"({"header": {"revision": "1"}, "kvs": [{})";
  for (uint32_t i = 0; i < 4 * kMaxServersListed; ++i) json += ",{}";
  etcd_.AnswerJson(kRange, json + "]}");
  Start();
  const absl::Status why = NextFailure();
  EXPECT_NE(why.message().find("objects"), absl::string_view::npos) << why;
  etcd_.Put("/kv/1", "a:1");
  EXPECT_TRUE(Names({"a:1"}));
}

TEST_F(EtcdSourceTest, MoreServersThanAllowedAreRefused) {
  for (uint32_t i = 0; i < kMaxServersListed; ++i) {
    etcd_.Put(StrCat("/kv/", i), StrCat("a:", i + 1));
  }
  Start();
  ASSERT_TRUE(RunUntil([&] { return heard_.servers.size() == kMaxServersListed; }))
      << heard_.failure;
  ASSERT_TRUE(RunUntil([&] { return etcd_.watches() == 1; }));
  etcd_.Put("/kv/more", "b:1");
  absl::Status why = NextFailure();
  EXPECT_NE(why.message().find("more than 16384"), absl::string_view::npos) << why;
  why = NextFailure();  // of the list that is read anew
  EXPECT_NE(why.message().find("more than 16384"), absl::string_view::npos) << why;
  EXPECT_EQ(heard_.servers.size(), kMaxServersListed);
}

TEST_F(EtcdSourceTest, AUserSignsInAndAgainWhenTheTokenIsNoMore) {
  etcd_.Require("weft", "secret");
  etcd_.Put("/kv/1", "a:1");
  Start(etcd_.address(), {.user = "weft", .password = "secret"});
  EXPECT_TRUE(Names({"a:1"})) << heard_.failure;
  ASSERT_TRUE(RunUntil([&] { return etcd_.watches() == 1; }));
  etcd_.ForgetTokens();
  etcd_.HangUp();
  etcd_.Put("/kv/1", "a:2");
  EXPECT_TRUE(Names({"a:2"})) << heard_.failure;
  EXPECT_EQ(etcd_.requests["/v3/auth/authenticate"], 2);
}

TEST_F(EtcdSourceTest, WhoIsRefusedHearsIt) {
  etcd_.Require("weft", "secret");
  etcd_.Put("/kv/1", "a:1");
  Start(etcd_.address(), {.user = "weft", .password = "wrong"});
  const absl::Status why = NextFailure();
  EXPECT_TRUE(absl::IsInvalidArgument(why)) << why;
  EXPECT_NE(why.message().find("authentication failed"), absl::string_view::npos) << why;
  etcd_.AnswerJson("/v3/auth/authenticate", R"({"token":"a\r\nX: y"})");
  EXPECT_NE(NextFailure().message().find("no token"), absl::string_view::npos);
  EXPECT_EQ(heard_.times, 0);
}

TEST_F(EtcdSourceTest, WithoutAPasswordItHearsThatOneIsNeeded) {
  etcd_.Require("weft", "secret");
  Start();
  EXPECT_TRUE(absl::IsUnauthenticated(NextFailure())) << heard_.failure;
}

TEST_F(EtcdSourceTest, EndsWhileItAsks) {
  etcd_.FallSilent(kRange);
  Start();
  EXPECT_TRUE(RunUntil([&] { return etcd_.requests[kRange] == 1; }));
  source_.reset();
  RunFor(1);
  EXPECT_EQ(heard_.times + heard_.failures, 0);
}

TEST_F(EtcdSourceTest, EndsWhileItWatches) {
  etcd_.Put("/kv/1", "a:1");
  StartAndWatch();
  source_.reset();
  EXPECT_TRUE(RunUntil([&] { return etcd_.watches() == 0; }));
}

// --- the lease ----------------------------------------------------------------------------------

class EtcdLeaseTest : public EtcdTest {
 protected:
  static constexpr int64_t kLeaseS = 9;

  ~EtcdLeaseTest() override { lease_.reset(); }

  void Start(const std::string& members) {
    ASSERT_TRUE(LoadCurlLibrary().ok()) << LoadCurlLibrary();
    const EtcdTarget target = *ParseEtcdTarget(members + "/kv", {});
    lease_ = std::make_unique<EtcdLease>(*engine_, target, EtcdOptions(), "/kv/a:1", "a:1@x",
                                         lease_s_, &held_);
    lease_->Start();
  }
  void StartAndHold() {
    Start(etcd_.address());
    ASSERT_TRUE(RunUntil([&] { return held_ == 1; }));
  }
  // How many turns it took until Withdraw() was done.
  int Withdraw() {
    bool done = false;
    lease_->Withdraw([&done] { done = true; });
    int turns = 0;
    EXPECT_TRUE(RunUntil([&] { return ++turns, done; }));
    return turns;
  }

  int64_t lease_s_ = kLeaseS;
  std::atomic<uint32_t> held_ = 0;
  std::unique_ptr<EtcdLease> lease_;
};

TEST_F(EtcdLeaseTest, PutsItsKeyAndKeepsItAlive) {
  StartAndHold();
  EXPECT_EQ(etcd_.ValueOf("/kv/a:1"), "a:1@x");
  EXPECT_EQ(etcd_.leases(), 1u);
  RunFor(10 * kLeaseS);
  // Three times in the time of the lease.
  EXPECT_GE(etcd_.requests[kKeepAlive], 28);
  EXPECT_LE(etcd_.requests[kKeepAlive], 31);
  EXPECT_EQ(etcd_.requests[kPut], 1);
  EXPECT_EQ(held_, 1u);
  // One that is gone counts no more, as if it had been killed: its key stays until the lease ends.
  lease_.reset();
  EXPECT_EQ(held_, 0u);
  EXPECT_TRUE(etcd_.Has("/kv/a:1"));
}

TEST_F(EtcdLeaseTest, ALeaseThatHasEndedIsFollowedByANewOne) {
  StartAndHold();
  etcd_.EndLeases();
  EXPECT_FALSE(etcd_.Has("/kv/a:1"));
  EXPECT_TRUE(RunUntil([&] { return etcd_.Has("/kv/a:1"); }));
  EXPECT_TRUE(RunUntil([&] { return held_ == 1; }));
  EXPECT_EQ(etcd_.requests[kGrant], 2);
}

TEST_F(EtcdLeaseTest, AnEtcdThatComesBackEmptyGetsTheKeyAgain) {
  StartAndHold();
  etcd_.SetDown(true);
  RunFor(2 * kLeaseS);
  EXPECT_EQ(held_, 0u);
  etcd_.LoseAll();
  etcd_.SetDown(false);
  EXPECT_TRUE(RunUntil([&] { return etcd_.Has("/kv/a:1") && held_ == 1; }));
}

TEST_F(EtcdLeaseTest, AnEtcdThatIsAwayForAMomentKeepsTheLease) {
  StartAndHold();
  etcd_.SetDown(true);
  ASSERT_TRUE(RunUntil([&] { return etcd_.turned_away == 2; }));
  etcd_.SetDown(false);
  const int kept = etcd_.requests[kKeepAlive];
  EXPECT_TRUE(RunUntil([&] { return etcd_.requests[kKeepAlive] > kept; }));
  EXPECT_EQ(held_, 1u);
  EXPECT_EQ(etcd_.requests[kGrant], 1);
}

TEST_F(EtcdLeaseTest, AMemberThatHangsOrIsDownIsPassedOver) {
  FakeEtcd other(*engine_);
  etcd_.FallSilent(kGrant);
  Start(etcd_.address() + "," + other.address());
  ASSERT_TRUE(RunUntil([&] { return held_ == 1; }));
  EXPECT_TRUE(other.Has("/kv/a:1"));
  other.SetDown(true);
  etcd_.Speak();
  EXPECT_TRUE(RunUntil([&] { return etcd_.Has("/kv/a:1"); }));
}

// A member had 5 s to answer, whatever the lease: with one of 6 s, kept alive after 2 s, the next
// member was asked when it was over.
TEST_F(EtcdLeaseTest, AShortLeaseOutlivesAMemberThatHangs) {
  FakeEtcd other(*engine_);
  lease_s_ = 6;
  Start(etcd_.address() + "," + other.address());
  ASSERT_TRUE(RunUntil([&] { return held_ == 1; }));
  const bool is_first = etcd_.Has("/kv/a:1");
  FakeEtcd& hangs = is_first ? etcd_ : other;
  FakeEtcd& answers = is_first ? other : etcd_;
  hangs.FallSilent(kKeepAlive);
  answers.AnswerJson(kKeepAlive, R"({"result":{"TTL":"6"}})");
  ASSERT_TRUE(RunUntil([&] { return answers.requests[kKeepAlive] == 1; }));
  EXPECT_EQ(held_, 1u);
  RunFor(1);
  EXPECT_EQ(held_, 1u);
  EXPECT_EQ(etcd_.requests[kGrant] + other.requests[kGrant], 1);
}

// A key counted as held until an attempt failed whose end came seconds after that of the lease.
TEST_F(EtcdLeaseTest, AKeyCountsNoLongerThanItsLease) {
  StartAndHold();
  etcd_.FallSilent(kKeepAlive);
  etcd_.FallSilent(kGrant);
  RunFor(kLeaseS - 1);
  EXPECT_EQ(held_, 1u);
  for (int turn = 0; turn < 11 * kTurnsOfASecond / 10; ++turn) Turn();
  EXPECT_EQ(held_, 0u);
  etcd_.Speak();
  EXPECT_TRUE(RunUntil([&] { return held_ == 1; }));
}

TEST_F(EtcdLeaseTest, AGrantThatMakesNoSenseIsNone) {
  for (const char* answer : {"", "{}", "7", R"({"ID":"0","TTL":"9"})", R"({"ID":"5","TTL":"0"})",
                             R"({"ID":"5","TTL":"-9"})", R"({"ID":"x","TTL":"9"})"}) {
    etcd_.AnswerJson(kGrant, answer);
  }
  etcd_.AnswerJson(kPut, R"({"message":"requested lease not found","code":5})", 404);
  StartAndHold();
  EXPECT_EQ(etcd_.requests[kGrant], 9);
  EXPECT_EQ(etcd_.requests[kPut], 2);
  // As long as it likes, but not for ever.
  for (const char* answer : {"", "{}", R"({"error":{"message":"no"}})", R"({"result":7})",
                             R"({"result":{"TTL":"9223372036854775807"}})"}) {
    etcd_.AnswerJson(kKeepAlive, answer);
  }
  EXPECT_TRUE(RunUntil([&] { return etcd_.requests[kKeepAlive] == 5; }));
  RunFor(1);
  EXPECT_EQ(held_, 1u);
  EXPECT_EQ(etcd_.requests[kGrant], 9);
}

TEST_F(EtcdLeaseTest, WithdrawTakesTheKeyAway) {
  StartAndHold();
  Withdraw();
  EXPECT_FALSE(etcd_.Has("/kv/a:1"));
  EXPECT_EQ(etcd_.leases(), 0u);
  EXPECT_EQ(held_, 0u);
  RunFor(2 * kLeaseS);
  EXPECT_EQ(etcd_.requests[kKeepAlive] + etcd_.requests[kGrant], 1 + etcd_.requests[kKeepAlive]);
}

TEST_F(EtcdLeaseTest, WithdrawGivesUpOnAnEtcdThatHangs) {
  StartAndHold();
  etcd_.FallSilent(kRevoke);
  const int turns = Withdraw();
  EXPECT_GE(turns, kTurnsOfASecond * 9 / 10);
  EXPECT_LE(turns, kTurnsOfASecond * 11 / 10);
}

TEST_F(EtcdLeaseTest, WithdrawGivesUpOnAnEtcdThatIsDown) {
  StartAndHold();
  etcd_.SetDown(true);
  EXPECT_LT(Withdraw(), kTurnsOfASecond);
  EXPECT_EQ(etcd_.turned_away, 1);
}

TEST_F(EtcdLeaseTest, WithdrawAsksEachMember) {
  FakeEtcd other(*engine_);
  Start(etcd_.address() + "," + other.address());
  ASSERT_TRUE(RunUntil([&] { return held_ == 1; }));
  FakeEtcd& first = etcd_.Has("/kv/a:1") ? etcd_ : other;
  first.AnswerJson(kRevoke, R"({"message":"no leader","code":14})", 503);
  Withdraw();
  EXPECT_EQ(etcd_.requests[kRevoke], 1);
  EXPECT_EQ(other.requests[kRevoke], 1);
}

// The first one had all of the second, and the key stayed though the other one was well.
TEST_F(EtcdLeaseTest, WithdrawAsksTheNextMemberWhenOneHangs) {
  FakeEtcd other(*engine_);
  Start(etcd_.address() + "," + other.address());
  ASSERT_TRUE(RunUntil([&] { return held_ == 1; }));
  FakeEtcd& first = etcd_.Has("/kv/a:1") ? etcd_ : other;
  first.FallSilent(kRevoke);
  EXPECT_LT(Withdraw(), kTurnsOfASecond * 6 / 10);
  EXPECT_EQ(etcd_.requests[kRevoke], 1);
  EXPECT_EQ(other.requests[kRevoke], 1);
}

TEST_F(EtcdLeaseTest, WithdrawHasASecondForAllMembersThatHang) {
  FakeEtcd other(*engine_);
  Start(etcd_.address() + "," + other.address());
  ASSERT_TRUE(RunUntil([&] { return held_ == 1; }));
  etcd_.FallSilent(kRevoke);
  other.FallSilent(kRevoke);
  const int turns = Withdraw();
  EXPECT_GE(turns, kTurnsOfASecond * 9 / 10);
  EXPECT_LE(turns, kTurnsOfASecond * 11 / 10);
  EXPECT_EQ(etcd_.requests[kRevoke], 1);
  EXPECT_EQ(other.requests[kRevoke], 1);
}

// The key was put, and nobody heard of it: the lease was forgotten, and the key stayed.
TEST_F(EtcdLeaseTest, WithdrawTakesAKeyAwayWhosePutWasNotAnswered) {
  constexpr int64_t kFirstLease = (int64_t{1} << 60) + 1;  // FakeEtcd's
  etcd_.FallSilent(kPut);
  etcd_.on_request = [this](const std::string& path) {
    if (path != kPut) return;
    etcd_.Put("/kv/a:1", "a:1@x", kFirstLease);
    etcd_.FallSilent(kGrant);
  };
  Start(etcd_.address());
  ASSERT_TRUE(RunUntil([&] { return etcd_.requests[kGrant] == 2; }));
  ASSERT_TRUE(etcd_.Has("/kv/a:1"));
  Withdraw();
  EXPECT_FALSE(etcd_.Has("/kv/a:1"));
  EXPECT_EQ(etcd_.leases(), 0u);
}

TEST_F(EtcdLeaseTest, WithdrawIsPossibleAtAnyTime) {
  Start(etcd_.address());
  EXPECT_LE(Withdraw(), 1) << "before anything was asked";
  for (const char* path : {kGrant, kPut, kKeepAlive}) {
    etcd_.FallSilent(path);
    Start(etcd_.address());
    const int asked = etcd_.requests[path];
    ASSERT_TRUE(RunUntil([&] { return etcd_.requests[path] > asked; })) << path;
    EXPECT_LT(Withdraw(), kTurnsOfASecond) << path;
    EXPECT_FALSE(etcd_.Has("/kv/a:1")) << path;
    EXPECT_EQ(held_, 0u) << path;
    lease_.reset();
    etcd_.Speak();
  }
}

}  // namespace
}  // namespace weft::test
