// What kv.proto promises, call by call, without a network in between.
#include "examples/kv/kv_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/strings.h"

namespace kv {
namespace {

using ::testing::ElementsAre;

// The handlers here look at nothing of their context.
class NoContext : public weft::ServerContext {};

class KvServiceTest : public testing::Test {
 protected:
  absl::Status Put(const std::string& key, const std::string& value,
                   PutRequest::Mode mode = PutRequest::REPLACE) {
    PutRequest request;
    request.set_key(key);
    request.set_mode(mode);
    request.add_fields()->set_value(value);
    put_reply_.Clear();
    return service_.Put(context_, request, &put_reply_);
  }
  absl::Status Get(const std::string& key) {
    GetRequest request;
    request.set_key(key);
    get_reply_.Clear();
    return service_.Get(context_, request, &get_reply_);
  }
  bool Delete(const std::string& key) {
    DeleteRequest request;
    request.set_key(key);
    DeleteReply reply;
    EXPECT_TRUE(service_.Delete(context_, request, &reply).ok());
    return reply.existed();
  }
  ScanReply Scan(const std::string& start, uint32_t limit) {
    ScanRequest request;
    request.set_start(start);
    request.set_limit(limit);
    ScanReply reply;
    EXPECT_TRUE(service_.Scan(context_, request, &reply).ok());
    return reply;
  }
  static std::vector<std::string> KeysOf(const ScanReply& reply) {
    std::vector<std::string> keys;
    for (const ScanReply::Record& record : reply.records()) keys.push_back(record.key());
    return keys;
  }

  Store store_;
  KvService service_{&store_};
  NoContext context_;
  PutReply put_reply_;
  GetReply get_reply_;
};

TEST_F(KvServiceTest, PutThenGet) {
  ASSERT_TRUE(Put("key", "value").ok());
  EXPECT_TRUE(put_reply_.created());
  ASSERT_TRUE(Get("key").ok());
  ASSERT_EQ(get_reply_.fields_size(), 1);
  EXPECT_EQ(get_reply_.fields(0).name(), "");
  EXPECT_EQ(get_reply_.fields(0).value(), "value");

  ASSERT_TRUE(Put("key", "another").ok());
  EXPECT_FALSE(put_reply_.created());
}

TEST_F(KvServiceTest, UpdateNeedsARecordReplaceDoesNot) {
  EXPECT_TRUE(absl::IsNotFound(Put("key", "value", PutRequest::UPDATE)));
  ASSERT_TRUE(Put("key", "value").ok());
  ASSERT_TRUE(Put("key", "updated", PutRequest::UPDATE).ok());
  EXPECT_FALSE(put_reply_.created());
  ASSERT_TRUE(Get("key").ok());
  EXPECT_EQ(get_reply_.fields(0).value(), "updated");
}

TEST_F(KvServiceTest, AModeFromTheFutureIsRefused) {
  EXPECT_TRUE(absl::IsInvalidArgument(Put("key", "value", static_cast<PutRequest::Mode>(7))));
  EXPECT_EQ(store_.size(), 0u);
}

TEST_F(KvServiceTest, GetOfNothingIsNotFoundWhateverTheKey) {
  for (const std::string& key : {std::string("key"), std::string(), std::string(5000, 'k')}) {
    EXPECT_TRUE(absl::IsNotFound(Get(key)));
  }
}

TEST_F(KvServiceTest, DeleteSaysWhetherThereWasARecord) {
  ASSERT_TRUE(Put("key", "value").ok());
  EXPECT_TRUE(Delete("key"));
  EXPECT_FALSE(Delete("key"));
}

TEST_F(KvServiceTest, ScansContinueWhereTheLastOneEnded) {
  for (const char* key : {"a", "b", "c", "d", "e"}) ASSERT_TRUE(Put(key, "").ok());
  const ScanReply first = Scan("", 2);
  EXPECT_THAT(KeysOf(first), ElementsAre("a", "b"));
  EXPECT_TRUE(first.more());
  const ScanReply rest = Scan(std::string("b\0", 2), 3);
  EXPECT_THAT(KeysOf(rest), ElementsAre("c", "d", "e"));
  EXPECT_FALSE(rest.more());
  EXPECT_EQ(Scan("f", 1).records_size(), 0);
}

TEST_F(KvServiceTest, AScanReplyIsBoundedInRecords) {
  for (uint32_t i = 0; i <= kMaxScanRecords; ++i) {
    ASSERT_TRUE(Put(weft::StrCat(100'000 + i), "").ok());
  }
  for (const uint32_t limit : {uint32_t{0}, kMaxScanRecords, kMaxScanRecords + 1}) {
    const ScanReply reply = Scan("", limit);
    EXPECT_EQ(reply.records_size(), static_cast<int>(kMaxScanRecords));
    EXPECT_TRUE(reply.more());
  }
}

TEST_F(KvServiceTest, AScanReplyIsBoundedInBytesButNeverWithoutProgress) {
  const std::string large(kMaxScanBytes / 2 - 100, 'v');
  for (const char* key : {"a", "b", "c"}) ASSERT_TRUE(Put(key, large).ok());
  ASSERT_TRUE(Put("huge", std::string(3 * kMaxScanBytes, 'v')).ok());
  EXPECT_THAT(KeysOf(Scan("", 0)), ElementsAre("a", "b"));
  EXPECT_THAT(KeysOf(Scan("c", 0)), ElementsAre("c"));
  const ScanReply huge = Scan("d", 0);
  EXPECT_THAT(KeysOf(huge), ElementsAre("huge"));
  EXPECT_FALSE(huge.more());
}

}  // namespace
}  // namespace kv
