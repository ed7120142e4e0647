// A small name server for tests: over UDP on loopback, on the engine of whoever asks it.
//
// Threads: the engine's. Lifetime: goes before its engine. Not there: TCP, compression, truncation.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/strings.h"
#include "transport/engine.h"
#include "transport/poller.h"

namespace weft::test {

class NameServer final : private PollHandler {
 public:
  static constexpr uint16_t kA = 1;
  static constexpr uint16_t kAaaa = 28;
  static constexpr uint16_t kSrv = 33;

  explicit NameServer(EngineCore& engine) : engine_(engine) {
    socket_ = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    socklen_t bytes = sizeof(address);
    EXPECT_EQ(getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &bytes), 0);
    port_ = ntohs(address.sin_port);
    EXPECT_TRUE(engine_.poller().Add(socket_, EPOLLIN, this).ok());
  }
  ~NameServer() {
    engine_.poller().Remove(socket_);
    close(socket_);
  }
  NameServer(const NameServer&) = delete;
  NameServer& operator=(const NameServer&) = delete;

  std::string address() const { return StrCat("127.0.0.1:", port_); }

  // --- what it knows ----------------------------------------------------------------------------

  void AddA(const std::string& name, const std::string& address) {
    std::string data(4, '\0');
    ASSERT_EQ(inet_pton(AF_INET, address.c_str(), data.data()), 1);
    AddRaw(name, kA, data);
  }
  void AddAaaa(const std::string& name, const std::string& address) {
    std::string data(16, '\0');
    ASSERT_EQ(inet_pton(AF_INET6, address.c_str(), data.data()), 1);
    AddRaw(name, kAaaa, data);
  }
  void AddSrv(const std::string& name, uint16_t priority, uint16_t port, const std::string& host) {
    AddRaw(name, kSrv, Number(priority) + Number(0) + Number(port) + Labels(host));
  }
  void AddRaw(const std::string& name, uint16_t type, const std::string& data) {
    records_[name].emplace_back(type, data);
  }
  void Forget(const std::string& name) { records_.erase(name); }

  // Says of the name that it cannot tell (SERVFAIL), from now on.
  void FailFor(const std::string& name) { failing_.insert(name); }
  void FallSilent() { silent_ = true; }
  int questions = 0;

 private:
  static std::string Number(uint32_t value) {
    return {static_cast<char>(value >> 8), static_cast<char>(value)};
  }
  static std::string Labels(const std::string& name) {
    std::string labels;
    for (size_t at = 0; at < name.size();) {
      const size_t end = std::min(name.find('.', at), name.size());
      labels += static_cast<char>(end - at) + name.substr(at, end - at);
      at = end + 1;
    }
    return labels + '\0';
  }

  void OnReady(uint32_t) override {
    char question[512];
    sockaddr_storage from = {};
    socklen_t from_bytes = sizeof(from);
    const ssize_t bytes = recvfrom(socket_, question, sizeof(question), 0,
                                   reinterpret_cast<sockaddr*>(&from), &from_bytes);
    if (bytes <= 12) return;
    ++questions;
    if (silent_) return;
    const std::string answer = AnswerTo(std::string(question, static_cast<size_t>(bytes)));
    sendto(socket_, answer.data(), answer.size(), 0, reinterpret_cast<sockaddr*>(&from),
           from_bytes);
  }

  std::string AnswerTo(const std::string& question) {
    std::string name;
    size_t at = 12;
    while (question[at] != '\0') {
      const auto length = static_cast<size_t>(question[at]);
      name += (name.empty() ? "" : ".") + question.substr(at + 1, length);
      at += length + 1;
    }
    const auto type = static_cast<uint16_t>(question[at + 2]);
    const std::string asked = question.substr(12, at + 5 - 12);
    std::string records;
    uint32_t count = 0;
    for (const auto& [its_type, data] : records_[name]) {
      if (its_type != type) continue;
      // The name is that of the question; class IN; for no time at all.
      records += std::string("\xC0\x0C", 2) + Number(type) + Number(1) + std::string(4, '\0') +
                 Number(static_cast<uint32_t>(data.size())) + data;
      ++count;
    }
    // An answer, with authority, recursion asked for and available; 3: there is no such name.
    // 2: it cannot tell.
    const uint32_t code = failing_.contains(name) ? 2 : records_[name].empty() ? 3 : 0;
    const uint32_t flags = 0x8580 | code;
    if (code == 2) count = 0, records.clear();
    return question.substr(0, 2) + Number(flags) + Number(1) + Number(count) + Number(0) +
           Number(0) + asked + records;
  }

  EngineCore& engine_;
  int socket_ = -1;
  uint16_t port_ = 0;
  bool silent_ = false;
  std::set<std::string> failing_;
  std::map<std::string, std::vector<std::pair<uint16_t, std::string>>> records_;
};

}  // namespace weft::test
