#include "transport/tls/tls_credentials.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/log.h"
#include "core/testing/freed_memory.h"
#include "transport/descriptor.h"
#include "transport/tls/testing/certificates.h"
#include "transport/tls/tls_stream.h"

namespace weft {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;

// Replaces the file, as those who renew certificates do.
void WriteFile(const std::string& path, const std::string& text) {
  std::ofstream(path + ".new") << text;
  ASSERT_EQ(::rename((path + ".new").c_str(), path.c_str()), 0);
}

std::string Folder() { return ::testing::TempDir(); }

absl::Status Try(TlsRole role, const SecurityOptions& options) {
  return TlsCredentials::Create(role, options).status();
}

void ExpectError(const absl::Status& status, absl::StatusCode code, const std::string& words) {
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_NE(status.ToString().find(words), std::string::npos) << status;
}

TEST(TlsCredentialsTest, OptionsThatDoNotFitTogetherAreNamed) {
  const TestAuthority authority;
  const CertificateAndKey leaf = authority.Sign({});
  const absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
  SecurityOptions options;
  ExpectError(Try(TlsRole::kServer, options), kInvalid, "a server needs a certificate");
  options.certificate_pem = leaf.certificate_pem;
  ExpectError(Try(TlsRole::kClient, options), kInvalid, "belong together");
  options.key_pem = leaf.key_pem;
  ExpectError(Try(TlsRole::kServer, options), kInvalid, "require_client_certificate");
  options.require_client_certificate = false;
  EXPECT_TRUE(Try(TlsRole::kServer, options).ok());
  options.key_file = "/somewhere";
  ExpectError(Try(TlsRole::kServer, options), kInvalid, "a file and a text");
  options = {};
  options.psk_name = "fleet";
  ExpectError(Try(TlsRole::kServer, options), kInvalid, "belong together");
  options.psk_secret = std::string(31, 's');
  ExpectError(Try(TlsRole::kServer, options), kInvalid, "31 bytes");
  options.psk_secret = std::string(257, 's');
  ExpectError(Try(TlsRole::kServer, options), kInvalid, "257 bytes");
  options.psk_secret = std::string(256, 's');
  EXPECT_TRUE(Try(TlsRole::kServer, options).ok());
  options.roots_pem = authority.certificate_pem();
  ExpectError(Try(TlsRole::kServer, options), kInvalid, "takes the place of certificates");
}

TEST(TlsCredentialsTest, ErrorsNameFileAndReason) {
  const TestAuthority authority;
  const CertificateAndKey leaf = authority.Sign({});
  const std::string path = Folder() + "/broken.pem";
  SecurityOptions options;
  options.key_pem = leaf.key_pem;
  options.roots_pem = authority.certificate_pem();
  options.certificate_file = Folder() + "/nobody.pem";
  ExpectError(Try(TlsRole::kServer, options), absl::StatusCode::kNotFound, "nobody.pem");
  options.certificate_file = path;
  WriteFile(path, "no PEM");
  ExpectError(Try(TlsRole::kServer, options), absl::StatusCode::kInvalidArgument,
              "broken.pem: no start line");
  WriteFile(path, leaf.certificate_pem + leaf.certificate_pem.substr(0, 100));
  ExpectError(Try(TlsRole::kServer, options), absl::StatusCode::kInvalidArgument, "broken.pem");
  WriteFile(path, std::string(TlsCredentials::kMaxPemBytes + 1, 'x'));
  ExpectError(Try(TlsRole::kServer, options), absl::StatusCode::kInvalidArgument, "has more than");
  WriteFile(path, authority.Sign({}).certificate_pem);
  ExpectError(Try(TlsRole::kServer, options), absl::StatusCode::kInvalidArgument,
              "key values mismatch");
  options.certificate_file.clear();
  options.certificate_pem = leaf.certificate_pem;
  EXPECT_TRUE(Try(TlsRole::kServer, options).ok());
  options.roots_pem = "nothing";
  ExpectError(Try(TlsRole::kServer, options), absl::StatusCode::kInvalidArgument, "in memory");
}

// --- what is left of secrets ---------------------------------------------------------------------

TEST(TlsCredentialsTest, OptionsAndCredentialsLeaveNoSecretInTheMemory) {
  const std::string secret = "0123456789 a secret 9876543210 0123456789";
  FreedMemory freed(secret);
  {
    SecurityOptions options;
    options.psk_name = "fleet";
    options.psk_secret = secret;
    const std::optional<SecurityOptions> copy = options;
    SecurityOptions assigned;
    assigned = *copy;
    EXPECT_EQ(assigned, options);
    EXPECT_TRUE(Try(TlsRole::kServer, options).ok());
    EXPECT_TRUE(Try(TlsRole::kClient, *copy).ok());
  }
  EXPECT_EQ(freed.blocks_with_it(), 0u);
}

// What an assignment had replaced was given back as it was.
TEST(TlsCredentialsTest, WhatOptionsHadBeforeAnAssignmentIsNotLeftInTheMemory) {
  const std::string secret = "0123456789 a secret 9876543210 0123456789";
  // Of a text that was moved from the first byte is gone.
  FreedMemory freed(std::string_view(secret).substr(1));
  SecurityOptions options;
  options.psk_secret = secret;
  options.psk_secret = std::string(kMaxPskBytes, 'x');
  options.psk_secret = secret;
  options.key_pem = secret;
  SecurityOptions others;
  others.psk_secret = std::string(kMaxPskBytes, 'y');
  others.key_pem = std::string(4096, 'y');
  options = others;
  EXPECT_EQ(freed.blocks_with_it(), 0u);
  EXPECT_EQ(options, others);
}

TEST(TlsCredentialsTest, NoPrivateKeyIsLeftInTheMemory) {
  const TestAuthority authority;
  const CertificateAndKey leaf = authority.Sign({});
  WriteFile(Folder() + "/left.key", leaf.key_pem);
  // Of its second line, which no other key has.
  const std::string line = leaf.key_pem.substr(leaf.key_pem.find('\n') + 30, 32);
  FreedMemory freed(line);
  {
    SecurityOptions options;
    options.certificate_pem = leaf.certificate_pem;
    options.key_pem = leaf.key_pem;
    options.roots_pem = authority.certificate_pem();
    EXPECT_TRUE(Try(TlsRole::kServer, options).ok());
    options.key_pem.clear();
    options.key_file = Folder() + "/left.key";
    EXPECT_TRUE(Try(TlsRole::kServer, options).ok());
  }
  EXPECT_EQ(freed.blocks_with_it(), 0u);
}

// --- files that change ---------------------------------------------------------------------------

class TlsReloadTest : public ::testing::Test {
 protected:
  TlsReloadTest() {
    Install("first");
    options_.certificate_file = path("own.pem");
    options_.key_file = path("own.key");
    options_.roots_pem = authority_.certificate_pem();
    server_ = *TlsCredentials::Create(TlsRole::kServer, options_);
    const CertificateAndKey leaf = authority_.Sign({});
    SecurityOptions options;
    options.certificate_pem = leaf.certificate_pem;
    options.key_pem = leaf.key_pem;
    options.roots_pem = authority_.certificate_pem();
    client_ = *TlsCredentials::Create(TlsRole::kClient, options);
    SetLogSink([this](const LogRecord& record) { log_.emplace_back(record.text); },
               LogLevel::kWarning);
  }
  ~TlsReloadTest() override { SetLogSink({}); }

