// A client and a server of the service of streams on a simulated network.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "rpc/client/client_streams.h"
#include "rpc/testing/rpc_test.h"
#include "rpc/testing/stream_service.h"

namespace weft::test {

class StreamTest : public RpcTest {
 protected:
  using Talk = ClientReaderWriter<Data, Data>;
  using Served = ServerReaderWriter<Data, Data>;

  explicit StreamTest(uint64_t seed = 1) : RpcTest(seed) {}
  ~StreamTest() override {
    streams_.talks.clear();
    lost_talks_.clear();
    channel_.reset();
    server_.reset();
    killed_servers_.clear();
  }

  void StartStreamServer(const ServerOptions& options = {}) {
    server_ = *Server::Create(server_engine(), options);
    ASSERT_TRUE(server_->AddService(&service_).ok());
    ASSERT_TRUE(server_->AddService(&streams_).ok());
    const absl::Status listening = server_->Listen("sim:server");
    ASSERT_TRUE(listening.ok()) << listening;
  }
  void StartStreams(const ChannelOptions& channel = {}, const ServerOptions& server = {}) {
    StartStreamServer(server);
    OpenChannel(channel);
    chat_.emplace(*channel_);
  }

  // What the handler has of the oldest talk, when it has begun.
  Served& NextTalk() {
    EXPECT_TRUE(RunUntil([this] { return !streams_.talks.empty(); }));
    served_.push_back(std::move(streams_.talks.front()));
    streams_.talks.pop_front();
    return served_.back();
  }

  // The machine of the server dies, with what its handlers hold.
  void KillStreamServer() {
    for (Served& talk : streams_.talks) lost_talks_.push_back(std::move(talk));
    streams_.talks.clear();
    for (Served& talk : served_) lost_talks_.push_back(std::move(talk));
    served_.clear();
    KillServer();
  }

  // Reads once; "-": there is nothing yet; "end".
  template <class Handle>
  std::string TryRead(Handle& stream) {
    Data data;
    switch (stream.TryRead(&data)) {
      case StreamResult::kDone:
        return std::to_string(data.number());
      case StreamResult::kNotYet:
        return "-";
      case StreamResult::kOver:
        break;
    }
    return "end";
  }
  // Reads until there is something.
  template <class Handle>
  std::string Read(Handle& stream) {
    std::string read;
    EXPECT_TRUE(RunUntil([&] { return (read = TryRead(stream)) != "-"; }));
    return read;
  }

  // The status of the stream, when it has ended.
  template <class Handle>
  absl::Status EndOf(Handle& stream) {
    std::optional<absl::Status> status;
    stream.Finish([&](absl::Status ended) { status = std::move(ended); });
    EXPECT_TRUE(RunUntil([&] { return status.has_value(); })) << "it does not end";
    return status.value_or(absl::UnknownError("it has not ended"));
  }

  uint32_t slots_in_use() { return channel_->stats().streams; }
  uint64_t held_at_server() { return server_->stats().running_bytes; }

  StreamService streams_;
  std::deque<Served> served_;
  std::deque<Served> lost_talks_;
  std::optional<Streams::Stub> chat_;
};

}  // namespace weft::test
