// A host that gives Weft its memory, its threads, its clock and its log, and takes its figures. It
// is compiled without exceptions and without RTTI, as many hosts are.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "examples/guide/guide.weft.h"
#include "weft/channel.h"
#include "weft/engine.h"
#include "weft/log.h"
#include "weft/memory.h"
#include "weft/metrics.h"
#include "weft/server.h"
#include "weft/service.h"

// --- memory -------------------------------------------------------------------------------------

// The host's allocator: here the C library's, behind a limit.
class HostMemory {
 public:
  static void* Take(size_t bytes, size_t alignment, weft::MemoryKind kind, void* context) {
    auto* const host = static_cast<HostMemory*>(context);
    if (host->taken_.fetch_add(bytes) + bytes > kMostBytes) {
      host->taken_ -= bytes;
      return nullptr;  // RESOURCE_EXHAUSTED, for buffers and slots
    }
    void* memory = nullptr;
    const bool ok = posix_memalign(&memory, std::max(alignment, sizeof(void*)), bytes) == 0;
    if (!ok) host->taken_ -= bytes;
    // Peers see slots and buffers: nothing of the host's is left in them.
    const bool travels = kind == weft::MemoryKind::kSlots || kind == weft::MemoryKind::kBuffers;
    if (ok && travels) std::memset(memory, 0, bytes);
    return ok ? memory : nullptr;
  }
  static void Give(void* memory, size_t bytes, size_t, weft::MemoryKind, void* context) {
    std::free(memory);
    static_cast<HostMemory*>(context)->taken_ -= bytes;
  }
  uint64_t taken() const { return taken_; }

 private:
  static constexpr uint64_t kMostBytes = uint64_t{1} << 30;
  std::atomic<uint64_t> taken_{0};
};

// --- clock --------------------------------------------------------------------------------------

// The host's time, which never goes back on any thread.
class HostClock final : public weft::Clock {
 public:
  uint64_t NowNs() const override { return weft::Clock::Real().NowNs() + kSinceEpochNs; }

 private:
  static constexpr uint64_t kSinceEpochNs = 1'000'000'000'000;
};

// --- executors ----------------------------------------------------------------------------------

// Texts of one shard are counted on one thread, whichever connection they come by.
class ByFirstLetter final : public weft::Executor {
 public:
  void Add(weft::Engine& engine) {
    engines_.push_back(&engine);
    executors_.emplace_back(engine);
  }
  size_t ShardOf(const std::string& text) const {
    return text.empty() ? 0 : static_cast<unsigned char>(text[0]) % engines_.size();
  }
  bool OnThreadOf(size_t shard) const { return engines_[shard]->OnEngine(); }

  // All methods that are called here have this request.
  weft::Executor* For(const weft::IncomingCall& call) override {
    return executors_[ShardOf(call.request<guide::CountRequest>()->text())].For(call);
  }
  bool Run(weft::Function<void()>) override { return false; }  // it only chooses

 private:
  std::vector<weft::Engine*> engines_;
  std::vector<weft::EngineExecutor> executors_;
};

class Notes final : public guide::Notes::Service {
 public:
  explicit Notes(const ByFirstLetter& shards) : shards_(shards) {}

 private:
  absl::Status CountWords(weft::ServerContext&, const guide::CountRequest& request,
                          guide::CountReply* reply) override {
    const size_t shard = shards_.ShardOf(request.text());
    if (!shards_.OnThreadOf(shard)) return absl::InternalError("on another shard's thread");
    ++calls_[shard];  // without a lock: one thread alone comes here
    reply->set_words(1 + std::count(request.text().begin(), request.text().end(), ' '));
    return absl::OkStatus();
  }

  const ByFirstLetter& shards_;
  std::array<uint64_t, 2> calls_ = {};
};

absl::Status Run() {
  // First of all: Weft has taken no memory yet.
  static HostMemory memory;
  absl::Status hooked = weft::SetMemoryHooks(
      {.take = HostMemory::Take, .give = HostMemory::Give, .context = &memory});
  if (!hooked.ok()) return hooked;

  // This instance's: another one in the process has its own. It outlives whatever has it.
  std::atomic<int> lines{0};
  weft::Log log([&lines](const weft::LogRecord&) { ++lines; }, weft::LogLevel::kInfo);

  ByFirstLetter shards;  // it and the service outlive the server
  Notes service(shards);
  auto server = weft::Server::Create({.max_sessions = 0, .log = &log, .engines = 2});
  if (!server.ok()) return server.status();
  for (size_t number = 0; number < 2; ++number) shards.Add((*server)->engine(number));
  if (auto added = (*server)->AddService(&service, &shards); !added.ok()) return added;
  if (auto listening = (*server)->Listen("127.0.0.1:0"); !listening.ok()) return listening;

  HostClock clock;
  weft::EngineOptions options;
  options.clock = &clock;
  options.log = &log;
  options.drive = weft::EngineOptions::Drive::kCaller;  // and no thread is started
  auto engine = weft::OpenNetworkEngine(options);
  if (!engine.ok()) return engine.status();
  auto channel = weft::Channel::Open(**engine, (*server)->address());
  if (!channel.ok()) return channel.status();
  guide::Notes::Stub stub(**channel);
  uint64_t words = 0;
  for (const char* const text : {"apples and pears", "bread", "apricots", "butter or oil"}) {
    guide::CountRequest request;
    guide::CountReply reply;
    request.set_text(text);
    if (auto called = stub.CountWords(request, &reply, {.timeout_us = 5'000'000}); !called.ok()) {
      return called;
    }
    words += reply.words();
  }
  std::cout << words << " words, each text on its shard's thread\n";

  // Figures: of a server, of an engine, and of the memory.
  uint64_t opened = 0;
  for (const auto& [name, value] : (*engine)->counters().Snapshot()) {
    if (name.starts_with("path.opened.")) opened += value;
  }
  const weft::MemoryReport report = weft::MemoryUsage();
  const uint64_t shared = report.of(weft::MemoryKind::kShared).bytes;
  std::cout << (*server)->stats().replies_ok << " calls, " << opened << " connection\n"
            << "memory: " << (report.total.bytes - shared == memory.taken() ? "all" : "not all")
            << " from the host, but for what peers share\n"
            << "log: " << (lines > 0 ? "heard" : "silent") << std::endl;
  return absl::OkStatus();
}

int main() {
  absl::Status status = Run();
  if (!status.ok()) std::cerr << status << std::endl;
  return status.ok() ? 0 : 1;
}
