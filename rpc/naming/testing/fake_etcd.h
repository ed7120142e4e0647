// A small etcd for tests, over HTTP on loopback, on the engine of whoever asks it. It does what its
// test says, and nothing by itself: no lease ends, nothing is compacted and nothing is late.
//
// Threads: the engine's. Lifetime: goes before its engine. Not there: TLS, keys that are ranges of
// anything but a prefix, deletions in watches of the past.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/strings.h"
#include "google/protobuf/util/json_util.h"
#include "rpc/naming/etcd.pb.h"
#include "transport/engine.h"
#include "transport/poller.h"

namespace weft::test {

class FakeEtcd final : private PollHandler {
 public:
  explicit FakeEtcd(EngineCore& engine) : engine_(engine) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(listener_, 64), 0);
    socklen_t bytes = sizeof(address);
    EXPECT_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &bytes), 0);
    port_ = ntohs(address.sin_port);
    EXPECT_TRUE(engine_.poller().Add(listener_, EPOLLIN, this).ok());
  }
  ~FakeEtcd() {
    connections_.clear();
    engine_.poller().Remove(listener_);
    close(listener_);
  }
  FakeEtcd(const FakeEtcd&) = delete;
  FakeEtcd& operator=(const FakeEtcd&) = delete;

  std::string address() const { return StrCat("127.0.0.1:", port_); }

  // --- what it has ------------------------------------------------------------------------------

  void Put(const std::string& key, const std::string& value, int64_t lease = 0) {
    ++revision_;
    values_[key] = {value, lease, revision_};
    rpc::EtcdWatchReply reply = EventsReply();
    rpc::EtcdKeyValue& kv = *reply.mutable_result()->add_events()->mutable_kv();
    kv.set_key(key);
    kv.set_value(value);
    kv.set_mod_revision(revision_);
    TellWatchers(reply);
  }
  void Delete(const std::string& key) {
    if (values_.erase(key) == 0) return;
    ++revision_;
    rpc::EtcdWatchReply reply = EventsReply();
    rpc::EtcdEvent& event = *reply.mutable_result()->add_events();
    event.set_type(rpc::EtcdEvent::DELETE);
    event.mutable_kv()->set_key(key);
    event.mutable_kv()->set_mod_revision(revision_);
    TellWatchers(reply);
  }
  // The time of all leases is over.
  void EndLeases() {
    leases_.clear();
    std::vector<std::string> gone;
    for (const auto& [key, value] : values_) {
      if (value.lease != 0) gone.push_back(key);
    }
    for (const std::string& key : gone) Delete(key);
  }
  // It comes back as a new cluster, with nothing in it. Nobody is told.
  void LoseAll() {
    values_.clear();
    leases_.clear();
    revision_ = 1;
    ++cluster_;
    HangUp();
  }
  // The watches' revision is compacted away.
  void CancelWatches() {
    rpc::EtcdWatchReply reply = EventsReply();
    reply.mutable_result()->set_canceled(true);
    reply.mutable_result()->set_compact_revision(revision_);
    TellWatchers(reply);
  }
  bool Has(const std::string& key) const { return values_.contains(key); }
  std::string ValueOf(const std::string& key) { return values_[key].text; }
  size_t leases() const { return leases_.size(); }
  size_t watches() const {
    size_t count = 0;
    for (const auto& connection : connections_) count += connection->watches;
    return count;
  }

  // --- how it fails -----------------------------------------------------------------------------

  // Who is connected is not any more.
  void HangUp() {
    late_.clear();
    connections_.clear();
  }
  // While it is down nobody is answered, and all are hung up on.
  void SetDown(bool down) {
    down_ = down;
    if (down) HangUp();
  }
  // Takes requests of this path, and says nothing; until it speaks, and answers them all.
  void FallSilent(const std::string& path) { silent_.insert(path); }
  void Speak() {
    silent_.clear();
    for (auto& late : std::exchange(late_, {})) Answer(late.connection, late.path, late.body);
  }
  // The next requests of this path are answered so: all of HTTP.
  void AnswerRaw(const std::string& path, const std::string& answer) {
    raw_[path].push_back(answer);
  }
  void AnswerJson(const std::string& path, const std::string& json, int status = 200) {
    AnswerRaw(path, StrCat("HTTP/1.1 ", status, " So\r\nContent-Type: application/json\r\n",
                           "Content-Length: ", json.size(), "\r\n\r\n", json));
  }
  // Bytes of a watch's body.
  void TellWatchersRaw(const std::string& bytes) {
    for (const auto& connection : connections_) {
      if (connection->watches) connection->Send(Chunk(bytes));
    }
  }
  // From now on only who shows a token of this user is served.
  void Require(const std::string& user, const std::string& password) {
    user_ = user;
    password_ = password;
  }
  void ForgetTokens() { ++tokens_; }

  // Called with the path of each request, before it is answered.
  std::function<void(const std::string&)> on_request;
  // That have come, by path.
  std::map<std::string, int> requests;
  int turned_away = 0;              // connections, while it was down
  int64_t last_start_revision = 0;  // of a watch
  int64_t revision() const { return revision_; }

 private:
  struct Value {
    std::string text;
    int64_t lease = 0;
    int64_t revision = 0;
  };

  struct Connection;
  struct Late {
    Connection* connection;
    std::string path;
    std::string body;
  };

  struct Connection final : PollHandler {
    Connection(FakeEtcd& etcd, int number) : etcd(etcd), number(number) {
      EXPECT_TRUE(etcd.engine_.poller().Add(number, EPOLLIN, this).ok());
    }
    ~Connection() {
      etcd.engine_.poller().Remove(number);
      close(number);
    }
    void OnReady(uint32_t events) override {
      if ((events & EPOLLOUT) != 0) Flush();
      if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) etcd.OnInput(this);  // may destroy it
    }
    void Send(const std::string& bytes) {
      output += bytes;
      Flush();
    }
    void Flush() {
      while (!output.empty()) {
        const ssize_t sent = send(number, output.data(), output.size(), MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN) output.clear();
        if (sent <= 0) break;
        output.erase(0, static_cast<size_t>(sent));
      }
      EXPECT_TRUE(
          etcd.engine_.poller().Modify(number, EPOLLIN | (output.empty() ? 0u : EPOLLOUT)).ok());
    }

    FakeEtcd& etcd;
    const int number;
    std::string input;
    std::string output;
    bool watches = false;
  };

  void OnReady(uint32_t) override {
    const int number = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (number < 0) return;
    if (down_) {
      ++turned_away;
      close(number);
      return;
    }
    connections_.push_back(std::make_unique<Connection>(*this, number));
  }

  void OnInput(Connection* connection) {
    char bytes[16384];
    const ssize_t count = recv(connection->number, bytes, sizeof(bytes), 0);
    if (count < 0 && errno == EAGAIN) return;
    if (count <= 0) return Forget(connection);
    connection->input.append(bytes, static_cast<size_t>(count));
    while (TakeRequest(connection)) {
    }
  }

  void Forget(Connection* connection) {
    std::erase_if(late_, [&](const Late& one) { return one.connection == connection; });
    std::erase_if(connections_, [&](const auto& one) { return one.get() == connection; });
  }

  static std::string HeaderOf(const std::string& head, const std::string& name) {
    const size_t at = head.find(StrCat("\r\n", name, ": "));
    if (at == std::string::npos) return "";
    const size_t begin = at + name.size() + 4;
    return head.substr(begin, head.find("\r\n", begin) - begin);
  }

  bool TakeRequest(Connection* connection) {
    std::string& input = connection->input;
    const size_t end = input.find("\r\n\r\n");
    if (end == std::string::npos) return false;
    const std::string head = input.substr(0, end + 2);
    const size_t bytes = std::strtoul(HeaderOf(head, "Content-Length").c_str(), nullptr, 10);
    if (input.size() < end + 4 + bytes) return false;
    const std::string body = input.substr(end + 4, bytes);
    input.erase(0, end + 4 + bytes);
    const size_t path_at = head.find(' ') + 1;
    const std::string path = head.substr(path_at, head.find(' ', path_at) - path_at);
    ++requests[path];
    if (on_request) on_request(path);
    if (silent_.contains(path)) {
      late_.push_back({connection, path, body});
      return false;
    }
    if (!raw_[path].empty()) {
      const std::string answer = raw_[path].front();
      raw_[path].erase(raw_[path].begin());
      connection->Send(answer);
      return true;
    }
    if (path != "/v3/auth/authenticate" && !user_.empty() &&
        HeaderOf(head, "Authorization") != Token()) {
      SendJson(connection, 401, R"({"error":"x","message":"invalid auth token","code":16})");
      return true;
    }
    Answer(connection, path, body);
    return true;
  }

  template <class Request>
  static Request Parsed(const std::string& body) {
    Request request;
    EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(body, &request).ok()) << body;
    return request;
  }
  static std::string Json(const google::protobuf::Message& message) {
    google::protobuf::util::JsonPrintOptions options;
    options.preserve_proto_field_names = true;
    std::string json;
    EXPECT_TRUE(google::protobuf::util::MessageToJsonString(message, &json, options).ok());
    return json;
  }
  static void SendJson(Connection* connection, int status, const std::string& json) {
    connection->Send(StrCat("HTTP/1.1 ", status, " So\r\nContent-Type: application/json\r\n",
                            "Content-Length: ", json.size(), "\r\n\r\n", json));
  }
  static std::string Chunk(const std::string& bytes) {
    char size[20];
    snprintf(size, sizeof(size), "%zx", bytes.size());
    return StrCat(size, "\r\n", bytes, "\r\n");
  }
  std::string Token() const { return StrCat("token.", tokens_); }
  void SetHeader(rpc::EtcdHeader* header) const {
    header->set_cluster_id(cluster_);
    header->set_revision(revision_);
  }
  rpc::EtcdWatchReply EventsReply() const {
    rpc::EtcdWatchReply reply;
    SetHeader(reply.mutable_result()->mutable_header());
    return reply;
  }
  void TellWatchers(const rpc::EtcdWatchReply& reply) { TellWatchersRaw(Json(reply) + "\n"); }

  // Since the revision that a watch begins with; of what was deleted it knows nothing.
  void SendWhatWasPut(Connection* connection) {
    rpc::EtcdWatchReply reply = EventsReply();
    for (const auto& [key, value] : values_) {
      if (value.revision < last_start_revision) continue;
      rpc::EtcdKeyValue& kv = *reply.mutable_result()->add_events()->mutable_kv();
      kv.set_key(key);
      kv.set_value(value.text);
      kv.set_mod_revision(value.revision);
    }
    if (!reply.result().events().empty()) connection->Send(Chunk(Json(reply) + "\n"));
  }

  void Answer(Connection* connection, const std::string& path, const std::string& body) {
    if (path == "/v3/kv/range") {
      const auto request = Parsed<rpc::EtcdRangeRequest>(body);
      rpc::EtcdRangeReply reply;
      SetHeader(reply.mutable_header());
      for (const auto& [key, value] : values_) {
        if (key < request.key() || key >= request.range_end()) continue;
        if (reply.kvs_size() == request.limit()) {
          reply.set_more(true);
          break;
        }
        rpc::EtcdKeyValue& kv = *reply.add_kvs();
        kv.set_key(key);
        kv.set_value(value.text);
        kv.set_mod_revision(value.revision);
      }
      return SendJson(connection, 200, Json(reply));
    }
    if (path == "/v3/watch") {
      last_start_revision = Parsed<rpc::EtcdWatchRequest>(body).create_request().start_revision();
      connection->watches = true;
      rpc::EtcdWatchReply reply = EventsReply();
      reply.mutable_result()->set_created(true);
      connection->Send("HTTP/1.1 200 So\r\nTransfer-Encoding: chunked\r\n\r\n" +
                       Chunk(Json(reply) + "\n"));
      return SendWhatWasPut(connection);
    }
    if (path == "/v3/kv/put") {
      const auto request = Parsed<rpc::EtcdPutRequest>(body);
      if (!leases_.contains(request.lease())) {
        return SendJson(connection, 404, R"({"message":"requested lease not found","code":5})");
      }
      Put(request.key(), request.value(), request.lease());
      rpc::EtcdPutReply reply;
      SetHeader(reply.mutable_header());
      return SendJson(connection, 200, Json(reply));
    }
    if (path == "/v3/lease/grant") {
      rpc::EtcdGrantReply reply;
      reply.set_id(++last_lease_);
      reply.set_ttl(Parsed<rpc::EtcdGrantRequest>(body).ttl());
      leases_[reply.id()] = reply.ttl();
      return SendJson(connection, 200, Json(reply));
    }
    if (path == "/v3/lease/keepalive") {
      rpc::EtcdKeepAliveReply reply;
      const auto lease = leases_.find(Parsed<rpc::EtcdLeaseRequest>(body).id());
      reply.mutable_result()->set_ttl(lease == leases_.end() ? 0 : lease->second);
      return SendJson(connection, 200, Json(reply) + "\n");
    }
    if (path == "/v3/lease/revoke") {
      const int64_t id = Parsed<rpc::EtcdLeaseRequest>(body).id();
      if (leases_.erase(id) == 0) {
        return SendJson(connection, 404, R"({"message":"requested lease not found","code":5})");
      }
      std::vector<std::string> gone;
      for (const auto& [key, value] : values_) {
        if (value.lease == id) gone.push_back(key);
      }
      for (const std::string& key : gone) Delete(key);
      return SendJson(connection, 200, "{}");
    }
    if (path == "/v3/auth/authenticate") {
      const auto request = Parsed<rpc::EtcdAuthenticateRequest>(body);
      if (request.name() != user_ || request.password() != password_) {
        return SendJson(connection, 400, R"({"message":"authentication failed","code":3})");
      }
      rpc::EtcdAuthenticateReply reply;
      reply.set_token(Token());
      return SendJson(connection, 200, Json(reply));
    }
    SendJson(connection, 404, "Not Found");
  }

  EngineCore& engine_;
  int listener_ = -1;
  uint16_t port_ = 0;
  bool down_ = false;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::map<std::string, Value> values_;
  std::map<int64_t, int64_t> leases_;  // seconds, by number
  int64_t last_lease_ = int64_t{1} << 60;
  int64_t revision_ = 1;
  uint64_t cluster_ = uint64_t{1} << 63;
  std::set<std::string> silent_;
  std::vector<Late> late_;  // requests that it has not answered
  std::map<std::string, std::vector<std::string>> raw_;
  std::string user_;
  std::string password_;
  int tokens_ = 1;
};

}  // namespace weft::test
