#include "bench/raw/raw_ends.h"

#include <unistd.h>

#include <utility>

#include "absl/status/status.h"
#include "bench/perf/run_clock.h"
#include "bench/raw/raw_fabric.h"
#include "core/clock.h"
#include "core/status.h"
#include "core/strings.h"

namespace weft::bench {
namespace {

// A peer that says nothing so long is gone. (A lost frame of Soft-RoCE costs two seconds.)
constexpr uint64_t kSilenceNs = 10 * kNsPerSec;
constexpr uint32_t kLookEvery = 1 << 16;  // polls between two looks at the clock

absl::StatusOr<std::unique_ptr<RawFabric>> OpenFabric(const WorkloadOptions& options,
                                                      bool listens) {
  RawFabricOptions fabric;
  fabric.provider = PathKindName(options.path.kind());
  fabric.host = options.path.host;
  fabric.device = options.path.device.substr(0, options.path.device.rfind(':'));  // no port
  fabric.peer_fd = options.peer_fd;
  fabric.listens = listens;
  fabric.region_bytes = kBulkRegionBytes;
  return RawFabric::Open(fabric);
}

class RawClient final : public ClientEnd {
 public:
  explicit RawClient(std::unique_ptr<RawFabric> fabric) : fabric_(std::move(fabric)) {}

  absl::StatusOr<Figures> Run(Measurement measurement, double seconds) override {
    Figures figures;
    switch (measurement) {
      case Measurement::kRoundTrip:
        figures = RoundTrips(seconds);
        break;
      case Measurement::kRate:
        figures.per_s = Rate(seconds, RawKind::kEcho);
        break;
      case Measurement::kOneWay:
        figures.per_s = Rate(seconds, RawKind::kOneWay);
        break;
      case Measurement::kRead:
        figures = Reads(seconds);
        break;
      case Measurement::kReadRate:
        figures.per_s = ReadRate(seconds);
        break;
      case Measurement::kWrite:
        figures.gbytes_per_s = Writes(seconds);
        break;
      case Measurement::kBulk:
        figures.gbytes_per_s = Rate(seconds, RawKind::kBulk) * kBulkBytes / kNsPerSec;
        break;
      case Measurement::kBulkChecked:
        return absl::UnimplementedError("raw transfers have no checksum");
    }
    SendSurely(RawKind::kOver);
    WEFT_RETURN_IF_ERROR(fabric_->status());
    return figures;
  }

 private:
  bool healthy() const { return fabric_->status().ok(); }

  void SendSurely(RawKind kind) {
    while (!fabric_->Send(kind) && healthy()) fabric_->Poll([](RawKind) {});
  }

  // Waits for one message.
  void AwaitMessage() {
    AwaitUntil([this] { return fabric_->Poll([](RawKind) {}) > 0; });
  }

  // Every wait is bounded by the peer's silence.
  template <class Condition>
  void AwaitUntil(Condition&& arrived) {
    uint64_t polls = 0;
    uint64_t give_up_ns = 0;
    while (!arrived() && healthy()) {
      if (++polls % kLookEvery != 0) continue;
      const uint64_t now_ns = Clock::Real().NowNs();
      if (give_up_ns == 0) give_up_ns = now_ns + kSilenceNs;
      if (now_ns >= give_up_ns) _exit(1);  // the driver sees it
    }
  }

  Figures RoundTrips(double seconds) {
    return Timed(seconds, [this] {
      SendSurely(RawKind::kEcho);
      AwaitMessage();
    });
  }

  Figures Reads(double seconds) {
    return Timed(seconds, [this] {
      const uint64_t done = fabric_->transfers_done();
      while (!StartRead() && healthy()) fabric_->Poll([](RawKind) {});
      AwaitUntil([&] {
        fabric_->Poll([](RawKind) {});
        return fabric_->transfers_done() > done;
      });
    });
  }

  // One reading of the clock for each: the end of one is the start of the next.
  template <class RoundTrip>
  Figures Timed(double seconds, RoundTrip&& round_trip) {
    LatencyHistogram latency;
    const RunClock run(seconds);
    uint64_t start_ns = Clock::Real().NowNs();
    while (healthy() && !(run.IsOver(start_ns) && latency.count() > 0)) {
      round_trip();
      const uint64_t end_ns = Clock::Real().NowNs();
      if (run.IsCounted(start_ns)) latency.Record(end_ns - start_ns);
      start_ns = end_ns;
    }
    return RoundTripFigures(latency);
  }

  bool StartRead() {
    const bool started = fabric_->Read(reads_ * kSmallBytes % kBulkRegionBytes, kSmallBytes);
    reads_ += started;
    return started;
  }

  double ReadRate(double seconds) {
    RateCounter rate(seconds);
    uint64_t outstanding = 0;
    const auto poll = [&] {
      const uint64_t done_before = fabric_->transfers_done();
      fabric_->Poll([](RawKind) {});
      const uint64_t done = fabric_->transfers_done() - done_before;
      outstanding -= done;
      rate.Add(done);
    };
    while (healthy() && rate.Continue()) {
      while (outstanding < kOutstanding && StartRead()) ++outstanding;
      poll();
    }
    const double per_second = rate.PerSecond();
    while (healthy() && outstanding > 0) poll();
    return per_second;
  }

