// Texts of rules, and clients that ask, for a fuzzer.
//
// The text is the fuzzer's own bytes, or lines made of words that mostly fit together. Clients have
// names that the rules are about. What has to hold for every text:
//
//   - what is wrong with it is said in printable words, with the line that is wrong by itself;
//   - it permits what at least one of its lines, each taken as a text of its own, allows and none
//     denies, and names the first of those that decide; without such a line, nothing;
//   - neither the order of lines, nor comments, blank lines and ends of lines change that, and a
//     `deny` of everybody closes everything;
//   - a line that was made of words applies to whom a second matcher, here, says that it does;
//   - clients have one limit together if they have proved the same, and only then.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/ascii.h"
#include "core/check.h"
#include "core/clock.h"
#include "core/strings.h"
#include "core/testing/fuzz_input.h"
#include "rpc/server/access_policy.h"
#include "rpc/server/admission.h"
#include "rpc/server/server_tallies.h"
#include "transport/identity.h"
#include "transport/path.h"

namespace weft {
namespace {

constexpr size_t kMostLines = 64;  // of which each is parsed by itself, too
constexpr size_t kMostClients = 8;

// The parts that words are made of: few, so that they meet.
constexpr std::string_view kUriParts[] = {"spiffe://", "https://", "urn:", "a.org", "a.org.evil",
                                          "/",         "web",      "w",    "b",     "*",
                                          "x y",       "'",        "?",    "//"};
constexpr std::string_view kDnsParts[] = {"a",  "db", "example", "org", "A",
                                          "DB", ".",  "-",       "*",   "_"};
constexpr std::string_view kSubjectParts[] = {"CN=", "O=", "a", "store", ",", " ", "#", "\"", "*"};
constexpr std::string_view kServices[] = {"kv.Kv", "kv.KvAdmin", "kv", "other.Service"};
constexpr std::string_view kMethods[] = {"Get", "Set", "get", "Run_1"};

struct Question {
  PeerIdentity client;
  std::string_view service;
  std::string_view method;
};

enum class Kind : uint8_t { kUri, kDns, kSubject, kPsk, kUid, kAuthenticated, kAnyone, kNonsense };

// A line that is made of words.
struct Line {
  bool allows = false;
  Kind kind = Kind::kAnyone;
  std::string name;
  std::string_view service;  // empty: all
  std::string_view method;   // empty: all
  std::string text;
};

// --- the second matcher ---------------------------------------------------------------------

// Character by character: a `*` is one or more of them, none of them `separator`. `below`: one
// behind the last separator is any.
bool IsLike(std::string_view pattern, std::string_view name, char separator, bool below,
            bool behind_separator = false) {
  if (pattern.empty()) return name.empty();
  if (pattern[0] != '*') {
    return !name.empty() && name[0] == pattern[0] &&
           IsLike(pattern.substr(1), name.substr(1), separator, below, pattern[0] == separator);
  }
  if (below && behind_separator && pattern.size() == 1) return !name.empty();
  for (size_t count = 1; count <= name.size() && name[count - 1] != separator; ++count) {
    if (IsLike(pattern.substr(1), name.substr(count), separator, below)) return true;
  }
  return false;
}

std::string Lower(std::string_view text) { return absl::AsciiStrToLower(ToAbsl(text)); }

bool IsAbout(const Line& line, const PeerIdentity& client) {
  const Authentication by = client.authentication;
  const auto any = [](const std::vector<std::string>& names, auto is) {
    return std::any_of(names.begin(), names.end(), is);
  };
  switch (line.kind) {
    case Kind::kUri:
      return by == Authentication::kCertificate && any(client.uris, [&](const std::string& uri) {
               return IsLike(line.name, uri, '/', /*below=*/true);
             });
    case Kind::kDns:
      return by == Authentication::kCertificate &&
             any(client.dns_names, [&](const std::string& name) {
               return IsLike(Lower(line.name), Lower(name), '.', /*below=*/false);
             });
    case Kind::kSubject:
      return by == Authentication::kCertificate && client.subject == line.name;
    case Kind::kPsk:
      return by == Authentication::kPreSharedKey && client.psk_name == line.name;
    case Kind::kUid:
      return by == Authentication::kKernelCredentials &&
             std::to_string(client.user_id) == line.name;
    case Kind::kAuthenticated:
      return by != Authentication::kNone;
    case Kind::kAnyone:
      return true;
    case Kind::kNonsense:
      return false;
  }
  return false;
}

bool Applies(const Line& line, const Question& question) {
  return (line.service.empty() || line.service == question.service) &&
         (line.method.empty() || line.method == question.method) && IsAbout(line, question.client);
}

// --- what is asked, and of what ---------------------------------------------------------------

class Maker {
 public:
  explicit Maker(FuzzInput* input) : input_(*input) {}

