// Calls that lend memory, and remote memory, on connections of which encryption is required.
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>

#include "rpc/memory/remote_memory.h"
#include "rpc/testing/payload_test.h"

namespace weft::test {
namespace {

SimOptions OnlySealed() {
  SimOptions options;
  options.only_sealed = true;
  return options;
}

class SealedBulkTest : public PayloadTest {
 protected:
  SealedBulkTest() : PayloadTest(OnlySealed()) { Start(); }
};

TEST_F(SealedBulkTest, PayloadsOfEverySizeArriveUnchanged) {
  for (size_t bytes : {0, 1, 4095, 8192, 65'537, 5'000'001}) {
    SCOPED_TRACE(bytes);
    GuardedMemory sent(bytes);
    GuardedMemory received(bytes);
    sent.Fill(static_cast<uint8_t>(bytes));
    BulkCall bulk(*channel_);
    Parcel reply;
    bulk.Send(sent.all(), request_.mutable_data());
    bulk.Receive(received.all());
    const absl::Status status = stub_->Exchange(request_, &reply, {.bulk = &bulk});
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_TRUE(bulk.Received(reply.data()).ok());
    EXPECT_TRUE(received.Holds(static_cast<uint8_t>(bytes)));
    EXPECT_EQ(bulk.state(), BulkCall::State::kReclaimed);
    EXPECT_TRUE(sent.CanariesLive() && received.CanariesLive());
  }
}

// An open connection that offers no leases was taken for one that is about to end: whoever opened
// remote memory waited for the next one until his deadline.
TEST_F(SealedBulkTest, RemoteMemoryIsRefusedAtOnceAndSaysWhatToDo) {
  alignas(64) std::array<std::byte, 4096> memory = {};
  const std::unique_ptr<ExportedMemory> exported = *server_->Export(memory, {});
  const auto opened = RemoteMemory::Open(*channel_, exported->handle(), {});
  EXPECT_TRUE(absl::IsFailedPrecondition(opened.status())) << opened.status();
  EXPECT_NE(std::string(opened.status().message()).find("require_encryption"), std::string::npos)
      << opened.status();
}

}  // namespace
}  // namespace weft::test
