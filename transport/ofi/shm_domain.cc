#include "transport/ofi/shm_domain.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/log.h"
#include "core/status.h"
#include "transport/ofi/hints.h"
#include "transport/ofi/shm_greeting.h"
#include "transport/ofi/shm_keeper.h"
#include "transport/ofi/shm_name.h"

namespace weft {
namespace {

// Entries of the shared receive context: 256 connections with windows of 64. Some 5 MB.
constexpr uint32_t kReceiveEntries = 16384;
// Left for messages that come before their receive is posted: those of greetings, mostly.
constexpr uint32_t kUnexpectedEntries = 256;

// How long the closing of a domain waits for peers to see links that were given up.
constexpr std::chrono::milliseconds kAnswerPatience{20};

}  // namespace

absl::StatusOr<std::unique_ptr<LinkDomain>> ShmDomain::Open(const OfiOptions& options) {
  RemoveShmFilesOfDeadOwners();
  WEFT_ASSIGN_OR_RETURN(InfoPtr info, Discover({"shm", ""}, ShmHints().get()));
  OfiOptions bounded = options;
  bounded.slot_bytes =
      std::min(options.slot_bytes, static_cast<uint32_t>(info->tx_attr->inject_size));
  WEFT_ASSIGN_OR_RETURN(std::shared_ptr<FabricObjects> objects,
                        FabricObjects::Open(std::move(info), FI_WAIT_NONE, {kReceiveEntries, 0}));
  std::unique_ptr<ShmDomain> domain(new ShmDomain(bounded, std::move(objects)));
  const std::string name = NewShmDomainName();
  WEFT_ASSIGN_OR_RETURN(domain->regions_, RegionTable::Create(name));
  domain->mutable_path().local = name;
  domain->UseKeys(domain->regions_.get());
  if (options.may_start_threads) domain->guard_ = ShmGuard::Get();
  return std::unique_ptr<LinkDomain>(std::move(domain));
}

ShmDomain::ShmDomain(const OfiOptions& options, std::shared_ptr<FabricObjects> objects)
    : FabricDomain(
          options, std::move(objects),
          {PathKind::kShm, LinkKind::kSharedMemory, kReceiveEntries - kUnexpectedEntries}) {}

ShmDomain::~ShmDomain() {
  const auto give_up = std::chrono::steady_clock::now() + kAnswerPatience;
  while (!unanswered_.empty() && std::chrono::steady_clock::now() < give_up) {
    HasCompletions();
    ReviewUnanswered();
    std::this_thread::yield();
  }
  for (Unanswered& kept : unanswered_) ShmKeeper::Get().Closed(std::move(kept.endpoint));
  // A killed peer's sockets close before its locks on files do: when its links ended here, its
  // files still looked owned.
  RemoveShmFilesOfDeadOwners();
}

absl::StatusOr<std::unique_ptr<Link>> ShmDomain::Connect(const LinkPeer& peer,
                                                         LinkHandler* handler) {
  WEFT_RETURN_IF_ERROR(CheckShmDomainName(peer.address));
  auto link = std::make_unique<ShmLink>(this, handler, peer, ShmRole::kActive);
  WEFT_RETURN_IF_ERROR(link->Start());
  greeting_.PushBack(link.get());
  return std::unique_ptr<Link>(std::move(link));
}

absl::StatusOr<std::unique_ptr<Link>> ShmDomain::Accept(const LinkPeer& peer,
                                                        LinkHandler* handler) {
  WEFT_RETURN_IF_ERROR(CheckShmDomainName(peer.address));
  if (expected_.contains(peer.nonce)) {
    return absl::InvalidArgumentError("another link waits for the same nonce");
  }
  auto link = std::make_unique<ShmLink>(this, handler, peer, ShmRole::kPassive);
  WEFT_RETURN_IF_ERROR(link->Start());
  expected_[peer.nonce] = link.get();
  return std::unique_ptr<Link>(std::move(link));
}

void ShmDomain::Forget(ShmLink* link) {
  const auto found = expected_.find(link->nonce());
  if (found != expected_.end() && found->second == link) expected_.erase(found);
}

int ShmDomain::PollConnections() {
  int count = 0;
  for (ShmLink& link : greeting_) {
    if (!link.TryGreet()) continue;
    greeting_.Remove(&link);
    ++count;
  }
  if (!unanswered_.empty()) ReviewUnanswered();
  return count;
}

bool ShmDomain::TakeControlBatch(ByteSpan batch) {
  if (!Greeting::Is(batch)) return false;
  const auto found = expected_.find(Greeting::NonceOf(batch));
  if (found == expected_.end()) return true;
  ShmLink* const link = found->second;
  expected_.erase(found);
  if (Greeting::IsHello(batch)) {
    link->OnGreeted();
  } else {
    link->OnPeerGone();
  }
  return true;
}

// --- links given up before the peer saw them -----------------------------------------------------

void ShmDomain::KeepUntilAnswered(std::unique_ptr<ShmEndpoint> endpoint, std::string peer_endpoint,
                                  uint64_t nonce) {
  unanswered_.push_back({std::move(endpoint), std::move(peer_endpoint), nonce});
}

bool ShmDomain::IsAnswered(const Unanswered& kept) const {
  const Greeting gone(GreetingKind::kGone, kept.nonce);
  ShmEndpoint& endpoint = *kept.endpoint;
  return fi_inject(endpoint.get(), gone.bytes, sizeof(gone.bytes), endpoint.peer()) == 0 ||
         !CheckShmFileVisible(kept.peer_endpoint).ok();
}

void ShmDomain::ReviewUnanswered() {
  for (size_t i = 0; i < unanswered_.size();) {
    if (!IsAnswered(unanswered_[i])) {
      ++i;
      continue;
    }
    ShmKeeper::Get().Closed(std::move(unanswered_[i].endpoint));
    std::swap(unanswered_[i], unanswered_.back());
    unanswered_.pop_back();
  }
}

}  // namespace weft
