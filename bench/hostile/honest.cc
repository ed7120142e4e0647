#include "bench/hostile/honest.h"

#include <algorithm>
#include <atomic>
#include <ctime>
#include <iostream>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "bench/hostile/attack.h"
#include "bench/perf/ends/perf.pb.h"
#include "bench/perf/ends/perf.weft.h"
#include "bench/perf/ends/polled_server.h"
#include "core/clock.h"
#include "core/histogram.h"
#include "core/random.h"
#include "core/status.h"
#include "core/strings.h"
#include "rpc/client/bulk_call.h"
#include "rpc/client/channel.h"
#include "transport/buffer.h"
#include "weft/stream.h"

namespace weft::bench {
namespace {

constexpr int kClients = 4;
constexpr uint64_t kPauseUs = 500;  // between two calls of one client
constexpr uint64_t kNewcomerPauseUs = 100'000;
constexpr uint64_t kTimeoutUs = 20'000'000;  // of a call that should take microseconds: hangs
constexpr uint32_t kBulkBytes = 1 << 20;
constexpr size_t kLargeBytes = 256 << 10;  // of a message that is offered
constexpr uint64_t kBulkEvery = 32;        // one call in so many
constexpr uint64_t kLargeEvery = 64;
constexpr uint64_t kStreamEvery = 16;

uint64_t NowNs() { return Clock::Real().NowNs(); }

void SleepUs(uint64_t us) {
  const timespec time = {static_cast<time_t>(us / 1'000'000),
                         static_cast<long>(us % 1'000'000 * 1000)};
  nanosleep(&time, nullptr);
}

// What was called in one phase.
struct Tally {
  LatencyHistogram small;  // calls of 64 bytes
  LatencyHistogram other;
  uint64_t failed = 0;
  std::string first_error;

  void Fail(const char* what, const absl::Status& status) {
    if (failed++ == 0) first_error = StrCat(what, ": ", ToStd(status.ToString()));
  }
  void Merge(const Tally& tally) {
    small.Merge(tally.small);
    other.Merge(tally.other);
    if (failed == 0) first_error = tally.first_error;
    failed += tally.failed;
  }
};

// A client, on its thread.
class Client {
 public:
  explicit Client(const HonestOptions& options) : options_(options) {}

  absl::Status Connect() {
    ChannelOptions channel_options;
    channel_options.link = OnlyPath(options_.path);
    channel_options.security = SecurityOf(options_.tls_folder, "client");
    channel_options.default_timeout_us = kTimeoutUs;
    channel_options.spin_ns = 0;  // all of them share a processor
    WEFT_ASSIGN_OR_RETURN(channel_, Channel::Open(options_.address, channel_options));
    stub_.emplace(*channel_);
    return absl::OkStatus();
  }
  void Disconnect() {
    stub_.reset();
    channel_.reset();
  }

  void Work(const std::atomic<bool>& stop, uint64_t seed) {
    Random random(seed);
    absl::StatusOr<std::unique_ptr<Buffer>> buffer = channel_->AllocateBuffer(kBulkBytes);
    if (!buffer.ok()) return Fail("a buffer", buffer.status());
    {
      BulkCall bulk(*channel_);
      for (uint64_t i = random.Uniform(kLargeEvery); !stop; ++i) {
        if (i % kBulkEvery == 0) Fetch(bulk, (*buffer)->slice());
        if (i % kLargeEvery == 1) Echo(kLargeBytes);
        if (i % kStreamEvery == 2) SayAndHear();
        Echo(64);
        SleepUs(kPauseUs);
      }
    }
    Disconnect();
  }

  // A connection for each call.
  void ComeAnew(const std::atomic<bool>& stop) {
    while (!stop) {
      const uint64_t start_ns = NowNs();
      const absl::Status connected = Connect();
      if (connected.ok()) {
        Echo(64, start_ns);
      } else {
        Fail("connecting", connected);
      }
      Disconnect();
      SleepUs(kNewcomerPauseUs);
    }
  }

