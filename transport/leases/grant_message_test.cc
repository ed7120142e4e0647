// The grants' codec: exact in every length, range and reserved byte. And a fuzz loop: nothing that
// a peer sends breaks it, and what it takes is what it would have written itself.

#include "transport/leases/grant_message.h"

#include <string>
#include <vector>

#include "core/random.h"
#include "core/test_seed.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

RegionHandle SomeHandle() {
  std::string bytes;
  for (size_t i = 0; i < RegionHandle::kBytes; ++i) bytes.push_back(static_cast<char>(i + 100));
  RegionHandle handle;
  EXPECT_TRUE(RegionHandle::FromBytes(bytes, &handle));
  return handle;
}

GrantRefused OtherLayout(std::string name) {
  return {11, absl::StatusCode::kFailedPrecondition, 0xabcd, std::move(name)};
}

// One of each, and those at the edges.
std::vector<GrantMessage> Good() {
  return {
      GrantResolve{1, kMinLeaseNs, 0x99, SomeHandle()},
      GrantGranted{2, 3, kMaxLeaseNs, {0x1122334455667788, 4096, 100}, kMayRead},
      GrantGranted{2, 3, 1, {0, ~uint64_t{0} - 8, 8}, kAllRights},
      GrantRefused{4, absl::StatusCode::kPermissionDenied, 0, ""},
      GrantRefused{4, absl::StatusCode::kResourceExhausted, 0, ""},
      OtherLayout("kv.Bucket"),
      OtherLayout(""),
      OtherLayout(std::string(kMaxLayoutNameBytes, 'x')),
      GrantRenew{5, kMaxLeaseNs},
      GrantRenewed{6, 1},
      GrantReturn{7},
      GrantEnded{8, absl::StatusCode::kAborted, kMaxLeaseNs},
      GrantEnded{8, absl::StatusCode::kDeadlineExceeded, 0},
      GrantDerive{9, ~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0}, kMayWrite, SomeHandle()},
      GrantDerived{10, SomeHandle()},
  };
}

std::string Encoded(const GrantMessage& message) {
  return std::string(AsStringView(EncodeGrant(message).bytes()));
}

bool Decodes(const std::string& bytes) {
  GrantMessage message;
  return DecodeGrant(AsBytes(bytes), &message);
}

TEST(GrantMessage, EveryMessageReadsBackAsItWasWritten) {
  for (const GrantMessage& message : Good()) {
    const std::string bytes = Encoded(message);
    SCOPED_TRACE(testing::Message() << "kind " << int{bytes[0]});
    EXPECT_LE(bytes.size(), kMaxGrantBytes);
    GrantMessage read;
    ASSERT_TRUE(DecodeGrant(AsBytes(bytes), &read));
    EXPECT_EQ(read.index(), message.index());
    EXPECT_EQ(Encoded(read), bytes);
  }
}

