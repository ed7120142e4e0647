#include "tools/weft/explain_report.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "core/clock.h"
#include "core/json.h"
#include "core/strings.h"
#include "tools/weft/table.h"

namespace weft::tools {
namespace {

constexpr int kFormat = 1;  // of the JSON: raised when a member changes its meaning

std::string Microseconds(uint64_t ns) {
  return absl::StrFormat("%.1f us", static_cast<double>(ns) / 1e3);
}

// The library names options, for who writes programs; who types this command gives flags.
struct Wording {
  const char* option;
  const char* flag;
};
constexpr Wording kSecurity[] = {
    {"set `security` in the client's options (SecurityOptions)",
     "give the --tls-... flags that its clients have"},
    {"set SecurityOptions::certificate_file and key_file", "give --tls-certificate and --tls-key"},
    {"set SecurityOptions::server_name or expected_uri", "give --tls-name or --tls-uri"},
    {"its options have no `security` (SecurityOptions)",
     "it has no security, so leave the --tls-... flags out"},
    {"SecurityOptions: ", "--tls-... flags: "},
};
// In INVALID_ARGUMENT alone, where the option is this command's: other errors may name the
// server's.
constexpr Wording kLink[] = {
    {"LinkOptions::paths", "--paths"},
    {"LinkOptions::denied_paths", "--deny"},
    {"LinkOptions::devices", "--devices"},
    {"LinkOptions::subnets", "--subnets"},
};
// The client's alone: it tries the paths.
constexpr Wording kCandidate[] = {{"LinkOptions::path_timeout_ns", "--path-timeout-ms"}};

std::string WithFlags(std::string text, absl::Span<const Wording> wordings) {
  for (const Wording& wording : wordings) {
    const std::string option = wording.option;
    const size_t at = text.find(option);
    if (at != std::string::npos) text.replace(at, option.size(), wording.flag);
  }
  return text;
}

std::string ErrorText(const absl::Status& error) {
  std::string text = WithFlags(WithFlags(std::string(error.message()), kSecurity), kCandidate);
  return absl::IsInvalidArgument(error) ? WithFlags(std::move(text), kLink) : text;
}

// "rxe0:1 192.168.77.1"
std::string End(const std::string& device, const std::string& address) {
  return StrCat(device, device.empty() || address.empty() ? "" : " ", address);
}

std::string LinkText(const PathCandidate& candidate) {
  return candidate.link == LinkKind::kUnknown ? std::string()
                                              : std::string(LinkKindName(candidate.link));
}

std::string CandidateTable(const std::vector<PathCandidate>& candidates) {
  Table table({"outcome", "path", "link", "here", "there"});
  for (const PathCandidate& candidate : candidates) {
    table.AddRow({std::string(OutcomeName(candidate.outcome)),
                  std::string(PathKindName(candidate.kind)), LinkText(candidate),
                  End(candidate.device, candidate.address),
                  End(candidate.peer_device, candidate.peer_address)});
    table.AddText(WithFlags(candidate.reason, kCandidate));
  }
  return table.text();
}

// "server awake,  round trip: min 0.7 us, p50 ... (1000 probes, one after the other)"
std::string RoundTripLine(const char* server, const LatencyHistogram& times, const char* how) {
  if (times.count() == 0) return "";
  return StrCat(server, " round trip: min ", Microseconds(times.min()), ", p50 ",
                Microseconds(times.Percentile(50)), ", p99 ", Microseconds(times.Percentile(99)),
                " (", times.count(), " probes, ", how, ")\n");
}

static_assert(kPauseNs == kNsPerMs, "the text below says so");
std::string RoundTripText(const Explanation& explanation) {
  const std::string text =
      RoundTripLine("server awake, ", explanation.round_trips, "one after the other") +
      RoundTripLine("server asleep,", explanation.paused_round_trips, "each after 1 ms of silence");
  if (explanation.measured.ok()) return text;
  return StrCat(text, text.empty() ? "round trip: not measured: " : "then: ",
                ToStd(explanation.measured.message()), "\n");
}

std::string CandidateJson(const PathCandidate& candidate) {
  JsonObject object;
  object.Add("path", PathKindName(candidate.kind));
  object.AddOrNull("link", LinkText(candidate));
  object.AddOrNull("device", candidate.device);
  object.AddOrNull("address", candidate.address);
  object.AddOrNull("peer_device", candidate.peer_device);
  object.AddOrNull("peer_address", candidate.peer_address);
  object.Add("outcome", OutcomeName(candidate.outcome));
  object.Add("reason", candidate.reason);
  return object.text();
}

// A client's TLS always says who the server is.
bool HasTls(const PathInfo& path) {
  return path.is_encrypted || path.identity.authentication == Authentication::kCertificate ||
         path.identity.authentication == Authentication::kPreSharedKey;
}

std::string NamesJson(const std::vector<std::string>& names) {
  std::vector<std::string> values;
  for (const std::string& name : names) values.push_back(JsonString(name));
  return JsonArray(values);
}

std::string IdentityJson(const PeerIdentity& identity) {
  JsonObject object;
  object.Add("authentication", AuthenticationName(identity.authentication));
  object.AddOrNull("subject", identity.subject);
  object.AddJson("dns_names", NamesJson(identity.dns_names));
  object.AddJson("uris", NamesJson(identity.uris));
  object.AddJson("ip_addresses", NamesJson(identity.ip_addresses));
  object.AddOrNull("psk_name", identity.psk_name);
  const bool has_process = identity.process_id != 0;
  object.AddIndexOrNull("process_id", has_process ? identity.process_id : -1);
  object.AddIndexOrNull("user_id", has_process ? static_cast<int>(identity.user_id) : -1);
  object.AddIndexOrNull("group_id", has_process ? static_cast<int>(identity.group_id) : -1);
  return object.text();
}

std::string PathJson(const PathInfo& path) {
  JsonObject object;
  object.Add("path", PathKindName(path.kind));
  object.Add("link", LinkKindName(path.link));
  object.Add("provider", path.provider);
  object.Add("device", path.device);
  object.Add("local", path.local);
  object.Add("peer", path.peer);
  object.AddOrNull("tls", HasTls(path) ? "1.3" : "");
  object.Add("encrypted", path.is_encrypted);
  object.AddOrNull("kernel_tls", path.kernel_tls);
  object.AddJson("identity", IdentityJson(path.identity));
  return object.text();
}

std::string RoundTripJson(const LatencyHistogram& times) {
  if (times.count() == 0) return "null";
  JsonObject object;
  object.Add("count", times.count());
  object.Add("min", times.min());
  object.Add("p50", times.Percentile(50));
  object.Add("p99", times.Percentile(99));
  object.Add("max", times.max());
  return object.text();
}

}  // namespace

std::string ExplainText(const Explanation& explanation) {
  std::string text = CandidateTable(explanation.candidates);
  if (explanation.candidates.empty()) text.clear();
  if (!explanation.connected.ok()) {
    return StrCat(text, text.empty() ? "" : "\n", "no connection to ", explanation.address, ": ",
                  ErrorText(explanation.connected), "\n");
  }
  const PathInfo& path = explanation.path;
  text = StrCat(text, "\nconnected to ", explanation.address, " in ",
                explanation.connect_ns / kNsPerMs, " ms");
  if (!explanation.server.empty()) text = StrCat(text, " (", explanation.server, ")");
  text =
      StrCat(text, "\npath ", PathKindName(path.kind), " over ", path.provider, ", device ",
             path.device, ", from ", path.local, " to ", path.peer, "\n", SecurityText(path), "\n");
  if (!HasTls(path)) {
    text +=
        "the server has no security (ServerOptions::security; ready-made servers: --tls-...): it "
        "serves whoever reaches it\n";
  }
  return text + RoundTripText(explanation);
}

std::string ExplainJson(const Explanation& explanation) {
  std::vector<std::string> candidates;
  for (const PathCandidate& candidate : explanation.candidates) {
    candidates.push_back(CandidateJson(candidate));
  }
  const bool connected = explanation.connected.ok();
  JsonObject object;
  object.Add("format", static_cast<uint64_t>(kFormat));
  object.Add("address", explanation.address);
  object.Add("connected", connected);
  object.AddOrNull("error", ToStd(explanation.connected.message()));
  object.AddJson("candidates", JsonArray(candidates, "    "));
  object.AddJson("path", connected ? PathJson(explanation.path) : "null");
  object.AddOrNull("server", explanation.server);
  object.AddOrNull("connect_ns", explanation.connect_ns);
  object.AddJson("round_trip_ns", RoundTripJson(explanation.round_trips));
  object.AddJson("round_trip_asleep_ns", RoundTripJson(explanation.paused_round_trips));
  object.AddOrNull("not_measured", ToStd(explanation.measured.message()));
  return object.text("  ") + "\n";
}

}  // namespace weft::tools
