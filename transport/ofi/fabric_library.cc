#include "transport/ofi/fabric_library.h"

#include <dlfcn.h>

#include <csignal>
#include <cstddef>
#include <iterator>
#include <type_traits>

#include "core/check.h"
#include "core/process_wide.h"
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
};

absl::Status LoadFailed() {
  const char* const why = dlerror();
  return absl::UnavailableError(
      StrCat("libfabric is not there: ", why == nullptr ? kFile : why, " (Debian: libfabric1)"));
}

Loaded Load() {
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

const Loaded& LoadOnce() {
  static constinit ProcessWide<Loaded> loaded;
  static constinit ProcessWide<Loaded> lost;
  if (const Loaded* const found = loaded.GetOnce(Load)) return *found;
  // How far it had come nobody knows here, and no library is loaded by halves.
  return lost.Get([] {
    return Loaded{{},
                  absl::UnavailableError(
                      "libfabric was just being loaded by another thread when this process was "
                      "forked: fork before or after that, or start a program by exec")};
  });
}

}  // namespace

absl::Status LoadFabricLibrary() { return LoadOnce().status; }

const FabricLibrary& LoadedFabricLibrary() {
  const Loaded& loaded = LoadOnce();
  WEFT_CHECK(loaded.status.ok());  // Ours: who uses it has loaded it
  return loaded.library;
}

}  // namespace weft
