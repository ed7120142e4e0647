// The bytes of each frame of a tcp link, and what is wrong with a header.

#include "transport/tcp/tcp_frame.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <string>
#include <vector>

#include "transport/sockets/join.h"

namespace weft {
namespace {

constexpr uint32_t kSlotBytes = 8192;
constexpr uint32_t kMost = ~uint32_t{0};

// In groups of 4 bytes.
template <size_t kBytes>
std::string Hex(const std::array<std::byte, kBytes>& bytes) {
  std::string text;
  for (size_t i = 0; i < kBytes; ++i) {
    char two[3];
    std::snprintf(two, sizeof(two), "%02x", static_cast<unsigned>(bytes[i]));
    if (i > 0 && i % 4 == 0) text += ' ';
    text += two;
  }
  return text;
}

std::array<std::byte, kTcpHeaderBytes> Encode(const TcpHeader& header) {
  std::array<std::byte, kTcpHeaderBytes> bytes;
  EncodeTcpHeader(bytes.data(), header.kind, header.flags, header.length, header.sequence,
                  header.operation);
  return bytes;
}

TcpHeader Header(TcpFrameKind kind, uint8_t flags, uint32_t length, uint32_t operation = 0) {
  return {length, kind, flags, 0, 0, operation};
}

std::string Wrong(const TcpHeader& header) {
  const char* const words = CheckTcpHeader(header, kSlotBytes);
  return words == nullptr ? "" : words;
}

TEST(TcpFrame, TheJoinAndTheWelcomeBeginLikeNothingElseOnThePort) {
  std::array<std::byte, 8> bytes;
  StoreLe64(bytes.data(), kJoinMagic);
  EXPECT_EQ(Hex(bytes), "89574546 4a0a0100");
  StoreLe64(bytes.data(), kWelcomeMagic);
  EXPECT_EQ(Hex(bytes), "89574546 4a0a0101");
}

TEST(TcpFrame, EachKindHasItsBytes) {
  EXPECT_EQ(Hex(Encode({.length = 0x1234, .kind = TcpFrameKind::kBatch, .sequence = 7})),
            "34120000 01000000 07000000 00000000");
  EXPECT_EQ(Hex(Encode({48, TcpFrameKind::kRead, 0, 0, 1, 0x00030005})),
            "30000000 02000000 01000000 05000300");
  EXPECT_EQ(Hex(Encode({kPieceBytes, TcpFrameKind::kData, kTcpLast, 0, 0xffffffff, 0xfffefdfc})),
            "00000200 03010000 ffffffff fcfdfeff");
  EXPECT_EQ(Hex(Encode({17, TcpFrameKind::kWrite, kTcpLast, 0, 2, 3})),
            "11000000 04010000 02000000 03000000");
  EXPECT_EQ(Hex(Encode({0, TcpFrameKind::kEnd, kTcpRefused, 0, 3, 3})),
            "00000000 05010000 03000000 03000000");
}

TEST(TcpFrame, ASpanIsKeyOffsetAndLength) {
  std::array<std::byte, kTcpSpanBytes> bytes;
  EncodeTcpSpan(bytes.data(), {0x0102030405060708, 0x1112131415161718, 0x2122232425262728});
  EXPECT_EQ(Hex(bytes), "08070605 04030201 18171615 14131211 28272625 24232221");
  const RemoteSpan span = DecodeTcpSpan(bytes.data());
  EXPECT_EQ(span.key, 0x0102030405060708u);
  EXPECT_EQ(span.offset, 0x1112131415161718u);
  EXPECT_EQ(span.length, 0x2122232425262728u);
}

TEST(TcpFrame, EachFieldIsDecodedFromItsPlace) {
  std::array<std::byte, kTcpHeaderBytes> bytes;
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i + 1);
  const TcpHeader header = DecodeTcpHeader(bytes.data());
  EXPECT_EQ(header.length, 0x04030201u);
  EXPECT_EQ(static_cast<int>(header.kind), 5);
  EXPECT_EQ(header.flags, 6);
  EXPECT_EQ(header.reserved, 0x0807);
  EXPECT_EQ(header.sequence, 0x0c0b0a09u);
  EXPECT_EQ(header.operation, 0x100f0e0du);
}

TEST(TcpFrame, PaddingFillsToTheNextMultipleOfEight) {
  EXPECT_EQ(TcpPadding(0), 0u);
  EXPECT_EQ(TcpPadding(1), 7u);
  EXPECT_EQ(TcpPadding(7), 1u);
  EXPECT_EQ(TcpPadding(8), 0u);
  EXPECT_EQ(TcpPadding(kPieceBytes + 1), 7u);
}

TEST(TcpFrame, EachLengthWithinItsBoundsIsRight) {
  struct Case {
    TcpFrameKind kind;
    uint32_t least, most, step;
  };
  for (const Case& of :
       {Case{TcpFrameKind::kBatch, 1, kSlotBytes, 1}, Case{TcpFrameKind::kRead, 24, 64 * 24, 24},
        Case{TcpFrameKind::kData, 1, kPieceBytes, 1},
        Case{TcpFrameKind::kWrite, 17, 16 + kPieceBytes, 1}, Case{TcpFrameKind::kEnd, 0, 0, 1}}) {
    SCOPED_TRACE(static_cast<int>(of.kind));
    for (uint32_t length = of.least; length <= of.most; length += of.step) {
      ASSERT_EQ(Wrong(Header(of.kind, 0, length)), "") << length;
    }
    EXPECT_NE(Wrong(Header(of.kind, 0, of.most + 1)), "");
    EXPECT_NE(Wrong(Header(of.kind, 0, of.most + of.step)), "");
    EXPECT_NE(Wrong(Header(of.kind, 0, kMost)), "");
    if (of.least == 0) continue;
    EXPECT_NE(Wrong(Header(of.kind, 0, 0)), "");
    EXPECT_NE(Wrong(Header(of.kind, 0, of.least - 1)), "");
  }
  for (uint32_t length = 0; length < 64 * 24; ++length) {
    EXPECT_EQ(Wrong(Header(TcpFrameKind::kRead, 0, length)) == "", length > 0 && length % 24 == 0);
  }
}

TEST(TcpFrame, OnlyFiveKindsAreKnown) {
  for (int kind = 0; kind < 256; ++kind) {
    const bool known = kind >= 1 && kind <= 5;
    EXPECT_EQ(Wrong(Header(static_cast<TcpFrameKind>(kind), 0, kind == 5 ? 0 : 24)) == "", known)
        << kind;
  }
}

TEST(TcpFrame, AKindHasNoFlagsButItsOwn) {
  struct Case {
    TcpFrameKind kind;
    uint32_t length;
    int known;
  };
  for (const Case& of :
       {Case{TcpFrameKind::kBatch, 24, 0}, Case{TcpFrameKind::kRead, 24, 0},
        Case{TcpFrameKind::kData, 24, kTcpLast}, Case{TcpFrameKind::kWrite, 24, kTcpLast},
        Case{TcpFrameKind::kEnd, 0, kTcpRefused}}) {
    for (int flags = 0; flags < 256; ++flags) {
      EXPECT_EQ(Wrong(Header(of.kind, static_cast<uint8_t>(flags), of.length)) == "",
                (flags & ~of.known) == 0)
          << static_cast<int>(of.kind) << ' ' << flags;
    }
  }
}

TEST(TcpFrame, ReservedBitsAreZeroAndABatchNamesNoOperation) {
  for (int bit = 0; bit < 16; ++bit) {
    TcpHeader header = Header(TcpFrameKind::kBatch, 0, 24);
    header.reserved = static_cast<uint16_t>(1u << bit);
    EXPECT_NE(Wrong(header), "");
  }
  EXPECT_NE(Wrong(Header(TcpFrameKind::kBatch, 0, 24, 1)), "");
  EXPECT_EQ(Wrong(Header(TcpFrameKind::kRead, 0, 24, 1)), "");
}

}  // namespace
}  // namespace weft
