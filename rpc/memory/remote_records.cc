#include "rpc/memory/remote_records.h"

#include <utility>

#include "core/check.h"
#include "core/status.h"
#include "core/strings.h"
#include "rpc/client/client_connection.h"
#include "rpc/memory/record_slots.h"
#include "rpc/operation/blocked_caller.h"
#include "rpc/operation/callback_operations.h"
#include "rpc/operation/on_engine.h"
#include "weft/status.h"

namespace weft {
namespace {

// One whose caller waits for it.
class BlockingRecords final : public RecordOperation, public BlockedCaller {
 public:
  using BlockedCaller::BlockedCaller;
  void Finish(absl::Status status) override { GoOn(std::move(status)); }
};

absl::Status CheckShape(const RecordShape& shape, uint64_t memory_bytes) {
  if (memory_bytes % shape.bytes == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat("the remote memory has ", memory_bytes,
                                           " bytes, which is no number of whole ",
                                           shape.layout_name, " records of ", shape.bytes));
}

}  // namespace

absl::StatusOr<std::unique_ptr<RemoteRecords>> RemoteRecords::Open(
    Channel& channel, const RemoteRegion& region, const RecordShape& shape,
    const RemoteMemoryOptions& options) {
  RemoteMemoryOptions memory_options = options;
  memory_options.layout = shape.layout;
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<RemoteMemory> memory,
                        RemoteMemory::Open(channel, region, memory_options));
  WEFT_RETURN_IF_ERROR(CheckShape(shape, memory->size()));
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> buffer,
                        channel.AllocateBuffer(RecordSlots::CountFor(shape.bytes) * shape.bytes));
  return std::unique_ptr<RemoteRecords>(
      new RemoteRecords(std::move(memory), std::move(buffer), shape, options.max_waiting));
}

RemoteRecords::RemoteRecords(std::unique_ptr<RemoteMemory> memory, std::unique_ptr<Buffer> buffer,
                             const RecordShape& shape, uint32_t max_waiting)
    : memory_(std::move(memory)),
      buffer_(std::move(buffer)),
      shape_(shape),
      size_(memory_->size() / shape.bytes),
      slots_(new RecordSlots(CoreOf(memory_->channel().engine()), *memory_, shape, buffer_->slice(),
                             max_waiting)) {}

RemoteRecords::~RemoteRecords() {
  EngineCore& own = engine();
  if (own.forked()) {
    LeaveBehind(static_cast<RecordSlots*>(slots_));
    return;
  }
  WEFT_CHECK(!own.InTurn());  // User: not destroyed inside a callback
  RunOnEngine(own, [this] { slots_->Shutdown(); });
  memory_.reset();  // what is on its way ends
  RunOnEngine(own, [this] { delete slots_; });
}

EngineCore& RemoteRecords::engine() const { return slots_->engine(); }

RecordStats RemoteRecords::stats() {
  RecordStats stats;
  RunOnEngine(engine(), [&] { stats = slots_->stats(); });
  return stats;
}

absl::Status RemoteRecords::Check(absl::Span<const uint64_t> indices) const {
  for (uint64_t index : indices) {
    if (index < size_) [[likely]]
      continue;
    const std::string text = StrCat("there are ", size_, " records of ", shape_.layout_name,
                                    "; none is number ", index, " (not sent)");
    return WithDelivery(absl::OutOfRangeError(text), Delivery::kNotSent);
  }
  return absl::OkStatus();
}

// --- blocking -----------------------------------------------------------------------------------

template <class Fill>
absl::Status RemoteRecords::Run(Fill fill) {
  BlockingRecords operation(engine());
  fill(operation);
  WEFT_RETURN_IF_ERROR(Check(operation.indices));
  WEFT_RETURN_IF_ERROR(StartAndWait(engine(), operation.waiter(), /*behind=*/false, [&] {
    ClientConnection& client = internal::ConnectionOf(memory_->channel());
    slots_->Start(operation, absl::OkStatus());
    client.calls().FlushUnlessInTurn();
  }));
  return std::move(operation.status());
}

absl::Status RemoteRecords::Read(absl::Span<const uint64_t> indices, std::byte* out) {
  return Run([&](RecordOperation& operation) { operation.SetRead(indices, out); });
}

absl::Status RemoteRecords::Write(uint64_t index, const std::byte* record) {
  return Run([&](RecordOperation& operation) { operation.SetOne(index, nullptr, record); });
}

// --- with a callback ----------------------------------------------------------------------------

template <class Fill>
void RemoteRecords::Begin(Fill fill, Function<void(absl::Status)> done) {
  const auto filled = [&](CallbackRecords* operation) {
    operation->done = std::move(done);
    fill(*operation);
    return operation;
  };
  const auto start = [&] {
    CallbackRecords& operation = *filled(slots_->NewOperation());
    slots_->Start(operation, Check(operation.indices));
  };
  const auto post = [&] {
    std::unique_ptr<CallbackRecords> operation(filled(new CallbackRecords));
    absl::Status valid = Check(operation->indices);
    operation = PostOwned(engine(), std::move(operation),
                          [slots = slots_, valid = std::move(valid)](CallbackRecords& posted) {
                            slots->Start(posted, valid);
                          });
    if (operation != nullptr) operation->Abandon(NotPostedError(engine()));
  };
  StartOrPost(engine(), /*behind=*/false, start, post,
              [&] { internal::ConnectionOf(memory_->channel()).calls().FlushUnlessInTurn(); });
}

void RemoteRecords::Read(absl::Span<const uint64_t> indices, std::byte* out,
                         Function<void(absl::Status)> done) {
  Begin([&](RecordOperation& operation) { operation.SetRead(indices, out); }, std::move(done));
}

void RemoteRecords::ReadOne(uint64_t index, std::byte* out, Function<void(absl::Status)> done) {
  Begin([&](RecordOperation& operation) { operation.SetOne(index, out, nullptr); },
        std::move(done));
}

void RemoteRecords::Write(uint64_t index, const std::byte* record,
                          Function<void(absl::Status)> done) {
  Begin([&](RecordOperation& operation) { operation.SetOne(index, nullptr, record); },
        std::move(done));
}

}  // namespace weft
