// The lines about who may call what: their words, and how many there are.
#include "rpc/server/audit_log.h"

#include <gtest/gtest.h>

#include <regex>
#include <string>
#include <vector>

#include "core/log.h"

namespace weft {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;

class Silent final : public Authorizer {
 public:
  Decision Decide(const PathInfo&, std::string_view, std::string_view) override { return {}; }
};

class AuditLogTest : public testing::Test {
 protected:
  AuditLogTest() {
    SetLogSink([this](const LogRecord& record) {
      lines_.emplace_back(record.text);
      levels_.push_back(record.level);
    });
  }
  ~AuditLogTest() override { SetLogSink({}); }

  void Add(bool allowed = false) {
    audit_.Add({allowed, client_, "kv.Kv", "Get", authorizer_, 3}, now_ns_);
  }
  void AddOf(const std::string& peer) {
    client_.peer = peer;
    Add();
  }
  // One refusal of each of a thousand hosts.
  void AddOfMany() {
    for (int i = 0; i < 1000; ++i) AddOf("10.0." + std::to_string(i) + ".1:35100");
  }
  std::string Last() const { return lines_.empty() ? "" : lines_.back(); }

  AuditLog audit_;
  Silent authorizer_;
  PathInfo client_;
  uint64_t now_ns_ = kSecond;
  std::vector<std::string> lines_;
  std::vector<LogLevel> levels_;
};

TEST_F(AuditLogTest, SaysWhoWhatWhenAndWhy) {
  client_.peer = "10.0.0.7:35100";
  client_.identity.authentication = Authentication::kCertificate;
  client_.identity.uris = {"spiffe://a.org/web"};
  client_.identity.dns_names = {"web.a.org"};
  client_.identity.subject = "CN=web";
  Add();
  EXPECT_TRUE(std::regex_match(
      Last(), std::regex("audit: decision=denied method=kv\\.Kv/Get authentication=certificate "
                         "identity=\"uri:spiffe://a\\.org/web dns:web\\.a\\.org subject:CN=web\" "
                         "address=\"10\\.0\\.0\\.7:35100\" rule=\"rule 3\" "
                         "time=\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d\\.\\d{3}Z unlogged=0")))
      << Last();
  EXPECT_EQ(levels_.back(), LogLevel::kWarning);
  Add(/*allowed=*/true);
  EXPECT_NE(Last().find("decision=allowed"), std::string::npos);
  EXPECT_EQ(levels_.back(), LogLevel::kInfo);
}

TEST_F(AuditLogTest, EachKindOfProofHasItsWords) {
  EXPECT_EQ(AuditIdentity(client_.identity), "");
  client_.identity.authentication = Authentication::kPreSharedKey;
  client_.identity.psk_name = "lab";
  EXPECT_EQ(AuditIdentity(client_.identity), "psk:lab");
  client_.identity.authentication = Authentication::kKernelCredentials;
  client_.identity.user_id = 1000;
  client_.identity.group_id = 100;
  client_.identity.process_id = 77;
  EXPECT_EQ(AuditIdentity(client_.identity), "uid:1000 gid:100 process:77");
  client_.identity.authentication = Authentication::kCertificate;
  EXPECT_EQ(AuditIdentity(client_.identity), "a certificate without a name");
}

// A name may be made to look like a line of its own, or to end the quotes.
TEST_F(AuditLogTest, NamesCannotForgeALine) {
  client_.identity.authentication = Authentication::kCertificate;
  client_.identity.subject = "CN=x\" rule=\"y\naudit: decision=allowed \x1B[2J \xC2\x9B \\";
  client_.peer = "a\"\nb";
  Add();
  EXPECT_NE(Last().find("identity=\"subject:CN=x\\\" rule=\\\"y\\naudit: decision=allowed "
                        "\\033[2J \\302\\233 \\\\\" address=\"a\\\"\\nb\" rule=\"rule 3\""),
            std::string::npos)
      << Last();
}

TEST_F(AuditLogTest, NamesAreCut) {
  client_.identity.authentication = Authentication::kCertificate;
  client_.identity.uris = std::vector<std::string>(100, std::string(5000, 'u'));
  client_.peer = std::string(5000, 'p');
  Add();
  EXPECT_LT(Last().size(), 1024u);
  EXPECT_NE(Last().find("uuu... uri:uuu"), std::string::npos) << Last();
}

TEST_F(AuditLogTest, OneClientHasTenLinesAndThenOneInASecond) {
  for (int i = 0; i < 50; ++i) AddOf("10.0.0.1:35100");
  EXPECT_EQ(lines_.size(), 10u);
  AddOf("10.0.0.2:35100");
  EXPECT_EQ(lines_.size(), 11u) << "the server's own budget is not used up";
  EXPECT_NE(Last().find(" unlogged=40"), std::string::npos) << Last();
  now_ns_ += kSecond - 1;
  AddOf("10.0.0.1:35100");
  EXPECT_EQ(lines_.size(), 11u);
  now_ns_ += 1;
  for (int i = 0; i < 5; ++i) AddOf("10.0.0.1:35100");
  EXPECT_EQ(lines_.size(), 12u);
  EXPECT_NE(Last().find(" unlogged=1"), std::string::npos) << Last();
}

// Each connection had a budget of its own: a client that connected ten times used the server's up,
// and hid the others.
TEST_F(AuditLogTest, AClientThatConnectsAgainHasNoMoreLines) {
  for (int i = 0; i < 200; ++i) AddOf("10.0.0.1:" + std::to_string(35'100 + i));
  EXPECT_EQ(lines_.size(), 10u);
  AddOf("[fe80::1]:35100");
  EXPECT_EQ(lines_.size(), 11u) << "another host";

  client_.identity.authentication = Authentication::kCertificate;
  client_.identity.subject = "CN=web";
  for (int i = 0; i < 200; ++i) AddOf("10.0.0.1:" + std::to_string(35'100 + i));
  EXPECT_EQ(lines_.size(), 21u) << "another identity at the same host";

  client_.identity = {};
  client_.identity.authentication = Authentication::kKernelCredentials;
  client_.identity.user_id = 1000;
  for (int i = 0; i < 200; ++i) {
    client_.identity.process_id = 77 + i;
    AddOf("unix:(process " + std::to_string(77 + i) + " of user 1000)");
  }
  EXPECT_EQ(lines_.size(), 31u) << "processes of one user";
}

TEST_F(AuditLogTest, AllClientsHaveAHundredLinesAndThenTwentyInASecond) {
  AddOfMany();
  EXPECT_EQ(lines_.size(), 100u);
  now_ns_ += kSecond;
  AddOfMany();
  EXPECT_EQ(lines_.size(), 120u);
  Add(/*allowed=*/true);
  EXPECT_EQ(lines_.size(), 121u) << "permitted calls have a budget of their own";
  now_ns_ += 3600 * kSecond;
  AddOfMany();
  EXPECT_EQ(lines_.size(), 221u) << "what was not used for long is no more than a burst";
}

TEST_F(AuditLogTest, LinesThatNobodyHearsUseNothingUp) {
  SetLogSink([this](const LogRecord& record) { lines_.emplace_back(record.text); },
             LogLevel::kError);
  for (int i = 0; i < 500; ++i) Add();
  SetLogSink([this](const LogRecord& record) { lines_.emplace_back(record.text); });
  Add();
  EXPECT_EQ(lines_.size(), 1u);
  EXPECT_NE(Last().find(" unlogged=0"), std::string::npos) << Last();
}

}  // namespace
}  // namespace weft
