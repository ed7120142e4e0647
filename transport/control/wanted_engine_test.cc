#include "transport/control/wanted_engine.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "transport/control/control_frame.h"
#include "transport/control/hello.h"
#include "transport/control/negotiate.h"
#include "transport/control/testing/control_bytes.h"

namespace weft {
namespace {

// No value: more bytes are needed.
std::optional<uint32_t> Found(const std::string& bytes) {
  uint32_t engine = 0;
  if (FindWantedEngine(AsBytes(bytes), &engine)) return engine;
  EXPECT_EQ(engine, kAnyEngine);
  return std::nullopt;
}

std::string FirstBytes(ControlType type, const std::string& body) {
  return Preamble() + Frame(type, body);
}

ClientHello HelloThatWants(uint32_t engine) {
  ClientHello hello;
  hello.versions = kProtocolVersions;
  hello.paths = {{PathKind::kTcp, "tcp", 1u << 16 | 17, "", ""}};
  hello.hello = "the application's";
  hello.wanted_engine = engine;
  return hello;
}

std::string PlainFor(uint32_t engine) {
  return FirstBytes(ControlType::kClientHello, Encode(HelloThatWants(engine)));
}

// `text` behind its length in so many bytes.
std::string Counted(const std::string& text, int length_bytes) {
  std::string counted;
  for (int byte = length_bytes - 1; byte >= 0; --byte) {
    counted.push_back(static_cast<char>(text.size() >> (8 * byte) & 0xFF));
  }
  return counted + text;
}

std::string Extension(uint16_t type, const std::string& content) {
  return std::string{static_cast<char>(type >> 8), static_cast<char>(type & 0xFF)} +
         Counted(content, 2);
}

std::string Alpn(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names) list += Counted(name, 1);
  return Extension(16, Counted(list, 2));
}

// A hello of TLS 1.3 with these extensions, in its record.
std::string Tls(const std::string& extensions) {
  const std::string hello = std::string("\x03\x03", 2) + std::string(32, 'r') +
                            Counted(std::string(32, 's'), 1) + Counted("\x13\x02", 2) +
                            Counted(std::string(1, '\0'), 1) + Counted(extensions, 2);
  return std::string("\x16\x03\x01", 3) + Counted("\x01" + Counted(hello, 3), 2);
}

constexpr uint32_t kNumbers[] = {0, 1, 9, 63, 64, 4711, kAnyEngine - 1};

TEST(WantedEngine, AHelloAsksForTheEngineThatItNames) {
  for (const uint32_t engine : kNumbers) {
    EXPECT_EQ(Found(PlainFor(engine)), engine);
    const auto decoded = DecodeClientHello(AsBytes(Encode(HelloThatWants(engine))));
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(decoded->wanted_engine, engine) << "what the engine is told that gets the socket";
  }
}

TEST(WantedEngine, AHelloWithoutAWishAsksForNone) {
  EXPECT_EQ(Found(PlainFor(kAnyEngine)), kAnyEngine);
  const auto decoded = DecodeClientHello(AsBytes(Encode(HelloThatWants(kAnyEngine))));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->wanted_engine, kAnyEngine);
}

// The wish under a number that this release does not know is what it is to an older server.
TEST(WantedEngine, AReleaseThatDoesNotKnowTheFieldReadsTheRest) {
  std::string body = Encode(HelloThatWants(2));
  constexpr int kUnknownField = 14;
  body[0] = static_cast<char>(kUnknownField << 3 | 5);
  const auto decoded = DecodeClientHello(AsBytes(body));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->wanted_engine, kAnyEngine);
  EXPECT_EQ(decoded->hello, "the application's");
  EXPECT_EQ(Found(FirstBytes(ControlType::kClientHello, body)), kAnyEngine);
}

TEST(WantedEngine, APartOfAHelloMayStillAsk) {
  const std::string all = PlainFor(5);
  constexpr size_t kEnough = kPreambleBytes + kControlHeaderBytes + 5;
  for (size_t bytes = 1; bytes <= all.size(); ++bytes) {
    const std::optional<uint32_t> found = Found(all.substr(0, bytes));
    EXPECT_EQ(found.has_value(), bytes >= kEnough) << bytes;
    if (found.has_value()) {
      EXPECT_EQ(*found, 5u);
    }
  }
}

