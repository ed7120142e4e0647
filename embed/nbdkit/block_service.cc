#include "embed/nbdkit/block_service.h"

#include <string>
#include <utility>

#include "core/status.h"
#include "core/strings.h"
#include "embed/nbdkit/block_limits.h"
#include "weft/bulk.h"

namespace weft::embed {
namespace {

MutableByteSpan BytesOf(std::string* text) {
  return {reinterpret_cast<std::byte*>(text->data()), text->size()};
}

absl::Status TooLarge(uint64_t bytes, uint64_t limit) {
  return absl::InvalidArgumentError(
      StrCat("a payload of ", bytes, " bytes; the limit is ", limit, ": send it in pieces"));
}

absl::Status TooLong(uint64_t bytes) {
  return absl::InvalidArgumentError(StrCat("a range of ", bytes,
                                           " bytes to trim or zero; the limit is ", kMaxRangeBytes,
                                           ": send it in pieces"));
}

}  // namespace

BlockService::BlockService(BlockDevice& device, Engine& engine, BufferPool& buffers, int threads)
    : device_(device),
      sessions_(
          engine, buffers, [this](Sessions::Session& session) { Open(session); },
          [](Sessions::Session&) {}),
      disks_(std::make_unique<DiskPool>(threads)),
      range_thread_(std::make_unique<DiskPool>(1)) {}

BlockService::~BlockService() {
  sessions_.Stop();
  range_thread_.reset();
  disks_.reset();
  sessions_.Clear();
}

void BlockService::LimitServer(ServerOptions* options) {
  options->max_outstanding_calls = kMaxRequests;
  options->max_request_bytes = kMaxInlineBytes + 4096;  // the rest of a request is below 100 bytes
  options->max_streams = 2;  // a session, and the next one while that ends
}

// --- sessions ------------------------------------------------------------------------------------

void BlockService::StartAttach(const wire::AttachRequest& request,
                               ServerWriter<wire::AttachReply> stream) {
  if (request.client().size() != kClientIdBytes) {
    return stream.Finish(absl::InvalidArgumentError(
        StrCat("a client's id has ", kClientIdBytes, " bytes, not ", request.client().size())));
  }
  sessions_.Attach(request.client(), std::move(stream));
}

void BlockService::Open(Sessions::Session& session) {
  const BlockDevice::Facts& facts = device_.facts();
  session.told.set_bytes(facts.bytes);
  session.told.set_read_only(facts.read_only);
  session.told.set_rotational(facts.rotational);
  session.told.set_preferred_bytes(facts.preferred_bytes);
  sessions_.Open(session, device_.epoch());
}

absl::StatusOr<BlockService::Ticket> BlockService::Admit(uint64_t number, uint64_t offset,
                                                         uint64_t bytes, Kind kind) {
  WEFT_ASSIGN_OR_RETURN(Ticket ticket, sessions_.Admit(number, device_.epoch(), 2 * kMaxRequests));
  const BlockDevice::Facts& facts = device_.facts();
  if (offset > facts.bytes || bytes > facts.bytes - offset) {
    return absl::OutOfRangeError(
        StrCat(bytes, " bytes at ", offset, " of a device of ", facts.bytes));
  }
  if (kind == Kind::kWrites && facts.read_only) {
    return absl::PermissionDeniedError("the device is served for reading only");
  }
  return ticket;
}

// --- requests ------------------------------------------------------------------------------------

template <class Call, class Work>
void BlockService::RunOnDisk(Call call, Ticket ticket, Work work) {
  Sessions::RunOn(
      *disks_, std::move(call), std::move(ticket),
      [this, work = std::move(work)](auto& call) mutable { return work(device_, call); });
}

void BlockService::StartRead(UnaryCall<wire::ReadRequest, wire::ReadReply> call) {
  const wire::ReadRequest& request = call.request();
  absl::StatusOr<Ticket> ticket =
      Admit(request.session(), request.offset(), request.bytes(), Kind::kReads);
  if (!ticket.ok()) return call.Finish(ticket.status());
  if (request.bytes() > kMaxPayloadBytes) {
    return call.Finish(TooLarge(request.bytes(), kMaxPayloadBytes));
  }
  if (request.bytes() <= kMaxInlineBytes) return ReadInline(std::move(call), *std::move(ticket));
  absl::StatusOr<std::unique_ptr<Buffer>> buffer = sessions_.Allocate(**ticket, request.bytes());
  if (!buffer.ok()) return call.Finish(buffer.status());
  const uint64_t client = (*ticket)->client;
  disks_->Run(client, [this, call = std::move(call), ticket = *std::move(ticket),
                       buffer = *std::move(buffer)]() mutable {
    if (ticket->state.load() == Sessions::State::kClosed) return call.Finish(SessionOver());
    const wire::ReadRequest& request = call.request();
    absl::Status read = device_.Read(request.offset(), buffer->bytes());
    if (!read.ok()) return call.Finish(std::move(read));
    const Slice slice = buffer->slice();
    ServerContext& context = call.context();
    weft::Bulk* const field = call.reply()->mutable_lent_data();
    const BulkOptions options = {.crc32c = !request.without_crc32c()};
    context.bulk().Push(slice, field, options,
                        [call = std::move(call), ticket = std::move(ticket),
                         buffer = std::move(buffer)](absl::Status pushed) mutable {
                          buffer.reset();
                          call.Finish(std::move(pushed));
                        });
  });
}

void BlockService::ReadInline(UnaryCall<wire::ReadRequest, wire::ReadReply> call, Ticket ticket) {
  std::string* const data = call.reply()->mutable_inline_data();
  data->resize(call.request().bytes());
  if (data->empty() || device_.ReadCached(call.request().offset(), BytesOf(data))) {
    return call.Finish(absl::OkStatus());
  }
  RunOnDisk(std::move(call), std::move(ticket), [data](BlockDevice& device, auto& call) {
    return device.Read(call.request().offset(), BytesOf(data));
  });
}

void BlockService::StartWrite(UnaryCall<wire::WriteRequest, wire::WriteReply> call) {
  const wire::WriteRequest& request = call.request();
  const bool is_lent = request.has_lent_data();
  const uint64_t bytes = is_lent ? request.lent_data().length() : request.inline_data().size();
  const uint64_t limit = is_lent ? kMaxPayloadBytes : kMaxInlineBytes;
  absl::StatusOr<Ticket> ticket = Admit(request.session(), request.offset(), bytes, Kind::kWrites);
  if (!ticket.ok()) return call.Finish(ticket.status());
  if (bytes > limit) return call.Finish(TooLarge(bytes, limit));
  if (bytes == 0) return call.Finish(absl::OkStatus());
  if (!is_lent) {
    return RunChange(*disks_, std::move(call), *std::move(ticket),
                     [](BlockDevice& device, const wire::WriteRequest& request) {
                       return device.Write(request.offset(), AsBytes(request.inline_data()));
                     });
  }
  absl::StatusOr<std::unique_ptr<Buffer>> buffer = sessions_.Allocate(**ticket, bytes);
  if (!buffer.ok()) return call.Finish(buffer.status());
  const Slice slice = (*buffer)->slice();
  ServerContext& context = call.context();
  context.bulk().Fetch(
      request.lent_data(), slice,
      [this, call = std::move(call), ticket = *std::move(ticket),
       buffer = *std::move(buffer)](absl::Status fetched) mutable {
        if (!fetched.ok()) return call.Finish(std::move(fetched));
        RunChange(*disks_, std::move(call), std::move(ticket),
                  [buffer = std::move(buffer)](BlockDevice& device,
                                               const wire::WriteRequest& request) mutable {
                    absl::Status written = device.Write(request.offset(), buffer->bytes());
                    buffer.reset();
                    return written;
                  });
      });
}

template <class Call, class Change>
void BlockService::RunChange(DiskPool& threads, Call call, Ticket ticket, Change change) {
  const uint64_t client = ticket->client;
  threads.Run(client, [this, change = std::move(change), call = std::move(call),
                       ticket = std::move(ticket)]() mutable {
    if (ticket->state.load() == Sessions::State::kClosed) return call.Finish(SessionOver());
    if (call.context().cancelled()) {
      return call.Finish(absl::CancelledError("the client has given up: not carried out"));
    }
    absl::Status changed = change(device_, call.request());
    if (!changed.ok() || !call.request().durable()) return call.Finish(std::move(changed));
    FinishWithFlush(std::move(call), std::move(ticket));
  });
}

template <class Call, class Change>
void BlockService::ChangeRange(Call call, Change change) {
  const auto& request = call.request();
  absl::StatusOr<Ticket> ticket =
      Admit(request.session(), request.offset(), request.bytes(), Kind::kWrites);
  if (!ticket.ok()) return call.Finish(ticket.status());
  if (request.bytes() > kMaxRangeBytes) return call.Finish(TooLong(request.bytes()));
  if (request.bytes() == 0) return call.Finish(absl::OkStatus());
  RunChange(*range_thread_, std::move(call), *std::move(ticket), std::move(change));
}

void BlockService::StartTrim(UnaryCall<wire::TrimRequest, wire::TrimReply> call) {
  ChangeRange(std::move(call), [](BlockDevice& device, const wire::TrimRequest& request) {
    return device.Trim(request.offset(), request.bytes());
  });
}

void BlockService::StartZero(UnaryCall<wire::ZeroRequest, wire::ZeroReply> call) {
  ChangeRange(std::move(call), [](BlockDevice& device, const wire::ZeroRequest& request) {
    return device.Zero(request.offset(), request.bytes(), request.may_trim());
  });
}

void BlockService::StartExtents(UnaryCall<wire::ExtentsRequest, wire::ExtentsReply> call) {
  const wire::ExtentsRequest& request = call.request();
  absl::StatusOr<Ticket> ticket =
      Admit(request.session(), request.offset(), request.bytes(), Kind::kReads);
  if (!ticket.ok()) return call.Finish(ticket.status());
  if (request.max_extents() == 0 || request.max_extents() > kMaxExtents || request.bytes() == 0) {
    return call.Finish(absl::InvalidArgumentError(
        StrCat(request.max_extents(), " extents of ", request.bytes(), " bytes; 1 to ", kMaxExtents,
               " of at least one byte can be told at a time")));
  }
  RunOnDisk(std::move(call), *std::move(ticket), [](BlockDevice& device, auto& call) {
    const auto& request = call.request();
    auto extents = device.Extents(request.offset(), request.bytes(), request.max_extents());
    if (!extents.ok()) return extents.status();
    for (const BlockDevice::Extent& extent : *extents) {
      auto* const added = call.reply()->add_extents();
      added->set_bytes(extent.bytes);
      added->set_is_hole(extent.is_hole);
    }
    return absl::OkStatus();
  });
}

// --- flushes -------------------------------------------------------------------------------------

void BlockService::StartFlush(UnaryCall<wire::FlushRequest, wire::FlushReply> call) {
  absl::StatusOr<Ticket> ticket = Admit(call.request().session(), 0, 0, Kind::kReads);
  if (!ticket.ok()) return call.Finish(ticket.status());
  FinishWithFlush(std::move(call), *std::move(ticket));
}

// One that failed meanwhile, on behalf of others, has lost what this one was to bring out, and the
// system says so once.
template <class Call>
void BlockService::FinishWithFlush(Call call, Ticket ticket) {
  FlushAndThen([this, call = std::move(call),
                ticket = std::move(ticket)](const absl::Status& flushed) mutable {
    call.Finish(flushed.ok() && ticket->epoch != device_.epoch() ? SessionOver() : flushed);
  });
}

void BlockService::FlushAndThen(Function<void(const absl::Status&)> done) {
  const std::lock_guard<std::mutex> lock(flush_mutex_);
  flushes_.push_back(std::move(done));
  if (std::exchange(is_flushing_, true)) return;
  disks_->Run(DiskPool::kServer, [this] { RunFlushes(); });
}

// One for all that wait. What comes meanwhile waits for another one, which takes its turn.
void BlockService::RunFlushes() {
  std::vector<Function<void(const absl::Status&)>> flushes;
  {
    const std::lock_guard<std::mutex> lock(flush_mutex_);
    flushes.swap(flushes_);
  }
  const absl::Status status = device_.Flush();
  for (auto& done : flushes) done(status);
  {
    const std::lock_guard<std::mutex> lock(flush_mutex_);
    is_flushing_ = !flushes_.empty();
    if (!is_flushing_) return;
  }
  disks_->Run(DiskPool::kServer, [this] { RunFlushes(); });
}

}  // namespace weft::embed
