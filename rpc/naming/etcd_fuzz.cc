// What etcd answers, for a fuzzer: to a source of servers, and to who keeps a key under a lease.
//
// The first byte chooses which of them, and how it asks. Each further one chooses an event: time, a
// message of a watch, the end of a connection, an answer that was held back. Every request takes
// its answer from the bytes too: mostly right, with a field here and there that is not, or JSON, or
// HTTP, of the fuzzer's. libcurl speaks to it over loopback; the clock is moved by hand. In the end
// etcd is right, and then the right servers must be named, the key be there, and go when it is
// withdrawn: whatever was said before.

#include <arpa/inet.h>
#include <sys/socket.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/clock.h"
#include "core/strings.h"
#include "core/testing/fuzz_input.h"
#include "google/protobuf/util/json_util.h"
#include "rpc/client/address_source.h"
#include "rpc/naming/etcd.pb.h"
#include "rpc/naming/etcd_lease.h"
#include "rpc/naming/etcd_source.h"
#include "rpc/naming/targets.h"
#include "rpc/testing/loopback.h"
#include "transport/descriptor.h"
#include "transport/engine.h"

namespace weft::test {
namespace {

constexpr int kMostEvents = 60;
constexpr int kMostConnections = 16;
constexpr uint64_t kTurnNs = 1'000'000;
// In the end nothing is chosen any more, and pauses of 10 s are to pass quickly.
constexpr uint64_t kLastTurnNs = 20'000'000;
constexpr int kMostTurns = 600'000;  // hours of the clock's, and seconds of ours: a hang
constexpr uint64_t kRefreshUs = 5'000'000;
constexpr int64_t kLeaseS = 6;
constexpr char kRightServer[] = "10.0.0.1:4711";

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
    WEFT_CHECK(LoadCurlLibrary().ok());
    listener = Descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof(address);
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    WEFT_CHECK(::bind(listener.get(), any, bytes) == 0 && ::listen(listener.get(), 64) == 0);
    WEFT_CHECK(::getsockname(listener.get(), any, &bytes) == 0);
    port = ntohs(address.sin_port);
  }

  FakeClock clock;
  std::unique_ptr<EngineCore> engine;
  Descriptor listener;
  uint16_t port = 0;
};

std::string Json(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string json;
  WEFT_CHECK(google::protobuf::util::MessageToJsonString(message, &json, options).ok());
  return json;
}

std::string Chunk(const std::string& bytes) {
  char size[20];
  snprintf(size, sizeof(size), "%zx", bytes.size());
  return StrCat(size, "\r\n", bytes, "\r\n");
}

std::string Http(int status, const std::string& json) {
  return StrCat("HTTP/1.1 ", status, " So\r\nContent-Length: ", json.size(), "\r\n\r\n", json);
}

std::string Repeated(int count, const std::string& text) {
  std::string all;
  for (; count > 0; --count) all += text;
  return all;
}

class World {
 public:
  World(Host* host, FuzzInput input) : host_(*host), input_(input) {}

  void Run(uint8_t how) {
    if ((how & 2) != 0) options_ = {.user = "user", .password = "password"};
    target_.prefix = "/kv/";
    target_.endpoints.push_back(StrCat("127.0.0.1:", host_.port));
    if ((how & 4) != 0) target_.endpoints.push_back(target_.endpoints[0]);
    (how & 1) == 0 ? RunSource() : RunLease((how & 8) != 0);
    connections_.clear();
    // Nobody's connection is left for the next input.
    while (::close(::accept(host_.listener.get(), nullptr, nullptr)) == 0) {
    }
  }

 private:
  struct Client {
    Descriptor socket;
    std::string input;
    std::string held;  // an answer
    bool watches = false;
  };

  // Every list that is named is one.
  class Checked final : public AddressSource::Host {
   public:
    void OnServers(std::vector<ListedServer> named) override {
      WEFT_CHECK(!named.empty() && named.size() <= kMaxServersListed);
      for (const ListedServer& server : named) WEFT_CHECK(!server.address.empty());
      servers = std::move(named);
    }
    void OnSourceFailed(const absl::Status& why) override {
      WEFT_CHECK(!why.ok());
      servers.clear();
    }
    std::vector<ListedServer> servers;
  };

