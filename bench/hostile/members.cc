#include "bench/hostile/members.h"

#include <algorithm>
#include <cstring>
#include <ctime>
#include <functional>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "bench/hostile/wiretap.h"
#include "bench/perf/ends/perf.pb.h"
#include "bench/perf/ends/perf.weft.h"
#include "bench/perf/ends/polled_server.h"
#include "core/random.h"
#include "core/status.h"
#include "rpc/client/bulk_call.h"
#include "rpc/client/channel.h"
#include "rpc/wire/frame.h"
#include "rpc/wire/hello.pb.h"
#include "rpc/wire/stream_frame.h"
#include "transport/buffer.h"
#include "transport/network.h"
#include "weft/stream.h"

namespace weft::bench {
namespace {

constexpr uint64_t kMsNs = 1'000'000;
// As long as bulk is here.
constexpr uint32_t kBulkBytes = 1 << 20;
// A channel that does not open by then is given up: the server may have put it out, but this
// process has the lowest priority on a machine that may be busy.
constexpr uint64_t kConnectNs = 20 * kNsPerSec;

void Sleep(uint64_t ns) {
  const timespec time = {static_cast<time_t>(ns / kNsPerSec), static_cast<long>(ns % kNsPerSec)};
  nanosleep(&time, nullptr);
}

// What a member works at; each kind keeps some of it under way.
enum Work : uint32_t {
  kCalls = 1,    // small ones
  kLarge = 2,    // messages of 256 KiB there and back
  kFetches = 4,  // bulk in replies
  kTalks = 8,    // streams that are written and not read
};

// An engine and some channels of it, which work while somebody drives them.
class Members {
 public:
  Members(const AttackOptions& options, uint32_t work) : options_(options), work_(work) {}
  ~Members() { Leave(); }
  Members(const Members&) = delete;
  Members& operator=(const Members&) = delete;

  absl::Status Join(const std::string& address, int channels, int streams) {
    EngineOptions engine_options;
    engine_options.drive = EngineOptions::Drive::kExternal;
    engine_options.spin_ns = 0;
    WEFT_ASSIGN_OR_RETURN(engine_, OpenNetworkEngine(engine_options));
    ChannelOptions channel_options;
    channel_options.link = OnlyPath(options_.path);
    channel_options.link.connect_timeout_ns = kConnectNs;
    channel_options.security = SecurityOf(options_.tls_folder, "client");
    for (int i = 0; i < channels; ++i) {
      WEFT_ASSIGN_OR_RETURN(auto channel, Channel::Open(*engine_, address, channel_options));
      channels_.push_back(std::move(channel));
      Begin(*channels_.back(), streams);
    }
    return absl::OkStatus();
  }

  void Drive(uint64_t ns) {
    if (engine_ == nullptr) return;
    engine_->RunUntil([] { return false; }, AttackClock::NowNs() + ns);
  }

  // Without a word, as far as nobody drives the engine meanwhile.
  void Leave() {
    leaving_ = true;
    talks_.clear();
    channels_.clear();  // their calls end
    fetches_.clear();
    echoes_.clear();
    buffers_.clear();
    engine_.reset();
  }

  uint64_t answered() const { return answered_; }

 private:
  struct EchoLoop {
    explicit EchoLoop(Channel& channel) : stub(channel) {}
    Perf::Stub stub;
    EchoMessage request;
    EchoMessage reply;
  };
  struct FetchLoop {
    explicit FetchLoop(Channel& channel) : stub(channel), bulk(channel) {}
    Perf::Stub stub;
    BulkCall bulk;
    FetchRequest request;
    FetchReply reply;
    Slice place;
  };
  using Talk = ClientReaderWriter<TalkMessage, TalkMessage>;

  void Begin(Channel& channel, int streams) {
    if ((work_ & kCalls) != 0) BeginEchoes(channel, 32, 64);
    if ((work_ & kLarge) != 0) BeginEchoes(channel, 16, 256 << 10);
    if ((work_ & kFetches) != 0) BeginFetches(channel, 4);
    if ((work_ & kTalks) != 0) BeginTalks(channel, streams);
  }

  void BeginEchoes(Channel& channel, int count, size_t bytes) {
    for (int i = 0; i < count; ++i) {
      echoes_.push_back(std::make_unique<EchoLoop>(channel));
      echoes_.back()->request.set_payload(std::string(bytes, 'h'));
      NextEcho(*echoes_.back());
    }
  }
  void NextEcho(EchoLoop& loop) {
    loop.stub.Echo(loop.request, &loop.reply, {}, [this, &loop](const absl::Status& status) {
      if (Ended(status)) NextEcho(loop);
    });
  }

