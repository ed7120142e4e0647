// What OpenSSL allocates for a handshake with a stranger.

#include <gtest/gtest.h>
#include <malloc.h>
#include <openssl/crypto.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "transport/descriptor.h"
#include "transport/tls/testing/certificates.h"
#include "transport/tls/tls_stream.h"

namespace weft {
namespace {

// What OpenSSL has allocated, in bytes. One thread.
size_t allocated = 0;

void* Allocate(size_t bytes, const char*, int) {
  void* const made = std::malloc(bytes);
  allocated += malloc_usable_size(made);
  return made;
}
void Free(void* memory, const char*, int) {
  allocated -= malloc_usable_size(memory);
  std::free(memory);
}
void* Reallocate(void* memory, size_t bytes, const char*, int) {
  allocated -= malloc_usable_size(memory);
  void* const made = std::realloc(memory, bytes);
  allocated += malloc_usable_size(made);
  return made;
}

// Before OpenSSL allocates anything.
const bool kIsCounted = CRYPTO_set_mem_functions(Allocate, Reallocate, Free) == 1;

// docs/security.md: beside kMaxHandshakeBytes, which the stream may hold by itself.
constexpr size_t kMaxHeldBytes = size_t{256} << 10;

class TlsMemoryTest : public ::testing::Test {
 protected:
  TlsMemoryTest() {
    const TestAuthority authority;
    const CertificateAndKey made = authority.Sign({});
    SecurityOptions options;
    options.certificate_pem = made.certificate_pem;
    options.key_pem = made.key_pem;
    options.roots_pem = authority.certificate_pem();
    credentials_ = *TlsCredentials::Create(TlsRole::kServer, options);
    EXPECT_TRUE(Shake("").ok());  // what OpenSSL makes once
  }

  // A server's handshake with who says `bytes`, and nothing else. Sets held_, and how it ends.
  absl::Status Shake(const std::string& bytes) {
    int fds[2] = {-1, -1};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    const Descriptor ours(fds[0]);
    const Descriptor theirs(fds[1]);
    const size_t before = allocated;
    TlsStream stream(ours.get());
    EXPECT_TRUE(stream.Start(credentials_.get(), &scratch_, 0).ok());
    held_ = 0;
    for (size_t at = 0; at < bytes.size() && stream.error().ok();) {
      const ssize_t count = ::send(theirs.get(), bytes.data() + at,
                                   std::min<size_t>(bytes.size() - at, 9000), MSG_NOSIGNAL);
      if (count > 0) at += static_cast<size_t>(count);
      stream.Flush();
      held_ = std::max(held_, allocated - before);
    }
    return stream.error();
  }

  // A ClientHello that announces so many bytes, and of it so many whole records of 16 KiB.
  static std::string HelloOf(uint32_t announced, int records) {
    std::string bytes;
    for (int i = 0; i < records; ++i) {
      std::string record(16384, 'a');
      if (i == 0) {
        record[0] = '\1';
        for (int j = 0; j < 3; ++j) {
          record[static_cast<size_t>(j) + 1] = static_cast<char>(announced >> (16 - 8 * j));
        }
      }
      bytes += std::string("\x16\x03\x01\x40\x00", 5) + record;
    }
    return bytes;
  }

  TlsScratch scratch_;
  std::unique_ptr<TlsCredentials> credentials_;
  size_t held_ = 0;
};

// OpenSSL makes room for what a hello announces, up to the longest that it takes.
constexpr uint32_t kLongestHello = 131'396;

TEST_F(TlsMemoryTest, AHelloThatIsAnnouncedAndDoesNotComeHoldsLittle) {
  ASSERT_TRUE(kIsCounted);
  EXPECT_TRUE(Shake(HelloOf(kLongestHello, 1)).ok()) << "it waits for the rest";
  EXPECT_GT(held_, kLongestHello);
  EXPECT_LE(held_, kMaxHeldBytes);
}

// Our limit, below OpenSSL's: that would have taken all of it.
TEST_F(TlsMemoryTest, AHelloWithoutEndIsCutOff) {
  ASSERT_TRUE(kIsCounted);
  const absl::Status met = Shake(HelloOf(kLongestHello, 8));
  EXPECT_EQ(met.code(), absl::StatusCode::kResourceExhausted) << met;
  EXPECT_NE(met.ToString().find("more than 65536 bytes"), std::string::npos) << met;
  EXPECT_LE(held_, kMaxHeldBytes);
}

TEST_F(TlsMemoryTest, NothingOfAHandshakeThatFailsStays) {
  ASSERT_TRUE(kIsCounted);
  const size_t before = allocated;
  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(Shake(HelloOf(kLongestHello, 8)).ok());
    EXPECT_FALSE(Shake(HelloOf(kLongestHello + 1, 1)).ok()) << "too long for OpenSSL";
  }
  EXPECT_LE(allocated, before + 1000);
}

}  // namespace
}  // namespace weft
