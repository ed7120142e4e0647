// Calls of one engine change no line of memory that calls of another engine change, at either end:
// nothing that is shared on a call's way is written. (Locks and allocations: allocation_test. What
// it costs where something is: ./dev scale servers.)
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/cache_line.h"
#include "core/testing/changed_lines.h"
#include "core/testing/descriptors.h"
#include "rpc/client/channel.h"
#include "rpc/server/server.h"
#include "rpc/testing/probe_service.h"

namespace weft::test {
namespace {

constexpr uint32_t kEngines = 2;
constexpr int kWarmUps = 20;
constexpr int kRounds = 5;
constexpr int kCalls = 50;  // of each, in a round

// What handlers of one engine write; they are never two at a time.
struct alignas(2 * kCacheLineBytes) OfEngine {
  uint64_t calls = 0;
  std::vector<UnaryCall<Data, Data>> held;
  std::atomic<size_t> holding = 0;  // held.size(), for the client
};

class ApartService final : public Probe::Service {
 public:
  absl::Status Echo(ServerContext& context, const Data& request, Data* reply) override {
    ++of_engines[context.path().server_engine].calls;
    if (counts_all) all_calls.fetch_add(1, std::memory_order_relaxed);
    *reply = request;
    return absl::OkStatus();
  }
  void StartHold(UnaryCall<Data, Data> call) override {
    OfEngine& own = of_engines[call.context().path().server_engine];
    ++own.calls;
    own.held.push_back(std::move(call));
    own.holding = own.held.size();
  }

  bool counts_all = false;
  std::array<OfEngine, kEngines> of_engines;
  alignas(2 * kCacheLineBytes) std::atomic<uint64_t> all_calls = 0;
};

// A thread that does what it is told to, and else waits in the kernel: it shares no memory with who
// tells it but the work.
class Hand {
 public:
  explicit Hand(std::function<void()> work) : work_(std::move(work)) {
    EXPECT_EQ(pipe(orders_), 0);
    EXPECT_EQ(pipe(answers_), 0);
    thread_ = std::thread([this] {
      char order = 0;
      while (read(orders_[0], &order, 1) == 1 && order == 'w') {
        work_();
        EXPECT_EQ(write(answers_[1], &order, 1), 1);
      }
    });
  }
  ~Hand() {
    EXPECT_EQ(write(orders_[1], "e", 1), 1);
    thread_.join();
    for (const int fd : {orders_[0], orders_[1], answers_[0], answers_[1]}) close(fd);
  }
  void Work() {
    char answer = 0;
    EXPECT_EQ(write(orders_[1], "w", 1), 1);
    EXPECT_EQ(read(answers_[0], &answer, 1), 1);
  }

