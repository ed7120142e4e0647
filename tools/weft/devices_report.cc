#include "tools/weft/devices_report.h"

#include <vector>

#include "absl/strings/str_join.h"
#include "core/json.h"
#include "core/strings.h"
#include "tools/weft/table.h"

namespace weft::tools {
namespace {

constexpr uint64_t kUnlimited = ~uint64_t{0};
constexpr uint64_t kKiB = 1024;
constexpr uint64_t kMiB = kKiB * 1024;

// The version of the JSON form: changes when a member's meaning does.
constexpr uint64_t kJsonFormat = 1;

std::string DeviceAndPort(const HostPath& path) {
  return path.port == 0 ? path.device : StrCat(path.device, ":", path.port);
}

std::string NumberOrNothing(double value) { return value == 0 ? "" : StrCat(value); }
std::string IndexOrNothing(int value) { return value < 0 ? "" : StrCat(value); }

std::string Size(uint64_t bytes) {
  if (bytes == kUnlimited) return "unlimited";
  return bytes >= kMiB ? StrCat(bytes / kMiB, " MiB") : StrCat(bytes / kKiB, " KiB");
}

std::string GidText(const HostPath& path) {
  if (path.gid_index < 0) return "";
  return StrCat("GID ", path.gid_index, " ", path.gid, path.gid_type.empty() ? "" : ", type ",
                path.gid_type);
}

// What has no column of its own.
std::string Details(const HostPath& path) {
  std::vector<std::string> parts;
  const auto add = [&parts](std::string_view what, const std::string& value) {
    if (!value.empty()) parts.push_back(StrCat(what, value));
  };
  add("", GidText(path));
  if (path.kind == PathKind::kVerbs) add("interface ", path.interface);
  add("driver ", path.driver);
  add("firmware ", path.firmware);
  if (!path.vendor_id.empty())
    parts.push_back(StrCat("card ", path.vendor_id, ":", path.device_id));
  if (path.free_bytes != 0) parts.push_back(StrCat(Size(path.free_bytes), " free"));
  return absl::StrJoin(parts, "; ");
}

void AddPath(const HostPath& path, Table* table) {
  table->AddRow({path.place == 0 ? "no" : StrCat(path.place), std::string(PathKindName(path.kind)),
                 DeviceAndPort(path), std::string(LinkKindName(path.link)), path.address,
                 NumberOrNothing(path.mtu_bytes), NumberOrNothing(path.gbit_per_s), path.state,
                 IndexOrNothing(path.numa_node)});
  table->AddText(path.reason);
  const std::string details = Details(path);
  if (!details.empty()) table->AddText(details);
  for (const std::string& note : path.notes) table->AddText(StrCat("note: ", note));
}

std::string MemlockText(const HostPaths& host) {
  return StrCat("registration limit (memlock): ", Size(host.memlock_bytes), "; an RDMA port takes ",
                Size(host.wanted_lock_bytes), " at least",
                host.may_lock_any && host.memlock_bytes != kUnlimited
                    ? "; this process has CAP_IPC_LOCK, so that only Soft-iWARP keeps to the limit"
                    : "");
}

std::string Wrapped(std::string_view text) {
  return absl::StrJoin(Wrap(text, Table::kTextColumns), "\n") + "\n";
}

std::string PathJson(const HostPath& path) {
  JsonObject json;
  json.Add("path", PathKindName(path.kind));
  json.Add("link", LinkKindName(path.link));
  json.Add("device", path.device);
  json.AddOrNull("port", uint64_t{path.port});
  json.AddOrNull("interface", path.interface);
  json.AddOrNull("address", path.address);
  json.AddOrNull("gid", path.gid);
  json.AddIndexOrNull("gid_index", path.gid_index);
  json.AddOrNull("gid_type", path.gid_type);
  json.AddOrNull("mtu_bytes", uint64_t{path.mtu_bytes});
  json.AddOrNull("gbit_per_s", path.gbit_per_s);
  json.AddOrNull("state", path.state);
  json.AddIndexOrNull("numa_node", path.numa_node);
  json.AddOrNull("driver", path.driver);
  json.AddOrNull("firmware", path.firmware);
  json.AddOrNull("vendor_id", path.vendor_id);
  json.AddOrNull("device_id", path.device_id);
  json.AddOrNull("free_bytes", path.free_bytes);
  json.Add("used", path.place != 0);
  json.AddOrNull("place", uint64_t{path.place});
  json.Add("reason", path.reason);
  std::vector<std::string> notes;
  for (const std::string& note : path.notes) notes.push_back(JsonString(note));
  json.AddJson("notes", JsonArray(notes));
  return json.text();
}

}  // namespace

std::string DevicesTable(const HostPaths& host) {
  Table table({"use", "path", "device", "link", "address", "mtu", "Gb/s", "state", "node"});
  for (const HostPath& path : host.paths) AddPath(path, &table);
  std::string text = table.text() + "\n";
  if (!host.no_rdma.empty()) text += Wrapped(host.no_rdma);
  return text + Wrapped(MemlockText(host)) + Wrapped(host.fabric);
}

std::string DevicesJson(const HostPaths& host) {
  std::vector<std::string> paths;
  for (const HostPath& path : host.paths) paths.push_back(PathJson(path));
  JsonObject json;
  json.Add("format", kJsonFormat);
  json.Add("libfabric", host.fabric);
  json.AddOrNull("no_rdma", host.no_rdma);
  // null: unlimited
  json.AddJson("memlock_bytes",
               host.memlock_bytes == kUnlimited ? "null" : StrCat(host.memlock_bytes));
  json.Add("may_lock_any", host.may_lock_any);
  json.Add("wanted_lock_bytes", host.wanted_lock_bytes);
  json.AddJson("paths", JsonArray(paths, "    "));
  return json.text("  ") + "\n";
}

}  // namespace weft::tools
