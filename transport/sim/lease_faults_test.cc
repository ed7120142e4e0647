// Leases on virtual time: random exports, questions, renewals, returns, revokes and transfers on
// several machines, with kills and cuts, and what must hold whatever happens:
// every question ends once; memory that is reclaimed is never touched again; a lease that its owner
// has not revoked serves until the holder is told that it is over; nothing stays registered.

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/random.h"
#include "core/test_seed.h"
#include "transport/sim/sim_fabric.h"
#include "transport/sim/sim_fixture.h"
#include "transport/sim/sim_transport.h"
#include "transport/testing/post.h"

namespace weft {
namespace {

constexpr size_t kBytes = 4096;
constexpr int kSteps = 400;

// Memory that is exported, then revoked, then must be left alone.
class Shared final : private Operation {
 public:
  Shared(std::string node, Engine& owner) : node(std::move(node)), memory_(Pattern(1, kBytes)) {
    ExportOptions options;
    options.rights = kAllRights;
    auto added = owner.transport().exports().Add({memory_.data(), memory_.size()}, options);
    EXPECT_TRUE(added.ok()) << added.status();
    export_ = *std::move(added);
    handle = export_->handle();
  }

  bool open() const { return export_ != nullptr && export_->state() == Export::State::kOpen; }
  bool reclaimed() const { return export_ == nullptr; }
  void Revoke(uint64_t grace_ns) {
    revoked = true;
    if (export_->Revoke(grace_ns, this)) BecomeReclaimed();
  }
  RegionHandle Part(Random& random) const {
    const uint64_t offset = random.Uniform(kBytes / 8) * 8;
    return *export_->Derive(offset, random.UniformInRange(1, kBytes - offset),
                            random.Chance(0.5) ? kAllRights : kMayRead | kMayWrite, kDefaultTenant,
                            random.Chance(0.2) ? 5 * kNsPerSec : 0);
  }
  void CheckLeftAlone() const {
    if (!reclaimed()) return;
    EXPECT_EQ(memory_, Pattern(2, kBytes)) << "written after it was reclaimed";
  }

  const std::string node;
  RegionHandle handle;
  bool revoked = false;
  int completions = 0;

 private:
  void OnComplete(const absl::Status& status) override {
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(++completions, 1);
    BecomeReclaimed();
  }
  void BecomeReclaimed() {
    export_.reset();
    memory_ = Pattern(2, kBytes);  // somebody else's now
  }

  std::vector<std::byte> memory_;
  std::unique_ptr<Export> export_;
};

// A lease that checks the order of what it is told.
class CountedLease final : public Lease {
 public:
  CountedLease(Endpoint* end, Shared* of) : end(end), shared(of) {}
  bool held() const { return state() == State::kHeld; }

  Endpoint* const end;
  Shared* const shared;
  int asked = 0;
  int endings = 0;
  bool renewing = false;

 private:
  void OnGranted() override {
    EXPECT_FALSE(end->closed());
    renewing = false;
  }
  void OnEnded(const absl::Status& why) override {
    EXPECT_FALSE(end->closed()) << "after OnClosed()";
    EXPECT_FALSE(why.ok());
    EXPECT_EQ(++endings, asked);
    renewing = false;
  }
};

// A transfer over a lease; whether it had to succeed is known when it ends.
struct LeasedTransfer final : public Operation {
  void OnComplete(const absl::Status& status) override {
    EXPECT_EQ(++completions, 1);
    const bool may_fail = lossy || shared->revoked || status.code() == absl::StatusCode::kCancelled;
    if (!may_fail) {
      EXPECT_TRUE(status.ok()) << status;
    }
  }
  Shared* shared = nullptr;
  bool lossy = false;
  int completions = 0;
};

class LeaseFaultsTest : public SimTest {
 protected:
  static constexpr const char* kNodes[] = {"a", "b", "c"};

  ~LeaseFaultsTest() override { Clear(); }

  void Clear() {
    local_regions_.clear();
    // Those that are pinned by the dead are reclaimed with the network.
    for (auto& shared : shared_) {
      if (shared->open()) shared->Revoke(0);
    }
    Reset(0, {});
    for (auto& shared : shared_) EXPECT_TRUE(shared->reclaimed());
    for (auto& lease : leases_) EXPECT_EQ(lease->endings, lease->asked);
    for (auto& transfer : transfers_) EXPECT_EQ(transfer->completions, 1);
    leases_.clear();
    transfers_.clear();
    shared_.clear();
    ends_.clear();
  }

  void Start(uint64_t seed) {
    Clear();
    Reset(seed, {});
    random_ = Random(seed);
    dead_.clear();
    for (const char* node : kNodes) Listen(node);
    for (const char* from : kNodes) {
      for (const char* to : kNodes) {
        if (std::string(from) == to) continue;
        const auto [client, server] = Pair(from, to);
        ends_.push_back({client, from, to});
        ends_.push_back({server, to, from});
      }
    }
    // Destroyed before the network, and used for reading into only.
    local_ = std::vector<std::byte>(kBytes);
    for (End& end : ends_) {
      auto region = end.end->connection().memory().Register({local_.data(), local_.size()},
                                                            Access::kLocalOnly);
      ASSERT_TRUE(region.ok()) << region.status();
      local_regions_.push_back(*std::move(region));
      end.local = local_regions_.back().get();
    }
  }

