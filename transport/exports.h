// The memory of this process that its peers may be given leases on, and who checks their handles.
//
//   exporter   Exports::Add() -> Export::handle(), Derive() -> bytes in a message to whomever
//   holder     RemoteAccess::Resolve() -> the owner's engine checks: code (in constant time), slot
//              and generation, tenant, expiry, layout -> a registration for this lease alone
//
// Export states, and who moves them:
//   kOpen       Add(). -> kRevoking: Revoke()
//   kRevoking   its handles are stale; its holders have been told; the registrations of its leases
//               are closed, when the grace is over. -> kReclaimed
//   kReclaimed  nobody can touch the memory any more, no peer and no network card: it may be
//               reused, or unmapped.
//
// Closing a registration is not always the end. On shared memory, on tcp and on InfiniBand and RoCE
// cards it is. Elsewhere what had begun may still be on its way into the memory, or out of it, and
// the memory is *pinned* until there is a proof that nothing is, or until the end of the
// connection:
//
//   ofi_tcp           a fence: one batch that the peer's provider acknowledges. The peer's program
//                     has no say in it, but its engine has to be driven.
//   iWARP, Soft-RoCE  two probes, which the peer's engine answers (RemoteAccess::Reclaim() says why
//                     two): they take the peer's word.
//
// Threads: engine thread. Lifetime: an Export is destroyed before the Transport.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/bytes.h"
#include "transport/lease.h"
#include "transport/operation.h"
#include "transport/region_handle.h"

namespace weft {

struct ExportOptions {
  Rights rights = kMayRead;  // the most that its handles grant
  uint32_t tenant = kDefaultTenant;
  // What the memory holds: the version hash of a fixed-layout message, 0 for plain bytes. Who
  // resolves a handle says what it takes it for; different ones are an error.
  uint64_t layout = 0;
  std::string layout_name = {};         // for that error's text; at most 128 bytes
  uint64_t max_lease_ns = kMaxLeaseNs;  // kMinLeaseNs..kMaxLeaseNs; longer ones get this
};

class Export {
 public:
  enum class State : uint8_t { kOpen = 1, kRevoking = 2, kReclaimed = 3 };

  // REQUIRES: kReclaimed.
  virtual ~Export() = default;
  Export(const Export&) = delete;
  Export& operator=(const Export&) = delete;

  virtual State state() const = 0;
  virtual MutableByteSpan memory() const = 0;

  // The whole memory with all the rights of the options, for as long as the export lives.
  virtual RegionHandle handle() const = 0;

  // A part, with fewer rights, for a tenant, for a time (0: as long as the export lives).
  // INVALID_ARGUMENT: out of bounds, or rights that the options do not have.
  virtual absl::StatusOr<RegionHandle> Derive(uint64_t offset, uint64_t length, Rights rights,
                                              uint32_t tenant, uint64_t lifetime_ns) const = 0;

  // Ends it, once. Holders are told at once and have `grace_ns` (0..kMaxLeaseNs) to come to an end;
  // then their registrations are closed. True: kReclaimed already. False: the memory is pinned, and
  // `reclaimed` completes with OK when it is not any more: at the latest when the connections of
  // all that held a lease are gone. That comes in a turn of the engine, never from inside of this;
  // the export may be destroyed there. Null: nobody is told. REQUIRES: kOpen.
  virtual bool Revoke(uint64_t grace_ns, Operation* reclaimed) = 0;

  // Closes the connections of those whose leases still pin the memory: of peers who do not answer,
  // because nobody drives them. REQUIRES: kRevoking.
  virtual void EndHolders() = 0;

  virtual uint32_t leases() const = 0;  // open ones; on any thread

 protected:
  Export() = default;
};

class HandleCode;

// Which export handles name, and how they are told from inventions. A value; any thread.
struct ExportOrigin {
  RegionHandle handle;
  std::shared_ptr<const HandleCode> code;
};

class Exports {
 public:
  // INVALID_ARGUMENT: empty memory, bad options. RESOURCE_EXHAUSTED: kMaxExports, or
  // max_exported_bytes of the network's options.
  virtual absl::StatusOr<std::unique_ptr<Export>> Add(MutableByteSpan memory,
                                                      const ExportOptions& options) = 0;

  // Memory that another engine of this process exports as well, for the peers of this one: a handle
  // of `first`'s, one that is derived from it included, is good here, too. `options` are those of
  // the first. Both are revoked, each on its engine. Other exports of the two engines stay apart.
  // FAILED_PRECONDITION: there are such exports of a third engine here.
  virtual absl::StatusOr<std::unique_ptr<Export>> AddAlike(const ExportOrigin& first,
                                                           MutableByteSpan memory,
                                                           const ExportOptions& options) = 0;
  // Of an export of these, for other engines' AddAlike(). It names a secret: it stays in this
  // process.
  virtual ExportOrigin OriginOf(const Export& exported) const = 0;

 protected:
  ~Exports() = default;
};

// Exports of one engine at one time. Each is an object of about 300 bytes.
inline constexpr uint32_t kMaxExports = 4096;

}  // namespace weft
