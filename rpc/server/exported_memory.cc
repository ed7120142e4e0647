#include "rpc/server/exported_memory.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/status.h"
#include "core/strings.h"
#include "rpc/operation/on_engine.h"
#include "rpc/wire/region_handle_proto.h"
#include "transport/memory_file.h"

namespace weft {
namespace {

// How long the destructor waits for holders' answers before it closes their connections: many times
// an answer's time between machines; peers that nobody drives never answer.
constexpr uint64_t kHolderPatienceUs = 1'000'000;

}  // namespace

// Engine thread only, but for `engine`, `reclaimed` and `leases`.
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
  EngineCore& engine() const { return engine_; }
  Waiter& reclaimed() { return reclaimed_; }
  uint32_t leases() const { return export_->leases(); }

 private:
  void OnComplete(const absl::Status&) override { engine_.Finish(reclaimed_); }

  EngineCore& engine_;
  const std::unique_ptr<Export> export_;
  Waiter reclaimed_;
};

absl::StatusOr<std::unique_ptr<ExportedMemory>> ExportedMemory::Create(
    Engine& engine, MutableByteSpan memory, const ExportOptions& options) {
  return Create(std::vector<EngineCore*>{&CoreOf(engine)}, memory, options);
}

absl::StatusOr<std::unique_ptr<ExportedMemory>> ExportedMemory::Create(
    std::vector<EngineCore*> engines, MutableByteSpan memory, const ExportOptions& options) {
  if (engines.size() > 1 && std::any_of(engines.begin(), engines.end(),
                                        [](EngineCore* engine) { return engine->InTurn(); })) {
    return absl::FailedPreconditionError(StrCat(
        "memory is exported on ", engines.size(),
        " engines, inside a handler of one of them, which cannot wait for the others: export "
        "it before, or where handlers run on an executor"));
  }
  std::vector<std::unique_ptr<Core>> cores;
  ExportOrigin origin;
  absl::Status status;
  for (EngineCore* const engine : engines) {
    const bool ran = RunOnEngine(*engine, [&] {
      Exports& exports = engine->transport().exports();
      absl::StatusOr<std::unique_ptr<Export>> added =
          cores.empty() ? exports.Add(memory, options) : exports.AddAlike(origin, memory, options);
      status = added.status();
      if (!added.ok()) return;
      if (cores.empty()) origin = exports.OriginOf(**added);
      cores.push_back(std::make_unique<Core>(*engine, *std::move(added)));
    });
    if (!ran) status = EngineCore::ForkedError();
    if (!status.ok()) break;
  }
  if (cores.empty()) return status;
  // The destructor takes back what there is.
  std::unique_ptr<ExportedMemory> made(new ExportedMemory(memory, std::move(cores), origin.handle));
  if (!status.ok()) return status;
  if (FindFile(memory).identity == 0) {
    const internal::LogScope scope(engines.front()->log());
    WEFT_LOG(
        kInfo, "exporting ", memory.size(),
        " bytes that peers on this host cannot map: over shared memory each of their reads and "
        "writes is a system call; memory of Server::AllocateExport() is mapped");
  }
  return made;
}

absl::StatusOr<std::unique_ptr<ExportedMemory>> ExportedMemory::Allocate(
    Engine& engine, size_t bytes, const ExportOptions& options, const MappedMemoryOptions& memory) {
  return Allocate(std::vector<EngineCore*>{&CoreOf(engine)}, bytes, options, memory);
}

absl::StatusOr<std::unique_ptr<ExportedMemory>> ExportedMemory::Allocate(
    std::vector<EngineCore*> engines, size_t bytes, const ExportOptions& options,
    const MappedMemoryOptions& memory) {
  MappedMemoryOptions pages = memory;
  pages.peers_may_write = (options.rights & kMayWrite) != 0;
  WEFT_ASSIGN_OR_RETURN(MappedMemory mapped, MappedMemory::Map(bytes, pages));
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<ExportedMemory> exported,
                        Create(std::move(engines), mapped.bytes().first(bytes), options));
  exported->memory_ = std::move(mapped);
  return exported;
}

ExportedMemory::ExportedMemory(MutableByteSpan memory, std::vector<std::unique_ptr<Core>> cores,
                               const RegionHandle& handle)
    : bytes_(memory), cores_(std::move(cores)), handle_(handle) {}