  Line MakeLine() {
    Line line;
    line.allows = input_.Below(4) != 0;
    line.kind = static_cast<Kind>(input_.Below(8));
    line.name = NameOf(line.kind, /*most_parts=*/8);
    static constexpr std::string_view kKinds[] = {
        "uri:", "dns:", "subject:", "psk:", "uid:", "anyone-authenticated", "anyone", ""};
    const std::string whom = StrCat(kKinds[static_cast<size_t>(line.kind)], line.name);
    std::string what = "*";
    if (const uint8_t how = input_.Below(4); how != 0) {
      line.service = kServices[input_.Below(std::size(kServices))];
      if (how != 1) line.method = kMethods[input_.Below(std::size(kMethods))];
      what = StrCat(line.service, "/", how == 1 ? "*" : line.method);
    }
    // One after the other: arguments of one call are made in an order of the compiler's.
    line.text = StrCat(line.allows ? "allow" : "deny", Blank());
    line.text += Quoted(whom);
    line.text += StrCat(Blank(), what);
    line.text += End();
    return line;
  }

  Question MakeQuestion(const std::vector<std::string>& names) {
    Question question;
    PeerIdentity& client = question.client;
    client.authentication = static_cast<Authentication>(1 + input_.Below(4));
    // All fields, of which those of another proof prove nothing.
    const auto name = [&](Kind kind) {
      std::string made = !names.empty() && input_.Below(4) != 3 ? names[input_.U8() % names.size()]
                                                                : NameOf(kind, /*most_parts=*/10);
      // A pattern becomes a name that may be like it.
      static constexpr std::string_view kForStar[] = {"x", "web", "a/b", "a.b", ""};
      const std::string_view star = kForStar[input_.Below(std::size(kForStar))];
      for (size_t at; (at = made.find('*')) != std::string::npos;) made.replace(at, 1, star);
      return made;
    };
    for (uint32_t i = input_.Below(3); i > 0; --i) client.uris.push_back(name(Kind::kUri));
    for (uint32_t i = input_.Below(3); i > 0; --i) client.dns_names.push_back(name(Kind::kDns));
    client.subject = name(Kind::kSubject);
    client.psk_name = name(Kind::kPsk);
    client.user_id = input_.Below(4) == 3 ? input_.U32() : input_.Below(3);
    client.process_id = static_cast<int32_t>(client.user_id % 3);  // 0: not seen from here
    question.service = kServices[input_.Below(std::size(kServices))];
    question.method = kMethods[input_.Below(std::size(kMethods))];
    return question;
  }

 private:
  std::string Join(const std::string_view* parts, size_t count, uint32_t most_parts) {
    std::string joined;
    for (uint32_t i = input_.Below(most_parts + 1); i > 0; --i)
      joined += parts[input_.U8() % count];
    return joined;
  }
  std::string NameOf(Kind kind, uint32_t most_parts) {
    switch (kind) {
      case Kind::kUri: {  // mostly with an authority, behind which stars may stand
        const std::string authority = input_.Below(4) == 3 ? "" : "spiffe://a.org/";
        return authority + Join(kUriParts, std::size(kUriParts), most_parts);
      }
      case Kind::kDns:
        return Join(kDnsParts, std::size(kDnsParts), most_parts);
      case Kind::kSubject:
      case Kind::kPsk:
        return Join(kSubjectParts, std::size(kSubjectParts), most_parts);
      case Kind::kUid:
        return std::to_string(input_.Below(4) == 3 ? input_.Number() : input_.Below(3));
      case Kind::kNonsense:
        return input_.Text(input_.Below(16));
      default:
        return "";
    }
  }
  // One that stands for itself is not quoted, or may be.
  std::string Quoted(const std::string& word) {
    const bool needs_quotes = word.find_first_of(" \t\"'") != std::string::npos;
    if (!needs_quotes && !input_.Bit()) return word;
    const std::string_view quote = word.find('"') == std::string::npos ? "\"" : "'";
    return StrCat(quote, word, quote);
  }
  std::string Blank() { return input_.Below(4) == 3 ? " \t " : " "; }
  std::string End() {
    static constexpr std::string_view kEnds[] = {"", "\r", "  # so", "\t", " #", "# no comment"};
    return std::string(kEnds[input_.Below(std::size(kEnds))]);
  }

