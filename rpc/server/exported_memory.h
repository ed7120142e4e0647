// ExportedMemory is memory of this process that others may be given leases on: the owner's side of
// rpc/memory/remote_memory.h.
//
//   auto table = server->AllocateExport(size, {.rights = weft::kMayRead});
//   fill((*table)->bytes());
//   (*table)->handle(reply->mutable_table());           // whoever gets this message may read
//
// Allocate() brings memory that peers on this host map: each of their reads and writes is a copy.
// Create() takes memory that there is already, such as a std::vector's. If it lies in no file in
// memory (transport/mapped_memory.h), each of their operations is a system call instead, some 50
// times as long for 64 bytes (docs/performance.md), or a question to the owner's engine where the
// kernel does not permit that; the log says so, at level info. On all other paths both are the
// same.
//
// A handle is good for the connections of one tenant (ServerOptions::tenant_of tells them apart;
// there is one tenant if nobody does), until it expires or is revoked. Any number of handles can be
// derived: to parts, with fewer rights, for another tenant, for a time.
//
// Reuse: the owner's threads may always read and write the memory themselves (with care: a peer
//   reads while they write; rpc/memory/remote_array.h has records that notice). But it must not be
//   used for anything else, nor unmapped, before reclaimed(): until then a late write of a holder
//   may still be on its way.
//
// Threads: any, several at once. From handlers that run on the engine too, where marked.
// Lifetime: the memory outlives this; this is destroyed before its engine (its Server, if the
//   engine is the server's own). The destructor revokes without grace and returns when the memory
//   is reclaimed: at once on shared memory, on tcp, and on InfiniBand and RoCE cards; on ofi_tcp
//   when the holders' providers have acknowledged, on iWARP and Soft-RoCE when their engines have
//   answered (transport/exports.h). Of those that have not within a second (their programs are
//   stopped, or nobody drives their engines) it closes the connections. REQUIRES: not destroyed
//   from inside a callback of its engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/bytes.h"
#include "transport/exports.h"
#include "transport/mapped_memory.h"
#include "transport/region_handle.h"
#include "weft/memory.pb.h"

namespace weft {

class Engine;
class EngineCore;

// What handles are derived with.
struct DeriveOptions {
  uint64_t offset = 0;
  uint64_t length = 0;  // bytes, at least 1
  Rights rights = kMayRead;
  uint32_t tenant = kDefaultTenant;
  uint64_t lifetime_us = 0;  // 0: as long as the export
};

class ExportedMemory {
 public:
  enum class Revoked : uint8_t {
    kReclaimed = 1,  // nobody can touch the memory any more
    kPinned = 2,     // until there is a proof, or the lease holders are gone; reclaimed() will tell
  };
  static constexpr uint64_t kForever = ~uint64_t{0};

  // On any engine, a server's or a client's. Server::Export() is the usual way.
  // INVALID_ARGUMENT: empty memory, bad options. RESOURCE_EXHAUSTED: the engine's limits.
  static absl::StatusOr<std::unique_ptr<ExportedMemory>> Create(Engine& engine,
                                                                MutableByteSpan memory,
                                                                const ExportOptions& options);
  // On each of these, with the same handles: for a server with several engines (Server::Export()).
  // FAILED_PRECONDITION: inside a callback of one of them, which cannot wait for the others.
  static absl::StatusOr<std::unique_ptr<ExportedMemory>> Create(std::vector<EngineCore*> engines,
                                                                MutableByteSpan memory,
                                                                const ExportOptions& options);
  // As Create(), of `bytes` zeros that belong to this, in a file of their own: a peer that maps it
  // sees these bytes and the rest of their last page, which is zeros. Where `options.rights` has no
  // kMayWrite, the kernel lets peers map it for reading only.
  // It does not grow: ask for as much as it may become. Small pages exist once they are written;
  // huge ones, which memory above 1 MiB has by default, from now on (mapped_memory.h; kNever in
  // `memory.huge_pages` for what is sparse). Peers that still have it mapped keep it for a while
  // after this is gone.
  // RESOURCE_EXHAUSTED, besides: the system has no memory, or no descriptor left.
  static absl::StatusOr<std::unique_ptr<ExportedMemory>> Allocate(
      Engine& engine, size_t bytes, const ExportOptions& options,
      const MappedMemoryOptions& memory = {.source = MappedMemoryOptions::Source::kMemfd});
  static absl::StatusOr<std::unique_ptr<ExportedMemory>> Allocate(
      std::vector<EngineCore*> engines, size_t bytes, const ExportOptions& options,
      const MappedMemoryOptions& memory);
  // What Allocate() takes of the system for so many, with the default for `memory`: whole pages.
  // REQUIRES: bytes <= 2^63.
  static size_t TakenBy(size_t bytes) { return MappedMemory::TakenBy(bytes); }
  ~ExportedMemory();
  ExportedMemory(const ExportedMemory&) = delete;
  ExportedMemory& operator=(const ExportedMemory&) = delete;

  MutableByteSpan bytes() const { return bytes_; }

  // The whole memory with all the rights of the options, as long as this lives. On the engine too.
  void handle(RemoteRegion* region) const;
  RemoteRegion handle() const;

  // A part, with fewer rights. On the engine too. INVALID_ARGUMENT: out of bounds, or rights that
  // the options do not have.
  absl::StatusOr<RemoteRegion> Derive(const DeriveOptions& options) const;

  // Ends all its handles. Holders are told, and have `grace_us` (0..60 s) to come to an end; then
  // their access is closed. Waits for up to `wait_us` for the memory to be reclaimed; on the engine
  // not at all. Again: waits only.
  Revoked Revoke(uint64_t grace_us, uint64_t wait_us = kForever);
  // Closes the connections of those whose leases still pin the revoked memory, as the destructor
  // does: their end reclaims it, in the next turns of the engine. On the engine too. Both sides'
  // calls on such a connection end with UNAVAILABLE; channels connect again. Again, or where
  // nothing is pinned: nothing happens. REQUIRES: Revoke(), whose grace is over.
  void EndHolders();
  bool reclaimed() const;

  uint32_t leases() const;  // open ones

 private:
  class Core;
  ExportedMemory(MutableByteSpan memory, std::vector<std::unique_ptr<Core>> cores,
                 const RegionHandle& handle);
  // Of an engine in whose turn this is, or null.
  Core* CoreInTurn() const;

  // Constant after construction.
  const MutableByteSpan bytes_;
  std::optional<MappedMemory> memory_;        // of Allocate()
  std::vector<std::unique_ptr<Core>> cores_;  // each engine's side; at least one
  const RegionHandle handle_;
};

}  // namespace weft
