#include "bench/perf/run/process_pair.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <vector>

#include "bench/perf/ends/pipe.h"
#include "bench/perf/run/worker.h"
#include "core/status.h"
#include "core/strings.h"

namespace weft::bench {
namespace {

// Opening takes about 0.1 s (libfabric looks for its providers), on a busy machine much longer, and
// several seconds on an emulated processor that other pairs start on, too.
constexpr double kOpenWithinS = 60;
// A run overshoots by the completion of what is outstanding. Emulated, that is 64 MiB/s or less.
constexpr double kRunSlackS = 20;
constexpr int kEndWithinMs = 2'000;

struct Sockets {
  int ours = -1;
  int theirs = -1;
};

// Neither survives an exec, until Inherit().
absl::StatusOr<Sockets> MakeSockets() {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) {
    return StatusFromErrno(errno, "socketpair");
  }
  return Sockets{fds[0], fds[1]};
}

void Inherit(int fd) { fcntl(fd, F_SETFD, 0); }

// In the child. Returns only on failure.
void Exec(const std::vector<std::string>& arguments) {
  std::vector<char*> argv;
  char name[] = "weft_perf";
  argv.push_back(name);
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execv("/proc/self/exe", argv.data());
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProcessPair>> ProcessPair::Start(const ProcessPairOptions& options) {
  WEFT_ASSIGN_OR_RETURN(const Sockets between, MakeSockets());
  std::unique_ptr<ProcessPair> pair(new ProcessPair(options));
  absl::Status started =
      pair->StartWorker(/*is_client=*/false, options.server_cpu, between.ours, &pair->server_);
  if (started.ok()) {
    started =
        pair->StartWorker(/*is_client=*/true, options.client_cpu, between.theirs, &pair->client_);
  }
  close(between.ours);
  close(between.theirs);
  WEFT_RETURN_IF_ERROR(started);
  return pair;
}

absl::Status ProcessPair::StartWorker(bool is_client, int cpu, int peer_fd, Worker* worker) {
  WEFT_ASSIGN_OR_RETURN(const Sockets sockets, MakeSockets());
  const std::vector<std::string> arguments =
      ToArguments({options_.kind, options_.path, is_client, cpu, sockets.theirs, peer_fd});
  worker->fd = sockets.ours;
  worker->pid = fork();
  if (worker->pid == 0) {
    Inherit(sockets.theirs);
    Inherit(peer_fd);
    Exec(arguments);
    _exit(127);
  }
  const int error = errno;
  close(sockets.theirs);
  return worker->pid > 0 ? absl::OkStatus() : StatusFromErrno(error, "fork");
}

absl::Status ProcessPair::AwaitReady() {
  for (const Worker* worker : {&server_, &client_}) {
    WEFT_RETURN_IF_ERROR(Answer(*worker, "ready", kOpenWithinS).status());
  }
  return absl::OkStatus();
}

absl::StatusOr<Figures> ProcessPair::Run(const Cell& cell, double seconds) {
  WEFT_RETURN_IF_ERROR(Tell(server_, StrCat("serve ", NameOf(cell))));
  WEFT_RETURN_IF_ERROR(Tell(client_, StrCat("run ", NameOf(cell), " ", seconds)));
  WEFT_ASSIGN_OR_RETURN(const std::string answer, Answer(client_, "ok", seconds + kRunSlackS));
  WEFT_RETURN_IF_ERROR(Answer(server_, "ok", kRunSlackS).status());
  const auto figures = FiguresFrom(answer);
  if (!figures) return absl::InternalError(StrCat("not figures: ", answer));
  return *figures;
}

std::string ProcessPair::NameOfWorker(const Worker& worker) const {
  return StrCat(options_.path.name, ", ", options_.kind, ", ",
                &worker == &client_ ? "client" : "server");
}

absl::Status ProcessPair::Tell(const Worker& worker, const std::string& command) const {
  return Annotate(WriteLine(worker.fd, command), NameOfWorker(worker));
}

absl::StatusOr<std::string> ProcessPair::Answer(const Worker& worker, const std::string& expected,
                                                double within_s) const {
  absl::StatusOr<std::string> line = ReadLine(worker.fd, static_cast<int>(within_s * 1e3));
  if (!line.ok()) return Annotate(line.status(), NameOfWorker(worker));
  if (line->rfind(expected, 0) == 0) return line->substr(expected.size());
  return absl::UnavailableError(StrCat(NameOfWorker(worker), ": ", *line));
}

ProcessPair::~ProcessPair() {
  End(client_);
  End(server_);
}

// A worker that rests sees its socket close and cleans up; one that is busy gets SIGTERM, and one
// that hangs, in the end, SIGKILL.
void ProcessPair::End(Worker& worker) {
  if (worker.fd >= 0) close(worker.fd);
  if (worker.pid <= 0) return;
  for (const int signal : {0, SIGTERM, SIGKILL}) {
    if (signal != 0) kill(worker.pid, signal);
    for (int waited_ms = 0; waited_ms < kEndWithinMs; ++waited_ms) {
      if (waitpid(worker.pid, nullptr, WNOHANG) != 0) return;
      poll(nullptr, 0, 1);
    }
  }
}

}  // namespace weft::bench
