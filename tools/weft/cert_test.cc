#include "tools/weft/cert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

namespace weft::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

CertCommand Parsed(const std::vector<std::string>& arguments) {
  const auto command = ParseCert(arguments);
  EXPECT_TRUE(command.ok()) << command.status();
  return command.ok() ? *command : CertCommand();
}

class CertTest : public testing::Test {
 protected:
  ~CertTest() override { std::filesystem::remove_all(folder_); }

  absl::StatusOr<std::string> Make(std::vector<std::string> arguments = {}) const {
    arguments.insert(arguments.begin(), folder_);
    return MakeCertificates(Parsed(arguments));
  }
  std::string ContentOf(const std::string& name) const {
    std::ifstream file(folder_ + "/" + name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  mode_t ModeOf(const std::string& name) const {
    struct stat found = {};
    EXPECT_EQ(::stat((folder_ + "/" + name).c_str(), &found), 0) << name;
    return found.st_mode & 07777;
  }
  std::map<std::string, std::string> Files() const {
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      const std::string name = entry.path().filename();
      files[name] = ContentOf(name);
    }
    return files;
  }

  const std::string folder_ = testing::TempDir() + "/made";
};

TEST_F(CertTest, OneCommandMakesAllThatTwoSidesNeed) {
  const auto said = Make();
  ASSERT_TRUE(said.ok()) << said.status();
  EXPECT_THAT(*said, HasSubstr("an authority for development"));
  EXPECT_THAT(*said, HasSubstr("--tls-certificate=" + folder_ + "/server.pem --tls-key=" + folder_ +
                               "/server.key --tls-roots=" + folder_ + "/ca.pem"));
  EXPECT_THAT(Files(), SizeIs(6));
  EXPECT_EQ(ModeOf("."), 0700u);
  for (const char* const key : {"ca.key", "server.key", "client.key"}) {
    EXPECT_EQ(ModeOf(key), 0600u) << key;
  }
}

// A key that somebody uses would be gone.
TEST_F(CertTest, NothingIsOverwrittenUntold) {
  ASSERT_TRUE(Make({"server"}).ok());
  const auto before = Files();
  const auto again = Make({"other", "server"});
  EXPECT_EQ(again.status().code(), absl::StatusCode::kAlreadyExists) << again.status();
  EXPECT_THAT(std::string(again.status().message()), HasSubstr("server.pem is there already"));
  EXPECT_EQ(Files(), before);
}

TEST_F(CertTest, TheAuthorityStaysWhenACertificateIsReplaced) {
  ASSERT_TRUE(Make().ok());
  auto before = Files();
  ASSERT_TRUE(Make({"server", "--replace"}).ok());
  auto after = Files();
  for (const char* const changed : {"server.pem", "server.key"}) {
    EXPECT_NE(before[changed], after[changed]) << changed;
    before.erase(changed);
    after.erase(changed);
  }
  EXPECT_EQ(before, after);
  EXPECT_EQ(ModeOf("server.key"), 0600u);
}

TEST_F(CertTest, AnotherNameIsSignedByTheSameAuthority) {
  ASSERT_TRUE(Make().ok());
  const std::string authority = ContentOf("ca.pem");
  const auto said = Make({"third"});
  ASSERT_TRUE(said.ok()) << said.status();
  EXPECT_EQ(said->find("authority"), std::string::npos) << *said;
  EXPECT_EQ(ContentOf("ca.pem"), authority);
  EXPECT_THAT(Files(), SizeIs(8));
}

// Whoever can write there can put an authority of their own there, and read what it signs.
TEST_F(CertTest, AFolderThatOthersCanWriteToIsNotUsed) {
  ASSERT_EQ(::mkdir(folder_.c_str(), 0700), 0);
  ASSERT_EQ(::chmod(folder_.c_str(), 0777), 0);
  const absl::Status status = Make().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(Files(), IsEmpty());
}

TEST_F(CertTest, HalfAnAuthorityIsSaidToBeOne) {
  ASSERT_TRUE(Make().ok());
  std::filesystem::remove(folder_ + "/ca.key");
  const absl::Status none = Make({"third"}).status();
  EXPECT_EQ(none.code(), absl::StatusCode::kNotFound) << none;
  EXPECT_THAT(std::string(none.message()), HasSubstr("ca.key"));
  std::filesystem::copy(folder_ + "/server.key", folder_ + "/ca.key");
  const absl::Status wrong = Make({"third"}).status();
  EXPECT_THAT(std::string(wrong.message()), HasSubstr("ca.pem and ca.key: not the certificate of"));
}

TEST(ParseCert, SortsNamesByWhatTheyAre) {
  const CertCommand command =
      Parsed({"d", "kv=kv.example.org,*.kv.example.org,10.0.0.7,fe80::7,spiffe://example.org/kv",
              "client", "--days=7"});
  ASSERT_THAT(command.certificates, SizeIs(2));
  const CertificateRequest& kv = command.certificates[0];
  EXPECT_EQ(kv.common_name, "kv");
  EXPECT_THAT(kv.dns_names, ElementsAre("kv", "localhost", "kv.example.org", "*.kv.example.org"));
  EXPECT_THAT(kv.addresses, ElementsAre("127.0.0.1", "::1", "10.0.0.7", "fe80::7"));
  EXPECT_THAT(kv.uris, ElementsAre("spiffe://example.org/kv"));
  EXPECT_EQ(kv.valid_until_s, 7 * 86'400);
  EXPECT_EQ(command.certificates[1].common_name, "client");
}

TEST(ParseCert, NamesWhatItDoesNotUnderstand) {
  const struct {
    std::vector<std::string> arguments;
    const char* why;
  } kCases[] = {{{}, "A folder is needed"},
                {{"--replace"}, "A folder is needed"},
                {{"d", "--force"}, "\"--force\" is not understood"},
                {{"d", "--days=0"}, "--days=0: it must be a number, 1..365"},
                {{"d", "--days=366"}, "1..365"},
                {{"d", "--days=x"}, "1..365"},
                {{"d", "ca"}, "\"ca\" cannot be a certificate's name"},
                {{"d", "../up"}, "cannot be a certificate's name"},
                {{"d", ".hidden"}, "cannot be a certificate's name"},
                {{"d", std::string(65, 'a')}, "cannot be a certificate's name"},
                {{"d", "a=b c"}, "\"b c\" is neither a host name"},
                {{"d", "a="}, "\"\" is neither a host name"},
                {{"d", "a", "a=b"}, "\"a\" is named twice"}};
  for (const auto& c : kCases) {
    const absl::Status status = ParseCert(c.arguments).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.why;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.why));
  }
}

}  // namespace
}  // namespace weft::tools
