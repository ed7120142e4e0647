#include "transport/ofi/shm_link.h"

#include <algorithm>
#include <utility>

#include "core/log.h"
#include "core/status.h"
#include "transport/ofi/quirks.h"
#include "transport/ofi/shm_domain.h"
#include "transport/ofi/shm_greeting.h"
#include "transport/ofi/shm_keeper.h"

namespace weft {
namespace {

// What is copied between processes in one turn of the engine: some 50 us. Larger operations go on
// in the next turn, so that other connections do not wait.
constexpr uint64_t kCopyBytesAtOnce = 256 << 10;

ShmRole Opposite(ShmRole role) {
  return role == ShmRole::kActive ? ShmRole::kPassive : ShmRole::kActive;
}

}  // namespace

ShmLink::ShmLink(ShmDomain* domain, LinkHandler* handler, const LinkPeer& peer, ShmRole role)
    : FabricLink(domain, handler, peer.doorbell),
      shm_(domain),
      role_(role),
      nonce_(peer.nonce),
      peer_process_id_(peer.process_id),
      peer_domain_(peer.address),
      peer_endpoint_(ShmEndpointName(peer.address, peer.nonce, Opposite(role))) {}

ShmLink::~ShmLink() { Detach(absl::CancelledError("the link was closed"), false); }

absl::Status ShmLink::Start() {
  WEFT_ASSIGN_OR_RETURN(
      endpoint_,
      ShmEndpoint::Open(shm_->shared_objects(), ShmEndpointName(shm_->address(), nonce_, role_)));
  ShmKeeper::Get().Opened(endpoint_->name());
  if (role_ == ShmRole::kPassive) return absl::OkStatus();
  WEFT_RETURN_IF_ERROR(CheckShmFileVisible(peer_endpoint_));
  return MeetPeer();
}

// Maps all of the peer that this side needs. Its files exist.
absl::Status ShmLink::MeetPeer() {
  ShmKeeper::Get().Learned(peer_endpoint_);
  met_ = true;
  WEFT_RETURN_IF_ERROR(endpoint_->Insert(peer_endpoint_));
  absl::StatusOr<std::unique_ptr<PeerRegions>> regions =
      PeerRegions::Open(peer_domain_, peer_process_id_);
  int32_t process_id = peer_process_id_;
  if (regions.ok()) {
    regions_ = *std::move(regions);
    LetPeerSleep();
    regions_->Announce(nonce_);
    process_id = regions_->process_id();
  } else {
    WEFT_LOG(kInfo, "shm: one-sided operations go through the provider: ",
             ToStd(regions.status().message()));
  }
  if (ShmGuard* guard = shm_->guard(); guard != nullptr) {
    watch_ = guard->Watch(process_id, endpoint_->name(), peer_endpoint_);
  }
  UseEndpoint(endpoint_->get(), endpoint_->peer());
  return absl::OkStatus();
}

bool ShmLink::TryGreet() {
  const Greeting hello(GreetingKind::kHello, nonce_);
  const ssize_t result =
      fi_inject(endpoint_->get(), hello.bytes, sizeof(hello.bytes), endpoint_->peer());
  WakePeer();  // it has to answer, or has something to read
  if (result == -FI_EAGAIN) return false;
  if (result == 0) {
    BecomeUp();
  } else {
    Fail(FabricStatus(result, "greeting the peer over shm"));
  }
  return true;
}

void ShmLink::OnGreeted() {
  const absl::Status met = MeetPeer();
  if (!met.ok()) {
    Fail(met);
    return;
  }
  // The active side mapped this endpoint, and all that it needs, before it greeted.
  if (HasQuirk(QuirkId::kShmMapsAtOnce)) {
    RemoveShmFile(endpoint_->name());
    RemoveShmFile(peer_endpoint_);
  }
  BecomeUp();
}

// Copies at once where the kernel lets us; a bad key then fails the operation, not the link.
int ShmLink::PostOperation(OperationRecord* record) {
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

// One system call for all pieces, as long as other connections need not wait for it.
bool ShmLink::MoveAtOnce(bool is_read, absl::Span<const Transfer> transfers) {
  if (regions_ == nullptr) return false;
  uint64_t bytes = 0;
  for (const Transfer& transfer : transfers) {
    if (transfer.remote.length > kCopyBytesAtOnce - bytes) return false;
    bytes += transfer.remote.length;
  }
  return regions_->TransferAtOnce(is_read, transfers);
}

// Through the provider, what goes in several steps goes on after the region is closed.
bool ShmLink::closing_reclaims() const { return shm_->regions_->IsReachedDirectly(nonce_); }

// fi_close() takes no lock that a peer could hold, and all that the provider touches of this link
// ends with the endpoint.
void ShmLink::StopProvider(bool peer_is_gone) {
  const bool greeting = ListNode<GreetTag>::linked();
  ListNode<GreetTag>::Unlink();
  shm_->Forget(this);
  regions_.reset();
  shm_->regions_->ForgetLink(nonce_);
  if (endpoint_ != nullptr) {
    if (greeting && !peer_is_gone) {
      shm_->KeepUntilAnswered(std::move(endpoint_), peer_endpoint_, nonce_);
    } else {
      ShmKeeper::Get().Closed(std::move(endpoint_));
    }
  }
  if (met_) ShmKeeper::Get().Forgotten(peer_endpoint_);
  watch_.reset();
  if (peer_is_gone) RemoveShmFilesOf(peer_domain_);
}

}  // namespace weft
