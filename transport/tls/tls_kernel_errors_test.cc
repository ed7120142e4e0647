// What the kernel's TLS may fail with, on any kernel. The streams here do not use this one's TLS:
// every socket takes their keys, and LimitedSends takes what they send, in plain.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "core/bytes.h"
#include "core/strings.h"
#include "transport/tcp/testing/limited_sends.h"
#include "transport/tls/kernel_tls.h"
#include "transport/tls/tls_kernel_stream.h"

namespace weft {
namespace {

// --- what is offered -----------------------------------------------------------------------------

// A process that opens no more files, while this lives.
class NoDescriptors {
 public:
  NoDescriptors() {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &usual_), 0);
    const rlimit none = {0, usual_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  }
  ~NoDescriptors() { EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &usual_), 0); }

 private:
  rlimit usual_ = {};
};

// The first to ask.
TEST(KernelTlsTest, AnAnswerForWantOfDescriptorsIsNotKeptAndAnotherOneIs) {
  {
    const NoDescriptors here;
    const absl::Status without = AskKernelForTls();
    EXPECT_EQ(without.code(), absl::StatusCode::kUnavailable) << without;
    EXPECT_NE(without.ToString().find("127.0.0.1"), std::string::npos) << without;
  }
  const absl::Status offer = AskKernelForTls();
  EXPECT_TRUE(offer.ok() || absl::IsUnimplemented(offer)) << offer;
  const NoDescriptors here;
  EXPECT_EQ(AskKernelForTls(), offer) << "no socket is needed any more";
}

// --- streams -------------------------------------------------------------------------------------

constexpr uint16_t kAes256 = 0x1302;
constexpr int kNoSocket = -1;  // LimitedSends keeps what it gets

// Of a test, while it runs. Null: this kernel is asked.
struct TakenKeys {
  int count = 0;
  int error = 0;  // not 0: no further key is taken, and this is why
};
TakenKeys* keys_now = nullptr;

class TlsKernelErrorsTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kRecordsPerKey = 3;

  TlsKernelErrorsTest() {
    keys_now = &keys_;
    TlsTrafficSecrets secrets;
    secrets.Note(StrCat("CLIENT_TRAFFIC_SECRET_0 0 ", std::string(96, 'c')));
    secrets.Note(StrCat("SERVER_TRAFFIC_SECRET_0 0 ", std::string(96, '5')));
    auto records = TlsRecords::Create(kAes256, TlsRole::kClient, secrets, kRecordsPerKey);
    stream_ = *TlsKernelStream::Begin(kNoSocket, &scratch_, &records);
    EXPECT_EQ(keys_.count, 2);
  }
  ~TlsKernelErrorsTest() override { keys_now = nullptr; }

  ssize_t Write(std::string_view text) {
    const iovec piece{const_cast<char*>(text.data()), text.size()};
    return stream_->Write(&piece, 1);
  }
  // All records but the last, which is the key's update.
  void UseKeyUp() {
    for (uint64_t i = 1; i < kRecordsPerKey; ++i) ASSERT_EQ(Write("text"), 4);
    sends_.taken.clear();
  }
  void ExpectFailed(absl::StatusCode code, const std::string& words) {
    EXPECT_EQ(stream_->error().code(), code) << stream_->error();
    EXPECT_NE(stream_->error().ToString().find(words), std::string::npos) << stream_->error();
    EXPECT_EQ(stream_->unsent(), 0u);
    sends_.error = 0;
    EXPECT_EQ(Write("text"), -1);
    EXPECT_EQ(errno, EPROTO);
    EXPECT_EQ(sends_.taken, "");
  }
  static std::string Update() {
    return std::string(AsStringView(ByteSpan(TlsRecords::KeyUpdateMessage(false))));
  }

  TakenKeys keys_;
  LimitedSends sends_;
  TlsScratch scratch_;
  std::unique_ptr<TlsKernelStream> stream_;
};

TEST_F(TlsKernelErrorsTest, AnUpdateIsTheLastRecordOfItsKey) {
  UseKeyUp();
  EXPECT_EQ(Write("next"), 4);
  EXPECT_EQ(sends_.taken, Update() + "next");
  EXPECT_EQ(keys_.count, 3);
}

