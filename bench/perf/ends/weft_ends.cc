#include "bench/perf/ends/weft_ends.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "bench/perf/cell/perf_path.h"
#include "bench/perf/ends/bare_messages.h"
#include "bench/perf/ends/bulk_calls.h"
#include "bench/perf/ends/call_loops.h"
#include "bench/perf/ends/call_streams.h"
#include "bench/perf/ends/lending_service.h"
#include "bench/perf/ends/one_sided.h"
#include "bench/perf/ends/perf.pb.h"
#include "bench/perf/ends/perf.weft.h"
#include "bench/perf/ends/pipe.h"
#include "bench/perf/ends/polled_server.h"
#include "bench/perf/ends/run_clock.h"
#include "core/clock.h"
#include "core/histogram.h"
#include "core/status.h"
#include "core/strings.h"
#include "rpc/client/channel.h"
#include "rpc/server/server.h"
#include "transport/engine.h"
#include "transport/network.h"
#include "weft/coroutine.h"

namespace weft::bench {
namespace {

// Calls before a run, for each that is to be outstanding: buffers and payloads of their size are
// made then, 1 to 5 ms for each 2 MiB here. (Raw libfabric has its memory before the first run.)
constexpr uint64_t kCallsThatMakeMemory = 3;

// Of a call that should take microseconds: an end of the wait for a peer that hangs.
constexpr uint64_t kPatienceUs = 10'000'000;

// Over RDMA: from the very address that the raw leg has.
LinkOptions LinkOver(const PerfPath& path) {
  LinkOptions link = OnlyPath(path.kind());
  if (path.kind() != PathKind::kVerbs) return link;
  const bool is_v6 = path.host.find(':') != std::string::npos;
  link.devices = {path.device};
  link.subnets = {StrCat(path.host, is_v6 ? "/128" : "/32")};
  return link;
}

std::optional<SecurityOptions> SecurityOf(const WorkloadOptions& options) {
  if (!options.tls) return std::nullopt;
  SecurityOptions security;
  security.psk_name = "perf";
  security.psk_secret = std::string(kMinPskBytes, 's');  // it stays on this machine
  return security;
}

absl::StatusOr<std::unique_ptr<Engine>> OpenEngine(EngineOptions::Drive drive) {
  EngineOptions options;
  options.drive = drive;
  options.spin_ns = kSpinForever;
  return OpenNetworkEngine(options);
}

// --- server -------------------------------------------------------------------------------------

class PerfService final : public LendingService {
 public:
  void StartTalk(ServerReaderWriter<TalkMessage, TalkMessage> stream) override {
    AnswerTalk(std::move(stream));
  }
};

class WeftServer final : public ServerEnd {
 public:
  absl::Status Open(const WorkloadOptions& options) {
    const LinkOptions link = LinkOver(options.path);
    ServerOptions server_options;
    server_options.link = link;
    server_options.security = SecurityOf(options);
    WEFT_ASSIGN_OR_RETURN(polled_, PolledServer::Open(&service_, server_options));
    WEFT_RETURN_IF_ERROR(service_.Prepare(*polled_.server, kRegionBytes));
    WEFT_ASSIGN_OR_RETURN(auto message_engine, OpenEngine(EngineOptions::Drive::kExternal));
    WEFT_ASSIGN_OR_RETURN(
        messages_, MessageReceiver::Open(std::move(message_engine), link, server_options.security));
    WEFT_RETURN_IF_ERROR(WriteLine(options.peer_fd, polled_.address()));
    return WriteLine(options.peer_fd, messages_->address());
  }
  ~WeftServer() override { service_.GiveMemoryBack(); }

  absl::Status Serve(const Cell& cell) override {
    if (cell.pattern == Pattern::kMessages) return messages_->Serve(cell);
    while (!service_.TakeOver()) polled_.Poll();
    return absl::OkStatus();
  }
  void Rest() override {
    while (polled_.Poll() > 0) {
    }
    messages_->Rest();
  }

