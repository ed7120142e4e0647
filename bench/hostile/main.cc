// weft_hostile: the processes of ./dev hostile; hostile.py starts them and judges.
//
//   weft_hostile serve  --path P                       the server: "ready ADDRESS", then for each
//                                                      line of its input what it counts, as JSON;
//                                                      for "memory" what memory it has, for "trim"
//                                                      the same, once malloc has given back to the
//                                                      system what it had free
//   weft_hostile honest --path P --address A           honest.h
//   weft_hostile attack --path P --address A --name N  an attack; a line of JSON at its end
//   weft_hostile bare                                  accepts and closes: what no server
//                                                      does less than; "ready ADDRESS"
//
// Exit code 1: it could not do that, or did not end well; 2: wrong arguments.

#include <malloc.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include <cerrno>
#include <csignal>
#include <iostream>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_format.h"
#include "bench/hostile/attack.h"
#include "bench/hostile/honest.h"
#include "bench/hostile/sockets.h"
#include "bench/machine/cpu.h"
#include "bench/perf/ends/call_streams.h"
#include "bench/perf/ends/lending_service.h"
#include "bench/perf/ends/polled_server.h"
#include "bench/scale/process_usage.h"
#include "core/memory_hooks.h"
#include "core/status.h"
#include "rpc/server/server.h"
#include "transport/descriptor.h"
#include "transport/engine.h"

ABSL_FLAG(std::string, path, "shm", "the path, shm or tcp");
ABSL_FLAG(std::string, address, "", "the server's, as it has said it");
ABSL_FLAG(std::string, name, "", "the attack");
ABSL_FLAG(std::string, tls, "", "a folder of certificates; empty: without TLS");
ABSL_FLAG(double, seconds, 1, "how long an attack goes on");
ABSL_FLAG(uint32_t, per_second, 0,
          "connections that strangers begin; 0: as many as the attack has");
ABSL_FLAG(uint64_t, seed, 1, "of what is random");
ABSL_FLAG(int, cpu, -1, "the processor; -1: any");

namespace weft::bench {
namespace {

// What clients lend and fetch of.
constexpr uint32_t kLentBytes = 1 << 20;

class VictimService final : public LendingService {
 public:
  void StartTalk(ServerReaderWriter<TalkMessage, TalkMessage> stream) override {
    AnswerTalk(std::move(stream));
  }
};

std::string ToJson(const ServerStats& stats) {
  return absl::StrFormat(
      R"({"connections": %d, "requests": %d, "running": %d, "running_bytes": %d,)"
      R"( "unsent_reply_bytes": %d, "protocol_errors": %d, "slow_readers": %d})",
      stats.connections, stats.requests, stats.running, stats.running_bytes,
      stats.unsent_reply_bytes, stats.protocol_errors, stats.slow_readers);
}

// In bytes.
//   pools   what Weft counts of buffers, shared memory and slots: in use, or kept for the next ones
//   in_use  all else that somebody has: of malloc what was allocated and not freed (with what
//           threads keep by them, tcache), and the chunks that connections lie in
// Slots come from malloc on the paths that this program has, and are taken off there. Objects too
// large for a chunk count twice: before as after.
std::string MemoryJson() {
  const MemoryReport weft = MemoryUsage();
  const struct mallinfo2 heap = mallinfo2();
  const uint64_t slots = weft.of(MemoryKind::kSlots).bytes;
  const uint64_t pools =
      slots + weft.of(MemoryKind::kBuffers).bytes + weft.of(MemoryKind::kShared).bytes;
  const uint64_t in_use = heap.uordblks + heap.hblkhd + weft.of(MemoryKind::kObjects).bytes - slots;
  return absl::StrFormat(R"({"pools": %d, "in_use": %d})", pools, in_use);
}

absl::Status Serve(PathKind path) {
  RaiseDescriptorLimit();
  ServerOptions options;
  options.link = OnlyPath(path);
  options.security = SecurityOf(absl::GetFlag(FLAGS_tls), "server");
  options.cpu = absl::GetFlag(FLAGS_cpu);
  VictimService service;
  WEFT_ASSIGN_OR_RETURN(const auto server, Server::Create(options));
  WEFT_RETURN_IF_ERROR(server->AddService(&service));
  WEFT_RETURN_IF_ERROR(service.Prepare(*server, kLentBytes));
  WEFT_RETURN_IF_ERROR(server->Listen(kAnyPort));
  std::cout << "ready " << server->address() << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    if (line == "trim") malloc_trim(0);
    const bool of_memory = line == "trim" || line == "memory";
    std::cout << (of_memory ? MemoryJson() : ToJson(server->stats())) << std::endl;
  }
  service.GiveMemoryBack();
  server->Shutdown(0);
  return absl::OkStatus();
}

absl::Status Attack(PathKind path) {
  RaiseDescriptorLimit();
  AttackOptions options;
  options.name = absl::GetFlag(FLAGS_name);
  options.address = absl::GetFlag(FLAGS_address);
  options.path = path;
  options.seconds = absl::GetFlag(FLAGS_seconds);
  options.seed = absl::GetFlag(FLAGS_seed);
  options.tls_folder = absl::GetFlag(FLAGS_tls);
  options.per_second = absl::GetFlag(FLAGS_per_second);
  WEFT_ASSIGN_OR_RETURN(const AttackReport report, RunAttack(options));
  const char* separator = "{";
  for (const auto& [what, count] : report) {
    std::cout << separator << '"' << what << "\": " << count;
    separator = ", ";
  }
  std::cout << (report.empty() ? "{}" : "}") << std::endl;
  return absl::OkStatus();
}

// Until it is killed.
absl::Status ServeBare() {
  constexpr int kBacklog = 1024;  // as a server of Weft's has
  const sockaddr_in address = ParseAddress("127.0.0.1:0");
  sockaddr_in bound = {};
  socklen_t length = sizeof(bound);
  const Descriptor listening(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::bind(listening.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      ::listen(listening.get(), kBacklog) != 0 ||
      ::getsockname(listening.get(), reinterpret_cast<sockaddr*>(&bound), &length) != 0) {
    return StatusFromErrno(errno, "listen on 127.0.0.1");
  }
  std::cout << "ready " << AddressText(bound) << std::endl;
  while (true) {
    const Descriptor client(
        ::accept4(listening.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!client.valid()) return StatusFromErrno(errno, "accept a client");
  }
}

absl::Status Run(const std::string& role) {
  WEFT_ASSIGN_OR_RETURN(const PathKind path, ParsePathKind(absl::GetFlag(FLAGS_path)));
  const int cpu = absl::GetFlag(FLAGS_cpu);
  // The server's main thread only answers questions; its engine has the processor.
  if (role != "serve" && cpu >= 0) WEFT_RETURN_IF_ERROR(PinThisThread(cpu));
  if (role == "serve") return Serve(path);
  if (role == "bare") return ServeBare();
  if (role == "attack") return Attack(path);
  if (role != "honest") return absl::InvalidArgumentError("no role '" + role + "'");
  return RunHonest(
      {absl::GetFlag(FLAGS_address), path, absl::GetFlag(FLAGS_tls), absl::GetFlag(FLAGS_seed)});
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const std::vector<char*> words = absl::ParseCommandLine(argc, argv);
  if (words.size() != 2) {
    std::cerr << "usage: weft_hostile serve|honest|attack|bare OPTION...\n";
    return 2;
  }
  const absl::Status status = weft::bench::Run(words[1]);
  if (status.ok()) return 0;
  std::cerr << "weft_hostile " << words[1] << ": " << status << "\n";
  return absl::IsInvalidArgument(status) ? 2 : 1;
}
