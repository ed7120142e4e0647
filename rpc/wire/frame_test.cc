// Frames on the wire: exactly these bytes, and nothing else is understood.
#include "rpc/wire/frame.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

namespace weft {
namespace {

using Bytes = std::vector<std::byte>;

Bytes FromHex(std::string_view hex) {
  Bytes bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

Bytes Reply(uint16_t status, uint32_t text_bytes, size_t body_bytes) {
  Bytes frame(kCallHeaderBytes + body_bytes);
  EncodeReply({{1, 3}, status, text_bytes}, frame.data());
  return frame;
}

bool Decodes(const Bytes& frame) {
  ReplyHeader header;
  ByteSpan body;
  return DecodeReply(frame, &header, &body);
}

TEST(FrameTest, RequestHasItsBytes) {
  Bytes frame(kCallHeaderBytes);
  EncodeRequest({{0x01020304, 0x11121314}, 0x2122, 0x31323334}, frame.data());
  EXPECT_EQ(frame, FromHex("04030201"
                           "14131211"
                           "2221"
                           "0100"
                           "34333231"));
}

TEST(FrameTest, ReplyHasItsBytes) {
  Bytes frame(kCallHeaderBytes);
  EncodeReply({{7, 9}, 14, 5}, frame.data());
  EXPECT_EQ(frame, FromHex("07000000090000000e00020005000000"));
}

TEST(FrameTest, AnErrorWhoseCallWasNotRunSaysSo) {
  Bytes frame(kCallHeaderBytes);
  EncodeReply({{7, 9}, 14, 0, /*not_run=*/true}, frame.data());
  EXPECT_EQ(frame, FromHex("07000000090000000e80020000000000"));
  ReplyHeader header;
  ByteSpan body;
  ASSERT_TRUE(DecodeReply(frame, &header, &body));
  EXPECT_EQ(header.status, 14);
  EXPECT_TRUE(header.not_run);

  EncodeReply({{7, 9}, 0, 0, /*not_run=*/true}, frame.data());
  EXPECT_FALSE(IsOkReply(frame));
  EXPECT_FALSE(DecodeReply(frame, &header, &body)) << "it is OK, and was not run";
}

TEST(FrameTest, CancelHasItsBytes) {
  Bytes frame(kCallHeaderBytes);
  EncodeCancel({7, 9}, frame.data());
  EXPECT_EQ(frame, FromHex("07000000090000000000030000000000"));
}

TEST(FrameTest, RequestComesBackAsItWas) {
  Bytes frame(kCallHeaderBytes + 3);
  EncodeRequest({{5, 7}, 300, 123456}, frame.data());
  ByteSpan body;
  const RequestHeader header = DecodeRequest(frame, &body);
  EXPECT_EQ(CallFrameKindOf(frame), static_cast<uint16_t>(CallFrameKind::kRequest));
  EXPECT_EQ(header.id.slot, 5u);
  EXPECT_EQ(header.id.generation, 7u);
  EXPECT_EQ(header.method, 300);
  EXPECT_EQ(header.remaining_us, 123456u);
  EXPECT_EQ(body.size(), 3u);
}

TEST(FrameTest, WhatIsShorterThanAHeaderIsNoFrame) {
  for (size_t bytes = 0; bytes < kCallHeaderBytes; ++bytes) {
    EXPECT_EQ(CallFrameKindOf(Bytes(bytes, std::byte{1})), 0) << bytes;
  }
}

TEST(FrameTest, RepliesAreTakenOnlyIfTheirFieldsAgree) {
  EXPECT_TRUE(Decodes(Reply(0, 0, 0)));
  EXPECT_TRUE(Decodes(Reply(0, 0, 100)));
  EXPECT_TRUE(Decodes(Reply(5, 0, 0)));
  EXPECT_TRUE(Decodes(Reply(16, 100, 100)));
  EXPECT_TRUE(Decodes(Reply(5, kMaxStatusText, kMaxStatusText)));

  EXPECT_FALSE(Decodes(Reply(0, 1, 1))) << "a text without an error";
  EXPECT_FALSE(Decodes(Reply(17, 0, 0))) << "no such status";
  EXPECT_FALSE(Decodes(Reply(5, 3, 2))) << "a text longer than the frame";
  EXPECT_FALSE(Decodes(Reply(5, 3, 4))) << "bytes after an error's text";
  EXPECT_FALSE(Decodes(Reply(5, 0xFFFFFFFF, 4)));
  EXPECT_FALSE(Decodes(Reply(5, kMaxStatusText + 1, kMaxStatusText + 1)));
}

TEST(FrameTest, CancelsAreTakenOnlyIfTheyAreNothingElse) {
  Bytes frame(kCallHeaderBytes);
  CallId id;
  EncodeCancel({3, 5}, frame.data());
  ASSERT_TRUE(DecodeNotice(frame, &id));
  EXPECT_EQ(id.slot, 3u);
  EXPECT_EQ(id.generation, 5u);

  for (size_t at : {8, 9, 12, 15}) {
    Bytes changed = frame;
    changed[at] = std::byte{1};
    EXPECT_FALSE(DecodeNotice(changed, &id)) << at;
  }
  frame.push_back(std::byte{0});
  EXPECT_FALSE(DecodeNotice(frame, &id)) << "a body";
}

TEST(FrameTest, GoawaysAreTakenOnlyIfTheyAreNothingElse) {
  Bytes frame(kCallHeaderBytes);
  EncodeGoaway(0x04030201, frame.data());
  EXPECT_EQ(CallFrameKindOf(frame), 10);
  EXPECT_EQ(frame[12], std::byte{1});
  EXPECT_EQ(frame[15], std::byte{4});
  uint32_t unanswered = 0;
  ASSERT_TRUE(DecodeNumber(frame, &unanswered));
  EXPECT_EQ(unanswered, 0x04030201u);

  for (size_t at : {0, 3, 4, 7, 8, 9}) {
    Bytes changed = frame;
    changed[at] = std::byte{1};
    EXPECT_FALSE(DecodeNumber(changed, &unanswered)) << at;
  }
  frame.push_back(std::byte{0});
  EXPECT_FALSE(DecodeNumber(frame, &unanswered)) << "a body";
}

TEST(FrameTest, AnIdleSaysHowManyMessagesTheServerHas) {
  Bytes frame(kCallHeaderBytes);
  EncodeIdle(0x04030201, frame.data());
  EXPECT_EQ(CallFrameKindOf(frame), 17);
  uint32_t received = 0;
  ASSERT_TRUE(DecodeNumber(frame, &received));
  EXPECT_EQ(received, 0x04030201u);
}

TEST(FrameTest, OneWayMessagesHaveNoId) {
  Bytes frame(kCallHeaderBytes + 3);
  EncodeOneWay(/*method=*/7, /*remaining_us=*/9, frame.data());
  EXPECT_EQ(CallFrameKindOf(frame), 12);
  RequestHeader header;
  ByteSpan body;
  ASSERT_TRUE(DecodeOneWay(frame, &header, &body));
  EXPECT_EQ(header.method, 7);
  EXPECT_EQ(header.remaining_us, 9u);
  EXPECT_EQ(body.size(), 3u);
  for (size_t at : {0, 3, 4, 7}) {
    Bytes changed = frame;
    changed[at] = std::byte{1};
    EXPECT_FALSE(DecodeOneWay(changed, &header, &body)) << at;
  }
  frame[11] = std::byte{0x20};
  EXPECT_FALSE(DecodeOneWay(frame, &header, &body)) << "no priority";
  frame[11] = std::byte{0x30};
  EXPECT_TRUE(DecodeOneWay(frame, &header, &body));
}

TEST(FrameTest, PrioritiesAreBits12And13OfTheKind) {
  EXPECT_EQ(RequestKind(2, kExtrasBit, Priority::kNormal), 0x8201);
  EXPECT_EQ(RequestKind(2, kExtrasBit, Priority::kControl), 0x9201);
  EXPECT_EQ(RequestKind(0, 0, Priority::kBackground), 0x3001);
  EXPECT_EQ(OneWayKind(0, Priority::kControl), 0x100C);
  for (Priority priority : {Priority::kControl, Priority::kNormal, Priority::kBackground}) {
    const uint16_t kind = RequestKind(8, kExtrasBit | kAttachmentBit, priority);
    EXPECT_TRUE(HasPriority(kind));
    EXPECT_EQ(PriorityOf(kind), priority);
  }
  EXPECT_FALSE(HasPriority(0x2001));
}

TEST(Frame, WindowsAreLaidOutAsTheWireFormatSays) {
  std::byte frame[kWindowBytes];
  EncodeWindow({{0x0807060504030201, 0x10, 0x20}, kMayWrite}, frame);
  EXPECT_EQ(std::to_integer<int>(frame[0]), 1);
  EXPECT_EQ(std::to_integer<int>(frame[7]), 8);
  EXPECT_EQ(std::to_integer<int>(frame[8]), 0x10);
  EXPECT_EQ(std::to_integer<int>(frame[16]), 0x20);
  EXPECT_EQ(std::to_integer<int>(frame[24]), kMayWrite);
  EXPECT_EQ(RequestKind(0), static_cast<uint16_t>(CallFrameKind::kRequest));
  EXPECT_EQ(RequestKind(8), 0x0801);
}

TEST(Frame, WindowsAreTakenOffTheFrontOfTheBody) {
  std::byte frame[2 * kWindowBytes + 3] = {};
  EncodeWindow({{1, 2, 3}, kMayRead}, frame);
  EncodeWindow({{4, 5, ~uint64_t{0} - 5}, kMayWrite}, frame + kWindowBytes);
  std::array<Window, kMaxWindows> windows;
  ByteSpan body(frame);
  ASSERT_TRUE(DecodeWindows(2, &body, &windows));
  EXPECT_EQ(body.size(), 3u);
  EXPECT_EQ(windows[0].span.key, 1u);
  EXPECT_EQ(windows[0].span.offset, 2u);
  EXPECT_EQ(windows[0].span.length, 3u);
  EXPECT_EQ(windows[0].rights, kMayRead);
  EXPECT_EQ(windows[1].span.key, 4u);
  EXPECT_EQ(windows[1].rights, kMayWrite);

  body = ByteSpan(frame);
  EXPECT_FALSE(DecodeWindows(3, &body, &windows)) << "fewer bytes";
  EXPECT_EQ(body.size(), sizeof(frame)) << "untouched";
  for (const auto& [at, value] : {std::pair(8, 6), std::pair(24, 0), std::pair(24, 3),
                                  std::pair(24, 4), std::pair(25, 1), std::pair(28, 1)}) {
    std::byte wrong[2 * kWindowBytes + 3];
    std::copy_n(frame, sizeof(frame), wrong);
    wrong[kWindowBytes + at] = static_cast<std::byte>(value);
    body = ByteSpan(wrong);
    EXPECT_FALSE(DecodeWindows(2, &body, &windows)) << at;
  }
}

}  // namespace
}  // namespace weft
