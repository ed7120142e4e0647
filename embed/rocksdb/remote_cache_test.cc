#include "embed/rocksdb/remote_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "embed/rocksdb/cache_service.h"
#include "weft/engine.h"
#include "weft/path.h"
#include "weft/remote_memory.h"
#include "weft/server.h"
#include "weft/stream.h"

namespace weft::embed {
namespace {

class CacheServer {
 public:
  explicit CacheServer(uint64_t bytes, const std::string& address = "127.0.0.1:0")
      : engine_(*OpenNetworkEngine({})), service_(*engine_, bytes) {
    server_ = *Server::Create(*engine_);
    EXPECT_TRUE(server_->AddService(&service_).ok());
    const absl::Status listening = server_->Listen(address);
    EXPECT_TRUE(listening.ok()) << listening;
  }
  std::string address() const { return server_->address(); }
  absl::Status Listen(const std::string& address) { return server_->Listen(address); }
  CacheService& service() { return service_; }
  uint64_t requests() const { return server_->stats().requests; }

 private:
  const std::unique_ptr<Engine> engine_;
  CacheService service_;
  std::unique_ptr<Server> server_;
};

class RemoteCacheTest : public testing::TestWithParam<const char*> {
 protected:
  RemoteCacheTest() { Serve(16 << 20); }
  void Serve(uint64_t bytes) {
    server_.reset();
    server_ = std::make_unique<CacheServer>(bytes, address_.empty() ? "127.0.0.1:0" : address_);
    address_ = server_->address();
  }
  std::unique_ptr<RemoteCache> Open(uint64_t bytes) {
    RemoteCacheOptions options;
    options.address = address_;
    options.channel.link.paths = *ParsePathList(GetParam());
    options.bytes = bytes;
    auto cache = *RemoteCache::Open(options);
    cache->WaitIdle();
    return cache;
  }
  static bool Put(RemoteCache& cache, const std::string& key, const std::string& value) {
    return cache.Put(key, value.size(), [&value](MutableByteSpan into) {
      EXPECT_EQ(into.size(), value.size());
      std::memcpy(into.data(), value.data(), value.size());
      return true;
    });
  }
  // "" for a miss.
  static std::string Get(RemoteCache& cache, const std::string& key) {
    const auto place = cache.Find(key);
    if (!place.has_value()) return "";
    RemoteCache::Lookup lookup(*place, key);
    RemoteCache::Lookup* one = &lookup;
    cache.Fetch(absl::MakeSpan(&one, 1));
    return {reinterpret_cast<const char*>(lookup.value().data()), lookup.value().size()};
  }

