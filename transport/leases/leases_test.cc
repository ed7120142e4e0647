// Both sides of leases against a peer made by hand: what each believes of the other, and what it
// does about time. (How they work together: transport/testing/lease_contract.cc.)

#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/counters.h"
#include "core/timer_wheel.h"
#include "gtest/gtest.h"
#include "transport/leases/export_table.h"
#include "transport/leases/granted_leases.h"
#include "transport/leases/held_leases.h"

namespace weft {
namespace {

constexpr size_t kBytes = 4096;

class FakeRegion final : public Region {
 public:
  FakeRegion(MutableByteSpan memory, uint64_t key, int* open)
      : Region(memory, {key, 0, memory.size()}), open_(open) {
    ++*open_;
  }
  ~FakeRegion() override { --*open_; }

 private:
  int* const open_;
};

// An engine's clock, timers and counters, and a connection that keeps what is sent.
class FakeConnection : public HeldLeases::Host, public GrantedLeases::Host {
 public:
  FakeConnection() : timers(clock.NowNs()) {}

  void Advance(uint64_t ns) {
    clock.Advance(ns);
    timers.Advance(clock.NowNs());
  }
  template <class Message>
  Message TakeSent() {
    EXPECT_EQ(sent.size(), 1u);
    const GrantMessage message = sent.empty() ? GrantMessage() : sent.front();
    sent.clear();
    EXPECT_TRUE(std::holds_alternative<Message>(message)) << message.index();
    return std::holds_alternative<Message>(message) ? std::get<Message>(message) : Message();
  }

  FakeClock clock;
  TimerWheel timers;
  CounterSet counters;
  std::vector<GrantMessage> sent;
  int overdue = 0;
  int regions_open = 0;
  int atomics_allowed = 0;
  std::vector<Access> registered;
  bool registers = true;
  bool pins = false;                 // a closed registration is not yet reclaimed
  std::vector<Operation*> reclaims;  // of those
  uint32_t tenant = kDefaultTenant;
  uint64_t client = 1;
  int connections_ended = 0;

 private:
  void SendGrant(const GrantMessage& message) override { sent.push_back(message); }
  void OnLeasesOverdue() override { ++overdue; }
  absl::StatusOr<std::unique_ptr<Region>> RegisterLease(MutableByteSpan memory,
                                                        Access access) override {
    if (!registers) return absl::ResourceExhaustedError("locked memory");
    registered.push_back(access);
    return std::unique_ptr<Region>(
        std::make_unique<FakeRegion>(memory, registered.size(), &regions_open));
  }
  void AllowAtomics(Region*) override { ++atomics_allowed; }
  void ForbidAtomics(Region*) override {}
  bool ReclaimLease(std::unique_ptr<Region> region, Operation* op) override {
    region.reset();
    if (pins) reclaims.push_back(op);
    return !pins;
  }
  uint32_t peer_tenant() const override { return tenant; }
  uint64_t peer_client() const override { return client; }
  void EndConnection(std::string_view) override { ++connections_ended; }
};

class TestLease final : public Lease {
 public:
  void OnGranted() override { ++grants; }
  void OnEnded(const absl::Status& status) override {
    ++endings;
    why = status;
  }
  int grants = 0;
  int endings = 0;
  absl::Status why;
};

class TestDerivation final : public Derivation {
 public:
  void OnDerived(const absl::Status& result, const RegionHandle&) override {
    ++completions;
    status = result;
  }
  int completions = 0;
  absl::Status status;
};

class TestOperation final : public Operation {
 public:
  void OnComplete(const absl::Status&) override { ++completions; }
  int completions = 0;
};

// --- the owner ----------------------------------------------------------------------------------

class GrantedLeasesTest : public testing::Test {
 protected:
  GrantedLeasesTest()
      : table_(&peer_.clock, &peer_.timers, &peer_.counters, /*max_bytes=*/1 << 20),
        memory_(kBytes) {}
  ~GrantedLeasesTest() override {
    granted_->End();
    granted_.reset();
    if (export_ != nullptr && export_->state() == Export::State::kOpen) export_->Revoke(0, nullptr);
  }