 private:
  PerfService service_;
  PolledServer polled_;
  std::unique_ptr<MessageReceiver> messages_;
};

// --- client -------------------------------------------------------------------------------------

class WeftClient final : public ClientEnd {
 public:
  absl::Status Open(const WorkloadOptions& options) {
    const LinkOptions link = LinkOver(options.path);
    WEFT_ASSIGN_OR_RETURN(const std::string address, ReadLine(options.peer_fd));
    WEFT_ASSIGN_OR_RETURN(const std::string message_address, ReadLine(options.peer_fd));
    WEFT_ASSIGN_OR_RETURN(engine_, OpenEngine(EngineOptions::Drive::kCaller));
    ChannelOptions channel_options;
    channel_options.link = link;
    channel_options.security = SecurityOf(options);
    WEFT_ASSIGN_OR_RETURN(channel_, Channel::Open(*engine_, address, channel_options));
    stub_ = std::make_unique<Perf::Stub>(*channel_);
    LendReply lent;
    WEFT_RETURN_IF_ERROR(stub_->Lend({}, &lent, {.timeout_us = kPatienceUs}));
    WEFT_ASSIGN_OR_RETURN(one_sided_, OneSided::Open(*channel_, lent.memory()));
    WEFT_ASSIGN_OR_RETURN(bulk_, BulkCalls::Open(*channel_));
    WEFT_ASSIGN_OR_RETURN(auto message_engine, OpenEngine(EngineOptions::Drive::kCaller));
    WEFT_ASSIGN_OR_RETURN(messages_, MessageSender::Open(std::move(message_engine), message_address,
                                                         link, channel_options.security));
    return absl::OkStatus();
  }
  ~WeftClient() override {
    messages_.reset();
    bulk_.reset();
    one_sided_.reset();
    channel_.reset();
    engine_.reset();
  }

  absl::StatusOr<Figures> Run(const Cell& cell, double seconds) override {
    if (cell.pattern == Pattern::kMessages) return messages_->Run(cell, seconds);
    WEFT_ASSIGN_OR_RETURN(const Figures figures, RunCalls(cell, seconds));
    EndRunMessage reply;
    WEFT_RETURN_IF_ERROR(stub_->EndRun({}, &reply, {.timeout_us = kPatienceUs}));
    return figures;
  }
  void Rest() override {
    CoreOf(*engine_).Enter();
    while (engine_->Poll() > 0) {
    }
    CoreOf(*engine_).Leave();
    messages_->Rest();
  }

 private:
  absl::StatusOr<Figures> RunCalls(const Cell& cell, double seconds) {
    switch (cell.pattern) {
      case Pattern::kUnary:
        return cell.outstanding == 1 ? RoundTrips(cell, seconds) : Rate(cell, seconds);
      case Pattern::kCoroutine:
        return RoundTripsByCoroutine(cell, seconds);
      case Pattern::kStream:
        return RunCallStream(*engine_, *stub_, cell, seconds);
      case Pattern::kBulk:
      case Pattern::kBulkChecked:
        return bulk_->Run(cell, seconds);
      case Pattern::kRead:
      case Pattern::kWrite:
        return Transfers(cell, seconds);
      case Pattern::kMessages:
        break;
    }
    return absl::UnimplementedError(StrCat("no calls make up ", NameOf(cell)));
  }

  absl::StatusOr<Figures> RoundTrips(const Cell& cell, double seconds) {
    LatencyHistogram latency;
    EchoMessage request, reply;
    request.set_payload(std::string(cell.bytes, 'x'));
    for (uint64_t i = 0; i < kCallsThatMakeMemory; ++i) {
      WEFT_RETURN_IF_ERROR(stub_->Echo(request, &reply));
    }
    const RunClock run(seconds);
    uint64_t start_ns = Clock::Real().NowNs();
    while (!(run.IsOver(start_ns) && latency.count() > 0)) {
      WEFT_RETURN_IF_ERROR(stub_->Echo(request, &reply));
      const uint64_t end_ns = Clock::Real().NowNs();
      if (run.IsCounted(start_ns)) latency.Record(end_ns - start_ns);
      start_ns = end_ns;
    }
    return FiguresOf(latency);
  }

