#include "bench/raw/raw_ends.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "bench/perf/cell/places.h"
#include "bench/perf/ends/run_clock.h"
#include "bench/raw/raw_fabric.h"
#include "core/clock.h"
#include "core/histogram.h"
#include "core/status.h"
#include "core/strings.h"

namespace weft::bench {
namespace {

// A peer that says nothing so long is gone. (A lost frame of Soft-RoCE costs two seconds.)
constexpr uint64_t kSilenceNs = 10 * kNsPerSec;
constexpr uint32_t kLookEvery = 1 << 16;  // polls between two looks at the clock

// What the messages of a cell are as bare messages; of one-sided patterns, what asks for them.
size_t MessageBytes(const Cell& cell) {
  return std::max<size_t>(cell.bytes, 1);  // the first says what it is
}

// One fabric for each size of messages, so that receives are as large as what arrives and no
// larger. Both ends open the same one at the same time: when they run the first cell of its size.
class Fabrics {
 public:
  explicit Fabrics(const WorkloadOptions& options, bool listens)
      : options_(options), listens_(listens) {}

  absl::StatusOr<RawFabric*> For(const Cell& cell) {
    const bool sends = cell.pattern == Pattern::kUnary || cell.pattern == Pattern::kMessages;
    return OfSize(sends ? std::max(cell.bytes, kControlBytes) : kControlBytes);
  }

  // The smallest also has the memory for transfers.
  absl::StatusOr<RawFabric*> OfSize(uint32_t message_bytes) {
    std::unique_ptr<RawFabric>& fabric = fabrics_[message_bytes];
    if (fabric == nullptr) {
      RawFabricOptions options;
      const PathKind kind = options_.path.kind();
      options.provider = kind == PathKind::kOfiTcp ? "tcp" : PathKindName(kind);
      options.host = options_.path.host;
      options.device = options_.path.device.substr(0, options_.path.device.rfind(':'));  // no port
      options.peer_fd = options_.peer_fd;
      options.listens = listens_;
      options.message_bytes = message_bytes;
      options.has_region = message_bytes == kControlBytes;
      WEFT_ASSIGN_OR_RETURN(fabric, RawFabric::Open(options));
    }
    return fabric.get();
  }

 private:
  const WorkloadOptions options_;
  const bool listens_;
  std::map<uint32_t, std::unique_ptr<RawFabric>> fabrics_;
};

class RawClient final : public ClientEnd {
 public:
  explicit RawClient(const WorkloadOptions& options) : fabrics_(options, /*listens=*/false) {}
  absl::Status Open() { return fabrics_.OfSize(kControlBytes).status(); }

  absl::StatusOr<Figures> Run(const Cell& cell, double seconds) override {
    WEFT_ASSIGN_OR_RETURN(fabric_, fabrics_.For(cell));
    cell_ = cell;
    const Figures figures = cell.outstanding == 1 ? OneByOne(seconds) : Together(seconds);
    SendSurely(RawKind::kOver);
    WEFT_RETURN_IF_ERROR(fabric_->status());
    return figures;
  }

 private:
  bool healthy() const { return fabric_->status().ok(); }

  void SendSurely(RawKind kind) {
    while (!fabric_->Send(kind) && healthy()) fabric_->Poll([](RawKind) {});
  }

  // Starts one of what the cell is made of. False: later.
  bool Start() {
    switch (cell_.pattern) {
      case Pattern::kUnary:
        return fabric_->SendData(RawKind::kEcho, MessageBytes(cell_));
      case Pattern::kMessages:
        return fabric_->SendData(RawKind::kOneWay, MessageBytes(cell_));
      case Pattern::kBulk:
      case Pattern::kBulkChecked:
        return fabric_->Send(RawKind::kBulk);
      case Pattern::kRead:
        return StartTransfer([this](size_t at) { return fabric_->Read(at, cell_.bytes); });
      case Pattern::kWrite:
        return StartTransfer([this](size_t at) { return fabric_->Write(at, cell_.bytes); });
      case Pattern::kCoroutine:
      case Pattern::kStream:
        break;  // end_kinds.cc has none of them
    }
    return false;
  }

  template <class Transfer>
  bool StartTransfer(Transfer&& transfer) {
    const Places before = places_;
    const bool started = transfer(places_.Next(cell_.bytes));
    if (!started) places_ = before;
    return started;
  }

  // How many have ended since it was asked last.
  uint64_t Ended() {
    uint64_t ended = 0;
    const uint64_t transfers_before = fabric_->transfers_done();
    fabric_->Poll(
        [&](RawKind reply) { ended += reply == RawKind::kConfirm ? ConfirmEvery(cell_) : 1; });
    return ended + fabric_->transfers_done() - transfers_before;
  }

  // Every wait is bounded by the peer's silence.
  void AwaitOne() {
    uint64_t polls = 0;
    uint64_t give_up_ns = 0;
    while (Ended() == 0 && healthy()) {
      if (++polls % kLookEvery != 0) continue;
      const uint64_t now_ns = Clock::Real().NowNs();
      if (give_up_ns == 0) give_up_ns = now_ns + kSilenceNs;
      if (now_ns >= give_up_ns) _exit(1);  // the driver sees it
    }
  }

