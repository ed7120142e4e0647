#include "rpc/server/access_policy.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "core/status.h"
#include "core/strings.h"

namespace weft {
namespace {

constexpr char kStar = '*';

absl::Status Wrong(const auto&... parts) { return absl::InvalidArgumentError(StrCat(parts...)); }

// A part of the text, for an error.
std::string Quoted(std::string_view text) {
  constexpr size_t kMostBytes = 80;  // of a name; its line is told as well
  const bool cut = text.size() > kMostBytes;
  return StrCat("\"", absl::CEscape(ToAbsl(text.substr(0, kMostBytes))), cut ? "...\"" : "\"");
}

bool IsBlank(char c) { return c == ' ' || c == '\t'; }
bool IsQuote(char c) { return c == '"' || c == '\''; }
bool IsControl(char c) { return (static_cast<unsigned char>(c) < ' ' && c != '\t') || c == 0x7F; }
bool IsWordCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_';
}

// Takes what is in front of the next `separator`, or all; `*more`: there was one.
std::string_view TakePart(std::string_view* text, char separator, bool* more) {
  const size_t end = text->find(separator);
  const std::string_view part = text->substr(0, end);
  *more = end != std::string_view::npos;
  text->remove_prefix(*more ? end + 1 : text->size());
  return part;
}

// --- words --------------------------------------------------------------------------------------

// Takes the next word of a line; *word is empty where only a comment is left, or nothing.
absl::Status TakeWord(std::string_view* line, std::string_view* word) {
  while (!line->empty() && IsBlank(line->front())) line->remove_prefix(1);
  *word = {};
  if (line->empty() || line->front() == '#') return absl::OkStatus();
  if (IsQuote(line->front())) {
    const size_t end = line->find(line->front(), 1);
    if (end == std::string_view::npos) return Wrong("a quote is not closed: ", Quoted(*line));
    *word = line->substr(1, end - 1);
    line->remove_prefix(end + 1);
    if (word->empty()) return Wrong("there is nothing between two quotes");
    if (!line->empty() && !IsBlank(line->front())) {
      return Wrong("behind a closing quote there has to be a blank, not ", Quoted(*line));
    }
    return absl::OkStatus();
  }
  const auto end = std::find_if(line->begin(), line->end(), IsBlank);
  *word = line->substr(0, static_cast<size_t>(end - line->begin()));
  line->remove_prefix(word->size());
  if (std::any_of(word->begin(), word->end(), IsQuote)) {
    return Wrong("a quote in the middle of ", Quoted(*word), "; quote the whole of it");
  }
  return absl::OkStatus();
}

// --- patterns -----------------------------------------------------------------------------------

// REQUIRES: one `*` in `pattern` at most.
bool PartMatches(std::string_view pattern, std::string_view part) {
  const size_t star = pattern.find(kStar);
  if (star == std::string_view::npos) return part == pattern;
  const std::string_view behind = pattern.substr(star + 1);
  return part.size() >= pattern.size() && part.substr(0, star) == pattern.substr(0, star) &&
         part.substr(part.size() - behind.size()) == behind;
}

// Part by part. `below`: a last part of the pattern that is `*` stands for all that is left, too.
bool Matches(std::string_view pattern, std::string_view name, char separator, bool below) {
  bool more_pattern = true;
  bool more_name = true;
  while (more_pattern && more_name) {
    if (below && pattern == "*") return !name.empty();
    const std::string_view wanted = TakePart(&pattern, separator, &more_pattern);
    if (!PartMatches(wanted, TakePart(&name, separator, &more_name))) return false;
  }
  return more_pattern == more_name;
}

absl::Status CheckStars(std::string_view pattern, char separator, std::string_view part_name) {
  for (bool more = true; more;) {
    const std::string_view part = TakePart(&pattern, separator, &more);
    if (std::count(part.begin(), part.end(), kStar) > 1) {
      return Wrong("one * is allowed in a ", part_name, ", not ", Quoted(part));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckNoStar(std::string_view name, std::string_view kind) {
  if (name.find(kStar) == std::string_view::npos) return absl::OkStatus();
  return Wrong("a ", kind, " is compared as a whole, without *: ", Quoted(name));
}

// A `*` in the authority would match those of others: spiffe://example.org* has
// spiffe://example.org.attacker.net.
absl::Status CheckUri(std::string_view uri) {
  const size_t star = uri.find(kStar);
  if (star == std::string_view::npos) return absl::OkStatus();
  const size_t scheme = uri.find("://");
  const size_t path = scheme == std::string_view::npos ? scheme : uri.find('/', scheme + 3);
  if (path == std::string_view::npos || star < path || path == scheme + 3) {
    return Wrong("a * in a URI has to be in the path behind scheme://authority/, not in ",
                 Quoted(uri));
  }
  return CheckStars(uri, '/', "segment of a URI");
}

absl::Status CheckDnsName(std::string_view name) {
  std::string_view rest = name;
  for (bool more = true; more;) {
    const std::string_view label = TakePart(&rest, '.', &more);
    const bool good = !label.empty() && std::all_of(label.begin(), label.end(), [](char c) {
      return IsWordCharacter(c) || c == '-' || c == kStar;
    });
    if (!good) return Wrong(Quoted(name), " is no DNS name");
  }
  return CheckStars(name, '.', "label of a DNS name");
}

// As certificates' addresses are written (PeerIdentity::ip_addresses).
absl::Status ReadAddress(std::string* address) {
  unsigned char bytes[16];
  char text[INET6_ADDRSTRLEN];
  for (const int family : {AF_INET, AF_INET6}) {
    if (::inet_pton(family, address->c_str(), bytes) != 1 ||
        ::inet_ntop(family, bytes, text, sizeof(text)) == nullptr) {
      continue;
    }
    *address = text;
    return absl::OkStatus();
  }
  return Wrong(Quoted(*address), " is no IP address");
}

std::string LowerCase(std::string_view text) { return absl::AsciiStrToLower(ToAbsl(text)); }

}  // namespace

// --- parsing ------------------------------------------------------------------------------------

absl::StatusOr<AccessPolicy> AccessPolicy::Parse(std::string_view text) {
  if (text.size() > kMaxBytes) {
    return Wrong("the rules have ", text.size(), " bytes; ", kMaxBytes, " are allowed");
  }
  AccessPolicy policy;
  uint32_t number = 0;
  for (bool more = true; more;) {
    std::string_view line = TakePart(&text, '\n', &more);
    ++number;
    const auto wrong = [number](const auto&... parts) {
      return Wrong("line ", number, ": ", parts...);
    };
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.size() > kMaxLineBytes) {
      return wrong("it has ", line.size(), " bytes; ", kMaxLineBytes, " are allowed");
    }
    if (std::any_of(line.begin(), line.end(), IsControl)) {
      return wrong("it has a control character: ", Quoted(line));
    }
    std::array<std::string_view, 4> words;
    for (std::string_view& word : words) {
      if (absl::Status taken = TakeWord(&line, &word); !taken.ok()) {
        return wrong(ToStd(taken.message()));
      }
    }
    if (words[0].empty()) continue;
    if (words[2].empty() || !words[3].empty()) {
      return wrong("a rule has three words, \"allow|deny IDENTITY SERVICE/METHOD\"; this has ",
                   words[3].empty() ? "fewer" : "more");
    }
    absl::StatusOr<Rule> rule = ParseRule(words[0], words[1], words[2]);
    if (!rule.ok()) return wrong(ToStd(rule.status().message()));
    if (policy.rules_.size() == kMaxRules) return wrong("more than ", kMaxRules, " rules");
    rule->line = number;
    policy.rules_.push_back(*std::move(rule));
  }
  return policy;
}

absl::StatusOr<AccessPolicy::Rule> AccessPolicy::ParseRule(std::string_view verb,
                                                           std::string_view whom,
                                                           std::string_view what) {
  Rule rule;
  rule.allows = verb == "allow";
  if (!rule.allows && verb != "deny") {
    return Wrong("a rule begins with allow or deny, not ", Quoted(verb));
  }
  WEFT_RETURN_IF_ERROR(ParseWhom(whom, &rule));
  WEFT_RETURN_IF_ERROR(ParseWhat(what, &rule));
  return rule;
}

absl::Status AccessPolicy::ParseWhom(std::string_view text, Rule* rule) {
  bool has_name = false;
  std::string_view name = text;
  const std::string_view kind = TakePart(&name, ':', &has_name);
  if (!has_name && (kind == "anyone" || kind == "anyone-authenticated")) {
    rule->whom = kind == "anyone" ? Whom::kAnyone : Whom::kAuthenticated;
    return absl::OkStatus();
  }
  if (has_name && name.empty()) return Wrong("there is no name behind ", Quoted(text));
  rule->name = std::string(name);
  if (has_name && kind == "uri") {
    rule->whom = Whom::kUri;
    return CheckUri(name);
  }
  if (has_name && kind == "dns") {
    rule->whom = Whom::kDns;
    rule->name = LowerCase(name);
    return CheckDnsName(name);
  }
  if (has_name && kind == "ip") {
    rule->whom = Whom::kIp;
    return ReadAddress(&rule->name);
  }
  if (has_name && kind == "subject") {
    rule->whom = Whom::kSubject;
    return CheckNoStar(name, "subject");
  }
  if (has_name && kind == "psk") {
    rule->whom = Whom::kPsk;
    return CheckNoStar(name, "pre-shared secret's name");
  }
  if (has_name && kind == "uid") {
    rule->whom = Whom::kUid;
    const char* const end = name.data() + name.size();
    const auto [stopped, error] = std::from_chars(name.data(), end, rule->user_id);
    if (error == std::errc() && stopped == end && (name[0] != '0' || name == "0")) {
      return absl::OkStatus();
    }
    return Wrong(Quoted(name), " is no number of a user");
  }
  return Wrong(Quoted(text),
               " names nobody; uri:, dns:, ip:, subject:, psk:, uid:, anyone-authenticated and "
               "anyone do");
}

absl::Status AccessPolicy::ParseWhat(std::string_view text, Rule* rule) {
  if (text == "*") return absl::OkStatus();
  bool has_method = false;
  std::string_view method = text;
  const std::string_view service = TakePart(&method, '/', &has_method);
  const bool good = has_method && !service.empty() && !method.empty() &&
                    std::all_of(service.begin(), service.end(),
                                [](char c) { return IsWordCharacter(c) || c == '.'; }) &&
                    (method == "*" || std::all_of(method.begin(), method.end(), IsWordCharacter));
  if (!good) {
    return Wrong("methods are written SERVICE/METHOD, SERVICE/* or *, as in kv.Kv/Get; not ",
                 Quoted(text));
  }
  rule->service = std::string(service);
  if (method != "*") rule->method = std::string(method);
  return absl::OkStatus();
}

// --- decisions ----------------------------------------------------------------------------------

bool AccessPolicy::IsWhom(const Rule& rule, const PeerIdentity& client) {
  const Authentication by = client.authentication;
  switch (rule.whom) {
    case Whom::kAnyone:
      return true;
    case Whom::kAuthenticated:
      return by != Authentication::kNone;
    case Whom::kUri:
      return by == Authentication::kCertificate &&
             std::any_of(client.uris.begin(), client.uris.end(), [&rule](const std::string& uri) {
               return Matches(rule.name, uri, '/', /*below=*/true);
             });
    case Whom::kDns:
      return by == Authentication::kCertificate &&
             std::any_of(client.dns_names.begin(), client.dns_names.end(),
                         [&rule](const std::string& name) {
                           return Matches(rule.name, LowerCase(name), '.', /*below=*/false);
                         });
    case Whom::kIp:
      return by == Authentication::kCertificate &&
             std::find(client.ip_addresses.begin(), client.ip_addresses.end(), rule.name) !=
                 client.ip_addresses.end();
    case Whom::kSubject:
      return by == Authentication::kCertificate && client.subject == rule.name;
    case Whom::kPsk:
      return by == Authentication::kPreSharedKey && client.psk_name == rule.name;
    case Whom::kUid:
      return by == Authentication::kKernelCredentials && client.user_id == rule.user_id;
  }
  return false;
}

Authorizer::Decision AccessPolicy::Decide(const PeerIdentity& client, std::string_view service,
                                          std::string_view method) const {
  Authorizer::Decision decision;
  for (const Rule& rule : rules_) {
    if (rule.allows && decision.allowed) continue;
    if (!rule.service.empty() && rule.service != service) continue;
    if (!rule.method.empty() && rule.method != method) continue;
    if (!IsWhom(rule, client)) continue;
    if (!rule.allows) return {false, rule.line};
    decision = {true, rule.line};
  }
  return decision;
}

bool AccessPolicy::PermitsNothing() const {
  const auto is_undone = [this](const Rule& allow) {
    return std::any_of(rules_.begin(), rules_.end(), [&allow](const Rule& rule) {
      return !rule.allows && rule.whom == Whom::kAnyone &&
             (rule.service.empty() || rule.service == allow.service) &&
             (rule.method.empty() || rule.method == allow.method);
    });
  };
  return std::all_of(rules_.begin(), rules_.end(),
                     [&is_undone](const Rule& rule) { return !rule.allows || is_undone(rule); });
}

}  // namespace weft
