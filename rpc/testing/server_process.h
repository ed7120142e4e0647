// probe_server in a process of its own, to be killed. Tests have it among their data, and run at
// the root of the workspace's runfiles.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

extern char** environ;

namespace weft::test {

class ServerProcess {
 public:
  // It has said its address when this returns; empty: it could not listen.
  // `more`: arguments of probe_server.
  explicit ServerProcess(const std::string& listen_at = "127.0.0.1:0",
                         std::vector<std::string> more = {}) {
    int output[2];
    int input[2];
    EXPECT_EQ(pipe(output), 0);
    EXPECT_EQ(pipe(input), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, input[0], STDIN_FILENO);
    posix_spawn_file_actions_addclose(&actions, output[0]);
    posix_spawn_file_actions_addclose(&actions, input[1]);
    char name[] = "rpc/testing/probe_server";
    std::string address = listen_at;
    std::vector<char*> arguments = {name, address.data()};
    for (std::string& argument : more) arguments.push_back(argument.data());
    arguments.push_back(nullptr);
    EXPECT_EQ(posix_spawn(&process_, name, &actions, nullptr, arguments.data(), environ), 0)
        << "run this test from the workspace's root of runfiles";
    posix_spawn_file_actions_destroy(&actions);
    close(output[1]);
    close(input[0]);
    lifeline_ = input[1];
    for (char c; read(output[0], &c, 1) == 1 && c != '\n';) address_ += c;
    close(output[0]);
  }
  ~ServerProcess() {
    Kill();
    close(lifeline_);
  }
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  void Kill() {
    if (process_ == 0) return;
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
    process_ = 0;
  }
  const std::string& address() const { return address_; }

 private:
  pid_t process_ = 0;
  int lifeline_ = -1;  // its standard input: it ends with this process
  std::string address_;
};

}  // namespace weft::test