  void Add(ExportOptions options = {}) {
    options.rights = kAllRights;
    auto added = table_.Add({memory_.data(), memory_.size()}, options);
    ASSERT_TRUE(added.ok()) << added.status();
    export_ = *std::move(added);
  }
  GrantGranted Resolve(uint64_t lease_ns = 10 * kNsPerSec) {
    EXPECT_TRUE(granted_->OnResolve({1, lease_ns, 0, export_->handle()}).ok());
    return peer_.TakeSent<GrantGranted>();
  }
  uint64_t Counted(const std::string& name) const {
    for (const auto& [counted, value] : peer_.counters.Snapshot()) {
      if (counted == name) return value;
    }
    ADD_FAILURE() << "no counter " << name;
    return 0;
  }

  FakeConnection peer_;
  ExportTable table_;
  std::unique_ptr<GrantedLeases> granted_ =
      std::make_unique<GrantedLeases>(static_cast<GrantedLeases::Host*>(&peer_), &table_);
  std::vector<std::byte> memory_;
  std::unique_ptr<Export> export_;
};

TEST_F(GrantedLeasesTest, RegistersThePartWithTheAccessThatTheRightsNeed) {
  Add();
  const std::pair<Rights, Access> kAccess[] = {
      {kMayRead, Access::kRemoteRead},
      {kMayWrite, Access::kRemoteWrite},
      {kMayRead | kMayWrite, Access::kRemoteReadWrite},
      {kAllRights, Access::kRemoteReadWrite},
  };
  for (const auto& [rights, access] : kAccess) {
    const RegionHandle part = *export_->Derive(100, 50, rights, kDefaultTenant, 0);
    ASSERT_TRUE(granted_->OnResolve({7, kMinLeaseNs, 0, part}).ok());
    const GrantGranted granted = peer_.TakeSent<GrantGranted>();
    EXPECT_EQ(granted.ask, 7u);
    EXPECT_EQ(granted.remote.length, 50u);
    EXPECT_EQ(granted.rights, rights);
    EXPECT_EQ(peer_.registered.back(), access);
  }
  EXPECT_EQ(peer_.atomics_allowed, 1);
  EXPECT_EQ(Counted("memory.leases"), 4u);
  granted_->End();
  EXPECT_EQ(Counted("memory.leases"), 0u);
  EXPECT_EQ(Counted("memory.leases_granted"), 4u);
  EXPECT_EQ(peer_.regions_open, 0);
}

TEST_F(GrantedLeasesTest, AFailingRegistrationIsTheOwnersLimit) {
  Add();
  peer_.registers = false;
  ASSERT_TRUE(granted_->OnResolve({1, kMinLeaseNs, 0, export_->handle()}).ok());
  EXPECT_EQ(peer_.TakeSent<GrantRefused>().code, absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(granted_->open(), 0u);
  EXPECT_EQ(Counted("memory.leases"), 0u);
}

TEST_F(GrantedLeasesTest, ALeaseIsOpenUntilTheMomentAndNoLonger) {
  Add();
  const GrantGranted granted = Resolve(10 * kNsPerSec);
  EXPECT_EQ(granted.lease_ns, 10 * kNsPerSec);
  peer_.Advance(10 * kNsPerSec - 1);
  EXPECT_EQ(export_->leases(), 1u);
  peer_.Advance(2 * TimerWheel::kTickNs);
  EXPECT_EQ(export_->leases(), 0u);
  EXPECT_EQ(peer_.regions_open, 0);
  const GrantEnded ended = peer_.TakeSent<GrantEnded>();
  EXPECT_EQ(ended.lease, granted.lease);
  EXPECT_EQ(ended.code, absl::StatusCode::kDeadlineExceeded);
}

TEST_F(GrantedLeasesTest, ALeaseIsNeverLongerThanItsHandlesLife) {
  Add();
  const RegionHandle brief = *export_->Derive(0, 8, kMayRead, kDefaultTenant, 3 * kNsPerSec);
  peer_.Advance(kNsPerSec);
  ASSERT_TRUE(granted_->OnResolve({1, kMaxLeaseNs, 0, brief}).ok());
  const GrantGranted granted = peer_.TakeSent<GrantGranted>();
  EXPECT_EQ(granted.lease_ns, 2 * kNsPerSec);
  granted_->OnRenew({granted.lease, kMaxLeaseNs});
  EXPECT_EQ(peer_.TakeSent<GrantRenewed>().lease_ns, 2 * kNsPerSec);
  peer_.Advance(2 * kNsPerSec + TimerWheel::kTickNs);
  EXPECT_EQ(export_->leases(), 0u);
}

TEST_F(GrantedLeasesTest, ARenewalNeverShortensALease) {
  Add();
  const GrantGranted granted = Resolve(30 * kNsPerSec);
  granted_->OnRenew({granted.lease, kMinLeaseNs});
  EXPECT_EQ(peer_.TakeSent<GrantRenewed>().lease_ns, 30 * kNsPerSec);
  peer_.Advance(29 * kNsPerSec);
  EXPECT_EQ(export_->leases(), 1u);
}

// What the holder has under way has the key of the registration: another one would not do.
TEST_F(GrantedLeasesTest, ARenewedLeaseKeepsItsRegistrationForAsLongAsItIsRenewed) {
  Add();
  const GrantGranted granted = Resolve(10 * kNsPerSec);
  for (int renewal = 0; renewal < 5; ++renewal) {
    peer_.Advance(9 * kNsPerSec);
    granted_->OnRenew({granted.lease, 10 * kNsPerSec});
    const GrantRenewed renewed = peer_.TakeSent<GrantRenewed>();
    EXPECT_EQ(renewed.lease, granted.lease);
    EXPECT_EQ(renewed.lease_ns, 10 * kNsPerSec);
  }
  EXPECT_EQ(peer_.registered.size(), 1u);
  EXPECT_EQ(peer_.regions_open, 1);
  peer_.Advance(10 * kNsPerSec - 1);
  EXPECT_EQ(peer_.regions_open, 1);
  peer_.Advance(2 * TimerWheel::kTickNs);
  EXPECT_EQ(peer_.regions_open, 0);
  EXPECT_EQ(peer_.TakeSent<GrantEnded>().code, absl::StatusCode::kDeadlineExceeded);
}

TEST_F(GrantedLeasesTest, WhatConcernsALeaseThatIsOverIsIgnored) {
  Add();
  const GrantGranted granted = Resolve();
  granted_->OnReturn({granted.lease});
  EXPECT_EQ(export_->leases(), 0u);
  const GrantGranted next = Resolve();  // in the same place, under another number
  EXPECT_NE(next.lease, granted.lease);
  granted_->OnReturn({granted.lease});
  granted_->OnRenew({granted.lease, kMaxLeaseNs});
  for (uint64_t invented :
       {uint64_t{0}, ~uint64_t{0}, next.lease + 1, next.lease ^ (uint64_t{1} << 40)}) {
    granted_->OnReturn({invented});
    granted_->OnRenew({invented, kMaxLeaseNs});
  }
  EXPECT_TRUE(peer_.sent.empty());
  EXPECT_EQ(export_->leases(), 1u);
}

TEST_F(GrantedLeasesTest, PinnedMemoryIsReclaimedWhenTheConnectionSaysSo) {
  Add();
  peer_.pins = true;
  const GrantGranted first = Resolve();
  Resolve();
  granted_->OnReturn({first.lease});
  EXPECT_EQ(export_->leases(), 2u);  // pinned is not over
  TestOperation reclaimed;
  EXPECT_FALSE(export_->Revoke(/*grace_ns=*/0, &reclaimed));
  EXPECT_EQ(peer_.TakeSent<GrantEnded>().code, absl::StatusCode::kAborted);
  EXPECT_EQ(peer_.regions_open, 0);
  EXPECT_EQ(export_->state(), Export::State::kRevoking);
  ASSERT_EQ(peer_.reclaims.size(), 2u);
  peer_.reclaims[1]->OnComplete(absl::OkStatus());
  EXPECT_EQ(reclaimed.completions, 0);
  peer_.reclaims[0]->OnComplete(absl::OkStatus());
  EXPECT_EQ(reclaimed.completions, 1);
  EXPECT_EQ(export_->state(), Export::State::kReclaimed);
  EXPECT_EQ(Counted("memory.leases"), 0u);
}

TEST_F(GrantedLeasesTest, TheGraceOfARevokeIsKeptAndThenOver) {
  Add();
  const GrantGranted granted = Resolve(60 * kNsPerSec);
  TestOperation reclaimed;
  EXPECT_FALSE(export_->Revoke(5 * kNsPerSec, &reclaimed));
  const GrantEnded told = peer_.TakeSent<GrantEnded>();
  EXPECT_EQ(told.lease, granted.lease);
  EXPECT_EQ(told.grace_ns, 5 * kNsPerSec);
  granted_->OnRenew({granted.lease, kMaxLeaseNs});
  EXPECT_TRUE(peer_.sent.empty());
  EXPECT_FALSE(export_->Derive(0, 8, kMayRead, kDefaultTenant, 0).ok());
  peer_.Advance(5 * kNsPerSec - 1);
  EXPECT_EQ(peer_.regions_open, 1);
  peer_.Advance(2 * TimerWheel::kTickNs);
  EXPECT_EQ(peer_.regions_open, 0);
  EXPECT_EQ(reclaimed.completions, 1);
  EXPECT_TRUE(peer_.sent.empty());  // it was told once
}

TEST_F(GrantedLeasesTest, TheEighthBadHandleIsAnErrorWhateverTheyWere) {
  Add();
  peer_.tenant = 3;  // the export's handle is of another
  for (uint32_t i = 1; i <= kMaxBadHandles; ++i) {
    const bool resolve = i % 2 == 0;
    const absl::Status status = resolve
                                    ? granted_->OnResolve({i, kMinLeaseNs, 0, export_->handle()})
                                    : granted_->OnDerive({i, 0, 8, 0, kMayRead, export_->handle()});
    EXPECT_EQ(status.ok(), i < kMaxBadHandles) << status;
    const GrantRefused refused = peer_.TakeSent<GrantRefused>();
    EXPECT_EQ(refused.ask, i);
    EXPECT_EQ(refused.code, absl::StatusCode::kPermissionDenied);
  }
  EXPECT_EQ(Counted("memory.bad_handles"), kMaxBadHandles);
}

TEST_F(GrantedLeasesTest, OneConnectionHasItsLeasesAndNoMore) {
  Add();
  for (uint32_t i = 0; i < kMaxLeases; ++i) Resolve();
  ASSERT_TRUE(granted_->OnResolve({1, kMinLeaseNs, 0, export_->handle()}).ok());
  EXPECT_EQ(peer_.TakeSent<GrantRefused>().code, absl::StatusCode::kResourceExhausted);
}

// Eight connections with 256 leases each had all 2,048, and everybody else was refused.
TEST_F(GrantedLeasesTest, AClientsConnectionsLeaveAnEighthOfAllLeasesToOthers) {
  Add();
  // Refused is whoever asks once more than that.
  const auto take_all = [&](FakeConnection& client, GrantedLeases& granted) {
    for (uint32_t taken = 0;; ++taken) {
      EXPECT_TRUE(granted.OnResolve({1, kMinLeaseNs, 0, export_->handle()}).ok());
      if (const auto* refused = std::get_if<GrantRefused>(&client.sent.back())) {
        EXPECT_EQ(refused->code, absl::StatusCode::kResourceExhausted);
        client.sent.clear();
        return taken;
      }
      client.sent.clear();
    }
  };
  FakeConnection greedy;
  greedy.client = 2;
  std::vector<std::unique_ptr<GrantedLeases>> connections;
  uint32_t taken = 0;
  for (uint32_t i = 0; i < ExportTable::kMaxEngineLeases / kMaxLeases; ++i) {
    connections.push_back(
        std::make_unique<GrantedLeases>(static_cast<GrantedLeases::Host*>(&greedy), &table_));
    taken += take_all(greedy, *connections.back());
  }
  EXPECT_EQ(taken, ExportTable::kMaxEngineLeases * 7 / 8);
  EXPECT_EQ(take_all(peer_, *granted_), kMaxLeases);
  for (auto& connection : connections) connection->End();
}

TEST_F(GrantedLeasesTest, ExportsAreBoundedInNumberAndBytes) {
  std::vector<std::unique_ptr<Export>> exports;
  std::byte byte{};
  for (uint32_t i = 0; i < kMaxExports; ++i) {
    auto added = table_.Add({&byte, 1}, {});
    ASSERT_TRUE(added.ok()) << added.status();
    exports.push_back(*std::move(added));
  }
  EXPECT_TRUE(absl::IsResourceExhausted(table_.Add({&byte, 1}, {}).status()));
  EXPECT_EQ(Counted("memory.exports"), kMaxExports);
  EXPECT_EQ(Counted("memory.exported_bytes"), kMaxExports);
  for (auto& one : exports) EXPECT_TRUE(one->Revoke(0, nullptr));
  exports.clear();
  EXPECT_EQ(Counted("memory.exports"), 0u);
  std::vector<std::byte> large((1 << 20) + 1);
  EXPECT_TRUE(absl::IsResourceExhausted(table_.Add({large.data(), large.size()}, {}).status()));
  auto fits = table_.Add({large.data(), large.size() - 1}, {});
  ASSERT_TRUE(fits.ok()) << fits.status();
  EXPECT_TRUE(absl::IsResourceExhausted(table_.Add({&byte, 1}, {}).status()));
  EXPECT_TRUE((*fits)->Revoke(0, nullptr));
}

// --- the holder ---------------------------------------------------------------------------------

class HeldLeasesTest : public testing::Test {
 protected:
  ~HeldLeasesTest() override { held_.End(absl::UnavailableError("gone")); }

  TestLease& New() { return leases_.emplace_back(); }
  // What it asked.
  GrantResolve Resolve(TestLease* lease, uint64_t lease_ns = 10 * kNsPerSec) {
    EXPECT_TRUE(held_.Resolve(handle_, 0, lease_ns, lease).ok());
    return peer_.TakeSent<GrantResolve>();
  }
  GrantGranted AnswerTo(const GrantResolve& asked, uint64_t lease = 1ull << 32) {
    return {asked.ask, lease, asked.lease_ns, {77, 0, 64}, kMayRead};
  }

  std::list<TestLease> leases_;  // until the end of all
  FakeConnection peer_;
  HandleCode code_;
  const RegionHandle handle_ = code_.Mint({kMayRead, 0, 1, kDefaultTenant, 0, 64});
  HeldLeases held_{static_cast<HeldLeases::Host*>(&peer_), &peer_.clock, &peer_.timers};
};

TEST_F(HeldLeasesTest, CountsFromTheQuestionAndStopsATenthEarlier) {
  TestLease& lease = New();
  const uint64_t asked_ns = peer_.clock.NowNs();
  const GrantResolve asked = Resolve(&lease, 5 * kNsPerSec);
  peer_.Advance(2 * kNsPerSec);
  ASSERT_TRUE(held_.OnGranted(AnswerTo(asked)));
  EXPECT_EQ(lease.state(), Lease::State::kHeld);
  EXPECT_EQ(lease.usable_until_ns(), asked_ns + 5 * kNsPerSec - kNsPerSec / 2);
  peer_.Advance(3 * kNsPerSec);
  EXPECT_EQ(peer_.overdue, 1);
  held_.EndOverdue();
  EXPECT_TRUE(absl::IsDeadlineExceeded(lease.why)) << lease.why;
}

TEST_F(HeldLeasesTest, TheMarginIsOneSecondAtMost) {
  TestLease& lease = New();
  const uint64_t asked_ns = peer_.clock.NowNs();
  ASSERT_TRUE(held_.OnGranted(AnswerTo(Resolve(&lease, kMaxLeaseNs))));
  EXPECT_EQ(lease.usable_until_ns(), asked_ns + kMaxLeaseNs - kNsPerSec);
}

TEST_F(HeldLeasesTest, AnAnswerThatComesTooLateIsGivenBack) {
  TestLease& lease = New();
  const GrantResolve asked = Resolve(&lease, 5 * kNsPerSec);
  peer_.Advance(4'500'000'000);
  ASSERT_TRUE(held_.OnGranted(AnswerTo(asked)));
  EXPECT_EQ(lease.grants, 0);
  EXPECT_TRUE(absl::IsDeadlineExceeded(lease.why)) << lease.why;
  EXPECT_EQ(peer_.TakeSent<GrantReturn>().lease, 1ull << 32);
}

TEST_F(HeldLeasesTest, LeasesEndOneByOneAsTheirTimesCome) {
  TestLease& brief = New();
  TestLease& lasting = New();
  ASSERT_TRUE(held_.OnGranted(AnswerTo(Resolve(&lasting, 20 * kNsPerSec), 1)));
  ASSERT_TRUE(held_.OnGranted(AnswerTo(Resolve(&brief, 10 * kNsPerSec), 2)));
  peer_.Advance(10 * kNsPerSec);
  held_.EndOverdue();
  EXPECT_EQ(brief.endings, 1);
  EXPECT_EQ(lasting.endings, 0);
  peer_.Advance(10 * kNsPerSec);
  EXPECT_EQ(peer_.overdue, 2);
  held_.EndOverdue();
  EXPECT_EQ(lasting.endings, 1);
}

TEST_F(HeldLeasesTest, ARenewalCountsFromItsOwnQuestionAndNeverShortens) {
  TestLease& lease = New();
  ASSERT_TRUE(held_.OnGranted(AnswerTo(Resolve(&lease, 20 * kNsPerSec), 1)));
  const uint64_t first_ns = lease.usable_until_ns();
  peer_.Advance(kNsPerSec);
  const uint64_t asked_ns = peer_.clock.NowNs();
  ASSERT_TRUE(held_.Renew(30 * kNsPerSec, &lease).ok());
  EXPECT_EQ(peer_.TakeSent<GrantRenew>().lease, 1u);
  peer_.Advance(kNsPerSec);
  ASSERT_TRUE(held_.OnRenewed({1, 30 * kNsPerSec}));
  EXPECT_EQ(lease.usable_until_ns(), asked_ns + 29 * kNsPerSec);
  EXPECT_GT(lease.usable_until_ns(), first_ns);
  ASSERT_TRUE(held_.Renew(kMinLeaseNs, &lease).ok());
  ASSERT_TRUE(held_.OnRenewed({1, kMinLeaseNs}));
  EXPECT_EQ(lease.usable_until_ns(), asked_ns + 29 * kNsPerSec);
  EXPECT_EQ(lease.grants, 3);
}

TEST_F(HeldLeasesTest, ARenewalThatCrossesTheEndIsGivenBack) {
  TestLease& lease = New();
  ASSERT_TRUE(held_.OnGranted(AnswerTo(Resolve(&lease, 10 * kNsPerSec), 1)));
  ASSERT_TRUE(held_.Renew(30 * kNsPerSec, &lease).ok());
  peer_.sent.clear();
  peer_.Advance(10 * kNsPerSec);
  held_.EndOverdue();
  ASSERT_EQ(lease.endings, 1);
  ASSERT_TRUE(held_.OnRenewed({1, 30 * kNsPerSec}));
  EXPECT_EQ(peer_.TakeSent<GrantReturn>().lease, 1u);
  EXPECT_EQ(lease.grants, 1);
}

// An owner that breaks the rules; whoever waits is told in each case, once.
TEST_F(HeldLeasesTest, AnOwnerCannotGrantWhatWasNotAskedFor) {
  const auto refuses = [this](auto change) {
    TestLease& lease = New();
    GrantGranted granted = AnswerTo(Resolve(&lease));
    change(granted);
    EXPECT_FALSE(held_.OnGranted(granted));
    EXPECT_EQ(lease.grants, 0);
    held_.End(absl::DataLossError("the peer broke the protocol"));
    EXPECT_EQ(lease.endings, 1);
  };
  refuses([](GrantGranted& granted) { granted.ask += 1; });
  refuses([](GrantGranted& granted) { granted.ask = ~uint64_t{0}; });
  refuses([](GrantGranted& granted) { granted.lease = kMaxLeases; });
  refuses([](GrantGranted& granted) { granted.lease = ~uint64_t{0}; });
  refuses([](GrantGranted& granted) { granted.lease_ns += 1; });
  refuses([](GrantGranted& granted) { granted.remote.length += 1; });
  refuses([](GrantGranted& granted) { granted.remote.length -= 1; });
  refuses([](GrantGranted& granted) { granted.rights = kAllRights; });
}

TEST_F(HeldLeasesTest, AnOwnerCannotAnswerTwiceOrGiveOneNumberToTwo) {
  TestLease& lease = New();
  const GrantResolve asked = Resolve(&lease);
  ASSERT_TRUE(held_.OnGranted(AnswerTo(asked)));
  EXPECT_FALSE(held_.OnGranted(AnswerTo(asked)));
  EXPECT_FALSE(held_.OnRefused({asked.ask, absl::StatusCode::kPermissionDenied, 0, ""}));
  EXPECT_FALSE(held_.OnDerived({asked.ask, handle_}));
  EXPECT_FALSE(held_.OnRenewed({1ull << 32, kMinLeaseNs}));  // nobody asked
  TestLease& second = New();
  EXPECT_FALSE(held_.OnGranted(AnswerTo(Resolve(&second))));
  EXPECT_EQ(second.endings, 1);
  EXPECT_EQ(lease.endings, 0);
}

TEST_F(HeldLeasesTest, AnOwnerCannotAnswerADerivationByALease) {
  TestDerivation derivation;
  ASSERT_TRUE(held_.Derive(handle_, 0, 8, kMayRead, 0, &derivation).ok());
  const GrantDerive asked = peer_.TakeSent<GrantDerive>();
  EXPECT_FALSE(held_.OnGranted({asked.ask, 1, kMinLeaseNs, {77, 0, 64}, kMayRead}));
  EXPECT_EQ(derivation.completions, 0);
  EXPECT_TRUE(held_.OnDerived({asked.ask, handle_}));
  EXPECT_EQ(derivation.completions, 1);
}

TEST_F(HeldLeasesTest, AnEndOfALeaseThatIsNotHeldIsIgnored) {
  TestLease& lease = New();
  ASSERT_TRUE(held_.OnGranted(AnswerTo(Resolve(&lease), 5)));
  for (uint64_t other : {uint64_t{4}, uint64_t{5} | uint64_t{1} << 32, ~uint64_t{0}}) {
    held_.OnEnded({other, absl::StatusCode::kAborted, 0});
  }
  EXPECT_EQ(lease.endings, 0);
  held_.OnEnded({5, absl::StatusCode::kAborted, 0});
  EXPECT_TRUE(absl::IsAborted(lease.why)) << lease.why;
}

TEST_F(HeldLeasesTest, QuestionsAreBoundedAlsoWhereTheOwnerNeverAnswers) {
  std::vector<TestLease> leases(kMaxLeases);
  for (TestLease& lease : leases) {
    ASSERT_TRUE(held_.Resolve(handle_, 0, kMinLeaseNs, &lease).ok());
    held_.Return(&lease);  // nobody waits any more; the owner may still answer
  }
  TestLease& more = New();
  EXPECT_TRUE(absl::IsResourceExhausted(held_.Resolve(handle_, 0, kMinLeaseNs, &more)));
  TestDerivation derivation;
  EXPECT_TRUE(absl::IsResourceExhausted(held_.Derive(handle_, 0, 8, kMayRead, 0, &derivation)));
}

TEST_F(HeldLeasesTest, ALayoutsNameIsMadeFitForATerminal) {
  TestLease& lease = New();
  const GrantResolve asked = Resolve(&lease);
  ASSERT_TRUE(
      held_.OnRefused({asked.ask, absl::StatusCode::kFailedPrecondition, 1, "\x1b[2J\xff\nname"}));
  const std::string text(lease.why.message());
  EXPECT_NE(text.find("?[2J??name"), std::string::npos) << text;
}

// An engine takes what has come before its timers, by the time at which its turn began. A holder
// that renewed in every turn put off the end of its lease for ever, long after its handle's.
TEST_F(GrantedLeasesTest, RenewalsInEveryTurnDoNotOutliveTheHandle) {
  Add();
  const uint64_t begin_ns = peer_.clock.NowNs();
  const auto handle = export_->Derive(0, 4096, kMayRead, kDefaultTenant, kNsPerSec);
  ASSERT_TRUE(handle.ok()) << handle.status();
  ASSERT_TRUE(granted_->OnResolve({1, kMinLeaseNs, 0, *handle}).ok());
  const auto granted = peer_.TakeSent<GrantGranted>();
  constexpr uint64_t kTurnNs = 5'000'000;
  for (int turn = 0; turn < 1000 && export_->leases() == 1; ++turn) {
    const uint64_t start_ns = peer_.clock.NowNs();
    peer_.clock.Advance(kTurnNs);
    granted_->OnRenew({granted.lease, kMinLeaseNs});
    peer_.sent.clear();
    peer_.timers.Advance(start_ns);
  }
  EXPECT_EQ(export_->leases(), 0u);
  EXPECT_LE(peer_.clock.NowNs() - begin_ns, kNsPerSec + 2 * kTurnNs);
}

}  // namespace
}  // namespace weft
