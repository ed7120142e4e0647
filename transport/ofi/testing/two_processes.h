// Runs one end of a test in a process of its own: forked before any fabric call, killed at will.
//
// The two talk over a pair of pipes, in lines.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <string>

#include "gtest/gtest.h"

namespace weft {

class Pipes {
 public:
  Pipes(int in, int out) : in_(in), out_(out) {}

  void Tell(const std::string& line) const {
    const std::string bytes = line + "\n";
    if (write(out_, bytes.data(), bytes.size()) < 0) _exit(3);
  }
  // Empty when the other end is gone.
  std::string Hear() const {
    std::string line;
    for (char c; read(in_, &c, 1) == 1 && c != '\n';) line.push_back(c);
    return line;
  }
  int in() const { return in_; }
  void Close() const {
    close(in_);
    close(out_);
  }

 private:
  int in_;
  int out_;
};

// REQUIRES: no libfabric call in this process before. Children of a process that has used it must
// not use it; so a test that needs several starts them first.
class ForkedProcess {
 public:
  explicit ForkedProcess(const std::function<void(const Pipes&)>& body) {
    int to_child[2], from_child[2];
    if (pipe2(to_child, O_CLOEXEC) != 0 || pipe2(from_child, O_CLOEXEC) != 0) std::abort();
    pid_ = fork();
    if (pid_ == 0) {
      close(to_child[1]);
      close(from_child[0]);
      body(Pipes(to_child[0], from_child[1]));
      _exit(testing::Test::HasFailure() ? 1 : 0);
    }
    close(to_child[0]);
    close(from_child[1]);
    pipes_ = Pipes(from_child[0], to_child[1]);
  }
  ~ForkedProcess() {
    if (pid_ > 0) Kill();
    pipes_.Close();
  }

  const Pipes& pipes() const { return pipes_; }
  int pid() const { return pid_; }

  void Kill() {
    kill(pid_, SIGKILL);
    Wait();
  }
  // Its exit status as waitpid(2) tells it.
  int Wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return status;
  }

 private:
  pid_t pid_ = -1;
  Pipes pipes_{-1, -1};
};

}  // namespace weft
