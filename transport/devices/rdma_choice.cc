#include "transport/devices/rdma_choice.h"

#include <algorithm>
#include <tuple>

#include "core/strings.h"
#include "transport/devices/rdma_reasons.h"
#include "transport/devices/sysfs.h"

namespace weft {
namespace {

struct Usable {
  const RdmaPort* port;
  const RdmaAddress* address;
  bool is_near;
  size_t turn = 0;  // of its port, among those that are alike
};

bool IsNear(const RdmaPort& port, const RdmaProcessFacts& process) {
  const auto& near = process.near_nodes;
  return port.numa_node < 0 || near.empty() ||
         std::find(near.begin(), near.end(), port.numa_node) != near.end();
}

bool IsV6(const RdmaAddress& address) { return address.host.find(':') != std::string::npos; }

// Of addresses on ports that are alike it is equal.
auto Rank(const Usable& x) {
  return std::make_tuple(x.address->link, !x.is_near, -x.port->gbit_per_s);
}

bool IsPreferred(const Usable& a, const Usable& b) {
  const auto key = [](const Usable& x) {
    return std::make_tuple(Rank(x), IsV6(*x.address), x.turn);
  };
  return key(a) < key(b);  // a stable sort keeps addresses of one port in their order
}

// Gives each port its turn: those that are alike stand in a circle, in their order, and the filter
// says which is the first. (An address of another kind has another circle.)
void SetTurns(uint32_t first_port, std::vector<Usable>* usable) {
  for (Usable& one : *usable) {
    std::vector<const RdmaPort*> alike;
    for (const Usable& other : *usable) {
      const bool is_new = alike.empty() || alike.back() != other.port;  // a port's stand together
      if (Rank(other) == Rank(one) && is_new) alike.push_back(other.port);
    }
    const auto place = std::find(alike.begin(), alike.end(), one.port) - alike.begin();
    const size_t count = alike.size();
    one.turn = (static_cast<size_t>(place) + count - first_port % count) % count;
  }
}

RdmaOffer ToOffer(const RdmaPort& port, const RdmaAddress* address, std::string unusable) {
  RdmaOffer offer;
  offer.device = port.name();
  offer.link = port.link;
  if (address != nullptr) offer.address = *address;
  offer.unusable = std::move(unusable);
  return offer;
}

// Adds the port's usable addresses. If it has none: why not the first, else why not the port.
std::string CollectUsable(const RdmaPort& port, const RdmaFilter& filter,
                          const RdmaProcessFacts& process, std::vector<Usable>* usable) {
  if (port.addresses.empty()) return WhyNotUsable(port, nullptr, filter, process);
  const size_t before = usable->size();
  std::string first_reason;
  for (const RdmaAddress& address : port.addresses) {
    std::string why = WhyNotUsable(port, &address, filter, process);
    if (why.empty()) {
      usable->push_back({&port, &address, IsNear(port, process), /*turn=*/0});
    } else if (first_reason.empty()) {
      first_reason = std::move(why);
    }
  }
  return usable->size() == before ? first_reason : "";
}

// Drivers of network cards that bring RDMA in a module of its own.
struct RdmaModule {
  const char* driver;
  const char* module;
};
constexpr RdmaModule kRdmaModules[] = {
    {"mlx5_core", "mlx5_ib"}, {"mlx4_core", "mlx4_ib"},   {"cxgb4", "iw_cxgb4"},
    {"ice", "irdma"},         {"i40e", "irdma"},          {"bnxt_en", "bnxt_re"},
    {"qede", "qedr"},         {"hns3", "hns_roce_hw_v2"},
};

// "eth0 is driven by mlx5_core: modprobe mlx5_ib"; empty if no card here is known to do RDMA.
std::string FindIdleCard(const SysfsFolder& sysfs) {
  const SysfsFolder all = sysfs / "class/net";
  for (const std::string& name : all.Names()) {
    const std::string driver = (all / name).LinkName("device/driver");
    for (const RdmaModule& known : kRdmaModules) {
      if (driver != known.driver) continue;
      return StrCat(name, " is a card of ", driver,
                    ", whose RDMA may be in another module: modprobe ", known.module);
    }
  }
  return "";
}

}  // namespace

std::string WhyNotUsable(const RdmaPort& port, const RdmaAddress* address, const RdmaFilter& filter,
                         const RdmaProcessFacts& process) {
  std::string why = WhyDeviceDenied(port, filter);
  if (why.empty()) why = WhyNodeTypeDenied(port);
  if (why.empty()) why = WhyDeviceFilesDenied(port);
  if (why.empty()) why = WhyNotActive(port);
  if (why.empty() && address == nullptr) why = WhyNoAddress(port);
  if (!why.empty() || address == nullptr) return why;
  why = WhyAddressDenied(port, *address, filter);
  if (why.empty()) why = WhyGidDenied(port, *address, filter);
  if (why.empty()) why = WhyTooFewToLock(port, process);
  return why;
}

std::vector<RdmaOffer> ChooseRdma(const std::vector<RdmaPort>& ports, const RdmaFilter& filter,
                                  const RdmaProcessFacts& process) {
  std::vector<Usable> usable;
  std::vector<RdmaOffer> unusable;
  for (const RdmaPort& port : ports) {
    std::string why = CollectUsable(port, filter, process, &usable);
    if (why.empty()) continue;
    const RdmaAddress* address = port.addresses.empty() ? nullptr : &port.addresses[0];
    unusable.push_back(ToOffer(port, address, std::move(why)));
  }
  SetTurns(filter.first_port, &usable);
  std::stable_sort(usable.begin(), usable.end(), IsPreferred);
  std::vector<RdmaOffer> offers;
  offers.reserve(usable.size() + unusable.size());
  for (const Usable& one : usable) offers.push_back(ToOffer(*one.port, one.address, ""));
  offers.insert(offers.end(), unusable.begin(), unusable.end());
  offers.resize(std::min(offers.size(), kMaxRdmaOffers));
  return offers;
}

std::string WhyNoRdma(const RdmaSources& sources) {
  const SysfsFolder sysfs(sources.sysfs);
  if (!(sysfs / "class").Exists()) {
    return StrCat("whether there are RDMA devices is unknown: ", sources.sysfs,
                  " is not there: mount -t sysfs sysfs ", sources.sysfs);
  }
  const std::string card = FindIdleCard(sysfs);
  const bool has_core = (sysfs / "class/infiniband").Exists();
  const std::string what =
      has_core ? "no RDMA device, though the kernel's RDMA core is loaded" : "no RDMA device";
  return StrCat(what, ": ",
                card.empty()
                    ? "without a card, Soft-RoCE gives one for trying: modprobe rdma_rxe && "
                      "rdma link add rxe0 type rxe netdev INTERFACE"
                    : card);
}

}  // namespace weft
