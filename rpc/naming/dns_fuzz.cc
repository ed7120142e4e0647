// What a name server answers, for a fuzzer: to a source of servers that asks for the addresses of a
// host, or for the hosts of a service and then for theirs.
//
// The first byte chooses which. Each further one chooses an event: an answer to a question that was
// asked, mostly right, with records, counts, codes and names that are not; another look-up; time.
// c-ares asks over loopback, and waits by the real clock for who does not answer: so nothing is
// awaited here, and the source may be destroyed while it asks.

#include <arpa/inet.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/clock.h"
#include "core/strings.h"
#include "core/testing/fuzz_input.h"
#include "rpc/client/address_source.h"
#include "rpc/naming/dns_source.h"
#include "rpc/testing/loopback.h"
#include "transport/descriptor.h"
#include "transport/engine.h"

namespace weft::test {
namespace {

constexpr int kMostEvents = 60;
constexpr size_t kMostQuestions = 64;
constexpr uint64_t kRefreshUs = 2'000'000;
constexpr size_t kHeaderBytes = 12;  // RFC 1035, 4.1.1
constexpr uint16_t kTypeA = 1;
constexpr uint16_t kTypeAaaa = 28;
constexpr uint16_t kTypeSrv = 33;

// What all inputs share.
struct Host {
  Host() {
    EngineOptions options;
    options.drive = EngineOptions::Drive::kCaller;
    options.spin_ns = kSpinForever;
    options.clock = &clock;
    engine = *EngineCore::Create(options, [](const EngineContext&) {
      return absl::StatusOr<std::unique_ptr<Transport>>(std::make_unique<LoopbackTransport>());
    });
    socket = Descriptor(::socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof(address);
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    WEFT_CHECK(::bind(socket.get(), any, bytes) == 0);
    WEFT_CHECK(::getsockname(socket.get(), any, &bytes) == 0);
    port = ntohs(address.sin_port);
  }

  FakeClock clock;
  std::unique_ptr<EngineCore> engine;
  Descriptor socket;
  uint16_t port = 0;
};

// What is named are addresses, and nothing but numbers.
class Checked final : public AddressSource::Host {
 public:
  void OnServers(std::vector<ListedServer> servers) override {
    WEFT_CHECK(!servers.empty() && servers.size() <= kMaxServersListed);
    for (const ListedServer& server : servers) {
      const size_t colon = server.address.rfind(':');
      WEFT_CHECK(colon != std::string::npos && colon > 0);
      std::string host = server.address.substr(0, colon);
      in6_addr any;
      if (host.front() != '[') {
        WEFT_CHECK(::inet_pton(AF_INET, host.c_str(), &any) == 1);
        continue;
      }
      WEFT_CHECK(host.back() == ']');
      host = host.substr(1, host.size() - 2);
      WEFT_CHECK(::inet_pton(AF_INET6, host.c_str(), &any) == 1);
    }
  }
  void OnSourceFailed(const absl::Status& why) override { WEFT_CHECK(!why.ok()); }
};

std::string Number(uint32_t value) {
  return {static_cast<char>(value >> 8), static_cast<char>(value)};
}

class World {
 public:
  World(Host* host, FuzzInput input) : host_(*host), input_(input) {}

  void Run(uint8_t how) {
    Checked heard;
    const bool of_service = (how & 1) != 0;
    const std::unique_ptr<AddressSource> source =
        MakeDnsSource(StrCat("//127.0.0.1:", host_.port,
                             of_service ? "/_kv._tcp.fuzz.test" : "/kv.fuzz.test:4711"))
            .value();
    source->Start(*host_.engine, &heard, kRefreshUs);
    Turn();
    for (int i = 0; i < kMostEvents && input_.more(); ++i) Event(source.get());
    Listen();  // nobody's question is left for the next input
  }

 private:
  struct Question {
    std::string bytes;
    sockaddr_in from = {};
  };

