#include "transport/shm/shm_domain.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

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

std::byte* Aligned(std::byte* memory) {
  const auto at = reinterpret_cast<uintptr_t>(memory);
  return memory + (AlignUp(at, uintptr_t{kCacheLineBytes}) - at);
}

}  // namespace

absl::StatusOr<std::unique_ptr<LinkDomain>> ShmDomain::Open(const ShmOptions& options) {
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<DomainMemory> memory, DomainMemory::Create());
  return std::unique_ptr<LinkDomain>(new ShmDomain(options, std::move(memory)));
}

ShmDomain::ShmDomain(const ShmOptions& options, std::unique_ptr<DomainMemory> memory)
    : options_(options),
      memory_(std::move(memory)),
      buffer_memory_(std::make_unique<std::byte[]>(kMaxRecordBytes + kCacheLineBytes)),
      buffer_(Aligned(buffer_memory_.get())),
      operations_(options.max_outstanding_operations),
      joins_(options.max_outstanding_operations),
      peers_(options.copies),
      prefetch_lists_(kMaxShmLinks) {
  path_.kind = PathKind::kShm;
  path_.link = LinkKind::kSharedMemory;
  path_.provider = "rings";
  path_.device = "memory";
  path_.local = StrCat("process ", getpid());
}

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
                        peers_.Open(peer.host_descriptor, peer.process_id));
  auto link = std::make_unique<ShmLink>(this, handler, role, peer.doorbell);
  WEFT_RETURN_IF_ERROR(link->Start(std::move(memory), std::move(domain)));
  return std::unique_ptr<Link>(std::move(link));
}

absl::Status ShmDomain::Join(ShmLink* link) {
  const uint32_t index = memory_->ready_flags().Take();
  if (index == ReadyFlags::kNone) {
    return absl::ResourceExhaustedError(
        StrCat("this engine has all its ", kMaxShmLinks, " links over shared memory"));
  }
  if (index >= links_.size()) links_.resize(index + 1);
  while (index >= prefetch_lists_.size()) prefetch_lists_.Grow();
  links_[index] = link;
  link->flag_index_ = index;
  hot_.reserve(links_.size());
  members_.PushBack(link);
  ++stats_.links_open;
  ++cold_links_;
  MakeHot(link);
  return absl::OkStatus();
}

void ShmDomain::Leave(ShmLink* link) {
  links_[link->flag_index_] = nullptr;
  prefetch_lists_[link->flag_index_].Clear();
  memory_->ready_flags().Give(link->flag_index_);
  members_.Remove(link);
  --stats_.links_open;
  --cold_links_;
}

void ShmDomain::ScheduleRetry(ShmLink* link) {
  if (!retries_.IsLinked(link)) retries_.PushBack(link);
  has_duties_ = true;
}

void ShmDomain::ScheduleEvent(ShmLink* link) {
  if (!events_.IsLinked(link)) events_.PushBack(link);
  has_duties_ = true;
}

// --- hot and cold --------------------------------------------------------------------------------

void ShmDomain::MakeHot(ShmLink* link) {
  if (!link->is_cold()) return;
  if (hot_.size() == hot_.capacity()) CloseHoles();
  link->hot_place_ = static_cast<uint32_t>(hot_.size());
  link->quiet_turns_ = 0;
  hot_.push_back(link);
  --cold_links_;
  memory_->ready_flags().MakeHot(link->flag_index_);
  PrefetchOf(link).Drop();
}

// A hole, because the list may be being walked.
void ShmDomain::MakeCold(ShmLink* link) {
  if (link->is_cold()) return;
  hot_[link->hot_place_] = nullptr;
  ++hot_holes_;
  link->hot_place_ = ShmLink::kCold;
  ++cold_links_;
  has_duties_ = true;
  if (awaited_ == link) awaited_ = nullptr;
  memory_->ready_flags().MakeCold(link->flag_index_);
}

// Who sends over a cold link awaits an answer there.
void ShmDomain::AwaitAnswer(ShmLink* link) {
  MakeHot(link);
  awaited_ = link;
}

// While everything that the next record will touch is known, and in the near caches, it is written
// down.
void ShmDomain::LetCool(ShmLink* link) {
  MakeCold(link);
  if (link->Look() != 0) return MakeHot(link);
  link->RegisterForPrefetch(PrefetchOf(link));
}

void ShmDomain::CloseHoles() {
  uint32_t end = 0;
  for (ShmLink* const link : hot_) {
    if (link == nullptr) continue;
    link->hot_place_ = end;
    hot_[end++] = link;
  }
  hot_.resize(end);
  hot_holes_ = 0;
}

bool ShmDomain::IsTimeToScan() {
  if (cold_links_ == 0) return false;
  if (awaited_ == nullptr) return true;
  if (turns_to_scan_-- > 0) return false;
  turns_to_scan_ = kAwaitedTurnsPerScan - 1;
  return true;
}

