// Frames of streams on the wire: exactly these bytes, and nothing else is understood.
#include "rpc/wire/stream_frame.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace weft {
namespace {

using Bytes = std::vector<std::byte>;

constexpr CallId kId = {0x01020304, 0x11121314};

std::string Hex(const Bytes& bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    text += kDigits[static_cast<size_t>(byte) >> 4];
    text += kDigits[static_cast<size_t>(byte) & 15];
  }
  return text;
}

Bytes Open(std::string_view extras, bool waits = false) {
  Bytes frame(OpenFrameBytes(/*windows=*/0, extras.size()));
  EncodeOpen({kId, 0x2122, 0x31323334, waits, AsBytes(extras)}, frame.data());
  return frame;
}

Bytes Data(uint16_t flags, std::string_view message, bool to_opener = false) {
  Bytes frame(kCallHeaderBytes + message.size());
  EncodeData(kId, flags, 0x31323334, to_opener, frame.data());
  std::copy_n(reinterpret_cast<const std::byte*>(message.data()), message.size(),
              frame.begin() + kCallHeaderBytes);
  return frame;
}

Bytes Credit(uint16_t messages, uint32_t bytes, bool to_opener = false) {
  Bytes frame(kCallHeaderBytes);
  EncodeCredit({kId, messages, bytes}, to_opener, frame.data());
  return frame;
}

Bytes End(uint16_t status, std::string_view extras, std::string_view text, bool not_run = false) {
  Bytes frame(EndFrameBytes(extras.size(), text.size()));
  EncodeEnd({kId, status, not_run, 0x41424344, AsBytes(extras), AsBytes(text)}, frame.data());
  return frame;
}

Bytes Cancel() {
  Bytes frame(kCallHeaderBytes);
  EncodeStreamCancel(kId, frame.data());
  return frame;
}

// As a side that takes every kind would: false also for what is no frame of a stream.
bool Decodes(const Bytes& frame) {
  const uint16_t kind = CallFrameKindOf(frame);
  if (!IsStreamKind(kind)) return false;
  OpenHeader open;
  std::array<Window, kMaxWindows> windows;
  DataHeader data;
  CreditHeader credit;
  EndHeader end;
  CallId id;
  ByteSpan message;
  switch (static_cast<StreamFrameKind>(kind & 0xFF)) {
    case StreamFrameKind::kOpen:
      return DecodeOpen(frame, &open, &windows);
    case StreamFrameKind::kData:
      return DecodeData(frame, /*to_opener=*/false, &data, &message);
    case StreamFrameKind::kCredit:
      return DecodeCredit(frame, /*to_opener=*/false, &credit);
    case StreamFrameKind::kEnd:
      return DecodeEnd(frame, &end);
    case StreamFrameKind::kCancel:
      return DecodeStreamCancel(frame, &id);
  }
  return false;
}

Bytes With16(Bytes frame, size_t at, uint16_t value) {
  StoreLe16(frame.data() + at, value);
  return frame;
}
Bytes With32(Bytes frame, size_t at, uint32_t value) {
  StoreLe32(frame.data() + at, value);
  return frame;
}
Bytes Longer(Bytes frame) {
  frame.push_back(std::byte{0});
  return frame;
}

TEST(StreamFrameTest, FramesHaveTheirBytes) {
  EXPECT_EQ(Hex(Open("")),
            "0403020114131211"
            "2221"
            "0500"
            "34333231");
  EXPECT_EQ(Hex(Open("ab", true)),
            "0403020114131211"
            "2221"
            "05c0"
            "34333231"
            "0200000000000000"
            "6162000000000000");
  EXPECT_EQ(Hex(Data(0, "xy")),
            "0403020114131211"
            "0000"
            "0600"
            "34333231"
            "7879");
  EXPECT_EQ(Hex(Data(kLastMessage | kNoMessage, "")),
            "0403020114131211"
            "0300"
            "0600"
            "34333231");
  EXPECT_EQ(Hex(Credit(0x2122, 0x31323334)),
            "0403020114131211"
            "2221"
            "0700"
            "34333231");
  EXPECT_EQ(Hex(Data(0, "xy", /*to_opener=*/true)),
            "0403020114131211"
            "0000"
            "0601"
            "34333231"
            "7879");
  EXPECT_EQ(Hex(Credit(0x2122, 0x31323334, /*to_opener=*/true)),
            "0403020114131211"
            "2221"
            "0701"
            "34333231");
  EXPECT_EQ(Hex(End(0, "", "")),
            "0403020114131211"
            "0000"
            "0800"
            "00000000"
            "4443424100000000");
  EXPECT_EQ(Hex(End(5, "a", "no", true)),
            "0403020114131211"
            "0580"
            "0880"
            "02000000"
            "0100000000000000"
            "6100000000000000"
            "4443424100000000"
            "6e6f");
  EXPECT_EQ(Hex(Cancel()),
            "0403020114131211"
            "0000"
            "0900"
            "00000000");
}

