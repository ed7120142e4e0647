#include "transport/ofi/fabric_library.h"

#include <dlfcn.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <iterator>
#include <type_traits>

#include "core/check.h"
#include "core/process_wide.h"
#include "core/status.h"
#include "core/strings.h"

namespace weft {
namespace {

// The name of the interface that libfabric has had since 1.0.
constexpr const char* kFile = "libfabric.so.1";

// What was to be done about signals stays as it was, whatever a library does when it is loaded.
class KeptSignalHandlers {
 public:
  KeptSignalHandlers() {
    for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], nullptr, &kept_[i]);
  }
  ~KeptSignalHandlers() {
    for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &kept_[i], nullptr);
  }
  KeptSignalHandlers(const KeptSignalHandlers&) = delete;
  KeptSignalHandlers& operator=(const KeptSignalHandlers&) = delete;

 private:
  static constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGILL, SIGABRT, SIGINT, SIGTERM};
  struct sigaction kept_[std::size(kSignals)] = {};
};

struct Loaded {
  FabricLibrary library;
  absl::Status status;
  pid_t process = getpid();  // it may be used by this one alone
};

absl::Status LoadFailed() {
  const char* const why = dlerror();
  return absl::UnavailableError(
      StrCat("libfabric is not there: ", why == nullptr ? kFile : why, " (Debian: libfabric1)"));
}

// The registration cache of verbs registers every buffer with all remote rights and keeps it
// registered after fi_close(mr). The copies between processes that shm makes on the target's side
// could still reach our memory after a link was closed; through its own buffers it is faster as
// well. The variables are read by the first fi_getinfo(), which starts all providers: it takes 0.3
// s and more, and libfabric holds a lock of its own meanwhile, for which a child of a fork would
// wait for ever. So it is part of the loading.
void BeginProviders(const FabricLibrary& library) {
  setenv("FI_MR_CACHE_MONITOR", "disabled", /*overwrite=*/1);
  setenv("FI_MR_CACHE_MAX_COUNT", "0", /*overwrite=*/1);
  setenv("FI_SHM_DISABLE_CMA", "1", /*overwrite=*/0);
  fi_info* providers = nullptr;
  // That there are none is said where one is looked for.
  static_cast<void>(
      library.getinfo(kFabricVersion, nullptr, nullptr, FI_PROV_ATTR_ONLY, nullptr, &providers));
  if (providers != nullptr) library.freeinfo(providers);
}

Loaded Open() {
  const KeptSignalHandlers kept;
  Loaded loaded;
  void* const handle = dlopen(kFile, RTLD_NOW | RTLD_LOCAL);
  const auto find = [&](const char* name, auto* function) {
    void* const found = handle == nullptr ? nullptr : dlsym(handle, name);
    if (found == nullptr && loaded.status.ok()) loaded.status = LoadFailed();
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(found);
  };
  find("fi_getinfo", &loaded.library.getinfo);
  find("fi_freeinfo", &loaded.library.freeinfo);
  find("fi_dupinfo", &loaded.library.dupinfo);
  find("fi_fabric", &loaded.library.fabric);
  find("fi_version", &loaded.library.version);
  find("fi_strerror", &loaded.library.strerror);
  return loaded;
}

Loaded Load() {
  Loaded loaded = Open();
  if (loaded.status.ok()) BeginProviders(loaded.library);
  return loaded;
}

const Loaded& LoadOnce() {
  static constinit ProcessWide<Loaded> loaded;
  return loaded.GetOnce(Load, [] { return Loaded{{}, LostInFork("libfabric"), getpid()}; });
}

}  // namespace

// Another thread of the parent may have been anywhere in it: at the moment of a fork one was in its
// getaddrinfo(3), with a lock of the C library's, and the child's fi_getinfo() waited for ever
// (glibc 2.36, libfabric 1.17, 2026-11-30).
absl::Status LoadFabricLibrary() {
  const Loaded& loaded = LoadOnce();
  if (loaded.status.ok() && loaded.process != getpid()) {
    return absl::UnavailableError(
        "libfabric was started before this process was forked, and a child cannot use it: fork "
        "before that, start a program by exec, or use the paths shm and tcp");
  }
  return loaded.status;
}

const FabricLibrary& LoadedFabricLibrary() {
  const Loaded& loaded = LoadOnce();
  WEFT_CHECK(loaded.status.ok());  // Ours: who uses it has loaded it
  return loaded.library;
}

}  // namespace weft
