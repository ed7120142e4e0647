// The fuzz target on a seeded corpus: good messages, changed at random places.

#include <string>
#include <vector>

#include "core/random.h"
#include "gtest/gtest.h"
#include "transport/control/control_frame.h"
#include "transport/control/hello.h"
#include "transport/control/negotiate.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace weft {
namespace {

constexpr uint64_t kSeed = 4711;
constexpr int kRounds = 20'000;

std::vector<std::string> Corpus() {
  ClientHello client;
  client.versions = kProtocolVersions;
  client.features = {"feature"};
  client.paths = {
      {PathKind::kShm, "shm", 1u << 16 | 17, "shm", ""},
      {PathKind::kTcp, "tcp", 1u << 16 | 17, "lo", "denied"},
      {PathKind::kVerbs, "verbs", 1u << 16 | 17, "mlx5_0:1", "", LinkKind::kRoceV2, "10.0.0.7", 24},
      {PathKind::kVerbs, "verbs", 1u << 16 | 17, "mlx5_1:1", "", LinkKind::kRoceV2, "fd77::7", 64}};
  client.host = {"5f3c", 1, 2};
  client.hello = "opaque";
  ServerHello server;
  server.version = 1;
  server.paths = client.paths;
  server.candidates = {{1, 1, ""}, {2, 3, "no common subnet"}, {3, PathPair::kNone, "why"}};
  server.local_socket = "weft-0";
  std::vector<std::byte> stream;
  const auto preamble = EncodePreamble();
  stream.insert(stream.end(), preamble.begin(), preamble.end());
  AppendControlFrame(ControlType::kClientHello, 0, AsBytes(Encode(client)), &stream);
  AppendControlFrame(ControlType::kPathTry, 0, AsBytes(Encode(PathTry{0, "x", 4096})), &stream);
  AppendControlFrame(ControlType::kBye, kIgnorable, AsBytes(EncodeBye("done")), &stream);
  return {std::string(1, '\0') + std::string(AsStringView(stream)),
          "\1" + Encode(client),
          "\1" + Encode(server),
          "\2" + Encode(PathReady{1, "*:4711", 99, 4096}),
          "\2" + EncodeRefusal(absl::UnavailableError("no")),
          "\3[fe80::1%eth0]:4711",
          "\3unix:/run/weft.sock",
          "\3gr\xc3\xbc\xc3\x9f dich \x1b[2J"};
}

// Changes, removes, repeats or inserts a few bytes; the first byte stays.
std::string Mutate(std::string input, Random& random) {
  for (uint64_t i = random.Uniform(6); i > 0 && input.size() > 1; --i) {
    const size_t at = 1 + random.Uniform(input.size() - 1);
    switch (random.Uniform(4)) {
      case 0:
        input[at] = static_cast<char>(random.Next64());
        break;
      case 1:
        input.erase(at, 1 + random.Uniform(8));
        break;
      case 2:
        input.insert(at, input.substr(at, random.Uniform(32)));
        break;
      case 3:
        input.insert(at, random.Uniform(5), static_cast<char>(random.Next64()));
        break;
    }
  }
  return input;
}

TEST(ControlFuzz, NothingThatAPeerSendsBreaksAParser) {
  const std::vector<std::string> corpus = Corpus();
  Random random(kSeed);
  for (int round = 0; round < kRounds; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << kSeed << ", round " << round);
    const std::string input = Mutate(corpus[random.Uniform(corpus.size())], random);
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
  }
}

}  // namespace
}  // namespace weft
