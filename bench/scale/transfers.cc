#include "bench/scale/transfers.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/perf/ends/perf.pb.h"
#include "bench/perf/ends/perf.weft.h"
#include "bench/scale/echo_server.h"
#include "bench/scale/round_trips.h"
#include "core/clock.h"
#include "core/histogram.h"
#include "core/status.h"
#include "core/strings.h"
#include "rpc/client/bulk_call.h"
#include "rpc/client/channel.h"
#include "rpc/memory/remote_memory.h"
#include "transport/buffer.h"

namespace weft::bench {
namespace {

constexpr double kMostRatio = 3;
constexpr uint32_t kFew = 1;
constexpr uint32_t kMany = 8;
// Of a leg, and of rounds: there are nine legs for each path, and behind each of them what is
// under way comes to its end, up to 512 MiB. So all of it takes less than 15 s.
constexpr double kShareOfSeconds = 0.2;
constexpr int kMostRounds = 3;
// Of a call that should take microseconds: an end of the wait for a server that hangs.
constexpr uint64_t kPatienceUs = 10'000'000;

enum class Way : uint8_t { kRead = 1, kFetch = 2, kWrite = 3, kUnorderedWrite = 4 };
constexpr Way kWays[] = {Way::kRead, Way::kFetch, Way::kWrite, Way::kUnorderedWrite};

std::string NameOf(Way way) {
  switch (way) {
    case Way::kRead:
      return "read";
    case Way::kFetch:
      return "fetch";
    case Way::kWrite:
      return "write";
    case Way::kUnorderedWrite:
      break;
  }
  return "unordered_write";
}

// Keeps a number of transfers outstanding: each starts the next when it has ended, until one fails.
//
// All of them move the same bytes: what is in memory is of no interest, and caches hold none of it.
//
// Threads: the engine's. Lifetime: Finish() comes before the end, and the channel's end later.
class TransferLoops {
 public:
  static absl::StatusOr<std::unique_ptr<TransferLoops>> Open(Channel& channel, uint32_t bytes) {
    LendReply lent;
    WEFT_RETURN_IF_ERROR(Perf::Stub(channel).Lend({}, &lent, {.timeout_us = kPatienceUs}));
    std::unique_ptr<TransferLoops> loops(new TransferLoops(channel));
    WEFT_ASSIGN_OR_RETURN(loops->buffer_, channel.AllocateBuffer(bytes));
    for (std::byte& byte : loops->buffer_->bytes()) byte = std::byte{2};  // touches every page
    WEFT_ASSIGN_OR_RETURN(loops->memory_, RemoteMemory::Open(channel, lent.memory()));
    for (uint32_t i = 0; i < kMany; ++i) {
      loops->lanes_.push_back(std::make_unique<Lane>(channel));
      loops->lanes_.back()->request.set_bytes(bytes);
    }
    return loops;
  }

  // REQUIRES: count <= kMany, and all of the last Start() are finished.
  void Start(Way way, uint32_t count) {
    way_ = way;
    running_ = true;
    ended_ = 0;
    engine_.Enter();
    for (uint32_t i = 0; i < count; ++i) Next(*lanes_[i]);
    engine_.Leave();
  }

  // Waits for those under way. Returns how many have ended since Start().
  absl::StatusOr<uint64_t> Finish() {
    running_ = false;
    engine_.Enter();
    while (outstanding_ > 0) engine_.Poll();
    engine_.Leave();
    WEFT_RETURN_IF_ERROR(status_);
    return ended_;
  }

 private:
  struct Lane {
    explicit Lane(Channel& channel) : bulk(channel) {}
    BulkCall bulk;  // this and the next two: of kFetch
    FetchRequest request;
    FetchReply reply;
  };

  explicit TransferLoops(Channel& channel) : engine_(CoreOf(channel.engine())), stub_(channel) {}

  void Next(Lane& lane) {
    ++outstanding_;
    auto ended = [this, &lane](const absl::Status& status) { Ended(lane, status); };
    switch (way_) {
      case Way::kRead:
        return memory_->Read(0, buffer_->slice(), ended);
      case Way::kWrite:
        return memory_->Write(0, buffer_->slice(), ended);
      case Way::kUnorderedWrite: {
        const RemotePiece piece{0, buffer_->slice()};
        return memory_->WriteUnordered({&piece, 1}, ended);
      }
      case Way::kFetch:
        break;
    }
    lane.bulk.Clear();
    lane.bulk.Receive(buffer_->slice());
    CallOptions call;
    call.bulk = &lane.bulk;
    stub_.Fetch(lane.request, &lane.reply, call, ended);
  }

  void Ended(Lane& lane, absl::Status status) {
    --outstanding_;
    ++ended_;
    if (status.ok() && way_ == Way::kFetch) status = lane.bulk.Received(lane.reply.data()).status();
    if (!status.ok()) {
      running_ = false;
      status_.Update(status);
    }
    if (running_) Next(lane);
  }

  EngineCore& engine_;
  const Perf::Stub stub_;
  std::unique_ptr<Buffer> buffer_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::unique_ptr<RemoteMemory> memory_;

