// A link over one connected endpoint. The domain moves it along; see msg_domain.h.
//
// Threads: the engine's.
#pragma once

#include <cstdint>

#include "transport/ofi/fabric_domain.h"
#include "transport/ofi/fabric_link.h"

namespace weft {

class MsgDomain;

class MsgLink final : public FabricLink {
 public:
  MsgLink(MsgDomain* domain, LinkHandler* handler, uint64_t nonce);
  ~MsgLink() override;

  // Owns the endpoint from here on.
  void Take(EndpointPtr endpoint);

  void OnConnected();
  void OnDisconnected(const absl::Status& why);

  uint64_t nonce() const { return nonce_; }
  bool connecting() const { return connecting_; }
  fid_ep* endpoint() const { return endpoint_.get(); }
  fid_t endpoint_fid() const { return endpoint_ == nullptr ? nullptr : &endpoint_->fid; }

 private:
  void StopProvider(bool peer_is_gone) override;
  void EndConnecting();

  MsgDomain* const domain_;
  const uint64_t nonce_;
  EndpointPtr endpoint_;
  bool connecting_ = true;
};

}  // namespace weft
