#include "bench/perf/run/worker.h"

#include <malloc.h>
#include <sys/prctl.h>

#include <csignal>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/machine/cpu.h"
#include "bench/perf/cell/cell.h"
#include "bench/perf/ends/pipe.h"
#include "bench/perf/ends/workload.h"
#include "bench/perf/plan/end_kinds.h"
#include "core/status.h"
#include "core/strings.h"

namespace weft::bench {
namespace {

constexpr char kWorkerFlag[] = "--worker";
// How long a worker sleeps between two looks after its connection while another leg runs. A hundred
// short looks per second cost the running leg well below 1 %.
constexpr int kRestMs = 10;

// The next command. While there is none, the end is looked after.
template <class End>
absl::StatusOr<std::string> NextCommand(End& end, int driver_fd) {
  while (true) {
    absl::StatusOr<std::string> line = ReadLine(driver_fd, kRestMs);
    if (line.ok() || !absl::IsDeadlineExceeded(line.status())) return line;
    end.Rest();
  }
}

absl::Status NotACommand(const std::string& command) {
  return absl::InternalError(StrCat("not a command: ", command));
}

absl::Status RunOnce(ClientEnd& client, const std::string& command, int driver_fd) {
  std::istringstream words(command);
  std::string run, name;
  double seconds = 0;
  words >> run >> name >> seconds;
  if (run != "run" || seconds <= 0) return NotACommand(command);
  WEFT_ASSIGN_OR_RETURN(const Cell cell, CellNamed(name));
  WEFT_ASSIGN_OR_RETURN(const Figures figures, client.Run(cell, seconds));
  return WriteLine(driver_fd, StrCat("ok ", ToLine(figures)));
}

absl::Status WorkAsClient(const WorkerOptions& options) {
  WEFT_ASSIGN_OR_RETURN(auto client, OpenClientEnd(options.kind, {options.path, options.peer_fd}));
  WEFT_RETURN_IF_ERROR(WriteLine(options.driver_fd, "ready"));
  while (true) {
    const auto command = NextCommand(*client, options.driver_fd);
    if (!command.ok()) return absl::OkStatus();  // the driver has finished
    WEFT_RETURN_IF_ERROR(RunOnce(*client, *command, options.driver_fd));
  }
}

absl::Status ServeOnce(ServerEnd& server, const std::string& command) {
  constexpr std::string_view kServe = "serve ";
  if (command.rfind(kServe, 0) != 0) return NotACommand(command);
  WEFT_ASSIGN_OR_RETURN(const Cell cell,
                        CellNamed(std::string_view(command).substr(kServe.size())));
  return server.Serve(cell);
}

absl::Status WorkAsServer(const WorkerOptions& options) {
  WEFT_ASSIGN_OR_RETURN(auto server, OpenServerEnd(options.kind, {options.path, options.peer_fd}));
  WEFT_RETURN_IF_ERROR(WriteLine(options.driver_fd, "ready"));
  while (true) {
    const auto command = NextCommand(*server, options.driver_fd);
    if (!command.ok()) return absl::OkStatus();
    WEFT_RETURN_IF_ERROR(ServeOnce(*server, *command));
    WEFT_RETURN_IF_ERROR(WriteLine(options.driver_fd, "ok"));
  }
}

// By default glibc gives memory of large messages back to the kernel with each of them, and takes
// it anew, page fault by page fault: at 1 MiB that is most of a call. Long-running servers keep it;
// so do all kinds here.
void KeepFreedMemory() {
#if defined(__GLIBC__)
  constexpr int kKeptBytes = 256 << 20;  // more than any cell has outstanding, several times
  mallopt(M_MMAP_THRESHOLD, 32 << 20);   // the largest that it allows
  mallopt(M_TRIM_THRESHOLD, kKeptBytes);
#endif
}

// One line, whatever a status says.
std::string OneLine(std::string text) {
  for (char& c : text) {
    if (c == '\n') c = ' ';
  }
  return text;
}

}  // namespace

std::vector<std::string> ToArguments(const WorkerOptions& options) {
  return {kWorkerFlag,
          options.kind,
          options.path.name,
          options.path.device,
          options.path.host,
          options.is_client ? "client" : "server",
          std::to_string(options.cpu),
          std::to_string(options.driver_fd),
          std::to_string(options.peer_fd)};
}

bool ParseWorkerArguments(const std::vector<std::string>& arguments, WorkerOptions* options) {
  if (arguments.size() != 9 || arguments[0] != kWorkerFlag || !IsPerfPath(arguments[2])) {
    return false;
  }
  options->kind = arguments[1];
  options->path = {arguments[2], arguments[3], arguments[4]};
  options->is_client = arguments[5] == "client";
  options->cpu = std::atoi(arguments[6].c_str());
  options->driver_fd = std::atoi(arguments[7].c_str());
  options->peer_fd = std::atoi(arguments[8].c_str());
  return true;
}

int RunWorker(const WorkerOptions& options) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  KeepFreedMemory();
  absl::Status status = PinThisThread(options.cpu);
  if (status.ok()) status = options.is_client ? WorkAsClient(options) : WorkAsServer(options);
  if (status.ok()) return 0;
  // If the driver is gone as well, there is nobody to tell.
  WriteLine(options.driver_fd, StrCat("error ", OneLine(std::string(status.message()))))
      .IgnoreError();
  return 1;
}

}  // namespace weft::bench
