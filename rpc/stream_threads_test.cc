// Streams between real engines and threads that open, cancel and drop them as fast as they can; a
// drain, and lost connections.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/clock.h"
#include "rpc/client/channel.h"
#include "rpc/client/client_context.h"
#include "rpc/server/server.h"
#include "rpc/testing/stream_service.h"
#include "rpc/testing/two_threads.h"
#include "transport/engine.h"
#include "transport/network.h"

namespace weft::test {
namespace {

// Blocking handlers; some end early.
class BlockingService final : public Streams::Service {
 public:
  absl::Status Talk(ServerContext& context, ServerReaderWriter<Data, Data>& stream) override {
    std::atomic<bool>* told = new std::atomic<bool>(false);  // the callback may still run
    context.OnCancel([told] { *told = true; });
    leaked.emplace_back(told);
    Data data;
    while (stream.Read(&data)) {
      if (data.number() == 666) return absl::AbortedError("enough");
      if (!stream.Write(data)) return absl::AbortedError("nobody reads");
    }
    return absl::OkStatus();
  }
  absl::Status Sum(ServerContext&, ServerReader<Data>& reader, Data* reply) override {
    Data data;
    while (reader.Read(&data)) reply->set_number(reply->number() + 1);
    return absl::OkStatus();
  }
  absl::Status Count(ServerContext&, const Size& request, ServerWriter<Data>& writer) override {
    for (uint64_t i = 0; i < request.bytes(); ++i) {
      if (!writer.Write(MakeData(i, i % 50 == 49 ? 100'000 : 10))) return absl::AbortedError("no");
    }
    return absl::OkStatus();
  }
  struct Leaked {
    void emplace_back(std::atomic<bool>* p) {
      const std::lock_guard lock(mutex);
      all.emplace_back(p);
    }
    std::mutex mutex;
    std::deque<std::unique_ptr<std::atomic<bool>>> all;
  } leaked;
};

// Handlers on the engine that live by callbacks and finish when they are told of a cancel.
class CallbackService final : public Streams::Service {
 public:
  void StartTalk(ServerReaderWriter<Data, Data> stream) override {
    struct Talking {
      explicit Talking(ServerReaderWriter<Data, Data> s) : stream(std::move(s)) {}
      void Next() {
        ++pending;
        stream->Read(&data, [this](bool ok) {
          --pending;
          if (!stream) return MayDelete();
          if (!ok) return Finish(absl::OkStatus());
          ++pending;
          stream->Write(data, [this](bool written) {
            --pending;
            if (!stream) return MayDelete();
            if (!written) return Finish(absl::AbortedError("nobody reads"));
            Next();
          });
        });
      }
      void Finish(absl::Status status) {
        ServerReaderWriter<Data, Data> last = std::move(*stream);
        stream.reset();
        last.Finish(std::move(status));
        MayDelete();
      }
      void MayDelete() {
        if (pending == 0 && !starting) delete this;
      }
      std::optional<ServerReaderWriter<Data, Data>> stream;
      Data data;
      int pending = 0;
      bool starting = true;
    };
    auto* talking = new Talking(std::move(stream));
    talking->stream->context().OnCancel([talking] {
      if (talking->stream) talking->Finish(absl::CancelledError("told"));
    });
    if (!talking->stream) {
      delete talking;
      return;
    }
    talking->Next();
    talking->starting = false;
    if (!talking->stream) talking->MayDelete();
  }
};

struct How {
  PathKind path;
  bool own_thread;
  bool callbacks;
};

class StreamThreadsTest : public testing::TestWithParam<How> {
 protected:
  void SetUp() override {
    ServerOptions options;
    options.link.peer_timeout_ns = 0;
    options.max_streams = 40;
    options.stream_window_messages = 8;
    options.stream_window_bytes = 2000;
    StartServer(options);
  }
  void StartServer(const ServerOptions& options) {
    server_ = *Server::Create(options);
    if (GetParam().callbacks) {
      ASSERT_TRUE(server_->AddService(&callbacks_).ok());
    } else {
      ASSERT_TRUE(server_->AddService(&service_, &threads_).ok());
    }
    ASSERT_TRUE(server_->Listen("127.0.0.1:0").ok());
  }
  std::unique_ptr<Channel> Open(ChannelOptions options = {}) {
    options.link.paths = {GetParam().path};
    options.link.peer_timeout_ns = 0;
    options.stream_window_messages = 8;
    options.stream_window_bytes = 2000;
    if (GetParam().own_thread) {
      EngineOptions own;
      own.drive = EngineOptions::Drive::kOwnThread;
      auto engine = OpenNetworkEngine(own);
      EXPECT_TRUE(engine.ok()) << engine.status();
      engine_ = *std::move(engine);
      auto channel = Channel::Open(*engine_, server_->address(), options);
      EXPECT_TRUE(channel.ok()) << channel.status();
      return *std::move(channel);
    }
    auto channel = Channel::Open(server_->address(), options);
    EXPECT_TRUE(channel.ok()) << channel.status();
    return *std::move(channel);
  }

  // All that was opened is over, at both ends.
  void ExpectNothingIsLeft(Channel& channel) {
    Streams::Stub stub(channel);
    const uint64_t give_up_ns = Clock::Real().NowNs() + 60 * kNsPerSec;
    while (channel.stats().streams != 0 || server_->stats().running != 0) {
      ASSERT_LT(Clock::Real().NowNs(), give_up_ns);
      std::this_thread::yield();
    }
    EXPECT_EQ(channel.stats().streams, 0u);
    EXPECT_EQ(server_->stats().running, 0u);
    EXPECT_EQ(server_->stats().running_bytes, 0u);
    EXPECT_EQ(server_->stats().protocol_errors, 0u);
    EXPECT_EQ(channel.stats().connects, 1u);
  }

  TwoThreads threads_;
  BlockingService service_;
  CallbackService callbacks_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Server> server_;
};

TEST_P(StreamThreadsTest, RapidOpensAndCancels) {
  auto channel = Open();
  Streams::Stub stub(*channel);
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t + 1);
      std::deque<std::unique_ptr<ClientContext>> contexts;  // outlive all
      std::deque<std::unique_ptr<Data>> datas;
      for (int i = 0; i < 300; ++i) {
        contexts.push_back(std::make_unique<ClientContext>());
        datas.push_back(std::make_unique<Data>());
        ClientContext& context = *contexts.back();
        Data& data = *datas.back();
        const CallOptions options = {.timeout_us = random() % 5 == 0 ? random() % 3000 + 1 : 0,
                                     .context = random() % 2 == 0 ? &context : nullptr};
        if (random() % 10 == 0)
          context.AddMetadata("k-bin", std::string(random() % 8000, 'm')).IgnoreError();
        ClientReaderWriter<Data, Data> talk = stub.Talk(options);
        switch (random() % 7) {
          case 0:
            break;  // dropped
          case 1:
            talk.Cancel();
            talk.Finish().IgnoreError();
            break;
          case 2:
            talk.Write(MakeData(1, random() % 5000));
            break;
          case 3: {
            std::thread other([&] { context.Cancel().IgnoreError(); });
            talk.Write(MakeData(1, random() % 50000));
            talk.Cancel();
            talk.Finish().IgnoreError();
            other.join();
            break;
          }
          case 4:
            talk.Read(&data, [](bool) {});
            if (random() % 2) talk.Write(MakeData(1, 30));
            break;
          case 5:
            talk.Write(MakeData(2, 100));
            talk.Read(&data);
            talk.WritesDone();
            talk.Finish().IgnoreError();
            break;
          case 6:
            for (int k = 0; k < 20; ++k) talk.TryWrite(MakeData(k, random() % 400));
            talk.Finish([](absl::Status) {});
            talk.Cancel();
            break;
        }
      }
      // They are used until the streams have ended.
      static std::mutex mutex;
      static std::deque<std::deque<std::unique_ptr<ClientContext>>> all_contexts;
      static std::deque<std::deque<std::unique_ptr<Data>>> all_datas;
      const std::lock_guard lock(mutex);
      all_contexts.push_back(std::move(contexts));
      all_datas.push_back(std::move(datas));
    });
  }
  for (std::thread& thread : threads) thread.join();
  ExpectNothingIsLeft(*channel);
}

// More than the client keeps: what is released by one thread while another drives.
TEST_P(StreamThreadsTest, ManyEndedStreamsAreReleasedByThreads) {
  auto channel = Open();
  Streams::Stub stub(*channel);
  for (int round = 0; round < 5; ++round) {
    std::vector<std::thread> threads;
    std::vector<std::vector<ClientReaderWriter<Data, Data>>> talks(4);
    for (auto& some : talks) {
      for (int i = 0; i < 200; ++i) {
        some.push_back(stub.Talk());
        some.back().Cancel();
        some.back().Finish().IgnoreError();
      }
    }
    std::atomic<int> go = 0;
    for (auto& some : talks) {
      threads.emplace_back([&] {
        ++go;
        while (go < 4) {
        }
        while (!some.empty()) some.pop_back();
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  ExpectNothingIsLeft(*channel);
}

TEST_P(StreamThreadsTest, AServerDrainsWithOpenStreams) {
  auto channel = Open();
  Streams::Stub stub(*channel);
  std::vector<std::thread> threads;
  std::atomic<bool> stop = false;
  std::atomic<int> ended = 0;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      while (!stop) {
        ClientReaderWriter<Data, Data> talk = stub.Talk();
        Data data;
        for (int i = 0; i < 5; ++i) {
          if (!talk.Write(MakeData(i, i == 3 ? 200'000 : 10)) || !talk.Read(&data)) break;
        }
        if (ended++ % 2 == 0) talk.WritesDone();
        if (ended % 3 == 0) talk.Cancel();
        if (ended % 2 == 1) talk.WritesDone();
        talk.Finish().IgnoreError();
      }
    });
  }
  // One that never ends by itself.
  ClientReaderWriter<Data, Data> silent = stub.Talk();
  while (server_->stats().requests < 100) std::this_thread::yield();
  server_->Shutdown(100'000);
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(silent.Finish().ok());
  EXPECT_EQ(server_->stats().running, 0u);
  EXPECT_EQ(server_->stats().running_bytes, 0u);
}

TEST_P(StreamThreadsTest, ConnectionsGoWhileLargeMessagesAreUnderWay) {
  for (int round = 0; round < 15; ++round) {
    auto channel = Open();
    {
      Streams::Stub stub(*channel);
      ClientReaderWriter<Data, Data> talk = stub.Talk();
      std::atomic<bool> done = false;
      const Data big = MakeData(1, 3'000'000);
      talk.Write(big, [&](bool) {});
      Data data;
      talk.Read(&data, [&](bool) { done = true; });
      // Each time at another moment of the transfer.
      const uint64_t cancel_ns = Clock::Real().NowNs() + static_cast<uint64_t>(round) * 100'000;
      while (Clock::Real().NowNs() < cancel_ns) std::this_thread::yield();
      talk.Cancel();
      talk.Finish().IgnoreError();
    }
    channel.reset();
    engine_.reset();
  }
  while (server_->stats().running > 0) std::this_thread::yield();
  EXPECT_EQ(server_->stats().running_bytes, 0u);
}

INSTANTIATE_TEST_SUITE_P(
    All, StreamThreadsTest,
    testing::Values(How{PathKind::kShm, false, false}, How{PathKind::kShm, true, false},
                    How{PathKind::kShm, false, true}, How{PathKind::kShm, true, true},
                    How{PathKind::kTcp, false, false}, How{PathKind::kTcp, true, true}),
    [](const auto& info) {
      return std::string(PathKindName(info.param.path)) +
             (info.param.own_thread ? "Own" : "Caller") +
             (info.param.callbacks ? "Callbacks" : "Blocking");
    });

}  // namespace
}  // namespace weft::test
