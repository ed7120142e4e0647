#include "bench/perf/plan/end_kinds.h"

#include "absl/status/status.h"
#include "bench/peers/grpc_ends.h"
#include "bench/peers/socket_ends.h"
#include "bench/peers/ucx_ends.h"
#include "bench/perf/ends/aes_ends.h"
#include "bench/perf/ends/weft_ends.h"
#include "bench/raw/raw_ends.h"
#include "core/status.h"
#include "core/strings.h"

namespace weft::bench {
namespace {

std::string WhyNotRaw(const Cell& cell, const PerfPath&) {
  if (cell.pattern == Pattern::kBulkChecked) return "raw transfers have no checksum";
  if (cell.pattern == Pattern::kStream || cell.pattern == Pattern::kCoroutine) {
    return "raw libfabric has no calls: unary and messages are what it has of this";
  }
  return "";
}

std::string WhyNotWeft(const Cell&, const PerfPath&) { return ""; }

// Elsewhere the control connection alone has TLS.
std::string WhyNotTls(const PerfPath& path) {
  return path.kind() == PathKind::kTcp ? "" : "TLS carries data over tcp only";
}

std::string WhyNotWeftTls(const Cell&, const PerfPath& path) { return WhyNotTls(path); }

std::string WhyNotGrpcTls(const Cell& cell, const PerfPath& path) {
  const std::string reason = WhyNotGrpc(cell, path);
  return reason.empty() ? WhyNotTls(path) : reason;
}

std::string WhyNotAes(const Cell& cell, const PerfPath& path) {
  const std::string reason = WhyNotTls(path);
  if (!reason.empty()) return reason;
  return cell.pattern == Pattern::kBulk && cell.bytes == kAesBytes && cell.outstanding == 8
             ? ""
             : "what a processor seals stands beside 1 MiB of bulk";
}

absl::StatusOr<EndKind> Find(const std::string& name) {
  for (const EndKind& kind : EndKinds()) {
    if (kind.name == name) return kind;
  }
  return absl::InvalidArgumentError(StrCat("no kind of leg is called \"", name, "\""));
}

template <SocketStyle kStyle>
EndKind Sockets(std::string_view name) {
  return {name, /*is_peer=*/true,
          [](const Cell& cell, const PerfPath& path) { return WhyNotSockets(kStyle, cell, path); },
          [](const WorkloadOptions& options) { return OpenSocketClient(kStyle, options); },
          [](const WorkloadOptions& options) { return OpenSocketServer(kStyle, options); }};
}

}  // namespace

const std::vector<EndKind>& EndKinds() {
  static const auto* kinds = new std::vector<EndKind>{
      {"raw", /*is_peer=*/false, WhyNotRaw, OpenRawClient, OpenRawServer},
      {"weft", /*is_peer=*/false, WhyNotWeft, OpenWeftClient, OpenWeftServer},
      {"weft_tls", /*is_peer=*/false, WhyNotWeftTls, OpenWeftClient, OpenWeftServer, /*tls=*/true},
      {"aes", /*is_peer=*/false, WhyNotAes, OpenAesClient, OpenAesServer},
      {"grpc", /*is_peer=*/true, WhyNotGrpc, OpenGrpcClient, OpenGrpcServer},
      {"grpc_tls", /*is_peer=*/true, WhyNotGrpcTls, OpenGrpcClient, OpenGrpcServer, /*tls=*/true},
      {"ucx", /*is_peer=*/true, WhyNotUcx, OpenUcxClient, OpenUcxServer},
      Sockets<SocketStyle::kCoalescing>("sockets"),
      Sockets<SocketStyle::kSingle>("sockets_single"),
      Sockets<SocketStyle::kBlocking>("sockets_blocking"),
  };
  return *kinds;
}

absl::StatusOr<std::unique_ptr<ClientEnd>> OpenClientEnd(const std::string& kind,
                                                         const WorkloadOptions& options) {
  WEFT_ASSIGN_OR_RETURN(const EndKind found, Find(kind));
  WorkloadOptions of_kind = options;
  of_kind.tls = found.tls;
  return found.open_client(of_kind);
}

absl::StatusOr<std::unique_ptr<ServerEnd>> OpenServerEnd(const std::string& kind,
                                                         const WorkloadOptions& options) {
  WEFT_ASSIGN_OR_RETURN(const EndKind found, Find(kind));
  WorkloadOptions of_kind = options;
  of_kind.tls = found.tls;
  return found.open_server(of_kind);
}

}  // namespace weft::bench
