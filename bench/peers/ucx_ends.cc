#include "bench/peers/ucx_ends.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <map>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "bench/perf/ends/pipe.h"
#include "bench/perf/ends/run_clock.h"
#include "core/clock.h"
#include "core/status.h"
#include "core/strings.h"

namespace weft::bench {
namespace {

constexpr char kProgram[] = "ucx_perftest";
// The client comes before its server listens, or is turned away while that one starts: again.
constexpr int kAttempts = 50;
constexpr int kBetweenAttemptsMs = 50;
// How many iterations tell how long one takes, for small messages and for large ones.
constexpr uint64_t kFirstSmall = 2'000;
constexpr uint64_t kFirstLarge = 50;
constexpr uint32_t kLargeBytes = 64 << 10;

const char* TestFor(const Cell& cell) {
  const bool one = cell.outstanding == 1;
  switch (cell.pattern) {
    case Pattern::kUnary:
      return "ucp_am_lat";
    case Pattern::kMessages:
      return "ucp_am_bw";
    case Pattern::kRead:
      return "ucp_get";
    default:
      return one ? "ucp_put_lat" : "ucp_put_bw";
  }
}

// Where execvp() would look.
bool IsInstalled() {
  const char* const path = getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (access(StrCat(folder, "/", kProgram).c_str(), X_OK) == 0) return true;
  }
  return false;
}

// Of the path, for the programs that this process starts.
void SetEnvironment(const PerfPath& path) {
  if (path.kind() == PathKind::kShm) {
    setenv("UCX_TLS", "posix,sysv,cma,self", 1);
  } else {
    setenv("UCX_TLS", "tcp,self", 1);
    setenv("UCX_NET_DEVICES", "lo", 1);
  }
  setenv("UCX_WARN_UNUSED_ENV_VARS", "n", 1);
}

// A program with its standard output in a pipe.
class Child {
 public:
  static absl::StatusOr<std::unique_ptr<Child>> Start(const std::vector<std::string>& words) {
    int fds[2];
    if (pipe(fds) != 0) return StatusFromErrno(errno, "pipe");
    std::unique_ptr<Child> child(new Child);
    child->output_ = fds[0];
    child->pid_ = fork();
    if (child->pid_ == 0) {
      dup2(fds[1], STDOUT_FILENO);
      dup2(fds[1], STDERR_FILENO);
      close(fds[0]);
      close(fds[1]);
      std::vector<char*> argv;
      for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
      argv.push_back(nullptr);
      execvp(argv[0], argv.data());
      _exit(127);
    }
    const int error = errno;
    close(fds[1]);
    if (child->pid_ < 0) return StatusFromErrno(error, "fork");
    return child;
  }
  ~Child() {
    if (output_ >= 0) close(output_);
    if (pid_ <= 0) return;
    kill(pid_, SIGTERM);
    waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // All that it printed, when it has ended. UNAVAILABLE: not well.
  absl::StatusOr<std::string> Finish() {
    std::string text;
    char part[4096];
    for (ssize_t bytes; (bytes = read(output_, part, sizeof(part))) > 0;) {
      text.append(part, static_cast<size_t>(bytes));
    }
    int ended = 0;
    waitpid(std::exchange(pid_, -1), &ended, 0);
    if (WIFEXITED(ended) && WEXITSTATUS(ended) == 0) return text;
    if (WIFEXITED(ended) && WEXITSTATUS(ended) == 127) {
      return absl::NotFoundError(
          StrCat("no ", kProgram, " in PATH: install the Debian package ucx-utils"));
    }
    const size_t last = text.find_last_not_of('\n');
    return absl::UnavailableError(
        StrCat(kProgram, " failed: ", text.substr(0, std::min<size_t>(last + 1, 500))));
  }

 private:
  Child() = default;
  pid_t pid_ = -1;
  int output_ = -1;
};

// A port that is free just now.
absl::StatusOr<uint16_t> FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in any = {};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof(any);
  const bool found = fd >= 0 && bind(fd, reinterpret_cast<sockaddr*>(&any), bytes) == 0 &&
                     getsockname(fd, reinterpret_cast<sockaddr*>(&any), &bytes) == 0;
  const int error = errno;
  if (fd >= 0) close(fd);
  if (!found) return StatusFromErrno(error, "looking for a free port");
  return ntohs(any.sin_port);
}

// Serves one test after the other on a port of its own, as the client asks: "again" or "over".
class UcxServer final : public ServerEnd {
 public:
  explicit UcxServer(int peer_fd) : peer_fd_(peer_fd) {}

  absl::Status Serve(const Cell& cell) override {
    (void)cell;  // the client's program tells the server's what to do
    while (true) {
      WEFT_ASSIGN_OR_RETURN(const std::string word, ReadLine(peer_fd_));
      if (word == "over") return absl::OkStatus();
      WEFT_ASSIGN_OR_RETURN(const uint16_t port, FreePort());
      WEFT_ASSIGN_OR_RETURN(const auto child, Child::Start({kProgram, "-p", std::to_string(port)}));
      WEFT_RETURN_IF_ERROR(WriteLine(peer_fd_, std::to_string(port)));
      WEFT_RETURN_IF_ERROR(child->Finish().status());
    }
  }

 private:
  const int peer_fd_;
};

class UcxClient final : public ClientEnd {
 public:
  explicit UcxClient(int peer_fd) : peer_fd_(peer_fd) {}

