// Two instances of Weft in one process, with a host's hooks: its memory, its executors, its clock,
// its log and its metrics.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/log.h"
#include "core/memory_hooks.h"
#include "core/testing/host_memory.h"
#include "rpc/client/channel.h"
#include "rpc/operation/executor.h"
#include "rpc/server/incoming_call.h"
#include "rpc/server/server.h"
#include "rpc/testing/probe_service.h"
#include "rpc/testing/two_threads.h"
#include "transport/buffer.h"
#include "transport/mapped_memory.h"
#include "transport/network.h"
#include "weft/status.h"

namespace weft::test {
namespace {

using testing::Contains;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

// Before anything of Weft takes memory.
const bool hooked = SetMemoryHooks(HostMemory::Get().hooks()).ok();

constexpr uint64_t kHourNs = 3'600 * kNsPerSec;

// The host's: as the real one, but elsewhere in time. It counts who asks.
class HostClock final : public Clock {
 public:
  explicit HostClock(uint64_t ahead_ns) : ahead_ns_(ahead_ns) {}
  uint64_t NowNs() const override {
    asked_.store(true, std::memory_order_relaxed);
    return Clock::Real().NowNs() + ahead_ns_;
  }
  bool was_asked() const { return asked_.load(std::memory_order_relaxed); }

 private:
  const uint64_t ahead_ns_;
  mutable std::atomic<bool> asked_{false};
};

class HostExecutor final : public Executor {
 public:
  bool Run(Function<void()> task) override {
    ran_.fetch_add(1, std::memory_order_relaxed);
    return threads_.Run(std::move(task));
  }
  int ran() const { return ran_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int> ran_{0};
  TwoThreads threads_;
};

// An instance: engines, a server and a channel to it, with options of its own.
struct Instance {
  Instance(uint64_t ahead_ns, PathKind path, uint32_t inbox_slots, Log* log = nullptr)
      : clock(ahead_ns) {
    EngineOptions engine_options;
    engine_options.clock = &clock;
    engine_options.log = log;
    engine_options.spin_ns = 0;
    engine_options.inbox_slots = inbox_slots;
    serving = *OpenNetworkEngine(engine_options);
    engine_options.drive = EngineOptions::Drive::kCaller;
    calling = *OpenNetworkEngine(engine_options);
    ServerOptions server_options;
    server_options.executor = &executor;
    server_options.link.peer_timeout_ns = 0;  // the machine may be busy
    server = *Server::Create(*serving, server_options);
    EXPECT_TRUE(server->AddService(&service).ok());
    EXPECT_TRUE(server->Listen("127.0.0.1:0").ok());
    ChannelOptions channel_options;
    channel_options.link.paths = {path};
    channel_options.link.peer_timeout_ns = 0;
    channel = *Channel::Open(*calling, server->address(), channel_options);
  }

  absl::Status Echo(size_t bytes) {
    Data reply;
    const absl::Status status = Probe::Stub(*channel).Echo(MakeData(1, bytes), &reply);
    EXPECT_EQ(reply.payload().size(), status.ok() ? bytes : 0);
    return status;
  }
  std::map<std::string, uint64_t> Counters() const {
    std::map<std::string, uint64_t> values;
    for (const auto& [name, value] : serving->counters().Snapshot()) values[name] = value;
    return values;
  }

  struct Service final : Probe::Service {
    absl::Status Echo(ServerContext&, const Data& request, Data* reply) override {
      *reply = request;
      return absl::OkStatus();
    }
  };

  HostClock clock;
  HostExecutor executor;
  Service service;
  std::unique_ptr<Engine> serving;
  std::unique_ptr<Engine> calling;
  std::unique_ptr<Server> server;
  std::unique_ptr<Channel> channel;
};

class HooksTest : public testing::Test {
 protected:
  HooksTest() { EXPECT_TRUE(hooked); }
  ~HooksTest() override {
    host_.Refuse(0);
    SetLogSink({});
  }
  static void Refuse(HostMemory& host, MemoryKind kind) {
    host.Refuse(1u << static_cast<unsigned>(kind));
  }

