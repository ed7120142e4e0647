#include "rpc/memory/remote_memory.h"

#include <utility>

#include "core/check.h"
#include "core/clock.h"
#include "core/status.h"
#include "core/strings.h"
#include "rpc/memory/remote_memory_core.h"
#include "rpc/memory/remote_operation.h"
#include "rpc/operation/callback_operations.h"
#include "rpc/operation/on_engine.h"
#include "rpc/wire/region_handle_proto.h"
#include "transport/lease.h"
#include "weft/status.h"

namespace weft {
namespace {

using Kind = RemoteOperation::Kind;

constexpr uint32_t kMostWaiting = 65536;

absl::Status CheckOptions(const RemoteMemoryOptions& options) {
  const uint64_t least_us = kMinLeaseNs / kNsPerUs;
  const uint64_t most_us = kMaxLeaseNs / kNsPerUs;
  if (options.lease_us < least_us || options.lease_us > most_us) {
    return absl::InvalidArgumentError(StrCat("RemoteMemoryOptions::lease_us is ", options.lease_us,
                                             "; ", least_us, " to ", most_us, " are allowed"));
  }
  if (options.max_waiting < 1 || options.max_waiting > kMostWaiting) {
    return absl::InvalidArgumentError(StrCat("RemoteMemoryOptions::max_waiting is ",
                                             options.max_waiting, "; 1 to ", kMostWaiting,
                                             " are allowed"));
  }
  return absl::OkStatus();
}

// Reads or writes one piece inside the call, if it can be: the way of most over shared memory. Any
// thread.
bool MoveNow(RemoteMemoryCore& core, Kind kind, uint64_t offset, const Slice& local) {
  EngineCore& engine = core.engine();
  if (core.handing_over() || !engine.Enter()) return false;
  const bool moved = core.MoveNow(kind, offset, local);
  engine.Leave();
  return moved;
}

// Carries out a filled-in operation, and waits for its end.
absl::Status Run(EngineCore& engine, RemoteMemoryCore& core, BlockingOperation& operation) {
  WEFT_RETURN_IF_ERROR(core.Check(operation));
  // The way of most: this thread may drive the engine, and what the link can carry out inside the
  // post needs no turn of it.
  if (!core.handing_over() && !engine.InTurn() && engine.Enter()) [[likely]] {
    const bool done = core.Begin(operation) == Posted::kDone;
    if (!done) {
      core.Flush();
      engine.Wait(operation.waiter());
    } else if (core.TurnIsDue()) {
      engine.Poll();
    }
    engine.Leave();
    return done ? absl::OkStatus() : std::move(operation.status());
  }
  WEFT_RETURN_IF_ERROR(StartAndWait(engine, operation.waiter(), core.handing_over(), [&] {
    RemoteMemoryCore& started = core;  // of what is captured nothing may be there any more
    core.Start(operation, absl::OkStatus());
    started.Flush();
  }));
  return std::move(operation.status());
}

// From another thread than the engine's: hands the operation over. What this thread starts later
// may find a shorter way to the engine: further operations take this one too, until all have
// arrived; calls are held until a write is there.
void PostOperation(EngineCore& engine, RemoteMemoryCore& core,
                   std::unique_ptr<CallbackOperation> operation) {
  operation->core = &core;
  operation->KeepPieces();
  const bool holds = operation->kind == Kind::kWrite;
  core.BeginHandOver();
  if (holds) core.HoldCalls();
  const absl::Status valid = core.Check(*operation);
  operation =
      PostOwned(engine, std::move(operation), [&core, valid, holds](CallbackOperation& posted) {
        core.EndHandOver();
        core.Start(posted, valid);
        if (holds) core.ReleaseCalls();
      });
  if (operation == nullptr) return;
  core.EndHandOver();
  if (holds) RunOnEngine(engine, [&] { core.ReleaseCalls(); });
  operation->Abandon(InboxFullError());
}

// Starts an operation that `fill` fills in.
template <class Fill>
void Begin(EngineCore& engine, RemoteMemoryCore& core, Fill fill) {
  const auto start = [&] {
    CallbackOperation* operation = core.NewOperation();
    fill(*operation);
    core.StartFromCallback(*operation, core.Check(*operation));
  };
  const auto post = [&] {
    auto operation = std::make_unique<CallbackOperation>();
    fill(*operation);
    PostOperation(engine, core, std::move(operation));
  };
  StartOrPost(engine, core.handing_over(), start, post, [&] { core.Flush(); });
}

// The same; true: it is done, and has no callback.
template <class Fill>
bool BeginNow(EngineCore& engine, RemoteMemoryCore& core, Fill fill) {
  const bool on_engine = engine.OnEngine();
  if (core.handing_over() || !engine.Enter()) {
    Begin(engine, core, fill);
    return false;
  }
  CallbackOperation* const operation = core.NewOperation();
  fill(*operation);
  const bool done = core.BeginFromCallback(*operation, core.Check(*operation)) == Posted::kDone;
  if (!done && !on_engine) core.Flush();
  engine.Leave();
  return done;
}

// The owner's answer to a question for a narrower handle, whose asker waits.
class BlockingDerivation final : public Derivation, public BlockedCaller {
 public:
  using BlockedCaller::BlockedCaller;

