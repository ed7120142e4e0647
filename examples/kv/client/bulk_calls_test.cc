// Large values beside their messages, on the simulated network.
#include "examples/kv/client/bulk_calls.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "examples/kv/bulk_size.h"
#include "examples/kv/kv_service.h"
#include "weft/server.h"
#include "weft/sim.h"

namespace kv::client {
namespace {

class BulkCallsTest : public testing::Test {
 protected:
  BulkCallsTest() {
    service_.set_server(server_.get());
    EXPECT_TRUE(server_->AddService(&service_).ok());
    EXPECT_TRUE(server_->Listen("sim:db").ok());
    channel_ = *weft::Channel::Open(network_.Node("client"), "sim:db");
    calls_ = std::make_unique<BulkCalls>(*channel_, weft::CallOptions(), 1);
  }

  static std::string Text(size_t bytes) {
    std::string text(bytes, 'x');
    for (size_t i = 0; i < bytes; i += 97) text[i] = static_cast<char>('a' + i % 26);
    return text;
  }
  template <class Start>
  absl::Status Wait(Start start) {
    absl::Status result;
    bool ended = false;
    start([&](absl::Status status) {
      result = std::move(status);
      ended = true;
    });
    EXPECT_TRUE(network_.RunUntil([&] { return ended; }, weft::kNsPerSec));
    return result;
  }
  absl::Status Put(const PutRequest& request) {
    PutReply reply;
    return Wait([&](auto done) { calls_->Put(0, request, &reply, std::move(done)); });
  }
  absl::Status Get(const std::string& key) {
    GetRequest request;
    request.set_key(key);
    return Wait([&](auto done) { calls_->Get(0, request, &reply_, std::move(done)); });
  }

  Store store_;
  KvService service_{&store_};
  weft::SimNetwork network_{/*seed=*/1};
  std::unique_ptr<weft::Server> server_ = *weft::Server::Create(network_.Node("db"));
  std::unique_ptr<weft::Channel> channel_;
  std::unique_ptr<BulkCalls> calls_;
  GetReply reply_;
};

PutRequest Request(const std::string& key, const std::vector<std::string>& values) {
  PutRequest request;
  request.set_key(key);
  for (size_t i = 0; i < values.size(); ++i) {
    Field* field = request.add_fields();
    field->set_name(std::string(1, static_cast<char>('a' + i)));
    field->set_value(values[i]);
  }
  return request;
}

TEST_F(BulkCallsTest, LargeAndSmallValuesOfARecordComeBackAsTheyWere) {
  const std::vector<std::string> values = {Text(1'000'000), "small", Text(kMinBulkBytes), "",
                                           Text(kMinBulkBytes - 1)};
  ASSERT_TRUE(Put(Request("key", values)).ok());
  const Record* stored = store_.Get("key");
  ASSERT_NE(stored, nullptr);
  size_t i = 0;
  for (const FieldView& field : *stored) EXPECT_EQ(field.value, values[i++]);
  calls_->ExpectValues(2, 1'000'000);
  ASSERT_TRUE(Get("key").ok());
  ASSERT_EQ(reply_.fields_size(), 5);
  for (int field = 0; field < 5; ++field) {
    EXPECT_EQ(reply_.fields(field).value(), values[static_cast<size_t>(field)]);
    EXPECT_FALSE(reply_.fields(field).has_bulk());
  }
}

// What shows that they do not pass through the messages: a server that takes none so large.
TEST_F(BulkCallsTest, MoreThanAMessageMayHoldTravelsBesideIt) {
  weft::ServerOptions options;
  options.max_request_bytes = 10'000;
  const auto narrow = *weft::Server::Create(network_.Node("narrow"), options);
  KvService service(&store_);
  service.set_server(narrow.get());
  ASSERT_TRUE(narrow->AddService(&service).ok());
  ASSERT_TRUE(narrow->Listen("sim:narrow").ok());
  weft::ChannelOptions channel_options;
  channel_options.max_reply_bytes = 10'000;
  const auto channel = *weft::Channel::Open(network_.Node("client"), "sim:narrow", channel_options);
  calls_ = std::make_unique<BulkCalls>(*channel, weft::CallOptions(), 1);
  const std::string large = Text(500'000);
  ASSERT_TRUE(Put(Request("key", {large})).ok());
  calls_->ExpectValues(1, 500'000);
  ASSERT_TRUE(Get("key").ok());
  EXPECT_EQ(reply_.fields(0).value(), large);
  calls_.reset();
}

TEST_F(BulkCallsTest, AValueThatIsLargerThanExpectedComesInTheMessage) {
  const std::string large = Text(100'000);
  ASSERT_TRUE(Put(Request("key", {large})).ok());
  calls_->ExpectValues(1, 50'000);
  ASSERT_TRUE(Get("key").ok());
  EXPECT_EQ(reply_.fields(0).value(), large);
  calls_->ExpectValues(0, 0);
  ASSERT_TRUE(Get("key").ok());
  EXPECT_EQ(reply_.fields(0).value(), large);
}

TEST_F(BulkCallsTest, MoreLargeValuesThanWindowsAreNoMatter) {
  const std::vector<std::string> values(weft::kMaxWindows + 3, Text(5'000));
  ASSERT_TRUE(Put(Request("key", values)).ok());
  calls_->ExpectValues(weft::kMaxWindows, 5'000);
  ASSERT_TRUE(Get("key").ok());
  ASSERT_EQ(reply_.fields_size(), static_cast<int>(values.size()));
  for (const Field& field : reply_.fields()) EXPECT_EQ(field.value(), values[0]);
}

TEST_F(BulkCallsTest, ARequestThatSpeaksOfTooMuchIsRefusedBeforeMemoryIsTaken) {
  PutRequest request;
  request.set_key("key");
  request.add_fields()->mutable_bulk()->set_length(uint64_t{1} << 60);
  PutReply reply;
  EXPECT_TRUE(absl::IsInvalidArgument(Kv::Stub(*channel_).Put(request, &reply)));
  request.mutable_fields(0)->mutable_bulk()->set_length(10'000);  // and lends nothing
  request.mutable_fields(0)->mutable_bulk()->set_window(1);
  EXPECT_TRUE(absl::IsInvalidArgument(Kv::Stub(*channel_).Put(request, &reply)));
  EXPECT_EQ(store_.size(), 0u);
}

}  // namespace
}  // namespace kv::client