  Tally Take() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(tally_, {});
  }

 private:
  void Echo(size_t bytes, uint64_t start_ns = 0) {
    EchoMessage request;
    EchoMessage reply;
    request.set_payload(std::string(bytes, 'w'));
    if (start_ns == 0) start_ns = NowNs();
    absl::Status status = stub_->Echo(request, &reply);
    if (status.ok() && reply.payload() != request.payload()) {
      status = absl::DataLossError("another reply than what was sent");
    }
    Ended(bytes > 64 ? "a large call" : "a call", bytes <= 64, start_ns, status);
  }
  void Fetch(BulkCall& bulk, const Slice& place) {
    FetchRequest request;
    FetchReply reply;
    request.set_bytes(kBulkBytes);
    request.set_with_crc32c(true);
    bulk.Clear();
    bulk.Receive(place);
    const uint64_t start_ns = NowNs();
    absl::Status status = stub_->Fetch(request, &reply, {.bulk = &bulk});
    if (status.ok()) status = bulk.Received(reply.data()).status();
    Ended("a fetch", false, start_ns, status);
  }
  // A stream of some messages there and back.
  void SayAndHear() {
    TalkMessage message;
    message.set_payload("still here?");
    const uint64_t start_ns = NowNs();
    auto talk = stub_->Talk();
    for (int i = 0; i < 3 && talk.Write(message) && talk.Read(&message); ++i) {
    }
    talk.WritesDone();
    Ended("a stream", false, start_ns, talk.Finish());
  }

  void Ended(const char* what, bool is_small, uint64_t start_ns, const absl::Status& status) {
    if (!status.ok()) return Fail(what, status);
    const uint64_t took_ns = NowNs() - start_ns;
    const std::lock_guard<std::mutex> lock(mutex_);
    (is_small ? tally_.small : tally_.other).Record(took_ns);
  }
  void Fail(const char* what, const absl::Status& status) {
    const std::lock_guard<std::mutex> lock(mutex_);
    tally_.Fail(what, status);
  }

  const HonestOptions& options_;
  std::unique_ptr<Channel> channel_;
  std::optional<Perf::Stub> stub_;
  std::mutex mutex_;
  Tally tally_;  // guarded by mutex_
};

// JSON's strings.
std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c >= ' ' ? c : ' ';
  }
  return quoted + '"';
}

std::string ToJson(const LatencyHistogram& histogram) {
  return absl::StrFormat(R"({"count": %d, "p50": %.1f, "p99": %.1f, "p99.9": %.1f, "max": %.1f})",
                         histogram.count(), static_cast<double>(histogram.Percentile(50)) / 1000,
                         static_cast<double>(histogram.Percentile(99)) / 1000,
                         static_cast<double>(histogram.Percentile(99.9)) / 1000,
                         static_cast<double>(histogram.max()) / 1000);
}

std::string ToJson(const Tally& tally) {
  return absl::StrFormat(R"({"small_us": %s, "other_us": %s, "failed": %d, "error": %s})",
                         ToJson(tally.small), ToJson(tally.other), tally.failed,
                         Quoted(tally.first_error));
}

}  // namespace

absl::Status RunHonest(const HonestOptions& options) {
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.push_back(std::make_unique<Client>(options));
    WEFT_RETURN_IF_ERROR(clients.back()->Connect());
  }
  Client newcomer(options);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < kClients; ++i) {
    threads.emplace_back(&Client::Work, clients[i].get(), std::cref(stop), options.seed + i);
  }
  threads.emplace_back(&Client::ComeAnew, &newcomer, std::cref(stop));
  std::cout << "ready" << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    Tally tally;
    for (const std::unique_ptr<Client>& client : clients) tally.Merge(client->Take());
    std::cout << R"({"clients": )" << ToJson(tally) << R"(, "newcomers": )"
              << ToJson(newcomer.Take()) << "}" << std::endl;
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  return absl::OkStatus();
}

}  // namespace weft::bench
