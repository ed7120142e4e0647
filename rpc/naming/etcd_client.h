// Asks etcd, one request at a time: JSON over HTTP/1.1, which etcd offers since 3.4 beside gRPC.
// libcurl speaks it, over sockets that the engine's Poller watches and with the engine's timers:
// nothing blocks, and there is no thread, but for libcurl's own while it looks up the name of an
// endpoint that is no numeric address.
//
//   state    what there is                        what ends it
//   idle     nothing; libcurl keeps a connection  Ask()
//   signing  a user's name and password are sent  the token is there -> asking; else OnEnd(error)
//            (only with EtcdOptions::user)
//   asking   the request, or its reply            OnEnd(); Cancel(); Ask(), which asks that instead
//
// An error moves on to the next endpoint: who asks again asks there. So does NextEndpoint().
//
// Threads: the engine's, but for construction. On an engine of the real clock.
// Lifetime: belongs to its Host; not destroyed inside a function of the Host's. What Ask() is given
//   is copied.
// Errors: UNAVAILABLE: nobody answers, in time or at all, or what comes is no HTTP, or too much;
//   UNAUTHENTICATED, PERMISSION_DENIED, INVALID_ARGUMENT, NOT_FOUND: etcd's own; all others of
//   etcd's are UNAVAILABLE. Each names the endpoint.
// Invariants: neither function of the Host is called inside Ask(), Cancel() or the destructor; what
//   an endpoint sends is bounded (kMaxMessageBytes, kMaxHeaderBytes) and otherwise not looked at.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/message.h"
#include "rpc/naming/curl_library.h"
#include "rpc/operation/etcd_options.h"
#include "rpc/operation/member_timer.h"
#include "transport/engine.h"
#include "transport/poller.h"

namespace weft {

// "HOST:PORT,HOST:PORT/PREFIX" behind "etcd:".
struct EtcdTarget {
  static constexpr size_t kMaxEndpoints = 16;      // more than a cluster has members
  static constexpr size_t kMaxPrefixBytes = 1024;  // of a path that a person has written

  std::vector<std::string> endpoints;  // at least one
  std::string prefix;                  // "/PREFIX/": what the keys of all servers begin with
};
// INVALID_ARGUMENT quotes the target, or names the option.
absl::StatusOr<EtcdTarget> ParseEtcdTarget(std::string_view target, const EtcdOptions& options);

// UNAVAILABLE: it is no JSON, or of another form than `message`. Fields that `message` does not
// know are passed over.
absl::Status ParseEtcdJson(std::string_view json, google::protobuf::Message* message);

class EtcdClient {
 public:
  class Host {
   public:
    // A whole message of the reply, as JSON, valid inside.
    virtual void OnEtcdMessage(std::string_view json) = 0;
    // The request is over. OK: the reply is complete.
    virtual void OnEtcdEnd(const absl::Status& status) = 0;

   protected:
    ~Host() = default;
  };

  // As many bytes as kMaxServersListed entries of 600 bytes have, which in base64 are 800 and with
  // what stands around them 1,000.
  static constexpr size_t kMaxMessageBytes = 16 << 20;
  // Of one reply; etcd sends 400.
  static constexpr size_t kMaxHeaderBytes = 64 << 10;
  // etcd answers in milliseconds; a member that elects a leader, in one second or two. Longer: one
  // that hangs is left later. Shorter: a busy one is given up that would have answered.
  static constexpr uint64_t kAnswerTimeoutUs = 5'000'000;

  // REQUIRES: LoadCurlLibrary() was OK. `engine` and `host` outlive it.
  EtcdClient(EngineCore& engine, std::vector<std::string> endpoints, const EtcdOptions& options,
             Host& host);
  ~EtcdClient();
  EtcdClient(const EtcdClient&) = delete;
  EtcdClient& operator=(const EtcdClient&) = delete;

  // The reply is one message, which has to be there within `timeout_us`, signing in included.
  void Ask(std::string_view path, const google::protobuf::Message& request,
           uint64_t timeout_us = kAnswerTimeoutUs) {
    Begin(path, request, /*streams=*/false, timeout_us);
  }
  // It is any number of messages, each on a line, and only the first has a time: kAnswerTimeoutUs.
  // Who asks again before it has come gives it that time anew.
  void AskForStream(std::string_view path, const google::protobuf::Message& request) {
    Begin(path, request, /*streams=*/true, kAnswerTimeoutUs);
  }
  // The Host hears no more of what was asked.
  void Cancel();
  // What was asked is cancelled, and the endpoint was of no use.
  void NextEndpoint();
  // That is asked next.
  const std::string& endpoint() const { return endpoints_[endpoint_]; }

 private:
  // One of libcurl's sockets.
  struct Socket final : PollHandler {
    void OnReady(uint32_t events) override { client->OnReady(number, events); }
    EtcdClient* client = nullptr;
    curl_socket_t number = CURL_SOCKET_BAD;
    bool closed = false;
  };

  // libcurl's callbacks.
  static int OnSocket(CURL*, curl_socket_t number, int what, void* client, void*);
  static int OnTimerWanted(CURLM*, long ms, void* client);  // NOLINT(google-runtime-int): libcurl's
  static size_t OnBytes(char* bytes, size_t size, size_t count, void* client);
  static size_t OnHeader(char* bytes, size_t size, size_t count, void* client);

  void Begin(std::string_view path, const google::protobuf::Message& request, bool streams,
             uint64_t timeout_us);
  void Send();
  void SetUp(const std::string& url);
  void OnReady(curl_socket_t number, uint32_t events);
  void OnTimeout();
  void OnDeadline();
  void LookWhatCame();
  bool DeliverLines();
  void OnTransferEnd(CURLcode result);
  absl::Status Failure(CURLcode result);
  void End(const absl::Status& status);
  bool Answers();

  const CurlLibrary& curl_;
  EngineCore& engine_;
  Host& host_;
  const std::vector<std::string> endpoints_;
  const EtcdOptions options_;
  size_t endpoint_;  // in use

  CURLM* multi_ = nullptr;  // null: nothing was asked yet
  std::vector<std::unique_ptr<Socket>> sockets_;
  std::string token_;  // empty: none yet, or no more

  // The request, while there is one.
  uint64_t asked_ = 0;  // how often Begin() and Cancel() were called: which one it is
  CURL* transfer_ = nullptr;
  curl_slist* headers_ = nullptr;
  bool signing_ = false;
  bool streams_ = false;
  uint64_t timeout_us_ = 0;
  uint64_t deadline_ns_ = 0;  // by when the first message has to be there
  std::string path_;
  std::string body_;
  std::string sent_;         // body_, or a user's name and password
  std::string received_;     // that was not delivered yet
  size_t looked_at_ = 0;     // of that: it has no end of a line
  size_t header_bytes_ = 0;  // that have come
  bool too_much_ = false;    // more than is allowed has come
  char error_[CURL_ERROR_SIZE] = {};

  MemberTimer<&EtcdClient::OnTimeout> timeout_{*this};    // libcurl's
  MemberTimer<&EtcdClient::OnDeadline> deadline_{*this};  // of the answer
};

}  // namespace weft
