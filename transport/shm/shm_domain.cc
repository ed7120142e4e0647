#include "transport/shm/shm_domain.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/block_memory.h"
#include "core/bytes.h"
#include "core/cache_line.h"
#include "core/check.h"
#include "core/inline.h"
#include "core/random.h"
#include "core/status.h"
#include "core/strings.h"
#include "core/trace.h"
#include "transport/shm/shm_region.h"

namespace weft {
namespace {

Block Zeros(size_t bytes) {
  Block memory = Block::MustTake(bytes, kCacheLineBytes, MemoryKind::kSlots);
  std::memset(memory.data(), 0, bytes);
  return memory;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LinkDomain>> ShmDomain::Open(const ShmOptions& options) {
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<DomainMemory> memory, DomainMemory::Create());
  return std::unique_ptr<LinkDomain>(new ShmDomain(options, std::move(memory)));
}

ShmDomain::ShmDomain(const ShmOptions& options, std::unique_ptr<DomainMemory> memory)
    : options_(options),
      memory_(std::move(memory)),
      buffer_memory_(Zeros(2 * kMaxRecordBytes)),
      buffer_(buffer_memory_.data()),
      staged_(buffer_ + kMaxRecordBytes),
      operations_(options.max_outstanding_operations),
      joins_(options.max_outstanding_operations),
      peers_(options.copies, &has_duties_, {options.may_start_threads, options.clock}),
      copy_turn_(options.clock),
      hot_links_(&memory_->ready_flags(), &has_duties_),
      links_(&stats_) {
  path_.kind = PathKind::kShm;
  path_.link = LinkKind::kSharedMemory;
  path_.provider = "rings";
  path_.device = "memory";
  path_.local = StrCat("process ", getpid());
}

// Ours: links go before their domain
ShmDomain::~ShmDomain() { WEFT_DCHECK(stats_.links_open == 0); }

// --- slots ---------------------------------------------------------------------------------------

absl::Status ShmDomain::AddSlots(uint32_t /*send*/, uint32_t receive) {
  if ((connections_ + 1) * sizeof(SharedLinkMemory) > options_.max_pool_bytes) {
    return absl::ResourceExhaustedError(
        StrCat(connections_,
               " connections over shared memory have their rings, and no more fit into "
               "max_pool_bytes=",
               options_.max_pool_bytes, "; raise it"));
  }
  ++connections_;
  stats_.receives_posted += receive;
  return absl::OkStatus();
}

void ShmDomain::RemoveSlots(uint32_t /*send*/, uint32_t receive) {
  // Ours: what AddSlots() has added
  WEFT_DCHECK(connections_ > 0 && receive <= stats_.receives_posted);
  --connections_;
  stats_.receives_posted -= receive;
}

// --- links ---------------------------------------------------------------------------------------

absl::StatusOr<std::unique_ptr<Link>> ShmDomain::Connect(const LinkPeer& peer,
                                                         LinkHandler* handler) {
  return Open(peer, handler, ShmRole::kActive);
}

absl::StatusOr<std::unique_ptr<Link>> ShmDomain::Accept(const LinkPeer& peer,
                                                        LinkHandler* handler) {
  return Open(peer, handler, ShmRole::kPassive);
}

absl::StatusOr<std::unique_ptr<Link>> ShmDomain::Open(const LinkPeer& peer, LinkHandler* handler,
                                                      ShmRole role) {
  if (peer.memory_descriptor < 0 || peer.host_descriptor < 0) {
    return absl::InvalidArgumentError("no shared memory was handed over for this link");
  }
  WEFT_ASSIGN_OR_RETURN(LinkMemory memory, LinkMemory::Open(peer.memory_descriptor));
  WEFT_ASSIGN_OR_RETURN(std::shared_ptr<PeerDomain> domain,
                        peers_.Open(peer.host_descriptor, peer.process_id, peer.process_start));
  auto link = std::make_unique<ShmLink>(this, handler, role, peer.doorbell);
  WEFT_RETURN_IF_ERROR(link->Start(std::move(memory), std::move(domain)));
  return std::unique_ptr<Link>(std::move(link));
}

absl::Status ShmDomain::Join(ShmLink* link) {
  if (!hot_links_.Join(link)) {
    return absl::ResourceExhaustedError(
        StrCat("this engine has all its ", kMaxShmLinks, " links over shared memory"));
  }
  links_.Join(link);
  return absl::OkStatus();
}

void ShmDomain::Leave(ShmLink* link) {
  hot_links_.Leave(link);
  links_.Leave(link);
}

void ShmDomain::ScheduleRetry(ShmLink* link) {
  links_.ScheduleRetry(link);
  has_duties_ = true;
}

void ShmDomain::ScheduleTurn(ShmLink* link) {
  links_.ScheduleTurn(link);
  has_duties_ = true;
}

void ShmDomain::ScheduleEvent(ShmLink* link) {
  links_.ScheduleEvent(link);
  has_duties_ = true;
}

// --- turns ---------------------------------------------------------------------------------------

// Mostly there is nothing but rings to look into.
int ShmDomain::Poll(int budget) {
  WEFT_DCHECK(has_duties_ || !AnyDuties());  // Ours: whoever makes a duty says so
  copy_turn_.Begin();
  if (has_duties_) [[unlikely]]
    return PollAll(budget);
  return hot_links_.Receive(budget);
}

// Links that wait for their turn come first: a user that hears of an end may post another copy, and
// take their time.
int ShmDomain::PollAll(int budget) {
  int done = CopyInTurn() + UnmapInTurn();
  done += DeliverDeferred(budget);
  links_.Retry();
  done += hot_links_.ReceiveAll(budget, [] { Trace(TracePoint::kReadyFlag); });
  done += links_.DeliverEvents();
  if (MayTellRoom()) {
    operations_ran_out_ = false;
    links_.TellSlotsFree();
  }
  has_duties_ = AnyDuties();
  return done;
}

// Returns how many links had their turn.
int ShmDomain::CopyInTurn() {
  int count = 0;
  links_.GiveTurns([&](ShmLink* link) {
    link->Retry();
    ++count;
    return copy_turn_.may_copy();
  });
  return count;
}

// Behind the copies, which somebody waits for. One piece, however long copies took, so that it
// ends.
int ShmDomain::UnmapInTurn() {
  OldMappings& old = peers_.old_mappings();
  if (old.empty()) return 0;
  old.UnmapPiece();
  return 1;
}

bool ShmDomain::AnyDuties() const {
  return hot_links_.HasDuties() || links_.has_turns() || operations_ran_out_ ||
         !deferred_.empty() || links_.has_retries() || links_.has_events() ||
         !peers_.old_mappings().empty();
}

// The caller has armed its doorbell. A record that is published from here on rings it; one that was
// published before is found here, in whichever ring it is.
bool ShmDomain::Arm() {
  if (!deferred_.empty() || links_.has_events() || links_.has_turns() || MayTellRoom() ||
      !peers_.old_mappings().empty()) {
    return false;
  }
  if (links_.AnyRetry([](ShmLink& link) { return link.CanRetry(); })) return false;
  return !hot_links_.AnyHasInput();
}

// --- operations ----------------------------------------------------------------------------------

void ShmDomain::Defer(ShmOperation* record, const absl::Status& status) {
  if (!status.ok()) record->status = status;
  deferred_.PushBack(record);
  has_duties_ = true;
}

// The record is free before the user hears of it, and may post again.
void ShmDomain::Complete(ShmOperation* record) {
  Operation* const user = record->user;
  const absl::Status result = record->status;
  operations_.Give(record);
  user->OnComplete(result);
}

// A user that hears of one operation may post another, or destroy a link and with it what waits
// here: so one at a time from the list itself, and a bound. (Each that is posted may be copied at
// once: without the bound a user that posts the next from the last would be the whole turn.)
int ShmDomain::DeliverDeferred(int budget) {
  int count = 0;
  for (; count < budget && !deferred_.empty(); ++count) {
    Complete(static_cast<ShmOperation*>(deferred_.PopFront()));
  }
  return count;
}

void ShmDomain::CompleteDeferredOf(const ShmLink* link) {
  ShmWorkList mine;
  for (ShmWork& work : deferred_) {
    if (static_cast<ShmOperation&>(work).link != link) continue;
    ShmWorkList::Remove(&work);
    mine.PushBack(&work);
  }
  while (ShmWork* const work = mine.PopFront()) Complete(static_cast<ShmOperation*>(work));
}

absl::Status ShmDomain::TooManyOperations() {
  operations_ran_out_ = has_duties_ = true;
  return absl::ResourceExhaustedError(
      StrCat(operations_.capacity(), " one-sided operations are outstanding in this domain"));
}

// --- regions -------------------------------------------------------------------------------------

absl::StatusOr<std::unique_ptr<Region>> ShmDomain::Register(MutableByteSpan memory, Access access) {
  if (memory.empty()) return absl::InvalidArgumentError("a region of 0 bytes cannot be registered");
  return ShmRegion::Open(this, memory, access);
}

absl::StatusOr<std::unique_ptr<ShmRegion>> ShmRegion::Open(ShmDomain* domain,
                                                           MutableByteSpan memory, Access access) {
  uint64_t key = 0;
  if (access != Access::kLocalOnly) {
    RegionTable& table = domain->memory_->regions();
    WEFT_ASSIGN_OR_RETURN(key, table.NewKey());
    table.Publish(key, memory, access);
  }
  ++domain->stats_.registrations;
  ++domain->stats_.registrations_open;
  return std::unique_ptr<ShmRegion>(new ShmRegion(domain, memory, access, key));
}

bool ShmRegion::Close() {
  if (!std::exchange(open_, false)) return true;
  --domain_->stats_.registrations_open;
  return access_ == Access::kLocalOnly || domain_->memory_->regions().Withdraw(remote().key);
}

}  // namespace weft
