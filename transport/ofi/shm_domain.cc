#include "transport/ofi/shm_domain.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/log.h"
#include "core/status.h"
#include "transport/ofi/hints.h"
#include "transport/ofi/signal_guard.h"

namespace weft {
namespace {

// Entries beyond it are allocated one by one by the provider, so it is no limit, only a size for
// what is usual: the sends and receives of some dozen connections.
constexpr size_t kQueueEntries = 4096;

// Unexpected messages take their entries from the same pool as posted receives: leave them a
// quarter of it. With fewer receives posted than the windows allow, messages wait in the provider's
// queue: a delay, never a loss.
uint32_t PostedReceivesFor(size_t provider_entries) {
  return static_cast<uint32_t>(provider_entries - provider_entries / 4);
}

// A link that closes while its peer lives waits so long for operations that the peer may still
// carry out on our memory. A peer that progresses at all answers within microseconds.
constexpr uint64_t kCloseDrainNs = 20'000'000;

// What is copied between processes in one turn of the engine: some 50 us. Larger operations go on
// in the next turn, so that other connections do not wait.
constexpr uint64_t kCopyBytesAtOnce = 256 << 10;

class ShmLink final : public FabricLink {
 public:
  // `regions` may be null: one-sided operations then go through the provider.
  ShmLink(ShmDomain* domain, LinkHandler* handler, const LinkPeer& peer, fi_addr_t destination,
          std::unique_ptr<PeerRegions> regions)
      : FabricLink(domain, handler, peer.doorbell), shm_(domain), regions_(std::move(regions)) {
    UseEndpoint(domain->endpoint(), destination);
    BecomeUp();
  }
  ~ShmLink() override { Detach(absl::CancelledError("the link was closed"), false); }

 private:
  int PostOperation(OperationRecord* record) override {
    if (regions_ == nullptr) return FabricLink::PostOperation(record);
    const uint64_t part = std::min(record->bytes - record->bytes_posted, kCopyBytesAtOnce);
    const absl::Status status =
        regions_->Transfer(record->is_read, record->local + record->bytes_posted, part,
                           record->remote_key, record->remote_offset + record->bytes_posted);
    record->bytes_posted += part;
    if (status.ok() && !record->AllPosted()) return kMoreToDo;
    FinishLater(record, status);
    return 0;
  }

  void StopProvider(bool peer_is_gone) override {
    if (!peer_is_gone && HasPostedWorks()) shm_->Drain(this, kCloseDrainNs);
  }