  // One reading of the clock for each: the end of one is the start of the next.
  Figures OneByOne(double seconds) {
    LatencyHistogram latency;
    const RunClock run(seconds);
    uint64_t start_ns = Clock::Real().NowNs();
    while (healthy() && !(run.IsOver(start_ns) && latency.count() > 0)) {
      while (!Start() && healthy()) fabric_->Poll([](RawKind) {});
      AwaitOne();
      const uint64_t end_ns = Clock::Real().NowNs();
      if (run.IsCounted(start_ns)) latency.Record(end_ns - start_ns);
      start_ns = end_ns;
    }
    return FiguresOf(latency);
  }

  Figures Together(double seconds) {
    Figures figures;
    figures.per_s = cell_.pattern == Pattern::kWrite ? WriteRate(seconds) : Rate(seconds);
    return figures;
  }

  // How many end in a second, with as many on the way as there should be.
  double Rate(double seconds) {
    uint64_t outstanding = 0;
    RateCounter rate(seconds, cell_.outstanding);
    const auto take = [&] {
      const uint64_t ended = Ended();
      outstanding -= ended;
      rate.Add(ended);
    };
    while (healthy() && rate.Continue()) {
      while (outstanding < cell_.outstanding && Start()) ++outstanding;
      take();
    }
    const double per_second = rate.PerSecond();
    // The last few messages of a stream are too few for a confirmation.
    const uint64_t unconfirmed =
        cell_.pattern == Pattern::kMessages ? uint64_t{ConfirmEvery(cell_)} - 1 : 0;
    while (healthy() && outstanding > unconfirmed) take();
    return per_second;
  }

  // Until the peer has confirmed that everything has arrived.
  double WriteRate(double seconds) {
    WriteFor(seconds * kWarmUpShare);
    const uint64_t start_ns = Clock::Real().NowNs();
    const uint64_t writes = WriteFor(seconds * (1 - kWarmUpShare));
    const auto elapsed_ns = static_cast<double>(Clock::Real().NowNs() - start_ns);
    return static_cast<double>(writes) * kNsPerSec / elapsed_ns;
  }

  uint64_t WriteFor(double seconds) {
    const RunClock run(seconds);
    uint64_t started = 0;
    uint64_t outstanding = 0;
    while (healthy() && !run.IsOver(Clock::Real().NowNs())) {
      while (outstanding < cell_.outstanding && Start()) {
        ++outstanding;
        ++started;
      }
      outstanding -= Ended();
    }
    while (healthy() && outstanding > 0) outstanding -= Ended();
    SendSurely(RawKind::kFence);
    AwaitOne();
    return started;
  }

  Fabrics fabrics_;
  RawFabric* fabric_ = nullptr;  // of the present run
  Cell cell_;
  Places places_;
};

class RawServer final : public ServerEnd {
 public:
  explicit RawServer(const WorkloadOptions& options) : fabrics_(options, /*listens=*/true) {}
  absl::Status Open() { return fabrics_.OfSize(kControlBytes).status(); }

  absl::Status Serve(const Cell& cell) override {
    WEFT_ASSIGN_OR_RETURN(fabric_, fabrics_.For(cell));
    cell_ = cell;
    writes_done_before_ = fabric_->transfers_done();
    writes_answered_ = 0;
    unconfirmed_ = 0;
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
    if (kind == RawKind::kEcho) ++echoes_owed_;
    if (kind == RawKind::kFence) ++fences_owed_;
    if (kind == RawKind::kOneWay && ++unconfirmed_ == ConfirmEvery(cell_)) {
      unconfirmed_ = 0;
      ++confirmations_owed_;
    }
    if (kind == RawKind::kBulk) ++writes_owed_;
    return kind == RawKind::kOver;
  }

  void Answer() {
    while (echoes_owed_ > 0 && fabric_->SendData(RawKind::kEcho, MessageBytes(cell_))) {
      --echoes_owed_;
    }
    while (fences_owed_ > 0 && fabric_->Send(RawKind::kFence)) --fences_owed_;
    while (confirmations_owed_ > 0 && fabric_->Send(RawKind::kConfirm)) --confirmations_owed_;
    AnswerBulk();
  }

  // Each request for bulk is a write into the client's memory, and its completion a reply.
  void AnswerBulk() {
    while (writes_owed_ > 0) {
      const Places before = places_;
      if (!fabric_->Write(places_.Next(cell_.bytes), cell_.bytes)) {
        places_ = before;
        break;
      }
      --writes_owed_;
    }
    while (writes_answered_ < fabric_->transfers_done() - writes_done_before_ &&
           fabric_->Send(RawKind::kBulk)) {
      ++writes_answered_;
    }
  }

  Fabrics fabrics_;
  RawFabric* fabric_ = nullptr;  // of the present run
  Cell cell_;
  Places places_;
  uint64_t writes_done_before_ = 0;
  uint64_t writes_answered_ = 0;  // of those in this run
  uint32_t writes_owed_ = 0;
  uint32_t echoes_owed_ = 0;
  uint32_t fences_owed_ = 0;
  uint32_t confirmations_owed_ = 0;
  uint32_t unconfirmed_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ClientEnd>> OpenRawClient(const WorkloadOptions& options) {
  auto client = std::make_unique<RawClient>(options);
  WEFT_RETURN_IF_ERROR(client->Open());
  return std::unique_ptr<ClientEnd>(std::move(client));
}

absl::StatusOr<std::unique_ptr<ServerEnd>> OpenRawServer(const WorkloadOptions& options) {
  auto server = std::make_unique<RawServer>(options);
  WEFT_RETURN_IF_ERROR(server->Open());
  return std::unique_ptr<ServerEnd>(std::move(server));
}

std::string FabricLibraryVersion() { return RawFabric::LibraryVersion(); }

}  // namespace weft::bench
