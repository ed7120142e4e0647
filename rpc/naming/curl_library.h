// libcurl as this machine has it: loaded when it is first asked for, and never unloaded. It is not
// linked, for it brings some twenty libraries along (TLS, Kerberos, LDAP, ...), and programs that
// do not speak to etcd should neither load them nor need them.
//
// Of libcurl's two builds in Debian the one with OpenSSL is taken, and the other one (GnuTLS) where
// only that is installed. Both have the interface of libcurl 7.16 and newer.
//
// Threads: any. curl_global_init() is called with it: before libcurl 7.84, a program that uses
//   libcurl itself is to call that before other threads start. Lifetime: the process's.
// Errors: UNAVAILABLE with the loader's words.
#pragma once

#include <curl/curl.h>

#include "absl/status/status.h"

namespace weft {

struct CurlLibrary {
  decltype(&::curl_global_init) global_init = nullptr;
  decltype(&::curl_easy_init) easy_init = nullptr;
  decltype(&::curl_easy_setopt) easy_setopt = nullptr;
  decltype(&::curl_easy_getinfo) easy_getinfo = nullptr;
  decltype(&::curl_easy_cleanup) easy_cleanup = nullptr;
  decltype(&::curl_easy_strerror) easy_strerror = nullptr;
  decltype(&::curl_slist_append) slist_append = nullptr;
  decltype(&::curl_slist_free_all) slist_free_all = nullptr;
  decltype(&::curl_multi_init) multi_init = nullptr;
  decltype(&::curl_multi_setopt) multi_setopt = nullptr;
  decltype(&::curl_multi_add_handle) multi_add_handle = nullptr;
  decltype(&::curl_multi_remove_handle) multi_remove_handle = nullptr;
  decltype(&::curl_multi_socket_action) multi_socket_action = nullptr;
  decltype(&::curl_multi_info_read) multi_info_read = nullptr;
  decltype(&::curl_multi_cleanup) multi_cleanup = nullptr;
};

// Before anything else of libcurl's is used. The same answer each time. Takes some 10 ms the first
// time.
absl::Status LoadCurlLibrary();

// REQUIRES: LoadCurlLibrary() was OK.
const CurlLibrary& LoadedCurlLibrary();

}  // namespace weft