  void Event(AddressSource* source) {
    const uint8_t event = input_.U8();
    switch (event % 8) {
      case 0:
        source->Refresh();
        break;
      case 1:
        host_.clock.Advance(uint64_t{event} * kNsPerSec / 32);
        break;
      default:
        if (questions_.empty()) break;
        Say(questions_.front(), Answer(questions_.front().bytes));
        if (event % 8 != 2) questions_.pop_front();  // else there is a second one
    }
    Turn();
  }
  void Turn() {
    for (int i = 0; i < 2; ++i) {
      host_.engine->Poll();
      host_.clock.Advance(1'000'000);
    }
    Listen();
  }
  void Listen() {
    char bytes[1024];
    while (true) {
      Question question;
      socklen_t from_bytes = sizeof(question.from);
      const ssize_t count = ::recvfrom(host_.socket.get(), bytes, sizeof(bytes), 0,
                                       reinterpret_cast<sockaddr*>(&question.from), &from_bytes);
      if (count < 0) return;
      question.bytes.assign(bytes, static_cast<size_t>(count));
      if (question.bytes.size() > kHeaderBytes && questions_.size() < kMostQuestions) {
        questions_.push_back(std::move(question));
      }
    }
  }
  void Say(const Question& question, const std::string& answer) {
    // Whoever has asked may be gone.
    static_cast<void>(::sendto(host_.socket.get(), answer.data(), answer.size(), 0,
                               reinterpret_cast<const sockaddr*>(&question.from),
                               sizeof(question.from)));
  }

  std::string Labels() {
    const uint8_t how = input_.U8();
    if (how < 192) {
      std::string labels(
          "\x02h0\x04"
          "fuzz\x04test\0",
          14);
      labels[2] = static_cast<char>('0' + how % 8);
      return labels;
    }
    if (how < 208) return std::string(1, '\0');
    if (how < 224) return std::string("\xC0\x0C", 2);
    return input_.Text(how % 16u);
  }
  std::string Record(uint16_t asked) {
    const uint8_t how = input_.U8();
    uint16_t type = asked;
    if (how >= 224) type = how < 232 ? kTypeA : how < 240 ? kTypeAaaa : kTypeSrv;
    if (how >= 248) type = input_.U16();
    std::string data;
    if (how % 16 == 15) {
      data = input_.Text(input_.U8() % 40);
    } else if (type == kTypeA) {
      data = std::string("\x0A\0\0", 3) + static_cast<char>(how);
    } else if (type == kTypeAaaa) {
      data = std::string(15, '\0') + static_cast<char>(how);
    } else {
      data = Number(how % 4u) + Number(0) + Number(how % 8 == 7 ? 0 : 4711u) + Labels();
    }
    size_t bytes = data.size();
    if (how % 16 == 14) bytes += input_.U8();
    return std::string("\xC0\x0C", 2) + Number(type) + Number(1) + std::string(4, '\0') +
           Number(static_cast<uint32_t>(bytes)) + data;
  }
  std::string Answer(const std::string& question) {
    size_t end = kHeaderBytes;
    while (end < question.size() && question[end] != '\0') end += 1u + uint8_t(question[end]);
    const size_t type_at = end + 1;
    if (type_at + 4 > question.size()) return "";
    const auto type = static_cast<uint16_t>(uint8_t(question[type_at + 1]));
    const uint8_t how = input_.U8();
    std::string records;
    uint32_t count = how % 4;
    for (uint32_t i = 0; i < count; ++i) records += Record(type);
    if (how == 131) {  // as many as there may be
      count = 600;
      records.clear();
      for (uint32_t i = 0; i < count; ++i) records += Record(type);
    }
    uint32_t flags = 0x8580;  // an answer, by who has authority; recursion asked for and there
    if (how >= 192 && how < 240) flags |= how % 6u;  // SERVFAIL, NXDOMAIN, REFUSED, ...
    if (how >= 240) count = input_.U8();
    std::string answer = question.substr(0, 2) + Number(flags) + Number(1) + Number(count) +
                         Number(0) + Number(0) +
                         question.substr(kHeaderBytes, type_at + 4 - kHeaderBytes) + records;
    if (how >= 248) answer[input_.U8() % answer.size()] ^= static_cast<char>(input_.U8());
    if (how >= 252) answer.resize(input_.U8() % (answer.size() + 1));
    return answer;
  }

  Host& host_;
  FuzzInput input_;
  std::deque<Question> questions_;
};

}  // namespace
}  // namespace weft::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static weft::test::Host* const host = new weft::test::Host;
  weft::FuzzInput input(data, size);
  const uint8_t how = input.U8();
  if (how < 240) {
    weft::test::World(host, input).Run(how);
  } else {  // a target, which is this side's: any text is one, or an error
    weft::MakeDnsSource(weft::AsStringView(input.Rest())).status().IgnoreError();
  }
  return 0;
}