// Once it returned 0 there, which its caller took for progress, without end.
TEST_F(TlsKernelErrorsTest, ABrokenSocketTakesEverythingAtTheEndOfAKeyToo) {
  UseKeyUp();
  sends_.error = EPIPE;
  EXPECT_EQ(Write("text"), 4);
  EXPECT_EQ(Write(std::string(100'000, 'x')),
            static_cast<ssize_t>(TlsKernelStream::kMaxWriteBytes));
  EXPECT_EQ(keys_.count, 2) << "the peer has not been told of another";
  EXPECT_EQ(stream_->unsent(), 0u);
  EXPECT_FALSE(stream_->failed()) << "what is read says why";
}

// There would be a gap before it.
TEST_F(TlsKernelErrorsTest, NothingFollowsWhatABrokenSocketHasTaken) {
  sends_.error = ECONNRESET;
  EXPECT_EQ(Write("lost"), 4);
  sends_.error = 0;
  EXPECT_EQ(Write("text"), 4);
  UseKeyUp();
  EXPECT_EQ(Write("text"), 4);
  stream_->End();
  EXPECT_EQ(stream_->unsent(), 0u);
  EXPECT_EQ(sends_.taken, "");
}

TEST_F(TlsKernelErrorsTest, WithoutMemoryNoRecordIsLeftOut) {
  sends_.error = ENOMEM;
  EXPECT_EQ(Write("text"), -1);
  EXPECT_EQ(errno, EPROTO);
  ExpectFailed(absl::StatusCode::kResourceExhausted, "no memory");
}

TEST_F(TlsKernelErrorsTest, WithoutMemoryNoUpdateIsLeftOut) {
  UseKeyUp();
  sends_.error = ENOBUFS;
  EXPECT_EQ(Write("text"), -1);
  EXPECT_EQ(errno, EPROTO);
  ExpectFailed(absl::StatusCode::kResourceExhausted, "no memory");
}

TEST_F(TlsKernelErrorsTest, WithoutMemoryTheEndIsNotLeftOut) {
  sends_.error = ENOMEM;
  stream_->End();
  ExpectFailed(absl::StatusCode::kResourceExhausted, "no memory");
}

TEST_F(TlsKernelErrorsTest, AFullSocketHasTheUpdateAndTheEndLater) {
  UseKeyUp();
  sends_.left = 0;
  EXPECT_EQ(Write("text"), -1);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_EQ(stream_->unsent(), TlsRecords::kKeyUpdateBytes);
  sends_.left = LimitedSends::kAll;
  stream_->Flush();
  EXPECT_EQ(sends_.taken, Update());
  EXPECT_EQ(stream_->unsent(), 0u);
  sends_.left = 0;
  stream_->End();
  EXPECT_EQ(stream_->unsent(), TlsRecords::kAlertBytes);
  sends_.left = LimitedSends::kAll;
  stream_->Flush();
  EXPECT_EQ(sends_.taken, Update() + std::string("\1\0", 2));
  EXPECT_EQ(stream_->unsent(), 0u);
}

// As cards may, which make the records for it.
TEST_F(TlsKernelErrorsTest, AKernelThatTakesNoNextKeyEndsTheStream) {
  UseKeyUp();
  keys_.error = EOPNOTSUPP;
  EXPECT_EQ(Write("text"), -1);
  EXPECT_EQ(errno, EPROTO);
  EXPECT_EQ(sends_.taken, Update());
  sends_.taken.clear();
  ExpectFailed(absl::StatusCode::kInternal, "does not take the next key");
}

}  // namespace
}  // namespace weft

extern "C" int setsockopt(int fd, int level, int option, const void* value,
                          socklen_t bytes) noexcept {
  weft::TakenKeys* const keys = weft::keys_now;
  if (keys == nullptr || (level != SOL_TLS && (level != IPPROTO_TCP || option != TCP_ULP))) {
    return static_cast<int>(syscall(SYS_setsockopt, fd, level, option, value, bytes));
  }
  if (level == SOL_TLS && keys->error != 0) {
    errno = keys->error;
    return -1;
  }
  if (level == SOL_TLS) ++keys->count;
  return 0;
}
