#include "bench/hostile/children.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/hostile/members.h"
#include "core/random.h"
#include "core/status.h"
#include "transport/descriptor.h"

extern char** environ;

namespace weft::bench {
namespace {

constexpr uint64_t kMsNs = 1'000'000;
// Within it a child has joined, on a machine that is busy, or is killed before.
constexpr int kJoinMs = 20'000;

void Sleep(uint64_t ns) {
  const timespec time = {static_cast<time_t>(ns / kNsPerSec), static_cast<long>(ns % kNsPerSec)};
  nanosleep(&time, nullptr);
}

struct Child {
  pid_t pid = -1;
  Descriptor output;  // it says a line when it has joined
};

// This program as another attack, which would go on for long.
absl::StatusOr<Child> Spawn(const AttackOptions& options, const std::string& name, uint64_t seed) {
  std::vector<std::string> arguments = {"weft_hostile",
                                        "attack",
                                        "--name=" + name,
                                        "--address=" + options.address,
                                        "--path=" + std::string(PathKindName(options.path)),
                                        "--seconds=60",
                                        "--seed=" + std::to_string(seed),
                                        "--tls=" + options.tls_folder};
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return StatusFromErrno(errno, "a pipe to a child");
  Child child;
  child.output = Descriptor(ends[0]);
  const Descriptor its_end(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, its_end.get(), STDOUT_FILENO);
  const int error =
      posix_spawn(&child.pid, "/proc/self/exe", &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return StatusFromErrno(error, "posix_spawn of an attacker's child");
  return child;
}

// Some children at a time, each killed within `most_ms` if it has not ended; then the next ones.
absl::StatusOr<AttackReport> RunChildren(const AttackOptions& options, const std::string& name,
                                         uint64_t most_ms) {
  constexpr int kAtOnce = 3;
  Random random(options.seed);
  AttackReport report;
  AttackClock clock(options.seconds);
  do {
    std::vector<Child> children;
    for (int i = 0; i < kAtOnce; ++i) {
      WEFT_ASSIGN_OR_RETURN(Child child, Spawn(options, name, random.Next64()));
      children.push_back(std::move(child));
    }
    for (const Child& child : children) {
      pollfd watch{child.output.get(), POLLIN, 0};
      if (::poll(&watch, 1, kJoinMs) == 1 && (watch.revents & POLLIN) != 0) {
        if (report["joined"]++ == 0) clock = AttackClock(options.seconds);
      }
      Sleep(clock.LeftNs(random.UniformInRange(1, most_ms) * kMsNs));
      ::kill(child.pid, SIGKILL);
      int status = 0;
      ::waitpid(child.pid, &status, 0);
      const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
      ++report[killed ? "killed" : "ended_before"];
    }
  } while (!clock.over());
  return report;
}

void SayJoined() { std::cout << "joined" << std::endl; }

// --- scribblers ---------------------------------------------------------------------------------

struct SharedPlace {
  char* begin;
  size_t bytes;
};

// What Weft's processes have between them: the files whose names say what they are for. The pools'
// names are random numbers, those of the server's among them.
bool IsBetweenUs(const std::string& name) {
  for (const char* ours : {"weft-link", "weft-domain", "weft-doorbell"}) {
    if (name.find(std::string("/memfd:") + ours) != std::string::npos) return true;
  }
  return false;
}

// "7f.. -7f.. rw-s 00000000 00:01 1042  /memfd:weft-link (deleted)"
std::vector<SharedPlace> SharedPlaces() {
  std::vector<SharedPlace> places;
  std::ifstream maps("/proc/self/maps");
  std::string line;
  while (std::getline(maps, line)) {
    if (line.find("rw-s") == std::string::npos || !IsBetweenUs(line)) continue;
    char* end = nullptr;
    const uint64_t begin = std::strtoull(line.c_str(), &end, 16);
    const uint64_t behind = std::strtoull(end + 1, nullptr, 16);
    places.push_back({reinterpret_cast<char*>(begin), behind - begin});
  }
  return places;
}

void Scribble(const SharedPlace& place, Random& random) {
  char* const at = place.begin + random.Uniform(place.bytes - 64);
  switch (random.Uniform(5)) {
    case 0:
      *at = static_cast<char>(random.Next64());
      break;
    case 1:
      std::memset(at, static_cast<int>(random.Uniform(3)) - 1, 64);
      break;
    case 2:
      std::memset(place.begin, static_cast<int>(random.Uniform(3)) - 1, place.bytes);
      break;
    case 3: {  // words, as indices and positions are
      const uint64_t value = random.Next64() >> random.Uniform(64);
      std::memcpy(place.begin + 4 * random.Uniform(std::min<size_t>(place.bytes, 4096) / 4 - 1),
                  &value, 4);
      break;
    }
    default:
      for (size_t i = 0; i < place.bytes; ++i) place.begin[i] = static_cast<char>(random.Next64());
  }
}

// Shrinks, grows, seals, punches holes into and closes what this process has open of Weft's.
void MistreatFiles(Random& random) {
  std::vector<int> files;
  DIR* const folder = opendir("/proc/self/fd");
  if (folder == nullptr) return;
  while (const dirent* const entry = readdir(folder)) {
    char target[256] = "";
    const std::string link = std::string("/proc/self/fd/") + entry->d_name;
    if (readlink(link.c_str(), target, sizeof(target) - 1) <= 0) continue;
    if (std::strncmp(target, "/memfd:weft-", 12) == 0) files.push_back(std::atoi(entry->d_name));
  }
  closedir(folder);
  for (const int file : files) {
    switch (random.Uniform(6)) {
      case 0:
        if (ftruncate(file, 0) != 0) break;
        break;
      case 1:
        if (ftruncate(file, int64_t{1} << 30) != 0) break;
        break;
      case 2:
        fcntl(file, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SEAL);
        break;
      case 3:
        fcntl(file, F_ADD_SEALS, F_SEAL_FUTURE_WRITE);
        break;
      case 4:
        fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1 << 20);
        break;
      default:
        close(file);
    }
  }
}

}  // namespace

absl::StatusOr<AttackReport> RunKilled(const AttackOptions& options) {
  return RunChildren(options, "killed-child", /*most_ms=*/150);
}

absl::StatusOr<AttackReport> RunScribblers(const AttackOptions& options) {
  if (options.path != PathKind::kShm) {
    return absl::InvalidArgumentError("scribblers need shared memory");
  }
  return RunChildren(options, "scribbler", /*most_ms=*/250);
}

absl::StatusOr<AttackReport> RunKilledChild(const AttackOptions& options) {
  return RunEverything(options, SayJoined);
}

absl::StatusOr<AttackReport> RunScribbler(const AttackOptions& options) {
  return RunEverything(options, [&] {
    SayJoined();
    // It may crash by what it does: then the next one comes.
    std::thread([seed = options.seed] {
      Random random(seed);
      while (true) {
        Sleep(random.UniformInRange(1, 20) * kMsNs);
        for (const SharedPlace& place : SharedPlaces()) {
          if (random.Chance(0.3)) Scribble(place, random);
        }
        if (random.Chance(0.2)) MistreatFiles(random);
      }
    }).detach();
  });
}

}  // namespace weft::bench
