// Memory of a server with several engines: what it exports, and what its handlers move payloads
// with, is good for the clients of all of them.

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "rpc/client/bulk_call.h"
#include "rpc/client/channel.h"
#include "rpc/memory/remote_memory.h"
#include "rpc/server/exported_memory.h"
#include "rpc/server/server.h"
#include "rpc/testing/payload_service.h"
#include "rpc/testing/probe_service.h"
#include "transport/buffer.h"
#include "transport/network.h"
#include "weft/status.h"

namespace weft::test {
namespace {

// Each call has a buffer of the server's while its payload comes and goes.
class BufferService final : public Payloads::Service {
 public:
  void StartExchange(UnaryCall<Parcel, Parcel> call) override {
    const uint64_t length = call.request().data().length();
    auto buffer = server->AllocateBuffer(length);
    if (!buffer.ok()) return call.Finish(buffer.status());
    auto* const held = new Held{std::move(call), *std::move(buffer)};
    ServerBulk& bulk = held->call.context().bulk();
    bulk.Fetch(held->call.request().data(), held->buffer->slice(), [held](absl::Status fetched) {
      if (!fetched.ok()) return End(held, std::move(fetched));
      held->call.context().bulk().Push(
          held->buffer->slice(), held->call.reply()->mutable_data(),
          [held](absl::Status pushed) { End(held, std::move(pushed)); });
    });
  }

  Server* server = nullptr;

