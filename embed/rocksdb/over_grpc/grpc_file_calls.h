// FileCalls over gRPC, to compare with: one channel, tuned (no compression, no retries, no service
// configuration, large frames). Each thread that waits has a completion queue, and does gRPC's work
// itself, so that an answer wakes no other thread. Reads are bytes of gRPC's own, copied once: to
// where they belong.
//
// Threads, Lifetime, Errors: as FileCalls. Close() waits, too.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "embed/rocksdb/file_calls.h"

namespace weft::embed {

// `address`: host:port, or one of gRPC's. `spin_ns`: as ChannelOptions::spin_ns. Connects with the
// first call.
std::unique_ptr<FileCalls> OpenGrpcFileCalls(const std::string& address, uint64_t spin_ns);

}  // namespace weft::embed