 private:
  const std::function<void()> work_;
  int orders_[2] = {-1, -1};
  int answers_[2] = {-1, -1};
  std::thread thread_;
};

constexpr std::chrono::seconds kPatience(60);

// What the kernel says of a thread.
struct OfThread {
  bool waits = true;        // in the kernel; one that has ended does so for good
  uint64_t has_waited = 0;  // so often
};

// Nothing here writes to memory but the stack: it would be taken for the engines' doing.
OfThread LookAtThread(const std::string& status_file) {
  const int fd = open(status_file.c_str(), O_RDONLY | O_CLOEXEC);
  char text[8192] = "";
  const ssize_t bytes = read(fd, text, sizeof(text) - 1);
  close(fd);
  if (bytes <= 0) return {};
  constexpr char kState[] = "\nState:\t";
  constexpr char kWaits[] = "\nvoluntary_ctxt_switches:\t";
  const char* const state = std::strstr(text, kState);
  const char* const waits = std::strstr(text, kWaits);
  if (state == nullptr || waits == nullptr) return {.waits = false};
  return {state[std::strlen(kState)] == 'S',
          std::strtoull(waits + std::strlen(kWaits), nullptr, 10)};
}

// Waits until all of them wait in the kernel at one time: none has run from when the first was
// looked at until the last was. No engine spins here. Returns who does not come to rest, or
// nullptr.
const std::string* AwaitRest(const std::vector<std::string>& status_files) {
  const auto give_up = std::chrono::steady_clock::now() + kPatience;
  uint64_t waited_before = 0;
  bool rested_before = false;
  while (true) {
    const std::string* running = nullptr;
    uint64_t waited = 0;
    for (const std::string& file : status_files) {
      const OfThread thread = LookAtThread(file);
      if (!thread.waits) running = &file;
      waited += thread.has_waited;
    }
    if (running == nullptr && rested_before && waited == waited_before) return nullptr;
    rested_before = running == nullptr;
    waited_before = waited;
    if (std::chrono::steady_clock::now() > give_up) {
      return running != nullptr ? running : &status_files.front();
    }
    if (running != nullptr) std::this_thread::yield();
  }
}

class EnginesApartTest : public testing::TestWithParam<PathKind> {
 protected:
  void SetUp() override {
    if (!ChangedLines::WhyNot().empty()) GTEST_SKIP() << ChangedLines::WhyNot();
  }
  void Serve() {
    ServerOptions options;
    options.engines = kEngines;
    options.max_sessions = 0;
    options.spin_ns = 0;
    options.rebalance_us = 0;
    options.link.peer_timeout_ns = 0;
    auto server = Server::Create(options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    ASSERT_TRUE(server_->AddService(&service_).ok());
    ASSERT_TRUE(server_->Listen("127.0.0.1:0").ok());
  }
  std::unique_ptr<Channel> Open(ChannelOptions options) {
    options.link.paths = {GetParam()};
    options.link.peer_timeout_ns = 0;
    options.spin_ns = 0;
    auto channel = Channel::Open(server_->address(), options);
    EXPECT_TRUE(channel.ok()) << channel.status();
    return channel.ok() ? *std::move(channel) : nullptr;
  }
  // With one connection each, to an engine of the server's each.
  void OpenOneEach() {
    for (uint32_t engine = 0; engine < kEngines; ++engine) {
      ChannelOptions options;
      options.link.server_engine = engine;
      channels_.push_back(Open(options));
    }
  }
  static void Echo(Channel& channel) {
    Probe::Stub stub(channel);
    const Data request = MakeData(1, 64);
    Data reply;
    for (int i = 0; i < kCalls; ++i) ASSERT_TRUE(stub.Echo(request, &reply).ok());
  }

  // All rounds, of `works` on two threads.
  void Look(std::array<std::function<void()>, kEngines> works) {
    Hand first(works[0]);
    Hand second(works[1]);
    // Everything has its memory.
    for (int i = 0; i < kWarmUps; ++i) {
      first.Work();
      second.Work();
    }
    const std::string own = "/proc/self/task/" + std::to_string(gettid()) + "/status";
    std::vector<std::string> others;
    for (const std::string& task : EntriesOf("/proc/self/task")) {
      others.push_back("/proc/self/task/" + task + "/status");
      if (others.back() == own) others.pop_back();
    }
    lines_ = std::make_unique<ChangedLines>();
    const std::string* running = nullptr;
    for (int round = 0; round < kRounds; ++round) {
      if ((running = AwaitRest(others)) != nullptr) break;
      lines_->Begin();
      first.Work();
      if ((running = AwaitRest(others)) != nullptr) break;
      lines_->Next();
      second.Work();
      if ((running = AwaitRest(others)) != nullptr) break;
      lines_->End();
    }
    ASSERT_EQ(running, nullptr) << *running << " is of a thread that does not come to rest";
    EXPECT_GT(lines_->of_first(), 10u);
    EXPECT_GT(lines_->of_second(), 10u);
    for (const OfEngine& engine : service_.of_engines) EXPECT_GT(engine.calls, 0u);
  }

  ApartService service_;
  std::unique_ptr<Server> server_;
  std::vector<std::unique_ptr<Channel>> channels_;
  std::unique_ptr<ChangedLines> lines_;
};

TEST_P(EnginesApartTest, CallsOfTwoEnginesWriteNothingInCommon) {
  Serve();
  OpenOneEach();
  Look({[this] { Echo(*channels_[0]); }, [this] { Echo(*channels_[1]); }});
  EXPECT_EQ(lines_->shared(), std::vector<std::string>());
}

// The threads' calls go by an engine of the channel's each.
TEST_P(EnginesApartTest, CallsOfOneChannelsEnginesWriteNothingInCommon) {
  Serve();
  ChannelOptions options;
  options.engines = kEngines;
  channels_.push_back(Open(options));
  Look({[this] { Echo(*channels_[0]); }, [this] { Echo(*channels_[0]); }});
  EXPECT_EQ(lines_->shared(), std::vector<std::string>());
}

// What counts calls that are under way has another value while they are. There were as many before:
// else they would need memory, and blocks of memory are counted in one place for the process.
TEST_P(EnginesApartTest, CallsUnderWayAreCountedByEachEngineForItself) {
  struct alignas(2 * kCacheLineBytes) Started {
    std::deque<Data> replies;
    size_t ended = 0;
  };
  std::array<Started, kEngines> started;
  const auto hold_one_more = [&](uint32_t engine) {
    Started& own = started[engine];
    Channel& channel = *channels_[engine];
    const size_t before = service_.of_engines[engine].holding;
    own.replies.emplace_back();
    Probe::Stub(channel).Hold(MakeData(1, 64), &own.replies.back(), {},
                              [&own](const absl::Status& status) {
                                EXPECT_TRUE(status.ok()) << status;
                                ++own.ended;
                              });
    while (service_.of_engines[engine].holding == before) channel.engine().Poll();
  };
  const auto end_all = [&] {
    for (uint32_t engine = 0; engine < kEngines; ++engine) {
      OfEngine& at_server = service_.of_engines[engine];
      for (auto& call : at_server.held) call.Finish(absl::OkStatus());
      at_server.held.clear();
      at_server.holding = 0;
      const Started& own = started[engine];
      EXPECT_TRUE(
          channels_[engine]->engine().RunUntil([&own] { return own.ended == own.replies.size(); }));
    }
  };
  Serve();
  OpenOneEach();
  for (int i = 0; i < 2 * (kWarmUps + kRounds); ++i) hold_one_more(i % kEngines);
  end_all();
  Look({[&] { hold_one_more(0); }, [&] { hold_one_more(1); }});
  EXPECT_EQ(lines_->shared(), std::vector<std::string>());
  end_all();
}

// So the above would find it.
TEST_P(EnginesApartTest, AWordThatHandlersOfTwoEnginesCountInIsSeen) {
  service_.counts_all = true;
  Serve();
  OpenOneEach();
  Look({[this] { Echo(*channels_[0]); }, [this] { Echo(*channels_[1]); }});
  ASSERT_EQ(lines_->shared().size(), 1u);
  std::ostringstream address;
  address << static_cast<const void*>(&service_.all_calls);
  EXPECT_EQ(lines_->shared()[0].rfind(address.str() + ", words 0, ", 0), 0u) << lines_->shared()[0];
}

INSTANTIATE_TEST_SUITE_P(Paths, EnginesApartTest, testing::Values(PathKind::kShm, PathKind::kTcp),
                         [](const auto& info) { return std::string(PathKindName(info.param)); });

}  // namespace
}  // namespace weft::test