  void RunSource() {
    Checked heard;
    EtcdSource source(target_, options_);
    source.Start(*host_.engine, &heard, kRefreshUs);
    Events();
    BeRight();
    RunUntil([&] { return heard.servers.size() == 1 && heard.servers[0].address == kRightServer; });
  }

  void RunLease(bool withdrawn_among_lies) {
    std::atomic<uint32_t> held = 0;
    bool withdrawn = false;
    {
      EtcdLease lease(*host_.engine, target_, options_, "/kv/one", kRightServer, kLeaseS, &held);
      lease.Start();
      Events();
      WEFT_CHECK(held <= 1);
      if (!withdrawn_among_lies) {
        BeRight();
        RunUntil([&] { return held == 1; });
      }
      lease.Withdraw([&] { withdrawn = true; });
      RunUntil([&] { return withdrawn; });
      WEFT_CHECK(held == 0);
    }
    WEFT_CHECK(held == 0);
  }

  template <class Done>
  void RunUntil(Done done) {
    for (int turn = 0; !done(); ++turn) {
      WEFT_CHECK(turn < kMostTurns);
      Turn(kLastTurnNs);
    }
  }
  void Turn(uint64_t ns) {
    host_.engine->Poll();
    Listen();
    host_.clock.Advance(ns);
  }
  void BeRight() {
    right_ = true;
    connections_.clear();
  }

  // --- events -----------------------------------------------------------------------------------

  void Events() {
    for (int i = 0; i < kMostEvents && input_.more(); ++i) {
      const uint8_t event = input_.U8();
      switch (event % 8) {
        case 0:
          connections_.clear();
          break;
        case 1:
        case 2:
          for (auto& client : connections_) {
            if (client->watches) Say(client.get(), Chunk(WatchMessage()));
          }
          break;
        case 3:
          for (auto& client : connections_) Say(client.get(), std::exchange(client->held, {}));
          break;
        case 4:
          Turn(uint64_t{1 + event / 8u} * kNsPerSec / 4);
          break;
        default:
          break;
      }
      for (int turns = 1 + event / 32; turns > 0; --turns) Turn(kTurnNs);
    }
  }

  // --- the server's side of HTTP ----------------------------------------------------------------

