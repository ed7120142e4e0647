#include "transport/ofi/signal_guard.h"

#include <dlfcn.h>

#include <csignal>
#include <cstring>

namespace weft {
namespace {

constexpr int kTakenBeforeMain[] = {SIGSEGV, SIGBUS, SIGILL, SIGABRT, SIGINT, SIGTERM};
// Parts of the file names of libraries that install handlers when they are loaded.
constexpr const char* kUninvited[] = {"libinfinipath", "libpsm_infinipath", "libpsm2", "libhfi"};

void* HandlerOf(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 ? reinterpret_cast<void*>(action.sa_sigaction)
                                             : reinterpret_cast<void*>(action.sa_handler);
}

bool IsUninvited(void* handler) {
  Dl_info where;
  if (handler == nullptr || dladdr(handler, &where) == 0 || where.dli_fname == nullptr) {
    return false;
  }
  for (const char* name : kUninvited) {
    if (std::strstr(where.dli_fname, name) != nullptr) return true;
  }
  return false;
}

}  // namespace

void RemoveForeignSignalHandlers() {
  for (const int signal_number : kTakenBeforeMain) {
    struct sigaction action;
    if (sigaction(signal_number, nullptr, &action) != 0 || !IsUninvited(HandlerOf(action))) {
      continue;
    }
    struct sigaction fresh = {};
    fresh.sa_handler = SIG_DFL;
    sigaction(signal_number, &fresh, nullptr);
  }
}

}  // namespace weft
