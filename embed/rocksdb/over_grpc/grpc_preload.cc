// libgrpc_rocksdb.so, for LD_PRELOAD: RocksDB's own programs know "grpc://HOST:PORT/FOLDER", which
// is weft_file_system.h with its calls over gRPC, to compare with. Of a URI's keys, `patience`
// alone counts.
#include <memory>
#include <utility>

#include "core/status.h"
#include "embed/rocksdb/file_client.h"
#include "embed/rocksdb/over_grpc/grpc_file_calls.h"
#include "embed/rocksdb/weft_file_system.h"
#include "embed/rocksdb/weft_uri.h"

namespace weft::embed {
namespace {

absl::StatusOr<std::unique_ptr<rocksdb::FileSystem>> OpenGrpcFileSystem(const std::string& uri) {
  WEFT_ASSIGN_OR_RETURN(WeftUri where, ParseWeftUri("grpc", uri, {}));
  FileClientOptions options;
  options.patience_us = where.patience_us;
  WEFT_ASSIGN_OR_RETURN(
      std::unique_ptr<FileClient> client,
      FileClient::Open(options, OpenGrpcFileCalls(where.address, where.channel.spin_ns)));
  return MakeFileSystem(std::move(client), std::move(where.folder));
}

__attribute__((constructor)) void Register() { RegisterFileSystem("grpc", OpenGrpcFileSystem); }

}  // namespace
}  // namespace weft::embed