  void OnDerived(const absl::Status& status, const RegionHandle& handle) override {
    handle_ = handle;
    End(WithDelivery(status, Delivery::kMayHaveRun));
  }
  void End(const absl::Status& status) { GoOn(status); }
  absl::StatusOr<RemoteRegion> result() {
    if (!status().ok()) return status();
    RemoteRegion region;
    ToProto(handle_, &region);
    return region;
  }

 private:
  RegionHandle handle_;
};

void FillAtomic(RemoteOperation& operation, Kind kind, uint64_t offset, uint64_t operand,
                uint64_t desired) {
  operation.kind = kind;
  operation.offset = offset;
  operation.operand = operand;
  operation.desired = desired;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RemoteMemory>> RemoteMemory::Open(
    Channel& channel, const RemoteRegion& region, const RemoteMemoryOptions& options) {
  WEFT_RETURN_IF_ERROR(CheckOptions(options));
  WEFT_ASSIGN_OR_RETURN(const RegionHandle handle, FromProto(region));
  EngineCore& engine = CoreOf(channel.engine());
  if (options.resolve_at_once && engine.InTurn()) {
    return absl::FailedPreconditionError(
        "RemoteMemory::Open would wait inside a callback of its own engine: set "
        "RemoteMemoryOptions::resolve_at_once to false");
  }
  std::unique_ptr<RemoteMemory> memory(new RemoteMemory(channel, handle, options));
  RemoteMemoryCore& core = *memory->core_;
  if (!options.resolve_at_once) {
    RunOnEngine(engine, [&] { core.Watch(); });
    return memory;
  }
  absl::Status opened;
  Waiter waiter;
  RunOnEngine(engine, [&] {
    core.Open([&](absl::Status status) {
      opened = std::move(status);
      engine.Finish(waiter);
    });
  });
  engine.Wait(waiter);
  if (!opened.ok()) return opened;
  return memory;
}

RemoteMemory::RemoteMemory(Channel& channel, const RegionHandle& handle,
                           const RemoteMemoryOptions& options)
    : channel_(channel),
      handle_(handle),
      core_(new RemoteMemoryCore(CoreOf(channel.engine()), internal::ConnectionOf(channel), handle,
                                 options)) {}

RemoteMemory::~RemoteMemory() {
  EngineCore& engine = core_->engine();
  WEFT_CHECK(!engine.InTurn());
  Waiter gone;
  // Behind everything that was posted: those operations get their callbacks.
  RunOnEngine(engine, [&] { core_->Shutdown(&gone); });
  engine.Wait(gone);
}

absl::StatusOr<RemoteRegion> RemoteMemory::Derive(uint64_t offset, uint64_t length, Rights rights,
                                                  uint64_t lifetime_us) {
  EngineCore& engine = core_->engine();
  BlockingDerivation derivation(engine);
  WEFT_RETURN_IF_ERROR(StartAndWait(engine, derivation.waiter(), /*behind=*/false, [&] {
    Connection* connection = internal::ConnectionOf(channel_).open_connection();
    if (connection == nullptr) {
      return derivation.End(WithDelivery(
          absl::UnavailableError(StrCat("not connected to ", channel_.address(), " (not sent)")),
          Delivery::kNotSent));
    }
    const absl::Status asked = connection->memory().Derive(handle_, offset, length, rights,
                                                           lifetime_us * kNsPerUs, &derivation);
    if (!asked.ok()) derivation.End(WithDelivery(asked, Delivery::kNotSent));
  }));
  return derivation.result();
}

// --- blocking -----------------------------------------------------------------------------------

absl::Status RemoteMemory::Read(uint64_t offset, const Slice& into) {
  if (!core_->engine().InTurn() && MoveNow(*core_, Kind::kRead, offset, into)) [[likely]]
    return absl::OkStatus();
  const RemotePiece piece{offset, into};
  return ReadBatch(absl::Span<const RemotePiece>(&piece, 1));
}

absl::Status RemoteMemory::Write(uint64_t offset, const Slice& from) {
  if (!core_->engine().InTurn() && MoveNow(*core_, Kind::kWrite, offset, from)) [[likely]]
    return absl::OkStatus();
  const RemotePiece piece{offset, from};
  return WriteBatch(absl::Span<const RemotePiece>(&piece, 1));
}

absl::Status RemoteMemory::ReadBatch(absl::Span<const RemotePiece> pieces) {
  BlockingOperation operation(core_->engine());
  operation.kind = Kind::kRead;
  operation.pieces = pieces;
  return Run(core_->engine(), *core_, operation);
}

absl::Status RemoteMemory::WriteBatch(absl::Span<const RemotePiece> pieces) {
  BlockingOperation operation(core_->engine());
  operation.kind = Kind::kWrite;
  operation.pieces = pieces;
  return Run(core_->engine(), *core_, operation);
}

absl::StatusOr<uint64_t> RemoteMemory::FetchAdd(uint64_t offset, uint64_t operand) {
  BlockingOperation operation(core_->engine());
  FillAtomic(operation, Kind::kFetchAdd, offset, operand, 0);
  WEFT_RETURN_IF_ERROR(Run(core_->engine(), *core_, operation));
  return operation.before;
}

absl::StatusOr<uint64_t> RemoteMemory::CompareSwap(uint64_t offset, uint64_t expected,
                                                   uint64_t desired) {
  BlockingOperation operation(core_->engine());
  FillAtomic(operation, Kind::kCompareSwap, offset, expected, desired);
  WEFT_RETURN_IF_ERROR(Run(core_->engine(), *core_, operation));
  return operation.before;
}

// --- with a callback ----------------------------------------------------------------------------

void RemoteMemory::Read(uint64_t offset, const Slice& into, Function<void(absl::Status)> done) {
  const RemotePiece piece{offset, into};
  ReadBatch(absl::Span<const RemotePiece>(&piece, 1), std::move(done));
}

void RemoteMemory::Write(uint64_t offset, const Slice& from, Function<void(absl::Status)> done) {
  const RemotePiece piece{offset, from};
  WriteBatch(absl::Span<const RemotePiece>(&piece, 1), std::move(done));
}

void RemoteMemory::ReadBatch(absl::Span<const RemotePiece> pieces,
                             Function<void(absl::Status)> done) {
  Begin(core_->engine(), *core_, [&](CallbackOperation& operation) {
    operation.kind = Kind::kRead;
    operation.pieces = pieces;
    operation.done = std::move(done);
  });
}

void RemoteMemory::WriteBatch(absl::Span<const RemotePiece> pieces,
                              Function<void(absl::Status)> done) {
  Begin(core_->engine(), *core_, [&](CallbackOperation& operation) {
    operation.kind = Kind::kWrite;
    operation.pieces = pieces;
    operation.done = std::move(done);
  });
}

void RemoteMemory::FetchAdd(uint64_t offset, uint64_t operand,
                            Function<void(absl::StatusOr<uint64_t>)> done) {
  Begin(core_->engine(), *core_, [&](CallbackOperation& operation) {
    FillAtomic(operation, Kind::kFetchAdd, offset, operand, 0);
    operation.done_with_number = std::move(done);
  });
}

void RemoteMemory::CompareSwap(uint64_t offset, uint64_t expected, uint64_t desired,
                               Function<void(absl::StatusOr<uint64_t>)> done) {
  Begin(core_->engine(), *core_, [&](CallbackOperation& operation) {
    FillAtomic(operation, Kind::kCompareSwap, offset, expected, desired);
    operation.done_with_number = std::move(done);
  });
}

// --- at once, or with a callback ----------------------------------------------------------------

bool RemoteMemory::ReadNow(uint64_t offset, const Slice& into, Function<void(absl::Status)> done) {
  if (MoveNow(*core_, Kind::kRead, offset, into)) [[likely]]
    return true;
  const RemotePiece piece{offset, into};
  return BeginNow(core_->engine(), *core_, [&](CallbackOperation& operation) {
    operation.kind = Kind::kRead;
    operation.pieces = absl::Span<const RemotePiece>(&piece, 1);
    operation.done = std::move(done);
  });
}

bool RemoteMemory::WriteNow(uint64_t offset, const Slice& from, Function<void(absl::Status)> done) {
  if (MoveNow(*core_, Kind::kWrite, offset, from)) [[likely]]
    return true;
  const RemotePiece piece{offset, from};
  return BeginNow(core_->engine(), *core_, [&](CallbackOperation& operation) {
    operation.kind = Kind::kWrite;
    operation.pieces = absl::Span<const RemotePiece>(&piece, 1);
    operation.done = std::move(done);
  });
}

// --- for coroutines -----------------------------------------------------------------------------

bool RemoteAwaiter::StartNow() {
  auto done = [this](absl::Status status) {
    status_ = std::move(status);
    resumption_();
  };
  return reads_ ? memory_.ReadNow(offset_, local_, done) : memory_.WriteNow(offset_, local_, done);
}

}  // namespace weft
