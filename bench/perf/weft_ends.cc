#include "bench/perf/weft_ends.h"

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "bench/perf/bulk_calls.h"
#include "bench/perf/one_sided.h"
#include "bench/perf/perf.pb.h"
#include "bench/perf/perf.weft.h"
#include "bench/perf/perf_path.h"
#include "bench/perf/pipe.h"
#include "bench/perf/run_clock.h"
#include "core/clock.h"
#include "core/histogram.h"
#include "core/status.h"
#include "core/strings.h"
#include "rpc/channel.h"
#include "rpc/exported_memory.h"
#include "rpc/server.h"
#include "rpc/server_bulk.h"
#include "transport/engine.h"
#include "transport/network.h"

namespace weft::bench {
namespace {

constexpr char kAnyPort[] = "127.0.0.1:0";
// Of a call that should take microseconds: an end of the wait for a peer that hangs.
constexpr uint64_t kPatienceUs = 10'000'000;
// No path but the one, so there is nothing to gain from giving up early. Emulated, each step of a
// connection may take seconds.
constexpr uint64_t kConnectWithinNs = 20 * kNsPerSec;

// Over RDMA: from the very address that the raw leg has.
LinkOptions OnlyPath(const PerfPath& path) {
  LinkOptions link;
  link.paths = {path.kind()};
  link.connect_timeout_ns = kConnectWithinNs;
  link.path_timeout_ns = kConnectWithinNs / 2;
  if (path.kind() != PathKind::kVerbs) return link;
  const bool is_v6 = path.host.find(':') != std::string::npos;
  link.devices = {path.device};
  link.subnets = {StrCat(path.host, is_v6 ? "/128" : "/32")};
  return link;
}

absl::StatusOr<std::unique_ptr<Engine>> OpenEngine(EngineOptions::Drive drive) {
  EngineOptions options;
  options.drive = drive;
  options.spin_ns = kSpinForever;
  return OpenNetworkEngine(options);
}

// --- server -------------------------------------------------------------------------------------

class PerfService final : public Perf::Service {
 public:
  absl::Status Echo(ServerContext& context, const EchoMessage& request,
                    EchoMessage* reply) override {
    (void)context;
    reply->set_payload(request.payload());
    return absl::OkStatus();
  }
  absl::Status Lend(ServerContext& context, const LendRequest& request, LendReply* reply) override {
    (void)context;
    (void)request;
    *reply->mutable_memory() = exported_->handle();
    return absl::OkStatus();
  }
  // The reply leaves when the bytes are there.
  absl::Status Fetch(ServerContext& context, const FetchRequest& request,
                     FetchReply* reply) override {
    const size_t offset = fetches_++ * kBulkBytes % kBulkRegionBytes;
    BulkOptions options;
    options.crc32c = request.with_crc32c();
    context.bulk().Push(SliceOf(buffer_->memory(), buffer_->offset() + offset, kBulkBytes),
                        reply->mutable_data(), options, nullptr);
    return absl::OkStatus();
  }
  absl::Status EndRun(ServerContext& context, const EndRunMessage& request,
                      EndRunMessage* reply) override {
    (void)context;
    (void)request;
    (void)reply;
    over_ = true;
    return absl::OkStatus();
  }

  // Memory for Lend() and Fetch().
  absl::Status Prepare(Server& server) {
    WEFT_ASSIGN_OR_RETURN(buffer_, server.AllocateBuffer(kBulkRegionBytes));
    for (std::byte& byte : buffer_->bytes()) byte = std::byte{1};  // touches every page
    ExportOptions options;
    options.rights = kMayRead | kMayWrite;
    WEFT_ASSIGN_OR_RETURN(exported_, server.Export(buffer_->bytes(), options));
    return absl::OkStatus();
  }
  void GiveMemoryBack() {
    exported_.reset();
    buffer_.reset();
  }

  // Whether a run has ended since this was asked last.
  bool TakeOver() { return std::exchange(over_, false); }

