#include "transport/control/path_policy.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "core/status.h"
#include "core/strings.h"
#include "transport/framing/credit_window.h"
#include "transport/options.h"

namespace weft {
namespace {

// Of LinkOptions::max_outstanding_operations: as many as the send queue of any card that we know of
// holds for one connection with room to spare, and far more than keep a link busy.
constexpr uint32_t kMaxOperations = 1024;
constexpr size_t kMaxDeviceNameBytes = 64;  // the kernel's bound of a device's name

// --- the environment ----------------------------------------------------------------------------

// A variable that is set and not empty.
class Variable {
 public:
  explicit Variable(const char* name) : name_(name) {
    const char* value = std::getenv(name);
    if (value != nullptr) value_ = value;
  }
  bool is_set() const { return !value_.empty(); }
  const std::string& value() const { return value_; }
  // "WEFT_PATHS=tcp", fit for an error text.
  std::string text() const { return StrCat(name_, "=", Printable(value_, 200)); }

 private:
  const char* const name_;
  std::string value_;
};

std::vector<std::string> SplitList(const std::string& text) {
  std::vector<std::string> parts = {""};
  for (const char c : text) {
    if (c == ',') {
      parts.emplace_back();
    } else {
      parts.back().push_back(c);
    }
  }
  return parts;
}

// --- which RDMA devices -------------------------------------------------------------------------

absl::Status CheckDevices(const std::vector<std::string>& devices, std::string_view where) {
  if (devices.size() > kMaxListed) {
    return absl::InvalidArgumentError(
        StrCat(where, " has ", devices.size(), " names; the limit is ", kMaxListed));
  }
  for (const std::string& device : devices) {
    const bool is_name = !device.empty() && device.size() <= kMaxDeviceNameBytes &&
                         std::all_of(device.begin(), device.end(), [](char c) {
                           return c > ' ' && c < 0x7f && c != ',' && c != '/';
                         });
    if (is_name) continue;
    return absl::InvalidArgumentError(
        StrCat(where, ": \"", Printable(device, kMaxDeviceNameBytes),
               "\" is no RDMA device; use names as in mlx5_0 (all its ports) or mlx5_0:1"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Subnet>> ParseSubnets(const std::vector<std::string>& texts,
                                                 std::string_view where) {
  if (texts.size() > kMaxListed) {
    return absl::InvalidArgumentError(
        StrCat(where, " has ", texts.size(), " subnets; the limit is ", kMaxListed));
  }
  std::vector<Subnet> subnets;
  for (const std::string& text : texts) {
    absl::StatusOr<Subnet> subnet = ParseSubnet(text);
    if (!subnet.ok()) return Annotate(subnet.status(), where);
    subnets.push_back(*std::move(subnet));
  }
  return subnets;
}

absl::StatusOr<int> ReadGidIndex(const LinkOptions& options) {
  if (options.gid_index > kMaxGidIndex || options.gid_index < -1) {
    return absl::InvalidArgumentError(StrCat("LinkOptions::gid_index is ", options.gid_index,
                                             "; it must be -1 (any), or 0..", kMaxGidIndex));
  }
  const Variable variable(kGidIndexVariable);
  if (options.gid_index >= 0 || !variable.is_set()) return options.gid_index;
  const std::string& text = variable.value();
  const bool is_number = text.size() <= 4 && std::all_of(text.begin(), text.end(), [](char c) {
                           return c >= '0' && c <= '9';
                         });
  const int index = is_number ? std::atoi(text.c_str()) : -1;
  if (index >= 0 && index <= kMaxGidIndex) return index;
  return absl::InvalidArgumentError(
      StrCat(variable.text(), ": it must be a number, 0..", kMaxGidIndex));
}

absl::StatusOr<bool> ReadRouted(const LinkOptions& options) {
  const Variable variable(kRoutedVariable);
  if (options.allow_routed) return true;
  if (!variable.is_set() || variable.value() == "0") return false;
  if (variable.value() == "1") return true;
  return absl::InvalidArgumentError(StrCat(variable.text(), ": it must be 0 or 1"));
}

absl::Status ReadRdma(const LinkOptions& options, PathPolicy* policy) {
  const Variable devices(kDevicesVariable);
  const bool own_devices = !options.devices.empty();
  if (own_devices || devices.is_set()) {
    policy->rdma.devices = own_devices ? options.devices : SplitList(devices.value());
  }
  WEFT_RETURN_IF_ERROR(CheckDevices(
      policy->rdma.devices, own_devices ? std::string("LinkOptions::devices") : devices.text()));
  const Variable subnets(kSubnetsVariable);
  if (!options.subnets.empty()) {
    WEFT_ASSIGN_OR_RETURN(policy->rdma.subnets,
                          ParseSubnets(options.subnets, "LinkOptions::subnets"));
  } else if (subnets.is_set()) {
    WEFT_ASSIGN_OR_RETURN(policy->rdma.subnets,
                          ParseSubnets(SplitList(subnets.value()), subnets.text()));
  }
  WEFT_ASSIGN_OR_RETURN(policy->rdma.gid_index, ReadGidIndex(options));
  WEFT_ASSIGN_OR_RETURN(policy->allow_routed, ReadRouted(options));
  policy->rdma.first_port = options.first_port;
  return absl::OkStatus();
}

// --- bounds -------------------------------------------------------------------------------------

absl::Status CheckNoneTwice(const std::vector<PathKind>& kinds, std::string_view where) {
  for (size_t i = 0; i < kinds.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (kinds[i] != kinds[j]) continue;
      return absl::InvalidArgumentError(StrCat(where, " names ", PathKindName(kinds[i]), " twice"));
    }
  }
  return absl::OkStatus();
}

absl::Status OutOfBounds(std::string_view option, uint64_t value, std::string_view bounds) {
  return absl::InvalidArgumentError(
      StrCat("LinkOptions::", option, " is ", value, "; it must be ", bounds));
}

}  // namespace

absl::StatusOr<PathPolicy> ReadPathPolicy(const LinkOptions& options) {
  PathPolicy policy;
  WEFT_ASSIGN_OR_RETURN(PathKinds kinds, ReadPathKinds(options));
  static_cast<PathKinds&>(policy) = std::move(kinds);
  WEFT_RETURN_IF_ERROR(ReadRdma(options, &policy));
  return policy;
}

std::vector<PathOffer> ApplyPolicy(const PathPolicy& policy, const std::vector<PathOffer>& all) {
  std::vector<PathOffer> offers;
  for (const PathKind kind : policy.allowed) {
    const size_t before = offers.size();
    std::copy_if(all.begin(), all.end(), std::back_inserter(offers),
                 [kind](const PathOffer& offer) { return offer.kind == kind; });
    if (offers.size() > before) continue;
    PathOffer missing;
    missing.kind = kind;
    missing.unavailable = "this path is not part of the program";
    offers.push_back(std::move(missing));
  }
  for (const PathPolicy::Denial& denial : policy.denied) {
    const auto found = std::find_if(all.begin(), all.end(), [&denial](const PathOffer& offer) {
      return offer.kind == denial.kind;
    });
    if (found == all.end()) continue;
    offers.push_back(*found);
    offers.back().device.clear();  // it is the kind that is denied
    offers.back().host.clear();
    offers.back().unavailable = denial.why;
  }
  return offers;
}

std::string DescribeEnvironment() {
  constexpr struct {
    const char* name;
    const char* unset;
  } kVariables[] = {
      {kPathsVariable, "all paths but ofi_tcp, shm first, then verbs, then tcp"},
      {kDevicesVariable, "all RDMA devices"},
      {kGidIndexVariable, "the GID that the kernel chooses for an address"},
      {kSubnetsVariable, "all addresses of RDMA devices"},
      {kRoutedVariable, "RDMA within a subnet only"},
  };
  std::string text;
  for (const auto& entry : kVariables) {
    const Variable variable(entry.name);
    text = variable.is_set() ? StrCat(text, variable.text(), "\n")
                             : StrCat(text, entry.name, " is not set: ", entry.unset, "\n");
  }
  return text;
}

absl::Status CheckLinkOptions(const LinkOptions& options, const std::string& hello) {
  if (options.window_slots < kMinWindowSlots || options.window_slots > kMaxWindowSlots) {
    return OutOfBounds("window_slots", options.window_slots, "4..1024");
  }
  if (options.max_outstanding_operations < 1 ||
      options.max_outstanding_operations > kMaxOperations) {
    return OutOfBounds("max_outstanding_operations", options.max_outstanding_operations, "1..1024");
  }
  if (options.connect_timeout_ns == 0) return OutOfBounds("connect_timeout_ns", 0, "at least 1");
  if (options.peer_timeout_ns != 0 && (options.peer_timeout_ns < kMinPeerTimeoutNs ||
                                       options.peer_timeout_ns > kMaxPeerTimeoutNs)) {
    return OutOfBounds("peer_timeout_ns", options.peer_timeout_ns,
                       "0 or 100000000 to 3600000000000 (100 ms to 1 h)");
  }
  if (options.transfer_timeout_ns != 0 && (options.transfer_timeout_ns < kMinTransferTimeoutNs ||
                                           options.transfer_timeout_ns > kMaxTransferTimeoutNs)) {
    return OutOfBounds("transfer_timeout_ns", options.transfer_timeout_ns,
                       "0 or 100000000 to 3600000000000 (100 ms to 1 h)");
  }
  if (options.path_timeout_ns == 0) return OutOfBounds("path_timeout_ns", 0, "at least 1");
  if (options.server_engine != kAnyEngine && options.server_engine >= kMaxEngines) {
    return OutOfBounds("server_engine", options.server_engine,
                       "0 to 63, kAnyEngine, or at a channel kSameEngine");
  }
  WEFT_RETURN_IF_ERROR(CheckNoneTwice(options.paths, "LinkOptions::paths"));
  WEFT_RETURN_IF_ERROR(CheckNoneTwice(options.denied_paths, "LinkOptions::denied_paths"));
  if (hello.size() > kMaxHelloBytes) {
    return absl::InvalidArgumentError(
        StrCat("the hello has ", hello.size(), " bytes; the limit is ", kMaxHelloBytes));
  }
  return absl::OkStatus();
}

}  // namespace weft