  HostMemory& host_ = HostMemory::Get();
};

TEST_F(HooksTest, TwoInstancesHaveTheirOwnExecutorsClocksAndCounters) {
  Instance first(1 * kHourNs, PathKind::kShm, 64);
  Instance second(2 * kHourNs, PathKind::kTcp, 4096);
  for (const size_t bytes : {size_t{10}, size_t{20'000}, size_t{2} << 20}) {
    EXPECT_TRUE(first.Echo(bytes).ok());
    EXPECT_TRUE(second.Echo(bytes).ok());
  }
  EXPECT_TRUE(second.Echo(1).ok());
  EXPECT_EQ(first.executor.ran(), 3);
  EXPECT_EQ(second.executor.ran(), 4);
  EXPECT_EQ(first.server->stats().replies_ok, 3u);
  EXPECT_EQ(second.server->stats().replies_ok, 4u);
  EXPECT_EQ(first.channel->stats().calls_ok, 3u);
  EXPECT_EQ(second.channel->stats().calls_ok, 4u);
  EXPECT_TRUE(first.clock.was_asked());
  EXPECT_TRUE(second.clock.was_asked());
  EXPECT_GT(second.serving->clock().NowNs(), first.serving->clock().NowNs() + kHourNs / 2);
  EXPECT_EQ(first.Counters()["path.opened.shm"], 1u);
  EXPECT_EQ(first.Counters()["path.opened.tcp"], 0u);
  EXPECT_EQ(second.Counters()["path.opened.tcp"], 1u);
  EXPECT_EQ(second.Counters()["path.opened.shm"], 0u);
}

TEST_F(HooksTest, TheEndOfOneInstanceLeavesTheOther) {
  auto first = std::make_unique<Instance>(0, PathKind::kShm, 64);
  Instance second(0, PathKind::kShm, 64);
  EXPECT_TRUE(first->Echo(10).ok());
  const uint64_t both = MemoryUsage().total.bytes;
  first.reset();
  EXPECT_LT(MemoryUsage().total.bytes, both);
  EXPECT_TRUE(second.Echo(10).ok());
}

TEST_F(HooksTest, AllBlocksComeFromTheHostAndGoBackToIt) {
  const uint64_t before = host_.bytes();
  for (const PathKind path : {PathKind::kShm, PathKind::kTcp}) {
    Instance instance(0, path, 64);
    ASSERT_TRUE(instance.Echo(2 << 20).ok());
    auto buffer = instance.server->AllocateBuffer(size_t{1} << 20);
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    for (const MemoryKind kind : {MemoryKind::kObjects, MemoryKind::kTables, MemoryKind::kSlots}) {
      EXPECT_GT(host_.bytes_of(kind), 0u) << static_cast<int>(kind);
    }
    // Until both agree: the serving engine's thread may take or give just now.
    const auto agree = [this] {
      const MemoryReport report = MemoryUsage();
      return report.total.bytes - report.of(MemoryKind::kShared).bytes == host_.bytes() &&
             report.total.peak_bytes >= report.total.bytes;
    };
    while (!agree()) std::this_thread::yield();
    EXPECT_GT(MemoryUsage().of(MemoryKind::kShared).bytes, 0u) << "at least the engines' doorbells";
  }
  EXPECT_EQ(host_.bytes(), before);
  EXPECT_EQ(MemoryUsage().of(MemoryKind::kShared).bytes, 0u);
}

TEST_F(HooksTest, AHostWithoutMemoryForABufferGivesAnError) {
  MappedMemoryOptions options;
  options.source = MappedMemoryOptions::Source::kAnonymous;
  Refuse(host_, MemoryKind::kBuffers);
  const absl::Status refused = MappedMemory::Map(100'000, options).status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_NE(refused.message().find("MemoryHooks::take"), std::string::npos);
  host_.Refuse(0);
  auto memory = MappedMemory::Map(100'000, options);
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_TRUE(host_.Has(memory->bytes().data()));
  EXPECT_EQ(memory->bytes()[99'999], std::byte{0});
  MappedMemory moved = *std::move(memory);
  EXPECT_TRUE(host_.Has(moved.bytes().data()));
}

TEST_F(HooksTest, TheHostHearsTheLog) {
  std::mutex mutex;
  std::vector<std::string> lines;
  SetLogSink(
      [&](const LogRecord& record) {
        const std::lock_guard<std::mutex> lock(mutex);
        lines.emplace_back(record.text);
      },
      LogLevel::kDebug);
  {
    Instance instance(0, PathKind::kShm, 64);
    EXPECT_TRUE(instance.Echo(10).ok());
  }
  SetLogSink({});
  EXPECT_THAT(lines, Contains(ContainsRegex("path shm[^\n]* chosen")));
}

TEST_F(HooksTest, TwoInstancesHaveALogEach) {
  struct Lines {
    LogSink Sink() {
      return [this](const LogRecord& record) {
        const std::lock_guard<std::mutex> lock(mutex);
        text += std::string(record.text) + "\n";
      };
    }
    std::mutex mutex;
    std::string text;
  };
  Lines of_process;
  Lines of_first;
  Lines of_second;
  Log first_log(of_first.Sink());
  Log second_log(of_second.Sink());
  SetLogSink(of_process.Sink());
  {
    Instance first(0, PathKind::kShm, 64, &first_log);
    Instance second(0, PathKind::kTcp, 64, &second_log);
    EXPECT_TRUE(first.Echo(10).ok());
    EXPECT_TRUE(second.Echo(10).ok());
  }
  SetLogSink({});
  EXPECT_THAT(of_first.text, ContainsRegex("path shm[^\n]* chosen"));
  EXPECT_THAT(of_first.text, Not(ContainsRegex("path tcp[^\n]* chosen")));
  EXPECT_THAT(of_second.text, ContainsRegex("path tcp[^\n]* chosen"));
  EXPECT_THAT(of_second.text, Not(ContainsRegex("path shm[^\n]* chosen")));
  EXPECT_THAT(of_process.text, Not(HasSubstr(" chosen")));
}

}  // namespace
}  // namespace weft::test
