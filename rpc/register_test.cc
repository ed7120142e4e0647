// Server::Register(): what a server does to its entry in a small etcd, on one engine with it.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "rpc/client/channel.h"
#include "rpc/naming/testing/fake_etcd.h"
#include "rpc/operation/on_engine.h"
#include "rpc/server/registration.h"
#include "rpc/server/server.h"
#include "rpc/testing/probe_service.h"
#include "transport/engine.h"
#include "transport/network.h"

namespace weft::test {
namespace {

// Each look at it takes ten microseconds: a second passes when much was done, however busy the
// machine.
class TickingClock final : public Clock {
 public:
  uint64_t NowNs() const override { return now_ns_.fetch_add(10 * kNsPerUs); }

 private:
  mutable std::atomic<uint64_t> now_ns_ = kNsPerSec;
};

class RegisterTest : public testing::Test {
 protected:
  static constexpr char kRevoke[] = "/v3/lease/revoke";

  RegisterTest() {
    EngineOptions options;
    options.drive = EngineOptions::Drive::kCaller;
    options.spin_ns = kSpinForever;
    options.clock = &clock_;
    engine_ = *OpenNetworkEngine(options);
    etcd_ = std::make_unique<FakeEtcd>(CoreOf(*engine_));
    ServerOptions server;
    server.link.peer_timeout_ns = 0;
    server_ = *Server::Create(*engine_, server);
    EXPECT_TRUE(server_->AddService(&service_).ok());
  }
  ~RegisterTest() override {
    etcd_->on_request = nullptr;
    server_.reset();
    etcd_.reset();
  }

  void Listen() { ASSERT_TRUE(server_->Listen("127.0.0.1:0").ok()); }
  std::string target() const { return "etcd:" + etcd_->address() + "/kv"; }
  std::string key() const { return "/kv/" + server_->address(); }
  void Register(const RegistrationOptions& options = {}) {
    const absl::Status status = server_->Register(target(), options);
    ASSERT_TRUE(status.ok()) << status;
  }
  bool RunUntil(absl::FunctionRef<bool()> done) {
    return engine_->RunUntil(done, clock_.NowNs() + 600 * kNsPerSec);
  }

  TickingClock clock_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<FakeEtcd> etcd_;
  ProbeService service_;
  std::unique_ptr<Server> server_;
};

TEST_F(RegisterTest, PutsTheAddressWhereChannelsLook) {
  Listen();
  Register({.zone = "rack-2"});
  ASSERT_TRUE(RunUntil([&] { return etcd_->Has(key()); }));
  EXPECT_EQ(etcd_->ValueOf(key()), server_->address() + "@rack-2");
  while (server_->stats().registered == 0) engine_->Poll();
  EXPECT_EQ(server_->stats().registered, 1u);
  // For those who come by another network.
  Register({.address = "db7.example.com:4711"});
  ASSERT_TRUE(RunUntil([&] { return etcd_->Has("/kv/db7.example.com:4711"); }));
  server_->Shutdown(0);
  EXPECT_EQ(etcd_->leases(), 0u);
  EXPECT_FALSE(etcd_->Has(key()));
  EXPECT_FALSE(etcd_->Has("/kv/db7.example.com:4711"));
  EXPECT_EQ(server_->stats().registered, 0u);
}

// While etcd has not yet said that the key is gone, clients may still be sent here: they are
// served.
TEST_F(RegisterTest, TheKeyGoesBeforeAnybodyIsRefused) {
  Listen();
  Register();
  ASSERT_TRUE(RunUntil([&] { return etcd_->Has(key()); }));
  ChannelOptions options;
  options.connect_at_once = false;
  options.link.peer_timeout_ns = 0;
  auto channel = *Channel::Open(*engine_, server_->address(), options);
  Probe::Stub stub(*channel);
  const Data request = MakeData(7, 100);
  Data reply;
  absl::Status outcome = absl::UnknownError("no outcome");
  etcd_->FallSilent(kRevoke);
  etcd_->on_request = [&](const std::string& path) {
    if (path != kRevoke) return;
    stub.Echo(request, &reply, {.wait_for_server = true}, [&](absl::Status status) {
      outcome = status;
      EXPECT_TRUE(etcd_->Has(key()));
      etcd_->Speak();
    });
  };
  server_->Shutdown(/*grace_us=*/3'600'000'000);
  EXPECT_TRUE(outcome.ok()) << outcome;
  EXPECT_EQ(service_.echoes, 1u);
  EXPECT_FALSE(etcd_->Has(key()));
}

TEST_F(RegisterTest, AShutdownDoesNotWaitLongForEtcd) {
  Listen();
  Register();
  ASSERT_TRUE(RunUntil([&] { return etcd_->Has(key()); }));
  etcd_->FallSilent(kRevoke);
  server_->Shutdown(0);
  EXPECT_EQ(etcd_->requests[kRevoke], 1);
  EXPECT_TRUE(etcd_->Has(key()));  // until its lease is over
}

// Each of them had a second, one after the other.
TEST_F(RegisterTest, AllKeysOfAServerHaveASecondTogether) {
  Listen();
  Register();
  for (const char* address : {"a:1", "a:2", "a:3"}) Register({.address = address});
  while (server_->stats().registered < 4) engine_->Poll();
  etcd_->FallSilent(kRevoke);
  const uint64_t before_ns = clock_.NowNs();
  server_->Shutdown(0);
  EXPECT_LT(clock_.NowNs() - before_ns, 2 * kNsPerSec);
  EXPECT_EQ(etcd_->requests[kRevoke], 4);
}

// That a shutdown blocks was looked at behind a lock, on which a callback would have waited for
// ever while its own thread drove the engine.
TEST_F(RegisterTest, AShutdownInACallbackIsAnErrorWhateverIsRegistered) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";  // in a child of fork() no engine is alive
  EngineCore& engine = CoreOf(*engine_);
  Registrations registrations;
  bool ran = false;
  RunOnEngine(engine, [&] {
    EXPECT_DEATH(registrations.Withdraw({&engine}), "");
    ran = true;
  });
  EXPECT_TRUE(ran);
}

// An entry that goes as soon as two threads wait for it.
class EntryOfTwo final : public Registration {
 public:
  explicit EntryOfTwo(std::function<void()> on_first_wait)
      : on_first_wait_(std::move(on_first_wait)) {}
  void StartWithdrawal() override { EXPECT_TRUE(!std::exchange(started, true)); }
  void AwaitWithdrawal() override {
    if (++waits == 1) on_first_wait_();
  }