TEST(StreamFrameTest, AnOpenSaysHowUrgentItsStreamIs) {
  Bytes frame(kCallHeaderBytes);
  EncodeOpen({kId, 1, 0, /*waits=*/true, {}, Priority::kBackground}, frame.data());
  EXPECT_EQ(CallFrameKindOf(frame), 0x7005);
  OpenHeader open;
  std::array<Window, kMaxWindows> windows;
  ASSERT_TRUE(DecodeOpen(frame, &open, &windows));
  EXPECT_EQ(open.priority, Priority::kBackground);
  EXPECT_TRUE(open.waits);
  EXPECT_FALSE(DecodeOpen(With16(frame, 10, 0x6005), &open, &windows));
}

TEST(StreamFrameTest, AnOpenMayLendMemory) {
  constexpr std::string_view kExtras = "extra";
  for (const uint32_t count : {1u, kMaxWindows}) {
    Bytes frame(OpenFrameBytes(count, kExtras.size()));
    EncodeOpen({kId, 1, 2, false, AsBytes(kExtras), Priority::kControl, count}, frame.data());
    for (uint32_t i = 0; i < count; ++i) {
      EncodeWindow({{i + 1, i, 100}, kMayWrite},
                   frame.data() + kCallHeaderBytes + i * kWindowBytes);
    }
    OpenHeader open;
    std::array<Window, kMaxWindows> windows;
    ASSERT_TRUE(DecodeOpen(frame, &open, &windows));
    EXPECT_EQ(open.windows, count);
    EXPECT_EQ(open.priority, Priority::kControl);
    EXPECT_FALSE(open.waits);
    EXPECT_EQ(AsStringView(open.extras), kExtras);
    EXPECT_EQ(windows[count - 1].span.key, count);
    EXPECT_EQ(windows[count - 1].rights, kMayWrite);
    // One more window than its bytes, or than there can be.
    const auto kind = static_cast<uint16_t>(CallFrameKindOf(frame) + 0x0100);
    EXPECT_FALSE(DecodeOpen(With16(frame, 10, kind), &open, &windows));
  }
}

TEST(StreamFrameTest, TheReleaseOfAStreamIsOneOfACallWithABit) {
  Bytes frame(kCallHeaderBytes);
  EncodeStreamRelease(kId, frame.data());
  EXPECT_EQ(Hex(frame),
            "0403020114131211"
            "0000"
            "0401"
            "00000000");
  CallId id;
  EXPECT_TRUE(DecodeNotice(frame, &id));
  EXPECT_EQ(id, kId);
}

TEST(StreamFrameTest, WhatIsEncodedIsDecoded) {
  OpenHeader open;
  std::array<Window, kMaxWindows> windows;
  ASSERT_TRUE(DecodeOpen(Open("extra", true), &open, &windows));
  EXPECT_EQ(open.id, kId);
  EXPECT_EQ(open.method, 0x2122);
  EXPECT_EQ(open.remaining_us, 0x31323334u);
  EXPECT_TRUE(open.waits);
  EXPECT_EQ(open.extras.size(), 5u);

  DataHeader data;
  ByteSpan message;
  const Bytes frame = Data(kLastMessage, "hello");
  ASSERT_TRUE(DecodeData(frame, /*to_opener=*/false, &data, &message));
  EXPECT_EQ(data.id, kId);
  EXPECT_TRUE(data.last);
  EXPECT_TRUE(data.has_message);
  EXPECT_EQ(data.number, 0x31323334u);
  EXPECT_EQ(AsStringView(message), "hello");

  CreditHeader credit;
  ASSERT_TRUE(DecodeCredit(Credit(7, 9), /*to_opener=*/false, &credit));
  EXPECT_EQ(credit.messages, 7);
  EXPECT_EQ(credit.bytes, 9u);

  EndHeader end;
  const Bytes error = End(16, "ex", "text", true);
  ASSERT_TRUE(DecodeEnd(error, &end));
  EXPECT_EQ(end.status, 16);
  EXPECT_TRUE(end.not_run);
  EXPECT_EQ(end.messages, 0x41424344u);
  EXPECT_EQ(AsStringView(end.extras), "ex");
  EXPECT_EQ(AsStringView(end.text), "text");
}

