#include "transport/control/rdma_offers.h"

#include <utility>

#include "core/strings.h"

namespace weft {

uint64_t WantedLockBytes(uint32_t window_slots, uint32_t slot_bytes) {
  constexpr uint64_t kQueueBytes = uint64_t{4} << 20;  // some 25,000 entries: ofi/verbs_domain.cc
  return kQueueBytes + uint64_t{2} * window_slots * slot_bytes + kMaxMessageBytes;
}

RdmaView ReadRdmaView(uint64_t wanted_lock_bytes, int numa_node) {
  RdmaView view;
  RdmaSources sources;
  sources.interfaces = ReadInterfaceAddresses();
  view.ports = ReadRdmaPorts(sources);
  if (view.ports.empty()) {
    view.why_none = WhyNoRdma(sources);
  } else {
    view.process = ReadRdmaProcessFacts(wanted_lock_bytes, numa_node);
  }
  return view;
}

std::vector<PathOffer> RdmaOffers::Choose(const RdmaFilter& filter, uint64_t now_ns) {
  if (!std::exchange(has_read_, true) || now_ns - read_ns_ >= kRefreshNs) {
    view_ = read_();
    read_ns_ = now_ns;
  }
  std::vector<PathOffer> offers;
  for (RdmaOffer& chosen : ChooseRdma(view_.ports, filter, view_.process)) {
    PathOffer offer;
    offer.device = std::move(chosen.device);
    offer.link = chosen.link;
    offer.host = std::move(chosen.address.host);
    offer.prefix_bits = chosen.address.prefix_bits;
    offer.unavailable = std::move(chosen.unusable);
    offers.push_back(std::move(offer));
  }
  if (offers.empty()) offers.emplace_back().unavailable = view_.why_none;
  return offers;
}

}  // namespace weft
