// What counts towards a server's limits, and for whom.
#include "rpc/server/admission.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/strings.h"
#include "rpc/testing/test_service.weft.h"
#include "weft/status.h"

namespace weft {
namespace {

using What = Admission::What;
using End = AdaptiveLimit::End;

bool Says(const absl::Status& status, std::string_view words) {
  return ToStd(status.message()).find(words) != std::string_view::npos;
}

class AdmissionTest : public testing::Test {
 protected:
  AdmissionTest() { EXPECT_TRUE(methods_.Add(&service_, nullptr).ok()); }

  void Limit(ServerLimits limits) {
    limits_ = std::move(limits);
    admission_ = Admission::Make(limits_, clock_, stats_);
    ASSERT_NE(admission_, nullptr);
    ASSERT_EQ(admission_->Bind(methods_), absl::OkStatus());
  }
  uint16_t NumberOf(std::string_view method) {
    for (uint16_t number = 0; number < methods_.entries(); ++number) {
      if (methods_.Find(number)->method->name == method) return number;
    }
    ADD_FAILURE() << method;
    return 0;
  }
  std::shared_ptr<RunningCount> CountOf(PeerIdentity identity) {
    PathInfo path;
    path.identity = std::move(identity);
    return admission_->CountOf(path);
  }
  static PeerIdentity Certificate(std::string subject, std::vector<std::string> dns_names = {},
                                  std::vector<std::string> uris = {}) {
    PeerIdentity identity;
    identity.authentication = Authentication::kCertificate;
    identity.subject = std::move(subject);
    identity.dns_names = std::move(dns_names);
    identity.uris = std::move(uris);
    return identity;
  }
  static PeerIdentity Process(int32_t id, uint32_t user = 1000) {
    PeerIdentity identity;
    identity.authentication = Authentication::kKernelCredentials;
    identity.process_id = id;
    identity.user_id = user;
    return identity;
  }

