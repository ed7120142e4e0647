// A message of a stream takes nothing from the heap and no lock, at neither end, once as many have
// passed as wait at the worst.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "core/testing/hot_path_meter.h"
#include "rpc/client/channel.h"
#include "rpc/server/server.h"
#include "rpc/testing/loopback.h"
#include "rpc/testing/stream_service.h"

namespace weft::test {
namespace {

// Echoes on the engine.
class EchoService final : public Streams::Service {
 public:
  void StartTalk(ServerReaderWriter<Data, Data> stream) override {
    stream_.emplace(std::move(stream));
    Next();
  }
  void StartSum(ServerReader<Data> reader, Data*) override {
    reader_.emplace(std::move(reader));
    if (!hold_reads) NextOfSum();
  }
  void NextOfSum() {
    reader_->Read(&data_, [this](bool ok) {
      if (!ok) return reader_->Finish(absl::OkStatus());
      ++read;
      NextOfSum();
    });
  }

  std::optional<ServerReader<Data>>& reader() { return reader_; }

  bool hold_reads = false;
  uint64_t read = 0;

 private:
  void Next() {
    stream_->Read(&data_, [this](bool ok) {
      if (!ok) return stream_->Finish(absl::OkStatus());
      stream_->Write(data_, [this](bool) { Next(); });
    });
  }

  Data data_;
  std::optional<ServerReaderWriter<Data, Data>> stream_;
  std::optional<ServerReader<Data>> reader_;
};

class StreamAllocationTest : public testing::Test {
 protected:
  StreamAllocationTest() {
    engine_ = *OpenLoopbackEngine();
    server_ = *Server::Create(*engine_);
    EXPECT_TRUE(server_->AddService(&service_).ok());
    EXPECT_TRUE(server_->Listen("loopback").ok());
    channel_ = *Channel::Open(*engine_, "loopback");
    stub_.emplace(*channel_);
  }

  // What 1,000 runs of `action` take, after some to warm up: more than a window of messages.
  HotPathCounts Count(const std::function<void()>& action) {
    for (int i = 0; i < 2000; ++i) action();
    const HotPathMeter meter;
    for (int i = 0; i < 1000; ++i) action();
    return meter.counts();
  }

  std::unique_ptr<EngineCore> engine_;
  EchoService service_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<Channel> channel_;
  std::optional<Streams::Stub> stub_;
  const Data message_ = MakeData(1, 64);
  Data reply_;
};

TEST_F(StreamAllocationTest, APingPongThatBlocksAllocatesNothing) {
  ClientReaderWriter<Data, Data> talk = stub_->Talk();
  EXPECT_EQ(Count([&] {
              ASSERT_TRUE(talk.Write(message_));
              ASSERT_TRUE(talk.Read(&reply_));
            }),
            HotPathCounts());
  talk.WritesDone();
  EXPECT_TRUE(talk.Finish().ok());
}

TEST_F(StreamAllocationTest, APingPongByCallbackAllocatesNothing) {
  ClientReaderWriter<Data, Data> talk = stub_->Talk();
  EXPECT_EQ(Count([&] {
              Waiter done;
              talk.Read(&reply_, [&](bool ok) {
                EXPECT_TRUE(ok);
                engine_->Finish(done);
              });
              talk.Write(message_, [](bool ok) { EXPECT_TRUE(ok); });
              engine_->Wait(done);
            }),
            HotPathCounts());
  talk.WritesDone();
  EXPECT_TRUE(talk.Finish().ok());
}

TEST_F(StreamAllocationTest, MessagesOneWayAllocateNothing) {
  ClientWriter<Data> sum = stub_->Sum(&reply_);
  EXPECT_EQ(Count([&] {
              // Fewer than a loopback holds: its refusals allocate.
              constexpr uint64_t kMessages = 30;
              const uint64_t all = service_.read + kMessages;
              for (uint64_t i = 0; i < kMessages; ++i) {
                ASSERT_EQ(sum.TryWrite(message_), StreamResult::kDone);
              }
              while (service_.read < all) engine_->Poll();
            }),
            HotPathCounts());
  EXPECT_TRUE(sum.Finish().ok());
  EXPECT_GT(service_.read, 10'000u);
}

TEST_F(StreamAllocationTest, MessagesThatWaitForTheirReaderAllocateNothing) {
  service_.hold_reads = true;
  ClientWriter<Data> sum = stub_->Sum(&reply_);
  while (!service_.reader()) engine_->Poll();
  Data data;
  EXPECT_EQ(Count([&] {
              for (int i = 0; i < 20; ++i) {
                ASSERT_EQ(sum.TryWrite(message_), StreamResult::kDone);
              }
              int read = 0;
              while (read < 20) {
                engine_->Poll();
                while (service_.reader()->TryRead(&data) == StreamResult::kDone) ++read;
              }
            }),
            HotPathCounts());
  service_.NextOfSum();
  EXPECT_TRUE(sum.Finish().ok());
}

}  // namespace
}  // namespace weft::test
