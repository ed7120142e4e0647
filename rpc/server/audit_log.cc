#include "rpc/server/audit_log.h"

#include <array>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <functional>
#include <vector>

#include "absl/strings/escaping.h"
#include "core/log.h"
#include "core/strings.h"

namespace weft {
namespace {

// Of one name, and of the whole text, in bytes, before they are escaped.
constexpr size_t kMaxNameBytes = 128;
constexpr size_t kMaxIdentityBytes = 400;

std::string Cut(std::string_view text, size_t most) {
  return text.size() <= most ? std::string(text) : StrCat(text.substr(0, most), "...");
}

std::string Escaped(std::string_view text) { return absl::CEscape(ToAbsl(text)); }

void AddName(std::string_view kind, std::string_view name, std::string* text) {
  if (!text->empty()) *text += ' ';
  *text += StrCat(kind, Cut(name, kMaxNameBytes));
}

std::string CertificateText(const PeerIdentity& identity) {
  std::string text;
  for (const std::string& uri : identity.uris) AddName("uri:", uri, &text);
  for (const std::string& name : identity.dns_names) AddName("dns:", name, &text);
  for (const std::string& address : identity.ip_addresses) AddName("ip:", address, &text);
  if (!identity.subject.empty()) AddName("subject:", identity.subject, &text);
  return text.empty() ? "a certificate without a name" : text;
}

std::string RawIdentity(const PeerIdentity& identity) {
  switch (identity.authentication) {
    case Authentication::kNone:
      return "";
    case Authentication::kCertificate:
      return CertificateText(identity);
    case Authentication::kPreSharedKey:
      return StrCat("psk:", Cut(identity.psk_name, kMaxNameBytes));
    case Authentication::kKernelCredentials:
      return StrCat("uid:", identity.user_id, " gid:", identity.group_id,
                    " process:", identity.process_id);
  }
  return "";
}

// In UTC, to the millisecond.
std::string TimeText() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto since_epoch =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch());
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  std::array<char, 40> text{};
  const size_t bytes = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &utc);
  std::snprintf(text.data() + bytes, text.size() - bytes, ".%03dZ",
                static_cast<int>(since_epoch.count() % 1000));
  return text.data();
}

std::string Line(const AuditLog::Entry& entry, uint64_t unlogged) {
  return StrCat("audit: decision=", entry.allowed ? "allowed" : "denied", " method=", entry.service,
                "/", entry.method,
                " authentication=", AuthenticationName(entry.client.identity.authentication),
                " identity=\"", AuditIdentity(entry.client.identity), "\" address=\"",
                Escaped(Cut(entry.client.peer, kMaxNameBytes)), "\" rule=\"",
                Escaped(Cut(entry.authorizer.RuleText(entry.rule), kMaxIdentityBytes)),
                "\" time=", TimeText(), " unlogged=", unlogged);
}

}  // namespace

std::string AuditIdentity(const PeerIdentity& identity) {
  return Escaped(Cut(RawIdentity(identity), kMaxIdentityBytes));
}

// Whoever connects again has another port, or is another process, and is the same client.
RateBudget& AuditLog::BudgetOf(const PathInfo& client) {
  const PeerIdentity& identity = client.identity;
  const std::string name =
      identity.authentication == Authentication::kKernelCredentials
          ? StrCat("uid:", identity.user_id)
          : StrCat(RawIdentity(identity), " at ",
                   std::string_view(client.peer).substr(0, client.peer.rfind(':')));
  return clients_[std::hash<std::string>()(name) % kBudgets];
}

void AuditLog::Add(const Entry& entry, uint64_t now_ns) {
  if (!LogEnabled(entry.allowed ? LogLevel::kInfo : LogLevel::kWarning)) return;
  RateBudget& own = entry.allowed ? allowed_ : denied_;
  RateBudget* const client = entry.allowed ? nullptr : &BudgetOf(entry.client);
  if (!own.permits(now_ns) || (client != nullptr && !client->permits(now_ns))) {
    ++unlogged_;
    return;
  }
  own.Take(now_ns);
  if (client != nullptr) client->Take(now_ns);
  const std::string line = Line(entry, unlogged_);
  unlogged_ = 0;
  if (entry.allowed) {
    WEFT_LOG(kInfo, line);
  } else {
    WEFT_LOG(kWarning, line);
  }
}

}  // namespace weft
