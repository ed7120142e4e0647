// Anything at all from two clients, against handlers that do what handlers may do.
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/random.h"
#include "rpc/client/client_context.h"
#include "rpc/testing/raw_peer.h"
#include "rpc/testing/stream_frames.h"
#include "rpc/testing/stream_test.h"
#include "rpc/wire/hello.pb.h"
#include "rpc/wire/stream_frame.h"

namespace weft::test {
namespace {

// --- anything at all, against handlers that do what handlers may do ------------------------------

class StreamFuzzTest : public RpcTest {
 protected:
  using Served = OwnService::Served;
  struct Talking {
    std::optional<Served> stream;
    Data in;
    Data out;
    Data fan;
    bool reads = false;
    bool writes = false;
  };
  void Begin() {
    ServerOptions options;
    options.max_running_bytes = 3000;
    options.max_request_bytes = 1000;
    options.stream_window_messages = 6;
    options.stream_window_bytes = 2000;
    server_ = *Server::Create(server_engine(), options);
    ASSERT_TRUE(server_->AddService(&own_).ok());
    ASSERT_TRUE(server_->Listen("sim:server").ok());
    own_.on_talk = [this](Served stream) { OnTalk(std::move(stream)); };
  }
  ~StreamFuzzTest() override {
    for (auto& talk : talks_) talk->stream.reset();
    for (auto& peer : peers_) {
      if (peer->raw.connection != nullptr) peer->raw.connection->Close("done");
    }
    network_.Settle();
    talks_.clear();
  }
  std::shared_ptr<Talking> Any() {
    return talks_.empty() ? nullptr : talks_[random_.Uniform(talks_.size())];
  }
  void FinishNow(Talking& talk, absl::Status status) {
    if (!talk.stream) return;
    Served stream = std::move(*talk.stream);
    talk.stream.reset();
    stream.Finish(std::move(status));
  }
  void Read(std::shared_ptr<Talking> talk) {
    if (!talk->stream || talk->reads) return;
    talk->reads = true;
    talk->stream->Read(&talk->in, [this, talk](bool ok) {
      talk->reads = false;
      if (!ok && random_.Chance(0.5)) return FinishNow(*talk, absl::AbortedError("no more"));
      Something(talk);
      Something(Any());
    });
  }
  void Write(std::shared_ptr<Talking> talk, size_t bytes) {
    if (!talk->stream || talk->writes) return;
    talk->writes = true;
    talk->out = MakeData(1, bytes);
    talk->stream->Write(talk->out, [this, talk](bool) {
      talk->writes = false;
      Something(talk);
    });
  }
  void Something(std::shared_ptr<Talking> talk) {
    if (talk == nullptr || !talk->stream) return;
    switch (random_.Uniform(9)) {
      case 0:
      case 1:
        return Read(talk);
      case 2:
        return Write(talk, random_.Chance(0.1) ? 5000 : random_.Uniform(300));
      case 3:
        if (!talk->reads) talk->stream->TryRead(&talk->fan);
        return;
      case 4:
        if (!talk->writes) talk->stream->TryWrite(MakeData(1, random_.Chance(0.1) ? 5000 : 10));
        return;
      case 5:
        if (random_.Chance(0.3)) FinishNow(*talk, absl::OkStatus());
        return;
      case 6:
        if (talk->writes) return;
        talk->writes = true;
        return talk->stream->WhenWritable([this, talk](bool ok) {
          talk->writes = false;
          if (ok && talk->stream) talk->stream->TryWrite(MakeData(1, 20));
        });
      default:
        return Read(talk);
    }
  }
  void OnTalk(Served stream) {
    auto talk = std::make_shared<Talking>();
    talk->stream.emplace(std::move(stream));
    talks_.push_back(talk);
    if (random_.Chance(0.7)) {
      std::weak_ptr<Talking> weak = talk;
      talk->stream->context().OnCancel([this, weak] {
        if (auto told = weak.lock()) FinishNow(*told, absl::CancelledError("told"));
        Something(Any());
      });
    }
    if (random_.Chance(0.8)) Something(talk);
    if (random_.Chance(0.3)) Something(Any());
  }
  Bytes Frame() {
    const CallId id = {static_cast<uint32_t>(random_.Uniform(3)),
                       static_cast<uint32_t>(2 * random_.Uniform(3) + 1)};
    const auto number = static_cast<uint32_t>(random_.Uniform(5));
    Bytes frame;
    switch (random_.Uniform(8)) {
      case 0:
      case 1:
        frame = Open(id, random_.Chance(0.8) ? 0 : static_cast<uint16_t>(random_.Uniform(5)));
        if (random_.Chance(0.2)) StoreLe32(frame.data() + 12, 100);
        break;
      case 2:
        frame = Bytes(kCallHeaderBytes);
        EncodeStreamCancel(id, frame.data());
        break;
      case 3:
        frame = Bytes(kCallHeaderBytes);
        EncodeCredit({id, static_cast<uint16_t>(random_.Uniform(2)),
                      static_cast<uint32_t>(random_.Uniform(50))},
                     /*to_opener=*/false, frame.data());
        break;
      default:
        frame = Message(id, number,
                        random_.Chance(0.1) ? "\xFF\xFF" : Encoded(1, random_.Uniform(1500)),
                        random_.Chance(0.1) ? 1 : 0);
    }
    if (random_.Chance(0.02)) {
      frame[random_.Uniform(frame.size())] = static_cast<std::byte>(random_.Next64());
    }
    return frame;
  }
  // Frames that a client might send: most streams live.
  struct Peer {
    RawPeer raw;
    uint32_t generation[3] = {1, 1, 1};
    uint32_t next[3] = {0, 0, 0};
    uint32_t skipped[3] = {0, 0, 0};
    bool open[3] = {};
  };
  Bytes Likely(Peer& peer) {
    const auto slot = static_cast<uint32_t>(random_.Uniform(3));
    CallId id = {slot, peer.generation[slot]};
    if (!peer.open[slot]) {
      peer.open[slot] = true;
      peer.next[slot] = 0;
      peer.skipped[slot] = ~0u;
      return Open(id, 0);
    }
    if (random_.Chance(0.1)) {
      peer.generation[slot] += 2;
      peer.open[slot] = false;
      Bytes frame(kCallHeaderBytes);
      EncodeStreamCancel(id, frame.data());
      return frame;
    }
    const std::string body = random_.Chance(0.1)
                                 ? "\xFF\xFF"
                                 : Encoded(1, random_.Uniform(random_.Chance(0.2) ? 1500 : 100));
    if (peer.skipped[slot] != ~0u && random_.Chance(0.4)) {
      return Message(id, std::exchange(peer.skipped[slot], ~0u), body);
    }
    if (peer.skipped[slot] == ~0u && random_.Chance(0.3)) peer.skipped[slot] = peer.next[slot]++;
    return Message(id, peer.next[slot]++, body, random_.Chance(0.05) ? 1 : 0);
  }

