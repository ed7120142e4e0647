#include "embed/nbdkit/block_volume.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "embed/nbdkit/block_limits.h"
#include "embed/nbdkit/testing/block_server.h"
#include "embed/nbdkit/testing/memory_device.h"
#include "weft/server.h"

namespace weft::embed {
namespace {

constexpr uint64_t kDeviceBytes = uint64_t{4} << 20;

std::string Pattern(size_t bytes, int seed) {
  std::string text(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(i * 31 + i / 251 + seed);
  return text;
}

class BlockVolumeTest : public testing::Test {
 protected:
  void StartServer(const std::string& address = "127.0.0.1:0") {
    server_ = std::make_unique<BlockServer>(device_, 4, address);
    address_ = server_->address();
  }
  // As kill -9 and a new start: nothing that clients had under way is answered.
  void RestartServer() {
    server_.reset();
    StartServer(address_);
  }
  void OpenVolume(uint64_t patience_us = 60'000'000) {
    auto volume = BlockVolume::Open({.address = address_, .patience_us = patience_us});
    ASSERT_TRUE(volume.ok()) << volume.status();
    volume_ = *std::move(volume);
    losses_ = volume_->losses();
  }
  std::string Read(uint64_t offset, size_t bytes) {
    std::string text(bytes, '?');
    const absl::Status status =
        volume_->Read(offset, {reinterpret_cast<std::byte*>(text.data()), bytes});
    EXPECT_TRUE(status.ok()) << status;
    return text;
  }

  MemoryDevice device_{kDeviceBytes};
  std::unique_ptr<BlockServer> server_;
  std::string address_;
  std::unique_ptr<BlockVolume> volume_;
  uint64_t losses_ = 0;
};

TEST_F(BlockVolumeTest, ReadsWhatItWritesAtAllSizes) {
  StartServer();
  OpenVolume();
  int seed = 0;
  for (const size_t bytes : {size_t{1}, size_t{4096}, kMaxInlineBytes, kMaxInlineBytes + 1,
                             kMaxPayloadBytes, kMaxPayloadBytes + 1, 3 * kMaxPayloadBytes}) {
    const std::string data = Pattern(bytes, ++seed);
    ASSERT_TRUE(volume_->Write(7, AsBytes(data), bytes % 2 == 0).ok());
    EXPECT_TRUE(Read(7, bytes) == data) << bytes;
    ASSERT_TRUE(volume_->Zero(7, bytes, true, false).ok());
    EXPECT_TRUE(Read(7, bytes) == std::string(bytes, '\0')) << bytes;
  }
  EXPECT_TRUE(volume_->Flush(&losses_).ok());
}

TEST_F(BlockVolumeTest, ExtentsCoverTheRange) {
  StartServer();
  OpenVolume();
  ASSERT_TRUE(volume_->Write(100, AsBytes("data"), false).ok());
  const auto extents = volume_->Extents(0, 1000, 100);
  ASSERT_TRUE(extents.ok()) << extents.status();
  ASSERT_EQ(extents->size(), 3u);
  EXPECT_EQ((*extents)[1].bytes, 4u);
  EXPECT_FALSE((*extents)[1].is_hole);
  EXPECT_EQ(volume_->Extents(0, 1000, 1)->size(), 1u);
}

// NBD's requests name up to 4 GiB to be trimmed or zeroed. As one operation on a medium that writes
// zeros such a request took longer than the patience, and so failed each time.
TEST(BlockVolumeRangeTest, WhatIsLongGoesInPiecesThatEndAtMultiplesOfTheLongest) {
  constexpr uint64_t kEnd = 2 * kMaxRangeBytes + 4096;
  MemoryDevice device(kEnd);
  BlockServer server(device);
  const auto volume = *BlockVolume::Open({.address = server.address()});
  const std::vector<uint64_t> places = {0,
                                        1,
                                        kMaxRangeBytes - 1,
                                        kMaxRangeBytes,
                                        2 * kMaxRangeBytes - 1,
                                        2 * kMaxRangeBytes,
                                        kEnd - 2,
                                        kEnd - 1};
  const auto pieces = testing::ElementsAre(testing::Pair(1, kMaxRangeBytes - 1),
                                           testing::Pair(kMaxRangeBytes, kMaxRangeBytes),
                                           testing::Pair(2 * kMaxRangeBytes, 4095));
  for (const uint64_t place : places) {
    ASSERT_TRUE(volume->Write(place, AsBytes("x"), false).ok());
  }
  ASSERT_TRUE(volume->Zero(1, kEnd - 2, /*may_trim=*/true, /*durable=*/false).ok());
  EXPECT_THAT(device.ranges(), pieces);
  for (const uint64_t place : places) {
    const bool is_outside = place == 0 || place == kEnd - 1;
    EXPECT_EQ(device.At(place), is_outside ? std::byte{'x'} : std::byte{0}) << place;
  }
  uint64_t losses = volume->losses();
  ASSERT_TRUE(volume->Flush(&losses).ok());
}

TEST(BlockVolumeRangeTest, TrimsGoInTheSamePieces) {
  MemoryDevice device(2 * kMaxRangeBytes);
  BlockServer server(device);
  const auto volume = *BlockVolume::Open({.address = server.address()});
  ASSERT_TRUE(volume->Trim(4096, kMaxRangeBytes, /*durable=*/true).ok());
  EXPECT_THAT(device.ranges(), testing::ElementsAre(testing::Pair(4096, kMaxRangeBytes - 4096),
                                                    testing::Pair(kMaxRangeBytes, 4096)));
}

TEST_F(BlockVolumeTest, AServerThatComesBackIsUsedAgain) {
  StartServer();
  OpenVolume();
  ASSERT_TRUE(volume_->Write(0, AsBytes("before"), false).ok());
  RestartServer();
  EXPECT_EQ(Read(0, 6), "before");
  EXPECT_TRUE(volume_->Flush(&losses_).ok()) << "the host was there all the time";
}

// What was under way when the server died is sent again, from all threads.
TEST_F(BlockVolumeTest, WhatIsUnderWayIsSentAgain) {
  StartServer();
  OpenVolume();
  device_.Hold();
  std::vector<std::thread> threads;
  std::vector<absl::Status> statuses(8, absl::UnknownError("not run"));
  for (size_t i = 0; i < statuses.size(); ++i) {
    threads.emplace_back([this, i, &statuses] {
      statuses[i] = volume_->Write(i * 100'000, AsBytes(Pattern(100'000, i)), false);
    });
  }
  device_.AwaitHeld(3);  // all threads of the server but one
  std::thread going([this] { device_.Go(); });
  RestartServer();
  going.join();
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
  for (size_t i = 0; i < statuses.size(); ++i) {
    EXPECT_TRUE(Read(i * 100'000, 100'000) == Pattern(100'000, i)) << i;
  }
}

// The page cache died with the host: a flush that says OK would be a lie.
TEST_F(BlockVolumeTest, UnflushedWritesOfADeadHostFailTheNextFlushOnce) {
  StartServer();
  OpenVolume();
  uint64_t losses_of_another = losses_;
  ASSERT_TRUE(volume_->Write(0, AsBytes("a"), false).ok());
  device_.ChangeEpoch();
  RestartServer();
  const absl::Status lost = volume_->Flush(&losses_);
  EXPECT_TRUE(absl::IsDataLoss(lost)) << lost;
  EXPECT_TRUE(volume_->Flush(&losses_).ok());
  EXPECT_TRUE(absl::IsDataLoss(volume_->Flush(&losses_of_another)));
}

TEST_F(BlockVolumeTest, FlushedAndDurableWritesSurviveAHost) {
  StartServer();
  OpenVolume();
  ASSERT_TRUE(volume_->Write(0, AsBytes("a"), false).ok());
  ASSERT_TRUE(volume_->Flush(&losses_).ok());
  ASSERT_TRUE(volume_->Write(0, AsBytes("b"), /*durable=*/true).ok());
  device_.ChangeEpoch();
  RestartServer();
  EXPECT_TRUE(volume_->Flush(&losses_).ok());
  ASSERT_TRUE(volume_->Trim(0, 1, false).ok());
  device_.ChangeEpoch();
  EXPECT_TRUE(absl::IsDataLoss(volume_->Flush(&losses_))) << "a trim is a change as well";
}

TEST_F(BlockVolumeTest, AMediumThatFailsIsToldToAllWithUnflushedWrites) {
  StartServer();
  OpenVolume();
  const auto other = *BlockVolume::Open({.address = address_});
  uint64_t losses = other->losses();
  ASSERT_TRUE(other->Write(0, AsBytes("a"), false).ok());
  device_.FailFlushes(true);
  EXPECT_TRUE(absl::IsDataLoss(volume_->Flush(&losses_)));
  device_.FailFlushes(false);
  EXPECT_TRUE(absl::IsDataLoss(other->Flush(&losses)));
  EXPECT_TRUE(other->Flush(&losses).ok());
}

TEST_F(BlockVolumeTest, WithoutAServerAnOperationGivesUpAndSaysWhy) {
  StartServer();
  OpenVolume(/*patience_us=*/300'000);
  server_.reset();
  const absl::Status status = volume_->Write(0, AsBytes("a"), false);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("write: given up after "));
}

TEST_F(BlockVolumeTest, AnotherDeviceIsNotTakenForTheSame) {
  StartServer();
  OpenVolume();
  MemoryDevice larger(kDeviceBytes + 1);
  server_.reset();
  BlockServer other(larger, 2, address_);
  const absl::Status status = volume_->Write(0, AsBytes("a"), false);
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("serves another device now"));
  EXPECT_EQ(larger.writes(), 0);
}

// More than the server's buffers hold at a time: it refuses, and the client comes again.
TEST_F(BlockVolumeTest, AServerWithoutRoomIsAskedAgain) {
  server_ = std::make_unique<BlockServer>(device_, 4, "127.0.0.1:0", /*buffer_bytes=*/2 << 20);
  address_ = server_->address();
  OpenVolume();
  std::vector<std::thread> threads;
  std::vector<absl::Status> statuses(8);
  for (size_t i = 0; i < statuses.size(); ++i) {
    threads.emplace_back([this, i, &statuses] {
      const std::string data = Pattern(kMaxPayloadBytes, i);
      for (int times = 0; times < 4 && statuses[i].ok(); ++times) {
        statuses[i] = volume_->Write(0, AsBytes(data), false);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
}

// A server that lies.
class LyingService final : public wire::Block::Service {
 public:
  wire::AttachReply told;
  wire::ReadReply read;
  wire::ExtentsReply extents;

 private:
  void StartAttach(const wire::AttachRequest&, ServerWriter<wire::AttachReply> stream) override {
    auto kept = std::make_shared<ServerWriter<wire::AttachReply>>(std::move(stream));
    kept->context().OnCancel([kept] { kept->Finish(absl::CancelledError("over")); });
    kept->Write(told, [](bool) {});
  }
  absl::Status Read(ServerContext&, const wire::ReadRequest&, wire::ReadReply* reply) override {
    *reply = read;
    return absl::OkStatus();
  }
  absl::Status Extents(ServerContext&, const wire::ExtentsRequest&,
                       wire::ExtentsReply* reply) override {
    *reply = extents;
    return absl::OkStatus();
  }
};

class LyingServerTest : public testing::Test {
 protected:
  LyingServerTest() {
    service_.told.set_session(1);
    service_.told.set_bytes(1 << 20);
    service_.told.set_preferred_bytes(4096);
    EXPECT_TRUE(server_->AddService(&service_).ok());
    EXPECT_TRUE(server_->Listen("127.0.0.1:0").ok());
  }
  absl::StatusOr<std::unique_ptr<BlockVolume>> Open() {
    return BlockVolume::Open({.address = server_->address()});
  }

  LyingService service_;
  const std::unique_ptr<Server> server_ = *Server::Create();
};

TEST_F(LyingServerTest, FactsThatNoDeviceHasAreRefused) {
  service_.told.set_bytes(~uint64_t{0});
  EXPECT_TRUE(absl::IsDataLoss(Open().status()));
  service_.told.set_bytes(4096);
  for (const uint32_t preferred : {0u, 511u, 513u, 1u << 26}) {
    service_.told.set_preferred_bytes(preferred);
    EXPECT_TRUE(absl::IsDataLoss(Open().status())) << preferred;
  }
}

TEST_F(LyingServerTest, AnotherNumberOfBytesIsRefused) {
  const auto volume = *Open();
  std::string into(10, '?');
  const MutableByteSpan span(reinterpret_cast<std::byte*>(into.data()), into.size());
  for (const size_t bytes : {0, 9, 11}) {
    service_.read.set_inline_data(std::string(bytes, 'x'));
    EXPECT_TRUE(absl::IsDataLoss(volume->Read(0, span))) << bytes;
  }
  // Lent memory, and an answer that tells of none.
  std::string large(kMaxInlineBytes + 1, '?');
  EXPECT_TRUE(absl::IsDataLoss(
      volume->Read(0, {reinterpret_cast<std::byte*>(large.data()), large.size()})));
}

TEST_F(LyingServerTest, ExtentsBeyondTheRangeAreRefused) {
  const auto volume = *Open();
  EXPECT_TRUE(absl::IsDataLoss(volume->Extents(0, 100, 10).status())) << "none";
  service_.extents.add_extents()->set_bytes(0);
  EXPECT_TRUE(absl::IsDataLoss(volume->Extents(0, 100, 10).status())) << "an empty one";
  service_.extents.mutable_extents(0)->set_bytes(60);
  service_.extents.add_extents()->set_bytes(~uint64_t{0} - 10);
  EXPECT_TRUE(absl::IsDataLoss(volume->Extents(0, 100, 10).status())) << "too many bytes";
}

}  // namespace
}  // namespace weft::embed
