#include "examples/testing/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <utility>

#include "core/check.h"

namespace examples {
namespace {

std::vector<char*> Pointers(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

// The child starts without blocked signals, whatever the test has done to its own.
void UnblockSignals(posix_spawnattr_t* attributes) {
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(attributes, &none);
  posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGMASK);
}

pid_t Spawn(std::vector<std::string> argv, int standard_output) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  WEFT_CHECK(posix_spawn_file_actions_init(&actions) == 0);
  WEFT_CHECK(posix_spawnattr_init(&attributes) == 0);
  posix_spawn_file_actions_adddup2(&actions, standard_output, STDOUT_FILENO);
  UnblockSignals(&attributes);
  pid_t pid = -1;
  const int error =
      posix_spawn(&pid, argv[0].c_str(), &actions, &attributes, Pointers(argv).data(), environ);
  if (error != 0) std::fprintf(stderr, "cannot start %s: error %d\n", argv[0].c_str(), error);
  WEFT_CHECK(error == 0);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return pid;
}

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& argv) {
  int ends[2];
  WEFT_CHECK(pipe2(ends, O_CLOEXEC) == 0);
  pid_ = Spawn(argv, ends[1]);
  close(ends[1]);
  pipe_ = ends[0];
}

ChildProcess::~ChildProcess() {
  if (pid_ != -1) {
    Signal(SIGKILL);
    Reap();
  }
  close(pipe_);
}

bool ChildProcess::ReadMore() {
  pollfd readable = {pipe_, POLLIN, 0};
  if (poll(&readable, 1, kPatienceMs) == 0) {
    std::fprintf(stderr, "process %d does nothing: killing it\n", static_cast<int>(pid_));
    Signal(SIGKILL);
  }
  char bytes[4096];
  const ssize_t got = read(pipe_, bytes, sizeof(bytes));
  if (got > 0) output_.append(bytes, static_cast<size_t>(got));
  return got > 0;
}

std::string ChildProcess::ReadLine() {
  size_t end = output_.find('\n');
  while (end == std::string::npos && ReadMore()) end = output_.find('\n');
  std::string line = output_.substr(0, end);
  output_.erase(0, end == std::string::npos ? end : end + 1);
  return line;
}

void ChildProcess::Signal(int signal) { WEFT_CHECK(kill(pid_, signal) == 0); }

void ChildProcess::Reap() {
  int status = 0;
  WEFT_CHECK(waitpid(pid_, &status, 0) == pid_);
  pid_ = -1;
  status_ = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

int ChildProcess::Wait() {
  while (ReadMore()) {
  }
  if (pid_ != -1) Reap();
  return status_;
}

Finished RunToEnd(const std::vector<std::string>& argv) {
  ChildProcess child(argv);
  const int status = child.Wait();
  return {status, child.output()};
}

}  // namespace examples