  // Messages answered per second, with as many on the way as there should be.
  double Rate(double seconds, RawKind kind) {
    const uint64_t most = kind == RawKind::kBulk ? kBulkOutstanding : kOutstanding;
    uint64_t outstanding = 0;
    RateCounter rate(seconds);
    const auto take = [&](RawKind reply) {
      const uint64_t answered = reply == RawKind::kConfirm ? kConfirmEvery : 1;
      outstanding -= answered;
      rate.Add(answered);
    };
    while (healthy() && rate.Continue()) {
      while (outstanding < most && fabric_->Send(kind)) ++outstanding;
      fabric_->Poll(take);
    }
    // The last few one-way messages are too few for a confirmation.
    const uint64_t unanswered = kind == RawKind::kOneWay ? kConfirmEvery - 1 : 0;
    const double per_second = rate.PerSecond();
    while (healthy() && outstanding > unanswered) fabric_->Poll(take);
    return per_second;
  }

  // GB/s, until the peer has confirmed that everything has arrived.
  double Writes(double seconds) {
    WriteUntil(seconds * kWarmUpShare);
    const uint64_t start_ns = Clock::Real().NowNs();
    const uint64_t writes = WriteUntil(seconds * (1 - kWarmUpShare));
    const auto elapsed_ns = static_cast<double>(Clock::Real().NowNs() - start_ns);
    return static_cast<double>(writes) * kBulkBytes / elapsed_ns;  // bytes/ns are GB/s
  }

  uint64_t WriteUntil(double seconds) {
    const RunClock run(seconds);
    const uint64_t done_before = fabric_->transfers_done();
    uint64_t posted = 0;
    const auto in_flight = [&] { return posted - (fabric_->transfers_done() - done_before); };
    while (healthy() && !run.IsOver(Clock::Real().NowNs())) {
      while (in_flight() < kBulkOutstanding &&
             fabric_->Write(posted * kBulkBytes % kBulkRegionBytes, kBulkBytes)) {
        ++posted;
      }
      fabric_->Poll([](RawKind) {});
    }
    while (healthy() && in_flight() > 0) fabric_->Poll([](RawKind) {});
    SendSurely(RawKind::kFence);
    AwaitMessage();
    return posted;
  }

  const std::unique_ptr<RawFabric> fabric_;
  uint64_t reads_ = 0;
};

class RawServer final : public ServerEnd {
 public:
  explicit RawServer(std::unique_ptr<RawFabric> fabric) : fabric_(std::move(fabric)) {}

  absl::Status Serve() override {
    bool over = false;
    while (!over && fabric_->status().ok()) {
      fabric_->Poll([&](RawKind kind) { over = Take(kind) || over; });
      Answer();
    }
    return fabric_->status();
  }

 private:
  // True when the run is over.
  bool Take(RawKind kind) {
    if (kind == RawKind::kEcho || kind == RawKind::kFence) ++echoes_owed_;
    if (kind == RawKind::kOneWay && ++unconfirmed_ == kConfirmEvery) {
      unconfirmed_ = 0;
      ++confirmations_owed_;
    }
    if (kind == RawKind::kBulk) ++bulks_owed_;
    if (kind == RawKind::kOver) unconfirmed_ = 0;
    return kind == RawKind::kOver;
  }

  void Answer() {
    while (echoes_owed_ > 0 && fabric_->Send(RawKind::kEcho)) --echoes_owed_;
    AnswerBulk();
    while (confirmations_owed_ > 0 && fabric_->Send(RawKind::kConfirm)) --confirmations_owed_;
  }

  // Each bulk request is a write into the client's memory, and its completion a reply.
  void AnswerBulk() {
    while (bulks_owed_ > 0 && fabric_->Write(bulks_ * kBulkBytes % kBulkRegionBytes, kBulkBytes)) {
      --bulks_owed_;
      ++bulks_;
    }
    while (bulks_answered_ < fabric_->transfers_done() && fabric_->Send(RawKind::kBulk)) {
      ++bulks_answered_;
    }
  }

  const std::unique_ptr<RawFabric> fabric_;
  uint64_t bulks_ = 0;           // writes started
  uint64_t bulks_answered_ = 0;  // of them
  uint32_t bulks_owed_ = 0;      // not started yet
  uint32_t echoes_owed_ = 0;
  uint32_t confirmations_owed_ = 0;
  uint32_t unconfirmed_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ClientEnd>> OpenRawClient(const WorkloadOptions& options) {
  WEFT_ASSIGN_OR_RETURN(auto fabric, OpenFabric(options, /*listens=*/false));
  return std::unique_ptr<ClientEnd>(std::make_unique<RawClient>(std::move(fabric)));
}

absl::StatusOr<std::unique_ptr<ServerEnd>> OpenRawServer(const WorkloadOptions& options) {
  WEFT_ASSIGN_OR_RETURN(auto fabric, OpenFabric(options, /*listens=*/true));
  return std::unique_ptr<ServerEnd>(std::make_unique<RawServer>(std::move(fabric)));
}

}  // namespace weft::bench
