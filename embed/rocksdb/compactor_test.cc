// What a worker does with requests that no database sends, and whose folders it removes.
#include "embed/rocksdb/compactor.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "embed/rocksdb/compaction_names.h"
#include "rocksdb/env.h"
#include "weft/channel.h"
#include "weft/server.h"

namespace weft::embed {
namespace {

class CompactorTest : public testing::Test {
 protected:
  CompactorTest() : env_(rocksdb::NewMemEnv(rocksdb::Env::Default())) {
    rocksdb::CompactionServiceOptionsOverride override;
    override.env = env_.get();
    compactor_ = std::make_unique<Compactor>(override, /*jobs=*/1);
    ServerOptions options;
    Compactor::LimitServer(&options);
    server_ = *Server::Create(options);
    EXPECT_TRUE(server_->AddService(compactor_.get()).ok());
    EXPECT_TRUE(server_->Listen("127.0.0.1:0").ok());
    channel_ = *Channel::Open(server_->address());
  }
  ~CompactorTest() override {
    channel_.reset();
    server_.reset();
  }

  absl::Status Compact(const std::string& database, const std::string& session, uint64_t job,
                       const std::vector<uint64_t>& ended = {}) {
    wire::CompactRequest request;
    request.set_database(database);
    request.set_session(session);
    request.set_job(job);
    request.set_input("no words of RocksDB's");
    for (const uint64_t each : ended) request.add_ended_jobs(each);
    wire::CompactReply reply;
    return wire::Compactor::Stub(*channel_).Compact(request, &reply);
  }

  void Make(const std::string& folder) {
    EXPECT_TRUE(env_->CreateDirIfMissing(folder).ok());
    for (const char* file : {"/LOG", "/000007.sst"}) {
      EXPECT_TRUE(rocksdb::WriteStringToFile(env_.get(), "x", folder + file).ok());
    }
  }
  bool IsThere(const std::string& path) { return env_->FileExists(path).ok(); }

  const std::unique_ptr<rocksdb::Env> env_;
  std::unique_ptr<Compactor> compactor_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<Channel> channel_;
};

TEST_F(CompactorTest, WordsThatMakeNoSenseAreRefused) {
  EXPECT_TRUE(absl::IsInvalidArgument(Compact("", "S1", 1)));
  EXPECT_TRUE(absl::IsInvalidArgument(Compact("/db/../other", "S1", 1)));
  for (const std::string session : {"", "../S1", "S/1", "S-1", "S 1"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(Compact("/db", session, 1))) << session;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(Compact("/db", std::string(65, 'S'), 1)));
  EXPECT_TRUE(absl::IsInternal(Compact("/db", "S1", 1))) << "RocksDB does not understand it";
}

TEST_F(CompactorTest, FoldersOfJobsThatAreOverAreRemovedAndNothingElse) {
  EXPECT_TRUE(env_->CreateDirIfMissing("/db").ok());
  for (const char* name : {"compaction-S1-1", "compaction-S1-2", "compaction-S0-7", "compaction-",
                           "compaction-S0-x", "archive"}) {
    Make(std::string("/db/") + name);
  }
  Compact("/db", "S1", 3, {1}).IgnoreError();
  EXPECT_FALSE(IsThere("/db/compaction-S1-1/LOG"));
  EXPECT_TRUE(IsThere("/db/compaction-S1-1/000007.sst")) << "the database may be about to take it";
  EXPECT_TRUE(IsThere("/db/compaction-S1-2/LOG")) << "it may not be over";
  EXPECT_FALSE(IsThere("/db/compaction-S0-7/LOG")) << "another session's";
  EXPECT_FALSE(IsThere("/db/compaction-S0-7/000007.sst"));
  EXPECT_TRUE(IsThere("/db/compaction-/LOG"));
  EXPECT_TRUE(IsThere("/db/compaction-S0-x/LOG"));
  EXPECT_TRUE(IsThere("/db/archive/LOG"));
}

TEST_F(CompactorTest, AWorkerThatIsAboutToEndTakesNoJobs) {
  compactor_->EndJobs();
  EXPECT_TRUE(absl::IsUnavailable(Compact("/db", "S1", 1)));
}

}  // namespace
}  // namespace weft::embed
