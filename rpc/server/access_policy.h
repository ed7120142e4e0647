// Who may call what, as a text: the rules of a PolicyFile (policy_file.h).
//
//   # Lines of a rule each. Comments go to the end of a line.
//   allow  uri:spiffe://example.org/web/*    kv.Kv/Get
//   allow  dns:*.batch.example.org           kv.Kv/*
//   allow  "subject:CN=store 7,O=Example"    kv.Admin/Compact
//   allow  uid:1000                          *
//   deny   uri:spiffe://example.org/web/old  *
//
// A rule is `allow` or `deny`, whom, and what. Whom:
//
//   uri:URI               a URI of the client's certificate, such as a SPIFFE id. A `*` stands for
//                         one or more characters of one segment, between slashes, and has to be
//                         behind the authority; a `/*` at the end for all that lies below. Each
//                         other byte stands for itself
//   dns:NAME              a DNS name of its certificate, without regard to case. A `*` stands for
//                         one or more characters of one label, between dots
//   ip:ADDRESS            an IP address that its certificate names, whatever its notation; without
//                         `*`. Where it dials from is not looked at. Not ip:127.0.0.1, ip:::1 or
//                         dns:localhost, which every certificate of `weft cert` has
//   subject:NAME          the subject of its certificate as in RFC 2253, as a whole, without `*`.
//                         Alternative names, those above, are the better ones to trust
//   psk:NAME              it has the pre-shared secret of that name; without `*`
//   uid:NUMBER            a process of that user on this host that the kernel alone vouches for
//                         (shm and unix: without TLS): who proves itself by TLS is not known by it
//   anyone-authenticated  each of these
//   anyone                everybody who can connect
//
// and what: `SERVICE/METHOD`, `SERVICE/*` or `*`, with a service's full name. What has blanks in it
// stands in "..." or '...', as a whole; there are no escapes.
//
// A call is permitted if at least one rule allows it and none denies it: a client's several names,
// and the order of rules, do not matter. So two files can be made one, a rule moved, or an `allow`
// added, and what was denied stays denied; with "the first match counts" each of these may open
// what was closed. A client that may come without its name, or by another one, is not held by a
// `deny` of that name: it narrows an `allow` for names, and does nothing about `anyone`.
//
// Threads: a value. Errors: INVALID_ARGUMENT, with the line and what is wrong with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "rpc/server/authorizer.h"
#include "transport/identity.h"

namespace weft {

class AccessPolicy {
 public:
  // Bounds of a text. Every question about a method goes through all rules, some 10 ns each: a
  // thousand services of four rules each take 40 us, once for each connection and method.
  static constexpr size_t kMaxBytes = size_t{256} << 10;
  static constexpr size_t kMaxRules = 4096;
  static constexpr size_t kMaxLineBytes = 1024;  // a subject of a certificate is rarely above 256

  // Takes any bytes. A text without a rule permits nothing.
  static absl::StatusOr<AccessPolicy> Parse(std::string_view text);

  // The rule is the number of its line; of several, the first.
  Authorizer::Decision Decide(const PeerIdentity& client, std::string_view service,
                              std::string_view method) const;

  size_t rules() const { return rules_.size(); }
  // True: no rule says `allow`, or each one that does is covered by a rule that denies anyone the
  // same. False does not promise that somebody may call something: a rule may allow a user whom the
  // system does not have.
  bool PermitsNothing() const;

 private:
  enum class Whom : uint8_t { kUri, kDns, kIp, kSubject, kPsk, kUid, kAuthenticated, kAnyone };
  struct Rule {
    bool allows = false;
    Whom whom = Whom::kAnyone;
    uint32_t line = 0;
    uint32_t user_id = 0;      // kUid
    std::string name = {};     // kUri to kPsk; kDns: in lower case; kIp: as inet_ntop() has it
    std::string service = {};  // empty: all
    std::string method = {};   // empty: all
  };

  static absl::StatusOr<Rule> ParseRule(std::string_view verb, std::string_view whom,
                                        std::string_view what);
  static absl::Status ParseWhom(std::string_view text, Rule* rule);
  static absl::Status ParseWhat(std::string_view text, Rule* rule);
  static bool IsWhom(const Rule& rule, const PeerIdentity& client);

  std::vector<Rule> rules_;  // by line
};

}  // namespace weft
