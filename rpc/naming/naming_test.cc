// Where servers stand: targets, lists, files and name servers.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "rpc/client/address_source.h"
#include "rpc/client/balancing.h"
#include "rpc/naming/dns_source.h"
#include "rpc/naming/targets.h"
#include "rpc/naming/testing/heard.h"
#include "rpc/naming/testing/name_server.h"
#include "rpc/testing/loopback.h"
#include "transport/engine.h"

namespace weft::test {
namespace {

class NamingTest : public testing::Test {
 protected:
  static constexpr uint64_t kSoonUs = 5'000;  // of sources that look again
  static constexpr uint64_t kNeverUs = 3'600'000'000;

  std::unique_ptr<EngineCore> MakeEngine(Clock* clock = nullptr) {
    EngineOptions options;
    options.drive = EngineOptions::Drive::kCaller;
    options.spin_ns = kSpinForever;
    options.clock = clock;
    return *EngineCore::Create(options, [](const EngineContext&) {
      return absl::StatusOr<std::unique_ptr<Transport>>(std::make_unique<LoopbackTransport>());
    });
  }
  void Start(const std::string& target, uint64_t refresh_us = kNeverUs) {
    auto source = MakeAddressSource(target);
    ASSERT_TRUE(source.ok()) << source.status();
    source_ = *std::move(source);
    source_->Start(*engine_, &heard_, refresh_us);
    EXPECT_EQ(heard_.times + heard_.failures, 0) << "nothing is said inside Start()";
  }
  bool RunUntil(absl::FunctionRef<bool()> done) {
    return engine_->RunUntil(done, engine_->clock().NowNs() + 60 * kNsPerSec);
  }
  std::vector<std::string> FirstAddresses() {
    EXPECT_TRUE(RunUntil([&] { return heard_.times > 0; })) << heard_.failure;
    return heard_.addresses();
  }
  absl::Status FirstFailure() {
    EXPECT_TRUE(RunUntil([&] { return heard_.failures > 0; }));
    return heard_.failure;
  }

  std::unique_ptr<EngineCore> engine_ = MakeEngine();
  Heard heard_;
  std::unique_ptr<AddressSource> source_;
};

using Addresses = std::vector<std::string>;

// --- texts --------------------------------------------------------------------------------------

TEST(ListedServerTest, HasAnAddressAndPerhapsAZone) {
  EXPECT_EQ(ParseListedServer("db7:4711")->address, "db7:4711");
  EXPECT_EQ(ParseListedServer("[::1]:4711@rack-2")->address, "[::1]:4711");
  EXPECT_EQ(ParseListedServer("[::1]:4711@rack-2")->zone, "rack-2");
  EXPECT_EQ(ParseListedServer("unix:/run/a@b@here")->address, "unix:/run/a@b");
  for (const char* wrong : {"", "db7", "@zone", "db7:4711@", "db7:4711 x", "a:1\t"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseListedServer(wrong).status())) << wrong;
  }
}

TEST(ServerListTest, HasLinesAndComments) {
  const auto servers = ParseServerList("# all\n a:1@x # one\r\n\n\tb:2\n", "\n");
  ASSERT_TRUE(servers.ok()) << servers.status();
  EXPECT_EQ(*servers, (std::vector<ListedServer>{{"a:1", "x"}, {"b:2"}}));
  std::string many;
  for (uint32_t i = 0; i <= kMaxServersListed; ++i) many += "a:" + std::to_string(i) + "\n";
  EXPECT_TRUE(absl::IsInvalidArgument(ParseServerList(many, "\n").status()));
}

TEST(TargetTest, SaysWhatIsWrongWithADnsName) {
  for (const char* wrong : {"dns:", "dns:host", "dns:host:0", "dns:host:70000", "dns::80",
                            "dns://1.2.3.4", "dns:///host:80", "dns:a b:80"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(MakeAddressSource(wrong).status())) << wrong;
  }
  for (const char* good : {"dns:host:80", "dns:_kv._tcp.example.com", "dns://[::1]:5353/host:80"}) {
    EXPECT_TRUE(MakeAddressSource(good).ok()) << good;
  }
}

// --- lists and files ----------------------------------------------------------------------------

TEST_F(NamingTest, AListIsSaidOnce) {
  Start("list:a:1,b:2@x");
  EXPECT_EQ(FirstAddresses(), (Addresses{"a:1", "b:2"}));
  EXPECT_EQ(heard_.servers[1].zone, "x");
}

TEST_F(NamingTest, AnEmptyListIsAFailure) {
  Start("list:");
  EXPECT_TRUE(absl::IsUnavailable(FirstFailure()));
}

class FileTest : public NamingTest {
 protected:
  ~FileTest() override {
    source_.reset();
    unlink(path_.c_str());
  }
  // As those should who change such a file.
  void Replace(const std::string& text) {
    std::ofstream(path_ + ".new") << text;
    ASSERT_EQ(rename((path_ + ".new").c_str(), path_.c_str()), 0);
  }