  absl::StatusOr<Figures> RoundTripsByCoroutine(const Cell& cell, double seconds) {
    LatencyHistogram latency;
    EchoMessage request, reply;
    request.set_payload(std::string(cell.bytes, 'x'));
    const auto round_trips = [&]() -> Task<absl::Status> {
      const RunClock run(seconds);
      uint64_t start_ns = Clock::Real().NowNs();
      absl::Status status;
      while (status.ok() && !(run.IsOver(start_ns) && latency.count() > 0)) {
        status = co_await stub_->CoEcho(request, &reply);
        const uint64_t end_ns = Clock::Real().NowNs();
        if (run.IsCounted(start_ns)) latency.Record(end_ns - start_ns);
        start_ns = end_ns;
      }
      co_return status;
    };
    WEFT_RETURN_IF_ERROR(Wait(*engine_, round_trips()));
    return FiguresOf(latency);
  }

  absl::StatusOr<Figures> Rate(const Cell& cell, double seconds) {
    CallLoops calls(stub_.get(), cell.outstanding, cell.bytes);
    CoreOf(*engine_).Enter();
    calls.Start();
    while (calls.status().ok() && calls.finished() < kCallsThatMakeMemory * cell.outstanding) {
      engine_->Poll();
    }
    RateCounter rate(seconds, cell.outstanding);
    while (calls.status().ok() && rate.Continue()) {
      const uint64_t finished_before = calls.finished();
      engine_->Poll();
      rate.Add(calls.finished() - finished_before);
    }
    calls.Stop();
    while (!calls.idle()) engine_->Poll();
    CoreOf(*engine_).Leave();
    WEFT_RETURN_IF_ERROR(calls.status());
    Figures figures;
    figures.per_s = rate.PerSecond();
    return figures;
  }

  absl::StatusOr<Figures> Transfers(const Cell& cell, double seconds) {
    if (cell.outstanding == 1) return one_sided_->OneByOne(cell, seconds);
    Figures figures;
    if (cell.pattern == Pattern::kRead) {
      WEFT_ASSIGN_OR_RETURN(figures.per_s, one_sided_->Rate(cell, seconds));
    } else {
      WEFT_ASSIGN_OR_RETURN(figures.per_s, WriteRate(cell, seconds));
    }
    return figures;
  }

  // The clock stops at a reply: by then the writes before the call have arrived.
  absl::StatusOr<double> WriteRate(const Cell& cell, double seconds) {
    WEFT_RETURN_IF_ERROR(WriteFor(cell, seconds * kWarmUpShare).status());
    const uint64_t start_ns = Clock::Real().NowNs();
    WEFT_ASSIGN_OR_RETURN(const uint64_t writes, WriteFor(cell, seconds * (1 - kWarmUpShare)));
    const auto elapsed_ns = static_cast<double>(Clock::Real().NowNs() - start_ns);
    return static_cast<double>(writes) * kNsPerSec / elapsed_ns;
  }

  absl::StatusOr<uint64_t> WriteFor(const Cell& cell, double seconds) {
    WEFT_ASSIGN_OR_RETURN(const uint64_t writes, one_sided_->RunFor(cell, seconds));
    EchoMessage reply;
    WEFT_RETURN_IF_ERROR(stub_->Echo({}, &reply, {.timeout_us = kPatienceUs}));
    return writes;
  }

  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Channel> channel_;
  std::unique_ptr<Perf::Stub> stub_;
  std::unique_ptr<OneSided> one_sided_;
  std::unique_ptr<BulkCalls> bulk_;
  std::unique_ptr<MessageSender> messages_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ClientEnd>> OpenWeftClient(const WorkloadOptions& options) {
  auto client = std::make_unique<WeftClient>();
  WEFT_RETURN_IF_ERROR(client->Open(options));
  return std::unique_ptr<ClientEnd>(std::move(client));
}

absl::StatusOr<std::unique_ptr<ServerEnd>> OpenWeftServer(const WorkloadOptions& options) {
  auto server = std::make_unique<WeftServer>();
  WEFT_RETURN_IF_ERROR(server->Open(options));
  return std::unique_ptr<ServerEnd>(std::move(server));
}

}  // namespace weft::bench
