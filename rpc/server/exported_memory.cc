#include "rpc/server/exported_memory.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/status.h"
#include "rpc/operation/on_engine.h"
#include "rpc/wire/region_handle_proto.h"
#include "transport/memory_file.h"

namespace weft {
namespace {

// How long the destructor waits for holders' answers before it closes their connections: many times
// an answer's time between machines; peers that nobody drives never answer.
constexpr uint64_t kHolderPatienceUs = 1'000'000;

}  // namespace

// Engine thread only, but for `reclaimed`.
class ExportedMemory::Core final : private Operation {
 public:
  Core(EngineCore& engine, std::unique_ptr<Export> exported)
      : engine_(engine), export_(std::move(exported)) {}

  const Export& exported() const { return *export_; }

  void Revoke(uint64_t grace_ns) {
    if (export_->state() != Export::State::kOpen) return;
    if (export_->Revoke(grace_ns, this)) engine_.Finish(reclaimed_);
  }
  void EndHolders() {
    if (export_->state() == Export::State::kRevoking) export_->EndHolders();
  }
  // Any thread.
  Waiter& reclaimed() { return reclaimed_; }

 private:
  void OnComplete(const absl::Status&) override { engine_.Finish(reclaimed_); }

  EngineCore& engine_;
  const std::unique_ptr<Export> export_;
  Waiter reclaimed_;
};

absl::StatusOr<std::unique_ptr<ExportedMemory>> ExportedMemory::Create(
    Engine& engine, MutableByteSpan memory, const ExportOptions& options) {
  EngineCore& owner = CoreOf(engine);
  absl::Status status;
  std::unique_ptr<Core> core;
  RunOnEngine(owner, [&] {
    absl::StatusOr<std::unique_ptr<Export>> added =
        owner.transport().exports().Add(memory, options);
    status = added.status();
    if (added.ok()) core = std::make_unique<Core>(owner, *std::move(added));
  });
  if (!status.ok()) return status;
  if (FindFile(memory).identity == 0) {
    WEFT_LOG(
        kInfo, "exporting ", memory.size(),
        " bytes that peers on this host cannot map: over shared memory each of their reads and "
        "writes is a system call; memory of Server::AllocateExport() is mapped");
  }
  return std::unique_ptr<ExportedMemory>(new ExportedMemory(owner, memory, std::move(core)));
}

absl::StatusOr<std::unique_ptr<ExportedMemory>> ExportedMemory::Allocate(
    Engine& engine, size_t bytes, const ExportOptions& options, const MappedMemoryOptions& memory) {
  MappedMemoryOptions pages = memory;
  pages.peers_may_write = (options.rights & kMayWrite) != 0;
  WEFT_ASSIGN_OR_RETURN(MappedMemory mapped, MappedMemory::Map(bytes, pages));
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<ExportedMemory> exported,
                        Create(engine, mapped.bytes().first(bytes), options));
  exported->memory_ = std::move(mapped);
  return exported;
}

ExportedMemory::ExportedMemory(EngineCore& engine, MutableByteSpan memory,
                               std::unique_ptr<Core> core)
    : engine_(engine), bytes_(memory), core_(std::move(core)) {
  RunOnEngine(engine_, [this] { handle_ = core_->exported().handle(); });
}

ExportedMemory::~ExportedMemory() {
  WEFT_CHECK(!engine_.InTurn());  // User: not destroyed inside a callback
  if (Revoke(0, kHolderPatienceUs) == Revoked::kPinned) {
    RunOnEngine(engine_, [this] { core_->EndHolders(); });
    Revoke(0);
  }
  RunOnEngine(engine_, [this] { core_.reset(); });
}

void ExportedMemory::handle(RemoteRegion* region) const { ToProto(handle_, region); }

RemoteRegion ExportedMemory::handle() const {
  RemoteRegion region;
  handle(&region);
  return region;
}

absl::StatusOr<RemoteRegion> ExportedMemory::Derive(const DeriveOptions& options) const {
  absl::StatusOr<RegionHandle> derived;
  RunOnEngine(engine_, [&] {
    derived = core_->exported().Derive(options.offset, options.length, options.rights,
                                       options.tenant, options.lifetime_us * kNsPerUs);
  });
  if (!derived.ok()) return derived.status();
  RemoteRegion region;
  ToProto(*derived, &region);
  return region;
}

ExportedMemory::Revoked ExportedMemory::Revoke(uint64_t grace_us, uint64_t wait_us) {
  RunOnEngine(engine_,
              [&] { core_->Revoke(std::min(grace_us, kMaxLeaseNs / kNsPerUs) * kNsPerUs); });
  if (!engine_.InTurn()) {
    // Beyond a year it is for ever; the clock's nanoseconds would overflow.
    constexpr uint64_t kLongestUs = uint64_t{365} * 24 * 3600 * 1'000'000;
    engine_.Wait(core_->reclaimed(), wait_us > kLongestUs
                                         ? EngineCore::kNoDeadline
                                         : engine_.clock().NowNs() + wait_us * kNsPerUs);
  }
  return reclaimed() ? Revoked::kReclaimed : Revoked::kPinned;
}

bool ExportedMemory::reclaimed() const { return core_->reclaimed().done(); }

uint32_t ExportedMemory::leases() const {
  uint32_t leases = 0;
  RunOnEngine(engine_, [&] { leases = core_->exported().leases(); });
  return leases;
}

}  // namespace weft
