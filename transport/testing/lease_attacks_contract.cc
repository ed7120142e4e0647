// Attacks on exported memory by a peer that passes the handshake and keeps no rule after it. Each
// test is named after one; docs/remote_memory.md refers to them.
//
// All answers to bad handles are one answer, and nothing of the memory is touched.

#include <memory>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/random.h"
#include "transport/leases/export_table.h"
#include "transport/testing/contract_test.h"
#include "transport/testing/lease_fixture.h"

namespace weft {
namespace {

constexpr size_t kBytes = 4096;
constexpr Rights kReadWrite = kMayRead | kMayWrite;

// What the owner itself would mint, if it made mistakes: for what lies behind the code's check.
RegionHandle MintedByTheOwner(EngineCore& owner, const RegionHandle::Claim& claim) {
  return static_cast<ExportTable&>(owner.transport().exports()).code().Mint(claim);
}

RegionHandle Changed(const RegionHandle& handle, size_t at, uint8_t mask) {
  std::string bytes = handle.ToBytes();
  bytes[at] = static_cast<char>(bytes[at] ^ mask);
  RegionHandle changed;
  EXPECT_TRUE(RegionHandle::FromBytes(bytes, &changed));
  return changed;
}

// The one answer. (The first of all is the model for the others.)
void ExpectRefused(Holder& attacker, const RegionHandle& handle) {
  const TestLease& lease = attacker.Resolve(handle);
  ASSERT_TRUE(lease.ended());
  EXPECT_EQ(lease.grants, 0);
  EXPECT_EQ(lease.why, absl::PermissionDeniedError("the owner does not accept this handle"));
}

void ExpectNotDerived(Holder& attacker, const RegionHandle& handle, uint64_t offset,
                      uint64_t length, Rights rights) {
  RegionHandle derived;
  EXPECT_EQ(attacker.Derive(handle, offset, length, rights, &derived),
            absl::PermissionDeniedError("the owner does not accept this handle"));
  EXPECT_EQ(derived, RegionHandle());
}

TEST_P(ContractTest, AttackWithAGuessedHandle) {
  Open();
  ExportedMemory shared(world_->server(), kBytes, kReadWrite);
  Holder attacker(*world_, client_, server_end());
  Random random(1);
  // Everything right but the code: all zeros, random, one bit off at each end.
  std::string guess = shared.handle().ToBytes();
  for (size_t i = RegionHandle::kSignedBytes; i < RegionHandle::kBytes; ++i) guess[i] = 0;
  RegionHandle handle;
  ASSERT_TRUE(RegionHandle::FromBytes(guess, &handle));
  ExpectRefused(attacker, handle);
  for (size_t i = RegionHandle::kSignedBytes; i < RegionHandle::kBytes; ++i) {
    guess[i] = static_cast<char>(random.Next64());
  }
  ASSERT_TRUE(RegionHandle::FromBytes(guess, &handle));
  ExpectRefused(attacker, handle);
  ExpectRefused(attacker, Changed(shared.handle(), RegionHandle::kSignedBytes, 0x01));
  ExpectRefused(attacker, Changed(shared.handle(), RegionHandle::kBytes - 1, 0x80));
  // A right more, under the code of the rights that were given.
  ExpectRefused(attacker, Changed(shared.Part(0, 8, kMayRead), 1, kMayWrite));
  // One of another process, whose key is another one.
  HandleCode stranger;
  ExpectRefused(attacker, stranger.Mint(shared.handle().claim()));
  EXPECT_TRUE(shared.Untouched());
  // The good one is still good.
  EXPECT_TRUE(attacker.Resolve(shared.handle()).held());
}

TEST_P(ContractTest, AttackByReplayAfterRevoke) {
  Open();
  auto shared = std::make_unique<ExportedMemory>(world_->server(), kBytes, kReadWrite);
  const RegionHandle revoked = shared->handle();
  const RegionHandle part = shared->Part(0, 8, kMayRead);
  {
    Holder honest(*world_, client_, server_end());
    EXPECT_TRUE(honest.Resolve(revoked).held());
  }
  shared->RevokeAndWait(*world_, /*grace_ns=*/0);
  shared.reset();
  // Something else is exported now, in the same slot of the table.
  ExportedMemory secret(world_->server(), kBytes, kReadWrite);
  EXPECT_EQ(secret.handle().claim().slot, revoked.claim().slot);
  EXPECT_NE(secret.handle().claim().generation, revoked.claim().generation);
  client_ = Endpoint();
  Open();
  Holder attacker(*world_, client_, server_end());
  ExpectRefused(attacker, revoked);
  ExpectRefused(attacker, part);
  ExpectNotDerived(attacker, revoked, 0, 8, kMayRead);
  EXPECT_TRUE(secret.Untouched());
  EXPECT_TRUE(attacker.Resolve(secret.handle()).held());
}

TEST_P(ContractTest, AttackOutOfBounds) {
  Open();
  ExportedMemory shared(world_->server(), kBytes, kReadWrite);
  const RegionHandle part = shared.Part(1024, 1024, kMayRead);
  Holder attacker(*world_, client_, server_end());
  ExpectNotDerived(attacker, part, 0, 1025, kMayRead);
  ExpectNotDerived(attacker, part, 1024, 1, kMayRead);
  ExpectNotDerived(attacker, part, 1025, 1, kMayRead);
  ExpectNotDerived(attacker, part, 0, 8, kReadWrite);  // out of its rights
  RegionHandle::Claim claim = shared.handle().claim();
  claim.offset = kBytes - 8;
  claim.length = 9;
  ExpectRefused(attacker, MintedByTheOwner(world_->server(), claim));
  claim.offset = kBytes + 1;
  claim.length = 1;
  ExpectRefused(attacker, MintedByTheOwner(world_->server(), claim));
  claim = shared.handle().claim();
  claim.slot = ~uint32_t{0};
  ExpectRefused(attacker, MintedByTheOwner(world_->server(), claim));
  EXPECT_TRUE(shared.Untouched());
  RegionHandle good;
  EXPECT_TRUE(attacker.Derive(part, 1023, 1, kMayRead, &good).ok());
}

TEST_P(ContractTest, AttackByOverflowOfOffsetAndLength) {
  Open();
  ExportedMemory shared(world_->server(), kBytes, kReadWrite);
  const RegionHandle part = shared.Part(1024, 1024, kMayRead);
  Holder attacker(*world_, client_, server_end());
  // Each sum is small when it wraps.
  ExpectNotDerived(attacker, part, ~uint64_t{0}, 2, kMayRead);
  ExpectNotDerived(attacker, part, 8, ~uint64_t{0} - 7, kMayRead);
  ExpectNotDerived(attacker, part, ~uint64_t{0} - 1023, 1024, kMayRead);
  RegionHandle::Claim claim = shared.handle().claim();
  for (const auto& [offset, length] : {std::pair{~uint64_t{0} - 7, uint64_t{16}},
                                       {uint64_t{16}, ~uint64_t{0} - 8},
                                       {uint64_t{1} << 63, uint64_t{1} << 63}}) {
    claim.offset = offset;
    claim.length = length;
    ExpectRefused(attacker, MintedByTheOwner(world_->server(), claim));
  }
  EXPECT_TRUE(shared.Untouched());
}

TEST_P(ContractTest, AttackWithAnExpiredHandle) {
  Open();
  ExportedMemory shared(world_->server(), kBytes, kReadWrite);
  const RegionHandle expired = shared.Part(0, 8, kMayRead, kDefaultTenant, /*lifetime_ns=*/1);
  ASSERT_TRUE(Run([&] { return world_->server().clock().NowNs() > expired.claim().expires_ns; }));
  Holder attacker(*world_, client_, server_end());
  ExpectRefused(attacker, expired);
  ExpectNotDerived(attacker, expired, 0, 8, kMayRead);
  // Nor a longer life than one has.
  std::string longer = expired.ToBytes();
  for (size_t i = 32; i < 40; ++i) longer[i] = '\xff';
  RegionHandle handle;
  ASSERT_TRUE(RegionHandle::FromBytes(longer, &handle));
  ExpectRefused(attacker, handle);
}

TEST_P(ContractTest, AttackByALeaseThatOutlivesItsHandle) {
  Open();
  ExportedMemory shared(world_->server(), kBytes, kReadWrite);
  Holder attacker(*world_, client_, server_end());
  // Long enough for the answer to come in time on a busy machine.
  const RegionHandle brief =
      shared.Part(0, 8, kMayRead, kDefaultTenant, /*lifetime_ns=*/2 * kNsPerSec);
  TestLease& lease = attacker.Resolve(brief, 0, kMaxLeaseNs);
  if (lease.held()) {
    EXPECT_TRUE(attacker.connection().memory().Renew(kMaxLeaseNs, &lease).ok());
  }
  ASSERT_TRUE(Run([&] { return shared.exported->leases() == 0 && lease.ended(); }));
  EXPECT_GE(world_->server().clock().NowNs(), brief.claim().expires_ns);
}

TEST_P(ContractTest, AttackWithAnotherTenantsHandle) {
  Open();
  ExportedMemory shared(world_->server(), kBytes, kReadWrite);
  const RegionHandle of_others = shared.Part(0, 8, kMayRead, /*tenant=*/7);
  server_end().connection().memory().set_tenant(3);
  Holder attacker(*world_, client_, server_end());
  ExpectRefused(attacker, of_others);
  ExpectRefused(attacker, shared.handle());  // of the default tenant, which is a tenant too
  ExpectNotDerived(attacker, of_others, 0, 8, kMayRead);
  ExpectRefused(attacker, Changed(of_others, 12, 7 ^ 3));
  // What the attacker says it is does not count.
  client_.connection().memory().set_tenant(7);
  ExpectRefused(attacker, of_others);
  EXPECT_TRUE(attacker.Resolve(shared.Part(0, 8, kMayRead, /*tenant=*/3)).held());
}

TEST_P(ContractTest, TheEighthBadHandleEndsThatSessionAndNoOther) {
  Open();
  ExportedMemory shared(world_->server(), kBytes, kReadWrite);
  Endpoint honest_end;
  Endpoint& attacked = server_end();
  Connect(honest_end);
  ASSERT_TRUE(Run([&] { return honest_end.opened() && acceptor_.endpoints.size() == 2; }));
  Holder honest(*world_, honest_end, server_end());
  TestLease& kept = honest.Resolve(shared.handle());
  ASSERT_TRUE(kept.held()) << kept.why;
  Holder attacker(*world_, client_, attacked);
  TestLease& own = attacker.Resolve(shared.handle());
  const RegionHandle bad = Changed(shared.handle(), 40, 1);
  for (uint32_t i = 1; i < kMaxBadHandles; ++i) ExpectRefused(attacker, bad);
  EXPECT_FALSE(client_.closed());
  EXPECT_TRUE(own.held());
  TestLease& eighth = attacker.Resolve(bad);
  EXPECT_TRUE(eighth.ended());
  ASSERT_TRUE(Run([&] { return client_.closed() && attacked.closed(); }));
  EXPECT_EQ(attacked.why().code(), absl::StatusCode::kDataLoss) << attacked.why();
  EXPECT_TRUE(own.ended());
  EXPECT_EQ(shared.exported->leases(), 1u);
  std::vector<std::byte> local(64);
  EXPECT_TRUE(honest.Read(local, kept.remote().Slice(0, 64)).ok());
  EXPECT_EQ(kept.endings, 0);
}

}  // namespace
}  // namespace weft
