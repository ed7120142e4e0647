#include "examples/kv/client/bulk_calls.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "core/bytes.h"
#include "core/check.h"
#include "core/status.h"
#include "examples/kv/bulk_size.h"
#include "weft/status.h"

namespace kv::client {
namespace {

// Of the first large values, as many as there can be windows.
size_t LargeBytes(const PutRequest& request) {
  size_t bytes = 0;
  uint32_t windows = 0;
  for (const Field& field : request.fields()) {
    if (field.value().size() < kMinBulkBytes || windows == weft::kMaxWindows) continue;
    bytes += field.value().size();
    ++windows;
  }
  return bytes;
}

}  // namespace

BulkCalls::BulkCalls(weft::Channel& channel, const weft::CallOptions& call, uint32_t lanes)
    : channel_(channel), kv_(channel), call_(call), lanes_(lanes) {
  for (Lane& lane : lanes_) lane.bulk = std::make_unique<weft::BulkCall>(channel);
}

void BulkCalls::ExpectValues(uint32_t values, size_t bytes) {
  expected_values_ = bytes < kMinBulkBytes ? 0 : std::min(values, weft::kMaxWindows);
  expected_bytes_ = bytes;
}

// A buffer of at least so many bytes; the one there is, if it is large enough.
absl::Status BulkCalls::MakeRoom(Lane& lane, size_t bytes) {
  // A call that timed out may have left its memory to the server for a while.
  if (lane.bulk->state() != weft::BulkCall::State::kReclaimed) {
    return weft::WithDelivery(
        absl::UnavailableError("not sent, safe to retry: the memory of the last call is in use"),
        weft::Delivery::kNotSent);
  }
  lane.bulk->Clear();
  if (lane.buffer != nullptr && lane.buffer->bytes().size() >= bytes) return absl::OkStatus();
  lane.buffer.reset();
  WEFT_ASSIGN_OR_RETURN(lane.buffer, channel_.AllocateBuffer(bytes));
  return absl::OkStatus();
}

absl::Status BulkCalls::LendValues(Lane& lane, const PutRequest& request) {
  WEFT_RETURN_IF_ERROR(MakeRoom(lane, LargeBytes(request)));
  lane.put.Clear();
  lane.put.set_key(request.key());
  lane.put.set_mode(request.mode());
  size_t used = 0;
  uint32_t windows = 0;
  for (const Field& field : request.fields()) {
    Field* copy = lane.put.add_fields();
    if (field.value().size() < kMinBulkBytes || windows == weft::kMaxWindows) {
      *copy = field;
      continue;
    }
    ++windows;
    copy->set_name(field.name());
    const size_t bytes = field.value().size();
    std::memcpy(lane.buffer->bytes().data() + used, field.value().data(), bytes);
    lane.bulk->Send(lane.buffer->slice(used, bytes), copy->mutable_bulk());
    used += bytes;
  }
  return absl::OkStatus();
}

void BulkCalls::Put(uint32_t index, const PutRequest& request, PutReply* reply,
                    weft::Function<void(absl::Status)> done) {
  if (LargeBytes(request) == 0) return kv_.Put(request, reply, call_, std::move(done));
  Lane& lane = lanes_[index];
  const absl::Status lent = LendValues(lane, request);
  // By value, where it can't be lent: it comes to the same, later.
  if (!lent.ok()) return kv_.Put(request, reply, call_, std::move(done));
  weft::CallOptions call = call_;
  call.bulk = lane.bulk.get();
  kv_.Put(lane.put, reply, call, std::move(done));
}

absl::Status BulkCalls::LendRoom(Lane& lane) {
  WEFT_RETURN_IF_ERROR(MakeRoom(lane, expected_values_ * expected_bytes_));
  for (uint32_t value = 0; value < expected_values_; ++value) {
    lane.bulk->Receive(lane.buffer->slice(value * expected_bytes_, expected_bytes_));
  }
  return absl::OkStatus();
}

void BulkCalls::Get(uint32_t index, const GetRequest& request, GetReply* reply,
                    weft::Function<void(absl::Status)> done) {
  Lane& lane = lanes_[index];
  if (expected_values_ == 0 || !LendRoom(lane).ok()) {
    return kv_.Get(request, reply, call_, std::move(done));
  }
  WEFT_DCHECK(!lane.done);
  lane.reply = reply;
  lane.done = std::move(done);
  weft::CallOptions call = call_;
  call.bulk = lane.bulk.get();
  kv_.Get(request, reply, call, [this, index](absl::Status status) { OnGot(index, status); });
}

// The values that came as bulk take their places in the message.
absl::Status BulkCalls::Collect(Lane& lane) {
  for (Field& field : *lane.reply->mutable_fields()) {
    if (!field.has_bulk()) continue;
    WEFT_ASSIGN_OR_RETURN(const weft::MutableByteSpan value, lane.bulk->Received(field.bulk()));
    field.set_value(reinterpret_cast<const char*>(value.data()), value.size());
    field.clear_bulk();
  }
  return absl::OkStatus();
}

void BulkCalls::OnGot(uint32_t index, absl::Status status) {
  Lane& lane = lanes_[index];
  if (status.ok()) status = Collect(lane);
  weft::Function<void(absl::Status)> done = std::move(lane.done);
  lane.done = nullptr;
  done(std::move(status));
}

}  // namespace kv::client