  std::string address_;
  std::unique_ptr<CacheServer> server_;
};

std::string Key(int number) { return "key " + std::to_string(number); }
std::string Value(int number, size_t bytes = 4000) {
  std::string value;
  while (value.size() < bytes) value += std::to_string(number) + ", ";
  return value;
}

TEST_P(RemoteCacheTest, GivesWhatWasPut) {
  const auto cache = Open(4 << 20);
  EXPECT_EQ(Get(*cache, "key"), "");
  EXPECT_TRUE(Put(*cache, "key", "value"));
  cache->WaitIdle();
  EXPECT_EQ(Get(*cache, "key"), "value");
  EXPECT_TRUE(Put(*cache, "key", "another value"));
  cache->WaitIdle();
  EXPECT_EQ(Get(*cache, "key"), "another value");
  cache->Erase("key");
  EXPECT_EQ(Get(*cache, "key"), "");
  EXPECT_EQ(cache->stats().hits, 2u);
}

// A server that lent more than it was asked for had its clients put in as much: an index of what is
// in the memory, in the client's own, which grew and grew.
TEST_P(RemoteCacheTest, MoreThanWasAskedForIsNotTaken) {
  class Generous final : public wire::Cache::Service {
   public:
    explicit Generous(Engine& engine)
        : memory_(*ExportedMemory::Allocate(engine, 4 << 20, {.rights = kMayRead | kMayWrite})) {}
    void StartBorrow(const wire::BorrowRequest& request,
                     ServerWriter<wire::BorrowReply> stream) override {
      End();  // its client is gone
      asked_ = request.bytes();
      memory_->handle(told_.mutable_memory());
      stream_ = std::move(stream);
      stream_->Write(told_, [](bool) {});
    }
    uint64_t asked() const { return asked_; }
    // In a turn of the engine. A server's end waits for streams.
    void End() {
      if (stream_.has_value()) stream_->Finish(absl::OkStatus());
      stream_.reset();
    }

   private:
    const std::unique_ptr<ExportedMemory> memory_;
    std::atomic<uint64_t> asked_{0};
    wire::BorrowReply told_;
    std::optional<ServerWriter<wire::BorrowReply>> stream_;
  };
  const auto engine = *OpenNetworkEngine({});
  Generous generous(*engine);
  const auto server = *Server::Create(*engine);
  ASSERT_TRUE(server->AddService(&generous).ok());
  ASSERT_TRUE(server->Listen("127.0.0.1:0").ok());
  address_ = server->address();
  for (const uint64_t bytes : {uint64_t{2} << 20, uint64_t{4} << 20}) {
    const auto cache = Open(bytes);
    EXPECT_EQ(generous.asked(), bytes);
    EXPECT_EQ(Put(*cache, "key", "value"), bytes == 4 << 20);
  }
  std::promise<void> ended;
  ASSERT_TRUE(engine->Post([&] {
    generous.End();
    ended.set_value();
  }));
  ended.get_future().wait();
}

TEST_P(RemoteCacheTest, NoCodeOfTheServerRunsForIt) {
  const auto cache = Open(4 << 20);
  const uint64_t requests = server_->requests();
  for (int i = 0; i < 100; ++i) Put(*cache, Key(i), Value(i));
  cache->WaitIdle();
  for (int i = 0; i < 100; ++i) EXPECT_EQ(Get(*cache, Key(i)), Value(i));
  EXPECT_EQ(server_->requests(), requests);
}

TEST_P(RemoteCacheTest, ManyLookupsAreOneBatch) {
  const auto cache = Open(4 << 20);
  constexpr int kCount = 150;
  for (int i = 0; i < kCount; ++i) ASSERT_TRUE(Put(*cache, Key(i), Value(i)));
  cache->WaitIdle();
  std::vector<RemoteCache::Lookup> lookups;
  std::vector<RemoteCache::Lookup*> pointers;
  lookups.reserve(kCount);
  for (int i = 0; i < kCount; ++i)
    pointers.push_back(&lookups.emplace_back(*cache->Find(Key(i)), Key(i)));
  cache->Fetch(absl::MakeSpan(pointers).first(kMaxBatchTransfers));
  EXPECT_EQ(cache->stats().batches, 1u);
  cache->Fetch(absl::MakeSpan(pointers).subspan(kMaxBatchTransfers));
  EXPECT_EQ(cache->stats().batches, 3u) << "86 are one of 64, and the rest";
  for (int i = 0; i < kCount; ++i) {
    const ByteSpan value = lookups[i].value();
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(value.data()), value.size()), Value(i));
  }
}

// The ring goes round several times: what is left are the last ones, each with its own value.
TEST_P(RemoteCacheTest, TheOldestMakeRoom) {
  const auto cache = Open(1 << 20);
  constexpr int kCount = 2000;
  for (int i = 0; i < kCount; ++i) {
    Put(*cache, Key(i), Value(i, 1000 + 37 * (i % 100)));
    if (i % 50 == 0) cache->WaitIdle();
  }
  cache->WaitIdle();
  int found = 0;
  for (int i = 0; i < kCount; ++i) {
    const std::string value = Get(*cache, Key(i));
    if (value.empty()) continue;
    EXPECT_EQ(value, Value(i, 1000 + 37 * (i % 100)));
    ++found;
  }
  EXPECT_EQ(static_cast<uint64_t>(found), cache->stats().entries);
  EXPECT_GT(found, 200) << "of 2.9 KiB each in 1 MiB";
  EXPECT_LT(found, 370);
  EXPECT_NE(Get(*cache, Key(kCount - 1)), "");
}

// What the index has told of is read when the memory has something else there.
TEST_P(RemoteCacheTest, AnOverwrittenPlaceIsAMiss) {
  const auto cache = Open(1 << 20);
  Put(*cache, "key", Value(7));
  cache->WaitIdle();
  const RemoteCache::Place place = *cache->Find("key");
  for (int i = 0; i < 600; ++i) {
    Put(*cache, Key(i), Value(8));
    if (i % 50 == 0) cache->WaitIdle();
  }
  cache->WaitIdle();
  RemoteCache::Lookup stale(place, "key");
  RemoteCache::Lookup of_another_key(*cache->Find(Key(599)), Key(598));
  std::vector<RemoteCache::Lookup*> lookups = {&stale, &of_another_key};
  cache->Fetch(absl::MakeSpan(lookups));
  EXPECT_EQ(stale.value().data(), nullptr);
  EXPECT_EQ(of_another_key.value().data(), nullptr);
  EXPECT_EQ(cache->stats().misses, 2u);
  EXPECT_EQ(Get(*cache, Key(599)), Value(8)) << "and nothing else is lost by it";
}

