// Streams between real engines and threads, over every path of this machine.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "rpc/client/channel.h"
#include "rpc/client/client_context.h"
#include "rpc/server/server.h"
#include "rpc/testing/stream_service.h"
#include "rpc/testing/two_threads.h"
#include "transport/network.h"

namespace weft::test {
namespace {

// One server with a thread of its own, whose handlers of streams run on an executor.
class StreamNetworkTest : public testing::TestWithParam<PathKind> {
 protected:
  // Handlers that read and write in the form that blocks.
  class BlockingService final : public Streams::Service {
   public:
    absl::Status Talk(ServerContext&, ServerReaderWriter<Data, Data>& stream) override {
      Data data;
      while (stream.Read(&data)) {
        if (!stream.Write(data)) return absl::AbortedError("nobody reads");
      }
      return absl::OkStatus();
    }
    absl::Status Sum(ServerContext&, ServerReader<Data>& reader, Data* reply) override {
      Data data;
      uint64_t sum = 0;
      while (reader.Read(&data)) {
        sum += data.number();
        reply->set_number(reply->number() + 1);
      }
      reply->set_payload(std::string(sum, 's'));
      return absl::OkStatus();
    }
    absl::Status Count(ServerContext&, const Size& request, ServerWriter<Data>& writer) override {
      for (uint64_t i = 0; i < request.bytes(); ++i) {
        if (!writer.Write(MakeData(i, 10))) return absl::AbortedError("nobody reads");
      }
      ++counted;
      return absl::OkStatus();
    }
    std::atomic<int> counted = 0;
  };

  void SetUp() override {
    ServerOptions options;
    options.link.peer_timeout_ns = 0;
    server_ = *Server::Create(options);
    ASSERT_TRUE(server_->AddService(&service_, &threads_).ok());
    const absl::Status listening = server_->Listen("127.0.0.1:0");
    ASSERT_TRUE(listening.ok()) << listening;
  }

  std::unique_ptr<Channel> Open(ChannelOptions options = {}) {
    options.link.paths = {GetParam()};
    options.link.peer_timeout_ns = 0;
    auto channel = Channel::Open(server_->address(), options);
    EXPECT_TRUE(channel.ok()) << channel.status();
    return *std::move(channel);
  }

  TwoThreads threads_;
  BlockingService service_;
  std::unique_ptr<Server> server_;
};

TEST_P(StreamNetworkTest, APingPongThatBlocksAtBothEnds) {
  auto channel = Open();
  Streams::Stub stub(*channel);
  ClientReaderWriter<Data, Data> talk = stub.Talk();
  Data reply;
  for (uint64_t i = 0; i < 1000; ++i) {
    const size_t bytes = i % 100 == 7 ? 100'000 : i % 300;
    ASSERT_TRUE(talk.Write(MakeData(i, bytes)));
    ASSERT_TRUE(talk.Read(&reply));
    ASSERT_EQ(reply.number(), i);
    ASSERT_EQ(reply.payload().size(), bytes);
  }
  talk.WritesDone();
  EXPECT_FALSE(talk.Read(&reply));
  const absl::Status status = talk.Finish();
  EXPECT_TRUE(status.ok()) << status;
}

TEST_P(StreamNetworkTest, ManyRequestsAndManyReplies) {
  auto channel = Open();
  Streams::Stub stub(*channel);
  Data reply;
  ClientWriter<Data> sum = stub.Sum(&reply);
  for (uint64_t i = 0; i < 5000; ++i) ASSERT_TRUE(sum.Write(MakeData(1, 50)));
  absl::Status status = sum.Finish();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(reply.number(), 5000u);

  Size size;
  size.set_bytes(5000);
  ClientReader<Data> count = stub.Count(size);
  uint64_t read = 0;
  while (count.Read(&reply)) ASSERT_EQ(reply.number(), read++);
  EXPECT_EQ(read, 5000u);
  status = count.Finish();
  EXPECT_TRUE(status.ok()) << status;
}

TEST_P(StreamNetworkTest, OneThreadReadsWhileAnotherWrites) {
  auto channel = Open();
  Streams::Stub stub(*channel);
  constexpr uint64_t kMessages = 3000;
  ClientReaderWriter<Data, Data> talk = stub.Talk();
  std::thread writer([&] {
    for (uint64_t i = 0; i < kMessages; ++i) ASSERT_TRUE(talk.Write(MakeData(i, i % 500)));
    talk.WritesDone();
  });
  Data reply;
  uint64_t read = 0;
  while (talk.Read(&reply)) ASSERT_EQ(reply.number(), read++);
  writer.join();
  EXPECT_EQ(read, kMessages);
  const absl::Status status = talk.Finish();
  EXPECT_TRUE(status.ok()) << status;
}

TEST_P(StreamNetworkTest, ThreadsOpenStreamsOnOneChannel) {
  auto channel = Open();
  Streams::Stub stub(*channel);
  std::vector<std::thread> threads;
  std::atomic<int> ok = 0;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        Data reply;
        ClientWriter<Data> sum = stub.Sum(&reply);
        for (int k = 0; k < 5; ++k) sum.Write(MakeData(1, 20));
        ok += sum.Finish().ok() && reply.number() == 5;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ok, 150);
}

TEST_P(StreamNetworkTest, ACancelFromAnotherThreadEndsARead) {
  auto channel = Open();
  Streams::Stub stub(*channel);
  for (int i = 0; i < 20; ++i) {
    ClientContext context;
    ClientReaderWriter<Data, Data> talk = stub.Talk({.context = &context});
    std::thread canceller([&] { EXPECT_TRUE(context.Cancel().ok()); });
    Data reply;
    EXPECT_FALSE(talk.Read(&reply));
    canceller.join();
    EXPECT_TRUE(absl::IsCancelled(talk.Finish()));
  }
}

TEST_P(StreamNetworkTest, AWriterWhoseReaderGoesEnds) {
  auto channel = Open();
  Streams::Stub stub(*channel);
  Size size;
  size.set_bytes(1'000'000);
  {
    ClientReader<Data> count = stub.Count(size);
    Data reply;
    EXPECT_TRUE(count.Read(&reply));
  }
  Data reply;
  ClientWriter<Data> sum = stub.Sum(&reply);
  EXPECT_TRUE(sum.Finish().ok());
  while (server_->stats().running > 0) std::this_thread::yield();
  EXPECT_EQ(service_.counted, 0);
}

INSTANTIATE_TEST_SUITE_P(Paths, StreamNetworkTest, testing::Values(PathKind::kShm, PathKind::kTcp),
                         [](const auto& info) { return std::string(PathKindName(info.param)); });

}  // namespace
}  // namespace weft::test
