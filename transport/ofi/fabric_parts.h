// What a domain of libfabric consists of, for the domain and for its links: each part has its own
// state, and knows none of the others but through what it was given when it was made.
//
// Threads: the engine's.
// Lifetime: part of the domain; links and regions are destroyed before. Members are destroyed in
//   the order that libfabric wants, the last first.
#pragma once

#include <cstdint>
#include <memory>

#include "transport/link.h"
#include "transport/link_lists.h"
#include "transport/ofi/completion_queue.h"
#include "transport/ofi/domain_slots.h"
#include "transport/ofi/fabric_objects.h"
#include "transport/ofi/ofi.h"
#include "transport/ofi/outstanding_operations.h"
#include "transport/ofi/posted_receives.h"
#include "transport/ofi/registration.h"

namespace weft {

// How a provider differs, as far as this code has to know. What libfabric's own attributes tell
// (largest transfer, how memory is addressed) is taken from there.
struct FabricTraits {
  PathKind kind;
  LinkKind link;
  PostedReceives::Limits receives;
  // Sends and parts of operations in the provider's hands at one time, over all links: what its
  // completion queue has room for beside the receives.
  uint32_t max_in_flight = ~uint32_t{0};
  // Closing a registration returns when nothing that a peer had begun touches the memory any more.
  bool closing_reclaims = false;
  // A send or a write may wait for the peer's provider to say that it has arrived
  // (FI_DELIVERY_COMPLETE). A send is then a fence (FabricLink::SendFence); a write is then
  // acknowledged.
  bool fences = false;
  // RemoteAccess::reads_prove_writes().
  bool reads_prove_writes = false;
  // What is posted behind a read may be over before the read is. libfabric takes the oldest work of
  // an endpoint for the one that is over, and its own records are then on two endpoints' lists: it
  // ends by a wild pointer. So nothing else is posted while a read is under way (FabricLink::Held).
  bool completes_out_of_order = false;
  // A failed operation has broken the connection (reliable connected queue pairs do).
  bool errors_end_links = false;
};

struct FabricParts {
  FabricParts(const OfiOptions& options, std::shared_ptr<FabricObjects> fabric_objects,
              const FabricTraits& fabric_traits);

  // Constant after construction.
  const FabricTraits traits;
  const std::shared_ptr<FabricObjects> objects;
  const uint64_t max_transfer_bytes;
  const uint64_t max_key;

  LinkDomainStats stats;
  Registrar registrar;
  DomainSlots slots;
  PostedReceives receives;
  OutstandingOperations operations;
  CompletionQueue queue;
  LinkLists<FabricLink> links;
};

}  // namespace weft