TEST_P(RemoteCacheTest, WithoutItsServerItIsEmptyAndComesBack) {
  const auto cache = Open(4 << 20);
  Put(*cache, "key", "value");
  cache->WaitIdle();
  const auto place = cache->Find("key");
  server_.reset();
  EXPECT_EQ(Get(*cache, "key"), "");
  EXPECT_FALSE(Put(*cache, "key", "value")) << "there is no memory";
  EXPECT_EQ(Get(*cache, "key"), "");
  Serve(16 << 20);
  while (!Put(*cache, "key", "value again")) cache->WaitIdle();  // it asks once a second
  cache->WaitIdle();
  EXPECT_EQ(Get(*cache, "key"), "value again");
  RemoteCache::Lookup stale(*place, "key");
  RemoteCache::Lookup* one = &stale;
  cache->Fetch(absl::MakeSpan(&one, 1));
  EXPECT_EQ(stale.value().data(), nullptr) << "a place in memory that is gone";
  EXPECT_EQ(cache->stats().memories, 2u);
}

TEST_P(RemoteCacheTest, AServerThatIsNotThereIsNoError) {
  server_.reset();
  const auto cache = Open(4 << 20);
  EXPECT_FALSE(Put(*cache, "key", "value"));
  EXPECT_EQ(Get(*cache, "key"), "");
}

TEST_P(RemoteCacheTest, WhatIsTooLargeIsNotKept) {
  const auto cache = Open(1 << 20);
  EXPECT_FALSE(Put(*cache, "key", std::string(300 << 10, 'x'))) << "more than a quarter";
  EXPECT_FALSE(Put(*cache, "", "value"));
  EXPECT_FALSE(Put(*cache, "key", ""));
  EXPECT_FALSE(cache->Put("key", 10, [](MutableByteSpan) { return false; }));
  cache->WaitIdle();
  EXPECT_EQ(Get(*cache, "key"), "");
}

TEST_P(RemoteCacheTest, AServerLendsWhatItHas) {
  auto one = Open(12 << 20);
  EXPECT_EQ(server_->service().lent_bytes(), 12u << 20);
  const auto other = Open(12 << 20);
  EXPECT_EQ(server_->service().lent_bytes(), 14u << 20) << "what is left to one client";
  const auto third = Open(12 << 20);
  EXPECT_FALSE(Put(*third, "key", "value"));
  one.reset();
  while (!Put(*third, "key", "value")) third->WaitIdle();
  EXPECT_EQ(server_->service().lent_bytes(), 14u << 20);
}

// One client's caches had all of it.
TEST_P(RemoteCacheTest, AClientLeavesAnEighthOfTheMemoryToOthers) {
  const auto one = Open(64 << 20);
  const auto again = Open(64 << 20);
  EXPECT_EQ(server_->service().lent_bytes(), 14u << 20);
  EXPECT_FALSE(Put(*again, "key", "value"));
  // All that come by an address are one client to the server, and a user of a socket is another.
  std::string folder = "/tmp/weft-cache-XXXXXX";  // TempDir() is too long for a socket
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  RemoteCacheOptions options;
  options.address = "unix:" + folder + "/socket";
  options.bytes = 64 << 20;
  const absl::Status listening = server_->Listen(options.address);
  ASSERT_TRUE(listening.ok()) << listening;
  const auto other = *RemoteCache::Open(options);
  other->WaitIdle();
  EXPECT_TRUE(Put(*other, "key", "value"));
  EXPECT_EQ(server_->service().lent_bytes(), 16u << 20);
  const auto more = *RemoteCache::Open(options);
  more->WaitIdle();
  EXPECT_FALSE(Put(*more, "key", "value"));
  std::filesystem::remove_all(folder);
}

// A loan of little more than half a huge page takes a whole one.
TEST_P(RemoteCacheTest, ALoanCountsWithThePagesThatItTakes) {
  const auto one = Open((1 << 20) + 4096);
  EXPECT_EQ(server_->service().lent_bytes(), 2u << 20);
  const auto other = Open(13 << 20);
  EXPECT_EQ(server_->service().lent_bytes(), 14u << 20) << "12 MiB: 13 would take 14";
}

INSTANTIATE_TEST_SUITE_P(Paths, RemoteCacheTest, testing::Values("shm", "tcp"));

}  // namespace
}  // namespace weft::embed