TEST(StreamFrameTest, AFrameThatIsCutAnywhereIsNone) {
  const Bytes frames[] = {
      Open(""),           Open("extras"),           Data(kLastMessage | kNoMessage, ""),
      Credit(1, 1),       End(0, "", ""),           End(0, "extras", ""),
      End(5, "", "text"), End(5, "extras", "text"), Cancel()};
  for (const Bytes& frame : frames) {
    SCOPED_TRACE(Hex(frame));
    EXPECT_TRUE(Decodes(frame));
    for (size_t bytes = 0; bytes < frame.size(); ++bytes) {
      EXPECT_FALSE(Decodes(Bytes(frame.begin(), frame.begin() + static_cast<ptrdiff_t>(bytes))))
          << bytes;
    }
    EXPECT_FALSE(Decodes(Longer(frame)));
  }
  // A message may have any length, but not the header.
  const Bytes data = Data(0, "abc");
  for (size_t bytes = 0; bytes <= data.size(); ++bytes) {
    EXPECT_EQ(Decodes(Bytes(data.begin(), data.begin() + static_cast<ptrdiff_t>(bytes))),
              bytes >= kCallHeaderBytes);
  }
}

TEST(StreamFrameTest, EveryFieldIsChecked) {
  constexpr size_t kA = 8;
  constexpr size_t kKind = 10;
  constexpr size_t kB = 12;
  for (uint32_t kind = 0; kind <= 0xFFFF; ++kind) {
    // An open may wait, and have one of three priorities.
    const bool is_open = (kind & 0x8FFF) == 5 && (kind & 0x3000) != 0x2000;
    EXPECT_EQ(Decodes(With16(Data(0, ""), kKind, static_cast<uint16_t>(kind))),
              is_open || kind == 6 || kind == 7)
        << kind;
  }
  for (uint32_t flags = 0; flags <= 0xFFFF; ++flags) {
    EXPECT_EQ(Decodes(With16(Data(0, ""), kA, static_cast<uint16_t>(flags))),
              flags == 0 || flags == 1 || flags == 3);
    EXPECT_EQ(Decodes(With16(Data(0, "m"), kA, static_cast<uint16_t>(flags))), flags <= 1);
  }
  EXPECT_FALSE(Decodes(Credit(0, 0)));
  EXPECT_TRUE(Decodes(Credit(0, 1)));
  EXPECT_TRUE(Decodes(Credit(1, 0)));
  EXPECT_FALSE(Decodes(With16(Cancel(), kA, 1)));
  EXPECT_FALSE(Decodes(With32(Cancel(), kB, 1)));

  // Ends: codes, lengths, the count.
  EXPECT_FALSE(Decodes(End(17, "", "")));
  EXPECT_FALSE(Decodes(End(0, "", "", /*not_run=*/true)));
  EXPECT_FALSE(Decodes(End(0, "", "text")));
  EXPECT_FALSE(Decodes(With32(End(5, "", "text"), kB, 3)));
  EXPECT_FALSE(Decodes(With32(End(5, "", "text"), kB, 5)));
  EXPECT_FALSE(Decodes(With32(End(5, "", "text"), kCallHeaderBytes + 4, 1)));
  EXPECT_TRUE(Decodes(End(5, "", std::string(kMaxStatusText, 't'))));
  EXPECT_FALSE(Decodes(End(5, "", std::string(kMaxStatusText + 1, 't'))));

  // Extras: their length, what is reserved, the padding.
  for (const Bytes& frame : {Open("abc"), End(0, "abc", "")}) {
    for (const uint32_t bytes : {0u, 9u, kMaxExtrasBytes + 1, 0xFFFFFFFFu}) {
      EXPECT_FALSE(Decodes(With32(frame, kCallHeaderBytes, bytes))) << bytes;
    }
    EXPECT_FALSE(Decodes(With32(frame, kCallHeaderBytes + 4, 1)));
    EXPECT_FALSE(Decodes(With32(frame, kCallHeaderBytes + 12, 1)));
  }
}

TEST(StreamFrameTest, LimitsOfAHelloAreBounded) {
  EXPECT_EQ(BoundedStreamLimits(5, 0, 7).max_streams, 0u);
  EXPECT_EQ(BoundedStreamLimits(5, 6, 0).max_streams, 0u);
  EXPECT_EQ(BoundedStreamLimits(5, 6, 7).max_streams, 5u);
  EXPECT_EQ(BoundedStreamLimits(5, 6, 7).window, (StreamWindow{6, 7}));
  const StreamLimits most = BoundedStreamLimits(~0u, ~0u, ~0u);
  EXPECT_EQ(most.max_streams, kMaxStreams);
  EXPECT_EQ(most.window, (StreamWindow{kMaxWindowMessages, kMaxWindowBytes}));
}

}  // namespace
}  // namespace weft
