// What a program in C gives to Weft: memory, log, clock and threads; and the numbers that it gets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "c/testing/loopback.h"
#include "weft/c.h"
#include "weft/c_host.h"
#include "weft/c_server.h"
#include "weft/c_stream.h"

namespace weft::c_test {
namespace {

using testing::Contains;
using testing::HasSubstr;

constexpr weft_bytes kNone = {nullptr, 0};
constexpr uint64_t kHourNs = uint64_t{3'600} * 1'000'000'000;

// --- the program --------------------------------------------------------------------------------

// Knows how many bytes of each kind are out.
struct Memory {
  static void* Take(void* arg, size_t bytes, size_t alignment, int kind) {
    auto& self = *static_cast<Memory*>(arg);
    void* memory = nullptr;
    if (posix_memalign(&memory, alignment < 8 ? 8 : alignment, bytes) != 0) return nullptr;
    if (kind == WEFT_MEMORY_SLOTS || kind == WEFT_MEMORY_BUFFERS) std::memset(memory, 0, bytes);
    self.bytes[kind] += bytes;
    return memory;
  }
  static void Give(void* arg, void* memory, size_t bytes, size_t, int kind) {
    static_cast<Memory*>(arg)->bytes[kind] -= bytes;
    std::free(memory);
  }

  std::atomic<uint64_t> bytes[WEFT_MEMORY_SHARED + 1] = {};
};
Memory memory;

// Before anything of Weft takes memory.
const std::string hooked = [] {
  auto hooks = Defaults<weft_memory_hooks>();
  hooks.take = Memory::Take;
  hooks.give = Memory::Give;
  hooks.arg = &memory;
  return Take(weft_memory_set_hooks(&hooks));
}();

// One thread of the program's for each task; none, where it has no room.
struct Threads {
  ~Threads() {
    for (std::thread& thread : started) thread.join();
  }
  static int Run(void* arg, weft_task task, void* task_arg) {
    auto& self = *static_cast<Threads*>(arg);
    if (!self.has_room) return 0;
    self.started.emplace_back(task, task_arg);
    return 1;
  }

  std::atomic<bool> has_room{true};
  std::vector<std::thread> started;  // the engine's, until the server is freed
};

std::map<std::string, uint64_t> MetricsOf(const auto& tell) {
  std::map<std::string, uint64_t> values;
  const weft_metric each = [](void* arg, const char* name, uint64_t value) {
    (*static_cast<std::map<std::string, uint64_t>*>(arg))[name] = value;
  };
  EXPECT_OK(tell(each, &values));
  return values;
}

void Echo(void*, weft_server_call* call) {
  weft_server_call_finish(call, nullptr, weft_server_call_request(call));
}

// Finishes one call too many first, which the log is told.
void Confused(void*, weft_server_call* call) {
  weft_server_call_finish(nullptr, nullptr, kNone);
  weft_server_call_finish(call, nullptr, kNone);
}

// Blocks, which only a handler of an executor may.
void Count(void*, weft_server_call* call) {
  weft_stream* const stream = weft_server_call_stream(call);
  weft_message* const message = weft_message_new();
  size_t words = 0;
  while (weft_stream_read(stream, message) != 0) ++words;
  weft_message_free(message);
  const std::string reply = std::to_string(words);
  weft_server_call_finish(call, nullptr, Bytes(reply));
}

// A server and a client of it.
class Pair {
 public:
  explicit Pair(weft_engine* engine = nullptr, const weft_executor* executor = nullptr,
                const weft_log* log = nullptr) {
    auto options = Defaults<weft_server_options>();
    options.executor = executor;
    options.log = log;
    EXPECT_OK(weft_server_new(engine, &options, &server_));
    weft_service* const service = weft_service_new("weft.c_test.Shelf");
    EXPECT_OK(weft_service_add_method(service, "Echo", WEFT_UNARY, WEFT_ONCE, Echo, nullptr));
    EXPECT_OK(
        weft_service_add_method(service, "Confused", WEFT_UNARY, WEFT_ONCE, Confused, nullptr));
    EXPECT_OK(weft_service_add_method(service, "Count", WEFT_CLIENT_STREAMING, WEFT_ONCE, Count,
                                      nullptr));
    EXPECT_OK(weft_server_add_service(server_, service));
    EXPECT_OK(weft_server_listen(server_, "127.0.0.1:0"));
    client_.emplace(weft_server_address(server_), "tcp");
  }
  ~Pair() {
    client_.reset();
    EXPECT_OK(weft_server_free(server_));
    weft_message_free(reply_);
  }

  std::string Call(const char* method = "Echo") {
    const weft_call_options patient = Patient();
    return Take(weft_call(channel(), client_->Method(method), Bytes("x"), &patient, reply_));
  }
  std::string CountWords(int words) {
    weft_stream* stream = nullptr;
    EXPECT_OK(weft_stream_start(channel(), client_->Method("Count", WEFT_CLIENT_STREAMING), kNone,
                                nullptr, reply_, &stream));
    for (int i = 0; i < words; ++i) EXPECT_EQ(weft_stream_write(stream, Bytes("w"), 0), 1);
    weft_stream_writes_done(stream);
    EXPECT_OK(weft_stream_finish(stream));
    weft_stream_free(stream);
    return TextOf(reply_);
  }
  weft_server* server() const { return server_; }
  weft_channel* channel() const { return client_->channel(); }

 private:
  weft_server* server_ = nullptr;
  std::optional<CClient> client_;
  weft_message* const reply_ = weft_message_new();
};

// --- memory -------------------------------------------------------------------------------------

TEST(HostMemoryTest, BlocksComeFromTheProgramAndGoBack) {
  ASSERT_EQ(hooked, "OK");
  EXPECT_EQ(Pair().Call(), "OK");  // what is made once in a process is there
  const uint64_t before = memory.bytes[WEFT_MEMORY_TABLES];
  {
    Pair pair;
    EXPECT_EQ(pair.Call(), "OK");
    EXPECT_GT(memory.bytes[WEFT_MEMORY_TABLES].load(), before);
    EXPECT_GT(memory.bytes[WEFT_MEMORY_OBJECTS].load(), 0u);
    const auto counted = MetricsOf(weft_memory_metrics);
    EXPECT_GT(counted.at("memory.tables.bytes"), 0u);
    EXPECT_GE(counted.at("memory.total.peak_bytes"), counted.at("memory.total.bytes"));
  }
  EXPECT_EQ(memory.bytes[WEFT_MEMORY_TABLES].load(), before);
  const auto counted = MetricsOf(weft_memory_metrics);
  EXPECT_EQ(counted.at("memory.tables.bytes"), before);
  EXPECT_EQ(counted.size(), 12u);
}

TEST(HostMemoryTest, HooksAreSetOnceAndWhole) {
  auto hooks = Defaults<weft_memory_hooks>();
  hooks.take = Memory::Take;
  EXPECT_EQ(Take(weft_memory_set_hooks(&hooks)),
            "3: weft_memory_hooks: take or give is NULL; both are needed");
  hooks.give = Memory::Give;
  EXPECT_THAT(Take(weft_memory_set_hooks(&hooks)), HasSubstr("comes too late"));
  hooks.struct_size = sizeof(hooks) + 8;
  EXPECT_THAT(Take(weft_memory_set_hooks(&hooks)), HasSubstr("newer weft/c.h"));
  EXPECT_EQ(Take(weft_memory_set_hooks(nullptr)), "3: weft_memory_set_hooks(): hooks is NULL");
}

// --- log ----------------------------------------------------------------------------------------

struct Lines {
  // A log that adds its lines here.
  weft_log Log() {
    auto log = Defaults<weft_log>();
    log.write = Write;
    log.arg = this;
    return log;
  }
  static void Write(void* arg, const weft_log_record* record) {
    EXPECT_EQ(record->struct_size, sizeof(weft_log_record));
    EXPECT_GT(record->line, 0);
    EXPECT_NE(std::strlen(record->file), 0u);
    auto& self = *static_cast<Lines*>(arg);
    const std::lock_guard<std::mutex> lock(self.mutex);
    self.texts.push_back(std::to_string(record->level) + " " + record->text);
  }

  std::mutex mutex;
  std::vector<std::string> texts;
};

TEST(HostLogTest, TheProgramHearsWhatItAskedFor) {
  Lines lines;
  weft_log log = lines.Log();
  log.min_level = WEFT_LOG_ERROR;
  ASSERT_OK(weft_log_set(&log));
  weft_server_call_finish(nullptr, nullptr, kNone);
  EXPECT_THAT(lines.texts, testing::ElementsAre(HasSubstr("4 weft_server_call_finish() of NULL")));
  ASSERT_OK(weft_log_set(nullptr));
  weft_server_call_finish(nullptr, nullptr, kNone);
  EXPECT_EQ(lines.texts.size(), 1u);
}

TEST(HostLogTest, AnEngineHasALogOfItsOwn) {
  Lines of_process;
  Lines of_engine;
  const weft_log whole = of_process.Log();
  ASSERT_OK(weft_log_set(&whole));
  weft_log log = of_engine.Log();
  auto options = Defaults<weft_engine_options>();
  options.log = &log;
  options.drive = WEFT_CALLER;
  weft_engine* engine = nullptr;
  ASSERT_OK(weft_engine_new(&options, &engine));
  const weft_task wrong = [](void*) { weft_server_call_finish(nullptr, nullptr, kNone); };
  ASSERT_OK(weft_engine_post(engine, wrong, nullptr));
  EXPECT_GT(weft_engine_poll(engine, 0), 0);
  EXPECT_THAT(of_engine.texts, Contains(HasSubstr("weft_server_call_finish()")));
  EXPECT_THAT(of_process.texts, testing::Not(Contains(HasSubstr("weft_server_call_finish()"))));
  EXPECT_OK(weft_engine_free(engine));
  EXPECT_OK(weft_log_set(nullptr));

  log.min_level = -1;
  EXPECT_THAT(Take(weft_engine_new(&options, &engine)), HasSubstr("min_level is -1"));
  EXPECT_EQ(engine, nullptr);
}

TEST(HostLogTest, AServerWithoutAnEngineHasALogOfItsOwn) {
  Lines of_process;
  Lines of_server;
  const weft_log whole = of_process.Log();
  ASSERT_OK(weft_log_set(&whole));
  weft_log log = of_server.Log();
  {
    Pair pair(nullptr, nullptr, &log);
    EXPECT_EQ(pair.Call("Confused"), "OK");
  }
  EXPECT_OK(weft_log_set(nullptr));
  EXPECT_THAT(of_server.texts, Contains(HasSubstr("weft_server_call_finish()")));
  EXPECT_THAT(of_process.texts, testing::Not(Contains(HasSubstr("weft_server_call_finish()"))));

  log.min_level = 5;
  auto options = Defaults<weft_server_options>();
  options.log = &log;
  weft_server* server = nullptr;
  EXPECT_THAT(Take(weft_server_new(nullptr, &options, &server)), HasSubstr("min_level is 5"));
  EXPECT_EQ(server, nullptr);
}

TEST(HostLogTest, AServerOnAnEngineHasThatOnesLogAndTakesNoOther) {
  Lines lines;
  const weft_log log = lines.Log();
  auto engine_options = Defaults<weft_engine_options>();
  engine_options.drive = WEFT_CALLER;
  weft_engine* engine = nullptr;
  ASSERT_OK(weft_engine_new(&engine_options, &engine));
  auto options = Defaults<weft_server_options>();
  options.log = &log;
  weft_server* server = nullptr;
  EXPECT_THAT(Take(weft_server_new(engine, &options, &server)),
              HasSubstr("log is of a server without an engine"));
  EXPECT_EQ(server, nullptr);
  EXPECT_OK(weft_engine_free(engine));
}

TEST(HostLogTest, WrongLogsAreRefused) {
  auto log = Defaults<weft_log>();
  EXPECT_EQ(Take(weft_log_set(&log)), "3: weft_log: write is NULL");
  log.write = Lines::Write;
  log.min_level = 5;
  EXPECT_THAT(Take(weft_log_set(&log)), HasSubstr("min_level is 5"));
  log.min_level = 0;
  log.reserved = 1;
  EXPECT_THAT(Take(weft_log_set(&log)), HasSubstr("reserved is 1"));
}

// --- clock --------------------------------------------------------------------------------------

TEST(HostClockTest, AnEngineHasTheProgramsTime) {
  std::atomic<uint64_t> asked{0};
  auto options = Defaults<weft_engine_options>();
  options.now_arg = &asked;
  options.now_ns = [](void* arg) {
    static_cast<std::atomic<uint64_t>*>(arg)->fetch_add(1);
    return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()) +
           kHourNs;
  };
  weft_engine* engine = nullptr;
  ASSERT_OK(weft_engine_new(&options, &engine));
  {
    Pair pair(engine);
    EXPECT_EQ(pair.Call(), "OK");
  }
  EXPECT_OK(weft_engine_free(engine));
  EXPECT_GT(asked.load(), 0u);
}

// --- executor -----------------------------------------------------------------------------------

TEST(HostExecutorTest, HandlersRunOnThreadsOfTheProgramAndMayBlockThere) {
  Threads threads;
  auto executor = Defaults<weft_executor>();
  executor.run = Threads::Run;
  executor.arg = &threads;
  {
    Pair pair(nullptr, &executor);
    EXPECT_EQ(pair.Call(), "OK");
    EXPECT_EQ(pair.CountWords(3), "3");
    threads.has_room = false;
    EXPECT_THAT(pair.Call(), testing::AllOf(testing::StartsWith("8: "),
                                            HasSubstr("the server's executor has no room")));
    threads.has_room = true;
    EXPECT_EQ(pair.Call(), "OK");
  }
  EXPECT_EQ(threads.started.size(), 3u);
}

TEST(HostExecutorTest, OneWithoutRunIsRefused) {
  auto executor = Defaults<weft_executor>();
  auto options = Defaults<weft_server_options>();
  options.executor = &executor;
  weft_server* server = nullptr;
  EXPECT_EQ(Take(weft_server_new(nullptr, &options, &server)), "3: weft_executor: run is NULL");
  EXPECT_EQ(server, nullptr);
}

// --- metrics ------------------------------------------------------------------------------------

TEST(HostMetricsTest, AProgramReadsWhatWasCounted) {
  Pair pair;
  EXPECT_EQ(pair.Call(), "OK");
  EXPECT_EQ(pair.Call(), "OK");
  const auto of_channel = MetricsOf(
      [&](weft_metric each, void* arg) { return weft_channel_metrics(pair.channel(), each, arg); });
  EXPECT_EQ(of_channel.at("channel.calls_ok"), 2u);
  EXPECT_EQ(of_channel.at("channel.outstanding"), 0u);
  const auto of_server = MetricsOf(
      [&](weft_metric each, void* arg) { return weft_server_metrics(pair.server(), each, arg); });
  EXPECT_EQ(of_server.at("server.requests"), 2u);
  EXPECT_EQ(of_server.at("server.replies_ok"), 2u);
  EXPECT_EQ(of_server.at("server.connections"), 1u);
  const auto of_engine = MetricsOf([&](weft_metric each, void* arg) {
    return weft_engine_metrics(weft_server_engine(pair.server()), each, arg);
  });
  EXPECT_THAT(of_engine, Contains(testing::Pair("path.opened.tcp", 1u)));
}

TEST(HostMetricsTest, NullIsRefused) {
  const weft_metric each = [](void*, const char*, uint64_t) { ADD_FAILURE() << "of nothing"; };
  EXPECT_EQ(TakeCode(weft_channel_metrics(nullptr, each, nullptr)), WEFT_INVALID_ARGUMENT);
  EXPECT_EQ(TakeCode(weft_server_metrics(nullptr, each, nullptr)), WEFT_INVALID_ARGUMENT);
  EXPECT_EQ(TakeCode(weft_engine_metrics(nullptr, each, nullptr)), WEFT_INVALID_ARGUMENT);
  EXPECT_EQ(TakeCode(weft_memory_metrics(nullptr, nullptr)), WEFT_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace weft::c_test
