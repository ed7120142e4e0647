#include "examples/kv/bulk_put.h"

#include <utility>

#include "core/bytes.h"
#include "core/strings.h"
#include "weft/bulk.h"

namespace kv {

bool BulkPut::IsOne(const PutRequest& request) {
  for (const Field& field : request.fields()) {
    if (field.has_bulk()) return true;
  }
  return false;
}

void BulkPut::Start(KvService& service, Call call) {
  auto* put = new BulkPut(service, std::move(call));
  put->status_ = put->CheckLengths();
  for (const Field& field : put->call_.request().fields()) {
    if (field.has_bulk() && put->status_.ok()) put->Fetch(field);
  }
  put->OnFetched(absl::OkStatus());
}

// Before any memory is taken for what the request only speaks of.
absl::Status BulkPut::CheckLengths() const {
  if (service_.server_ == nullptr) {
    return absl::FailedPreconditionError("this server takes no bulk values");
  }
  const uint64_t limit = service_.store_.limits().max_record_bytes;
  uint64_t bytes = 0;
  for (const Field& field : call_.request().fields()) {
    const uint64_t length = field.bulk().length();
    if (length > limit || (bytes += length) > limit) {
      return absl::InvalidArgumentError(
          weft::StrCat("a record has at most ", limit, " bytes; this would make more"));
    }
    if (field.has_bulk() && length == 0) {
      return absl::InvalidArgumentError("a bulk value has at least one byte");
    }
  }
  return absl::OkStatus();
}

void BulkPut::Fetch(const Field& field) {
  const size_t length = field.bulk().length();
  auto buffer = service_.server_->AllocateBuffer(length);
  if (!buffer.ok()) {
    status_ = buffer.status();
    return;
  }
  const weft::Slice into = (*buffer)->slice(0, length);
  values_.push_back(*std::move(buffer));
  ++under_way_;
  call_.context().bulk().Fetch(field.bulk(), into,
                               [this](absl::Status status) { OnFetched(status); });
}

void BulkPut::OnFetched(const absl::Status& status) {
  if (status_.ok()) status_ = status;
  if (--under_way_ == 0) Finish();
}

void BulkPut::Finish() {
  if (status_.ok()) {
    auto value = values_.begin();
    service_.fields_.clear();
    for (const Field& field : call_.request().fields()) {
      const std::string_view bytes =
          field.has_bulk() ? weft::AsStringView((*value++)->bytes()) : field.value();
      service_.fields_.push_back({field.name(), bytes});
    }
    status_ = service_.Write(call_.request(), call_.reply());
  }
  call_.Finish(std::move(status_));
  delete this;
}

}  // namespace kv
