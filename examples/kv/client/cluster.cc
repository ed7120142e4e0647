#include "examples/kv/client/cluster.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/cord.h"
#include "core/clock.h"
#include "core/status.h"
#include "core/strings.h"

namespace kv::client {
namespace {

using ::weft::StrCat;

// raftkv::kLeaderPayload, which belongs to the servers.
constexpr char kLeaderPayload[] = "raftkv.Leader";
// Members that name each other as the leader: an election is going on.
constexpr uint32_t kMaxRedirects = 3;
// Of a call without a deadline.
constexpr uint64_t kDefaultTimeoutUs = 10'000'000;

std::optional<raftkv::Leader> LeaderIn(const absl::Status& status) {
  const auto payload = status.GetPayload(kLeaderPayload);
  raftkv::Leader leader;
  if (!payload.has_value() || !leader.ParseFromString(std::string(*payload))) return std::nullopt;
  return leader;
}

// Whether another attempt is of use.
bool IsAnswer(const absl::Status& status) {
  return !absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Cluster>> Cluster::Open(weft::Engine& engine,
                                                       const std::vector<std::string>& addresses,
                                                       const weft::ChannelOptions& channel,
                                                       const weft::CallOptions& call,
                                                       uint32_t lanes) {
  std::unique_ptr<Cluster> cluster(new Cluster(engine, channel, call));
  for (const std::string& address : addresses) {
    WEFT_RETURN_IF_ERROR(cluster->AddMember(address));
  }
  if (cluster->members_.empty()) return absl::InvalidArgumentError("no address of any member");
  for (uint32_t i = 0; i < lanes; ++i) cluster->lanes_.emplace_back(engine);
  raftkv::OpenSessionsRequest request;
  raftkv::OpenSessionsReply reply;
  request.set_count(lanes);
  std::optional<absl::Status> ended;
  cluster->Run(
      0,
      [&](weft::Channel& to, const weft::CallOptions& options, Done done) {
        raftkv::Cluster::Stub(to).OpenSessions(request, &reply, options, std::move(done));
      },
      [&](absl::Status status) { ended = std::move(status); });
  engine.RunUntil([&] { return ended.has_value(); });
  WEFT_RETURN_IF_ERROR(*ended);
  if (reply.sessions_size() != static_cast<int>(lanes)) {
    return absl::DataLossError(
        StrCat("the leader opened ", reply.sessions_size(), " of ", lanes, " sessions"));
  }
  for (uint32_t i = 0; i < lanes; ++i) {
    cluster->lanes_[i].session = reply.sessions(static_cast<int>(i));
  }
  return cluster;
}

absl::Status Cluster::AddMember(const std::string& address) {
  if (members_.size() == kMaxMembers) {
    return absl::ResourceExhaustedError(StrCat("more than ", kMaxMembers, " members"));
  }
  weft::ChannelOptions options = channel_options_;
  options.connect_at_once = false;
  auto channel = weft::Channel::Open(engine_, address, options);
  if (!channel.ok()) return channel.status();
  members_.push_back({address, *std::move(channel)});
  return absl::OkStatus();
}

void Cluster::SetCallId(const Lane& lane, CallId* id) {
  id->set_session(lane.session);
  id->set_sequence(lane.sequence);
}

void Cluster::Put(uint32_t index, const PutRequest& request, PutReply* reply, Done done) {
  Lane& lane = lanes_[index];
  lane.put = request;
  ++lane.sequence;
  Start(
      lane, /*writes=*/true,
      [&lane, reply](weft::Channel& to, const weft::CallOptions& options, Done ended) {
        SetCallId(lane, lane.put.mutable_call_id());
        Kv::Stub(to).Put(lane.put, reply, options, std::move(ended));
      },
      std::move(done));
}

void Cluster::Delete(uint32_t index, const DeleteRequest& request, DeleteReply* reply, Done done) {
  Lane& lane = lanes_[index];
  lane.remove = request;
  ++lane.sequence;
  Start(
      lane, /*writes=*/true,
      [&lane, reply](weft::Channel& to, const weft::CallOptions& options, Done ended) {
        SetCallId(lane, lane.remove.mutable_call_id());
        Kv::Stub(to).Delete(lane.remove, reply, options, std::move(ended));
      },
      std::move(done));
}

void Cluster::Get(uint32_t lane, const GetRequest& request, GetReply* reply, Done done) {
  Run(
      lane,
      [&request, reply](weft::Channel& to, const weft::CallOptions& options, Done ended) {
        Kv::Stub(to).Get(request, reply, options, std::move(ended));
      },
      std::move(done));
}

void Cluster::Scan(uint32_t lane, const ScanRequest& request, ScanReply* reply, Done done) {
  Run(
      lane,
      [&request, reply](weft::Channel& to, const weft::CallOptions& options, Done ended) {
        Kv::Stub(to).Scan(request, reply, options, std::move(ended));
      },
      std::move(done));
}

void Cluster::Run(uint32_t lane, Attempt attempt, Done done) {
  Start(lanes_[lane], /*writes=*/false, std::move(attempt), std::move(done));
}

void Cluster::Start(Lane& lane, bool writes, Attempt attempt, Done done) {
  lane.attempt = std::move(attempt);
  lane.done = std::move(done);
  lane.writes = writes;
  lane.may_have_run = false;
  lane.pause_us = kMinPauseUs;
  lane.redirects = 0;
  const uint64_t timeout_us = call_.timeout_us == 0 ? kDefaultTimeoutUs : call_.timeout_us;
  lane.deadline_ns = engine_.clock().NowNs() + timeout_us * weft::kNsPerUs;
  Try(lane);
}

void Cluster::Try(Lane& lane) {
  const uint64_t now_ns = engine_.clock().NowNs();
  if (now_ns >= lane.deadline_ns) {
    absl::Status status = absl::DeadlineExceededError(
        StrCat("no leader has answered in time; the last attempt, at ",
               members_[lane.tried].address, ": ", lane.last.ToString(),
               lane.may_have_run ? " (an attempt was sent and may have run)" : " (not run)"));
    return End(lane,
               weft::WithDelivery(std::move(status), lane.may_have_run ? weft::Delivery::kMayHaveRun
                                                                       : weft::Delivery::kNotSent));
  }
  lane.tried = target_;
  weft::CallOptions options = call_;
  options.timeout_us =
      std::clamp((lane.deadline_ns - now_ns) / weft::kNsPerUs, uint64_t{1}, kAttemptUs);
  weft::Channel& channel = *members_[target_].channel;
  if (lane.writes && lane.session == 0) return TryNamed(lane, channel, options);
  lane.attempt(channel, options,
               [this, &lane](absl::Status status) { OnAttempt(lane, std::move(status)); });
}

// In a new session.
void Cluster::TryNamed(Lane& lane, weft::Channel& channel, const weft::CallOptions& options) {
  lane.open.set_count(1);
  raftkv::Cluster::Stub(channel).OpenSessions(
      lane.open, &lane.opened, options, [this, &lane](absl::Status status) {
        if (!status.ok() || lane.opened.sessions_size() != 1) {
          return OnAttempt(
              lane, status.ok() ? absl::DataLossError("no session was opened") : std::move(status));
        }
        lane.session = lane.opened.sessions(0);
        lane.sequence = 1;
        Try(lane);
      });
}

void Cluster::OnAttempt(Lane& lane, absl::Status status) {
  const bool in_session = lane.writes && lane.session != 0;
  if (in_session && absl::IsFailedPrecondition(status)) {
    if (lane.may_have_run) {
      lane.session = 0;
      return End(lane, weft::WithDelivery(
                           absl::AbortedError("the group has forgotten this client's session: what "
                                              "became of an earlier attempt is not known"),
                           weft::Delivery::kMayHaveRun));
    }
    lane.session = 0;
    return Try(lane);
  }
  if (IsAnswer(status)) return End(lane, std::move(status));
  ++repeated_;
  const bool refused = status.GetPayload(kLeaderPayload).has_value() ||
                       weft::DeliveryOf(status) == weft::Delivery::kNotSent;
  lane.may_have_run = lane.may_have_run || !refused;
  const bool follows = Follow(status) && target_ != lane.tried;
  lane.last = std::move(status);
  if (follows && ++lane.redirects <= kMaxRedirects) return Try(lane);
  if (!follows && target_ == lane.tried) target_ = (target_ + 1) % members_.size();
  lane.redirects = 0;
  lane.pause.Set(lane.pause_us, [this, &lane] { Try(lane); });
  lane.pause_us = std::min(2 * lane.pause_us, kMaxPauseUs);
}

bool Cluster::Follow(const absl::Status& status) {
  const std::optional<raftkv::Leader> leader = LeaderIn(status);
  if (!leader.has_value() || leader->address().empty()) return false;
  for (size_t i = 0; i < members_.size(); ++i) {
    if (members_[i].address != leader->address()) continue;
    target_ = i;
    return true;
  }
  if (!AddMember(leader->address()).ok()) return false;
  target_ = members_.size() - 1;
  return true;
}

void Cluster::End(Lane& lane, absl::Status status) {
  lane.attempt = nullptr;
  Done done = std::move(lane.done);
  done(std::move(status));
}

}  // namespace kv::client
