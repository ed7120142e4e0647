// A group of servers that keep one store (examples/raftkv), as one server: calls go to the member
// that leads, whichever that is.
//
//   attempt ends with            then
//   an answer                    the call has it
//   UNAVAILABLE with a Leader    not run: the next attempt goes there, at once; without an address
//                                to the next member, after a pause
//   UNAVAILABLE, no answer for   it may have run: the next attempt goes to the next member, after a
//   kAttemptUs                   pause
//   the call's time is over      DEADLINE_EXCEEDED, with the last error's words
//
// A Put or Delete runs once, whatever attempts it takes: each lane has a session, and a call's
// attempts have its number there (kv.CallId). If the members have forgotten the session, a call
// that cannot have run takes a new one, and another ends with ABORTED.
//
// Threads:   the engine's. Open() blocks, and is for main().
// Lifetime:  the engine outlives it; destroyed when no call is under way.
// Errors:    those of Kv's methods; DEADLINE_EXCEEDED and ABORTED as above, with a Delivery.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "examples/kv/kv.weft.h"
#include "examples/raftkv/raftkv.weft.h"
#include "weft/channel.h"
#include "weft/coroutine.h"
#include "weft/engine.h"

namespace kv::client {

class Cluster {
 public:
  // How long one member is waited for: longer than a leader waits for its followers' disks, shorter
  // than the time that a call has left when a leader is frozen.
  static constexpr uint64_t kAttemptUs = 1'000'000;
  // Pauses between attempts that found no leader: an election takes a second.
  static constexpr uint64_t kMinPauseUs = 5'000;
  static constexpr uint64_t kMaxPauseUs = 100'000;
  // With those that others have named as the leader.
  static constexpr size_t kMaxMembers = 64;

  using Done = weft::Function<void(absl::Status)>;

  struct Member {
    std::string address;
    std::unique_ptr<weft::Channel> channel;
  };
  // Starts one attempt of a call.
  using Attempt =
      weft::Function<void(weft::Channel& channel, const weft::CallOptions& options, Done done)>;

  // Finds the leader, and opens a session for each lane.
  static absl::StatusOr<std::unique_ptr<Cluster>> Open(weft::Engine& engine,
                                                       const std::vector<std::string>& addresses,
                                                       const weft::ChannelOptions& channel,
                                                       const weft::CallOptions& call,
                                                       uint32_t lanes);

  // As Kv::Stub's. REQUIRES: nothing is under way in `lane`; `request` stays until `done`.
  void Put(uint32_t lane, const PutRequest& request, PutReply* reply, Done done);
  void Delete(uint32_t lane, const DeleteRequest& request, DeleteReply* reply, Done done);
  void Get(uint32_t lane, const GetRequest& request, GetReply* reply, Done done);
  void Scan(uint32_t lane, const ScanRequest& request, ScanReply* reply, Done done);
  // Any call for the leader. It may run more than once.
  void Run(uint32_t lane, Attempt attempt, Done done);

  // To the member that is taken for the leader now.
  weft::Channel& leader() { return *members_[target_].channel; }
  // Attempts that were not a call's first.
  uint64_t repeated() const { return repeated_; }

 private:
  struct Lane {
    explicit Lane(weft::Engine& engine) : pause(engine) {}

    weft::Alarm pause;
    uint64_t session = 0;  // 0: it needs a new one
    uint64_t sequence = 0;

    // Of the call that is under way.
    Attempt attempt;
    Done done;
    bool writes = false;
    bool may_have_run = false;
    uint64_t deadline_ns = 0;
    uint64_t pause_us = 0;
    uint32_t redirects = 0;  // in a row, without a pause
    size_t tried = 0;        // the member of this attempt
    absl::Status last;       // of the attempt before
    raftkv::OpenSessionsRequest open;
    raftkv::OpenSessionsReply opened;
    PutRequest put;
    DeleteRequest remove;
  };

  Cluster(weft::Engine& engine, const weft::ChannelOptions& channel, const weft::CallOptions& call)
      : engine_(engine), channel_options_(channel), call_(call) {}

  absl::Status AddMember(const std::string& address);
  void Start(Lane& lane, bool writes, Attempt attempt, Done done);
  void Try(Lane& lane);
  void TryNamed(Lane& lane, weft::Channel& channel, const weft::CallOptions& options);
  void OnAttempt(Lane& lane, absl::Status status);
  // The member that `status` names as the leader, or none.
  bool Follow(const absl::Status& status);
  void End(Lane& lane, absl::Status status);
  static void SetCallId(const Lane& lane, CallId* id);

  weft::Engine& engine_;
  const weft::ChannelOptions channel_options_;
  const weft::CallOptions call_;
  std::vector<Member> members_;
  size_t target_ = 0;  // of members_: where attempts go
  uint64_t repeated_ = 0;
  std::deque<Lane> lanes_;
};

}  // namespace kv::client
