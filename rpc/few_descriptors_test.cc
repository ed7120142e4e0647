// What a server says when its process may not have the descriptors that its connections need.
//
// The default of 1,024 connections takes 2,048 descriptors or 3,072, and some, and many systems
// give a process 1,024. Nothing said so: clients beyond some 500 waited until they gave up, and the
// first word of it was an error of accept(2) in the server's log.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/log.h"
#include "core/strings.h"
#include "core/testing/descriptors.h"
#include "rpc/server/server.h"
#include "rpc/testing/rpc_test.h"

namespace weft::test {
namespace {

class FewDescriptorsTest : public RpcTest {
 protected:
  FewDescriptorsTest() {
    SetLogSink(
        [this](const LogRecord& record) {
          const std::lock_guard<std::mutex> lock(mutex_);
          if (record.text.find("RLIMIT_NOFILE") == std::string_view::npos) return;
          lines_.emplace_back(record.text);
          levels_.push_back(record.level);
        },
        LogLevel::kInfo);
  }
  ~FewDescriptorsTest() override { SetLogSink({}); }

  // A server for so many that listens at two addresses of the real network, and ends.
  void ListenWith(uint32_t max_connections, PathKind path = PathKind::kTcp) {
    ServerOptions options;
    options.max_connections = max_connections;
    options.link.paths = {path};
    const auto server = Server::Create(options);
    ASSERT_TRUE(server.ok()) << server.status();
    EXPECT_TRUE((*server)->Listen("127.0.0.1:0").ok());
    EXPECT_TRUE((*server)->Listen("127.0.0.1:0").ok());
    address_ = (*server)->address();
  }

  // What all servers have said of it.
  std::vector<std::string> said() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return lines_;
  }

  std::vector<LogLevel> levels() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return levels_;
  }

  std::string address_;  // of the last one

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
  std::vector<LogLevel> levels_;
};

// The number behind these words.
int NumberBehind(const std::string& text, const std::string& words) {
  const size_t at = text.find(words);
  return at == std::string::npos ? -1 : std::atoi(text.c_str() + at + words.size());
}

TEST_F(FewDescriptorsTest, ServerThatMayHaveTooFewSaysSoOnceAndWhatToDo) {
  const FewDescriptors few(50);
  rlimit limit = {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  ListenWith(100);
  ASSERT_EQ(said().size(), 1u);
  const std::string line = said()[0];
  EXPECT_EQ(line.find(StrCat("the server at ", address_,
                             " takes 100 connections (ServerOptions::max_connections)")),
            0u)
      << line;
  EXPECT_EQ(NumberBehind(line, "it may have "), static_cast<int>(limit.rlim_cur)) << line;
  const int needed = NumberBehind(line, "(ulimit -n ");
  EXPECT_GT(needed, 2 * 100) << line;
  EXPECT_EQ(NumberBehind(line, "LimitNOFILE="), needed) << line;
  EXPECT_NE(line.find("or lower max_connections"), std::string::npos) << line;
}

TEST_F(FewDescriptorsTest, ServerForFewerClientsHasNothingToSay) {
  const FewDescriptors few(1000);
  ListenWith(100);
  EXPECT_EQ(said().size(), 0u);
}

// Most servers with the default never have so many clients: it is no warning to everybody.
TEST_F(FewDescriptorsTest, OfTheDefaultItIsSaidAtLevelInfo) {
  const FewDescriptors few(1000);
  ListenWith(ServerOptions().max_connections);
  ListenWith(ServerOptions().max_connections + 1);
  EXPECT_EQ(levels(), (std::vector<LogLevel>{LogLevel::kInfo, LogLevel::kWarning}));
}

TEST_F(FewDescriptorsTest, ConnectionOverSharedMemoryNeedsOneMore) {
  const FewDescriptors few(50);
  ListenWith(100, PathKind::kTcp);
  ListenWith(100, PathKind::kShm);
  ASSERT_EQ(said().size(), 2u);
  const std::string words = "(ulimit -n ";
  EXPECT_GE(NumberBehind(said()[1], words), NumberBehind(said()[0], words) + 100);
}

TEST_F(FewDescriptorsTest, SimulatedServerNeedsNone) {
  const FewDescriptors few(50);
  StartServer({.max_connections = 100});
  EXPECT_EQ(said().size(), 0u);
}

}  // namespace
}  // namespace weft::test