  FakeClock clock_;
  ServerTallies stats_;
  ServerLimits limits_;
  test::Probe::Service service_;
  DispatchTable methods_;
  std::unique_ptr<Admission> admission_;
};

TEST_F(AdmissionTest, AServerWithoutLimitsHasNone) {
  EXPECT_EQ(Admission::Make(limits_, clock_, stats_), nullptr);
  limits_.per_method = {{"weft.test.Probe/Echo", 0}};
  EXPECT_EQ(Admission::Make(limits_, clock_, stats_), nullptr) << "0 is no limit";
}

TEST_F(AdmissionTest, OptionsThatMakeNoSenseAreNamed) {
  const auto why = [](const ServerLimits& limits) {
    const absl::Status wrong = Admission::Check(limits);
    EXPECT_EQ(wrong.code(), absl::StatusCode::kInvalidArgument);
    return std::string(ToStd(wrong.message()));
  };
  EXPECT_EQ(Admission::Check({}), absl::OkStatus());
  for (const char* name : {"", "Scan", "/Scan", "kv.Kv/", "kv.Kv/Scan/All"}) {
    EXPECT_EQ(why({.per_method = {{name, 1}}}),
              StrCat("ServerLimits::per_method names \"", name,
                     "\"; a method's full name is \"package.Service/Method\""));
  }
  EXPECT_EQ(why({.per_method = {{"kv.Kv/Scan", 1}, {"kv.Kv/Scan", 2}}}),
            "ServerLimits::per_method names kv.Kv/Scan twice");
  EXPECT_EQ(why({.adaptive_least = 0}),
            "ServerLimits::adaptive_least is 0, adaptive_most 4096; 1 to 1048576 are allowed, the "
            "least first");
  EXPECT_EQ(ToStd(Admission::Check({.adaptive = true, .adaptive_most = 2}, 3).message()),
            "ServerLimits::adaptive_most is 2 beside 3 engines, each of which has a part of it; "
            "set it to 3 or more");
  EXPECT_TRUE(Admission::Check({.adaptive = true, .adaptive_most = 3}, 3).ok());
  EXPECT_TRUE(Admission::Check({.adaptive_most = 2}, 3).ok()) << "it is not used";
  EXPECT_EQ(why({.adaptive_least = 5, .adaptive_most = 4}),
            "ServerLimits::adaptive_least is 5, adaptive_most 4; 1 to 1048576 are allowed, the "
            "least first");
}

TEST_F(AdmissionTest, AMethodThatThereIsNotIsNamedWithSomeThatThereAre) {
  limits_.per_method = {{"weft.test.Probe/Echo", 1}, {"weft.test.Probe/Ecko", 1}};
  admission_ = Admission::Make(limits_, clock_, stats_);
  const absl::Status wrong = admission_->Bind(methods_);
  EXPECT_EQ(wrong.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(Says(wrong,
                   "names weft.test.Probe/Ecko, which no service of this server has; its 7 "
                   "methods are weft.test.Probe/Echo, weft.test.Probe/Fail, "))
      << wrong;
}

TEST_F(AdmissionTest, ToBindAgainForgetsNoCall) {
  Limit({.per_method = {{"weft.test.Probe/Echo", 1}}, .adaptive = true});
  AdmittedCall call;
  ASSERT_TRUE(admission_->Admit(nullptr, NumberOf("Echo"), What::kCall, &call).ok());
  ASSERT_TRUE(admission_->Bind(methods_).ok());
  AdmittedCall second;
  EXPECT_FALSE(admission_->Admit(nullptr, NumberOf("Echo"), What::kCall, &second).ok());
  admission_->Release(call, End::kServed);
  EXPECT_TRUE(admission_->Admit(nullptr, NumberOf("Echo"), What::kCall, &second).ok());
  admission_->Release(second, End::kServed);
}

TEST_F(AdmissionTest, WhatIsOverOneLimitCountsForNone) {
  Limit({.per_client = 1,
         .per_method = {{"weft.test.Probe/Echo", 1}},
         .adaptive = true,
         .adaptive_most = 2});
  const auto one = CountOf({});
  const auto other = CountOf({});
  AdmittedCall first;
  ASSERT_TRUE(admission_->Admit(one.get(), NumberOf("Echo"), What::kCall, &first).ok());
  AdmittedCall refused;
  EXPECT_TRUE(Says(admission_->Admit(one.get(), NumberOf("Fail"), What::kCall, &refused),
                   "this client has 1 calls running"));
  EXPECT_TRUE(Says(admission_->Admit(other.get(), NumberOf("Echo"), What::kCall, &refused),
                   "method weft.test.Probe/Echo has 1 calls running"));
  EXPECT_EQ(other->running, 0u);
  AdmittedCall second;
  ASSERT_TRUE(admission_->Admit(other.get(), NumberOf("Fail"), What::kCall, &second).ok());
  const auto third = CountOf({});
  EXPECT_TRUE(Says(admission_->Admit(third.get(), NumberOf("Fail"), What::kCall, &refused),
                   "the server is overloaded: 2 calls are running, and ServerLimits::adaptive "
                   "allows 2 now (not run, safe to retry elsewhere)"));
  EXPECT_EQ(third->running, 0u);
  EXPECT_EQ(stats_.refused_by_client_limit, 1u);
  EXPECT_EQ(stats_.refused_by_method_limit, 1u);
  EXPECT_EQ(stats_.refused_by_adaptive_limit, 1u);
  admission_->Release(first, End::kServed);
  admission_->Release(second, End::kServed);
  EXPECT_EQ(one->running + other->running, 0u);
}

TEST_F(AdmissionTest, StreamsDoNotCountForTheAdaptiveLimit) {
  Limit({.adaptive = true, .adaptive_most = 1});
  std::vector<AdmittedCall> streams(10);
  for (AdmittedCall& stream : streams) {
    EXPECT_TRUE(admission_->Admit(nullptr, NumberOf("Echo"), What::kStream, &stream).ok());
  }
  AdmittedCall call;
  EXPECT_TRUE(admission_->Admit(nullptr, NumberOf("Echo"), What::kCall, &call).ok());
  admission_->Release(call, End::kServed);
  for (const AdmittedCall& stream : streams) admission_->Release(stream, End::kServed);
}

// --- who is one client --------------------------------------------------------------------------

TEST_F(AdmissionTest, EachConnectionOfNobodyIsOneClient) {
  Limit({.per_client = 1});
  EXPECT_NE(CountOf({}), CountOf({}));
  EXPECT_NE(CountOf(Process(0)), CountOf(Process(0))) << "the kernel does not see them from here";
  EXPECT_EQ(admission_->clients(), 0u);
}

TEST_F(AdmissionTest, WhoHasProvedToBeTheSameIsOneClient) {
  Limit({.per_client = 1});
  const auto count = CountOf(Certificate("CN=a", {"a.example"}));
  EXPECT_EQ(CountOf(Certificate("CN=a", {"a.example"})), count);
  EXPECT_NE(CountOf(Certificate("CN=b", {"a.example"})), count);
  EXPECT_NE(CountOf(Certificate("CN=a", {}, {"a.example"})), count);
  const auto process = CountOf(Process(77));
  EXPECT_EQ(CountOf(Process(77)), process);
  EXPECT_NE(CountOf(Process(78)), process);
  EXPECT_NE(CountOf(Process(77, /*user=*/0)), process);
}

TEST_F(AdmissionTest, LongNamesThatBeginAlikeAreTwoClients) {
  // Names that were cut for the log counted as one client.
  Limit({.per_client = 1});
  const std::string long_name(4000, 'x');
  EXPECT_NE(CountOf(Certificate(StrCat("CN=", long_name, "1"))),
            CountOf(Certificate(StrCat("CN=", long_name, "2"))));
  PeerIdentity one;
  one.authentication = Authentication::kPreSharedKey;
  PeerIdentity two = one;
  one.psk_name = StrCat(long_name, "1");
  two.psk_name = StrCat(long_name, "2");
  EXPECT_NE(CountOf(one), CountOf(two));
}

TEST_F(AdmissionTest, NamesThatReadAlikeInARowAreTwoClients) {
  Limit({.per_client = 1});
  EXPECT_NE(CountOf(Certificate("CN=a", {"b", "c"})), CountOf(Certificate("CN=a", {"b dns 1:c"})));
  EXPECT_NE(CountOf(Certificate("CN=a dns 1:b")), CountOf(Certificate("CN=a", {"b"})));
}

TEST_F(AdmissionTest, AClientIsForgottenWithItsLastConnection) {
  Limit({.per_client = 1});
  auto first = CountOf(Process(77));
  auto second = CountOf(Process(77));
  EXPECT_EQ(admission_->clients(), 1u);
  first = nullptr;
  EXPECT_EQ(CountOf(Process(77)), second);
  second = nullptr;
  EXPECT_EQ(admission_->clients(), 0u);
}

// --- several engines ----------------------------------------------------------------------------

// Each engine of a server has an Admission; what it admits is ended by its number, first in, last
// out.
class CommonLimitsTest : public AdmissionTest {
 protected:
  ~CommonLimitsTest() override {
    for (size_t engine = 0; engine < engines_.size(); ++engine) {
      while (Running(engine) > 0) End(engine);
    }
  }
  void Limit(ServerLimits limits, size_t engines) {
    limits_ = std::move(limits);
    common_ = std::make_unique<CommonLimits>(limits_, engines);
    running_.resize(engines);
    for (size_t i = 0; i < engines; ++i) {
      engines_.push_back(Admission::Make(limits_, clock_, stats_, common_.get()));
      ASSERT_EQ(engines_.back()->Bind(methods_), absl::OkStatus());
    }
  }
  std::shared_ptr<RunningCount> CountAt(size_t engine, PeerIdentity identity) {
    PathInfo path;
    path.identity = std::move(identity);
    return engines_[engine]->CountOf(path);
  }
  absl::Status Admit(size_t engine, RunningCount* client = nullptr, const char* method = "Echo") {
    AdmittedCall call;
    const absl::Status status =
        engines_[engine]->Admit(client, NumberOf(method), What::kCall, &call);
    if (status.ok()) running_[engine].push_back(call);
    return status;
  }
  // So many at most: those that were admitted.
  size_t AdmitMany(size_t engine, size_t most, RunningCount* client = nullptr) {
    size_t count = 0;
    while (count < most && Admit(engine, client).ok()) ++count;
    return count;
  }
  void End(size_t engine) {
    engines_[engine]->Release(running_[engine].back(), AdaptiveLimit::End::kServed);
    running_[engine].pop_back();
  }
  size_t Running(size_t engine) const { return running_[engine].size(); }

  std::unique_ptr<CommonLimits> common_;
  std::vector<std::unique_ptr<Admission>> engines_;
  std::vector<std::vector<AdmittedCall>> running_;  // [engine]
};

TEST_F(CommonLimitsTest, AMethodsLimitIsOneNumberForAllEngines) {
  Limit({.per_method = {{"weft.test.Probe/Echo", 4}}}, 3);
  EXPECT_EQ(AdmitMany(0, 10), 4u) << "one engine may have all of it";
  EXPECT_TRUE(Says(Admit(1), "method weft.test.Probe/Echo has 4 calls running, as many as"));
  EXPECT_TRUE(Admit(1, nullptr, "Fail").ok()) << "another method";
  End(0);
  EXPECT_TRUE(Admit(1).ok());
  EXPECT_FALSE(Admit(2).ok());
  EXPECT_FALSE(Admit(0).ok());
  EXPECT_EQ(stats_.refused_by_method_limit, 4u);
}

TEST_F(CommonLimitsTest, AClientsLimitIsOneNumberForAllEngines) {
  Limit({.per_client = 3}, 2);
  const auto here = CountAt(0, Process(77));
  const auto there = CountAt(1, Process(77));
  const auto other = CountAt(1, Process(78));
  EXPECT_EQ(AdmitMany(0, 2, here.get()), 2u);
  EXPECT_EQ(AdmitMany(1, 10, there.get()), 1u);
  EXPECT_TRUE(Says(Admit(0, here.get()), "this client has 3 calls running, as many as"));
  EXPECT_EQ(AdmitMany(1, 10, other.get()), 3u);
  // Who has proved nothing is a connection, and that is one engine's.
  const auto nobody = CountAt(0, {});
  EXPECT_EQ(AdmitMany(0, 10, nobody.get()), 3u);
  EXPECT_EQ(common_->clients(), 2u);
  while (Running(0) + Running(1) > 0) End(Running(0) > 0 ? 0 : 1);
}

TEST_F(CommonLimitsTest, WhatIsOverAnotherLimitKeepsNoPlaceFromOtherEngines) {
  Limit({.per_client = 1,
         .per_method = {{"weft.test.Probe/Echo", 1}, {"weft.test.Probe/Fail", 1}},
         .adaptive = true,
         .adaptive_most = 1},
        2);
  const auto first = CountAt(0, Process(77));
  const auto here = CountAt(0, Process(78));
  const auto there = CountAt(1, Process(78));
  ASSERT_TRUE(Admit(0, first.get()).ok());
  EXPECT_TRUE(Says(Admit(0, here.get()), "method weft.test.Probe/Echo has 1"));
  EXPECT_TRUE(Says(Admit(0, here.get(), "Fail"), "ServerLimits::adaptive allows 1 now"));
  EXPECT_TRUE(Admit(1, there.get(), "Fail").ok()) << "its places are where they were";
  while (Running(0) + Running(1) > 0) End(Running(0) > 0 ? 0 : 1);
}

TEST_F(CommonLimitsTest, OfALargeLimitAnEighthAtMostLiesUnusedAndNeverIsThereMore) {
  constexpr size_t kMost = 640;
  Limit({.per_method = {{"weft.test.Probe/Echo", kMost}}}, 4);
  // Each of three has had some, and has as many unused as it may have.
  for (const size_t engine : {1, 2, 3}) {
    EXPECT_EQ(AdmitMany(engine, 50), 50u);
    while (Running(engine) > 2) End(engine);
  }
  const size_t before = 3 * 2;
  const size_t alone = AdmitMany(0, 2 * kMost);
  EXPECT_GT(before + alone, kMost * 7 / 8);
  EXPECT_LT(before + alone, kMost) << "the others have nothing unused: this tests nothing";
  // What they have, they may use.
  size_t all = before + alone;
  for (const size_t engine : {1, 2, 3}) all += AdmitMany(engine, 2 * kMost);
  EXPECT_EQ(all, kMost);
  for (const size_t engine : {0, 1, 2, 3}) {
    EXPECT_TRUE(Says(Admit(engine),
                     "method weft.test.Probe/Echo has nearly as many calls running as "
                     "ServerLimits::per_method allows, which is 640"));
  }
  for (const size_t engine : {0, 1, 2, 3}) {
    while (Running(engine) > 0) End(engine);
  }
  EXPECT_GT(AdmitMany(2, 2 * kMost), kMost * 7 / 8) << "whichever engine it is";
}

TEST_F(CommonLimitsTest, AClientThatLeavesAnEngineLeavesItsPlacesToTheOthers) {
  constexpr size_t kMost = 640;
  Limit({.per_client = kMost}, 2);
  auto here = CountAt(0, Process(77));
  auto there = CountAt(1, Process(77));
  EXPECT_EQ(AdmitMany(0, 100, here.get()), 100u);
  while (Running(0) > 0) End(0);
  here = nullptr;
  EXPECT_EQ(common_->clients(), 1u);
  EXPECT_EQ(AdmitMany(1, 2 * kMost, there.get()), kMost);
  EXPECT_TRUE(Says(Admit(1, there.get()),
                   "this client has nearly as many calls running as ServerLimits::per_client "
                   "allows, which is 640"));
  while (Running(1) > 0) End(1);
  there = nullptr;
  EXPECT_EQ(common_->clients(), 0u) << "it is forgotten with its last connection";
}

TEST_F(CommonLimitsTest, EnginesThatTakeAndGiveAtTheSameTimeNeverHaveMoreThanTheLimit) {
  for (const uint32_t most : {2u, 300u}) {
    CommonPlaces places(most, 3);
    std::atomic<uint32_t> running = 0;
    const auto run = [&] {
      RunningCount count = {.common = &places};
      for (uint32_t i = 0; i < 20'000; ++i) {
        // Up to its equal part and beyond, and down again.
        if (i / most % 2 == 0 && count.HasPlace()) {
          ++count.running;
          EXPECT_LE(++running, most);
        } else if (count.running > 0) {
          --running;
          --count.running;
          count.GiveBack();
        }
      }
      running -= count.running;
      places.TakeBackAll(count.most);
    };
    std::vector<std::thread> engines;
    for (int i = 0; i < 3; ++i) engines.emplace_back(run);
    for (std::thread& engine : engines) engine.join();
    EXPECT_EQ(running.load(), 0u);
    uint32_t all = 0;
    while (const uint32_t taken = places.Take()) all += taken;
    EXPECT_EQ(all, most) << "none is lost, and none is there twice";
  }
}

}  // namespace
}  // namespace weft