  struct End {
    Endpoint* end = nullptr;
    std::string node;
    std::string peer;
    const Region* local = nullptr;
  };

  bool IsDead(const std::string& node) const { return node == dead_; }
  void Step(bool faults) {
    switch (random_.Uniform(faults ? 12 : 10)) {
      case 0:
        return Share();
      case 1:
      case 2:
      case 3:
        return Resolve();
      case 4:
        return Renew();
      case 5:
        return ReturnOne();
      case 6:
      case 7:
        return Use();
      case 8:
        return random_.Chance(0.3) ? RevokeOne() : Use();
      case 9:
        return network_->RunFor(random_.Uniform(2 * kNsPerSec));
      case 10:
        if (dead_.empty() && random_.Chance(0.05)) network_->Kill(dead_ = kNodes[0]);
        return;
      default:
        if (random_.Chance(0.2)) network_->Partition("b", "c");
        if (random_.Chance(0.5)) network_->Heal("b", "c");
    }
  }

  void Share() {
    const std::string node = kNodes[random_.Uniform(3)];
    if (IsDead(node) || shared_.size() > 40) return;
    shared_.push_back(std::make_unique<Shared>(node, network_->Node(node)));
  }
  // Of an export of the peer's, good or not any more.
  void Resolve() {
    End& end = ends_[random_.Uniform(ends_.size())];
    if (IsDead(end.node) || end.end->closed() || shared_.empty()) return;
    Shared& shared = *shared_[random_.Uniform(shared_.size())];
    if (shared.node != end.peer || (!shared.open() && random_.Chance(0.9))) return;
    const RegionHandle handle = shared.open() ? shared.Part(random_) : shared.handle;
    leases_.push_back(std::make_unique<CountedLease>(end.end, &shared));
    const uint64_t lease_ns = random_.UniformInRange(kMinLeaseNs, 10 * kMinLeaseNs);
    CountedLease& lease = *leases_.back();
    if (end.end->connection().memory().Resolve(handle, 0, lease_ns, &lease).ok()) ++lease.asked;
    if (random_.Chance(0.1) && lease.asked > 0) end.end->connection().memory().Return(&lease);
  }
  CountedLease* AnyHeld() {
    if (leases_.empty()) return nullptr;
    CountedLease* lease = leases_[random_.Uniform(leases_.size())].get();
    const bool usable = lease->held() && !lease->end->closed() && !IsDead(lease->shared->node) &&
                        lease->usable_until_ns() > now_ns();
    return usable ? lease : nullptr;
  }
  void Renew() {
    CountedLease* const lease = AnyHeld();
    if (lease == nullptr || lease->renewing) return;
    lease->renewing = lease->end->connection().memory().Renew(5 * kNsPerSec, lease).ok();
  }
  void ReturnOne() {
    CountedLease* const lease = AnyHeld();
    if (lease == nullptr || !random_.Chance(0.3)) return;
    // What is outstanding would fail.
    network_->RunFor(kNsPerMs);
    if (lease->held() && !lease->end->closed()) lease->end->connection().memory().Return(lease);
  }
  void Use() {
    CountedLease* const lease = AnyHeld();
    if (lease == nullptr) return;
    for (const End& end : ends_) {
      if (end.end != lease->end || IsDead(end.node)) continue;
      transfers_.push_back(std::make_unique<LeasedTransfer>());
      LeasedTransfer& transfer = *transfers_.back();
      transfer.shared = lease->shared;
      transfer.lossy = faults_;
      const RemoteSpan all = lease->remote();
      const uint64_t from = random_.Uniform(all.length);
      const RemoteSpan part = all.Slice(from, random_.UniformInRange(1, all.length - from));
      Connection& connection = end.end->connection();
      const absl::Status posted = random_.Chance(0.5)
                                      ? Read(connection, *end.local, 0, part, &transfer)
                                      : Write(connection, *end.local, 0, part, &transfer);
      if (!posted.ok()) transfers_.pop_back();
      return;
    }
  }
  void RevokeOne() {
    if (shared_.empty()) return;
    Shared& shared = *shared_[random_.Uniform(shared_.size())];
    if (!shared.open() || IsDead(shared.node)) return;
    shared.Revoke(random_.Chance(0.5) ? 0 : random_.Uniform(3 * kNsPerSec));
  }

