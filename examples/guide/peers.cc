// Three servers that call each other: each has the logs of all. One is restarted, and found again.
#include <condition_variable>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "examples/guide/guide.weft.h"
#include "weft/channel.h"
#include "weft/metrics.h"
#include "weft/server.h"
#include "weft/service.h"

// What a server does for its peers.
class Logs final : public guide::Notes::Service {
  // A heartbeat.
  absl::Status Note(weft::ServerContext& context, const guide::CountRequest&) override {
    ++heartbeats_[context.peer_id()];
    return absl::OkStatus();
  }
  // An entry of the caller's log; it is answered by how many there are.
  absl::Status CountWords(weft::ServerContext& context, const guide::CountRequest& request,
                          guide::CountReply* reply) override {
    if (heartbeats_[context.peer_id()] == 0) return absl::InternalError("no heartbeat was here");
    std::vector<std::string>& log = entries_[context.peer_id()];
    log.push_back(request.text());
    reply->set_words(log.size());
    return absl::OkStatus();
  }

  std::map<std::string, int> heartbeats_;
  std::map<std::string, std::vector<std::string>> entries_;
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

  // A heartbeat, and an entry behind it.
  absl::Status Append(const std::string& entry) {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [this] { return is_there_; });
    }
    const guide::Notes::Stub notes(*channel_);
    guide::CountRequest request;
    guide::CountReply reply;
    if (auto sent = notes.Note(request); !sent.ok()) return sent;
    request.set_text(entry);
    return notes.CountWords(request, &reply, {.timeout_us = 10'000'000});
  }

 private:
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
    int copies = 1;  // its own
    for (auto& [id, peer] : peers_) {
      if (auto appended = peer.Append(entry); !appended.ok()) return appended;
      ++copies;
    }
    std::cout << id_ << ": " << copies << " copies of " << entry << ", " << server_->stats().peers
              << " sessions" << std::endl;
    return absl::OkStatus();
  }
  void Leave() { server_->Shutdown(/*grace_us=*/5'000'000); }

  const std::string& id() const { return id_; }
  std::string address() const { return server_->address(); }

 private:
  const std::string id_;
  Logs logs_;
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
