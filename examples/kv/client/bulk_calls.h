// Puts and Gets whose large values travel as bulk: the server reads and writes them in this
// client's memory, past protobuf (rpc/client/bulk_call.h). Smaller ones stay in the message.
//
// Threads:   the channel's engine.
// Lifetime:  the channel outlives it; destroyed when no call is under way.
// Errors:    those of Kv.Put and Kv.Get; DATA_LOSS where a value does not arrive as it was sent.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "core/function.h"
#include "examples/kv/kv.weft.h"
#include "weft/bulk.h"
#include "weft/channel.h"
#include "weft/memory.h"

namespace kv::client {

class BulkCalls {
 public:
  // As many calls at a time as `lanes`.
  BulkCalls(weft::Channel& channel, const weft::CallOptions& call, uint32_t lanes);

  // What further Gets lend: room for the first `values` (0 to weft::kMaxWindows) large values of a
  // record, each of up to `bytes`. Others come in the message. None from the start.
  void ExpectValues(uint32_t values, size_t bytes);

  // As Kv::Stub::Put() and Get(). REQUIRES: nothing is under way in `lane`.
  void Put(uint32_t lane, const PutRequest& request, PutReply* reply,
           weft::Function<void(absl::Status)> done);
  void Get(uint32_t lane, const GetRequest& request, GetReply* reply,
           weft::Function<void(absl::Status)> done);

 private:
  struct Lane {
    std::unique_ptr<weft::Buffer> buffer;
    std::unique_ptr<weft::BulkCall> bulk;  // goes before its memory, the buffer
    PutRequest put;                        // what is sent, without its large values
    GetReply* reply = nullptr;
    weft::Function<void(absl::Status)> done;
  };

  absl::Status MakeRoom(Lane& lane, size_t bytes);
  absl::Status LendValues(Lane& lane, const PutRequest& request);
  absl::Status LendRoom(Lane& lane);
  static absl::Status Collect(Lane& lane);
  void OnGot(uint32_t index, absl::Status status);

  weft::Channel& channel_;
  const Kv::Stub kv_;
  const weft::CallOptions call_;
  uint32_t expected_values_ = 0;
  size_t expected_bytes_ = 0;
  std::vector<Lane> lanes_;
};

}  // namespace kv::client
