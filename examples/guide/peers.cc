// Three servers that call each other: each has the logs of all. One is restarted, and found again:
// it has another incarnation then, by which the others see that it remembers nothing.
#include <condition_variable>
#include <cstdint>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "examples/guide/guide.weft.h"
#include "weft/channel.h"
#include "weft/metrics.h"
#include "weft/server.h"
#include "weft/service.h"

// What a server does for its peers.
class Logs final : public guide::Notes::Service {
  // What is here of one peer.
  struct Log {
    uint64_t incarnation = 0;
    int heartbeats = 0;
    std::vector<std::string> entries;
  };

  // A heartbeat.
  absl::Status Note(weft::ServerContext& context, const guide::CountRequest&) override {
    ++LogOf(context).heartbeats;
    return absl::OkStatus();
  }
  // An entry of the caller's log; it is answered by how many there are.
  absl::Status CountWords(weft::ServerContext& context, const guide::CountRequest& request,
                          guide::CountReply* reply) override {
    Log& log = LogOf(context);
    if (log.heartbeats == 0) return absl::InternalError("no heartbeat was here");
    log.entries.push_back(request.text());
    reply->set_words(log.entries.size());
    return absl::OkStatus();
  }

  // A caller that was started again begins another log.
  Log& LogOf(const weft::ServerContext& context) {
    Log& log = logs_[context.peer_id()];
    if (log.incarnation != context.peer_incarnation()) {
      log = Log();
      log.incarnation = context.peer_incarnation();
    }
    return log;
  }

  std::map<std::string, Log> logs_;
};

// The channel to a peer, and whether that is there.
class Peer {
 public:
  absl::Status Open(weft::Server& server, const std::string& id, const std::string& address) {
    auto channel = server.OpenPeer(id, address, weft::ChannelOptions());
    if (!channel.ok()) return channel.status();
    channel_ = *std::move(channel);
    auto watch = channel_->WatchState([this](weft::ChannelState state) {
      const std::lock_guard<std::mutex> lock(mutex_);
      is_there_ = state == weft::ChannelState::kReady;
      changed_.notify_all();
    });
    if (!watch.ok()) return watch.status();
    watch_ = *std::move(watch);
    return absl::OkStatus();
  }

  // A heartbeat, and behind it what the peer does not have of the log. Returns how much it has
  // then.
  absl::StatusOr<uint64_t> Send(const std::vector<std::string>& log) {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [this] { return is_there_; });
    }
    // One that was started again remembers nothing of it.
    const uint64_t incarnation = channel_->peer_incarnation();
    if (std::exchange(incarnation_, incarnation) != incarnation) sent_ = 0;
    const guide::Notes::Stub notes(*channel_);
    guide::CountRequest request;
    guide::CountReply reply;
    if (auto sent = notes.Note(request); !sent.ok()) return sent;
    while (sent_ < log.size()) {
      request.set_text(log[sent_]);
      auto added = notes.CountWords(request, &reply, {.timeout_us = 10'000'000});
      if (!added.ok()) return added;
      ++sent_;
    }
    return reply.words();
  }

 private:
  uint64_t incarnation_ = 0;  // of the peer that was sent something last
  size_t sent_ = 0;           // entries, to that one
  std::unique_ptr<weft::Channel> channel_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_there_ = false;
  weft::ChannelWatch watch_;  // goes before what it writes to
};

class Member {
 public:
  explicit Member(const std::string& id) : id_(id) {}

  absl::Status Listen(const std::string& at) {
    weft::ServerOptions options;
    options.peer_id = id_;
    auto server = weft::Server::Create(options);
    if (!server.ok()) return server.status();
    server_ = *std::move(server);
    if (auto added = server_->AddService(&logs_); !added.ok()) return added;
    return server_->Listen(at);
  }
  absl::Status Meet(const Member& other) {
    return peers_[other.id_].Open(*server_, other.id_, other.address());
  }
  absl::Status Append(const std::string& entry) {
    log_.push_back(entry);
    int copies = 1;  // its own
    for (auto& [id, peer] : peers_) {
      auto length = peer.Send(log_);
      if (!length.ok()) return length.status();
      if (*length == log_.size()) ++copies;
    }
    std::cout << id_ << ": " << copies << " copies of its log, up to " << entry << "; "
              << server_->stats().peers << " peers are connected" << std::endl;
    return absl::OkStatus();
  }
  void Leave() { server_->Shutdown(/*grace_us=*/5'000'000); }

  const std::string& id() const { return id_; }
  std::string address() const { return server_->address(); }

 private:
  const std::string id_;
  std::vector<std::string> log_;
  Logs logs_;  // of the others
  std::unique_ptr<weft::Server> server_;
  std::map<std::string, Peer> peers_;  // go before the server
};

absl::Status Run() {
  Member a("a");
  Member b("b");
  auto c = std::make_unique<Member>("c");
  for (Member* member : {&a, &b, c.get()}) {
    if (auto listening = member->Listen("127.0.0.1:0"); !listening.ok()) return listening;
  }
  // Each dials both others, and yet there is one connection for each two.
  for (Member* member : {&a, &b, c.get()}) {
    for (Member* other : {&a, &b, c.get()}) {
      if (other == member) continue;
      if (auto met = member->Meet(*other); !met.ok()) return met;
    }
  }
  for (Member* member : {&a, &b, c.get()}) {
    if (auto appended = member->Append("entry 1"); !appended.ok()) return appended;
  }

  const std::string address = c->address();
  c->Leave();
  c = std::make_unique<Member>("c");
  if (auto listening = c->Listen(address); !listening.ok()) return listening;
  for (const Member* other : {&a, &b}) {
    if (auto met = c->Meet(*other); !met.ok()) return met;
  }
  if (auto appended = c->Append("entry 1 after a restart"); !appended.ok()) return appended;
  return a.Append("entry 2");
}

int main() {
  absl::Status status = Run();
  if (!status.ok()) std::cerr << status << std::endl;
  return status.ok() ? 0 : 1;
}
