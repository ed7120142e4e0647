#include "transport/control/control_frame.h"

#include <string>
#include <utility>
#include <vector>

#include "core/random.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

// Builds a byte stream, cuts it as told, and writes down what a reader makes of it.
class Stream {
 public:
  Stream& Preamble() {
    const auto preamble = EncodePreamble();
    bytes_.insert(bytes_.end(), preamble.begin(), preamble.end());
    return *this;
  }
  Stream& Frame(ControlType type, std::string_view body, uint16_t flags = 0) {
    AppendControlFrame(type, flags, AsBytes(body), &bytes_);
    return *this;
  }
  // A header with any length, and no body.
  Stream& Header(uint32_t length, uint16_t type, uint16_t flags) {
    std::byte header[kControlHeaderBytes];
    StoreLe32(header, length);
    StoreLe16(header + 4, type);
    StoreLe16(header + 6, flags);
    bytes_.insert(bytes_.end(), header, header + kControlHeaderBytes);
    return *this;
  }
  Stream& Raw(std::string_view text) {
    const ByteSpan raw = AsBytes(text);
    bytes_.insert(bytes_.end(), raw.begin(), raw.end());
    return *this;
  }

  ByteSpan bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

struct Heard {
  std::string frames;  // "Open() Bye(reason) "
  absl::Status error;
  size_t most_buffered = 0;
};

void Drain(ControlFrameReader& reader, Heard* heard) {
  ControlFrame frame;
  while (true) {
    heard->most_buffered = std::max(heard->most_buffered, reader.buffered());
    switch (reader.Next(&frame)) {
      case ControlFrameReader::Result::kFrame:
        heard->frames +=
            ControlTypeName(frame.type) + "(" + std::string(AsStringView(frame.body)) + ") ";
        break;
      case ControlFrameReader::Result::kNeedMore:
        return;
      case ControlFrameReader::Result::kError:
        heard->error = reader.error();
        return;
    }
  }
}

Heard Hear(const std::vector<ByteSpan>& parts) {
  ControlFrameReader reader;
  Heard heard;
  for (const ByteSpan part : parts) {
    reader.Append(part);
    Drain(reader, &heard);
  }
  return heard;
}

std::string ErrorOf(const Stream& stream) {
  return std::string(Hear({stream.bytes()}).error.message());
}

TEST(ControlFrameReader, GivesTheSameFramesWhereverTheStreamIsCut) {
  const Stream stream = std::move(Stream()
                                      .Preamble()
                                      .Frame(ControlType::kPathTry, "first")
                                      .Frame(ControlType::kOpen, "")
                                      .Frame(ControlType::kBye, "last"));
  const ByteSpan bytes = stream.bytes();
  const std::string expected = "PathTry(first) Open() Bye(last) ";
  for (size_t first = 0; first <= bytes.size(); ++first) {
    for (size_t second = first; second <= bytes.size(); ++second) {
      const Heard heard =
          Hear({bytes.first(first), bytes.subspan(first, second - first), bytes.subspan(second)});
      ASSERT_EQ(heard.frames, expected) << "cut at " << first << " and " << second;
      ASSERT_TRUE(heard.error.ok()) << heard.error;
    }
  }
}

TEST(ControlFrameReader, TakesAStreamByteByByte) {
  const Stream stream = std::move(Stream().Preamble().Frame(ControlType::kBye, "slow"));
  std::vector<ByteSpan> parts;
  for (size_t i = 0; i < stream.bytes().size(); ++i) parts.push_back(stream.bytes().subspan(i, 1));
  EXPECT_EQ(Hear(parts).frames, "Bye(slow) ");
}

TEST(ControlFrameReader, KnowsWhenNothingIsCutInTwo) {
  const Stream stream = std::move(Stream().Preamble().Frame(ControlType::kBye, "end"));
  ControlFrameReader reader;
  Heard heard;
  EXPECT_TRUE(reader.at_boundary());
  reader.Append(stream.bytes().first(stream.bytes().size() - 1));
  Drain(reader, &heard);
  EXPECT_FALSE(reader.at_boundary());
  EXPECT_EQ(reader.greeting(), ControlFrameReader::Greeting::kWeft);
  reader.Append(stream.bytes().last(1));
  Drain(reader, &heard);
  EXPECT_TRUE(reader.at_boundary());
}

TEST(ControlFrameReader, SkipsUnknownFramesThatMayBeIgnored) {
  const Stream stream = std::move(
      Stream().Preamble().Header(3, 777, kIgnorable).Raw("???").Frame(ControlType::kOpen, ""));
  EXPECT_EQ(Hear({stream.bytes()}).frames, "Open() ");
  ControlFrameReader reader;
  reader.Append(stream.bytes());
  Heard heard;
  Drain(reader, &heard);
  EXPECT_EQ(reader.skipped_frames(), 1u);
}

TEST(ControlFrameReader, RefusesUnknownFramesThatMayNotBeIgnored) {
  EXPECT_NE(ErrorOf(Stream().Preamble().Header(0, 777, 0)).find("message type 777"),
            std::string::npos);
}

TEST(ControlFrameReader, RefusesLengthsBeforeTheBodyArrives) {
  for (const uint32_t length : {static_cast<uint32_t>(kMaxOtherBodyBytes) + 1, 0xffffffffu}) {
    for (const uint16_t flags : {uint16_t{0}, kIgnorable}) {
      const Stream stream = std::move(Stream().Preamble().Header(length, 9, flags));
      const Heard heard = Hear({stream.bytes()});
      EXPECT_EQ(heard.error.code(), absl::StatusCode::kDataLoss) << heard.error;
      EXPECT_LE(heard.most_buffered, kPreambleBytes + kControlHeaderBytes);
    }
  }
  EXPECT_NE(ErrorOf(Stream().Preamble().Header(kMaxHelloBodyBytes + 1, 1, 0)).find("ClientHello"),
            std::string::npos);
}

TEST(ControlFrameReader, TakesTheLargestBodies) {
  const std::string hello(kMaxHelloBodyBytes, 'h');
  const Stream stream = std::move(Stream().Preamble().Frame(ControlType::kServerHello, hello));
  EXPECT_EQ(Hear({stream.bytes()}).frames, "ServerHello(" + hello + ") ");
}

TEST(ControlFrameReader, NamesTheProtocolAtTheWrongPort) {
  EXPECT_NE(ErrorOf(Stream().Raw("GET / HTTP/1.1\r\n")).find("speaks HTTP"), std::string::npos);
  EXPECT_NE(ErrorOf(Stream().Raw("HTTP/1.1 400 Bad")).find("speaks HTTP"), std::string::npos);
  EXPECT_NE(ErrorOf(Stream().Raw("PRI * HTTP/2.0")).find("gRPC"), std::string::npos);
  EXPECT_NE(ErrorOf(Stream().Raw("\x16\x03\x01")).find("TLS"), std::string::npos);
  EXPECT_NE(ErrorOf(Stream().Raw(std::string("\0\0", 2))).find("began with 00 00"),
            std::string::npos);
}

TEST(ControlFrameReader, RefusesAWrongProtocolAtItsFirstByte) {
  ControlFrameReader reader;
  reader.Append(AsBytes("G"));
  ControlFrame frame;
  EXPECT_EQ(reader.Next(&frame), ControlFrameReader::Result::kError);
}

TEST(ControlFrameReader, NamesBothVersionsWhenTheyDiffer) {
  auto preamble = EncodePreamble();
  preamble[6] = std::byte{9};
  const absl::Status status = CheckPreamble(preamble);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(std::string(status.message()).find("version 9"), std::string::npos);
  EXPECT_NE(std::string(status.message()).find("version 1"), std::string::npos);
}

TEST(ControlFrameReader, StaysInErrorOnceInError) {
  ControlFrameReader reader;
  reader.Append(AsBytes("nonsense"));
  ControlFrame frame;
  ASSERT_EQ(reader.Next(&frame), ControlFrameReader::Result::kError);
  const Stream good = std::move(Stream().Preamble().Frame(ControlType::kOpen, ""));
  reader.Append(good.bytes());
  EXPECT_EQ(reader.Next(&frame), ControlFrameReader::Result::kError);
}

TEST(ControlFrameReader, SurvivesRandomBytes) {
  constexpr uint64_t kSeed = 20'231;
  Random random(kSeed);
  for (int round = 0; round < 2'000; ++round) {
    Stream stream;
    if (random.Chance(0.9)) stream.Preamble();
    for (uint64_t i = random.Uniform(4); i > 0; --i) {
      stream.Frame(static_cast<ControlType>(1 + random.Uniform(9)),
                   std::string(random.Uniform(40), 'x'));
    }
    std::string noise(random.Uniform(60), '\0');
    for (char& c : noise) c = static_cast<char>(random.Next64());
    stream.Raw(noise);
    const ByteSpan bytes = stream.bytes();
    const size_t cut = random.Uniform(bytes.size() + 1);
    // The same is heard whole and in two parts, whatever it is.
    const Heard whole = Hear({bytes});
    const Heard parts = Hear({bytes.first(cut), bytes.subspan(cut)});
    ASSERT_EQ(whole.frames, parts.frames) << "seed " << kSeed << ", round " << round;
    ASSERT_EQ(whole.error.code(), parts.error.code()) << "seed " << kSeed << ", round " << round;
  }
}

}  // namespace
}  // namespace weft
