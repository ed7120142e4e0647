#include "transport/leases/handle_code.h"

#include <string>

#include "core/random.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

HandleCode::Key CountingKey() {
  HandleCode::Key key;
  for (size_t i = 0; i < key.size(); ++i) key[i] = static_cast<std::byte>(i);
  return key;
}

RegionHandle::Claim SomeClaim() {
  RegionHandle::Claim claim;
  claim.rights = kMayRead | kMayWrite;
  claim.slot = 5;
  claim.generation = 9;
  claim.tenant = 2;
  claim.offset = 4096;
  claim.length = 1 << 20;
  return claim;
}

std::string Hex(const RegionHandle& handle) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : handle.bytes()) {
    text.push_back(kDigits[static_cast<uint8_t>(byte) >> 4]);
    text.push_back(kDigits[static_cast<uint8_t>(byte) & 15]);
  }
  return text;
}

// Computed by another implementation of HMAC-SHA-256 (Python's), key 00 01 .. 1f.
TEST(HandleCode, IsTheFirstHalfOfHmacSha256OverWhatTheHandleSays) {
  const HandleCode code(CountingKey());
  EXPECT_EQ(Hex(code.Mint(SomeClaim())),
            "0103000005000000090000000200000000100000000000000000100000000000"
            "ffffffffffffffff13fdce79b41d873d759f7f3ada68f0e8");
  RegionHandle::Claim claim;
  claim.rights = kAllRights;
  claim.slot = 0x01020304;
  claim.generation = 0x05060708;
  claim.tenant = 0x090a0b0c;
  claim.offset = 0x0d0e0f1011121314;
  claim.length = 0x15161718191a1b1c;
  claim.expires_ns = 0x1d1e1f2021222324;
  EXPECT_EQ(Hex(code.Mint(claim)),
            "0107000004030201080706050c0b0a0914131211100f0e0d1c1b1a1918171615"
            "24232221201f1e1deced7c45ff64d682b9ff0654c99d0ba6");
}

TEST(HandleCode, TheClaimReadsBackAsItWasMinted) {
  const HandleCode code;
  const RegionHandle::Claim claim = SomeClaim();
  const RegionHandle::Claim read = code.Mint(claim).claim();
  EXPECT_EQ(read.rights, claim.rights);
  EXPECT_EQ(read.slot, claim.slot);
  EXPECT_EQ(read.generation, claim.generation);
  EXPECT_EQ(read.tenant, claim.tenant);
  EXPECT_EQ(read.offset, claim.offset);
  EXPECT_EQ(read.length, claim.length);
  EXPECT_EQ(read.expires_ns, RegionHandle::kNoExpiry);
}

TEST(HandleCode, NoBitOfAHandleCanBeChanged) {
  const HandleCode code;
  const RegionHandle good = code.Mint(SomeClaim());
  ASSERT_TRUE(code.Verify(good));
  for (size_t bit = 0; bit < 8 * RegionHandle::kBytes; ++bit) {
    std::string bytes = good.ToBytes();
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    RegionHandle changed;
    ASSERT_TRUE(RegionHandle::FromBytes(bytes, &changed));
    EXPECT_FALSE(code.Verify(changed)) << "bit " << bit;
  }
  EXPECT_TRUE(code.Verify(good));
}

TEST(HandleCode, OneProcessesHandlesAreNothingToAnother) {
  const HandleCode ours;
  const HandleCode theirs;
  EXPECT_TRUE(ours.Verify(ours.Mint(SomeClaim())));
  EXPECT_FALSE(ours.Verify(theirs.Mint(SomeClaim())));
}

TEST(HandleCode, ZerosAndNoiseAreNoHandles) {
  const HandleCode code;
  EXPECT_FALSE(code.Verify(RegionHandle()));
  Random random(1);
  for (int round = 0; round < 1000; ++round) {
    std::string noise;
    for (size_t i = 0; i < RegionHandle::kBytes; ++i) {
      noise.push_back(static_cast<char>(random.Next64()));
    }
    RegionHandle handle;
    ASSERT_TRUE(RegionHandle::FromBytes(noise, &handle));
    EXPECT_FALSE(code.Verify(handle));
  }
}

}  // namespace
}  // namespace weft
