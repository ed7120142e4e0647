#include "embed/nbdkit/block_volume.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "core/status.h"
#include "core/strings.h"
#include "embed/nbdkit/block_limits.h"
#include "embed/session_client.h"
#include "weft/bulk.h"
#include "weft/memory.h"

namespace weft::embed {

BlockVolume::BlockVolume(const BlockVolumeOptions& options, std::unique_ptr<Channel> channel)
    : options_(options),
      channel_(std::move(channel)),
      stub_(*channel_),
      client_id_(NewClientId(kClientIdBytes)),
      sessions_(options.patience_us,
                [this](uint64_t timeout_us) { return AskForSession(timeout_us); }) {}

BlockVolume::~BlockVolume() = default;

absl::StatusOr<std::unique_ptr<BlockVolume>> BlockVolume::Open(const BlockVolumeOptions& options) {
  ChannelOptions channel_options = options.channel;
  channel_options.max_outstanding_calls = kMaxRequests;
  // A server that was started again is to be found soon.
  channel_options.max_backoff_us = std::min<uint64_t>(channel_options.max_backoff_us, 100'000);
  WEFT_ASSIGN_OR_RETURN(auto channel, Channel::Open(options.address, channel_options));
  std::unique_ptr<BlockVolume> volume(new BlockVolume(options, std::move(channel)));
  WEFT_RETURN_IF_ERROR(volume->sessions_.Attach());
  return volume;
}

// --- sessions ------------------------------------------------------------------------------------

// The earlier session's stream goes first: the server need not wait for it.
absl::StatusOr<BlockVolume::Session> BlockVolume::AskForSession(uint64_t timeout_us) {
  stream_.reset();
  wire::AttachRequest request;
  request.set_client(client_id_);
  auto stream = stub_.Attach(request, {});
  WEFT_ASSIGN_OR_RETURN(const wire::AttachReply reply, FirstReply(*channel_, stream, timeout_us));
  stream_.emplace(std::move(stream));
  WEFT_RETURN_IF_ERROR(TakeReply(reply));
  return Session{reply.session(), reply.epoch()};
}

absl::Status BlockVolume::TakeReply(const wire::AttachReply& reply) {
  BlockDevice::Facts facts;
  facts.bytes = reply.bytes();
  facts.read_only = reply.read_only();
  facts.rotational = reply.rotational();
  facts.preferred_bytes = reply.preferred_bytes();
  if (facts.bytes > uint64_t{INT64_MAX}) return WrongReply("the size of the device");
  if (!std::has_single_bit(facts.preferred_bytes) || facts.preferred_bytes < 512 ||
      facts.preferred_bytes > 1 << 25) {
    return WrongReply("the preferred size of requests");
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  const bool is_first = !epoch_.has_value();
  if (!is_first && (facts.bytes != facts_.bytes || facts.read_only != facts_.read_only)) {
    return absl::DataLossError(StrCat(options_.address, " serves another device now: ", facts.bytes,
                                      facts.read_only ? " bytes, read-only" : " bytes",
                                      ", and it was ", facts_.bytes,
                                      facts_.read_only ? ", read-only" : ""));
  }
  if (is_first) facts_ = facts;
  if (!is_first && reply.epoch() != epoch_ && changes_ != flushed_changes_) {
    ++losses_;
    flushed_changes_ = changes_;
  }
  epoch_ = reply.epoch();
  return absl::OkStatus();
}

absl::Status BlockVolume::CountChange(const Session& session, bool durable) {
  if (durable) return absl::OkStatus();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (epoch_ != session.epoch) {
    return absl::AbortedError("what was written may be lost already");
  }
  ++changes_;
  return absl::OkStatus();
}

uint64_t BlockVolume::losses() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return losses_;
}

// --- operations ----------------------------------------------------------------------------------

absl::Status BlockVolume::Read(uint64_t offset, MutableByteSpan into) {
  while (!into.empty()) {
    const size_t bytes = std::min(into.size(), kMaxPayloadBytes);
    WEFT_RETURN_IF_ERROR(ReadPiece(offset, into.first(bytes)));
    into = into.subspan(bytes);
    offset += bytes;
  }
  return absl::OkStatus();
}

absl::Status BlockVolume::ReadPiece(uint64_t offset, MutableByteSpan into) {
  return sessions_.Operate("read", [&](const Attempt& attempt) {
    wire::ReadRequest request;
    wire::ReadReply reply;
    request.set_session(attempt.session.number);
    request.set_offset(offset);
    request.set_bytes(static_cast<uint32_t>(into.size()));
    if (into.size() <= kMaxInlineBytes) {
      WEFT_RETURN_IF_ERROR(stub_.Read(request, &reply, {.timeout_us = attempt.timeout_us}));
      const std::string& data = reply.inline_data();
      if (data.size() != into.size()) return WrongReply("another number of bytes than were asked");
      std::memcpy(into.data(), data.data(), data.size());
      return absl::OkStatus();
    }
    request.set_without_crc32c(!options_.crc32c);
    WEFT_ASSIGN_OR_RETURN(const auto buffer, channel_->AllocateBuffer(into.size()));
    BulkCall bulk(*channel_);
    bulk.Receive(buffer->slice());
    CallOptions options = {.timeout_us = attempt.timeout_us};
    options.bulk = &bulk;
    WEFT_RETURN_IF_ERROR(stub_.Read(request, &reply, options));
    WEFT_ASSIGN_OR_RETURN(const MutableByteSpan data, bulk.Received(reply.lent_data()));
    if (data.size() != into.size()) return WrongReply("another number of bytes than were asked");
    std::memcpy(into.data(), data.data(), data.size());
    return absl::OkStatus();
  });
}

absl::Status BlockVolume::Write(uint64_t offset, ByteSpan from, bool durable) {
  while (!from.empty()) {
    const size_t bytes = std::min(from.size(), kMaxPayloadBytes);
    WEFT_RETURN_IF_ERROR(WritePiece(offset, from.first(bytes), durable));
    from = from.subspan(bytes);
    offset += bytes;
  }
  return absl::OkStatus();
}

absl::Status BlockVolume::WritePiece(uint64_t offset, ByteSpan from, bool durable) {
  return sessions_.Operate("write", [&](const Attempt& attempt) {
    wire::WriteRequest request;
    wire::WriteReply reply;
    request.set_session(attempt.session.number);
    request.set_offset(offset);
    request.set_durable(durable);
    if (from.size() <= kMaxInlineBytes) {
      request.set_inline_data(from.data(), from.size());
      WEFT_RETURN_IF_ERROR(stub_.Write(request, &reply, {.timeout_us = attempt.timeout_us}));
      return CountChange(attempt.session, durable);
    }
    WEFT_ASSIGN_OR_RETURN(const auto buffer, channel_->AllocateBuffer(from.size()));
    std::memcpy(buffer->bytes().data(), from.data(), from.size());
    BulkCall bulk(*channel_);
    bulk.Send(buffer->slice(), request.mutable_lent_data(), {.crc32c = options_.crc32c});
    CallOptions options = {.timeout_us = attempt.timeout_us};
    options.bulk = &bulk;
    WEFT_RETURN_IF_ERROR(stub_.Write(request, &reply, options));
    return CountChange(attempt.session, durable);
  });
}

absl::Status BlockVolume::Flush(uint64_t* losses) {
  WEFT_RETURN_IF_ERROR(sessions_.Operate("flush", [&](const Attempt& attempt) {
    uint64_t changes = 0;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      changes = changes_;
    }
    wire::FlushRequest request;
    wire::FlushReply reply;
    request.set_session(attempt.session.number);
    WEFT_RETURN_IF_ERROR(stub_.Flush(request, &reply, {.timeout_us = attempt.timeout_us}));
    const std::lock_guard<std::mutex> lock(mutex_);
    flushed_changes_ = std::max(flushed_changes_, changes);
    return absl::OkStatus();
  }));
  if (const uint64_t now = this->losses(); now != *losses) {
    *losses = now;
    return absl::DataLossError(
        "flush: writes that were answered before and not flushed may be lost: the server's host "
        "was started again, or its medium has failed");
  }
  return absl::OkStatus();
}

// Pieces end where multiples of kMaxRangeBytes do, so that whole sectors, and what the medium
// erases at a time, stay whole. Each is durable by itself: what a lost host has lost of the first
// ones would not be known to the last one.
absl::Status BlockVolume::ChangeRange(const char* what, Range range, bool durable,
                                      ChangePiece change) {
  while (range.bytes > 0) {
    const Range piece = {range.offset,
                         std::min(range.bytes, kMaxRangeBytes - range.offset % kMaxRangeBytes)};
    WEFT_RETURN_IF_ERROR(sessions_.Operate(what, [&](const Attempt& attempt) {
      WEFT_RETURN_IF_ERROR(change(piece, attempt));
      return CountChange(attempt.session, durable);
    }));
    range.offset += piece.bytes;
    range.bytes -= piece.bytes;
  }
  return absl::OkStatus();
}

absl::Status BlockVolume::Trim(uint64_t offset, uint64_t bytes, bool durable) {
  return ChangeRange("trim", {offset, bytes}, durable,
                     [&](const Range& piece, const Attempt& attempt) {
                       wire::TrimRequest request;
                       wire::TrimReply reply;
                       request.set_session(attempt.session.number);
                       request.set_offset(piece.offset);
                       request.set_bytes(piece.bytes);
                       request.set_durable(durable);
                       return stub_.Trim(request, &reply, {.timeout_us = attempt.timeout_us});
                     });
}

absl::Status BlockVolume::Zero(uint64_t offset, uint64_t bytes, bool may_trim, bool durable) {
  return ChangeRange("zero", {offset, bytes}, durable,
                     [&](const Range& piece, const Attempt& attempt) {
                       wire::ZeroRequest request;
                       wire::ZeroReply reply;
                       request.set_session(attempt.session.number);
                       request.set_offset(piece.offset);
                       request.set_bytes(piece.bytes);
                       request.set_may_trim(may_trim);
                       request.set_durable(durable);
                       return stub_.Zero(request, &reply, {.timeout_us = attempt.timeout_us});
                     });
}

absl::StatusOr<std::vector<BlockDevice::Extent>> BlockVolume::Extents(uint64_t offset,
                                                                      uint64_t bytes,
                                                                      uint32_t max_extents) {
  std::vector<BlockDevice::Extent> extents;
  WEFT_RETURN_IF_ERROR(sessions_.Operate("extents", [&](const Attempt& attempt) {
    wire::ExtentsRequest request;
    wire::ExtentsReply reply;
    request.set_session(attempt.session.number);
    request.set_offset(offset);
    request.set_bytes(bytes);
    request.set_max_extents(std::min(max_extents, kMaxExtents));
    WEFT_RETURN_IF_ERROR(stub_.Extents(request, &reply, {.timeout_us = attempt.timeout_us}));
    extents.clear();
    uint64_t left = bytes;
    for (const auto& extent : reply.extents()) {
      if (extent.bytes() == 0 || extent.bytes() > left) return WrongReply("extents");
      left -= extent.bytes();
      extents.push_back({extent.bytes(), extent.is_hole()});
    }
    return extents.empty() ? WrongReply("no extents") : absl::OkStatus();
  }));
  return extents;
}

}  // namespace weft::embed