// Those whose flags are set, and now and then one more: see ready_flags.h. True: one was set.
bool ShmDomain::WakeCold() {
  bool called = false;
  memory_->ready_flags().ForEachReady([&](uint32_t index) {
    if (index >= links_.size() || links_[index] == nullptr) return;
    Trace(TracePoint::kCalled);
    PrefetchList& prefetch = prefetch_lists_[index];
    if (prefetch.wanted()) prefetch.Fetch();
    ShmLink* const link = links_[index];
    if (link->state() == ShmLink::State::kDown) return;
    MakeHot(link);
    called = true;
  });
  if (turns_to_cold_look_-- > 0) return called;
  turns_to_cold_look_ = kTurnsPerColdLook;
  LookAtNextCold();
  return called;
}

void ShmDomain::LookAtNextCold() {
  if (next_cold_ >= links_.size()) next_cold_ = 0;
  ShmLink* const link = links_[next_cold_];
  if (link != nullptr && link->Look() != 0) MakeHot(link);
  ++next_cold_;
}

WEFT_INLINE int ShmDomain::ReceiveFrom(ShmLink* link, uint64_t found, int budget) {
  polled_ = link;
  const int received = link->Receive(found, std::min(budget, kRecordsAtOnce));
  if (IsPolled(link)) [[likely]] {
    link->quiet_turns_ = 0;
    if (awaited_ == link) awaited_ = nullptr;
    polled_ = nullptr;
  }
  return received;
}

WEFT_INLINE int ShmDomain::ReceiveHot(int budget, Cooling cooling) {
  int done = 0;
  const bool may_cool = cooling == Cooling::kYes && stats_.links_open > kAlwaysHot;
  for (size_t left = hot_.size(); left > 0 && done < budget; --left) {
    if (next_hot_ >= hot_.size()) next_hot_ = 0;  // also where callbacks have moved what is behind
    ShmLink* const link = hot_[next_hot_++];
    if (link == nullptr) [[unlikely]]
      continue;
    if (const uint64_t found = link->Look(); found != 0) {
      done += ReceiveFrom(link, found, budget - done);
    } else if (may_cool) {
      StayQuiet(link);
    }
  }
  return done;
}

void ShmDomain::StayQuiet(ShmLink* link) {
  if (++link->quiet_turns_ > (link == awaited_ ? kAwaitedTurns : kQuietTurns)) LetCool(link);
}

// A cold link has called, and its record may be on its way.
WEFT_COLD int ShmDomain::ReceiveFromCaller(int budget) {
  int done = 0;
  for (size_t looks = 0; done == 0 && looks < kLooksForCaller && !hot_.empty();) {
    looks += hot_.size();
    done = ReceiveHot(budget, Cooling::kNo);
  }
  return done;
}

bool ShmDomain::AnyHasInput() {
  bool any = false;
  for (ShmLink* const link : links_) {
    if (link == nullptr || link->Look() == 0) continue;
    MakeHot(link);
    any = true;
  }
  return any;
}

// --- turns ---------------------------------------------------------------------------------------

// Mostly there is nothing but rings to look into.
int ShmDomain::Poll(int budget) {
  WEFT_DCHECK(has_duties_ || !AnyDuties());
  if (has_duties_) [[unlikely]]
    return PollAll(budget);
  return ReceiveHot(budget, Cooling::kYes);
}

int ShmDomain::PollAll(int budget) {
  int done = DeliverDeferred(budget);
  more_to_do_ = false;
  RetryLinks();
  const bool called = IsTimeToScan() && WakeCold();
  done += ReceiveHot(budget, Cooling::kYes);
  if (called && done == 0) done = ReceiveFromCaller(budget);
  done += DeliverEvents();
  if (MayTellRoom()) {
    operations_ran_out_ = false;
    TellSlotsFree();
  }
  if (hot_holes_ > 0) CloseHoles();
  has_duties_ = AnyDuties();
  return done;
}

bool ShmDomain::AnyDuties() const {
  return cold_links_ > 0 || hot_holes_ > 0 || more_to_do_ || operations_ran_out_ ||
         !deferred_.empty() || !retries_.empty() || !events_.empty();
}

// The caller has armed its doorbell. A record that is published from here on rings it; one that was
// published before is found here, in whichever ring it is.
bool ShmDomain::Arm() {
  if (!deferred_.empty() || !events_.empty() || more_to_do_ || MayTellRoom()) return false;
  for (ShmLink& link : retries_) {
    if (link.CanRetry()) return false;
  }
  return !AnyHasInput();
}

void ShmDomain::RetryLinks() {
  IntrusiveList<ShmLink, ShmRetryTag> now;
  now.SpliceBack(retries_);
  while (ShmLink* const link = now.PopFront()) link->Retry();
}

int ShmDomain::DeliverEvents() {
  IntrusiveList<ShmLink, ShmEventTag> now;
  now.SpliceBack(events_);
  int count = 0;
  for (; ShmLink* const link = now.PopFront(); ++count) link->DeliverEvent();
  return count;
}

void ShmDomain::TellSlotsFree() {
  IntrusiveList<ShmLink, ShmMemberTag> now;
  now.SpliceBack(members_);
  while (ShmLink* const link = now.PopFront()) {
    members_.PushBack(link);
    if (link->state() == ShmLink::State::kUp) link->handler()->OnSlotsFree();
  }
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
// here: so one at a time from the list itself, and a bound. (Each that is posted is copied at once:
// without the bound a user that posts the next from the last would be the whole turn.)
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
