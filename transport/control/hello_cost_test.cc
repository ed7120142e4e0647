// What a stranger's hello costs before anybody knows that it is a right one.

#include <string>

#include "core/testing/hot_path_meter.h"
#include "gtest/gtest.h"
#include "transport/control/control_frame.h"
#include "transport/control/hello.h"

namespace weft {
namespace {

// 150,000 offers of no bytes are 300 KiB, and were 15 MB before they were counted.
TEST(Hello, CostsLittleHoweverItIsMadeUp) {
  const std::string offer("\x3a\0", 2);          // field 7, nothing in it
  const std::string feature("\x1a\0", 2);        // field 3
  const std::string unknown("\xf8\x07\x01", 3);  // field 127
  for (const std::string& field : {offer, feature, unknown}) {
    std::string body;
    while (body.size() + field.size() <= kMaxHelloBodyBytes) body += field;
    const test::HotPathMeter meter;
    const absl::Status status = DecodeClientHello(AsBytes(body)).status();
    EXPECT_LT(meter.counts().allocations, 100u);
    EXPECT_NE(std::string(status.message()).find("more than 168 fields"), std::string::npos)
        << status;
  }
}

}  // namespace
}  // namespace weft
