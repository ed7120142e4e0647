#include "examples/kv/client/one_sided_gets.h"

#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "core/check.h"
#include "core/status.h"
#include "examples/kv/index/key_hash.h"
#include "examples/kv/record.h"

namespace kv::client {
namespace {

// A reply that is used again has mostly strings of the size that is needed: assign() takes three
// times as many instructions for a short one.
void Assign(std::string_view from, std::string* to) {
  if (from.size() != to->size()) {
    to->assign(from);
  } else {
    std::memcpy(to->data(), from.data(), from.size());
  }
}

// False: it is no record's block. What `to` held before gives its memory, and is gone.
bool CopyFields(std::string_view block, GetReply* to) {
  BlockReader reader(block);
  int fields = 0;
  for (FieldView field; reader.Next(&field); ++fields) {
    Field* copy = fields < to->fields_size() ? to->mutable_fields(fields) : to->add_fields();
    Assign(field.name, copy->mutable_name());
    Assign(field.value, copy->mutable_value());
  }
  while (to->fields_size() > fields) to->mutable_fields()->RemoveLast();
  return reader.at_end();
}

}  // namespace

absl::StatusOr<std::unique_ptr<OneSidedGets>> OneSidedGets::Open(weft::Channel& channel,
                                                                 const weft::CallOptions& call,
                                                                 uint32_t lanes,
                                                                 GetByCall get_by_call) {
  std::unique_ptr<OneSidedGets> gets(new OneSidedGets(lanes, std::move(get_by_call)));
  OpenIndexReply reply;
  WEFT_RETURN_IF_ERROR(Kv::Stub(channel).OpenIndex({}, &reply, call));
  gets->hash_seed_ = reply.hash_seed();
  WEFT_ASSIGN_OR_RETURN(gets->table_,
                        weft::RemoteArray<index::BucketLayout>::Open(channel, reply.table()));
  WEFT_ASSIGN_OR_RETURN(gets->heap_, weft::RemoteMemory::Open(channel, reply.heap()));
  WEFT_ASSIGN_OR_RETURN(gets->places_,
                        channel.AllocateBuffer(size_t{lanes} * index::kMaxExtentBytes));
  if (gets->table_->size() == 0 || gets->table_->size() > ~uint32_t{0}) {
    return absl::DataLossError("the server's index has no buckets, or too many");
  }
  return gets;
}

void OneSidedGets::Get(uint32_t index, const GetRequest& request, GetReply* reply,
                       weft::Function<void(absl::Status)> done) {
  Lane& lane = lanes_[index];
  WEFT_DCHECK(!lane.done);
  lane.request = &request;
  lane.reply = reply;
  lane.done = std::move(done);
  lane.tries = 0;
  lane.hash = index::HashKey(request.key(), hash_seed_);
  const index::SlotLayout& remembered = RememberedFor(lane.hash);
  if (remembered.version == 0 || remembered.fingerprint != lane.hash) return ReadBucket(index);
  lane.slot = remembered;
  ReadExtent(index);
}

// Memory of the lane: extents are the longest of what is read into it.
weft::Slice OneSidedGets::PlaceOf(uint32_t index, size_t bytes) const {
  return places_->slice(size_t{index} * index::kMaxExtentBytes, bytes);
}

index::BucketLayout* OneSidedGets::BucketOf(uint32_t index) const {
  return reinterpret_cast<index::BucketLayout*>(PlaceOf(index, index::kBucketBytes).bytes().data());
}

void OneSidedGets::ReadBucket(uint32_t index) {
  Lane& lane = lanes_[index];
  ++lane.tries;
  lane.bucket = index::BucketOf(lane.hash, static_cast<uint32_t>(table_->size()));
  const bool done = table_->memory().ReadNow(
      lane.bucket * index::kBucketBytes, PlaceOf(index, index::kBucketBytes),
      [this, index](absl::Status status) { OnBucketRead(index, status); });
  if (done) OnBucketRead(index, absl::OkStatus());
}

// One that was being changed is left to the table, which reads it until it is whole.
void OneSidedGets::OnBucketRead(uint32_t index, const absl::Status& status) {
  const weft::ByteSpan read = PlaceOf(index, index::kBucketBytes).bytes();
  if (!status.ok() || weft::IsWholeRecord(read.data(), read.size())) [[likely]]
    return OnBucket(index, status);
  ++torn_buckets_;
  table_->Read(lanes_[index].bucket, BucketOf(index),
               [this, index](absl::Status again) { OnBucket(index, again); });
}

void OneSidedGets::OnBucket(uint32_t index, const absl::Status& status) {
  Lane& lane = lanes_[index];
  if (!status.ok()) return OnReadError(index, status);
  switch (index::LookUp(*BucketOf(index), lane.hash, &lane.slot)) {
    case index::Found::kAbsent:
      ++stats_.absent;
      lane.reply->Clear();
      return End(index, absl::NotFoundError("no record has this key"));
    case index::Found::kRecord:
      if (!index::InHeap(lane.slot, heap_->size())) return Call(index);
      return ReadExtent(index);
    case index::Found::kAsk:
    case index::Found::kStale:
      return Call(index);
  }
}

void OneSidedGets::ReadExtent(uint32_t index) {
  const index::SlotLayout& slot = lanes_[index].slot;
  const bool done =
      heap_->ReadNow(uint64_t{slot.where} * index::kExtentUnitBytes, PlaceOf(index, slot.length),
                     [this, index](absl::Status status) { OnExtent(index, status); });
  if (done) OnExtent(index, absl::OkStatus());
}

void OneSidedGets::OnExtent(uint32_t index, const absl::Status& status) {
  Lane& lane = lanes_[index];
  if (!status.ok()) return OnReadError(index, status);
  std::string_view block;
  switch (index::OpenExtent(PlaceOf(index, lane.slot.length).bytes(), lane.slot,
                            lane.request->key(), &block)) {
    case index::Found::kRecord:
      if (!CopyFields(block, lane.reply)) return Again(index);
      ++stats_.records;
      if (lane.tries == 0) ++stats_.at_once;
      RememberedFor(lane.hash) = lane.slot;
      return End(index, absl::OkStatus());
    case index::Found::kStale:
      return Again(index);
    case index::Found::kAbsent:
    case index::Found::kAsk:
      return Call(index);
  }
}

void OneSidedGets::OnReadError(uint32_t index, const absl::Status& status) {
  ++stats_.read_errors;
  stats_.last_error = status;
  Call(index);
}

void OneSidedGets::Again(uint32_t index) {
  // Where only the slot was old, nothing has changed under this Get.
  if (lanes_[index].tries > 0) ++stats_.again;
  if (lanes_[index].tries >= kTries) return Call(index);
  ReadBucket(index);
}

void OneSidedGets::Call(uint32_t index) {
  ++stats_.calls;
  Lane& lane = lanes_[index];
  lane.reply->Clear();
  get_by_call_(index, *lane.request, lane.reply,
               [this, index](absl::Status status) { End(index, status); });
}

void OneSidedGets::End(uint32_t index, const absl::Status& status) {
  weft::Function<void(absl::Status)> done = std::move(lanes_[index].done);
  lanes_[index].done = nullptr;
  done(status);
}

}  // namespace kv::client
