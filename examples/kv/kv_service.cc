#include "examples/kv/kv_service.h"

#include <algorithm>

#include "core/strings.h"

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

absl::Status KvService::Put(weft::ServerContext&, const PutRequest& request, PutReply* reply) {
  fields_.clear();
  for (const Field& field : request.fields()) fields_.push_back({field.name(), field.value()});
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

absl::Status KvService::Get(weft::ServerContext&, const GetRequest& request, GetReply* reply) {
  const Record* record = store_.Get(request.key());
  if (record == nullptr) return absl::NotFoundError("no record has this key");
  CopyFields(*record, reply);
  return absl::OkStatus();
}

absl::Status KvService::Delete(weft::ServerContext&, const DeleteRequest& request,
                               DeleteReply* reply) {
  reply->set_existed(store_.Delete(request.key()));
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