  absl::StatusOr<Figures> Run(const Cell& cell, double seconds) override {
    absl::StatusOr<UcxResult> result = Measure(cell, seconds);
    WEFT_RETURN_IF_ERROR(WriteLine(peer_fd_, "over"));
    WEFT_RETURN_IF_ERROR(result.status());
    Figures figures;
    figures.per_s = result->per_s;
    if (cell.outstanding > 1) return figures;
    // A round trip is there and back; one way is what its program tells. A read's is the whole.
    const double ways = cell.pattern == Pattern::kUnary ? 2 : 1;
    figures.per_s /= ways;
    if (cell.pattern != Pattern::kMessages)
      figures.latency_us[kMedianIndex] = ways * result->p50_us;
    return figures;
  }

 private:
  absl::StatusOr<UcxResult> Measure(const Cell& cell, double seconds) {
    double& per_s = rates_[cell];
    if (per_s == 0) {
      const uint64_t first = cell.bytes < kLargeBytes ? kFirstSmall : kFirstLarge;
      WEFT_ASSIGN_OR_RETURN(const UcxResult result, Test(cell, first));
      per_s = result.per_s;
    }
    const double iterations = std::max(per_s * seconds, 10.0);
    WEFT_ASSIGN_OR_RETURN(const UcxResult result, Test(cell, static_cast<uint64_t>(iterations)));
    per_s = result.per_s;
    return result;
  }

  absl::StatusOr<UcxResult> Test(const Cell& cell, uint64_t iterations) {
    WEFT_RETURN_IF_ERROR(WriteLine(peer_fd_, "again"));
    WEFT_ASSIGN_OR_RETURN(const std::string port, ReadLine(peer_fd_));
    const auto warm_up = static_cast<uint64_t>(static_cast<double>(iterations) * kWarmUpShare) + 1;
    std::vector<std::string> words = {kProgram, "127.0.0.1",
                                      "-p",     port,
                                      "-t",     TestFor(cell),
                                      "-s",     std::to_string(cell.bytes),
                                      "-n",     std::to_string(iterations),
                                      "-w",     std::to_string(warm_up),
                                      "-f"};
    if (cell.outstanding > 1) words.insert(words.end(), {"-O", std::to_string(cell.outstanding)});
    absl::Status failed;
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      WEFT_ASSIGN_OR_RETURN(const auto child, Child::Start(words));
      const absl::StatusOr<std::string> output = child->Finish();
      if (output.ok()) {
        const auto result = ParseUcxResult(*output);
        if (!result)
          return absl::InternalError(StrCat("not a result of ", kProgram, ": ", *output));
        return *result;
      }
      failed = output.status();
      if (absl::IsNotFound(failed)) return failed;
      poll(nullptr, 0, kBetweenAttemptsMs);
    }
    return failed;
  }

  const int peer_fd_;
  std::map<Cell, double> rates_;  // as measured last: how many iterations fill a run
};

}  // namespace

// "  100000   0.501   5.390   7.966   11.32   7.66   185517   125535": iterations, the percentile,
// average and overall time, bandwidth twice, rate twice.
std::optional<UcxResult> ParseUcxResult(const std::string& output) {
  const size_t end = output.find_last_not_of(" \n");
  if (end == std::string::npos) return std::nullopt;
  const size_t newline = output.rfind('\n', end);
  const size_t begin = newline == std::string::npos ? 0 : newline + 1;
  std::istringstream line(output.substr(begin, end + 1 - begin));
  double iterations, average_us, bandwidth_average, bandwidth, rate_average;
  UcxResult result;
  line >> iterations >> result.p50_us >> average_us >> result.overall_us >> bandwidth_average >>
      bandwidth >> rate_average >> result.per_s;
  if (!line || result.per_s <= 0) return std::nullopt;
  return result;
}

std::string WhyNotUcx(const Cell& cell, const PerfPath& path) {
  // First: without the program there is one reason for all cells.
  if (!IsInstalled()) return "ucx_perftest is not installed (Debian's ucx-utils)";
  if (path.kind() == PathKind::kVerbs) return "UCX is compared on shm and tcp only";
  if (cell.pattern == Pattern::kBulk || cell.pattern == Pattern::kBulkChecked ||
      cell.pattern == Pattern::kStream || cell.pattern == Pattern::kCoroutine) {
    return "ucx_perftest has no calls";
  }
  if (cell.pattern == Pattern::kUnary && cell.outstanding > 1) {
    return "ucx_perftest has no replies to more than one message at a time";
  }
  if (cell.pattern == Pattern::kMessages && cell.outstanding == 1) {
    return "ucx_perftest confirms no message";
  }
  if (cell.bytes == 0) return "ucx_perftest has no empty messages in all its tests";
  return "";
}

absl::StatusOr<std::unique_ptr<ClientEnd>> OpenUcxClient(const WorkloadOptions& options) {
  SetEnvironment(options.path);
  return std::unique_ptr<ClientEnd>(std::make_unique<UcxClient>(options.peer_fd));
}

absl::StatusOr<std::unique_ptr<ServerEnd>> OpenUcxServer(const WorkloadOptions& options) {
  SetEnvironment(options.path);
  return std::unique_ptr<ServerEnd>(std::make_unique<UcxServer>(options.peer_fd));
}

}  // namespace weft::bench