 private:
  std::unique_ptr<Buffer> buffer_;
  std::unique_ptr<ExportedMemory> exported_;
  uint64_t fetches_ = 0;
  bool over_ = false;
};

class WeftServer final : public ServerEnd {
 public:
  absl::Status Open(const WorkloadOptions& options) {
    const LinkOptions link = OnlyPath(options.path);
    WEFT_ASSIGN_OR_RETURN(engine_, OpenEngine(EngineOptions::Drive::kExternal));
    ServerOptions server_options;
    server_options.link = link;
    WEFT_ASSIGN_OR_RETURN(server_, Server::Create(*engine_, server_options));
    WEFT_RETURN_IF_ERROR(server_->AddService(&service_));
    WEFT_RETURN_IF_ERROR(server_->Listen(kAnyPort));
    WEFT_RETURN_IF_ERROR(service_.Prepare(*server_));
    return WriteLine(options.peer_fd, server_->address());
  }
  ~WeftServer() override {
    service_.GiveMemoryBack();
    server_.reset();
    engine_.reset();
  }

  absl::Status Serve() override {
    while (!service_.TakeOver()) engine_->Poll();
    return absl::OkStatus();
  }
  void Rest() override {
    while (engine_->Poll() > 0) {
    }
  }

 private:
  PerfService service_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Server> server_;
};

// --- client -------------------------------------------------------------------------------------

// One of the outstanding calls of a rate measurement; starts its next when it has ended.
class CallLoop {
 public:
  void Start(const Perf::Stub* stub, RateCounter* rate, bool* running, absl::Status* status) {
    stub_ = stub;
    rate_ = rate;
    running_ = running;
    status_ = status;
    request_.set_payload(std::string(kSmallBytes, 'x'));
    Next();
  }
  bool busy() const { return busy_; }

 private:
  void Next() {
    busy_ = true;
    stub_->Echo(request_, &reply_, {}, [this](const absl::Status& status) { Ended(status); });
  }
  void Ended(const absl::Status& status) {
    busy_ = false;
    rate_->Add(1);
    if (!status.ok()) {
      *running_ = false;
      *status_ = status;
    }
    if (*running_) Next();
  }

  const Perf::Stub* stub_ = nullptr;
  RateCounter* rate_ = nullptr;
  bool* running_ = nullptr;
  absl::Status* status_ = nullptr;
  EchoMessage request_;
  EchoMessage reply_;
  bool busy_ = false;
};

class WeftClient final : public ClientEnd {
 public:
  absl::Status Open(const WorkloadOptions& options) {
    WEFT_ASSIGN_OR_RETURN(const std::string address, ReadLine(options.peer_fd));
    WEFT_ASSIGN_OR_RETURN(engine_, OpenEngine(EngineOptions::Drive::kCaller));
    ChannelOptions channel_options;
    channel_options.link = OnlyPath(options.path);
    WEFT_ASSIGN_OR_RETURN(channel_, Channel::Open(*engine_, address, channel_options));
    stub_ = std::make_unique<Perf::Stub>(*channel_);
    LendReply lent;
    WEFT_RETURN_IF_ERROR(stub_->Lend({}, &lent, {.timeout_us = kPatienceUs}));
    WEFT_ASSIGN_OR_RETURN(one_sided_, OneSided::Open(*channel_, lent.memory()));
    WEFT_ASSIGN_OR_RETURN(bulk_, BulkCalls::Open(*channel_));
    return absl::OkStatus();
  }
  ~WeftClient() override {
    bulk_.reset();
    one_sided_.reset();
    channel_.reset();
    engine_.reset();
  }

  absl::StatusOr<Figures> Run(Measurement measurement, double seconds) override {
    WEFT_ASSIGN_OR_RETURN(const Figures figures, Measure(measurement, seconds));
    EndRunMessage reply;
    WEFT_RETURN_IF_ERROR(stub_->EndRun({}, &reply, {.timeout_us = kPatienceUs}));
    return figures;
  }
  void Rest() override {
    engine_->Enter();
    while (engine_->Poll() > 0) {
    }
    engine_->Leave();
  }

