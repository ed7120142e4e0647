#include "rpc/memory/remote_memory.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/clock.h"
#include "core/fork_guard.h"
#include "core/status.h"
#include "core/strings.h"
#include "rpc/memory/remote_memory_core.h"
#include "rpc/memory/remote_operation.h"
#include "rpc/memory/remote_stripes.h"
#include "rpc/operation/callback_operations.h"
#include "rpc/operation/on_engine.h"
#include "rpc/wire/region_handle_proto.h"
#include "transport/lease.h"
#include "weft/status.h"

namespace weft {
namespace {

using Kind = RemoteOperation::Kind;

constexpr uint32_t kMostWaiting = 65536;
constexpr uint64_t kLongestTimeoutUs = 3600 * uint64_t{1'000'000};  // an hour: more is a mistake

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
  if (options.timeout_us > kLongestTimeoutUs) {
    return absl::InvalidArgumentError(StrCat("RemoteMemoryOptions::timeout_us is ",
                                             options.timeout_us, "; 0 to ", kLongestTimeoutUs,
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

// Where an operation ends whose caller waits for it.
class BlockedOperation final : public BlockedCaller {
 public:
  using BlockedCaller::BlockedCaller;

  Function<void(absl::Status)> Callback() {
    return [this](absl::Status status) { GoOn(std::move(status)); };
  }
  Function<void(absl::StatusOr<uint64_t>)> CallbackWithNumber() {
    return [this](absl::StatusOr<uint64_t> found) {
      if (found.ok()) before = *found;
      GoOn(found.status());
    };
  }

  uint64_t before = 0;  // of an atomic
};

// Carries out an operation that `fill` fills in, with `caller` for its end, and waits for that.
template <class Fill>
absl::Status Run(EngineCore& engine, RemoteMemoryCore& core, BlockedOperation& caller, Fill fill) {
  // The way of most: this thread may drive the engine, and what the link can carry out inside the
  // post needs no turn of it.
  if (!core.handing_over() && !engine.InTurn() && engine.Enter()) [[likely]] {
    RemoteOperation& operation = *core.NewOperation();
    fill(operation);
    if (absl::Status valid = core.Check(operation); !valid.ok()) {
      core.Drop(operation);
      engine.Leave();
      return valid;
    }
    const bool done = core.Begin(operation) == Posted::kDone;
    if (!done) {
      core.Flush();
      engine.Drive(caller.waiter());
    } else {
      core.Drop(operation);
      if (core.TurnIsDue()) engine.Poll();
    }
    engine.Leave();
    return done ? absl::OkStatus() : std::move(caller.status());
  }
  WEFT_RETURN_IF_ERROR(StartAndWait(engine, caller.waiter(), core.handing_over(), [&] {
    RemoteMemoryCore& started = core;  // of what is captured nothing may be there any more
    RemoteOperation& operation = *started.NewOperation();
    fill(operation);
    started.Start(operation, started.Check(operation));
    started.Flush();
  }));
  return std::move(caller.status());
}

// From another thread than the engine's: hands the operation over. What this thread starts later
// may find a shorter way to the engine: further operations take this one too, until all have
// arrived; calls are held until a write is there.
void PostOperation(EngineCore& engine, RemoteMemoryCore& core,
                   std::unique_ptr<RemoteOperation> operation) {
  if (engine.forked()) return operation->CallBack(NotPostedError(engine), /*recycle=*/false);
  operation->core = &core;
  operation->KeepPieces();
  const bool holds = operation->is_ordered_write();
  core.BeginHandOver();
  if (holds) core.HoldCalls();
  const absl::Status valid = core.Check(*operation);
  operation =
      PostOwned(engine, std::move(operation), [&core, valid, holds](RemoteOperation& posted) {
        core.EndHandOver();
        core.Start(posted, valid);
        if (holds) core.ReleaseCalls();
      });
  if (operation == nullptr) return;
  core.EndHandOver();
  if (holds) RunOnEngine(engine, [&] { core.ReleaseCalls(); });
  operation->CallBack(NotPostedError(engine), /*recycle=*/false);
}

// Starts an operation that `fill` fills in.
template <class Fill>
void Begin(EngineCore& engine, RemoteMemoryCore& core, Fill fill) {
  const auto start = [&] {
    RemoteOperation* operation = core.NewOperation();
    fill(*operation);
    core.StartFromCallback(*operation, core.Check(*operation));
  };
  const auto post = [&] {
    auto operation = std::make_unique<RemoteOperation>();
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
  RemoteOperation* const operation = core.NewOperation();
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

// Starts the stripes of one that was cut; `fill` fills each in, but for its end.
template <class Fill>
void BeginStripes(EngineCore& home, const std::vector<RemoteStripes::Stripe>& stripes, Fill fill,
                  Function<void(absl::Status)> done) {
  auto* const end = new StripedEnd(home, stripes.size(), std::move(done));  // deletes itself
  for (const RemoteStripes::Stripe& stripe : stripes) {
    Begin(stripe.core->engine(), *stripe.core, [&](RemoteOperation& operation) {
      fill(operation, stripe);
      operation.done = [end, core = stripe.core](absl::Status status) {
        end->OnStripe(*core, std::move(status));
      };
    });
  }
  end->OnStarted();
}

// The same for a caller that waits.
template <class Fill>
absl::Status RunStripes(const RemoteStripes& all, const std::vector<RemoteStripes::Stripe>& stripes,
                        Fill fill) {
  std::vector<std::unique_ptr<BlockedOperation>> callers;
  for (const RemoteStripes::Stripe& stripe : stripes) {
    EngineCore& engine = stripe.core->engine();
    callers.push_back(std::make_unique<BlockedOperation>(engine));
    Begin(engine, *stripe.core, [&](RemoteOperation& operation) {
      fill(operation, stripe);
      operation.done = callers.back()->Callback();
    });
  }
  absl::Status status;
  for (size_t i = 0; i < stripes.size(); ++i) {
    all.Wait(stripes[i].core->engine(), callers[i]->waiter());
    if (status.ok()) status = std::move(callers[i]->status());
  }
  return StatusOfWhole(std::move(status));
}

void FillRead(RemoteOperation& operation, const RemoteStripes::Stripe& stripe) {
  operation.kind = Kind::kRead;
  operation.pieces = stripe.pieces;
}

// What is started behind the whole may be cut elsewhere, or not at all, and go over any lane's
// connection: it has to be behind all of it.
void FillWrite(RemoteOperation& operation, const RemoteStripes::Stripe& stripe) {
  operation.kind = Kind::kWrite;
  operation.unordered = true;
  operation.acknowledged = true;
  operation.pieces = stripe.pieces;
}

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
  if (internal::ConnectionOf(channel).balancer() != nullptr) {
    return absl::InvalidArgumentError(
        StrCat("the channel to ", channel.address(),
               " is over many servers, and memory lies at one of them: open a channel to that"));
  }
  WEFT_ASSIGN_OR_RETURN(const RegionHandle handle, FromProto(region));
  EngineCore& engine = CoreOf(channel.engine());
  if (engine.forked()) return NotPostedError(engine);
  if (options.resolve_at_once && engine.InTurn()) {
    return absl::FailedPreconditionError(
        "RemoteMemory::Open would wait inside a callback of its own engine: set "
        "RemoteMemoryOptions::resolve_at_once to false");
  }
  std::unique_ptr<RemoteMemory> memory(new RemoteMemory(channel.here(), handle, options));
  RemoteMemoryCore& core = *memory->core_;
  if (const ChannelLanes* const lanes = internal::LanesOf(channel); lanes != nullptr) {
    memory->stripes_ =
        std::make_unique<RemoteStripes>(*lanes, lanes->NumberOfThisThread(), core, handle, options);
  }
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
  if (engine.forked()) {
    LeaveBehind(static_cast<RemoteMemoryCore*>(core_));
    LeaveBehind(std::move(stripes_));
    return;
  }
  WEFT_CHECK(!engine.InTurn());  // User: not destroyed inside a callback
  if (stripes_ != nullptr) stripes_->Shutdown();
  Waiter gone;
  // Behind everything that was posted: those operations get their callbacks.
  RunOnEngine(engine, [&] { core_->Shutdown(&gone); });
  engine.Wait(gone);
}

std::unique_ptr<Buffer> RemoteMemory::BufferOf(MutableByteSpan bytes) {
  if (stripes_ != nullptr) return stripes_->BufferOf(bytes);
  return Buffer::Of(core_->engine(), bytes);
}

absl::StatusOr<RemoteRegion> RemoteMemory::Derive(uint64_t offset, uint64_t length, Rights rights,
                                                  uint64_t lifetime_us) {
  const uint64_t lifetime_ns = std::min(lifetime_us, kNever / kNsPerUs) * kNsPerUs;
  EngineCore& engine = core_->engine();
  BlockingDerivation derivation(engine);
  WEFT_RETURN_IF_ERROR(StartAndWait(engine, derivation.waiter(), /*behind=*/false, [&] {
    Connection* connection = internal::ConnectionOf(channel_).open_connection();
    if (connection == nullptr) {
      return derivation.End(WithDelivery(
          absl::UnavailableError(StrCat("not connected to ", channel_.address(), " (not sent)")),
          Delivery::kNotSent));
    }
    const absl::Status asked =
        connection->memory().Derive(handle_, offset, length, rights, lifetime_ns, &derivation);
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
  if (stripes_ != nullptr) [[unlikely]] {
    const auto stripes = stripes_->Cut(Kind::kRead, pieces, /*blocks=*/true);
    if (!stripes.empty()) return RunStripes(*stripes_, stripes, FillRead);
  }
  BlockedOperation caller(core_->engine());
  return Run(core_->engine(), *core_, caller, [&](RemoteOperation& operation) {
    operation.kind = Kind::kRead;
    operation.pieces = pieces;
    operation.done = caller.Callback();
  });
}

// Nothing that its caller starts behind it is started before its end, so others need not wait.
absl::Status RemoteMemory::WriteBatch(absl::Span<const RemotePiece> pieces) {
  if (stripes_ != nullptr) [[unlikely]] {
    const auto stripes = stripes_->Cut(Kind::kWrite, pieces, /*blocks=*/true);
    if (!stripes.empty()) return RunStripes(*stripes_, stripes, FillWrite);
  }
  BlockedOperation caller(core_->engine());
  return Run(core_->engine(), *core_, caller, [&](RemoteOperation& operation) {
    operation.kind = Kind::kWrite;
    operation.unordered = true;
    operation.pieces = pieces;
    operation.done = caller.Callback();
  });
}

absl::Status RemoteMemory::WriteAcknowledged(absl::Span<const RemotePiece> pieces) {
  if (stripes_ != nullptr) [[unlikely]] {
    const auto stripes = stripes_->Cut(Kind::kWrite, pieces, /*blocks=*/true);
    if (!stripes.empty()) return RunStripes(*stripes_, stripes, FillWrite);
  }
  BlockedOperation caller(core_->engine());
  return Run(core_->engine(), *core_, caller, [&](RemoteOperation& operation) {
    operation.kind = Kind::kWrite;
    operation.acknowledged = true;
    operation.pieces = pieces;
    operation.done = caller.Callback();
  });
}

absl::StatusOr<uint64_t> RemoteMemory::FetchAdd(uint64_t offset, uint64_t operand) {
  BlockedOperation caller(core_->engine());
  WEFT_RETURN_IF_ERROR(Run(core_->engine(), *core_, caller, [&](RemoteOperation& operation) {
    FillAtomic(operation, Kind::kFetchAdd, offset, operand, 0);
    operation.done_with_number = caller.CallbackWithNumber();
  }));
  return caller.before;
}

absl::StatusOr<uint64_t> RemoteMemory::CompareSwap(uint64_t offset, uint64_t expected,
                                                   uint64_t desired) {
  BlockedOperation caller(core_->engine());
  WEFT_RETURN_IF_ERROR(Run(core_->engine(), *core_, caller, [&](RemoteOperation& operation) {
    FillAtomic(operation, Kind::kCompareSwap, offset, expected, desired);
    operation.done_with_number = caller.CallbackWithNumber();
  }));
  return caller.before;
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
  if (stripes_ != nullptr) [[unlikely]] {
    const auto stripes = stripes_->Cut(Kind::kRead, pieces, /*blocks=*/false);
    if (!stripes.empty()) return BeginStripes(core_->engine(), stripes, FillRead, std::move(done));
  }
  Begin(core_->engine(), *core_, [&](RemoteOperation& operation) {
    operation.kind = Kind::kRead;
    operation.pieces = pieces;
    operation.done = std::move(done);
  });
}

void RemoteMemory::WriteBatch(absl::Span<const RemotePiece> pieces,
                              Function<void(absl::Status)> done) {
  Begin(core_->engine(), *core_, [&](RemoteOperation& operation) {
    operation.kind = Kind::kWrite;
    operation.pieces = pieces;
    operation.done = std::move(done);
  });
}

void RemoteMemory::WriteUnordered(absl::Span<const RemotePiece> pieces,
                                  Function<void(absl::Status)> done) {
  if (stripes_ != nullptr) [[unlikely]] {
    const auto stripes = stripes_->Cut(Kind::kWrite, pieces, /*blocks=*/false);
    if (!stripes.empty()) return BeginStripes(core_->engine(), stripes, FillWrite, std::move(done));
  }
  Begin(core_->engine(), *core_, [&](RemoteOperation& operation) {
    operation.kind = Kind::kWrite;
    operation.unordered = true;
    operation.pieces = pieces;
    operation.done = std::move(done);
  });
}

void RemoteMemory::WriteAcknowledged(absl::Span<const RemotePiece> pieces,
                                     Function<void(absl::Status)> done) {
  Begin(core_->engine(), *core_, [&](RemoteOperation& operation) {
    operation.kind = Kind::kWrite;
    operation.acknowledged = true;
    operation.pieces = pieces;
    operation.done = std::move(done);
  });
}

void RemoteMemory::FetchAdd(uint64_t offset, uint64_t operand,
                            Function<void(absl::StatusOr<uint64_t>)> done) {
  Begin(core_->engine(), *core_, [&](RemoteOperation& operation) {
    FillAtomic(operation, Kind::kFetchAdd, offset, operand, 0);
    operation.done_with_number = std::move(done);
  });
}

void RemoteMemory::CompareSwap(uint64_t offset, uint64_t expected, uint64_t desired,
                               Function<void(absl::StatusOr<uint64_t>)> done) {
  Begin(core_->engine(), *core_, [&](RemoteOperation& operation) {
    FillAtomic(operation, Kind::kCompareSwap, offset, expected, desired);
    operation.done_with_number = std::move(done);
  });
}

// --- at once, or with a callback ----------------------------------------------------------------

bool RemoteMemory::ReadNow(uint64_t offset, const Slice& into, Function<void(absl::Status)> done) {
  if (MoveNow(*core_, Kind::kRead, offset, into)) [[likely]]
    return true;
  const RemotePiece piece{offset, into};
  return BeginNow(core_->engine(), *core_, [&](RemoteOperation& operation) {
    operation.kind = Kind::kRead;
    operation.pieces = absl::Span<const RemotePiece>(&piece, 1);
    operation.done = std::move(done);
  });
}

bool RemoteMemory::WriteNow(uint64_t offset, const Slice& from, Function<void(absl::Status)> done) {
  if (MoveNow(*core_, Kind::kWrite, offset, from)) [[likely]]
    return true;
  const RemotePiece piece{offset, from};
  return BeginNow(core_->engine(), *core_, [&](RemoteOperation& operation) {
    operation.kind = Kind::kWrite;
    operation.pieces = absl::Span<const RemotePiece>(&piece, 1);
    operation.done = std::move(done);
  });
}

// --- after a deadline ---------------------------------------------------------------------------

bool RemoteMemory::HoldWhileLate(Function<void()>& then) {
  return stripes_ != nullptr ? stripes_->HoldWhileLate(then) : core_->HoldWhileLate(then);
}

void RemoteMemory::WhenReclaimed(Function<void()> then) {
  if (core_->engine().forked()) return;
  if (!HoldWhileLate(then)) then();
}

bool RemoteMemory::WaitReclaimed(uint64_t timeout_us) {
  EngineCore& engine = core_->engine();
  if (engine.forked()) return false;
  // Whoever does not wait long enough leaves it behind.
  const auto waiter = std::make_shared<Waiter>();
  Function<void()> then = [waiter, &engine] { engine.Finish(*waiter); };
  if (!HoldWhileLate(then)) return true;
  if (engine.InTurn()) return false;
  const uint64_t now_ns = engine.clock().NowNs();
  const uint64_t most_us = (EngineCore::kNoDeadline - now_ns) / kNsPerUs;
  const uint64_t deadline_ns =
      timeout_us < most_us ? now_ns + timeout_us * kNsPerUs : EngineCore::kNoDeadline;
  if (stripes_ != nullptr) return stripes_->Wait(engine, *waiter, deadline_ns);
  return engine.Wait(*waiter, deadline_ns);
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
