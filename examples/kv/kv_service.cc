#include "examples/kv/kv_service.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/strings.h"
#include "examples/kv/bulk_put.h"
#include "examples/kv/bulk_size.h"
#include "examples/process/cpu_time.h"
#include "weft/bulk.h"
#include "weft/path.h"

namespace kv {
namespace {

template <class Message>
void CopyFields(const Record& record, Message* to) {
  for (const FieldView& field : record) {
    Field* copy = to->add_fields();
    copy->set_name(field.name.data(), field.name.size());
    copy->set_value(field.value.data(), field.value.size());
  }
}

}  // namespace

absl::Status KvService::Restore(std::string_view key, Fields fields) {
  const absl::StatusOr<bool> created = store_.Replace(key, fields);
  if (created.ok() && index_ != nullptr) {
    index_->index().Put(key, *store_.Get(key), /*existed=*/!*created);
  }
  return created.status();
}

absl::Status KvService::Put(weft::ServerContext&, const PutRequest& request, PutReply* reply) {
  fields_.clear();
  for (const Field& field : request.fields()) fields_.push_back({field.name(), field.value()});
  return Write(request, reply);
}

void KvService::StartPut(weft::UnaryCall<PutRequest, PutReply> call) {
  if (BulkPut::IsOne(call.request())) return BulkPut::Start(*this, std::move(call));
  call.Finish(Put(call.context(), call.request(), call.reply()));
}

absl::Status KvService::Write(const PutRequest& request, PutReply* reply) {
  const absl::Status status = Change(request, reply);
  if (status.ok() && index_ != nullptr) {
    index_->index().Put(request.key(), *store_.Get(request.key()), !reply->created());
  }
  return status;
}

absl::Status KvService::Change(const PutRequest& request, PutReply* reply) {
  switch (request.mode()) {
    case PutRequest::REPLACE: {
      const absl::StatusOr<bool> created = store_.Replace(request.key(), fields_);
      if (created.ok()) reply->set_created(*created);
      return created.status();
    }
    case PutRequest::UPDATE:
      return store_.Update(request.key(), fields_);
    default:
      return absl::InvalidArgumentError(
          weft::StrCat("mode ", static_cast<int>(request.mode()), " is not known"));
  }
}

// False: it has to travel in the message.
bool KvService::PushValue(weft::ServerContext& context, uint32_t window, const FieldView& field,
                          Field* copy) {
  const size_t bytes = field.value.size();
  if (context.bulk().writable_bytes(window) < bytes) return false;
  auto buffer = server_->AllocateBuffer(bytes);
  if (!buffer.ok()) return false;
  std::memcpy((*buffer)->bytes().data(), field.value.data(), bytes);
  const weft::Slice slice = (*buffer)->slice(0, bytes);
  // The reply waits for it, and so does the buffer. What does not arrive, the client notices.
  context.bulk().Push(slice, copy->mutable_bulk(), [buffer = *std::move(buffer)](absl::Status) {});
  return true;
}

absl::Status KvService::Get(weft::ServerContext& context, const GetRequest& request,
                            GetReply* reply) {
  const Record* record = store_.Get(request.key());
  if (record == nullptr) return absl::NotFoundError("no record has this key");
  if (server_ == nullptr || context.bulk().window_count() == 0) {
    CopyFields(*record, reply);
    return absl::OkStatus();
  }
  uint32_t window = 1;
  for (const FieldView& field : *record) {
    Field* copy = reply->add_fields();
    copy->set_name(field.name.data(), field.name.size());
    if (field.value.size() >= kMinBulkBytes && PushValue(context, window, field, copy)) {
      ++window;
    } else {
      copy->set_value(field.value.data(), field.value.size());
    }
  }
  return absl::OkStatus();
}

absl::Status KvService::Delete(weft::ServerContext&, const DeleteRequest& request,
                               DeleteReply* reply) {
  reply->set_existed(store_.Delete(request.key()));
  if (reply->existed() && index_ != nullptr) index_->index().Remove(request.key());
  return absl::OkStatus();
}

absl::Status KvService::OpenIndex(weft::ServerContext&, const OpenIndexRequest&,
                                  OpenIndexReply* reply) {
  if (index_ == nullptr) {
    return absl::FailedPreconditionError("this server keeps no index: kv_server --index_mib=0");
  }
  index_->Describe(reply);
  return absl::OkStatus();
}

absl::Status KvService::Stats(weft::ServerContext& context, const StatsRequest&,
                              StatsReply* reply) {
  reply->set_caller(weft::SecurityText(context.path()));
  reply->set_cpu_ns(ProcessCpuNs());
  reply->set_records(store_.size());
  if (index_ != nullptr) reply->set_indexed_records(index_->index().records());
  return absl::OkStatus();
}

absl::Status KvService::Scan(weft::ServerContext&, const ScanRequest& request, ScanReply* reply) {
  const uint32_t asked = request.limit() == 0 ? kMaxScanRecords : request.limit();
  uint32_t records_left = std::min(asked, kMaxScanRecords);
  size_t bytes = 0;
  store_.Scan(request.start(), [&](std::string_view key, const Record& record) {
    bytes += key.size() + record.bytes();
    const bool first = reply->records_size() == 0;
    if (records_left == 0 || (bytes > kMaxScanBytes && !first)) {
      reply->set_more(true);
      return false;
    }
    --records_left;
    ScanReply::Record* copy = reply->add_records();
    copy->set_key(key.data(), key.size());
    CopyFields(record, copy);
    return true;
  });
  return absl::OkStatus();
}

}  // namespace kv
