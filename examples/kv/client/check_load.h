// Puts, Deletes and Gets on few keys, many at a time, each written down: for the history checker.
//
// Every Put writes a number that no other writes, and bytes that follow from it: a Get tells which
// Put it saw, and whether it saw it whole. After kOperationsPerKey operations the load goes on to
// fresh keys: the checker's work grows faster than a key's history.
//
// Threads:   one, which drives the engine.
// Lifetime:  session and recorder outlive it.
// Errors:    calls that fail are written down as what may have happened; the load goes on, until
//            kMaxErrors.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "core/random.h"
#include "examples/kv/client/closed_loop.h"
#include "examples/kv/client/session.h"
#include "examples/kv/kv.pb.h"
#include "examples/verify/history/recorder.h"
#include "weft/coroutine.h"

namespace kv::client {

struct CheckPlan {
  bool until_unavailable = false;  // end when a call finds no server; else go on, it may come back
  uint32_t keys = 4;               // at a time
  uint64_t operations = 0;         // 0: until end_ns
  uint64_t end_ns = weft::kNever;  // on the engine's clock
  uint64_t seed = 1;               // also part of the keys' names: a new one meets no old records
  uint32_t max_value_bytes = 2'000;
  double writes = 0.3;    // part of the operations
  double deletes = 0.25;  // part of the writes
  // Between two operations of a lane, in microseconds: at random, up to this.
  uint64_t max_pause_us = 0;
};

struct CheckCounts {
  uint64_t gets = 0;
  uint64_t writes = 0;
  uint64_t errors = 0;
  uint64_t broken = 0;  // Gets that saw a mixture, or bytes that nobody wrote
  absl::Status first_error;
};

class CheckLoad {
 public:
  static constexpr uint64_t kOperationsPerKey = 10'000;
  static constexpr uint64_t kMaxErrors = 1'000;

  // Records to lanes first_lane to first_lane + session.outstanding - 1 of the recorder. Loads of
  // one history have the same plan, apart from `first_lane`.
  CheckLoad(Session& session, const CheckPlan& plan, verify::Recorder* recorder,
            uint32_t first_lane);

  // Until the plan's end, or Ctrl-C.
  void Run();
  // In two parts, for several at a time on one simulated network.
  void StartDue() { loop_.StartDue(); }
  bool ended() const { return loop_.ended(); }
  void Stop() { loop_.Stop(); }

  const CheckCounts& counts() const { return counts_; }

 private:
  struct Lane {
    explicit Lane(weft::Engine& engine) : pause(engine) {}

    verify::Kind kind = verify::Kind::kGet;
    PutRequest put;
    PutReply put_reply;
    GetRequest get;
    GetReply get_reply;
    DeleteRequest remove;
    DeleteReply delete_reply;
    weft::Alarm pause;
  };

  bool StartNext(uint32_t index);
  void StartPut(uint32_t index, const std::string& key, verify::Value number);
  void OnWritten(uint32_t index, const absl::Status& status);
  void OnGot(uint32_t index, const absl::Status& status);
  void Done(uint32_t index);
  void CountError(const absl::Status& status);
  std::string KeyName(uint64_t key) const;
  std::string_view ValueOf(verify::Value number);
  verify::Value NumberIn(const GetReply& reply);
  verify::Lane& Record(uint32_t index) { return recorder_.lane(first_lane_ + index); }

  Session& session_;
  const CheckPlan plan_;
  verify::Recorder& recorder_;
  const uint32_t first_lane_;
  weft::Random random_;
  uint64_t started_ = 0;
  uint64_t last_number_;
  std::string value_;  // the last ValueOf()
  CheckCounts counts_;
  std::deque<Lane> lanes_;
  ClosedLoop loop_;
};

}  // namespace kv::client