  void RunSeed(uint64_t seed, bool faults) {
    SCOPED_TRACE(SeedTrace(seed));
    faults_ = faults;
    Start(seed);
    for (int step = 0; step < kSteps && !HasFailure(); ++step) {
      Step(faults);
      if (random_.Chance(0.5)) network_->RunFor(random_.Uniform(50'000));
      for (auto& shared : shared_) shared->CheckLeftAlone();
    }
    // All leases run out by themselves; then those of the living are all reclaimed.
    if (faults) network_->Heal("b", "c");
    network_->RunFor(20 * kNsPerSec);
    for (auto& lease : leases_) {
      if (lease->end->closed() || IsDeadEnd(*lease)) continue;
      EXPECT_EQ(lease->endings, lease->asked);
    }
    for (auto& shared : shared_) {
      if (IsDead(shared->node)) continue;
      if (shared->open()) shared->Revoke(0);
      EXPECT_TRUE(shared->reclaimed());
      shared->CheckLeftAlone();
    }
    network_->CheckInvariants();
    Clear();
  }
  bool IsDeadEnd(const CountedLease& lease) const {
    return std::any_of(ends_.begin(), ends_.end(),
                       [&](const End& end) { return end.end == lease.end && IsDead(end.node); });
  }

  Random random_{0};
  std::string dead_;
  bool faults_ = false;
  std::vector<End> ends_;
  std::vector<std::byte> local_;
  std::vector<std::unique_ptr<Region>> local_regions_;
  std::vector<std::unique_ptr<Shared>> shared_;
  std::vector<std::unique_ptr<CountedLease>> leases_;
  std::vector<std::unique_ptr<LeasedTransfer>> transfers_;
};

TEST_F(LeaseFaultsTest, LeasesServeUntilTheyEndOnAHealthyNetwork) {
  const uint64_t first = TestSeed();
  for (uint64_t seed = first; seed < first + 20 && !HasFailure(); ++seed) RunSeed(seed, false);
}

TEST_F(LeaseFaultsTest, NothingIsTouchedOrLeftBehindWhateverFails) {
  const uint64_t first = TestSeed();
  for (uint64_t seed = first; seed < first + 20 && !HasFailure(); ++seed) RunSeed(seed, true);
}

// The story: a question is on the wire when the holder's machine dies, or the owner's, or the wire
// is cut: each side must come to an end of it alone.
TEST_F(LeaseFaultsTest, AQuestionThatIsCutOffEndsWithItsConnection) {
  for (const std::string dying : {"holder", "owner", "wire"}) {
    SCOPED_TRACE(dying);
    Clear();
    Reset(7, {});
    Listen("a");
    const auto [client, server] = Pair("b", "a");
    shared_.push_back(std::make_unique<Shared>("a", network_->Node("a")));
    leases_.push_back(std::make_unique<CountedLease>(client, shared_[0].get()));
    CountedLease& lease = *leases_.back();
    ASSERT_TRUE(
        client->connection().memory().Resolve(shared_[0]->handle, 0, kMaxLeaseNs, &lease).ok());
    ++lease.asked;
    network_->RunFor(5'000);  // half of the way
    EXPECT_EQ(lease.state(), Lease::State::kAsked);
    if (dying == "holder") network_->Kill("b");
    if (dying == "owner") network_->Kill("a");
    if (dying == "wire") network_->Partition("a", "b");
    network_->RunFor(5 * kNsPerSec);
    if (dying != "holder") {
      EXPECT_EQ(lease.endings, 1);
    }
    if (dying != "owner") {
      shared_[0]->Revoke(0);
      EXPECT_TRUE(shared_[0]->reclaimed());
    }
  }
}

// Virtual time: to the microsecond.
TEST_F(LeaseFaultsTest, TheHolderStopsBeforeTheOwnerCloses) {
  Listen("a");
  const auto [client, server] = Pair("b", "a");
  shared_.push_back(std::make_unique<Shared>("a", network_->Node("a")));
  leases_.push_back(std::make_unique<CountedLease>(client, shared_[0].get()));
  CountedLease& lease = *leases_.back();
  const uint64_t asked_ns = now_ns();
  ASSERT_TRUE(
      client->connection().memory().Resolve(shared_[0]->handle, 0, 10 * kNsPerSec, &lease).ok());
  ++lease.asked;
  ASSERT_TRUE(Run([&] { return lease.held(); }));
  EXPECT_EQ(lease.usable_until_ns(), asked_ns + 9 * kNsPerSec);
  ASSERT_TRUE(Run([&] { return lease.endings == 1; }));
  EXPECT_GE(now_ns(), asked_ns + 9 * kNsPerSec);
  EXPECT_LT(now_ns(), asked_ns + 9 * kNsPerSec + kNsPerMs);
  const auto open = [this] {
    SimFabric& fabric = network_->fabric();
    return fabric.transport(fabric.IdOf("a"))->links().stats().registrations_open;
  };
  EXPECT_GT(open(), 0u);
  network_->RunFor(asked_ns + 10 * kNsPerSec - now_ns());
  EXPECT_GT(open(), 0u);  // the owner counts from its answer
  network_->RunFor(kNsPerMs);
  EXPECT_EQ(open(), 0u);
}

}  // namespace
}  // namespace weft