ExportedMemory::~ExportedMemory() {
  if (cores_.front()->engine().forked()) {
    LeaveBehind(std::move(cores_));
    return;
  }
  WEFT_CHECK(CoreInTurn() == nullptr);  // User: not destroyed inside a callback
  if (Revoke(0, kHolderPatienceUs) == Revoked::kPinned) {
    EndHolders();
    Revoke(0);
  }
  for (std::unique_ptr<Core>& core : cores_) {
    EngineCore& engine = core->engine();
    RunOnEngine(engine, [&] { core.reset(); });
  }
}

ExportedMemory::Core* ExportedMemory::CoreInTurn() const {
  for (const std::unique_ptr<Core>& core : cores_) {
    if (core->engine().InTurn()) return core.get();
  }
  return nullptr;
}

void ExportedMemory::handle(RemoteRegion* region) const { ToProto(handle_, region); }

RemoteRegion ExportedMemory::handle() const {
  RemoteRegion region;
  handle(&region);
  return region;
}

// Each engine's export derives the same handles.
absl::StatusOr<RemoteRegion> ExportedMemory::Derive(const DeriveOptions& options) const {
  absl::StatusOr<RegionHandle> derived = EngineCore::ForkedError();  // of which it does not run
  Core* const in_turn = CoreInTurn();
  Core& core = in_turn != nullptr ? *in_turn : *cores_.front();
  RunOnEngine(core.engine(), [&] {
    derived = core.exported().Derive(options.offset, options.length, options.rights, options.tenant,
                                     std::min(options.lifetime_us, kNever / kNsPerUs) * kNsPerUs);
  });
  if (!derived.ok()) return derived.status();
  RemoteRegion region;
  ToProto(*derived, &region);
  return region;
}

// The first engine's last: from then on its slot may be another export's, of which the others are
// to hear after this.
ExportedMemory::Revoked ExportedMemory::Revoke(uint64_t grace_us, uint64_t wait_us) {
  const uint64_t grace_ns = std::min(grace_us, kMaxLeaseNs / kNsPerUs) * kNsPerUs;
  Core* const in_turn = CoreInTurn();
  for (size_t i = cores_.size(); i-- > 0;) {
    Core* const core = cores_[i].get();
    const auto revoke = [core, grace_ns] { core->Revoke(grace_ns); };
    if (in_turn != nullptr && core != in_turn) {
      // The destructor comes behind it.
      PostSurely(core->engine(), revoke);
    } else {
      RunOnEngine(core->engine(), revoke);
    }
  }
  if (in_turn != nullptr) return reclaimed() ? Revoked::kReclaimed : Revoked::kPinned;
  // Beyond a year it is for ever; the clock's nanoseconds would overflow.
  constexpr uint64_t kLongestUs = uint64_t{365} * 24 * 3600 * 1'000'000;
  for (const std::unique_ptr<Core>& core : cores_) {
    EngineCore& engine = core->engine();
    engine.Wait(core->reclaimed(), wait_us > kLongestUs
                                       ? EngineCore::kNoDeadline
                                       : engine.clock().NowNs() + wait_us * kNsPerUs);
  }
  return reclaimed() ? Revoked::kReclaimed : Revoked::kPinned;
}

void ExportedMemory::EndHolders() {
  Core* const in_turn = CoreInTurn();
  for (const std::unique_ptr<Core>& each : cores_) {
    Core* const core = each.get();
    const auto end = [core] { core->EndHolders(); };
    if (in_turn != nullptr && core != in_turn) {
      PostSurely(core->engine(), end);  // as in Revoke()
    } else {
      RunOnEngine(core->engine(), end);
    }
  }
}

bool ExportedMemory::reclaimed() const {
  return std::all_of(cores_.begin(), cores_.end(),
                     [](const auto& core) { return core->reclaimed().done(); });
}

uint32_t ExportedMemory::leases() const {
  uint32_t leases = 0;
  Core* const in_turn = CoreInTurn();
  for (const std::unique_ptr<Core>& core : cores_) {
    if (in_turn != nullptr) {
      leases += core->leases();  // of another engine in the middle of something, perhaps
    } else {
      RunOnEngine(core->engine(), [&] { leases += core->leases(); });
    }
  }
  return leases;
}

}  // namespace weft
