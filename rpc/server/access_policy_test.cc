// Rules of who may call what: patterns, decisions, and texts that are none.
#include "rpc/server/access_policy.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "core/strings.h"

namespace weft {
namespace {

PeerIdentity Certificate(std::vector<std::string> uris, std::vector<std::string> dns_names = {},
                         std::string subject = "CN=x") {
  PeerIdentity client;
  client.authentication = Authentication::kCertificate;
  client.uris = std::move(uris);
  client.dns_names = std::move(dns_names);
  client.subject = std::move(subject);
  return client;
}
PeerIdentity WithUri(std::string uri) { return Certificate({std::move(uri)}); }
PeerIdentity WithDnsName(std::string name) { return Certificate({}, {std::move(name)}); }
PeerIdentity WithSecret(std::string name) {
  PeerIdentity client;
  client.authentication = Authentication::kPreSharedKey;
  client.psk_name = std::move(name);
  return client;
}
PeerIdentity OfUser(uint32_t user_id) {
  PeerIdentity client;
  client.authentication = Authentication::kKernelCredentials;
  client.user_id = user_id;
  return client;
}

Authorizer::Decision Decide(std::string_view rules, const PeerIdentity& client,
                            std::string_view service = "kv.Kv", std::string_view method = "Get") {
  const absl::StatusOr<AccessPolicy> policy = AccessPolicy::Parse(rules);
  EXPECT_TRUE(policy.ok()) << policy.status();
  return policy.ok() ? policy->Decide(client, service, method) : Authorizer::Decision();
}
// Whether `whom`, a pattern, is `client`.
bool Matches(std::string_view whom, const PeerIdentity& client) {
  return Decide(StrCat("allow ", whom, " *"), client).allowed;
}
std::string ErrorOf(std::string_view rules) {
  const absl::StatusOr<AccessPolicy> policy = AccessPolicy::Parse(rules);
  if (policy.ok()) return "none";
  EXPECT_TRUE(absl::IsInvalidArgument(policy.status()));
  return std::string(policy.status().message());
}

// --- whom ----------------------------------------------------------------------------------------

TEST(PatternTest, AUriStandsForItselfByteForByte) {
  EXPECT_TRUE(Matches("uri:spiffe://a.org/web", WithUri("spiffe://a.org/web")));
  EXPECT_TRUE(Matches("uri:urn:uuid:1-2", WithUri("urn:uuid:1-2")));
  for (const char* other : {"spiffe://a.org/Web", "spiffe://a.org/web/", "spiffe://a.org/we",
                            "spiffe://A.org/web", "spiffe://a.org/web2", ""}) {
    EXPECT_FALSE(Matches("uri:spiffe://a.org/web", WithUri(other))) << other;
  }
}

TEST(PatternTest, AStarAtTheEndOfAUriStandsForAllBelow) {
  const std::string_view pattern = "uri:spiffe://a.org/*";
  EXPECT_TRUE(Matches(pattern, WithUri("spiffe://a.org/web")));
  EXPECT_TRUE(Matches(pattern, WithUri("spiffe://a.org/ns/prod/sa/web")));
  for (const char* other : {"spiffe://a.org", "spiffe://a.org/", "spiffe://a.org.evil.net/web",
                            "spiffe://b.org/web", "https://a.org/web", "xspiffe://a.org/web"}) {
    EXPECT_FALSE(Matches(pattern, WithUri(other))) << other;
  }
}

TEST(PatternTest, AStarInAUriStaysInItsSegment) {
  const std::string_view pattern = "uri:spiffe://a.org/ns/*/sa/web-*";
  EXPECT_TRUE(Matches(pattern, WithUri("spiffe://a.org/ns/prod/sa/web-7")));
  for (const char* other :
       {"spiffe://a.org/ns/evil/x/sa/web-7", "spiffe://a.org/ns//sa/web-7",
        "spiffe://a.org/ns/prod/sa/web-", "spiffe://a.org/ns/prod/sa/web-7/more",
        "spiffe://a.org/ns/prod/sa/xweb-7", "spiffe://a.org/ns/prod/sa"}) {
    EXPECT_FALSE(Matches(pattern, WithUri(other))) << other;
  }
  EXPECT_TRUE(Matches("uri:https://a.org/a*a", WithUri("https://a.org/aba")));
  EXPECT_FALSE(Matches("uri:https://a.org/a*a", WithUri("https://a.org/aa")));
  EXPECT_FALSE(Matches("uri:https://a.org/a*a", WithUri("https://a.org/a")));
}

TEST(PatternTest, AStarInADnsNameIsOneLabelOrAPartOfIt) {
  const std::string_view pattern = "dns:*.db.example.org";
  EXPECT_TRUE(Matches(pattern, WithDnsName("a.db.example.org")));
  EXPECT_TRUE(Matches(pattern, WithDnsName("A.DB.Example.ORG")));
  EXPECT_TRUE(Matches("dns:*.DB.example.org", WithDnsName("a.db.example.org")));
  EXPECT_TRUE(Matches("dns:db-*.example.org", WithDnsName("db-7.example.org")));
  for (const char* other : {"db.example.org", ".db.example.org", "a.b.db.example.org",
                            "a.db.example.org.evil.net", "a.dbxexample.org", "a.db.example.org."}) {
    EXPECT_FALSE(Matches(pattern, WithDnsName(other))) << other;
  }
  EXPECT_FALSE(Matches("dns:db-*.example.org", WithDnsName("db-.example.org")));
  EXPECT_FALSE(Matches("dns:db-*.example.org", WithDnsName("db-7.evil.example.org")));
}

TEST(PatternTest, AnAddressIsTheSameInEachNotation) {
  PeerIdentity client = Certificate({});
  client.ip_addresses = {"10.1.2.3", "2001:db8::1"};
  for (const char* same : {"ip:10.1.2.3", "ip:2001:db8::1", "ip:2001:DB8:0:0::1"}) {
    EXPECT_TRUE(Matches(same, client)) << same;
  }
  for (const char* other : {"ip:10.1.2.30", "ip:10.1.2.4", "ip:2001:db8::", "ip:::ffff:10.1.2.3"}) {
    EXPECT_FALSE(Matches(other, client)) << other;
  }
  EXPECT_FALSE(Matches("ip:10.1.2.3", WithDnsName("10.1.2.3"))) << "a name is no address";
  EXPECT_FALSE(Matches("dns:10.1.2.3", client));
  for (const char* wrong : {"10.1.2", "10.1.2.3.4", "010.1.2.3", "10.1.2.*", "10.1.2.0/24", "[::1]",
                            "fe80::1%eth0", "localhost"}) {
    EXPECT_EQ(ErrorOf(StrCat("allow ip:", wrong, " *")),
              StrCat("line 1: \"", wrong, "\" is no IP address"));
  }
}

TEST(PatternTest, SubjectsSecretsAndUsersAreComparedAsAWhole) {
  EXPECT_TRUE(
      Matches("\"subject:CN=store 7,O=Example\"", Certificate({}, {}, "CN=store 7,O=Example")));
  EXPECT_FALSE(Matches("'subject:CN=store 7'", Certificate({}, {}, "CN=store 7,O=Example")));
  EXPECT_TRUE(Matches("'subject:CN=\"x\"'", Certificate({}, {}, "CN=\"x\"")));
  EXPECT_TRUE(Matches("psk:lab", WithSecret("lab")));
  EXPECT_FALSE(Matches("psk:lab", WithSecret("lab2")));
  EXPECT_TRUE(Matches("uid:1000", OfUser(1000)));
  EXPECT_FALSE(Matches("uid:1000", OfUser(100)));
  EXPECT_TRUE(Matches("uid:0", OfUser(0)));
  EXPECT_TRUE(Matches("uid:4294967295", OfUser(0xFFFFFFFF)));
}

// A field that another kind of proof has filled proves nothing: 0 is the user of who has none.
TEST(PatternTest, ANameCountsWithTheProofThatItRestsOnAlone) {
  const PeerIdentity nobody;
  EXPECT_FALSE(Matches("uid:0", nobody));
  EXPECT_FALSE(Matches("uid:0", WithUri("spiffe://a.org/web")));
  EXPECT_FALSE(Matches("anyone-authenticated", nobody));
  EXPECT_TRUE(Matches("anyone", nobody));
  PeerIdentity client = WithUri("spiffe://a.org/web");
  client.dns_names = {"a.org"};
  client.ip_addresses = {"10.1.2.3"};
  client.psk_name = "lab";
  for (const char* name : {"uri:spiffe://a.org/web", "dns:a.org", "ip:10.1.2.3", "subject:CN=x"}) {
    client.authentication = Authentication::kCertificate;
    EXPECT_TRUE(Matches(name, client)) << name;
    for (const Authentication by : {Authentication::kNone, Authentication::kPreSharedKey,
                                    Authentication::kKernelCredentials}) {
      client.authentication = by;
      EXPECT_FALSE(Matches(name, client)) << name;
    }
  }
  client.authentication = Authentication::kCertificate;
  EXPECT_FALSE(Matches("psk:lab", client));
  for (const PeerIdentity& somebody : {client, WithSecret("lab"), OfUser(7)}) {
    EXPECT_TRUE(Matches("anyone-authenticated", somebody));
    EXPECT_TRUE(Matches("anyone", somebody));
  }
}

TEST(PatternTest, EachOfSeveralNamesCounts) {
  const PeerIdentity client =
      Certificate({"spiffe://a.org/one", "spiffe://a.org/two"}, {"one.org", "two.org"});
  for (const char* name : {"uri:spiffe://a.org/one", "uri:spiffe://a.org/two", "dns:two.org"}) {
    EXPECT_TRUE(Matches(name, client)) << name;
  }
  EXPECT_FALSE(
      Decide("allow uri:spiffe://a.org/one *\ndeny uri:spiffe://a.org/two *", client).allowed);
}

// A name as long as a certificate may have, against a pattern as bad as a line has room for.
TEST(PatternTest, LongNamesTakeLinearTime) {
  std::string pattern = "spiffe://a.org";
  for (int i = 0; i < 200; ++i) pattern += "/a*a";
  std::string name = "spiffe://a.org";
  for (int i = 0; i < 199; ++i) name += "/" + std::string(500, 'a');
  EXPECT_TRUE(Matches("uri:" + pattern, WithUri(name + "/aaa")));
  EXPECT_FALSE(Matches("uri:" + pattern, WithUri(name + "/aab")));
}

// --- decisions -----------------------------------------------------------------------------------

TEST(AccessPolicyTest, WithoutARuleNobodyMayCallAnything) {
  for (const char* rules : {"", "\n\n", "# allow anyone *", "  \t # nothing\r\n"}) {
    const Authorizer::Decision decision = Decide(rules, OfUser(0));
    EXPECT_FALSE(decision.allowed) << rules;
    EXPECT_EQ(decision.rule, 0u);
  }
}

TEST(AccessPolicyTest, RulesAreForMethodsServicesOrAll) {
  const std::string_view rules =
      "allow uid:1 kv.Kv/Get\n"
      "allow uid:2 kv.Kv/*\n"
      "allow uid:3 *\n";
  const auto may = [&](uint32_t user, std::string_view service, std::string_view method) {
    return Decide(rules, OfUser(user), service, method).allowed;
  };
  EXPECT_TRUE(may(1, "kv.Kv", "Get"));
  EXPECT_FALSE(may(1, "kv.Kv", "Set"));
  EXPECT_FALSE(may(1, "kv.Kv", "get"));
  EXPECT_FALSE(may(1, "kv.KvAdmin", "Get"));
  EXPECT_TRUE(may(2, "kv.Kv", "Set"));
  EXPECT_FALSE(may(2, "kv.KvAdmin", "Set"));
  EXPECT_FALSE(may(2, "kv", "Set"));
  EXPECT_TRUE(may(3, "other.Service", "Run"));
  EXPECT_FALSE(may(4, "kv.Kv", "Get"));
}

TEST(AccessPolicyTest, ADenyWinsWhereverItStands) {
  for (const char* rules :
       {"allow uid:1 *\ndeny uid:1 kv.Kv/Set", "deny uid:1 kv.Kv/Set\nallow uid:1 *",
        "allow uid:1 kv.Kv/Set\ndeny anyone kv.Kv/Set\nallow uid:1 *"}) {
    EXPECT_FALSE(Decide(rules, OfUser(1), "kv.Kv", "Set").allowed) << rules;
    EXPECT_TRUE(Decide(rules, OfUser(1), "kv.Kv", "Get").allowed) << rules;
  }
}

TEST(AccessPolicyTest, ADecisionNamesTheLineOfItsRule) {
  const std::string_view rules =
      "# who\n"
      "\n"
      "allow  uid:1\tkv.Kv/*   # the store\r\n"
      "allow uid:1 kv.Kv/Get\n"
      "deny uid:2 *";
  EXPECT_EQ(Decide(rules, OfUser(1)).rule, 3u);
  EXPECT_EQ(Decide(rules, OfUser(2)).rule, 5u);
  EXPECT_EQ(Decide(rules, OfUser(3)).rule, 0u);
  EXPECT_EQ(AccessPolicy::Parse(rules)->rules(), 3u);
}

TEST(AccessPolicyTest, CommentsAreNoPartOfWhatIsQuoted) {
  EXPECT_TRUE(Matches("'subject:CN=a #1'", Certificate({}, {}, "CN=a #1")));
  EXPECT_TRUE(Matches("subject:CN=a#1", Certificate({}, {}, "CN=a#1")));
}

// --- errors --------------------------------------------------------------------------------------

TEST(PolicyErrorTest, NamesTheLineAndWhatIsWrong) {
  EXPECT_EQ(ErrorOf("allow uid:1 *\nalow uid:1 *"),
            "line 2: a rule begins with allow or deny, not \"alow\"");
  EXPECT_EQ(ErrorOf("Allow uid:1 *"), "line 1: a rule begins with allow or deny, not \"Allow\"");
  EXPECT_EQ(ErrorOf("allow uid:1"),
            "line 1: a rule has three words, \"allow|deny IDENTITY SERVICE/METHOD\"; this has "
            "fewer");
  // Had blanks been a part of names, this deny would be one of a subject that nobody has.
  EXPECT_EQ(ErrorOf("deny subject:CN=a b kv.Kv/Get"),
            "line 1: a rule has three words, \"allow|deny IDENTITY SERVICE/METHOD\"; this has "
            "more");
  EXPECT_EQ(ErrorOf("allow user:1 *"),
            "line 1: \"user:1\" names nobody; uri:, dns:, ip:, subject:, psk:, uid:, "
            "anyone-authenticated and anyone do");
  EXPECT_EQ(ErrorOf("allow anyone:x *").substr(0, 31), "line 1: \"anyone:x\" names nobody");
  EXPECT_EQ(ErrorOf("allow psk: *"), "line 1: there is no name behind \"psk:\"");
}

TEST(PolicyErrorTest, MethodsHaveAServiceAndAMethod) {
  for (const char* what : {"Get", "kv.Kv", "/Get", "kv.Kv/", "kv.*/Get", "kv.Kv/Ge*", "*/*", "**",
                           "kv.Kv/Get/x", "kv-Kv/Get"}) {
    EXPECT_EQ(ErrorOf(StrCat("allow uid:1 ", what)),
              StrCat("line 1: methods are written SERVICE/METHOD, SERVICE/* or *, as in kv.Kv/Get; "
                     "not \"",
                     what, "\""));
  }
}

TEST(PolicyErrorTest, StarsStandWhereTheyAreSafe) {
  for (const char* uri : {"spiffe://a.org*", "spiffe://*/web", "*", "spiffe:*", "spiffe:///*",
                          "*://a.org/web", "urn:*"}) {
    EXPECT_EQ(ErrorOf(StrCat("allow uri:", uri, " *")),
              StrCat("line 1: a * in a URI has to be in the path behind scheme://authority/, not "
                     "in \"",
                     uri, "\""));
  }
  EXPECT_EQ(ErrorOf("allow uri:spiffe://a.org/** *"),
            "line 1: one * is allowed in a segment of a URI, not \"**\"");
  EXPECT_EQ(ErrorOf("allow dns:a*b*c.org *"),
            "line 1: one * is allowed in a label of a DNS name, not \"a*b*c\"");
  for (const char* name : {".a.org", "a..org", "a.org.", "a/b", "a.org:1"}) {
    EXPECT_EQ(ErrorOf(StrCat("allow dns:", name, " *")),
              StrCat("line 1: \"", name, "\" is no DNS name"));
  }
  EXPECT_EQ(ErrorOf("allow subject:CN=* *"),
            "line 1: a subject is compared as a whole, without *: \"CN=*\"");
  EXPECT_EQ(ErrorOf("allow psk:* *"),
            "line 1: a pre-shared secret's name is compared as a whole, without *: \"*\"");
}

TEST(PolicyErrorTest, UsersAreNumbersWrittenInOneWay) {
  for (const char* number : {"root", "-1", "+1", "01", "1x", "4294967296", "0x1", "1.0"}) {
    EXPECT_EQ(ErrorOf(StrCat("allow uid:", number, " *")),
              StrCat("line 1: \"", number, "\" is no number of a user"));
  }
}

TEST(PolicyErrorTest, QuotesHaveAnEndAndABlankBehindIt) {
  EXPECT_EQ(ErrorOf("allow \"subject:CN=a *"),
            "line 1: a quote is not closed: \"\\\"subject:CN=a *\"");
  EXPECT_EQ(ErrorOf("allow '' *"), "line 1: there is nothing between two quotes");
  EXPECT_EQ(ErrorOf("allow 'uid:1'* x"),
            "line 1: behind a closing quote there has to be a blank, not \"* x\"");
  EXPECT_EQ(ErrorOf("allow subject:CN=\"a *"),
            "line 1: a quote in the middle of \"subject:CN=\\\"a\"; quote the whole of it");
}

TEST(PolicyErrorTest, BytesThatNobodySeesAreShown) {
  EXPECT_EQ(ErrorOf(std::string_view("allow uid:1 *\0", 14)),
            "line 1: it has a control character: \"allow uid:1 *\\000\"");
  EXPECT_EQ(ErrorOf("# \x1B[2J"), "line 1: it has a control character: \"# \\033[2J\"");
  EXPECT_EQ(ErrorOf("allow uid:1 *\rdeny uid:1 *").substr(0, 35),
            "line 1: it has a control character:");
  EXPECT_EQ(ErrorOf("\xEF\xBB\xBF"
                    "allow uid:1 *"),
            "line 1: a rule begins with allow or deny, not \"\\357\\273\\277allow\"");
}

TEST(PolicyErrorTest, TextsLinesAndRulesHaveBounds) {
  const std::string rule = "allow uid:1 *";
  const std::string longest =
      rule + " #" + std::string(AccessPolicy::kMaxLineBytes - rule.size() - 2, 'x');
  EXPECT_EQ(ErrorOf(longest), "none");
  EXPECT_EQ(ErrorOf(longest + "\r\n"), "none");
  EXPECT_EQ(ErrorOf("\n" + longest + "x"), "line 2: it has 1025 bytes; 1024 are allowed");
  std::string most;
  for (size_t i = 0; i < AccessPolicy::kMaxRules; ++i) most += rule + "\n";
  EXPECT_EQ(ErrorOf(most), "none");
  EXPECT_EQ(ErrorOf(most + rule), "line 4097: more than 4096 rules");
  EXPECT_EQ(ErrorOf(std::string(AccessPolicy::kMaxBytes, '\n')), "none");
  EXPECT_EQ(ErrorOf(std::string(AccessPolicy::kMaxBytes + 1, '\n')),
            "the rules have 262145 bytes; 262144 are allowed");
  EXPECT_EQ(
      ErrorOf("alow" + std::string(200, 'x') + " uid:1 *"),
      "line 1: a rule begins with allow or deny, not \"alow" + std::string(76, 'x') + "...\"");
}

TEST(AccessPolicyTest, KnowsThatItPermitsNothing) {
  const auto permits_nothing = [](std::string_view text) {
    const auto policy = AccessPolicy::Parse(text);
    EXPECT_TRUE(policy.ok()) << policy.status();
    return policy.ok() && policy->PermitsNothing();
  };
  EXPECT_TRUE(permits_nothing(""));
  EXPECT_TRUE(permits_nothing("# allow anyone *\n"));
  EXPECT_TRUE(permits_nothing("deny uid:7 *\n"));
  EXPECT_TRUE(permits_nothing("allow uid:7 kv.Kv/Get\ndeny anyone *\n"));
  EXPECT_TRUE(permits_nothing("deny anyone kv.Kv/*\nallow uid:7 kv.Kv/Get\nallow uid:8 kv.Kv/*\n"));
  EXPECT_FALSE(permits_nothing("allow uid:7 kv.Kv/Get\n"));
  EXPECT_FALSE(permits_nothing("allow uid:7 *\ndeny anyone kv.Kv/*\n")) << "other services";
  EXPECT_FALSE(permits_nothing("allow uid:7 kv.Kv/*\ndeny anyone kv.Kv/Get\n")) << "other methods";
  EXPECT_FALSE(permits_nothing("allow uid:7 kv.Kv/*\ndeny anyone-authenticated *\n"));
}

}  // namespace
}  // namespace weft
