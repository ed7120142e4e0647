// A Put some of whose values the client lends: they are fetched, then it is a Put like any other.
//
// Threads:   the server's engine.
// Lifetime:  deletes itself when the call is finished; the service outlives it.
// Errors:    RESOURCE_EXHAUSTED: more than a record may hold, or no memory to fetch into.
#pragma once

#include <memory>
#include <vector>

#include "examples/kv/kv_service.h"
#include "weft/memory.h"
#include "weft/service.h"

namespace kv {

class BulkPut {
 public:
  using Call = weft::UnaryCall<PutRequest, PutReply>;

  static bool IsOne(const PutRequest& request);
  static void Start(KvService& service, Call call);

 private:
  BulkPut(KvService& service, Call call) : service_(service), call_(std::move(call)) {}

  absl::Status CheckLengths() const;
  void Fetch(const Field& field);
  void OnFetched(const absl::Status& status);
  void Finish();

  KvService& service_;
  Call call_;
  std::vector<std::unique_ptr<weft::Buffer>> values_;  // of the bulk fields, in their order
  uint32_t under_way_ = 1;                             // transfers, and Start() itself
  absl::Status status_;
};

}  // namespace kv
