#include "bench/scale/echo_server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <utility>

#include "bench/machine/cpu.h"
#include "bench/perf/ends/lending_service.h"
#include "bench/perf/ends/perf.pb.h"
#include "bench/perf/ends/perf.weft.h"
#include "bench/perf/ends/pipe.h"
#include "bench/perf/ends/polled_server.h"
#include "core/status.h"
#include "core/strings.h"
#include "rpc/server/server.h"

namespace weft::bench {
namespace {

constexpr char kServerFlag[] = "--echo-server";
constexpr int kArguments = 8;
// How long it rests between two looks after its connections.
constexpr int kRestMs = 10;
constexpr int kPatienceMs = 60'000;
constexpr int kEndWithinMs = 5'000;

std::vector<std::string> ToArguments(const EchoServerOptions& options, int fd) {
  return {kServerFlag,
          std::to_string(fd),
          std::string(PathKindName(options.path)),
          std::to_string(static_cast<int>(options.waiting)),
          std::to_string(options.spin_ns),
          std::to_string(options.cpu),
          std::to_string(options.max_connections),
          std::to_string(options.lent_bytes)};
}

// The process's side.
class Role {
 public:
  Role(const EchoServerOptions& options, int fd) : options_(options), fd_(fd) {}
  ~Role() { service_.GiveMemoryBack(); }
  Role(const Role&) = delete;
  Role& operator=(const Role&) = delete;

  absl::Status Run() {
    RaiseDescriptorLimit();
    WEFT_RETURN_IF_ERROR(PinThisThread(options_.cpu));
    WEFT_RETURN_IF_ERROR(Open());
    WEFT_RETURN_IF_ERROR(WriteLine(fd_, "ok " + polled_.address()));
    while (true) {
      const absl::StatusOr<std::string> command = NextCommand();
      if (!command.ok()) return absl::OkStatus();  // nobody needs it any more
      WEFT_RETURN_IF_ERROR(Obey(*command));
    }
  }

 private:
  bool polls() const { return options_.waiting == EchoServerOptions::Waiting::kOnCommand; }

  absl::Status Open() {
    ServerOptions options;
    options.link = OnlyPath(options_.path);
    options.max_connections = options_.max_connections;
    options.max_connections_of_one = options_.max_connections;  // all are this host's
    options.spin_ns = options_.spin_ns;
    options.cpu = options_.cpu;
    if (polls()) {
      WEFT_ASSIGN_OR_RETURN(polled_, PolledServer::Open(&service_, options));
      if (options_.lent_bytes == 0) return absl::OkStatus();
      return service_.Prepare(*polled_.server, options_.lent_bytes);
    }
    WEFT_ASSIGN_OR_RETURN(polled_.server, Server::Create(options));
    WEFT_RETURN_IF_ERROR(polled_.server->AddService(&service_));
    return polled_.server->Listen(kAnyPort);
  }

  absl::StatusOr<std::string> NextCommand() {
    while (true) {
      absl::StatusOr<std::string> line = ReadLine(fd_, polls() ? kRestMs : -1);
      if (line.ok() || !absl::IsDeadlineExceeded(line.status())) return line;
      while (polled_.Poll() > 0) {
      }
    }
  }

  absl::Status Obey(const std::string& command) {
    if (command == "usage") {
      WEFT_ASSIGN_OR_RETURN(const ProcessUsage usage, UsageOfThisProcess());
      return WriteLine(fd_, "ok " + ToLine(usage));
    }
    if (command != "serve" || !polls()) return absl::InternalError("not a command: " + command);
    while (!service_.TakeOver()) polled_.Poll();
    polled_.Poll();  // the last reply
    return WriteLine(fd_, "ok");
  }

  const EchoServerOptions options_;
  const int fd_;
  LendingService service_;
  PolledServer polled_;  // without an engine: the server drives its own
};

void Exec(const std::vector<std::string>& arguments) {
  std::vector<char*> argv;
  char name[] = "weft_scale";
  argv.push_back(name);
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execv("/proc/self/exe", argv.data());
}

}  // namespace

absl::StatusOr<std::unique_ptr<EchoServer>> EchoServer::Start(const EchoServerOptions& options) {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) {
    return StatusFromErrno(errno, "socketpair");
  }
  std::unique_ptr<EchoServer> server(new EchoServer);
  server->fd_ = fds[0];
  const std::vector<std::string> arguments = ToArguments(options, fds[1]);
  server->pid_ = fork();
  if (server->pid_ == 0) {
    fcntl(fds[1], F_SETFD, 0);  // survives exec
    Exec(arguments);
    _exit(127);
  }
  const int error = errno;
  close(fds[1]);
  if (server->pid_ < 0) return StatusFromErrno(error, "fork");
  WEFT_ASSIGN_OR_RETURN(server->address_, server->Answer());
  return server;
}

EchoServer::~EchoServer() {
  if (fd_ >= 0) close(fd_);
  if (pid_ <= 0) return;
  // At rest it sees its socket close, and cleans up; killed is what does not.
  for (int waited_ms = 0; waited_ms < kEndWithinMs; ++waited_ms) {
    if (waitpid(pid_, nullptr, WNOHANG) != 0) return;
    poll(nullptr, 0, 1);
  }
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

absl::StatusOr<std::string> EchoServer::Answer() {
  absl::StatusOr<std::string> line = ReadLine(fd_, kPatienceMs);
  if (!line.ok()) return Annotate(line.status(), "echo server");
  if (line->rfind("ok", 0) != 0) return absl::UnavailableError("echo server: " + *line);
  return line->size() > 3 ? line->substr(3) : "";
}

absl::Status EchoServer::Serve() { return WriteLine(fd_, "serve"); }

absl::Status EchoServer::Rest(Channel& channel) {
  EndRunMessage reply;
  WEFT_RETURN_IF_ERROR(Perf::Stub(channel).EndRun({}, &reply, {}));
  return Answer().status();
}

absl::StatusOr<ProcessUsage> EchoServer::Usage() {
  WEFT_RETURN_IF_ERROR(WriteLine(fd_, "usage"));
  WEFT_ASSIGN_OR_RETURN(const std::string line, Answer());
  const auto usage = UsageFrom(line);
  if (!usage) return absl::InternalError("not a usage: " + line);
  return *usage;
}

bool RunEchoServer(const std::vector<std::string>& arguments, int* exit_code) {
  if (arguments.size() != kArguments || arguments[0] != kServerFlag) return false;
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  const int fd = std::atoi(arguments[1].c_str());
  EchoServerOptions options;
  const auto path = ParsePathKind(arguments[2]);
  if (!path.ok()) return false;
  options.path = *path;
  options.waiting = static_cast<EchoServerOptions::Waiting>(std::atoi(arguments[3].c_str()));
  options.spin_ns = std::strtoull(arguments[4].c_str(), nullptr, 10);
  options.cpu = std::atoi(arguments[5].c_str());
  options.max_connections = static_cast<uint32_t>(std::atoi(arguments[6].c_str()));
  options.lent_bytes = static_cast<uint32_t>(std::strtoul(arguments[7].c_str(), nullptr, 10));
  const absl::Status status = Role(options, fd).Run();
  *exit_code = status.ok() ? 0 : 1;
  if (!status.ok()) WriteLine(fd, StrCat("error ", ToStd(status.message()))).IgnoreError();
  return true;
}

}  // namespace weft::bench