TEST(GrantMessage, TheBytesAreThoseOfTheDocument) {
  EXPECT_EQ(
      Encoded(GrantRenew{0x0102030405060708, 1'000'000'000}),
      std::string("\x04\0\0\0\0\0\0\0\x08\x07\x06\x05\x04\x03\x02\x01\0\xca\x9a\x3b\0\0\0\0", 24));
  const std::string granted = Encoded(GrantGranted{2, 3, 4, {5, 6, 7}, kAllRights});
  EXPECT_EQ(granted.size(), 56u);
  EXPECT_EQ(granted.substr(0, 9), std::string("\x02\x07\0\0\0\0\0\0\x02", 9));
  for (size_t field = 0; field < 6; ++field) {
    EXPECT_EQ(granted[8 + 8 * field], static_cast<char>(field + 2));
  }
  EXPECT_EQ(Encoded(OtherLayout("ab")).substr(24), "ab");
}

TEST(GrantMessage, EveryOtherLengthIsRefused) {
  for (const GrantMessage& message : Good()) {
    const std::string bytes = Encoded(message);
    const bool named = std::holds_alternative<GrantRefused>(message) && bytes.size() > 24;
    for (size_t size = 0; size < bytes.size(); ++size) {
      // A shorter name is a name.
      if (named && size >= 24) break;
      EXPECT_FALSE(Decodes(bytes.substr(0, size))) << "kind " << int{bytes[0]} << " of " << size;
    }
    const bool other_layout =
        bytes[1] == static_cast<char>(absl::StatusCode::kFailedPrecondition) && bytes[0] == 3;
    if (!other_layout) {
      EXPECT_FALSE(Decodes(bytes + '\0')) << int{bytes[0]};
    }
  }
  EXPECT_FALSE(Decodes(Encoded(OtherLayout(std::string(kMaxLayoutNameBytes, 'x'))) + 'x'));
  EXPECT_FALSE(Decodes(std::string(kMaxGrantBytes + 1, '\x03')));
}

TEST(GrantMessage, ReservedBytesAreZero) {
  for (const GrantMessage& message : Good()) {
    for (size_t at = 2; at < 8; ++at) {
      std::string bytes = Encoded(message);
      bytes[at] = 1;
      EXPECT_FALSE(Decodes(bytes)) << "kind " << int{bytes[0]} << ", byte " << at;
    }
  }
  // The second byte where it means nothing.
  for (const GrantMessage& message :
       {GrantMessage(GrantResolve{1, kMinLeaseNs, 0, SomeHandle()}), GrantMessage(GrantReturn{7}),
        GrantMessage(GrantRenew{5, kMaxLeaseNs}), GrantMessage(GrantDerived{10, SomeHandle()})}) {
    std::string bytes = Encoded(message);
    bytes[1] = 1;
    EXPECT_FALSE(Decodes(bytes));
  }
}

TEST(GrantMessage, FieldsOutOfTheirRangesAreRefused) {
  using absl::StatusCode;
  const std::vector<GrantMessage> bad = {
      GrantResolve{1, kMinLeaseNs - 1, 0, SomeHandle()},
      GrantResolve{1, kMaxLeaseNs + 1, 0, SomeHandle()},
      GrantGranted{2, 3, 0, {1, 0, 8}, kMayRead},
      GrantGranted{2, 3, kMaxLeaseNs + 1, {1, 0, 8}, kMayRead},
      GrantGranted{2, 3, 1, {1, 0, 0}, kMayRead},
      GrantGranted{2, 3, 1, {1, ~uint64_t{0} - 7, 8}, kMayRead},
      GrantGranted{2, 3, 1, {1, 0, 8}, 0},
      GrantGranted{2, 3, 1, {1, 0, 8}, 8},
      GrantGranted{2, 3, 1, {1, 0, 8}, kMayUseAtomics},
      GrantRefused{4, StatusCode::kOk, 0, ""},
      GrantRefused{4, StatusCode::kInternal, 0, ""},
      GrantRefused{4, StatusCode::kPermissionDenied, 1, ""},
      GrantRefused{4, StatusCode::kPermissionDenied, 0, "x"},
      GrantRenew{5, 0},
      GrantRenewed{6, 0},
      GrantRenewed{6, ~uint64_t{0}},
      GrantEnded{8, StatusCode::kAborted, kMaxLeaseNs + 1},
      GrantEnded{8, StatusCode::kOk, 0},
      GrantDerive{9, 0, 0, 0, kMayRead, SomeHandle()},
      GrantDerive{9, 0, 1, 0, 0, SomeHandle()},
  };
  for (size_t i = 0; i < bad.size(); ++i) EXPECT_FALSE(Decodes(Encoded(bad[i]))) << i;
  for (int kind : {0, 10, 255}) {
    std::string bytes = Encoded(GrantReturn{7});
    bytes[0] = static_cast<char>(kind);
    EXPECT_FALSE(Decodes(bytes)) << kind;
  }
}

TEST(GrantMessage, NothingThatAPeerSendsBreaksTheCodec) {
  constexpr int kRounds = 200'000;
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(SeedTrace(seed));
  Random random(seed);
  const std::vector<GrantMessage> good = Good();
  int taken = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::string bytes = Encoded(good[random.Uniform(good.size())]);
    for (uint64_t changes = random.Uniform(4); changes > 0 && !bytes.empty(); --changes) {
      const size_t at = random.Uniform(bytes.size());
      if (random.Chance(0.1)) {
        bytes.resize(random.Uniform(2 * kMaxGrantBytes));
      } else {
        bytes[at] = static_cast<char>(random.Next64());
      }
    }
    GrantMessage message;
    if (!DecodeGrant(AsBytes(bytes), &message)) continue;
    ++taken;
    EXPECT_EQ(Encoded(message), bytes) << "round " << round;
  }
  // Both outcomes were met often.
  EXPECT_GT(taken, kRounds / 10);
  EXPECT_LT(taken, kRounds - kRounds / 10);
}

}  // namespace
}  // namespace weft
