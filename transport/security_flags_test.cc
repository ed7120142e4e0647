#include "transport/security_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string FileWith(const std::string& content) {
  const std::string path = testing::TempDir() + "/secret";
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
  return path;
}

TEST(SecurityFlags, AreTakenOutAndTheRestStays) {
  std::vector<std::string> arguments = {
      "explain", "--tls-certificate=a.pem", "host:1", "--tls-key", "a.key", "--json",
      "--",      "--tls-roots=kept"};
  const auto security = TakeSecurityFlags(&arguments);
  ASSERT_TRUE(security.ok()) << security.status();
  ASSERT_TRUE(security->has_value());
  EXPECT_EQ((*security)->certificate_file, "a.pem");
  EXPECT_EQ((*security)->key_file, "a.key");
  EXPECT_THAT((*security)->roots_file, IsEmpty());
  EXPECT_TRUE((*security)->require_client_certificate);
  EXPECT_THAT(arguments, ElementsAre("explain", "host:1", "--json", "--", "--tls-roots=kept"));
}

TEST(SecurityFlags, EachSetsItsOption) {
  const std::string secret(kMinPskBytes, 's');
  const std::string file = FileWith(secret + "\n");
  std::vector<std::string> arguments = {"--tls-roots=r",
                                        "--tls-name=n",
                                        "--tls-uri=u=v",
                                        "--tls-psk-name=p",
                                        "--tls-psk-file",
                                        file,
                                        "--tls-require-encryption",
                                        "--tls-kernel",
                                        "--tls-any-client"};
  const auto security = TakeSecurityFlags(&arguments);
  ASSERT_TRUE(security.ok()) << security.status();
  const SecurityOptions& options = **security;
  EXPECT_EQ(options.roots_file, "r");
  EXPECT_EQ(options.server_name, "n");
  EXPECT_EQ(options.expected_uri, "u=v");
  EXPECT_EQ(options.psk_name, "p");
  EXPECT_EQ(options.psk_secret, secret);
  EXPECT_TRUE(options.require_encryption);
  EXPECT_TRUE(options.kernel_tls);
  EXPECT_FALSE(options.require_client_certificate);
  EXPECT_THAT(arguments, IsEmpty());
}

// Nobody gets TLS that was not asked for, and nobody who asked goes without.
TEST(SecurityFlags, NoneIsNoSecurity) {
  std::vector<std::string> arguments = {"--listen=:0", "-tls-key=x", "tls"};
  const auto security = TakeSecurityFlags(&arguments);
  ASSERT_TRUE(security.ok()) << security.status();
  EXPECT_FALSE(security->has_value());
  EXPECT_EQ(arguments.size(), 3u);
}

TEST(SecurityFlags, NameWhatIsWrong) {
  const struct {
    std::vector<std::string> arguments;
    const char* why;
  } kCases[] = {
      {{"--tls-kye=x"}, "\"--tls-kye\" is not understood"},
      {{"--tls-"}, "is not understood"},
      {{"--tls-key"}, "--tls-key: a value is missing"},
      {{"--tls-key="}, "--tls-key: its value is empty"},
      {{"--tls-key=a", "--tls-key=b"}, "--tls-key: given twice"},
      {{"--tls-any-client=no"}, "--tls-any-client: takes no value"},
      {{"--tls-psk-name=a"}, "--tls-psk-name and --tls-psk-file belong together"},
      {{"--tls-psk-file=a"}, "--tls-psk-name and --tls-psk-file belong together"},
      {{"--tls-psk-name=a", "--tls-psk-file=/none"}, "--tls-psk-file: open /none"},
      {{"--tls-psk-name=a", "--tls-psk-file=/"}, "--tls-psk-file: read /"},
      {{"--tls-psk-name=a",
        "--tls-psk-file=" + FileWith(std::string(kMinPskBytes - 1, 's') + "\n")},
       "must have 32 to 256 bytes"},
  };
  for (const auto& c : kCases) {
    std::vector<std::string> arguments = c.arguments;
    const absl::Status status = TakeSecurityFlags(&arguments).status();
    EXPECT_FALSE(status.ok()) << c.why;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.why));
  }
}

TEST(SecurityFlags, ASecretHasAnUpperBound) {
  for (const size_t bytes : {kMaxPskBytes, kMaxPskBytes + 1, kMaxPskBytes * 4}) {
    std::vector<std::string> arguments = {
        "--tls-psk-name=a", "--tls-psk-file=" + FileWith(std::string(bytes, 's') + "\n")};
    EXPECT_EQ(TakeSecurityFlags(&arguments).ok(), bytes == kMaxPskBytes) << bytes;
  }
}

TEST(SecurityFlags, OfMainLeaveItsArgumentsWell) {
  char program[] = "kv_server", key[] = "--tls-key=k", listen[] = "--listen=:0",
       roots[] = "--tls-roots", file[] = "r";
  char* argv[] = {program, key, listen, roots, file, nullptr};
  int argc = 5;
  const auto security = TakeSecurityFlags(&argc, argv);
  ASSERT_TRUE(security.ok()) << security.status();
  EXPECT_EQ((*security)->roots_file, "r");
  ASSERT_EQ(argc, 2);
  EXPECT_STREQ(argv[0], "kv_server");
  EXPECT_STREQ(argv[1], "--listen=:0");
  EXPECT_EQ(argv[2], nullptr);
  // Not every caller has a null behind its arguments.
  char* const unended[] = {program, listen, roots};
  char* words[] = {program, listen, roots};
  argc = 2;
  ASSERT_TRUE(TakeSecurityFlags(&argc, words).ok());
  EXPECT_THAT(words, testing::ElementsAreArray(unended));
}

}  // namespace
}  // namespace weft
