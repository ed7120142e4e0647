// A link over one connected endpoint. The domain moves it along; see msg_domain.h.
//
// Threads: the engine's.
#pragma once

#include <cstdint>

#include "transport/ofi/fabric_domain.h"
#include "transport/ofi/fabric_link.h"
#include "transport/prefetch_list.h"

namespace weft {

class MsgDomain;

class MsgLink final : public FabricLink {
 public:
  MsgLink(MsgDomain* domain, LinkHandler* handler, uint64_t nonce);
  ~MsgLink() override;

  // Owns the endpoint from here on, and its place in the queues that it completes to.
  void Take(EndpointPtr endpoint, const EndpointQueues& queues);

  // Of links in groups, which alone go cold.
  PrefetchList& prefetch() override { return *prefetch_; }

  void OnConnected();
  void OnDisconnected(const absl::Status& why);

  uint64_t nonce() const { return nonce_; }
  bool connecting() const { return connecting_; }
  fid_ep* endpoint() const { return endpoint_.get(); }
  fid_t endpoint_fid() const { return endpoint_ == nullptr ? nullptr : &endpoint_->fid; }

 private:
  void StopProvider(bool peer_is_gone) override;
  void GoCold() override;
  void EndConnecting();

  MsgDomain* const domain_;
  const uint64_t nonce_;
  PrefetchList* const prefetch_;  // the domain's
  EndpointPtr endpoint_;
  EndpointQueues queues_;  // of endpoint_
  bool connecting_ = true;
};

}  // namespace weft
