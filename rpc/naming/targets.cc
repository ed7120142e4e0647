#include "rpc/naming/targets.h"

#include <utility>
#include <vector>

#include "core/status.h"
#include "core/strings.h"
#include "rpc/client/balancer.h"
#include "rpc/naming/dns_source.h"
#include "rpc/naming/etcd_source.h"
#include "rpc/naming/file_source.h"
#include "rpc/naming/list_source.h"

namespace weft {
namespace {

constexpr std::string_view kBlank = " \t\r";

std::string_view Trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

}  // namespace

absl::StatusOr<ListedServer> ParseListedServer(std::string_view text) {
  const size_t at = text.rfind('@');
  ListedServer server;
  server.address = text.substr(0, at);
  if (at != std::string_view::npos) server.zone = text.substr(at + 1);
  const bool has_zone = at == std::string_view::npos || !server.zone.empty();
  if (server.address.empty() || !has_zone || server.address.find(':') == std::string::npos ||
      text.find_first_of(kBlank) != std::string_view::npos) {
    return absl::InvalidArgumentError(
        StrCat("\"", text,
               "\" is no server: write host:port, [v6]:port or unix:/path, and behind "
               "it @ and a zone if it has one"));
  }
  return server;
}

absl::StatusOr<std::vector<ListedServer>> ParseServerList(std::string_view text,
                                                          std::string_view separators) {
  std::vector<ListedServer> servers;
  while (!text.empty()) {
    const size_t end = text.find_first_of(separators);
    std::string_view entry = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    entry = Trimmed(entry.substr(0, entry.find('#')));
    if (entry.empty()) continue;
    WEFT_ASSIGN_OR_RETURN(ListedServer server, ParseListedServer(entry));
    servers.push_back(std::move(server));
  }
  WEFT_RETURN_IF_ERROR(CheckServers(servers));
  return servers;
}

absl::StatusOr<std::unique_ptr<AddressSource>> MakeAddressSource(const std::string& target,
                                                                 const EtcdOptions& etcd) {
  const size_t colon = target.find(':');
  const std::string_view scheme = std::string_view(target).substr(0, colon);
  const std::string_view rest =
      colon == std::string::npos ? std::string_view() : std::string_view(target).substr(colon + 1);
  if (scheme == "list" && colon != std::string::npos) {
    WEFT_ASSIGN_OR_RETURN(std::vector<ListedServer> servers, ParseServerList(rest, ","));
    return std::unique_ptr<AddressSource>(std::make_unique<ListSource>(std::move(servers)));
  }
  if (scheme == "file" && rest.starts_with('/')) {
    return std::unique_ptr<AddressSource>(std::make_unique<FileSource>(std::string(rest)));
  }
  if (scheme == "dns" && colon != std::string::npos) return MakeDnsSource(rest);
  if (scheme == "etcd" && colon != std::string::npos) return MakeEtcdSource(rest, etcd);
  return absl::InvalidArgumentError(
      StrCat("\"", target,
             "\" is no target: write list:ADDRESS,ADDRESS, file:/PATH, dns:HOST:PORT, "
             "dns:_SERVICE._PROTOCOL.NAME or etcd:HOST:PORT/PREFIX"));
}

}  // namespace weft
