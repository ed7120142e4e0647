// A small call takes nothing from the heap and no lock, at neither end, with bytes as with
// messages.
#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <string>

#include "c/testing/loopback.h"
#include "core/testing/hot_path_meter.h"
#include "weft/c.h"
#include "weft/c_server.h"

namespace weft::c_test {
namespace {

using test::HotPathCounts;
using test::HotPathMeter;

void Echo(void*, weft_server_call* call) {
  weft_server_call_finish(call, nullptr, weft_server_call_request(call));
}

void EchoInPlace(void*, weft_server_call* call) {
  const weft_bytes request = weft_server_call_request(call);
  void* const room = weft_server_call_reserve(call, request.size);
  std::memcpy(room, request.data, request.size);
  weft_server_call_finish(call, nullptr, {room, request.size});
}

// Client and server on one engine, which the thread that calls drives.
class AllocationTest : public testing::Test {
 protected:
  AllocationTest() {
    auto options = Defaults<weft_engine_options>();
    options.drive = WEFT_CALLER;
    EXPECT_OK(weft_engine_new(&options, &engine_));
    EXPECT_OK(weft_server_new(engine_, nullptr, &server_));
    weft_service* const service = weft_service_new("weft.c_test.Shelf");
    EXPECT_OK(weft_service_add_method(service, "Echo", WEFT_UNARY, WEFT_ONCE, Echo, nullptr));
    EXPECT_OK(weft_service_add_method(service, "EchoInPlace", WEFT_UNARY, WEFT_ONCE, EchoInPlace,
                                      nullptr));
    EXPECT_OK(weft_server_add_service(server_, service));
    EXPECT_OK(weft_server_listen(server_, "127.0.0.1:0"));
    client_.emplace(weft_server_address(server_), "shm", engine_);
    reply_ = weft_message_new();
  }
  ~AllocationTest() override {
    weft_message_free(reply_);
    client_.reset();
    EXPECT_OK(weft_server_free(server_));
    EXPECT_OK(weft_engine_free(engine_));
  }

  // What 100 calls take, after some to warm up.
  HotPathCounts CountCalls(const char* method_name) {
    const weft_method method = client_->Method(method_name);
    const weft_call_options patient = Patient();
    const std::string request(64, 'x');
    const auto call = [&] {
      for (int i = 0; i < 100; ++i) {
        ASSERT_EQ(weft_call(client_->channel(), method, Bytes(request), &patient, reply_), nullptr);
      }
    };
    call();
    const HotPathMeter meter;
    call();
    const HotPathCounts counts = meter.counts();
    EXPECT_EQ(TextOf(reply_), request);
    return counts;
  }

  weft_engine* engine_ = nullptr;
  weft_server* server_ = nullptr;
  std::optional<CClient> client_;
  weft_message* reply_ = nullptr;
};

TEST_F(AllocationTest, ABlockingCallAllocatesNothing) {
  EXPECT_EQ(CountCalls("Echo"), HotPathCounts());
}

TEST_F(AllocationTest, AReplyThatIsMadeInPlaceAllocatesNothing) {
  EXPECT_EQ(CountCalls("EchoInPlace"), HotPathCounts());
}

}  // namespace
}  // namespace weft::c_test
