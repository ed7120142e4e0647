// Leases: what a handle is exchanged for, what they permit, and how they end.

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/clock.h"
#include "transport/testing/contract_test.h"
#include "transport/testing/lease_fixture.h"

namespace weft {
namespace {

constexpr size_t kBytes = 64 * 1024;

ExportOptions Granting(Rights rights, uint64_t layout = 0, const char* layout_name = "") {
  ExportOptions options;
  options.rights = rights;
  options.layout = layout;
  options.layout_name = layout_name;
  return options;
}

MutableByteSpan SpanOf(std::vector<std::byte>& bytes) { return {bytes.data(), bytes.size()}; }

bool Same(const std::vector<std::byte>& local, const std::vector<std::byte>& memory, size_t from) {
  return std::equal(local.begin(), local.end(), memory.begin() + static_cast<ptrdiff_t>(from));
}

TEST_P(ContractTest, ALeaseReadsAndWritesWhatItsHandleNames) {
  Open();
  ExportedMemory shared(world_->server().transport(), kBytes, Granting(kMayRead | kMayWrite));
  Holder holder(*world_, client_, server_end());
  TestLease& lease = holder.Resolve(shared.handle());
  ASSERT_TRUE(lease.held()) << lease.why;
  EXPECT_EQ(lease.grants, 1);
  EXPECT_EQ(lease.rights(), kMayRead | kMayWrite);
  EXPECT_EQ(lease.remote().length, kBytes);
  EXPECT_GT(lease.usable_until_ns(), world_->client().clock().NowNs());
  EXPECT_EQ(shared.exported->leases(), 1u);
  std::vector<std::byte> local(1000);
  ASSERT_TRUE(holder.Read(SpanOf(local), lease.remote().Slice(500, 1000)).ok());
  EXPECT_TRUE(Same(local, shared.memory, 500));
  local = Pattern(99, 1000);
  ASSERT_TRUE(holder.Write(SpanOf(local), lease.remote().Slice(64'000, 1000)).ok());
  EXPECT_TRUE(Same(local, shared.memory, 64'000));
}

TEST_P(ContractTest, TheClientCanExportToTheServerToo) {
  Open();
  ExportedMemory shared(world_->client().transport(), kBytes, Granting(kMayRead));
  Holder holder(*world_, server_end(), client_);
  TestLease& lease = holder.Resolve(shared.handle());
  ASSERT_TRUE(lease.held()) << lease.why;
  std::vector<std::byte> local(8);
  ASSERT_TRUE(holder.Read(SpanOf(local), lease.remote().Slice(16, 8)).ok());
  EXPECT_TRUE(Same(local, shared.memory, 16));
}

}  // namespace
}  // namespace weft