  FuzzInput& input_;
};

std::vector<std::string> LinesOf(std::string_view text) {
  std::vector<std::string> lines(1);
  for (const char c : text) {
    if (c == '\n') {
      lines.emplace_back();
    } else {
      lines.back() += c;
    }
  }
  return lines;
}
std::string TextOf(const std::vector<std::string>& lines) {
  std::string text;
  for (size_t i = 0; i < lines.size(); ++i) text += (i == 0 ? "" : "\n") + lines[i];
  return text;
}

// What stands behind the colon of a line's identity, up to its end: the names that rules are about.
std::vector<std::string> NamesIn(const std::vector<std::string>& lines) {
  std::vector<std::string> names;
  for (const std::string& line : lines) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const size_t quote = line.find_last_of("\"'", colon);
    const std::string ends = quote == std::string::npos ? " \t" : line.substr(quote, 1);
    const size_t end = line.find_first_of(ends, colon);
    names.push_back(line.substr(colon + 1, end == std::string::npos ? end : end - colon - 1));
  }
  return names;
}

// --- what has to hold ---------------------------------------------------------------------------

// What `lines` are, each by itself; none: there is something wrong, and it was said well.
std::optional<std::vector<AccessPolicy>> ParseEach(const std::vector<std::string>& lines,
                                                   const absl::Status& of_all) {
  std::vector<AccessPolicy> each;
  for (size_t i = 0; i < lines.size(); ++i) {
    absl::StatusOr<AccessPolicy> line = AccessPolicy::Parse(lines[i]);
    if (line.ok()) {
      WEFT_CHECK(line->rules() <= 1);
      each.push_back(*std::move(line));
      continue;
    }
    constexpr std::string_view kFirst = "line 1: ";
    const std::string_view alone = ToStd(line.status().message());
    WEFT_CHECK(absl::IsInvalidArgument(line.status()) && alone.starts_with(kFirst));
    WEFT_CHECK(
        std::all_of(alone.begin(), alone.end(), [](char c) { return c >= ' ' && c <= '~'; }));
    WEFT_CHECK(absl::IsInvalidArgument(of_all));
    WEFT_CHECK(ToStd(of_all.message()) ==
               StrCat("line ", i + 1, ": ", alone.substr(kFirst.size())));
    return std::nullopt;
  }
  WEFT_CHECK(of_all.ok());
  return each;
}

void CheckAnswer(const std::string& text, const std::vector<AccessPolicy>& each,
                 const AccessPolicy& policy, const Question& question) {
  const auto decide = [&question](const AccessPolicy& by) {
    return by.Decide(question.client, question.service, question.method);
  };
  uint32_t allows = 0;
  uint32_t denies = 0;
  for (uint32_t i = 0; i < each.size(); ++i) {
    const Authorizer::Decision alone = decide(each[i]);
    WEFT_CHECK(alone.rule <= 1 && (!alone.allowed || alone.rule == 1));
    if (alone.rule == 0) continue;
    uint32_t& first = alone.allowed ? allows : denies;
    if (first == 0) first = i + 1;
  }
  const Authorizer::Decision decision = decide(policy);
  WEFT_CHECK(decision.allowed == (allows != 0 && denies == 0));
  WEFT_CHECK(decision.rule == (denies != 0 ? denies : allows));
  const auto closed = AccessPolicy::Parse(StrCat(text, "\ndeny anyone *"));
  WEFT_CHECK(closed.ok() && !decide(*closed).allowed && decide(*closed).rule != 0);
}

void CheckOrder(std::vector<std::string> lines, const AccessPolicy& policy,
                const std::vector<Question>& questions) {
  std::reverse(lines.begin(), lines.end());
  const absl::StatusOr<AccessPolicy> reversed = AccessPolicy::Parse(TextOf(lines));
  std::string spaced = "# rules\r\n";
  for (const std::string& line : lines) {
    const bool ends = !line.empty() && line.back() == '\r';
    spaced += StrCat(line, ends ? "" : "\r", "\n\t\n");
  }
  const absl::StatusOr<AccessPolicy> with_comments = AccessPolicy::Parse(spaced);
  WEFT_CHECK(reversed.ok() && with_comments.ok());
  WEFT_CHECK(reversed->rules() == policy.rules() && with_comments->rules() == policy.rules());
  for (const Question& question : questions) {
    const auto allowed = [&question](const AccessPolicy& by) {
      return by.Decide(question.client, question.service, question.method).allowed;
    };
    WEFT_CHECK(allowed(*reversed) == allowed(policy));
    WEFT_CHECK(allowed(*with_comments) == allowed(policy));
  }
}

void CheckMadeLines(const std::vector<Line>& made, const std::vector<Question>& questions) {
  for (const Line& line : made) {
    const absl::StatusOr<AccessPolicy> policy = AccessPolicy::Parse(line.text);
    if (!policy.ok() || line.kind == Kind::kNonsense) continue;
    for (const Question& question : questions) {
      const Authorizer::Decision decision =
          policy->Decide(question.client, question.service, question.method);
      const bool applies = Applies(line, question);
      WEFT_CHECK(decision.rule == (applies ? 1 : 0));
      WEFT_CHECK(decision.allowed == (applies && line.allows));
    }
  }
}

bool HaveProvedTheSame(const PeerIdentity& a, const PeerIdentity& b) {
  if (a.authentication != b.authentication) return false;
  switch (a.authentication) {
    case Authentication::kCertificate:
      return a.subject == b.subject && a.dns_names == b.dns_names && a.uris == b.uris;
    case Authentication::kPreSharedKey:
      return a.psk_name == b.psk_name;
    case Authentication::kKernelCredentials:
      return a.process_id != 0 && a.process_id == b.process_id && a.user_id == b.user_id;
    case Authentication::kNone:
      break;
  }
  return false;
}

void CheckLimits(const std::vector<Question>& questions) {
  const ServerLimits limits = {.per_client = 1};
  const FakeClock clock;
  ServerTallies stats;
  Admission admission(limits, clock, stats);
  std::vector<std::shared_ptr<RunningCount>> counts;
  for (const Question& question : questions) {
    PathInfo path;
    path.identity = question.client;
    counts.push_back(admission.CountOf(path));
    for (size_t i = 0; i + 1 < counts.size(); ++i) {
      WEFT_CHECK((counts[i] == counts.back()) ==
                 HaveProvedTheSame(questions[i].client, question.client));
    }
  }
}

void Run(FuzzInput input) {
  Maker maker(&input);
  std::vector<Line> made;
  std::vector<std::string> lines;
  const uint8_t how = input.U8();
  const uint32_t clients = how / 2 % (kMostClients + 1);
  if ((how & 1) != 0) {
    for (uint32_t i = 1 + input.Below(8); i > 0; --i) made.push_back(maker.MakeLine());
    for (const Line& line : made) lines.push_back(line.text);
  } else {
    lines = LinesOf(input.Text(input.U16() % 2048));
    if (lines.size() > kMostLines) return;
  }
  const std::string text = TextOf(lines);
  lines = LinesOf(text);
  const absl::StatusOr<AccessPolicy> policy = AccessPolicy::Parse(text);
  const auto each = ParseEach(lines, policy.status());
  const std::vector<std::string> names = NamesIn(lines);
  std::vector<Question> questions;
  for (uint32_t i = 0; i < clients; ++i) questions.push_back(maker.MakeQuestion(names));
  CheckMadeLines(made, questions);
  CheckLimits(questions);
  if (!each.has_value()) return;
  for (const Question& question : questions) CheckAnswer(text, *each, *policy, question);
  CheckOrder(lines, *policy, questions);
}

}  // namespace
}  // namespace weft

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  weft::Run(weft::FuzzInput(data, size));
  return 0;
}
