// The service of grpc_file.proto on a ServedFolder, to compare FileService with: what file.proto
// says, by the same system calls, and by the same rules which thread makes them.
//
// One thread waits for gRPC's events, and makes small reads itself that wait for no disk, and all
// small requests where the folder is in memory. The rest is done by a DiskPool. Reads go into
// memory of gRPC's, which sends it.
//
// Not for use: nobody proves who he is, and what FileService promises beside file.proto's calls is
// left out. A client that had a lock when its session ended is refused, and so a database ends with
// its connection; and a request of a session that has just ended may still be carried out.
//
// Limits: kSlots calls of one method under way; what is more waits in gRPC.
// Threads: any. Lifetime: the folder outlives it. The destructor ends sessions and what is under
//   way.
// Errors: file.proto's; of Start(): UNAVAILABLE, the address cannot be listened at.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "embed/rocksdb/served_folder.h"

namespace weft::embed {

class GrpcFileServer {
 public:
  struct Options {
    std::string address = "127.0.0.1:0";  // host:port
    int threads = 8;                      // FileServiceOptions::threads
    uint64_t spin_ns = 50'000;            // EngineOptions::spin_ns
  };

  static absl::StatusOr<std::unique_ptr<GrpcFileServer>> Start(ServedFolder& folder,
                                                               const Options& options);
  virtual ~GrpcFileServer() = default;

  virtual const std::string& address() const = 0;
};

}  // namespace weft::embed
