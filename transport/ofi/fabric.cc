#include "transport/ofi/fabric.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/log.h"
#include "core/status.h"
#include "core/strings.h"

namespace weft {
namespace {

// libfabric's own codes begin here; smaller ones are the system's errno.
constexpr int kFirstFabricError = FI_EOTHER;

int GetInfo(const DiscoveryQuery& query, uint64_t flags, const fi_info* hints, InfoPtr* found) {
  fi_info* list = nullptr;
  const char* node = query.node.empty() ? nullptr : query.node.c_str();
  if (node != nullptr) flags |= FI_SOURCE | FI_NUMERICHOST;
  const int result =
      LoadedFabricLibrary().getinfo(kFabricVersion, node, nullptr, flags, hints, &list);
  found->reset(list);
  return result;
}

// libfabric lists all its providers then, whatever the hints say.
bool IsBuiltIn(const std::string& provider) {
  InfoPtr found;
  if (GetInfo({}, FI_PROV_ATTR_ONLY, nullptr, &found) != 0) return false;
  for (const fi_info* info = found.get(); info != nullptr; info = info->next) {
    if (provider == info->fabric_attr->prov_name) return true;
  }
  return false;
}

// FI_PROVIDER is a list of the providers that are wanted, or, after ^, of those that are not.
bool IsExcluded(const std::string& provider, absl::string_view filter) {
  if (filter.empty()) return false;
  const bool is_denial = absl::ConsumePrefix(&filter, "^");
  const std::vector<std::string> names = absl::StrSplit(filter, ',');
  const bool is_named = std::find(names.begin(), names.end(), provider) != names.end();
  return is_named == is_denial;
}

std::string WhyNotUsable(const DiscoveryQuery& query) {
  const char* filter = std::getenv("FI_PROVIDER");
  if (filter != nullptr && IsExcluded(query.provider, filter)) {
    return absl::StrCat("it is excluded by FI_PROVIDER=", filter);
  }
  if (!IsBuiltIn(query.provider)) {
    // verbs does not report itself where it finds no device.
    const char* no_device = query.provider == "verbs" ? ", or finds no RDMA device" : "";
    return absl::StrCat("it is not in this library", no_device, " (present: ", ListProviders(),
                        ")");
  }
  if (!query.node.empty()) {
    return absl::StrCat("no interface with address ", query.node, " that it can use");
  }
  return "no interface that it can use";
}

}  // namespace

void CloseFid(fid* object) {
  const int result = fi_close(object);
  if (result != 0)
    WEFT_LOG(kError, "fi_close: ", LoadedFabricLibrary().strerror(-result), " (leaked)");
}

absl::Status FabricStatus(int64_t result, std::string_view what) {
  const int error = static_cast<int>(result < 0 ? -result : result);
  if (error < kFirstFabricError) return StatusFromErrno(error, what);
  return absl::UnavailableError(
      StrCat(what, ": ", LoadedFabricLibrary().strerror(error), " (fi_errno ", error, ")"));
}

std::string LockedMemoryHint() {
  rlimit limit;
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "";
  return absl::StrCat(" (", limit.rlim_cur >> 10,
                      " KiB may be locked: raise it with `ulimit -l unlimited`, LimitMEMLOCK= in a "
                      "systemd unit, or /etc/security/limits.d)");
}

std::string FabricVersionText() {
  if (!LoadFabricLibrary().ok()) return "not installed";
  const uint32_t version = LoadedFabricLibrary().version();
  return absl::StrCat(FI_MAJOR(version), ".", FI_MINOR(version));
}

absl::StatusOr<InfoPtr> Discover(const DiscoveryQuery& query, const fi_info* hints) {
  WEFT_RETURN_IF_ERROR(LoadFabricLibrary());
  InfoPtr found;
  const int result = GetInfo(query, 0, hints, &found);
  if (result == 0 && found != nullptr) return found;
  const std::string what =
      absl::StrCat("provider \"", query.provider, "\" of libfabric ", FabricVersionText());
  if (result != -FI_ENODATA && result != 0) return FabricStatus(result, what);
  return absl::UnavailableError(absl::StrCat(what, ": ", WhyNotUsable(query)));
}

absl::Status FindWay(const fi_info* info) {
  InfoPtr found;
  const int result = GetInfo({info->fabric_attr->prov_name, ""}, 0, info, &found);
  if (result == 0) return absl::OkStatus();
  if (result != -FI_ENODATA) return FabricStatus(result, "finding the way to the peer's address");
  return absl::UnavailableError(
      "nobody answers at the peer's address: its port is down, or another subnet or VLAN");
}

std::string ListProviders() {
  if (!LoadFabricLibrary().ok()) return "none";
  InfoPtr found;
  if (GetInfo({}, FI_PROV_ATTR_ONLY, nullptr, &found) != 0) return "none";
  std::set<std::string> names;
  for (const fi_info* info = found.get(); info != nullptr; info = info->next) {
    const std::string name = info->fabric_attr->prov_name;
    if (name.find("ofi_") == std::string::npos) names.insert(name);
  }
  return names.empty() ? "none" : absl::StrJoin(names, ", ");
}

}  // namespace weft
