// A program run by a test, with its standard output in the test's hands.
//
// Threads:    one thread at a time.
// Lifetime:   a program that still runs is killed when the object goes.
// Errors:     what can't be done aborts: the test is of no use then. A program that does nothing
//             for kPatienceMs is taken for hung, and killed.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace examples {

class ChildProcess {
 public:
  // Long enough for a sanitizer's build on a busy machine; it only ever passes when a test fails.
  static constexpr int kPatienceMs = 60'000;

  // argv[0] is the program's path. Standard error stays the test's.
  explicit ChildProcess(const std::vector<std::string>& argv);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // The next line of its output, without the end; "" when there is none any more.
  std::string ReadLine();

  void Signal(int signal);

  // Reads its output to the end and waits for its own. Returns the exit status, or minus the signal
  // that ended it.
  int Wait();

  // The output that ReadLine() has not returned; complete after Wait().
  const std::string& output() const { return output_; }

  pid_t pid() const { return pid_; }

 private:
  bool ReadMore();  // false: its output has ended
  void Reap();

  pid_t pid_ = -1;  // -1: it has ended
  int pipe_ = -1;
  int status_ = 0;
  std::string output_;
};

// Runs a program to its end.
struct Finished {
  int status;  // as ChildProcess::Wait() returns it
  std::string output;
};
Finished RunToEnd(const std::vector<std::string>& argv);

}  // namespace examples
