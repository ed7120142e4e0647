// The service of kv.proto on top of a Store.
//
// Threads:   handlers run on the server's engine, one after the other: the store needs no lock.
// Lifetime:  the store outlives the service, and the service the server that it is added to. The
//            index, if there is one, outlives the last handler.
// Errors:    as kv.proto says.
#pragma once

#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "examples/kv/index/exported_index.h"
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

  // Where bulk values go through: memory of `server`'s. Before it listens.
  void set_server(weft::Server* server) { server_ = server; }

  // Keeps `index` as the store is, and shows it to clients. Before the server listens, while the
  // store is empty.
  void set_index(index::ExportedIndex* index) { index_ = index; }

  // A record of the process before this one (upgrade.h). Before the first call.
  absl::Status Restore(std::string_view key, Fields fields);

  absl::Status Put(weft::ServerContext& context, const PutRequest& request,
                   PutReply* reply) override;
  // Also takes bulk values.
  void StartPut(weft::UnaryCall<PutRequest, PutReply> call) override;
  absl::Status Get(weft::ServerContext& context, const GetRequest& request,
                   GetReply* reply) override;
  absl::Status Delete(weft::ServerContext& context, const DeleteRequest& request,
                      DeleteReply* reply) override;
  absl::Status OpenIndex(weft::ServerContext& context, const OpenIndexRequest& request,
                         OpenIndexReply* reply) override;
  absl::Status Stats(weft::ServerContext& context, const StatsRequest& request,
                     StatsReply* reply) override;
  absl::Status Scan(weft::ServerContext& context, const ScanRequest& request,
                    ScanReply* reply) override;

 private:
  // Any Put whose values are in `fields_`.
  absl::Status Write(const PutRequest& request, PutReply* reply);
  absl::Status Change(const PutRequest& request, PutReply* reply);
  bool PushValue(weft::ServerContext& context, uint32_t window, const FieldView& field,
                 Field* copy);

  friend class BulkPut;

  Store& store_;
  index::ExportedIndex* index_ = nullptr;
  weft::Server* server_ = nullptr;
  std::vector<FieldView> fields_;  // of the Put that runs; kept for its capacity
};

}  // namespace kv