  Way way_ = Way::kRead;
  bool running_ = false;
  uint32_t outstanding_ = 0;
  uint64_t ended_ = 0;
  absl::Status status_;  // of the first that failed
};

// A server, the one connection to it, and its transfers. These go first.
struct Group {
  std::unique_ptr<EchoServer> server;
  std::unique_ptr<Clients> clients;
  std::unique_ptr<TransferLoops> transfers;
};

absl::StatusOr<Group> OpenGroup(PathKind path, const ScaleOptions& options) {
  EchoServerOptions server;
  server.path = path;
  server.cpu = options.server_cpu;
  server.lent_bytes = options.transfer_bytes;
  Group group;
  WEFT_ASSIGN_OR_RETURN(group.server, EchoServer::Start(server));
  WEFT_ASSIGN_OR_RETURN(
      Clients clients,
      Clients::Open({.drive = EngineOptions::Drive::kCaller, .spin_ns = kSpinForever}, path));
  group.clients = std::make_unique<Clients>(std::move(clients));
  WEFT_RETURN_IF_ERROR(group.server->Serve());
  WEFT_RETURN_IF_ERROR(group.clients->Connect(group.server->address(), 1));
  WEFT_ASSIGN_OR_RETURN(group.transfers,
                        TransferLoops::Open(group.clients->channel(0), options.transfer_bytes));
  return group;
}

// What one leg has shown, in all its rounds.
struct Leg {
  std::vector<double> p50_us, p99_us, gigabytes_per_s;

  void AddLatency(const LatencyHistogram& latency) {
    p50_us.push_back(static_cast<double>(latency.Percentile(50)) / 1e3);
    p99_us.push_back(static_cast<double>(latency.Percentile(99)) / 1e3);
  }
};

struct Legs {
  Leg beside_one, beside_many;
  std::vector<double> p99_ratios;
};

// The rate is that of whole transfers, from the start of the first to the end of the last: what is
// under way at one time ends at one time.
absl::Status MeasureBeside(Group& group, Way way, uint32_t count, const ScaleOptions& options,
                           Leg* leg) {
  const uint64_t start_ns = Clock::Real().NowNs();
  group.transfers->Start(way, count);
  const absl::StatusOr<LatencyHistogram> latency =
      group.clients->RoundTrips(options.seconds * kShareOfSeconds);
  WEFT_ASSIGN_OR_RETURN(const uint64_t transfers, group.transfers->Finish());
  WEFT_RETURN_IF_ERROR(latency.status());
  // The reply to one more call proves that writes have arrived.
  WEFT_RETURN_IF_ERROR(group.clients->RoundTrips(/*seconds=*/0).status());
  const auto elapsed_ns = static_cast<double>(Clock::Real().NowNs() - start_ns);
  leg->AddLatency(*latency);
  leg->gigabytes_per_s.push_back(static_cast<double>(transfers * options.transfer_bytes) /
                                 elapsed_ns);
  return absl::OkStatus();
}

void AddLeg(const std::string& stem, const std::string& what, const Leg& leg, ScaleReport* report) {
  report->Add({stem + ".p50_us", what + ", p50", MedianOf(leg.p50_us), "us", {}, {}});
  report->Add({stem + ".p99_us", what + ", p99", MedianOf(leg.p99_us), "us", {}, {}});
  if (leg.gigabytes_per_s.empty()) return;
  report->Add(
      {stem + ".GBps", what + ", rate of these", MedianOf(leg.gigabytes_per_s), "GB/s", {}, {}});
}

absl::Status MeasurePath(PathKind path, const ScaleOptions& options, ScaleReport* report) {
  WEFT_ASSIGN_OR_RETURN(Group group, OpenGroup(path, options));
  Leg alone;
  std::vector<Legs> of_ways(std::size(kWays));
  for (int round = 0; round < std::min(options.rounds, kMostRounds); ++round) {
    WEFT_ASSIGN_OR_RETURN(const LatencyHistogram latency,
                          group.clients->RoundTrips(options.seconds * kShareOfSeconds));
    alone.AddLatency(latency);
    for (size_t i = 0; i < std::size(kWays); ++i) {
      Legs& legs = of_ways[i];
      WEFT_RETURN_IF_ERROR(MeasureBeside(group, kWays[i], kFew, options, &legs.beside_one));
      WEFT_RETURN_IF_ERROR(MeasureBeside(group, kWays[i], kMany, options, &legs.beside_many));
      legs.p99_ratios.push_back(legs.beside_many.p99_us.back() / legs.beside_one.p99_us.back());
    }
  }
  WEFT_RETURN_IF_ERROR(group.server->Rest(group.clients->channel(0)));

  const std::string name(PathKindName(path));
  const std::string stem = "scale." + name + ".transfers.";
  AddLeg(stem + "alone", name + ": 64 B call alone", alone, report);
  for (size_t i = 0; i < std::size(kWays); ++i) {
    const Legs& legs = of_ways[i];
    const std::string way = NameOf(kWays[i]);
    const std::string size = StrCat(" of ", options.transfer_bytes >> 20, " MiB");
    AddLeg(stem + way + "_x1", StrCat(name, ": beside 1 ", way, size), legs.beside_one, report);
    AddLeg(StrCat(stem, way, "_x", kMany), StrCat(name, ": beside ", kMany, " of these"),
           legs.beside_many, report);
    ScaleRow ratio;
    ratio.metric = stem + way + ".p99_ratio";
    ratio.what = StrCat(name, ": p99 beside ", kMany, " / beside 1, ", way);
    ratio.value = MedianOf(legs.p99_ratios);
    // Over shared memory a transfer is a copy that one of both engines makes in one go.
    if (path == PathKind::kTcp) ratio.at_most = kMostRatio;
    report->Add(std::move(ratio));
  }
  return absl::OkStatus();
}

}  // namespace

void MeasureTransfers(const ScaleOptions& options, ScaleReport* report) {
  for (const PathKind path : options.paths) {
    const absl::Status status = MeasurePath(path, options, report);
    if (status.ok()) continue;
    report->Fail(StrCat("transfers, ", PathKindName(path), ": ", ToStd(status.message())));
  }
}

}  // namespace weft::bench
