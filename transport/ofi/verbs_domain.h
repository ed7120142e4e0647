// Links over libfabric's verbs: reliable connected queue pairs on InfiniBand, RoCE or iWARP,
// brought up by rdma_cm, with one shared receive queue. One domain is one address of one port.
//
// What is different from tcp:
//   - Memory is registered with the device, which chooses the keys; peers count from the memory's
//     address. The device's limits bound the queues: they come out as large as it allows.
//   - The completion queue holds what it was made for; one entry more ends every connection. So
//     sends and operations in flight are counted, and wait their turn
//     (FabricTraits::max_in_flight).
//   - Immediate data and the provider's atomics are not used: iWARP has neither.
//   - The provider finds the way to a peer's address inside fi_endpoint(), and blocks for two
//     seconds where nobody answers. So a thread asks first (address_probe.h), and the endpoint is
//     made when the way is known.
//   - A peer whose host is gone is reported late or never: LinkPeer's lifeline decides. A port that
//     is down is not reported at all: it is looked at (port_watch.h), and its links end.
//   - A failed operation breaks its connection. On iWARP it may even be reported as done before.
//   - Devices in software work on the processors that engines spin on: who looks in vain yields
//     (yield_pace.h).
//
// Threads: the engine's; one short-lived thread for each link that connects, unless
//   OfiOptions::may_start_threads is false: then Connect() may block for two seconds.
#pragma once

#include <list>
#include <memory>

#include "transport/ofi/address_probe.h"
#include "transport/ofi/fabric_domain.h"
#include "transport/ofi/port_watch.h"
#include "transport/ofi/yield_pace.h"

namespace weft {

class VerbsDomain final : public FabricDomain {
 public:
  // 256 connections with windows of 64, and half as much in flight the other way: together below
  // the 32,767 entries of the smallest completion queue seen (Soft-RoCE). Devices that allow less
  // get half, and half of that. Each entry is 64 bytes of locked memory.
  static constexpr QueueSizes kQueues = {16384, 8192};

  // `queues`: what to ask the device for.
  static absl::StatusOr<std::unique_ptr<LinkDomain>> Open(const OfiOptions& options,
                                                          const QueueSizes& queues = kQueues);
  ~VerbsDomain() override;

  absl::StatusOr<std::unique_ptr<Link>> Connect(const LinkPeer& peer,
                                                LinkHandler* handler) override;
  absl::StatusOr<std::unique_ptr<Link>> Accept(const LinkPeer& peer, LinkHandler* handler) override;
  void Forget(FabricLink* link) override;

 protected:
  int PollConnections(bool found_completions) override;
  void Reject(const fi_info& request) override;
  bool connects_from_listener() const override { return true; }

 private:
  // Receives that may wait until what they brought is answered: one for each peer of a few that
  // call at a time. Each is a slot; posting one takes as long as a call's way through the rpc.
  static constexpr uint32_t kSpareReceives = 8;
  // Addresses asked for at one time; further connects wait, within their own time limits. An answer
  // takes some hundred microseconds where there is one, so a few threads serve hundreds of
  // connects.
  static constexpr size_t kMaxProbes = 8;

  struct Pending {
    std::unique_ptr<AddressProbe> probe;  // null: waits for a thread
    FabricLink* link;                     // null: it has gone meanwhile
    SocketAddress remote;
  };

  VerbsDomain(const OfiOptions& options, std::shared_ptr<FabricObjects> objects,
              const FabricTraits& traits, bool is_hardware);

  int FinishProbes();
  void StartProbes();
  bool OnPort(const absl::Status& found);

  const bool is_hardware_;
  PortWatch port_;
  YieldPace yields_;  // in software
  std::unique_ptr<ProbeBell> bell_;
  std::list<Pending> probes_;  // in the order of connects; bounded by the number of links
  size_t probing_ = 0;         // of these, with a thread
};

}  // namespace weft