  void BeginFetches(Channel& channel, uint32_t count) {
    auto buffer = channel.AllocateBuffer(count * kBulkBytes);
    if (!buffer.ok()) return;
    buffers_.push_back(*std::move(buffer));
    for (uint32_t i = 0; i < count; ++i) {
      fetches_.push_back(std::make_unique<FetchLoop>(channel));
      fetches_.back()->place = buffers_.back()->slice(size_t{i} * kBulkBytes, kBulkBytes);
      fetches_.back()->request.set_bytes(kBulkBytes);
      NextFetch(*fetches_.back());
    }
  }
  void NextFetch(FetchLoop& loop) {
    loop.bulk.Clear();
    loop.bulk.Receive(loop.place);
    loop.stub.Fetch(loop.request, &loop.reply, {.bulk = &loop.bulk},
                    [this, &loop](const absl::Status& status) {
                      if (Ended(status)) NextFetch(loop);
                    });
  }

  // Whether the next one is to come.
  bool Ended(const absl::Status& status) {
    if (!status.ok()) return false;
    ++answered_;
    return !leaving_;
  }

  // Each is written until nothing more passes: the handler writes back as much, and waits.
  void BeginTalks(Channel& channel, int count) {
    said_.set_payload(std::string(4 << 10, 'h'));
    for (int i = 0; i < count; ++i) {
      talks_.push_back(std::make_unique<Talk>(Perf::Stub(channel).Talk()));
      WriteOn(*talks_.back());
    }
  }
  void WriteOn(Talk& talk) {
    while (talk.TryWrite(said_) == StreamResult::kDone) {
    }
    talk.WhenWritable([this, &talk](bool ok) {
      if (ok && !leaving_) WriteOn(talk);
    });
  }

