// Leases: what a handle is exchanged for, what they permit, and how they end.
// (What they must not permit to an attacker: lease_attacks_contract.cc.)

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "core/clock.h"
#include "transport/testing/contract_test.h"
#include "transport/testing/lease_fixture.h"

namespace weft {
namespace {

constexpr size_t kBytes = 64 * 1024;
constexpr Rights kReadWrite = kMayRead | kMayWrite;

// --- what they permit ---------------------------------------------------------------------------

TEST_P(ContractTest, ALeaseReadsAndWritesWhatItsHandleNames) {
  Open();
  ExportedMemory shared(world_->server(), kBytes, kReadWrite);
  Holder holder(*world_, client_, server_end());
  TestLease& lease = holder.Resolve(shared.handle());
  ASSERT_TRUE(lease.held()) << lease.why;
  EXPECT_EQ(lease.grants, 1);
  EXPECT_EQ(lease.rights(), kReadWrite);
  EXPECT_EQ(lease.remote().length, kBytes);
  EXPECT_GT(lease.usable_until_ns(), world_->client().clock().NowNs());
  EXPECT_EQ(shared.exported->leases(), 1u);
  std::vector<std::byte> local(1000);
  EXPECT_TRUE(holder.Read(local, lease.remote().Slice(500, 1000)).ok());
  EXPECT_TRUE(shared.Has(local, 500));
  local = Pattern(99, 1000);
  EXPECT_TRUE(holder.Write(local, lease.remote().Slice(64'000, 1000)).ok());
  EXPECT_TRUE(shared.Has(local, 64'000));
}

TEST_P(ContractTest, TheClientCanExportToTheServerToo) {
  Open();
  ExportedMemory shared(world_->client(), kBytes, kMayRead);
  Holder holder(*world_, server_end(), client_);
  TestLease& lease = holder.Resolve(shared.handle());
  ASSERT_TRUE(lease.held()) << lease.why;
  std::vector<std::byte> local(8);
  EXPECT_TRUE(holder.Read(local, lease.remote().Slice(16, 8)).ok());
  EXPECT_TRUE(shared.Has(local, 16));
}

TEST_P(ContractTest, ALeaseOnAPartReachesThatPartOnly) {
  constexpr size_t kFrom = 1000;
  constexpr size_t kLength = 504;
  for (bool write : {false, true}) {
    for (bool behind : {false, true}) {
      SCOPED_TRACE(testing::Message() << (write ? "write" : "read") << " of what lies "
                                      << (behind ? "behind" : "before"));
      client_ = Endpoint();
      Open();
      ExportedMemory shared(world_->server(), kBytes, kReadWrite);
      Holder holder(*world_, client_, server_end());
      TestLease& lease = holder.Resolve(shared.Part(kFrom, kLength, kReadWrite));
      ASSERT_TRUE(lease.held()) << lease.why;
      std::vector<std::byte> local(kLength);
      EXPECT_TRUE(holder.Read(local, lease.remote()).ok());
      EXPECT_TRUE(shared.Has(local, kFrom));
      RemoteSpan beside = lease.remote().Slice(0, 8);
      beside.offset += behind ? kLength : uint64_t{0} - 8;
      std::vector<std::byte> word = Pattern(3, 8);
      const absl::Status status = write ? holder.Write(word, beside) : holder.Read(word, beside);
      EXPECT_FALSE(status.ok());
      EXPECT_TRUE(shared.Untouched());
      EXPECT_EQ(word, Pattern(3, 8));
    }
  }
}

// Linux's Soft-iWARP looks at a key's bounds and not at its right to be read (docs/quirks.md). Its
// devices are called siw where this runs.
bool ReadsNeedNoRight(const PathInfo& path) {
  return path.link == LinkKind::kIwarp && path.device.rfind("siw", 0) == 0;
}

TEST_P(ContractTest, ALeasePermitsWhatItsRightsSay) {
  for (Rights rights : {kMayRead, kMayWrite}) {
    SCOPED_TRACE(testing::Message() << "rights " << static_cast<int>(rights));
    client_ = Endpoint();
    Open();
    ExportedMemory shared(world_->server(), kBytes, kReadWrite);
    Holder holder(*world_, client_, server_end());
    TestLease& lease = holder.Resolve(shared.Part(0, kBytes, rights));
    ASSERT_TRUE(lease.held()) << lease.why;
    std::vector<std::byte> local = Pattern(5, 64);
    if (rights == kMayRead) {
      EXPECT_TRUE(holder.Read(local, lease.remote().Slice(0, 64)).ok());
      EXPECT_FALSE(holder.Write(local, lease.remote().Slice(128, 64)).ok());
      EXPECT_TRUE(shared.Untouched());
    } else {
      EXPECT_TRUE(holder.Write(local, lease.remote().Slice(0, 64)).ok());
      EXPECT_TRUE(shared.Has(local, 0));
      if (ReadsNeedNoRight(client_.connection().path())) continue;
      const std::vector<std::byte> before = local;
      EXPECT_FALSE(holder.Read(local, lease.remote().Slice(128, 64)).ok());
      EXPECT_EQ(local, before);
    }
  }
}

TEST_P(ContractTest, AtomicsNeedARightOfTheirOwn) {
  Open();
  ExportedMemory shared(world_->server(), kBytes, kAllRights);
  Holder holder(*world_, client_, server_end());
  TestLease& with = holder.Resolve(shared.handle());
  TestLease& without = holder.Resolve(shared.Part(0, kBytes, kReadWrite));
  ASSERT_TRUE(with.held() && without.held());
  const uint64_t word = shared.WordAt(16);
  uint64_t before = 0;
  EXPECT_TRUE(holder.FetchAdd(with.remote().Slice(16, 8), 5, &before).ok());
  EXPECT_EQ(before, word);
  EXPECT_EQ(shared.WordAt(16), word + 5);
  EXPECT_TRUE(absl::IsPermissionDenied(holder.FetchAdd(without.remote().Slice(16, 8), 5, &before)));
  EXPECT_EQ(shared.WordAt(16), word + 5);
}

TEST_P(ContractTest, AtomicsEndWithTheLeaseAndAreOfNoOtherConnection) {
  Open();
  ExportedMemory shared(world_->server(), kBytes, kAllRights);
  Holder holder(*world_, client_, server_end());
  Endpoint second;
  Connect(second);
  ASSERT_TRUE(Run([&] { return second.opened() && acceptor_.endpoints.size() == 2; }));
  Holder other(*world_, second, server_end());
  TestLease& lease = holder.Resolve(shared.handle());
  ASSERT_TRUE(lease.held()) << lease.why;
  const RemoteSpan word = lease.remote().Slice(8, 8);
  uint64_t before = 0;
  EXPECT_TRUE(absl::IsPermissionDenied(other.FetchAdd(word, 1, &before)));
  holder.connection().memory().Return(&lease);
  ASSERT_TRUE(Run([&] { return shared.exported->leases() == 0; }));
  EXPECT_TRUE(absl::IsPermissionDenied(holder.FetchAdd(word, 1, &before)));
  EXPECT_TRUE(shared.Untouched());
}

// --- handles ------------------------------------------------------------------------------------

TEST_P(ContractTest, AHolderCanHaveANarrowerHandleMadeForOthers) {
  Open();
  ExportedMemory shared(world_->server(), kBytes, kReadWrite);
  Holder holder(*world_, client_, server_end());
  RegionHandle part;
  const absl::Status derived = holder.Derive(shared.handle(), 4096, 100, kMayRead, &part);
  ASSERT_TRUE(derived.ok()) << derived;
  RegionHandle part_of_part;
  ASSERT_TRUE(holder.Derive(part, 50, 10, kMayRead, &part_of_part).ok());
  TestLease& lease = holder.Resolve(part_of_part);
  ASSERT_TRUE(lease.held()) << lease.why;
  EXPECT_EQ(lease.rights(), kMayRead);
  std::vector<std::byte> local(10);
  EXPECT_TRUE(holder.Read(local, lease.remote()).ok());
  EXPECT_TRUE(shared.Has(local, 4096 + 50));
}

TEST_P(ContractTest, LayoutsThatDifferAreAnErrorAndNotAnAttack) {
  Open();
  ExportOptions options;
  options.layout = 0x1111'2222'3333'4444;
  options.layout_name = "kv.Bucket";
  ExportedMemory shared(world_->server(), kBytes, options);
  Holder holder(*world_, client_, server_end());
  for (uint32_t i = 0; i < 2 * kMaxBadHandles; ++i) {
    TestLease& lease = holder.Resolve(shared.handle(), /*layout=*/0xabcd);
    ASSERT_TRUE(lease.ended());
    EXPECT_TRUE(absl::IsFailedPrecondition(lease.why)) << lease.why;
    const std::string text = lease.why.ToString();
    for (const char* part : {"kv.Bucket", "1111222233334444", "000000000000abcd"}) {
      EXPECT_NE(text.find(part), std::string::npos) << text;
    }
  }
  EXPECT_TRUE(holder.Resolve(shared.handle(), options.layout).held());
}

TEST_P(ContractTest, WhatIsNoLeaseAtAllIsTheCallersFault) {
  Open();
  ExportedMemory shared(world_->server(), kBytes, kMayRead);
  Holder holder(*world_, client_, server_end());
  Connection& connection = holder.connection();
  TestLease lease;
  const RegionHandle handle = shared.handle();
  EXPECT_TRUE(
      absl::IsInvalidArgument(connection.memory().Resolve(handle, 0, kMinLeaseNs - 1, &lease)));
  EXPECT_TRUE(
      absl::IsInvalidArgument(connection.memory().Resolve(handle, 0, kMaxLeaseNs + 1, &lease)));
  EXPECT_TRUE(absl::IsInvalidArgument(connection.memory().Resolve({}, 0, kMaxLeaseNs, &lease)));
  EXPECT_EQ(lease.state(), Lease::State::kIdle);
  TestDerivation derivation;
  EXPECT_TRUE(
      absl::IsInvalidArgument(connection.memory().Derive(handle, 0, 0, kMayRead, 0, &derivation)));
  EXPECT_TRUE(absl::IsInvalidArgument(connection.memory().Derive(handle, 0, 8, 0, 0, &derivation)));
  EXPECT_EQ(lease.endings + derivation.completions, 0);
  Exports& exports = world_->server().transport().exports();
  ExportOptions options;
  EXPECT_TRUE(absl::IsInvalidArgument(exports.Add({}, options).status()));
  std::byte byte{};
  options.rights = kMayRead | kMayUseAtomics;
  EXPECT_TRUE(absl::IsInvalidArgument(exports.Add({&byte, 1}, options).status()));
  EXPECT_TRUE(
      absl::IsInvalidArgument(shared.exported->Derive(kBytes - 7, 8, kMayRead, 0, 0).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(shared.exported->Derive(0, 8, kReadWrite, 0, 0).status()));
}

TEST_P(ContractTest, LeasesHaveALimitAndComeFreeAgain) {
  Open();
  // Small: hosts with RDMA may have 8 MiB to lock, and each lease locks its own.
  ExportedMemory shared(world_->server(), 4096, kMayRead);
  Holder holder(*world_, client_, server_end());
  std::vector<TestLease*> leases;
  for (uint32_t i = 0; i < kMaxLeases; ++i) leases.push_back(&holder.Ask(shared.handle()));
  TestLease more;
  EXPECT_TRUE(absl::IsResourceExhausted(
      holder.connection().memory().Resolve(shared.handle(), 0, kMaxLeaseNs, &more)));
  ASSERT_TRUE(Run([&] {
    return std::all_of(leases.begin(), leases.end(), [](auto* lease) { return lease->held(); });
  }));
  EXPECT_EQ(shared.exported->leases(), kMaxLeases);
  EXPECT_TRUE(absl::IsResourceExhausted(
      holder.connection().memory().Resolve(shared.handle(), 0, kMaxLeaseNs, &more)));
  holder.connection().memory().Return(leases[7]);
  // What is pinned counts until it is reclaimed.
  ASSERT_TRUE(Run([&] { return shared.exported->leases() == kMaxLeases - 1; }));
  EXPECT_TRUE(holder.Resolve(shared.handle()).held());
}

// --- how they end -------------------------------------------------------------------------------

TEST_P(ContractTest, ALeaseEndsWithItsTime) {
  Open();
  ExportedMemory shared(world_->server(), kBytes, kReadWrite);
  Holder holder(*world_, client_, server_end());
  TestLease& lease = holder.Resolve(shared.handle(), 0, kMinLeaseNs);
  ASSERT_TRUE(lease.held()) << lease.why;
  const RemoteSpan remote = lease.remote();
  const uint64_t until_ns = lease.usable_until_ns();
  ASSERT_TRUE(Run([&] { return lease.ended(); }));
  EXPECT_TRUE(absl::IsDeadlineExceeded(lease.why)) << lease.why;
  EXPECT_GE(world_->client().clock().NowNs(), until_ns);
  ASSERT_TRUE(Run([&] { return shared.exported->leases() == 0; }));
  // Who does not keep to it meets a registration that is closed.
  std::vector<std::byte> late = Pattern(1, 64);
  EXPECT_FALSE(holder.Write(late, remote.Slice(0, 64)).ok());
  EXPECT_TRUE(shared.Untouched());
  EXPECT_EQ(lease.endings, 1);
}

TEST_P(ContractTest, ARenewedLeaseOutlivesItsFirstEnd) {
  Open();
  ExportedMemory shared(world_->server(), kBytes, kReadWrite);
  Holder holder(*world_, client_, server_end());
  TestLease& lease = holder.Resolve(shared.handle(), 0, 2 * kMinLeaseNs);
  ASSERT_TRUE(lease.held()) << lease.why;
  const uint64_t first_end_ns = lease.usable_until_ns() + kMinLeaseNs;  // the owner's, at least
  ASSERT_TRUE(holder.connection().memory().Renew(30 * kNsPerSec, &lease).ok());
  EXPECT_TRUE(
      absl::IsFailedPrecondition(holder.connection().memory().Renew(30 * kNsPerSec, &lease)));
  ASSERT_TRUE(Run([&] { return lease.grants == 2; }));
  EXPECT_GT(lease.usable_until_ns(), first_end_ns);
  ASSERT_TRUE(Run([&] { return world_->client().clock().NowNs() > first_end_ns; }));
  std::vector<std::byte> local(64);
  EXPECT_TRUE(holder.Read(local, lease.remote().Slice(0, 64)).ok());
  EXPECT_EQ(lease.endings, 0);
}

TEST_P(ContractTest, AnOwnerGivesNoMoreTimeThanItsExportAllows) {
  Open();
  ExportOptions options;
  options.max_lease_ns = kMinLeaseNs;
  ExportedMemory shared(world_->server(), kBytes, options);
  Holder holder(*world_, client_, server_end());
  const uint64_t asked_ns = world_->client().clock().NowNs();
  TestLease& lease = holder.Resolve(shared.handle(), 0, kMaxLeaseNs);
  ASSERT_TRUE(lease.held()) << lease.why;
  EXPECT_LT(lease.usable_until_ns() - asked_ns, kMaxLeaseNs / 2);
  ASSERT_TRUE(Run([&] { return shared.exported->leases() == 0 && lease.ended(); }));
  EXPECT_TRUE(absl::IsDeadlineExceeded(lease.why)) << lease.why;
}

TEST_P(ContractTest, AReturnedLeaseIsClosedAtTheOwner) {
  Open();
  ExportedMemory shared(world_->server(), kBytes, kReadWrite);
  Holder holder(*world_, client_, server_end());
  TestLease& lease = holder.Resolve(shared.handle());
  ASSERT_TRUE(lease.held()) << lease.why;
  const RemoteSpan remote = lease.remote();
  holder.connection().memory().Return(&lease);
  EXPECT_TRUE(lease.ended());
  EXPECT_TRUE(absl::IsCancelled(lease.why)) << lease.why;
  ASSERT_TRUE(Run([&] { return shared.exported->leases() == 0; }));
  std::vector<std::byte> late = Pattern(1, 64);
  EXPECT_FALSE(holder.Write(late, remote.Slice(0, 64)).ok());
  EXPECT_TRUE(shared.Untouched());
}

TEST_P(ContractTest, ALeaseReturnedBeforeItsAnswerIsClosedWhenTheAnswerComes) {
  Open();
  ExportedMemory shared(world_->server(), kBytes, kReadWrite);
  Holder holder(*world_, client_, server_end());
  TestLease& lease = holder.Ask(shared.handle());
  holder.connection().memory().Return(&lease);
  EXPECT_TRUE(lease.ended());
  EXPECT_TRUE(absl::IsCancelled(lease.why)) << lease.why;
  // A later question is answered later: then the first one's lease has come and gone.
  TestLease& later = holder.Resolve(shared.handle());
  ASSERT_TRUE(later.held());
  ASSERT_TRUE(Run([&] { return shared.exported->leases() == 1; }));
  EXPECT_EQ(lease.grants, 0);
  EXPECT_EQ(lease.endings, 1);
}

TEST_P(ContractTest, ARevokeTellsTheHolderAndClosesTheRegistration) {
  Open();
  ExportedMemory shared(world_->server(), kBytes, kReadWrite);
  {
    Holder holder(*world_, client_, server_end());
    TestLease& lease = holder.Resolve(shared.handle());
    ASSERT_TRUE(lease.held()) << lease.why;
    const RemoteSpan remote = lease.remote();
    shared.RevokeAndWait(*world_, /*grace_ns=*/0);
    EXPECT_EQ(shared.exported->leases(), 0u);
    std::vector<std::byte> late = Pattern(1, 64);
    EXPECT_FALSE(holder.Write(late, remote.Slice(0, 64)).ok());
    EXPECT_TRUE(shared.Untouched());
    ASSERT_TRUE(Run([&] { return lease.ended(); }));
  }
  // What was used too late has broken its own connection at most.
  client_ = Endpoint();
  Open();
  ExportedMemory another(world_->server(), kBytes, kReadWrite);
  Holder holder(*world_, client_, server_end());
  TestLease& lease = holder.Resolve(another.handle());
  ASSERT_TRUE(lease.held()) << lease.why;
  std::vector<std::byte> local(64);
  EXPECT_TRUE(holder.Read(local, lease.remote().Slice(0, 64)).ok());
}

TEST_P(ContractTest, ARevokedHolderIsToldAbortedAndHasItsGrace) {
  Open();
  ExportedMemory shared(world_->server(), kBytes, kReadWrite);
  {
    Holder holder(*world_, client_, server_end());
    TestLease& lease = holder.Resolve(shared.handle());
    ASSERT_TRUE(lease.held()) << lease.why;
    const RemoteSpan remote = lease.remote();
    TestOperation reclaimed;
    EXPECT_FALSE(shared.exported->Revoke(kMaxLeaseNs, &reclaimed));
    EXPECT_EQ(shared.exported->state(), Export::State::kRevoking);
    ASSERT_TRUE(Run([&] { return lease.ended(); }));
    EXPECT_TRUE(absl::IsAborted(lease.why)) << lease.why;
    // What has begun, and this stands for it, comes to its end.
    std::vector<std::byte> local = Pattern(1, 64);
    EXPECT_TRUE(holder.Write(local, remote.Slice(0, 64)).ok());
    EXPECT_TRUE(shared.Has(local, 0));
    EXPECT_FALSE(reclaimed.done());
    // The end of the connection is the end of the grace.
    client_.connection().Close("done");
    ASSERT_TRUE(Run([&] { return reclaimed.done(); }));
    EXPECT_TRUE(reclaimed.result.ok()) << reclaimed.result;
    EXPECT_EQ(reclaimed.completions, 1);
  }
  EXPECT_EQ(shared.exported->state(), Export::State::kReclaimed);
}

TEST_P(ContractTest, TheGraceOfARevokeEnds) {
  Open();
  ExportedMemory shared(world_->server(), kBytes, kReadWrite);
  Holder holder(*world_, client_, server_end());
  TestLease& lease = holder.Resolve(shared.handle());
  ASSERT_TRUE(lease.held()) << lease.why;
  const RemoteSpan remote = lease.remote();
  shared.RevokeAndWait(*world_, /*grace_ns=*/100 * kNsPerMs);
  std::vector<std::byte> late = Pattern(1, 64);
  EXPECT_FALSE(holder.Write(late, remote.Slice(0, 64)).ok());
  EXPECT_TRUE(shared.Untouched());
}

TEST_P(ContractTest, ALeaseEndsBeforeItsConnectionAndWithIt) {
  for (bool by_owner : {false, true}) {
    SCOPED_TRACE(by_owner ? "the owner closes" : "the holder closes");
    client_ = Endpoint();
    Open();
    ExportedMemory shared(world_->server(), kBytes, kReadWrite);
    Holder holder(*world_, client_, server_end());
    TestLease& held = holder.Resolve(shared.handle());
    ASSERT_TRUE(held.held()) << held.why;
    TestLease& asked = holder.Ask(shared.handle());
    for (TestLease* lease : {&held, &asked}) {
      lease->on_ended = [&] { EXPECT_FALSE(client_.closed()); };
    }
    Endpoint& closer = by_owner ? server_end() : client_;
    closer.connection().Close("done");
    ASSERT_TRUE(Run([&] { return client_.closed() && server_end().closed(); }));
    for (TestLease* lease : {&held, &asked}) {
      EXPECT_EQ(lease->endings, 1);
      EXPECT_EQ(lease->why.code(), client_.why().code()) << lease->why;
    }
    EXPECT_EQ(shared.exported->leases(), 0u);
    EXPECT_TRUE(shared.exported->Revoke(0, nullptr));
  }
}

TEST_P(ContractTest, OneRevokeEndsTheLeasesOfAllHoldersAndNoOther) {
  Open();
  ExportedMemory shared(world_->server(), kBytes, kReadWrite);
  ExportedMemory another(world_->server(), kBytes, kReadWrite);
  Endpoint& first_owner = server_end();
  first_owner.connection().memory().set_tenant(1);
  Holder first(*world_, client_, first_owner);
  Endpoint second_end;
  Connect(second_end);
  ASSERT_TRUE(Run([&] { return second_end.opened() && acceptor_.endpoints.size() == 2; }));
  server_end().connection().memory().set_tenant(2);
  Holder second(*world_, second_end, server_end());
  TestLease& of_first = first.Resolve(shared.Part(0, 100, kMayRead, /*tenant=*/1));
  TestLease& of_second = second.Resolve(shared.Part(50, 100, kReadWrite, /*tenant=*/2));
  TestLease& kept = second.Resolve(another.Part(0, 100, kMayRead, /*tenant=*/2));
  ASSERT_TRUE(of_first.held() && of_second.held() && kept.held());
  EXPECT_EQ(shared.exported->leases(), 2u);
  shared.RevokeAndWait(*world_, /*grace_ns=*/0);
  ASSERT_TRUE(Run([&] { return of_first.ended() && of_second.ended(); }));
  EXPECT_TRUE(absl::IsAborted(of_first.why) && absl::IsAborted(of_second.why));
  std::vector<std::byte> local(100);
  EXPECT_TRUE(second.Read(local, kept.remote()).ok());
  EXPECT_TRUE(another.Has(local, 0));
}

TEST_P(ContractTest, LeasesGiveBackWhatTheyTook) {
  Listen();
  Open();
  CloseClient();
  world_->Settle();
  const ContractWorld::Resources before = world_->Count();
  for (int round = 0; round < 3; ++round) {
    client_ = Endpoint();
    Open();
    ExportedMemory shared(world_->server(), kBytes, kAllRights);
    Holder holder(*world_, client_, server_end());
    for (int i = 0; i < 10; ++i) {
      TestLease& lease = holder.Resolve(shared.handle());
      ASSERT_TRUE(lease.held()) << lease.why;
      if (i % 2 == 0) holder.connection().memory().Return(&lease);
    }
  }
  world_->Settle();
  EXPECT_EQ(world_->Count(), before);
}

}  // namespace
}  // namespace weft