  static std::string path(const std::string& name) { return Folder() + "/" + name; }
  void Install(const std::string& name) {
    LeafOptions leaf;
    leaf.common_name = name;
    const CertificateAndKey made = authority_.Sign(leaf);
    WriteFile(path("own.pem"), made.certificate_pem);
    WriteFile(path("own.key"), made.key_pem);
  }

  // Signatures differ in their length by a byte or two. `name` is as long as "first".
  CertificateAndKey SignAsLongAsTheFirst(const std::string& name) const {
    struct stat first = {};
    EXPECT_EQ(::stat(path("own.pem").c_str(), &first), 0);
    LeafOptions leaf;
    leaf.common_name = name;
    CertificateAndKey made;
    do {
      made = authority_.Sign(leaf);
    } while (made.certificate_pem.size() != static_cast<size_t>(first.st_size));
    return made;
  }
  // So that the inodes stay as well.
  static void InstallInPlace(const CertificateAndKey& made) {
    std::ofstream(path("own.pem"), std::ios::binary) << made.certificate_pem;
    std::ofstream(path("own.key"), std::ios::binary) << made.key_pem;
  }

  // Who the server is to a client that comes now.
  // `clients_now_ns`: of a client that keeps its tickets for longer than ours do. 0: the same.
  std::string Subject(uint64_t now_ns, bool* resumed = nullptr, uint64_t clients_now_ns = 0) {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    const Descriptor left(fds[0]), right(fds[1]);
    TlsStream client(left.get()), server(right.get());
    const uint64_t clients_ns = clients_now_ns == 0 ? now_ns : clients_now_ns;
    EXPECT_TRUE(client.Start(client_.get(), &scratch_, clients_ns, "localhost").ok());
    EXPECT_TRUE(server.Start(server_.get(), &scratch_, now_ns).ok());
    for (int i = 0; i < 10; ++i) {
      client.Flush();
      server.Flush();
    }
    char byte;
    const iovec piece{&byte, 1};
    client.Read(&piece, 1);  // the ticket
    if (client.state() != TlsStream::State::kUp) return client.error().ToString();
    if (resumed != nullptr) *resumed = client.resumed();
    return client.identity().subject;
  }