  const AttackOptions& options_;
  const uint32_t work_;
  std::unique_ptr<Engine> engine_;
  std::vector<std::unique_ptr<Channel>> channels_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::vector<std::unique_ptr<EchoLoop>> echoes_;
  std::vector<std::unique_ptr<FetchLoop>> fetches_;
  std::vector<std::unique_ptr<Talk>> talks_;
  TalkMessage said_;
  uint64_t answered_ = 0;
  bool leaving_ = false;
};

// Members that work for a moment, stand still, perhaps go on, and leave; then the next ones.
absl::StatusOr<AttackReport> RunStandingStill(const AttackOptions& options, uint32_t work,
                                              int channels, int streams) {
  Random random(options.seed);
  AttackReport report;
  AttackClock clock(options.seconds);
  do {
    Members members(options, work);
    const absl::Status joined = members.Join(options.address, channels, streams);
    if (report.empty()) clock = AttackClock(options.seconds);
    ++report[joined.ok() ? "rounds" : "joins_failed"];
    members.Drive(clock.LeftNs(random.UniformInRange(1, 200) * kMsNs));
    Sleep(clock.LeftNs(random.UniformInRange(100, 2'000) * kMsNs));
    if (random.Chance(0.5)) members.Drive(clock.LeftNs(20 * kMsNs));
    report["answered"] += members.answered();
  } while (!clock.over());
  return report;
}

// Sends whatever it is told to.
class RawMember final : public ConnectionHandler {
 public:
  absl::Status Dial(Engine& engine, const AttackOptions& options) {
    rpc::ClientHello hello;
    hello.set_protocol(kRpcProtocolVersion);
    hello.set_max_outstanding_calls(256);
    hello.set_max_reply_bytes(kMaxPayloadBytes);
    hello.set_max_windows(kMaxWindows);
    hello.set_max_extras_bytes(kMaxExtrasBytes);
    hello.set_max_streams(1024);
    hello.set_stream_window_messages(64);
    hello.set_stream_window_bytes(64 << 10);
    hello.set_takes_goaway(true);
    hello.set_control_calls(kControlCalls);
    hello.set_takes_attachments(true);
    ConnectOptions connect;
    connect.link = OnlyPath(options.path);
    connect.link.connect_timeout_ns = kConnectNs;
    connect.security = SecurityOf(options.tls_folder, "client");
    connect.hello = hello.SerializeAsString();
    closed_ = false;
    return engine.transport().Connect(options.address, connect, this).status();
  }

  Connection* connection() { return connection_; }  // null: it is not open
  bool closed() const { return closed_; }
  uint64_t opened() const { return opened_; }

  bool Send(ByteSpan frame) {
    const absl::StatusOr<std::byte*> space = connection_->Reserve(frame.size());
    if (!space.ok()) return false;
    if (!frame.empty()) std::memcpy(*space, frame.data(), frame.size());
    connection_->Commit(frame.size());
    return true;
  }

 private:
  void OnOpen(Connection& connection) override {
    connection_ = &connection;
    ++opened_;
  }
  void OnMessage(Connection&, ByteSpan) override {}
  void OnClosed(Connection&, const absl::Status&) override {
    connection_ = nullptr;
    closed_ = true;
  }

  Connection* connection_ = nullptr;
  bool closed_ = true;
  uint64_t opened_ = 0;
};

absl::StatusOr<std::unique_ptr<Engine>> RawEngine() {
  EngineOptions options;
  options.drive = EngineOptions::Drive::kExternal;
  options.spin_ns = 0;
  return OpenNetworkEngine(options);
}

// One frame, sometimes right. Its fields are mostly small, as those that mean something are.
std::vector<std::byte> RandomFrame(Random& random) {
  const auto field = [&](uint64_t usual) {
    return static_cast<uint32_t>(random.Chance(0.8) ? random.Uniform(usual) : random.Next64());
  };
  std::vector<std::byte> frame(kCallHeaderBytes + (random.Chance(0.5) ? 0 : random.Uniform(300)));
  for (std::byte& byte : frame) byte = static_cast<std::byte>(random.Next64());
  uint32_t kind = 1 + field(15);
  if (random.Chance(0.3)) kind |= field(256) << 8;
  EncodeCallHeader({field(8), field(64)}, static_cast<uint16_t>(field(8)),
                   static_cast<uint16_t>(kind), field(4096), frame.data());
  return frame;
}

}  // namespace

absl::StatusOr<AttackReport> RunOffers(const AttackOptions& options) {
  // Of each direction so many are without an answer at most; a quarter of an engine's memory for
  // large messages is one connection's.
  constexpr uint32_t kOffers = 15;
  constexpr size_t kOfferBytes = 4 << 20;
  AttackReport report;
  AttackClock clock(options.seconds);
  do {
    RawMember members[4];
    WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, RawEngine());
    for (RawMember& member : members) WEFT_RETURN_IF_ERROR(member.Dial(*engine, options));
    const auto decided = [&] {
      return std::none_of(std::begin(members), std::end(members), [](RawMember& member) {
        return member.connection() == nullptr && !member.closed();
      });
    };
    engine->RunUntil(decided, AttackClock::NowNs() + kConnectNs);
    if (report.empty()) clock = AttackClock(options.seconds);
    for (RawMember& member : members) {
      if (member.connection() == nullptr) continue;
      ++report["connections"];
      for (uint32_t i = 0; i < kOffers; ++i) {
        const absl::StatusOr<std::byte*> space = member.connection()->Reserve(kOfferBytes);
        if (!space.ok()) break;
        EncodeRequest({{i, 1}, 0, 0}, *space);
        member.connection()->Commit(kOfferBytes);
        ++report["offers"];
      }
      member.connection()->Flush();
    }
    engine->Poll();  // they leave; the reads that answer them find nobody
    Sleep(clock.LeftNs(2 * kNsPerSec));
  } while (!clock.over());
  return report;
}

absl::StatusOr<AttackReport> RunReaders(const AttackOptions& options) {
  return RunStandingStill(options, kCalls | kLarge, /*channels=*/4, /*streams=*/0);
}

absl::StatusOr<AttackReport> RunBulk(const AttackOptions& options) {
  return RunStandingStill(options, kFetches, /*channels=*/8, /*streams=*/0);
}

absl::StatusOr<AttackReport> RunStreams(const AttackOptions& options) {
  return RunStandingStill(options, kTalks, /*channels=*/2, /*streams=*/1'000);
}

absl::StatusOr<AttackReport> RunFrames(const AttackOptions& options) {
  Random random(options.seed);
  AttackReport report;
  RawMember members[8];
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, RawEngine());
  AttackClock clock(options.seconds);
  while (!clock.over()) {
    if (report.empty()) clock = AttackClock(options.seconds);  // until the first frame has left
    for (RawMember& member : members) {
      if (member.closed()) WEFT_RETURN_IF_ERROR(member.Dial(*engine, options));
      if (member.connection() == nullptr) continue;
      for (int i = 0; i < 8 && member.Send(RandomFrame(random)); ++i) ++report["frames"];
    }
    engine->RunUntil([] { return false; }, AttackClock::NowNs() + kMsNs / 2);
  }
  for (const RawMember& member : members) report["connections"] += member.opened();
  return report;
}

absl::StatusOr<AttackReport> RunTampered(const AttackOptions& options) {
  Random random(options.seed);
  AttackReport report;
  AttackClock clock(options.seconds);
  do {
    Wiretap wiretap(options.address, /*tamper_every=*/2'000,
                    static_cast<uint32_t>(random.Uniform(6'000)), random.Next64());
    Members members(options, kCalls | kLarge | kFetches | kTalks);
    const bool joined = members.Join(wiretap.address(), /*channels=*/1, /*streams=*/4).ok();
    if (report.empty()) clock = AttackClock(options.seconds);
    ++report[joined ? "rounds" : "joins_failed"];
    members.Drive(clock.LeftNs(50 * kMsNs));
    members.Leave();
    report["tampered_bytes"] += wiretap.tampered_bytes();
  } while (!clock.over());
  return report;
}

absl::StatusOr<AttackReport> RunEverything(const AttackOptions& options,
                                           const std::function<void()>& joined) {
  const AttackClock clock(options.seconds);
  Members members(options, kCalls | kLarge | kFetches | kTalks);
  WEFT_RETURN_IF_ERROR(members.Join(options.address, /*channels=*/2, /*streams=*/16));
  joined();
  while (!clock.over()) members.Drive(10 * kMsNs);
  return AttackReport{{"answered", members.answered()}};
}

}  // namespace weft::bench
