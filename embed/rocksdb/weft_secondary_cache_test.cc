#include "embed/rocksdb/weft_secondary_cache.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "embed/rocksdb/cache_service.h"
#include "embed/rocksdb/remote_cache.h"
#include "rocksdb/cache.h"
#include "weft/engine.h"
#include "weft/path.h"
#include "weft/remote_memory.h"
#include "weft/server.h"

namespace weft::embed {
namespace {

// What RocksDB tells of its blocks; here a block is a string.
size_t SizeOf(void* block) { return static_cast<std::string*>(block)->size(); }
rocksdb::Status Save(void* block, size_t offset, size_t bytes, void* into) {
  std::memcpy(into, static_cast<std::string*>(block)->data() + offset, bytes);
  return rocksdb::Status::OK();
}
void Delete(const rocksdb::Slice&, void* block) { delete static_cast<std::string*>(block); }
rocksdb::Status Create(const void* bytes, size_t size, void** block, size_t* charge) {
  *block = new std::string(static_cast<const char*>(bytes), size);
  *charge = size;
  return rocksdb::Status::OK();
}

class WeftSecondaryCacheTest : public testing::TestWithParam<const char*> {
 protected:
  using Handle = rocksdb::SecondaryCacheResultHandle;

  WeftSecondaryCacheTest()
      : engine_(*OpenNetworkEngine({})), service_(*engine_, /*bytes=*/16 << 20) {
    server_ = *Server::Create(*engine_);
    EXPECT_TRUE(server_->AddService(&service_).ok());
    const absl::Status listening = server_->Listen("127.0.0.1:0");
    EXPECT_TRUE(listening.ok()) << listening;
    RemoteCacheOptions options;
    options.address = server_->address();
    options.channel.link.paths = *ParsePathList(GetParam());
    options.bytes = 4 << 20;
    auto remote = *RemoteCache::Open(options);
    remote->WaitIdle();
    remote_ = remote.get();
    cache_ = MakeWeftSecondaryCache(std::move(remote));
  }
  ~WeftSecondaryCacheTest() override { cache_.reset(); }  // before its server

  static std::string Key(size_t i) { return "key " + std::to_string(i); }
  static std::string Block(size_t i) { return std::string(4000, static_cast<char>('a' + i % 26)); }

  void InsertBlocks(size_t count) {
    for (size_t i = 0; i < count; ++i) {
      std::string block = Block(i);
      ASSERT_TRUE(cache_->Insert(Key(i), &block, &helper_).ok());
    }
    remote_->WaitIdle();
  }
  std::unique_ptr<Handle> Lookup(size_t i, bool wait) {
    bool is_kept = false;
    return cache_->Lookup(Key(i), create_, wait, /*advise_erase=*/false, is_kept);
  }
  // "" for a miss.
  static std::string Take(Handle& handle) {
    const std::unique_ptr<std::string> block(static_cast<std::string*>(handle.Value()));
    return block == nullptr ? "" : *block;
  }

  const rocksdb::Cache::CacheItemHelper helper_{SizeOf, Save, Delete};
  const rocksdb::Cache::CreateCallback create_ = Create;
  const std::unique_ptr<Engine> engine_;
  CacheService service_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<rocksdb::SecondaryCache> cache_;
  RemoteCache* remote_ = nullptr;  // cache_'s
};

// RocksDB's MultiGet() looks up all its blocks without waiting, and then waits for all at once.
TEST_P(WeftSecondaryCacheTest, WaitingForManyIsOneBatchForEach64) {
  constexpr size_t kCount = 2 * kMaxBatchTransfers + 1;
  InsertBlocks(kCount);
  std::vector<std::unique_ptr<Handle>> handles;
  std::vector<Handle*> pointers;
  for (size_t i = 0; i < kCount; ++i) {
    handles.push_back(Lookup(i, /*wait=*/false));
    ASSERT_NE(handles.back(), nullptr) << i;
    EXPECT_FALSE(handles.back()->IsReady()) << i;
    pointers.push_back(handles.back().get());
  }
  EXPECT_EQ(remote_->stats().batches, 0u) << "nothing is read before somebody waits";
  const uint64_t requests = server_->stats().requests;
  cache_->WaitAll({pointers.begin(), pointers.begin() + kMaxBatchTransfers});
  EXPECT_EQ(remote_->stats().batches, 1u);
  cache_->WaitAll(pointers);
  EXPECT_EQ(remote_->stats().batches, 3u) << "those that are ready are not read again";
  EXPECT_EQ(server_->stats().requests, requests) << "no code of the server's ran for it";
  EXPECT_EQ(remote_->stats().hits, kCount);
  for (size_t i = 0; i < kCount; ++i) {
    EXPECT_TRUE(handles[i]->IsReady()) << i;
    EXPECT_EQ(handles[i]->Size(), Block(i).size()) << i;
    EXPECT_EQ(Take(*handles[i]), Block(i)) << i;
  }
}

TEST_P(WeftSecondaryCacheTest, ALookupThatWaitsHasItsBlock) {
  InsertBlocks(1);
  const std::unique_ptr<Handle> handle = Lookup(0, /*wait=*/true);
  ASSERT_NE(handle, nullptr);
  EXPECT_TRUE(handle->IsReady());
  EXPECT_EQ(Take(*handle), Block(0));
  EXPECT_EQ(Lookup(1, /*wait=*/true), nullptr);
}

INSTANTIATE_TEST_SUITE_P(Paths, WeftSecondaryCacheTest, testing::Values("shm", "tcp"));

}  // namespace
}  // namespace weft::embed
