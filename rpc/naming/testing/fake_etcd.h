// A small etcd for tests, over HTTP on loopback, on the engine of whoever asks it. It does what its
// test says, and nothing by itself: no lease ends, nothing is compacted and nothing is late.
//
// Threads: the engine's. Lifetime: goes before its engine. Not there: TLS, keys that are ranges of
// anything but a prefix, deletions in watches of the past.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/strings.h"
#include "google/protobuf/util/json_util.h"
#include "rpc/naming/etcd.pb.h"
#include "rpc/naming/testing/http_server.h"
#include "transport/engine.h"

namespace weft::test {

class FakeEtcd final : public HttpServer {
 public:
  explicit FakeEtcd(EngineCore& engine) : HttpServer(engine) {}

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
  size_t watches() const { return streams(); }

  // Bytes of a watch's body.
  void TellWatchersRaw(const std::string& bytes) { SendChunkToStreams(bytes); }
  // From now on only who shows a token of this user is served.
  void Require(const std::string& user, const std::string& password) {
    user_ = user;
    password_ = password;
  }
  void ForgetTokens() { ++tokens_; }

  int64_t last_start_revision = 0;  // of a watch
  int64_t revision() const { return revision_; }

 private:
  struct Value {
    std::string text;
    int64_t lease = 0;
    int64_t revision = 0;
  };

  template <class Message>
  static Message Parsed(const std::string& body) {
    Message message;
    EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(body, &message).ok()) << body;
    return message;
  }
  static std::string Json(const google::protobuf::Message& message) {
    google::protobuf::util::JsonPrintOptions options;
    options.preserve_proto_field_names = true;
    std::string json;
    EXPECT_TRUE(google::protobuf::util::MessageToJsonString(message, &json, options).ok());
    return json;
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
    if (!reply.result().events().empty()) SendChunk(connection, Json(reply) + "\n");
  }

  void Answer(Connection* connection, const Request& asked) override {
    const std::string& path = asked.path;
    const std::string& body = asked.body;
    if (path != "/v3/auth/authenticate" && !user_.empty() && asked.authorization != Token()) {
      return SendJson(connection, 401, R"({"error":"x","message":"invalid auth token","code":16})");
    }
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
      rpc::EtcdWatchReply reply = EventsReply();
      reply.mutable_result()->set_created(true);
      StartStream(connection, Json(reply) + "\n");
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

  std::map<std::string, Value> values_;
  std::map<int64_t, int64_t> leases_;  // seconds, by number
  int64_t last_lease_ = int64_t{1} << 60;
  int64_t revision_ = 1;
  uint64_t cluster_ = uint64_t{1} << 63;
  std::string user_;
  std::string password_;
  int tokens_ = 1;
};

}  // namespace weft::test
