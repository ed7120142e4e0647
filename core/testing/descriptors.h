// What this process has open, for tests and fuzzers, and a bound on it.
//
// Threads: any; what other threads open or close meanwhile may be counted or not.
// Errors: none; where the system does not answer, the process ends.
#pragma once

#include <dirent.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "core/check.h"

namespace weft {

// The names in a folder.
inline std::vector<std::string> EntriesOf(const char* folder) {
  std::vector<std::string> names;
  DIR* const open = ::opendir(folder);
  WEFT_CHECK(open != nullptr);
  while (const dirent* const entry = ::readdir(open)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  ::closedir(open);
  return names;
}

// The one by which they are counted is none of them.
inline int CountDescriptors() { return static_cast<int>(EntriesOf("/proc/self/fd").size()) - 1; }

// Sockets that listen.
inline std::vector<int> ListeningSockets() {
  std::vector<int> listening;
  for (const std::string& name : EntriesOf("/proc/self/fd")) {
    const int fd = std::atoi(name.c_str());
    int listens = 0;
    socklen_t bytes = sizeof(listens);
    if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) == 0 && listens != 0) {
      listening.push_back(fd);
    }
  }
  return listening;
}

// This process may have `more` descriptors than those that it has, as long as this is there.
class FewDescriptors {
 public:
  explicit FewDescriptors(int more) {
    WEFT_CHECK(::getrlimit(RLIMIT_NOFILE, &before_) == 0);
    const int next = ::dup(STDERR_FILENO);  // the lowest number that is free
    WEFT_CHECK(next >= 0);
    ::close(next);
    const rlimit few{static_cast<rlim_t>(next + more), before_.rlim_max};
    WEFT_CHECK(::setrlimit(RLIMIT_NOFILE, &few) == 0);
  }
  ~FewDescriptors() { WEFT_CHECK(::setrlimit(RLIMIT_NOFILE, &before_) == 0); }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;

 private:
  rlimit before_{};
};

}  // namespace weft
