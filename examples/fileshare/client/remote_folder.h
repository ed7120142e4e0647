// The server's folder as a client sees it: the calls of fileshare.proto, with what comes back
// checked as carefully as the server checks what we send.
//
// Threads: any, several at once; a lane is one thread's. Lifetime: the channel outlives it.
// Errors: as fileshare.proto says, with the path; DATA_LOSS for replies that no honest server
// gives.
#pragma once

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "examples/fileshare/client/lanes.h"
#include "examples/fileshare/fileshare.weft.h"
#include "examples/fileshare/folder.h"
#include "weft/channel.h"

namespace fileshare::client {

class RemoteFolder {
 public:
  struct Options {
    uint64_t timeout_us = 30'000'000;  // of each call
    bool crc32c = true;                // over each chunk, both ways
    // Of one folder: a server that lists more is not believed. Each becomes a file here, of a copy.
    uint64_t max_entries = uint64_t{1} << 20;
  };

  RemoteFolder(weft::Channel& channel, const Options& options);

  weft::Channel& channel() const { return channel_; }

  absl::StatusOr<FileInfo> Look(const std::string& path) const;
  // In the order of names. RESOURCE_EXHAUSTED: more than Options::max_entries.
  absl::Status ForEach(const std::string& path,
                       absl::FunctionRef<absl::Status(const Entry&)> visit) const;
  absl::Status MakeFolder(const std::string& path, uint32_t mode) const;

  // That chunk of a file as it was when `info` was told, into the lane's buffer. Returns its
  // length, which is what `info` lets expect.
  absl::StatusOr<size_t> ReadChunk(Lane& lane, const std::string& path, const FileInfo& info,
                                   uint64_t chunk) const;

  // The first `bytes` of the lane's buffer.
  absl::Status Put(Lane& lane, const std::string& path, uint32_t mode, size_t bytes) const;
  absl::StatusOr<uint64_t> Begin(const std::string& path, const FileInfo& info) const;
  absl::Status WriteChunk(Lane& lane, uint64_t upload, uint64_t chunk, size_t bytes) const;
  absl::Status Commit(uint64_t upload) const;
  void Abort(uint64_t upload) const;

 private:
  weft::CallOptions Plain() const;
  weft::CallOptions With(Lane& lane) const;

  weft::Channel& channel_;
  const FileShare::Stub stub_;
  const Options options_;
};

}  // namespace fileshare::client
