// The service of kv.proto on top of a Store.
//
// Threads:   handlers run on the server's engine, one after the other: the store needs no lock.
// Lifetime:  the store outlives the service, and the service the server that it is added to.
// Errors:    as kv.proto says.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "examples/kv/kv.pb.h"
#include "examples/kv/kv.weft.h"
#include "examples/kv/store.h"

namespace kv {

// Bounds of one ScanReply (kv.proto). A reply of 1 MiB takes the server about 100 us, during which
// its other clients wait.
inline constexpr uint32_t kMaxScanRecords = 10'000;
inline constexpr size_t kMaxScanBytes = size_t{1} << 20;

class KvService final : public Kv::Service {
 public:
  explicit KvService(Store* store) : store_(*store) {}

  absl::Status Put(weft::ServerContext& context, const PutRequest& request,
                   PutReply* reply) override;
  absl::Status Get(weft::ServerContext& context, const GetRequest& request,
                   GetReply* reply) override;
  absl::Status Delete(weft::ServerContext& context, const DeleteRequest& request,
                      DeleteReply* reply) override;
  absl::Status Scan(weft::ServerContext& context, const ScanRequest& request,
                    ScanReply* reply) override;

 private:
  Store& store_;
  std::vector<FieldView> fields_;  // of the Put that runs; kept for its capacity
};

}  // namespace kv
