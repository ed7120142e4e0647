// A server run by a test: its first line is "listening on ADDRESS", and SIGTERM ends it well.
//
// Threads, Lifetime, Errors: as ChildProcess; what a server does not keep to fails the test.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <string>
#include <vector>

#include "examples/testing/child_process.h"

namespace examples {

class ServerProcess : public ChildProcess {
 public:
  explicit ServerProcess(const std::vector<std::string>& argv) : ChildProcess(argv) {
    const std::string line = ReadLine();
    EXPECT_THAT(line, testing::StartsWith("listening on "));
    address_ = line.substr(line.rfind(' ') + 1);
  }

  const std::string& address() const { return address_; }

  // It says last that no connection has broken.
  void Stop() {
    Signal(SIGTERM);
    EXPECT_EQ(Wait(), 0) << output();
    EXPECT_THAT(output(), testing::HasSubstr("0 broken connections"));
  }

  // The command line of a client of it, over `path`.
  std::vector<std::string> ClientCommand(const std::string& program, const std::string& path,
                                         const std::vector<std::string>& words) const {
    std::vector<std::string> argv = {program, "--server=" + address_, "--paths=" + path};
    argv.insert(argv.end(), words.begin(), words.end());
    return argv;
  }

 private:
  std::string address_;
};

}  // namespace examples