 private:
  absl::StatusOr<Figures> Measure(Measurement measurement, double seconds) {
    switch (measurement) {
      case Measurement::kRoundTrip:
        return RoundTrips(seconds);
      case Measurement::kRate:
        return Rate(seconds);
      case Measurement::kRead:
        return Reads(seconds);
      case Measurement::kReadRate:
        return ReadRate(seconds);
      case Measurement::kWrite:
        return Writes(seconds);
      case Measurement::kBulk:
        return Bulk(/*with_crc32c=*/false, seconds);
      case Measurement::kBulkChecked:
        return Bulk(/*with_crc32c=*/true, seconds);
      case Measurement::kOneWay:
        break;
    }
    return absl::UnimplementedError("calls have a reply: there is no one-way rate");
  }

  absl::StatusOr<Figures> RoundTrips(double seconds) {
    LatencyHistogram latency;
    EchoMessage request;
    EchoMessage reply;
    request.set_payload(std::string(kSmallBytes, 'x'));
    const RunClock run(seconds);
    uint64_t start_ns = Clock::Real().NowNs();
    while (!(run.IsOver(start_ns) && latency.count() > 0)) {
      WEFT_RETURN_IF_ERROR(stub_->Echo(request, &reply));
      const uint64_t end_ns = Clock::Real().NowNs();
      if (run.IsCounted(start_ns)) latency.Record(end_ns - start_ns);
      start_ns = end_ns;
    }
    return RoundTripFigures(latency);
  }

  absl::StatusOr<Figures> Rate(double seconds) {
    absl::Status status;
    bool running = true;
    RateCounter rate(seconds);
    CallLoop loops[kOutstanding];
    engine_->Enter();
    for (CallLoop& loop : loops) loop.Start(stub_.get(), &rate, &running, &status);
    while (running && rate.Continue()) engine_->Poll();
    running = false;
    for (CallLoop& loop : loops) {
      while (loop.busy()) engine_->Poll();
    }
    engine_->Leave();
    WEFT_RETURN_IF_ERROR(status);
    Figures figures;
    figures.per_s = rate.PerSecond();
    return figures;
  }

  absl::StatusOr<Figures> Reads(double seconds) {
    WEFT_ASSIGN_OR_RETURN(const LatencyHistogram latency, one_sided_->ReadOneByOne(seconds));
    return RoundTripFigures(latency);
  }

  absl::StatusOr<Figures> ReadRate(double seconds) {
    Figures figures;
    WEFT_ASSIGN_OR_RETURN(figures.per_s, one_sided_->ReadRate(seconds));
    return figures;
  }

  // The clock stops at a reply: by then the writes before the call have arrived.
  absl::StatusOr<Figures> Writes(double seconds) {
    WEFT_RETURN_IF_ERROR(WriteFor(seconds * kWarmUpShare).status());
    const uint64_t start_ns = Clock::Real().NowNs();
    WEFT_ASSIGN_OR_RETURN(const uint64_t writes, WriteFor(seconds * (1 - kWarmUpShare)));
    const auto elapsed_ns = static_cast<double>(Clock::Real().NowNs() - start_ns);
    Figures figures;
    figures.gbytes_per_s = static_cast<double>(writes) * kBulkBytes / elapsed_ns;
    return figures;
  }

  absl::StatusOr<uint64_t> WriteFor(double seconds) {
    WEFT_ASSIGN_OR_RETURN(const uint64_t writes, one_sided_->WriteFor(seconds));
    EchoMessage reply;
    WEFT_RETURN_IF_ERROR(stub_->Echo({}, &reply, {.timeout_us = kPatienceUs}));
    return writes;
  }

  absl::StatusOr<Figures> Bulk(bool with_crc32c, double seconds) {
    WEFT_ASSIGN_OR_RETURN(const double per_s, bulk_->Rate(with_crc32c, seconds));
    Figures figures;
    figures.gbytes_per_s = per_s * kBulkBytes / kNsPerSec;
    return figures;
  }

  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Channel> channel_;
  std::unique_ptr<Perf::Stub> stub_;
  std::unique_ptr<OneSided> one_sided_;
  std::unique_ptr<BulkCalls> bulk_;
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
