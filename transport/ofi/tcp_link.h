// A link over one connected tcp endpoint. The domain moves it along; see tcp_domain.h.
//
// Threads: the engine's.
#pragma once

#include <cstdint>

#include "transport/ofi/fabric_link.h"

namespace weft {

class TcpDomain;

class TcpLink final : public FabricLink {
 public:
  TcpLink(TcpDomain* domain, LinkHandler* handler, uint64_t nonce);
  ~TcpLink() override;

  // Owns the endpoint from here on.
  void Take(EndpointPtr endpoint);

  void OnConnected();
  void OnDisconnected(const absl::Status& why);

  uint64_t nonce() const { return nonce_; }
  fid_t endpoint_fid() const { return endpoint_ == nullptr ? nullptr : &endpoint_->fid; }

 private:
  void StopProvider(bool peer_is_gone) override;
  void EndConnecting();

  TcpDomain* const tcp_;
  const uint64_t nonce_;
  EndpointPtr endpoint_;
  bool connecting_ = true;
};

}  // namespace weft