 private:
  struct Held {
    UnaryCall<Parcel, Parcel> call;
    std::unique_ptr<Buffer> buffer;
  };
  static void End(Held* held, absl::Status status) {
    const std::unique_ptr<Held> owned(held);
    owned->call.Finish(std::move(status));
  }
};

class LookingService final : public Probe::Service {
 public:
  absl::Status Echo(ServerContext&, const Data& request, Data* reply) override {
    *reply = request;
    return on_echo ? on_echo(reply) : absl::OkStatus();
  }
  Function<absl::Status(Data*)> on_echo;
};

class EnginesMemoryTest : public testing::TestWithParam<std::tuple<PathKind, uint32_t>> {
 protected:
  void SetUp() override {
    ServerOptions options;
    options.engines = engines();
    options.max_sessions = 0;
    options.link.peer_timeout_ns = 0;
    options.spin_ns = 0;
    auto server = Server::Create(options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    payloads_.server = server_.get();
    ASSERT_TRUE(server_->AddService(&payloads_).ok());
    ASSERT_TRUE(server_->AddService(&looking_).ok());
    ASSERT_TRUE(server_->Listen("127.0.0.1:0").ok());
    for (uint32_t i = 0; i < 2 * engines(); ++i) {
      ChannelOptions channel_options;
      channel_options.link.paths = {std::get<0>(GetParam())};
      channel_options.link.peer_timeout_ns = 0;
      auto channel = Channel::Open(server_->address(), channel_options);
      ASSERT_TRUE(channel.ok()) << channel.status();
      channels_.push_back(*std::move(channel));
    }
    for (const ServerStats& stats : server_->stats_by_engine()) ASSERT_EQ(stats.connections, 2u);
  }
  uint32_t engines() const { return std::get<1>(GetParam()); }

  std::unique_ptr<ExportedMemory> Export(size_t bytes) {
    auto exported = server_->AllocateExport(bytes, {.rights = kAllRights});
    EXPECT_TRUE(exported.ok()) << exported.status();
    return exported.ok() ? *std::move(exported) : nullptr;
  }
  // All clients do this at the same time.
  void AtOnce(Function<void(size_t client, Channel& channel)> what) {
    std::vector<std::thread> clients;
    for (size_t i = 0; i < channels_.size(); ++i) {
      clients.emplace_back([&, i] { what(i, *channels_[i]); });
    }
    for (std::thread& client : clients) client.join();
  }
  static absl::Status Exchange(Channel& channel, uint8_t seed, size_t bytes) {
    GuardedMemory sent(bytes);
    GuardedMemory received(bytes);
    sent.Fill(seed);
    BulkCall bulk(channel);
    Parcel request;
    Parcel reply;
    bulk.Send(sent.all(), request.mutable_data());
    bulk.Receive(received.all());
    const absl::Status status = Payloads::Stub(channel).Exchange(request, &reply, {.bulk = &bulk});
    if (!status.ok()) return status;
    const absl::StatusOr<MutableByteSpan> payload = bulk.Received(reply.data());
    if (!payload.ok()) return payload.status();
    EXPECT_TRUE(received.Holds(seed));
    EXPECT_TRUE(received.CanariesLive() && sent.CanariesLive());
    return absl::OkStatus();
  }

  BufferService payloads_;
  LookingService looking_;
  std::unique_ptr<Server> server_;
  std::vector<std::unique_ptr<Channel>> channels_;
};

INSTANTIATE_TEST_SUITE_P(Paths, EnginesMemoryTest,
                         testing::Combine(testing::Values(PathKind::kShm, PathKind::kTcp),
                                          testing::Values(1u, 2u, 5u)),
                         [](const auto& info) {
                           return std::string(PathKindName(std::get<0>(info.param))) + "_" +
                                  std::to_string(std::get<1>(info.param));
                         });

TEST_P(EnginesMemoryTest, PayloadsTravelByTheServersBuffers) {
  for (const size_t bytes : {1u, 10'000u, 300'000u}) {
    AtOnce([&](size_t client, Channel& channel) {
      for (int i = 0; i < 5; ++i) {
        const absl::Status status =
            Exchange(channel, static_cast<uint8_t>(10 * client + static_cast<size_t>(i)), bytes);
        EXPECT_TRUE(status.ok()) << status;
      }
    });
  }
}

TEST_P(EnginesMemoryTest, AllClientsUseTheSameExport) {
  const auto exported = Export(4096);
  constexpr int kAdds = 50;
  AtOnce([&](size_t client, Channel& channel) {
    auto memory = RemoteMemory::Open(channel, exported->handle());
    ASSERT_TRUE(memory.ok()) << memory.status();
    auto buffer = channel.AllocateBuffer(8);
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    for (int i = 0; i < kAdds; ++i) ASSERT_TRUE((*memory)->FetchAdd(0, 1).ok());
    const std::string word = "client" + std::to_string(10 + client);
    std::memcpy((*buffer)->bytes().data(), word.data(), 8);
    const size_t place = 8 * (1 + client);
    ASSERT_EQ((*memory)->Write(place, (*buffer)->slice(0, 8)), absl::OkStatus());
    std::memset((*buffer)->bytes().data(), 0, 8);
    ASSERT_TRUE((*memory)->FetchAdd(0, 0).ok());  // its end proves that the write has arrived
    ASSERT_EQ((*memory)->Read(place, (*buffer)->slice(0, 8)), absl::OkStatus());
    EXPECT_EQ(std::memcmp((*buffer)->bytes().data(), word.data(), 8), 0);
  });
  auto memory = RemoteMemory::Open(*channels_.back(), exported->handle());
  ASSERT_TRUE(memory.ok()) << memory.status();
  const absl::StatusOr<uint64_t> sum = (*memory)->FetchAdd(0, 0);
  ASSERT_TRUE(sum.ok()) << sum.status();
  EXPECT_EQ(*sum, kAdds * channels_.size());
}

TEST_P(EnginesMemoryTest, DerivedHandlesAreGoodAtEveryEngine) {
  const auto exported = Export(4096);
  // On each engine in turn, by a handler there.
  looking_.on_echo = [&](Data* reply) {
    const absl::StatusOr<RemoteRegion> part =
        exported->Derive({.offset = 64, .length = 8, .rights = kMayRead});
    if (!part.ok()) return part.status();
    reply->set_payload(part->SerializeAsString());
    return absl::OkStatus();
  };
  std::memcpy(exported->bytes().data() + 64, "the part", 8);
  for (size_t deriver = 0; deriver < channels_.size(); ++deriver) {
    Data reply;
    const absl::Status status = Probe::Stub(*channels_[deriver]).Echo(Data(), &reply);
    ASSERT_TRUE(status.ok()) << status;
    RemoteRegion part;
    ASSERT_TRUE(part.ParseFromString(reply.payload()));
    for (const auto& channel : channels_) {
      auto memory = RemoteMemory::Open(*channel, part);
      ASSERT_TRUE(memory.ok()) << memory.status();
      auto buffer = channel->AllocateBuffer(8);
      ASSERT_EQ((*memory)->Read(0, (*buffer)->slice(0, 8)), absl::OkStatus());
      EXPECT_EQ(std::memcmp((*buffer)->bytes().data(), "the part", 8), 0);
    }
  }
}

TEST_P(EnginesMemoryTest, ARevokedExportIsNobodysAnyMore) {
  auto exported = Export(4096);
  std::vector<std::unique_ptr<RemoteMemory>> memories;
  for (const auto& channel : channels_) {
    auto memory = RemoteMemory::Open(*channel, exported->handle());
    ASSERT_TRUE(memory.ok()) << memory.status();
    ASSERT_TRUE((*memory)->FetchAdd(0, 1).ok());
    memories.push_back(*std::move(memory));
  }
  EXPECT_EQ(exported->leases(), channels_.size());
  const RemoteRegion handle = exported->handle();
  EXPECT_EQ(exported->Revoke(/*grace_us=*/0), ExportedMemory::Revoked::kReclaimed);
  EXPECT_EQ(exported->leases(), 0u);
  for (const auto& memory : memories) EXPECT_FALSE(memory->FetchAdd(0, 1).ok());
  memories.clear();
  exported.reset();
  // Its slot is used again, under another handle.
  exported = Export(4096);
  for (const auto& channel : channels_) {
    auto stale = RemoteMemory::Open(*channel, handle);
    EXPECT_TRUE(!stale.ok() || !(*stale)->FetchAdd(0, 1).ok());
    auto memory = RemoteMemory::Open(*channel, exported->handle());
    ASSERT_TRUE(memory.ok()) << memory.status();
    EXPECT_TRUE((*memory)->FetchAdd(0, 1).ok());
  }
}

TEST_P(EnginesMemoryTest, AHandlerMayRevokeAndLookAndNotWait) {
  auto exported = Export(4096);
  std::atomic<uint32_t> leases{0};
  looking_.on_echo = [&](Data*) {
    leases = exported->leases();
    exported->Revoke(/*grace_us=*/0);
    return absl::OkStatus();
  };
  auto memory = RemoteMemory::Open(*channels_.back(), exported->handle());
  ASSERT_TRUE(memory.ok()) << memory.status();
  ASSERT_TRUE((*memory)->FetchAdd(0, 1).ok());
  Data reply;
  for (const auto& channel : channels_) {
    const absl::Status status = Probe::Stub(*channel).Echo(Data(), &reply);
    ASSERT_TRUE(status.ok()) << status;
    if (channel == channels_.front()) {
      EXPECT_EQ(leases, 1u);
    }
  }
  EXPECT_EQ(exported->Revoke(0), ExportedMemory::Revoked::kReclaimed);
}

// Path numbers of a server's further engines do not begin at 0, and for memory that was made for
// one of these engines alone they were another engine's: all of its operations failed.
TEST_P(EnginesMemoryTest, AChannelOnAnyEngineOfAServerHasBuffersOfItsOwn) {
  const auto exported = Export(4096);
  std::memcpy(exported->bytes().data(), "exported", 8);
  for (uint32_t number = 0; number < engines(); ++number) {
    Engine& engine = server_->engine(number);
    ChannelOptions options;
    options.link.paths = {std::get<0>(GetParam())};
    options.link.peer_timeout_ns = 0;
    auto channel = Channel::Open(engine, server_->address(), options);
    ASSERT_TRUE(channel.ok()) << channel.status();
    auto memory = RemoteMemory::Open(**channel, exported->handle());
    ASSERT_TRUE(memory.ok()) << memory.status();
    std::vector<std::byte> bytes(8);
    std::unique_ptr<Buffer> buffers[] = {*(*channel)->AllocateBuffer(8), Buffer::Of(engine, bytes)};
    for (const auto& buffer : buffers) {
      const RemotePiece piece = {0, buffer->slice()};
      ASSERT_EQ((*memory)->ReadBatch({&piece, 1}), absl::OkStatus()) << number;
      EXPECT_EQ(std::memcmp(buffer->bytes().data(), "exported", 8), 0) << number;
    }
    const absl::Status status = Exchange(**channel, 5, 10'000);
    EXPECT_TRUE(status.ok()) << status;
  }
}

// Such a buffer's pins are counted on one engine. Channels of several engines counted them at the
// same time, and the buffer came to other hands while a peer could touch it, or never again.
TEST_P(EnginesMemoryTest, ABufferOfSeveralEnginesIsNotForOperationsThatMayEndLate) {
  const auto exported = Export(4096);
  const auto buffer = server_->AllocateBuffer(8);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  const bool is_refused = engines() > 1;
  const auto expect = [&](const absl::Status& status) {
    EXPECT_EQ(absl::IsFailedPrecondition(status), is_refused) << status;
    EXPECT_EQ(status.ok(), !is_refused) << status;
    if (!is_refused) return;
    EXPECT_NE(status.message().find("Channel::AllocateBuffer()"), std::string::npos) << status;
    EXPECT_EQ(DeliveryOf(status), Delivery::kNotSent) << status;
  };
  Engine& engine = server_->engine(engines() - 1);
  ChannelOptions options;
  options.link.paths = {std::get<0>(GetParam())};
  options.link.peer_timeout_ns = 0;
  auto channel = Channel::Open(engine, server_->address(), options);
  ASSERT_TRUE(channel.ok()) << channel.status();
  auto memory = RemoteMemory::Open(**channel, exported->handle());
  ASSERT_TRUE(memory.ok()) << memory.status();
  for (int i = 0; i < 2; ++i) expect((*memory)->Read(0, (*buffer)->slice()));
  expect((*memory)->Write(0, (*buffer)->slice()));
  RemoteMemoryOptions patient;
  patient.timeout_us = 0;
  auto never_late = RemoteMemory::Open(**channel, exported->handle(), patient);
  ASSERT_TRUE(never_late.ok()) << never_late.status();
  EXPECT_EQ((*never_late)->Read(0, (*buffer)->slice()), absl::OkStatus());
  // What a call lends may be pinned whatever its deadline is.
  BulkCall bulk(**channel);
  Parcel request;
  Parcel reply;
  bulk.Send((*buffer)->slice(), request.mutable_data());
  GuardedMemory received(8);
  bulk.Receive(received.all());
  expect(Payloads::Stub(**channel).Exchange(request, &reply, {.bulk = &bulk}));
}

// It would wait for the other engines, whose handlers may wait for this one.
TEST_P(EnginesMemoryTest, AHandlerOfSeveralEnginesIsToldThatItCannotExport) {
  if (engines() == 1) return;
  std::atomic<absl::StatusCode> code{absl::StatusCode::kOk};
  looking_.on_echo = [&](Data*) {
    code = server_->AllocateExport(4096, {}).status().code();
    return absl::OkStatus();
  };
  Data reply;
  ASSERT_TRUE(Probe::Stub(*channels_[0]).Echo(Data(), &reply).ok());
  EXPECT_EQ(code.load(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace weft::test