  ShmDomain* const shm_;
  const std::unique_ptr<PeerRegions> regions_;
};

// Everything of a closed domain that the provider may still hold on to, in the order of creation.
struct ParkedShmEndpoint final : ParkedEndpoint {
  InfoPtr info;
  FabricPtr fabric;
  DomainPtr domain;
  QueuePtr queue;
  AddressVectorPtr addresses;
  EndpointPtr endpoint;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LinkDomain>> ShmDomain::Open(const OfiOptions& options) {
  RemoveShmFilesOfDeadOwners();
  WEFT_ASSIGN_OR_RETURN(InfoPtr info, Discover({"shm", ""}, ShmHints().get()));
  std::free(info->src_addr);
  info->src_addr = strdup(NewShmAddress().c_str());
  info->src_addrlen = std::strlen(static_cast<char*>(info->src_addr)) + 1;
  WEFT_ASSIGN_OR_RETURN(Objects objects, OpenObjects(std::move(info), FI_WAIT_NONE, kQueueEntries));
  std::unique_ptr<ShmDomain> domain(new ShmDomain(options, std::move(objects)));
  WEFT_RETURN_IF_ERROR(domain->OpenEndpoint());
  return std::unique_ptr<LinkDomain>(std::move(domain));
}

ShmDomain::ShmDomain(const OfiOptions& options, Objects objects)
    : FabricDomain(options, std::move(objects), PathKind::kShm) {}

absl::Status ShmDomain::OpenEndpoint() {
  fi_av_attr attributes = {};
  attributes.type = FI_AV_TABLE;
  attributes.count = kMaxPeers;
  fid_av* addresses = nullptr;
  if (int result = fi_av_open(objects().domain.get(), &attributes, &addresses, nullptr);
      result != 0) {
    return FabricStatus(result, "fi_av_open (shm)");
  }
  addresses_.reset(addresses);

  fid_ep* endpoint = nullptr;
  {
    SignalGuard guard;
    if (int result = fi_endpoint(objects().domain.get(), objects().info.get(), &endpoint, nullptr);
        result != 0) {
      return FabricStatus(result, "fi_endpoint (shm)");
    }
    endpoint_.reset(endpoint);
    int result = fi_ep_bind(endpoint, &addresses_->fid, 0);
    if (result == 0) result = fi_ep_bind(endpoint, &objects().queue->fid, FI_TRANSMIT | FI_RECV);
    if (result == 0) result = fi_enable(endpoint);
    if (result != 0) return FabricStatus(result, "enabling the shm endpoint");
  }

  char name[256] = {};
  size_t bytes = sizeof(name) - 1;
  if (int result = fi_getname(&endpoint->fid, name, &bytes); result != 0) {
    return FabricStatus(result, "fi_getname (shm)");
  }
  WEFT_RETURN_IF_ERROR(CheckShmAddress(name));
  mutable_path().local = name;
  ShmKeeper::Get().Opened(address());
  WEFT_ASSIGN_OR_RETURN(ownership_, ShmOwnership::Claim(address()));
  WEFT_ASSIGN_OR_RETURN(regions_, RegionTable::Create(address()));
  UseKeys(regions_.get());
  ReceiveAt(endpoint, PostedReceivesFor(objects().info->rx_attr->size));
  return absl::OkStatus();
}

ShmDomain::~ShmDomain() {
  if (address().empty()) return;  // never opened
  ReleasePool();
  ownership_.reset();
  auto parked = std::make_unique<ParkedShmEndpoint>();
  parked->info = std::move(objects().info);
  parked->fabric = std::move(objects().fabric);
  parked->domain = std::move(objects().domain);
  parked->queue = std::move(objects().queue);
  parked->addresses = std::move(addresses_);
  parked->endpoint = std::move(endpoint_);
  ShmKeeper::Get().Closed(address(), std::move(parked));
  for (const auto& [peer, unused] : known_) ShmKeeper::Get().Forgotten(peer);
}

absl::StatusOr<fi_addr_t> ShmDomain::Resolve(const std::string& address) {
  WEFT_RETURN_IF_ERROR(CheckShmAddress(address));
  if (const auto found = known_.find(address); found != known_.end()) return found->second;
  WEFT_RETURN_IF_ERROR(CheckShmVisible(address));
  if (known_.size() >= kMaxPeers) {
    return absl::ResourceExhaustedError(
        absl::StrCat("this engine has met ", kMaxPeers,
                     " peers over shm, the provider's limit; use tcp, or ", "another engine"));
  }
  fi_addr_t inserted = FI_ADDR_UNSPEC;
  if (fi_av_insert(addresses_.get(), address.c_str(), 1, &inserted, 0, nullptr) != 1) {
    return absl::UnavailableError(absl::StrCat("the shm provider does not take ", address));
  }
  ShmKeeper::Get().Learned(address);
  known_.emplace(address, inserted);
  return inserted;
}

absl::StatusOr<std::unique_ptr<Link>> ShmDomain::OpenLink(const LinkPeer& peer,
                                                          LinkHandler* handler) {
  WEFT_ASSIGN_OR_RETURN(const fi_addr_t destination, Resolve(peer.address));
  absl::StatusOr<std::unique_ptr<PeerRegions>> regions =
      PeerRegions::Open(peer.address, peer.process_id);
  if (!regions.ok()) {
    WEFT_LOG(kInfo,
             "shm: one-sided operations go through the provider: ", regions.status().message());
  }
  return std::unique_ptr<Link>(
      new ShmLink(this, handler, peer, destination, regions.ok() ? *std::move(regions) : nullptr));
}

absl::StatusOr<std::unique_ptr<Link>> ShmDomain::Connect(const LinkPeer& peer,
                                                         LinkHandler* handler) {
  return OpenLink(peer, handler);
}

absl::StatusOr<std::unique_ptr<Link>> ShmDomain::Accept(const LinkPeer& peer,
                                                        LinkHandler* handler) {
  return OpenLink(peer, handler);
}

}  // namespace weft