  const std::string path_ = testing::TempDir() + "/servers";
};

TEST_F(FileTest, IsReadAgainWhenItChanges) {
  Replace("a:1\nb:2\n");
  Start("file:" + path_, kSoonUs);
  EXPECT_EQ(FirstAddresses(), (Addresses{"a:1", "b:2"}));
  Replace("c:3\n");
  EXPECT_TRUE(RunUntil([&] { return heard_.addresses() == Addresses{"c:3"}; }));
}

// What has no addresses may be half a file.
TEST_F(FileTest, ThatCannotBeUsedNamesNobody) {
  Start("file:" + path_, kSoonUs);
  EXPECT_TRUE(absl::IsNotFound(FirstFailure())) << heard_.failure;
  const auto fails_with = [&](const char* words) {
    return RunUntil(
        [&] { return heard_.failure.message().find(words) != absl::string_view::npos; });
  };
  Replace("# nobody\n");
  EXPECT_TRUE(fails_with("names none")) << heard_.failure;
  Replace("a:1\nwhat\n");
  EXPECT_TRUE(fails_with("\"what\" is no server")) << heard_.failure;
  EXPECT_EQ(heard_.times, 0);
  Replace("a:1\n");
  EXPECT_EQ(FirstAddresses(), (Addresses{"a:1"}));
}

// A pipe that nobody writes to would hold up the engine.
TEST_F(FileTest, ThatIsNoFileIsNotRead) {
  Start("file:/dev/zero");
  EXPECT_TRUE(absl::IsInvalidArgument(FirstFailure())) << heard_.failure;
}

// --- name servers -------------------------------------------------------------------------------

class DnsTest : public NamingTest {
 protected:
  ~DnsTest() override { source_.reset(); }
  void Ask(const std::string& name, uint64_t refresh_us = kNeverUs) {
    Start("dns://" + names_.address() + "/" + name, refresh_us);
  }

