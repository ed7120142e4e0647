// A process at the other end, for tests that stop or kill it: network_peer, which echoes messages.
//
// Threads: the test's. Lifetime: its end closes the process's input, and waits for it to leave.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <utility>

namespace weft {

// Beside the test, in its runfiles.
inline constexpr char kPeerProgram[] = "transport/control/testing/network_peer";

class Peer {
 public:
  // `drive`: "external" or "thread", as the peer's engine is driven.
  explicit Peer(const std::string& address, const std::string& drive = "external") {
    int input[2];
    int output[2];
    EXPECT_EQ(::pipe2(input, O_CLOEXEC), 0);
    EXPECT_EQ(::pipe2(output, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, input[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
    std::string words[] = {kPeerProgram, address, drive};
    char* const arguments[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
    EXPECT_EQ(::posix_spawn(&pid_, kPeerProgram, &actions, nullptr, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    ::close(input[0]);
    ::close(output[1]);
    input_ = input[1];
    said_ = ::fdopen(output[0], "r");
    address_ = ReadLine();
    EXPECT_FALSE(address_.empty()) << "the peer did not start";
  }
  ~Peer() {
    ::close(input_);
    if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
    std::fclose(said_);
  }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  const std::string& address() const { return address_; }
  // What it says next: for each connection that ends, why. Waits for it. Empty: it has ended.
  std::string ReadLine() {
    char line[1024] = "";
    if (std::fgets(line, sizeof(line), said_) == nullptr) return "";
    std::string text = line;
    if (!text.empty()) text.pop_back();
    return text;
  }
  void Signal(int signal) { ::kill(pid_, signal); }
  void Kill() {
    Signal(SIGKILL);
    ::waitpid(std::exchange(pid_, -1), nullptr, 0);
  }

 private:
  pid_t pid_ = -1;
  int input_ = -1;
  FILE* said_ = nullptr;
  std::string address_;
};

}  // namespace weft