TEST(WantedEngine, NobodyIsWaitedForWhoCannotAskAnyMore) {
  EXPECT_EQ(Found("G"), kAnyEngine);
  EXPECT_EQ(Found("GET / HTTP/1.1\r\n\r\n"), kAnyEngine);
  std::string other_version = PlainFor(5).substr(0, 7);
  other_version[6] = 77;
  EXPECT_EQ(Found(other_version), kAnyEngine);
  const std::string bye = FirstBytes(ControlType::kBye, "12345");
  EXPECT_EQ(Found(bye.substr(0, kPreambleBytes + kControlHeaderBytes)), kAnyEngine);
  EXPECT_EQ(Found(FirstBytes(ControlType::kClientHello, "")), kAnyEngine);
  EXPECT_EQ(Found(FirstBytes(ControlType::kClientHello, "e")), kAnyEngine) << "too short to ask";
}

TEST(WantedEngine, ZeroAsksForNone) {
  EXPECT_EQ(Found(FirstBytes(ControlType::kClientHello, std::string("e\0\0\0\0", 5))), kAnyEngine);
}

TEST(WantedEngine, WithTlsAnAlpnNameAsks) {
  for (const uint32_t engine : kNumbers) {
    const std::string name = WantedEngineProtocol(engine);
    EXPECT_EQ(Found(Tls(Alpn({"weft/1", name}))), engine);
    EXPECT_EQ(Found(Tls(Extension(0, std::string(260, 'n')) + Alpn({name}) +
                        Extension(51, std::string(1200, 'k')))),
              engine)
        << "what is long comes behind it";
  }
  EXPECT_EQ(Found(Tls(Alpn({"weft/1"}))), kAnyEngine);
  EXPECT_EQ(Found(Tls("")), kAnyEngine);
  EXPECT_EQ(Found(Tls(Extension(17, "weft-engine/3"))), kAnyEngine);
}

TEST(WantedEngine, ANameThatIsNoNumberAsksForNone) {
  for (const char* name : {"weft-engine/", "weft-engine/x", "weft-engine/3x", "weft-engine/-1",
                           "weft-engine/ 3", "weft-engine/4294967296", "weft-engine/4294967295",
                           "weft-engines/3", "weft-engine", "h2"}) {
    EXPECT_EQ(Found(Tls(Alpn({name}))), kAnyEngine) << name;
    EXPECT_EQ(Found(Tls(Alpn({name, "weft-engine/3"}))), 3u) << name;
  }
}

TEST(WantedEngine, APartOfTlsHelloMayStillAskAndALongOneIsNotWaitedFor) {
  const std::string all = Tls(Alpn({"weft/1", "weft-engine/3"}));
  for (size_t bytes = 1; bytes < all.size(); ++bytes) {
    EXPECT_FALSE(Found(all.substr(0, bytes)).has_value()) << bytes;
  }
  EXPECT_EQ(Found(all), 3u);
  EXPECT_EQ(Found(all + "and more"), 3u);
  const std::string late = Tls(Extension(51, std::string(4000, 'k')) + Alpn({"weft-engine/3"}));
  EXPECT_FALSE(Found(late.substr(0, kMostWantedBytes - 1)).has_value());
  EXPECT_EQ(Found(late.substr(0, kMostWantedBytes)), kAnyEngine);
}

// Where the bytes end that are looked at, a number may be cut: it would be another one.
TEST(WantedEngine, APartOfANameIsNoName) {
  const std::string before = Tls(Alpn({""}));
  for (size_t fill = 0; fill < 40; ++fill) {
    const std::string hello =
        Tls(Extension(21, std::string(kMostWantedBytes - before.size() - 40 + fill, 'f')) +
            Alpn({"weft-engine/1234567"}) + Extension(51, std::string(100, 'k')));
    const std::optional<uint32_t> found = Found(hello);
    ASSERT_TRUE(found.has_value());
    EXPECT_TRUE(*found == 1234567 || *found == kAnyEngine) << fill << ": " << *found;
  }
}

TEST(WantedEngine, LengthsThatAreWrongAskForNoEngineThatIsNotThere) {
  const std::string right = Tls(Alpn({"weft/1", "weft-engine/3"}));
  for (size_t at = 5; at < right.size(); ++at) {
    for (const int value : {0, 1, 127, 128, 255}) {
      std::string wrong = right;
      wrong[at] = static_cast<char>(value);
      const std::optional<uint32_t> found = Found(wrong);
      ASSERT_TRUE(found.has_value()) << at;
      EXPECT_TRUE(*found == 3 || *found == kAnyEngine || *found < 10) << at << ": " << *found;
    }
  }
}

}  // namespace
}  // namespace weft
