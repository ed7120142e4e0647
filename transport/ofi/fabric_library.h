// libfabric as this machine has it: loaded when it is first asked for, and never unloaded.
//
// It is not linked. Debian's brings some fifty libraries along, and one of them (libinfinipath)
// puts its own handlers in the place of the process's for SEGV, BUS, ILL, ABRT, INT and TERM when
// it is loaded. A program, or a host that loads a plugin with Weft in it, would no longer end as it
// wants to. Here they are put back. And where libfabric, or what it needs, is not installed, its
// paths are not there and say so, and everything else works.
//
// Of the functions of libfabric's headers that are not inline Weft uses six, through this.
// What they return and take is made by the library itself (fi_allocinfo() is dupinfo(nullptr)), and
// newer interfaces only append to it, so the newest version of each symbol is the one to have.
//
// Threads: any. Signal dispositions belong to the process: a signal that comes while the library is
//   loaded, 10 ms, may meet its handlers, and a sigaction(2) of another thread's then is undone.
// Lifetime: the process's; in a child of a fork it is not there, for its locks may be another
//   thread's of the parent. Errors: UNAVAILABLE with the loader's words, or, in a child,
//   that it was forked.
#pragma once

#include <rdma/fabric.h>

#include <cstdint>

#include "absl/status/status.h"

namespace weft {

// The interface version that we are written against; the library may be newer.
inline constexpr uint32_t kFabricVersion = FI_VERSION(1, 17);

struct FabricLibrary {
  decltype(&::fi_getinfo) getinfo = nullptr;
  decltype(&::fi_freeinfo) freeinfo = nullptr;
  decltype(&::fi_dupinfo) dupinfo = nullptr;
  decltype(&::fi_fabric) fabric = nullptr;
  decltype(&::fi_version) version = nullptr;
  decltype(&::fi_strerror) strerror = nullptr;
};

// Before anything else of libfabric's is used. The same answer each time in one process. The first
// time starts all providers, and takes 0.3 s and more.
absl::Status LoadFabricLibrary();

// REQUIRES: LoadFabricLibrary() was OK, in this process or in its parent.
const FabricLibrary& LoadedFabricLibrary();

}  // namespace weft
