// A small language for tests of leases: a TestLease remembers what it was told, an ExportedMemory
// is memory of one engine with its export.
//
// Threads: the engine's.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <list>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/clock.h"
#include "core/function.h"
#include "transport/testing/contract_test.h"
#include "transport/testing/endpoint.h"
#include "transport/testing/post.h"
#include "transport/testing/test_memory.h"
#include "transport/transport.h"

namespace weft {

class TestLease final : public Lease {
 public:
  bool held() const { return state() == State::kHeld; }
  bool ended() const { return endings > 0; }

  int grants = 0;
  int endings = 0;
  absl::Status why;  // of the last ending
  Function<void()> on_ended;

 private:
  void OnGranted() override {
    EXPECT_EQ(state(), State::kHeld);
    ++grants;
  }
  void OnEnded(const absl::Status& status) override {
    EXPECT_EQ(state(), State::kIdle);
    EXPECT_FALSE(status.ok());
    ++endings;
    why = status;
    if (on_ended) on_ended();
  }
};

class TestDerivation final : public Derivation {
 public:
  void OnDerived(const absl::Status& result, const RegionHandle& derived) override {
    ++completions;
    status = result;
    handle = derived;
  }
  bool done() const { return completions > 0; }

  int completions = 0;
  absl::Status status;
  RegionHandle handle;
};

// Memory of one engine, of a known pattern, and its export. Revokes in its destructor; by then the
// connections of its holders, or their leases, have ended.
class ExportedMemory {
 public:
  ExportedMemory(EngineCore& owner, size_t bytes, const ExportOptions& options)
      : memory_(Pattern(kPattern, bytes)) {
    auto made = owner.transport().exports().Add(memory_.bytes(), options);
    EXPECT_TRUE(made.ok()) << made.status();
    if (made.ok()) exported = *std::move(made);
  }
  ExportedMemory(EngineCore& owner, size_t bytes, Rights rights)
      : ExportedMemory(owner, bytes, WithRights(rights)) {}
  ~ExportedMemory() {
    if (exported != nullptr && exported->state() == Export::State::kOpen) {
      EXPECT_TRUE(exported->Revoke(/*grace_ns=*/0, nullptr));
    }
  }
  ExportedMemory(const ExportedMemory&) = delete;
  ExportedMemory& operator=(const ExportedMemory&) = delete;

  RegionHandle handle() const { return exported->handle(); }
  RegionHandle Part(uint64_t offset, uint64_t length, Rights rights,
                    uint32_t tenant = kDefaultTenant, uint64_t lifetime_ns = 0) const {
    const absl::StatusOr<RegionHandle> part =
        exported->Derive(offset, length, rights, tenant, lifetime_ns);
    EXPECT_TRUE(part.ok()) << part.status();
    return part.ok() ? *part : RegionHandle();
  }
  void RevokeAndWait(ContractWorld& world, uint64_t grace_ns) {
    TestOperation reclaimed;
    if (!exported->Revoke(grace_ns, &reclaimed)) {
      EXPECT_FALSE(reclaimed.done());  // never from inside
      EXPECT_TRUE(world.Run([&] { return reclaimed.done(); }));
      EXPECT_TRUE(reclaimed.result.ok()) << reclaimed.result;
    }
    EXPECT_EQ(exported->state(), Export::State::kReclaimed);
  }

  bool Has(const std::vector<std::byte>& bytes, size_t at) const {
    return std::equal(bytes.begin(), bytes.end(), memory_.begin() + static_cast<ptrdiff_t>(at));
  }
  bool Untouched() const { return memory_ == Pattern(kPattern, memory_.size()); }
  uint64_t WordAt(size_t at) const {
    uint64_t word;
    std::memcpy(&word, &memory_[at], sizeof(word));
    return word;
  }

  std::unique_ptr<Export> exported;

 private:
  static constexpr uint64_t kPattern = 7;

  static ExportOptions WithRights(Rights rights) {
    ExportOptions options;
    options.rights = rights;
    return options;
  }

  TestMemory memory_;
};

// One client's end of a connection, which asks for leases. Closes the connection in its destructor:
// make it after the exports.
class Holder {
 public:
  Holder(ContractWorld& world, Endpoint& client, Endpoint& owner)
      : world_(world), client_(client), owner_(owner) {}
  ~Holder() {
    if (!client_.closed()) client_.connection().Close("done");
    EXPECT_TRUE(world_.Run([this] { return client_.closed() && owner_.closed(); }));
  }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;

  Connection& connection() { return client_.connection(); }

  // Asks, and does not wait.
  TestLease& Ask(const RegionHandle& handle, uint64_t layout = 0,
                 uint64_t lease_ns = 30 * kNsPerSec) {
    TestLease& lease = leases_.emplace_back();
    const absl::Status asked = connection().memory().Resolve(handle, layout, lease_ns, &lease);
    EXPECT_TRUE(asked.ok()) << asked;
    EXPECT_EQ(lease.state(), Lease::State::kAsked);
    return lease;
  }
  // Asks, and waits for the outcome.
  TestLease& Resolve(const RegionHandle& handle, uint64_t layout = 0,
                     uint64_t lease_ns = 30 * kNsPerSec) {
    TestLease& lease = Ask(handle, layout, lease_ns);
    EXPECT_TRUE(world_.Run([&] { return lease.held() || lease.ended(); }));
    return lease;
  }
  absl::Status Derive(const RegionHandle& handle, uint64_t offset, uint64_t length, Rights rights,
                      RegionHandle* derived) {
    TestDerivation derivation;
    const absl::Status asked = connection().memory().Derive(handle, offset, length, rights,
                                                            /*lifetime_ns=*/0, &derivation);
    if (!asked.ok()) return asked;
    EXPECT_TRUE(world_.Run([&] { return derivation.done(); }));
    *derived = derivation.handle;
    return derivation.status;
  }

  absl::Status Read(MutableByteSpan local, const RemoteSpan& remote) {
    return Transfer(/*write=*/false, local, remote);
  }
  absl::Status Write(MutableByteSpan local, const RemoteSpan& remote) {
    return Transfer(/*write=*/true, local, remote);
  }
  absl::Status FetchAdd(const RemoteSpan& remote, uint64_t operand, uint64_t* before) {
    TestAtomic op;
    const absl::Status posted = connection().memory().FetchAdd(remote, operand, &op);
    if (!posted.ok()) return posted;
    EXPECT_TRUE(world_.Run([&] { return op.done(); }));
    *before = op.before;
    return op.result;
  }

 private:
  // A write that the peer refuses may complete here before: a probe behind it tells, or fails with
  // the connection that the refusal has broken.
  absl::Status Transfer(bool write, MutableByteSpan local, const RemoteSpan& remote) {
    if (client_.closed()) return client_.why();
    auto region = connection().memory().Register(local, Access::kLocalOnly);
    if (!region.ok()) return region.status();
    TestOperation op;
    absl::Status posted = write ? weft::Write(connection(), **region, 0, remote, &op)
                                : weft::Read(connection(), **region, 0, remote, &op);
    if (!posted.ok()) return posted;
    EXPECT_TRUE(world_.Run([&] { return op.done(); }));
    if (!op.result.ok() || !write) return op.result;
    TestOperation probe;
    posted = connection().memory().Probe(&probe);
    if (!posted.ok()) return posted;
    EXPECT_TRUE(world_.Run([&] { return probe.done(); }));
    return probe.result;
  }

  ContractWorld& world_;
  Endpoint& client_;
  Endpoint& owner_;
  std::list<TestLease> leases_;
};

}  // namespace weft