  OwnService own_;
  Random random_{1};
  std::deque<std::unique_ptr<Peer>> peers_;
  std::vector<std::shared_ptr<Talking>> talks_;
};

TEST_F(StreamFuzzTest, NothingHarmsAServerWhoseHandlersLiveByCallbacks) {
  Begin();
  for (int round = 0; round < 3000; ++round) {
    random_ = Random(static_cast<uint64_t>(round) + 1);
    SCOPED_TRACE(round);
    peers_.clear();
    for (int i = 0; i < 2; ++i) {
      peers_.push_back(std::make_unique<Peer>());
      rpc::ClientHello hello;
      hello.set_protocol(kRpcProtocolVersion);
      hello.set_max_outstanding_calls(4);
      hello.set_max_reply_bytes(1000);
      hello.set_max_streams(3);
      hello.set_stream_window_messages(3);
      hello.set_stream_window_bytes(300);
      peers_.back()->raw.DialWith(client().transport(), hello);
      ASSERT_TRUE(RunUntil([&] { return peers_.back()->raw.connection != nullptr; }));
    }
    for (int step = 0; step < 12; ++step) {
      for (auto& peer : peers_) {
        if (peer->raw.connection == nullptr) continue;
        std::vector<Bytes> frames;
        for (uint64_t n = random_.UniformInRange(1, 6); n > 0; --n) {
          frames.push_back(random_.Chance(0.1) ? Frame() : Likely(*peer));
        }
        SendTogether(peer->raw, frames);
      }
      if (random_.Chance(0.7)) network_.Settle();
      Something(Any());
    }
    network_.Settle();
    for (auto& talk : talks_) FinishNow(*talk, absl::OkStatus());
    for (auto& peer : peers_) {
      if (peer->raw.connection != nullptr) peer->raw.connection->Close("done");
    }
    ASSERT_TRUE(RunUntil([&] { return server_->stats().connections == 0; }));
    EXPECT_EQ(server_->stats().running, 0u);
    EXPECT_EQ(server_->stats().running_bytes, 0u);
    for (auto& talk : talks_) EXPECT_FALSE(talk->reads || talk->writes) << "a callback was lost";
    talks_.clear();
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace weft::test
