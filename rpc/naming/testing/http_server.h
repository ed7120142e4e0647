// A small HTTP server for tests, on loopback, on the engine of whoever asks it. Who derives from it
// answers; how it fails is its test's to say.
//
// Threads: the engine's. Lifetime: goes before its engine. Not there: TLS, requests in chunks.
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
#include "transport/engine.h"
#include "transport/poller.h"

namespace weft::test {

class HttpServer : private PollHandler {
 public:
  explicit HttpServer(EngineCore& engine) : engine_(engine) {
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
  virtual ~HttpServer() {
    connections_.clear();
    engine_.poller().Remove(listener_);
    close(listener_);
  }
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::string address() const { return StrCat("127.0.0.1:", port_); }

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
    for (auto& late : std::exchange(late_, {})) Answer(late.connection, late.request);
  }
  // The next requests of this path are answered so: all of HTTP.
  void AnswerRaw(const std::string& path, const std::string& answer) {
    raw_[path].push_back(answer);
  }
  void AnswerJson(const std::string& path, const std::string& json, int status = 200) {
    AnswerRaw(path, Whole(json, status));
  }

  // Called with the path of each request, before it is answered.
  std::function<void(const std::string&)> on_request;
  // That have come, by path.
  std::map<std::string, int> requests;
  int turned_away = 0;  // connections, while it was down

 protected:
  struct Request {
    std::string path;
    std::string authorization;
    std::string body;
  };
  class Connection;

  // What nothing above has answered.
  virtual void Answer(Connection* connection, const Request& request) = 0;

  static void SendJson(Connection* connection, int status, const std::string& json) {
    connection->Send(Whole(json, status));
  }
  // The answer is a stream from now on, which begins with these bytes.
  static void StartStream(Connection* connection, const std::string& bytes) {
    connection->streams = true;
    connection->Send("HTTP/1.1 200 So\r\nTransfer-Encoding: chunked\r\n\r\n" + Chunk(bytes));
  }
  static void SendChunk(Connection* connection, const std::string& bytes) {
    connection->Send(Chunk(bytes));
  }
  void SendChunkToStreams(const std::string& bytes) {
    for (const auto& connection : connections_) {
      if (connection->streams) SendChunk(connection.get(), bytes);
    }
  }
  size_t streams() const {
    size_t count = 0;
    for (const auto& connection : connections_) count += connection->streams;
    return count;
  }

  class Connection final : public PollHandler {
   public:
    Connection(HttpServer& server, int number) : server(server), number(number) {
      EXPECT_TRUE(server.engine_.poller().Add(number, EPOLLIN, this).ok());
    }
    ~Connection() {
      server.engine_.poller().Remove(number);
      close(number);
    }
    void OnReady(uint32_t events) override {
      if ((events & EPOLLOUT) != 0) Flush();
      if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) server.OnInput(this);  // may destroy it
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
          server.engine_.poller().Modify(number, EPOLLIN | (output.empty() ? 0u : EPOLLOUT)).ok());
    }

    HttpServer& server;
    const int number;
    std::string input;
    std::string output;
    bool streams = false;
  };

 private:
  struct Late {
    Connection* connection;
    Request request;
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
    const size_t path_at = head.find(' ') + 1;
    const Request request = {head.substr(path_at, head.find(' ', path_at) - path_at),
                             HeaderOf(head, "Authorization"), input.substr(end + 4, bytes)};
    input.erase(0, end + 4 + bytes);
    const std::string& path = request.path;
    ++requests[path];
    if (on_request) on_request(path);
    if (silent_.contains(path)) {
      late_.push_back({connection, request});
      return false;
    }
    if (!raw_[path].empty()) {
      const std::string answer = raw_[path].front();
      raw_[path].erase(raw_[path].begin());
      connection->Send(answer);
      return true;
    }
    Answer(connection, request);
    return true;
  }

  static std::string Chunk(const std::string& bytes) {
    char size[20];
    snprintf(size, sizeof(size), "%zx", bytes.size());
    return StrCat(size, "\r\n", bytes, "\r\n");
  }
  static std::string Whole(const std::string& json, int status) {
    return StrCat("HTTP/1.1 ", status, " So\r\nContent-Type: application/json\r\n",
                  "Content-Length: ", json.size(), "\r\n\r\n", json);
  }

  EngineCore& engine_;
  int listener_ = -1;
  uint16_t port_ = 0;
  bool down_ = false;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::set<std::string> silent_;
  std::vector<Late> late_;  // requests that it has not answered
  std::map<std::string, std::vector<std::string>> raw_;
};

}  // namespace weft::test
