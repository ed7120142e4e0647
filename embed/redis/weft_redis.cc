// weft_redis ADDRESS WORD...: runs a Redis command over Weft and prints the reply as redis-cli does
// into a pipe. With --calls N it runs the command so often, one after the other, and prints what a
// call takes, for a comparison with redis-benchmark. WEFT_PATHS chooses the path.
//
// Exit status: 0; 1 with the reason on stderr where a call or the command failed; 2 for a wrong
// command line.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/status/status.h"
#include "core/clock.h"
#include "core/status.h"
#include "embed/redis/redis_commands.weft.h"
#include "weft/channel.h"

ABSL_FLAG(int, calls, 0, "how often to run the command, to be timed; 0: once, for its reply");

namespace weft::embed::redis {
namespace {

constexpr int kMaxCalls = 10'000'000;  // 80 MB of times
constexpr uint32_t kTimeoutUs = 10'000'000;

void Print(const Reply& reply) {
  switch (reply.value_case()) {
    case Reply::kText:
      std::cout << reply.text() << '\n';
      break;
    case Reply::kError:
      std::cout << reply.error() << '\n';
      break;
    case Reply::kInteger:
      std::cout << reply.integer() << '\n';
      break;
    case Reply::kElements:
      for (const Reply& element : reply.elements().of()) Print(element);
      break;
    case Reply::VALUE_NOT_SET:
      std::cout << '\n';
      break;
  }
}

absl::Status Run(const std::string& address, const Command& command, int calls) {
  WEFT_ASSIGN_OR_RETURN(const auto channel, Channel::Open(address));
  Commands::Stub stub(*channel);
  Reply reply;
  std::vector<uint64_t> times_ns;
  for (int i = 0; i < std::max(calls, 1); ++i) {
    const uint64_t start_ns = Clock::Real().NowNs();
    WEFT_RETURN_IF_ERROR(stub.Execute(command, &reply, {.timeout_us = kTimeoutUs}));
    times_ns.push_back(Clock::Real().NowNs() - start_ns);
    if (reply.has_error()) {
      Print(reply);
      return absl::AbortedError("Redis refused the command");
    }
  }
  if (calls == 0) {
    Print(reply);
    return absl::OkStatus();
  }
  std::sort(times_ns.begin(), times_ns.end());
  std::printf("p50 %.1f us, p99 %.1f us\n", times_ns[times_ns.size() / 2] / 1e3,
              times_ns[times_ns.size() * 99 / 100] / 1e3);
  return absl::OkStatus();
}

}  // namespace
}  // namespace weft::embed::redis

int main(int argc, char** argv) {
  namespace redis = weft::embed::redis;
  const std::vector<char*> words = absl::ParseCommandLine(argc, argv);
  const int calls = absl::GetFlag(FLAGS_calls);
  if (words.size() < 3 || calls < 0 || calls > redis::kMaxCalls) {
    std::fprintf(stderr, "usage: weft_redis [--calls N] ADDRESS WORD...\n");
    return 2;
  }
  redis::Command command;
  for (size_t i = 2; i < words.size(); ++i) command.add_words(words[i]);
  const absl::Status status = redis::Run(words[1], command, calls);
  if (!status.ok()) std::cerr << "weft_redis: " << status << std::endl;
  return status.ok() ? 0 : 1;
}