  const TestAuthority authority_;
  TlsScratch scratch_;
  SecurityOptions options_;
  std::unique_ptr<TlsCredentials> server_;
  std::unique_ptr<TlsCredentials> client_;
  std::vector<std::string> log_;
};

TEST_F(TlsReloadTest, ChangedFilesTakeEffectASecondLater) {
  EXPECT_EQ(Subject(10 * kSecond), "CN=first");
  Install("second");
  bool resumed = true;
  EXPECT_EQ(Subject(10 * kSecond + 1), "CN=first");
  EXPECT_EQ(Subject(11 * kSecond, &resumed), "CN=second");
  EXPECT_FALSE(resumed) << "a ticket outlived the certificate that it was given with";
  EXPECT_TRUE(log_.empty());
}

// The second of two changes within one tick of the file system's clock was never seen, where it
// left the size as it was, as keys and certificates of one kind do. A machine may be too slow for
// two changes in one tick: the test below needs none.
TEST_F(TlsReloadTest, AChangeRightBehindAnotherIsSeen) {
  uint64_t now_ns = 10 * kSecond;
  EXPECT_EQ(Subject(now_ns), "CN=first");
  const CertificateAndKey even = SignAsLongAsTheFirst("even!");
  const CertificateAndKey odd = SignAsLongAsTheFirst("odd!!");
  for (int i = 0; i < 10; ++i) {
    InstallInPlace(even);
    server_->Context(now_ns += kSecond);
    InstallInPlace(odd);
    ASSERT_EQ(Subject(now_ns += kSecond), "CN=odd!!") << i;
  }
  bool resumed = false;
  EXPECT_EQ(Subject(now_ns += kSecond, &resumed), "CN=odd!!");
  EXPECT_TRUE(resumed) << "what is read again and is the same is no change";
  EXPECT_TRUE(log_.empty());
}

// The kernel says who opens a file. Where the machine has stood still for two seconds the file is not
// young any more, and it is tried again.
TEST_F(TlsReloadTest, AFileThatHasJustChangedIsReadAgain) {
  const Descriptor watch(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  if (!watch.valid() || ::inotify_add_watch(watch.get(), path("own.pem").c_str(), IN_OPEN) < 0) {
    GTEST_SKIP() << "inotify(7): " << std::strerror(errno);
  }
  const auto was_opened = [&watch] {
    char events[4096];
    return ::read(watch.get(), events, sizeof(events)) > 0;
  };
  const CertificateAndKey made[] = {SignAsLongAsTheFirst("even!"), SignAsLongAsTheFirst("odd!!")};
  uint64_t now_ns = 10 * kSecond;
  server_->Context(now_ns);
  bool read_again = false;
  for (int i = 0; i < 10 && !read_again; ++i) {
    InstallInPlace(made[i % 2]);
    was_opened();  // by this test
    server_->Context(now_ns += kSecond);
    ASSERT_TRUE(was_opened()) << "it has changed";
    server_->Context(now_ns += kSecond);
    read_again = was_opened();
  }
  EXPECT_TRUE(read_again);
}

// As `cp --preserve` and rsync leave it: all that tells is the time of its last change.
TEST_F(TlsReloadTest, AFileWithTheTimeAndSizeOfTheOldOneIsSeen) {
  EXPECT_EQ(Subject(10 * kSecond), "CN=first");
  const CertificateAndKey made = SignAsLongAsTheFirst("third");
  const std::string files[] = {path("own.pem"), path("own.key")};
  struct stat before[2] = {};
  for (const int i : {0, 1}) ASSERT_EQ(::stat(files[i].c_str(), &before[i]), 0);
  InstallInPlace(made);
  for (const int i : {0, 1}) {
    const timespec times[] = {before[i].st_atim, before[i].st_mtim};
    ASSERT_EQ(::utimensat(AT_FDCWD, files[i].c_str(), times, 0), 0);
  }
  EXPECT_EQ(Subject(11 * kSecond), "CN=third");
}

// Whom to trust is a file as well. A client whose root is taken out is refused, though it has a
// ticket.
TEST_F(TlsReloadTest, ChangedRootsTakeEffectASecondLater) {
  const TestAuthority other("an authority that no client has");
  WriteFile(path("roots.pem"), other.certificate_pem());
  options_.roots_pem.clear();
  options_.roots_file = path("roots.pem");
  server_ = *TlsCredentials::Create(TlsRole::kServer, options_);
  const auto is_refused = [this](uint64_t now_ns) {
    const std::string met = Subject(now_ns);
    EXPECT_TRUE(met == "CN=first" || met.find("the peer refuses") != std::string::npos) << met;
    return met != "CN=first";
  };
  EXPECT_TRUE(is_refused(10 * kSecond));
  WriteFile(path("roots.pem"), other.certificate_pem() + authority_.certificate_pem());
  EXPECT_TRUE(is_refused(10 * kSecond + 1));
  EXPECT_FALSE(is_refused(11 * kSecond));
  bool resumed = false;
  EXPECT_EQ(Subject(11 * kSecond + 1, &resumed), "CN=first");
  EXPECT_TRUE(resumed);
  WriteFile(path("roots.pem"), other.certificate_pem());
  EXPECT_TRUE(is_refused(12 * kSecond));
  EXPECT_TRUE(log_.empty());
}

// The same of a client, and the servers that it calls.
TEST_F(TlsReloadTest, ChangedRootsOfAClientTakeEffectToo) {
  const TestAuthority other("an authority that no server has");
  WriteFile(path("roots.pem"), authority_.certificate_pem());
  SecurityOptions options = client_->options();
  options.roots_pem.clear();
  options.roots_file = path("roots.pem");
  client_ = *TlsCredentials::Create(TlsRole::kClient, options);
  EXPECT_EQ(Subject(10 * kSecond), "CN=first");
  WriteFile(path("roots.pem"), other.certificate_pem());
  EXPECT_EQ(Subject(10 * kSecond + 1), "CN=first");
  EXPECT_NE(Subject(11 * kSecond).find("UNAUTHENTICATED"), std::string::npos);
  EXPECT_EQ(client_->Session("localhost"), nullptr) << "a ticket outlived the root";
}

// OpenSSL kept 17 to 34 KiB for each connection, however still, but those with keys of their own.
TEST_F(TlsReloadTest, StillStreamsHoldNoBuffersOfOpenSsl) {
  const auto releases = [](ssl_ctx_st* context) {
    return (SSL_CTX_get_mode(context) & SSL_MODE_RELEASE_BUFFERS) != 0;
  };
  EXPECT_TRUE(releases(server_->Context(10 * kSecond)));
  EXPECT_TRUE(releases(client_->Context(10 * kSecond)));
  EXPECT_TRUE(releases((*TlsCredentials::CreateForKeys(TlsRole::kServer))->Context(10 * kSecond)));
  Install("second");
  EXPECT_TRUE(releases(server_->Context(11 * kSecond))) << "of files that have changed";
  EXPECT_EQ(Subject(11 * kSecond), "CN=second");
}

TEST_F(TlsReloadTest, BrokenFilesChangeNothingAndAreToldOfOnce) {
  WriteFile(path("own.pem"), "half a certifica");
  EXPECT_EQ(Subject(10 * kSecond), "CN=first");
  EXPECT_EQ(Subject(20 * kSecond), "CN=first");
  ASSERT_EQ(log_.size(), 1u);
  EXPECT_NE(log_[0].find("own.pem"), std::string::npos) << log_[0];
  Install("second");
  EXPECT_EQ(Subject(30 * kSecond), "CN=second");
  EXPECT_EQ(log_.size(), 1u);
}

TEST_F(TlsReloadTest, RemovedFileChangesNothing) {
  ASSERT_EQ(::unlink(path("own.key").c_str()), 0);
  EXPECT_EQ(Subject(10 * kSecond), "CN=first");
  EXPECT_EQ(log_.size(), 1u);
}

TEST_F(TlsReloadTest, ClientsForgetTheOldestTicket) {
  Subject(10 * kSecond);
  ASSERT_NE(client_->Session("localhost"), nullptr);
  for (size_t i = 0; i < TlsCredentials::kMaxSessions; ++i) {
    client_->KeepSession("server" + std::to_string(i), client_->Context(10 * kSecond), nullptr);
  }
  EXPECT_EQ(client_->Session("localhost"), nullptr);
}

// It was opened, and waited for a writer: with it the engine that had asked, and all of its
// connections.
TEST_F(TlsReloadTest, APipeInThePlaceOfAFileHoldsUpNobody) {
  EXPECT_EQ(Subject(10 * kSecond), "CN=first");
  ASSERT_EQ(::unlink(path("own.pem").c_str()), 0);
  ASSERT_EQ(::mkfifo(path("own.pem").c_str(), 0600), 0);
  EXPECT_EQ(Subject(11 * kSecond), "CN=first");
  ASSERT_EQ(log_.size(), 1u);
  EXPECT_NE(log_.back().find("is no regular file"), std::string::npos) << log_.back();
}

// A server that has given up its rights once it had read its key, say: its tickets were good for as
// long as it lived, each for another one, also of a client whose certificate had ended.
TEST_F(TlsReloadTest, TicketsEndWithinTheHourThoughTheFilesCannotBeReadAgain) {
  uint64_t now_ns = 10 * kSecond;
  EXPECT_EQ(Subject(now_ns), "CN=first");
  ASSERT_EQ(::unlink(path("own.key").c_str()), 0);
  bool resumed = false;
  EXPECT_EQ(Subject(now_ns + kSecond, &resumed, 10 * kSecond), "CN=first");
  EXPECT_TRUE(resumed);
  for (int hour = 1; hour <= 3; ++hour) {
    now_ns += TlsCredentials::kSessionSeconds * kSecond;
    EXPECT_EQ(Subject(now_ns, &resumed, 10 * kSecond), "CN=first");
    EXPECT_FALSE(resumed) << "nobody's certificate was looked at for " << hour << " hours";
  }
}

}  // namespace
}  // namespace weft
