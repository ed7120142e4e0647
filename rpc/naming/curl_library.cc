#include "rpc/naming/curl_library.h"

#include <dlfcn.h>

#include <type_traits>

#include "core/check.h"
#include "core/process_wide.h"
#include "core/status.h"
#include "core/strings.h"

namespace weft {
namespace {

// The names of the interface since 7.16: Debian's builds with OpenSSL and with GnuTLS.
constexpr const char* kFiles[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};

struct Loaded {
  CurlLibrary library;
  absl::Status status;
};

Loaded Load() {
  Loaded loaded;
  void* handle = nullptr;
  const auto fail = [&] {
    const char* const why = dlerror();
    if (!loaded.status.ok()) return;
    loaded.status = absl::UnavailableError(
        StrCat("libcurl, by which etcd is asked, is not there: ", why == nullptr ? "" : why,
               " (Debian 12: libcurl4, Debian 13: libcurl4t64)"));
  };
  for (const char* file : kFiles) {
    handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) break;
  }
  const auto find = [&](const char* name, auto* function) {
    void* const found = handle == nullptr ? nullptr : dlsym(handle, name);
    if (found == nullptr) fail();
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(found);
  };
  CurlLibrary& curl = loaded.library;
  find("curl_global_init", &curl.global_init);
  find("curl_easy_init", &curl.easy_init);
  find("curl_easy_setopt", &curl.easy_setopt);
  find("curl_easy_getinfo", &curl.easy_getinfo);
  find("curl_easy_cleanup", &curl.easy_cleanup);
  find("curl_easy_strerror", &curl.easy_strerror);
  find("curl_slist_append", &curl.slist_append);
  find("curl_slist_free_all", &curl.slist_free_all);
  find("curl_multi_init", &curl.multi_init);
  find("curl_multi_setopt", &curl.multi_setopt);
  find("curl_multi_add_handle", &curl.multi_add_handle);
  find("curl_multi_remove_handle", &curl.multi_remove_handle);
  find("curl_multi_socket_action", &curl.multi_socket_action);
  find("curl_multi_info_read", &curl.multi_info_read);
  find("curl_multi_cleanup", &curl.multi_cleanup);
  if (loaded.status.ok() && curl.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
    loaded.status = absl::UnavailableError("libcurl, by which etcd is asked, does not start");
  }
  return loaded;
}

const Loaded& LoadOnce() {
  static constinit ProcessWide<Loaded> loaded;
  return loaded.GetOnce(Load, [] { return Loaded{{}, LostInFork("libcurl")}; });
}

}  // namespace

absl::Status LoadCurlLibrary() { return LoadOnce().status; }

const CurlLibrary& LoadedCurlLibrary() {
  const Loaded& loaded = LoadOnce();
  WEFT_CHECK(loaded.status.ok());  // Ours: who uses it has loaded it
  return loaded.library;
}

}  // namespace weft