  bool started = false;
  int waits = 0;

 private:
  const std::function<void()> on_first_wait_;
};

// The first thread held a lock while it waited for the engine, and the second one, which alone may
// have driven that, waited for the lock.
TEST(RegistrationsTest, WhoComesSecondIsNotKeptByTheFirst) {
  Registrations registrations;
  std::unique_ptr<Registration> one = std::make_unique<EntryOfTwo>([&] {
    std::thread second([&] { registrations.Withdraw({}); });
    second.join();
  });
  ASSERT_TRUE(registrations.Add(one));
  registrations.Withdraw({});
  std::unique_ptr<Registration> late = std::make_unique<EntryOfTwo>([] {});
  EXPECT_FALSE(registrations.Add(late));
  registrations.Withdraw({});
}

TEST_F(RegisterTest, EndsAtAnyTime) {
  Listen();
  etcd_->FallSilent("/v3/lease/grant");
  Register();
  Register({.address = "a:1"});
  server_.reset();
  EXPECT_EQ(etcd_->leases(), 0u);
}

TEST_F(RegisterTest, SaysWhatIsWrong) {
  EXPECT_TRUE(absl::IsFailedPrecondition(server_->Register(target()))) << "it does not listen";
  Listen();
  for (const char* wrong : {"", "etcd", "etcd:a:1", "list:a:1", "dns:a:1", "127.0.0.1:1/kv"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(server_->Register(wrong))) << wrong;
  }
  for (const RegistrationOptions& wrong : std::vector<RegistrationOptions>{
           {.address = "nonsense"},
           {.address = "a b:1"},
           {.address = "unix:/run/a@b"},
           {.address = std::string(1024, 'a') + ":1"},
           {.zone = "a b"},
           {.lease_us = 1'999'999},
           {.lease_us = 3'600'000'001},
           {.etcd = {.password = "p"}},
       }) {
    const absl::Status status = server_->Register(target(), wrong);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  }
  server_->Shutdown(0);
  EXPECT_TRUE(absl::IsFailedPrecondition(server_->Register(target()))) << "it was shut down";
  EXPECT_EQ(etcd_->requests.size(), 0u);
}

TEST_F(RegisterTest, AnAddressOfAllInterfacesIsNobodys) {
  ASSERT_TRUE(server_->Listen("0.0.0.0:0").ok());
  const absl::Status status = server_->Register(target());
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
}

}  // namespace
}  // namespace weft::test