  NameServer names_{*engine_};
};

TEST_F(DnsTest, AHostHasAddressesOfBothFamilies) {
  names_.AddA("db.test", "10.0.0.2");
  names_.AddA("db.test", "10.0.0.1");
  names_.AddAaaa("db.test", "fd00::7");
  Ask("db.test:4711");
  EXPECT_EQ(FirstAddresses(), (Addresses{"10.0.0.1:4711", "10.0.0.2:4711", "[fd00::7]:4711"}));
}

TEST_F(DnsTest, OneFamilyIsEnough) {
  names_.AddAaaa("db.test", "fd00::7");
  Ask("db.test:4711");
  EXPECT_EQ(FirstAddresses(), (Addresses{"[fd00::7]:4711"}));
}

TEST_F(DnsTest, AServiceHasHostsPortsAndPriorities) {
  names_.AddSrv("_kv._tcp.test", 20, 1, "spare.test");
  names_.AddSrv("_kv._tcp.test", 10, 2, "one.test");
  names_.AddSrv("_kv._tcp.test", 10, 3, "two.test");
  names_.AddSrv("_kv._tcp.test", 10, 4, "unknown.test");
  names_.AddA("one.test", "10.0.0.1");
  names_.AddA("two.test", "10.0.0.2");
  names_.AddA("two.test", "10.0.0.3");
  names_.AddA("spare.test", "10.0.0.9");
  Ask("_kv._tcp.test");
  EXPECT_EQ(FirstAddresses(), (Addresses{"10.0.0.1:2", "10.0.0.2:3", "10.0.0.3:3", "10.0.0.9:1"}));
  EXPECT_EQ(heard_.servers[0].priority, 10u);
  EXPECT_EQ(heard_.servers[3].priority, 20u);
}

TEST_F(DnsTest, IsAskedAgainWhetherOrNotServersAreWell) {
  names_.AddA("db.test", "10.0.0.1");
  Ask("db.test:1", kSoonUs);
  EXPECT_EQ(FirstAddresses(), (Addresses{"10.0.0.1:1"}));
  names_.AddA("db.test", "10.0.0.2");
  EXPECT_TRUE(RunUntil([&] {
    return heard_.addresses() == Addresses{"10.0.0.1:1", "10.0.0.2:1"};
  }));
  names_.Forget("db.test");
  EXPECT_TRUE(RunUntil([&] { return heard_.failures > 0; }));
  EXPECT_TRUE(absl::IsUnavailable(heard_.failure)) << heard_.failure;
  EXPECT_EQ(heard_.servers.size(), 2u);
  const int times = heard_.times;
  names_.AddA("db.test", "10.0.0.3");
  EXPECT_TRUE(RunUntil([&] { return heard_.times > times; }));
}

// What had not been answered about a host counted as that it has no addresses: its servers were
// drained, though they were well.
TEST_F(DnsTest, AHostThatCannotBeAskedAboutKeepsItsAddresses) {
  names_.AddSrv("_kv._tcp.test", 10, 1, "one.test");
  names_.AddSrv("_kv._tcp.test", 10, 2, "two.test");
  names_.AddA("one.test", "10.0.0.1");
  names_.AddA("two.test", "10.0.0.2");
  Ask("_kv._tcp.test", kSoonUs);
  EXPECT_EQ(FirstAddresses(), (Addresses{"10.0.0.1:1", "10.0.0.2:2"}));
  names_.FailFor("two.test");
  names_.AddSrv("_kv._tcp.test", 10, 3, "three.test");
  names_.AddA("three.test", "10.0.0.3");
  EXPECT_TRUE(RunUntil([&] {
    return heard_.addresses() == Addresses{"10.0.0.1:1", "10.0.0.2:2", "10.0.0.3:3"};
  }));
  // Others come and go meanwhile.
  names_.Forget("one.test");
  EXPECT_TRUE(RunUntil([&] {
    return heard_.addresses() == Addresses{"10.0.0.2:2", "10.0.0.3:3"};
  }));
}

TEST_F(DnsTest, SomeServersAreBetterThanNone) {
  names_.AddSrv("_kv._tcp.test", 10, 1, "one.test");
  names_.AddSrv("_kv._tcp.test", 10, 2, "two.test");
  names_.AddA("one.test", "10.0.0.1");
  names_.FailFor("two.test");
  Ask("_kv._tcp.test");
  EXPECT_EQ(FirstAddresses(), (Addresses{"10.0.0.1:1"}));
}

TEST_F(DnsTest, AnAnswerThatMakesNoSenseNamesNobody) {
  names_.AddRaw("_kv._tcp.test", NameServer::kSrv, "abc");  // shorter than its fields
  Ask("_kv._tcp.test", kSoonUs);
  EXPECT_TRUE(absl::IsUnavailable(FirstFailure())) << heard_.failure;
  EXPECT_EQ(heard_.times, 0);
}

TEST_F(DnsTest, AServiceWithoutAHostNamesNobody) {
  names_.AddSrv("_kv._tcp.test", 0, 0, "");
  Ask("_kv._tcp.test", kSoonUs);
  EXPECT_TRUE(absl::IsUnavailable(FirstFailure())) << heard_.failure;
}

TEST_F(DnsTest, EndsWhileItAsks) {
  names_.FallSilent();
  Ask("db.test:1");
  EXPECT_TRUE(RunUntil([&] { return names_.questions > 0; }));
  source_.reset();
  for (int turn = 0; turn < 100; ++turn) engine_->Poll();
  EXPECT_EQ(heard_.times + heard_.failures, 0);
}

// On a clock that stands still: a hundred lost servers are one question.
TEST(DnsPaceTest, ALostServerIsAskedAboutOnceInASecond) {
  FakeClock clock;
  EngineOptions options;
  options.drive = EngineOptions::Drive::kCaller;
  options.spin_ns = kSpinForever;
  options.clock = &clock;
  auto engine = *EngineCore::Create(options, [](const EngineContext&) {
    return absl::StatusOr<std::unique_ptr<Transport>>(std::make_unique<LoopbackTransport>());
  });
  Heard heard;
  NameServer names(*engine);
  names.AddA("db.test", "10.0.0.1");
  DnsSource source("db.test", 1, names.address());
  source.Start(*engine, &heard, 3'600'000'000);
  // The engine looks at its descriptors now and then, by its clock.
  const auto run_until = [&](auto done) {
    while (!done()) {
      engine->Poll();
      clock.Advance(1000);
    }
  };
  run_until([&] { return heard.times == 1; });
  const int questions = names.questions;
  for (int i = 0; i < 100; ++i) source.Refresh();
  const uint64_t half_ns = clock.NowNs() + kNsPerSec / 2;
  run_until([&] { return clock.NowNs() > half_ns || names.questions > questions; });
  EXPECT_EQ(names.questions, questions);
  run_until([&] { return heard.times == 2; });
}

}  // namespace
}  // namespace weft::test