  void Listen() {
    while (connections_.size() < kMostConnections) {
      Descriptor socket(
          ::accept4(host_.listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!socket.valid()) break;
      connections_.push_back(std::make_unique<Client>());
      connections_.back()->socket = std::move(socket);
    }
    std::erase_if(connections_, [this](auto& client) { return !Hear(client.get()); });
  }
  // False: it is gone, or is hung up on.
  bool Hear(Client* client) {
    char bytes[4096];
    while (true) {
      const ssize_t count = ::recv(client->socket.get(), bytes, sizeof(bytes), 0);
      if (count == 0) return false;
      if (count < 0) break;
      client->input.append(bytes, static_cast<size_t>(count));
    }
    constexpr std::string_view kLength = "Content-Length: ";
    const size_t end = client->input.find("\r\n\r\n");
    const size_t length = client->input.find(kLength);
    if (end == std::string::npos || length > end) return true;
    const size_t body = std::strtoul(&client->input[length + kLength.size()], nullptr, 10);
    if (client->input.size() < end + 4 + body) return true;
    const size_t path = client->input.find(' ') + 1;
    const std::string asked = client->input.substr(path, client->input.find(' ', path) - path);
    client->input.erase(0, end + 4 + body);
    return Answer(client, asked);
  }
  static void Say(Client* client, const std::string& bytes) {
    // Whoever has gone hears nothing; what is more than a socket holds is cut.
    static_cast<void>(::send(client->socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
  }

  bool Answer(Client* client, const std::string& path) {
    client->watches = path == "/v3/watch";
    std::string answer;
    if (right_) {
      const std::string json = RightAnswer(path);
      answer = client->watches ? BeginWatch(json) : Http(200, json);
      Say(client, answer);
      return true;
    }
    const uint8_t how = input_.U8();
    const std::string json = Odd(AnswerTo(path));
    switch (how % 16) {
      case 15:
        return false;
      case 14:
        client->held = Http(200, json);
        return true;
      case 13:
        Say(client, input_.Text(input_.U8()));
        return how < 128;
      case 12:
        answer =
            how < 32 ? "HTTP/1.1 200 So\r\n" + Repeated(1100, "X: " + std::string(64, 'x') + "\r\n")
            : how < 128 ? Http(200, "[" + Repeated(70'000, "{}") + "]")
                        : StrCat("HTTP/1.1 200 So\r\n", input_.Text(input_.U8()), "\r\n", json);
        break;
      case 11:
      case 10:
        answer = Http(how < 128 ? 400 + how % 32 : 200 + how % 128, ErrorMessage());
        break;
      case 9:
        answer = "HTTP/1.0 200 So\r\n\r\n" + json;
        Say(client, answer);
        return false;
      default:
        answer = client->watches ? BeginWatch(json) : Http(200, json);
    }
    Say(client, answer);
    return true;
  }
  static std::string BeginWatch(const std::string& line) {
    return "HTTP/1.1 200 So\r\nTransfer-Encoding: chunked\r\n\r\n" + Chunk(line + "\n");
  }

  // --- messages ---------------------------------------------------------------------------------

  void SetHeader(rpc::EtcdHeader* header) {
    const uint8_t how = right_ ? 0 : input_.U8();
    header->set_cluster_id(how < 224 ? 9 : input_.Number());
    header->set_revision(how % 8 < 6 ? 100 + how % 8 : static_cast<int64_t>(input_.Number()));
  }
  void SetEntry(rpc::EtcdKeyValue* entry) {
    const uint8_t how = input_.U8();
    entry->set_key(how < 224 ? StrCat("/kv/", how % 4u) : input_.Text(how % 8u));
    entry->set_mod_revision(how % 8 < 6 ? 100 + how % 8 : static_cast<int64_t>(input_.Number()));
    if (how % 16 == 15) {
      entry->set_value(std::string(1500, 'v'));
    } else {
      entry->set_value(how % 16 < 8 ? StrCat("10.0.0.", 2 + how % 4u, ":1@zone")
                                    : input_.Text(how % 32u));
    }
  }
  std::string RightAnswer(const std::string& path) {
    if (path == "/v3/kv/range") {
      listed_ = true;
      rpc::EtcdRangeReply reply;
      SetHeader(reply.mutable_header());
      rpc::EtcdKeyValue& entry = *reply.add_kvs();
      entry.set_key("/kv/right");
      entry.set_value(kRightServer);
      entry.set_mod_revision(1);
      return Json(reply);
    }
    if (path == "/v3/watch") {
      rpc::EtcdWatchReply reply;
      SetHeader(reply.mutable_result()->mutable_header());
      // Whoever goes on from a list of before may have the same revision: it is compacted away.
      reply.mutable_result()->set_created(listed_);
      reply.mutable_result()->set_canceled(!listed_);
      return Json(reply);
    }
    if (path == "/v3/lease/grant") {
      granted_ = true;
      return R"({"ID":"4","TTL":"6"})";
    }
    if (path == "/v3/lease/keepalive") {
      return granted_ ? R"({"result":{"TTL":"6"}})" : R"({"result":{"TTL":"0"}})";
    }
    return path == "/v3/auth/authenticate" ? R"({"token":"a.token"})" : "{}";
  }
  std::string AnswerTo(const std::string& path) {
    if (path == "/v3/kv/range") {
      rpc::EtcdRangeReply reply;
      SetHeader(reply.mutable_header());
      const uint8_t how = input_.U8();
      for (int count = how % 4; count > 0; --count) SetEntry(reply.add_kvs());
      reply.set_more(how >= 248);
      return Json(reply);
    }
    if (path == "/v3/watch") return WatchMessage(/*created=*/true);
    if (path == "/v3/lease/grant") {
      rpc::EtcdGrantReply reply;
      const uint8_t how = input_.U8();
      reply.set_id(how < 240 ? 3 : static_cast<int64_t>(input_.Number()));
      reply.set_ttl(how % 8 < 6 ? 1 + how % 8 : static_cast<int64_t>(input_.Number()));
      return Json(reply);
    }
    if (path == "/v3/lease/keepalive") {
      rpc::EtcdKeepAliveReply reply;
      const uint8_t how = input_.U8();
      if (how % 8 < 7) {
        reply.mutable_result()->set_ttl(how % 8 < 6 ? how % 8
                                                    : static_cast<int64_t>(input_.Number()));
      } else {
        reply.mutable_error()->set_message("no");
      }
      return Json(reply);
    }
    if (path == "/v3/auth/authenticate") {
      return StrCat(R"({"token":")", input_.Bit() ? "a.token" : input_.Text(input_.Below(8)),
                    "\"}");
    }
    return "{}";
  }
  std::string WatchMessage(bool created = false) {
    const uint8_t how = input_.U8();
    rpc::EtcdWatchReply reply;
    rpc::EtcdWatchReply::Result& result = *reply.mutable_result();
    SetHeader(result.mutable_header());
    result.set_created(created != (how >= 250));
    if (how % 16 == 15) {
      result.set_canceled(true);
      result.set_cancel_reason(std::string(input_.U8() * 8u, 'r'));
      result.set_compact_revision(how < 128 ? 7 : 0);
    }
    if (how % 16 == 14) reply.mutable_error()->set_message("a gateway's error");
    for (int count = created ? 0 : how / 16 % 4; count > 0; --count) {
      rpc::EtcdEvent& event = *result.add_events();
      event.set_type(input_.Below(4) == 3 ? rpc::EtcdEvent::DELETE : rpc::EtcdEvent::PUT);
      SetEntry(event.mutable_kv());
    }
    std::string json = Json(reply);
    return created ? json : Odd(std::move(json)) + "\n";
  }
  std::string ErrorMessage() {
    const uint8_t how = input_.U8();
    if (how >= 240) return input_.Text(input_.U8());
    return StrCat(R"({"message":")", std::string(how < 32 ? 700 : 10, 'e'), R"(","code":)",
                  how % 20, "}");
  }
  std::string Odd(std::string json) {
    const uint8_t how = input_.U8();
    if (how < 232 || json.empty()) return json;
    if (how < 240) return input_.Text(input_.U8());
    if (how < 248) {
      json[input_.U8() % json.size()] ^= static_cast<char>(input_.U8());
      return json;
    }
    if (how < 252) return json.substr(0, input_.U8());
    const size_t at = input_.U8() % json.size();
    return json.insert(at, input_.Text(input_.Below(32)));
  }

  Host& host_;
  FuzzInput input_;
  EtcdOptions options_;
  EtcdTarget target_;
  std::vector<std::unique_ptr<Client>> connections_;
  bool right_ = false;    // what is said from now on
  bool listed_ = false;   // what it has, since then
  bool granted_ = false;  // a lease, since then
};

// Texts of the other side as they are, by each of the messages that they are read as.
void ReadTexts(std::string_view text) {
  rpc::EtcdRangeReply list;
  rpc::EtcdWatchReply watch;
  rpc::EtcdError error;
  for (google::protobuf::Message* message :
       std::initializer_list<google::protobuf::Message*>{&list, &watch, &error}) {
    const absl::Status read = ParseEtcdJson(text, message);
    if (read.ok()) WEFT_CHECK(ParseEtcdJson(Json(*message), message).ok());
  }
  const auto servers = ParseServerList(text, "\n");
  if (servers.ok()) {
    for (const ListedServer& server : *servers) WEFT_CHECK(!server.address.empty());
  }
}

// Targets and options are this side's: any text is one, or an error.
void ReadTargets(uint8_t how, const std::string& text) {
  EtcdOptions options;
  if ((how & 1) != 0) options.user = text.substr(0, 4);
  if ((how & 2) != 0) options.password = text.substr(0, 5);
  if ((how & 4) != 0) options.ca_file = "/ca";
  if ((how & 8) != 0) options.certificate_file = "/certificate";
  const auto target = ParseEtcdTarget(text, options);
  if (target.ok()) {
    WEFT_CHECK(!target->endpoints.empty() && target->endpoints.size() <= EtcdTarget::kMaxEndpoints);
    WEFT_CHECK(target->prefix.size() > 1 && target->prefix.ends_with('/'));
  }
  MakeAddressSource(text, options).status().IgnoreError();
}

}  // namespace
}  // namespace weft::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static weft::test::Host* const host = new weft::test::Host;
  weft::FuzzInput input(data, size);
  const uint8_t how = input.U8();
  if (how >= 240) {
    weft::test::ReadTargets(how, input.Text(4096));
  } else if (how >= 224) {
    weft::test::ReadTexts(weft::AsStringView(input.Rest()));
  } else {
    weft::test::World(host, input).Run(how);
  }
  return 0;
}
