#include "transport/ofi/quirks.h"

#include <iterator>

#include "transport/ofi/fabric.h"

namespace weft {
namespace {

constexpr uint32_t kFirst = FI_VERSION(1, 0);
constexpr uint32_t kLatest = FI_VERSION(2, 6);
constexpr uint32_t k1_17 = FI_VERSION(1, 17);

constexpr ProviderQuirk kQuirks[] = {
    {QuirkId::kShmMapsAtOnce, "shm", k1_17, k1_17, "2026-11",
     "fi_av_insert() maps the peer's file at once; later versions map with the first message",
     "the passive side removes both files once it is greeted",
     "link_test DomainsLeaveNothingBehind"},
    {QuirkId::kShmLockOutlivesHolder, "shm", k1_17, k1_17, "2026-11",
     "a process killed while it sends or progresses leaves a spin lock taken; the survivor's next "
     "call spins for ever",
     "an endpoint for each link, and a thread that opens the locks of the dead (shm_guard.h)",
     "peer_death_test SurvivorOutlivesKilledPeersUnderLoad"},
    {QuirkId::kNone, "shm", k1_17, k1_17, "2026-11",
     "responses are processed in order: one operation that is never answered (bad key, dead peer) "
     "holds up all later reads and large sends of the endpoint",
     "sends within the inject size; one-sided operations by process_vm_readv/writev "
     "(shm_regions.h)",
     "one_sided_test BadKeyFailsItsOperationAndOtherLinksGoOn"},
    {QuirkId::kNone, "shm", k1_17, k1_17, "2026-11",
     "a connection request whose sender's file is gone is a null pointer in the receiver",
     "an endpoint that greeted stays until it is answered (ShmDomain::KeepUntilAnswered)",
     "link_test GivingUpWhileGreetingDoesNotHarmThePeer"},
    {QuirkId::kNone, "shm", k1_17, k1_17, "2026-11",
     "fi_av_remove() leaves the peer's id behind; the next peer in that place gets messages with a "
     "wrong sender",
     "an address vector for each link, used once", "link_test TwoHundredLinksLeaveNothingBehind"},
    {QuirkId::kNone, "shm", k1_17, k1_17, "2026-11",
     "endpoints of one process share a mapping, which fi_close() takes away from the other end",
     "a closed endpoint is kept while the other end is open (shm_keeper.h)",
     "link_test SendingToAClosedDomainOfThisProcessIsHarmless"},
    {QuirkId::kNone, "shm", k1_17, k1_17, "2026-11",
     "fi_recv() on a shared receive context never gives a completion",
     "fi_recvmsg() with FI_COMPLETION", "link_test BytesArriveAsSent"},
    {QuirkId::kNone, "shm", k1_17, k1_17, "2026-11",
     "fi_cancel() on a shared receive context treats it as an endpoint",
     "receives are never cancelled: they stay posted for the next connection",
     "link_test SlotsCanBeAddedAndRemoved"},
    {QuirkId::kNone, "shm", k1_17, k1_17, "2026-11",
     "each endpoint that ever was leaves some 300 bytes and an entry in a linear list", "none", ""},
    {QuirkId::kNone, "shm", kFirst, kLatest, "2026-11",
     "the first endpoint of a process takes over SIGINT, SIGTERM, SIGSEGV and SIGBUS",
     "their dispositions are put back (signal_guard.h); files of the dead are removed by others "
     "(shm_name.h)",
     "signal_guard_test OpeningDomainsLeavesHandlersAlone"},
    {QuirkId::kNone, "tcp", k1_17, k1_17, "2026-11",
     "fi_endpoint() followed by fi_reject() is a use after free",
     "the nonce is checked before an endpoint is made", "msg_test WrongNonceIsRejected"},
    {QuirkId::kNone, "tcp", k1_17, kLatest, "2026-11",
     "fi_inject() after a shutdown succeeds and is lost", "the end of the link covers it",
     "peer_death_test KilledPeerTakesDownItsLinkOnly"},
    {QuirkId::kNone, "tcp", k1_17, kLatest, "2026-11",
     "a read that is being answered, or a write that is half received, still touches its region "
     "after fi_close(mr)",
     "regions are destroyed after the link, or when the peer has confirmed", ""},
    {QuirkId::kNone, "verbs", k1_17, kLatest, "2026-11",
     "fi_endpoint() looks for the way to the peer, and blocks for 2 s where nobody answers",
     "a thread asks first (address_probe.h)",
     "verbs_test AnAddressWhereNobodyAnswersIsAskedForOnTheSide"},
    {QuirkId::kNone, "verbs", k1_17, kLatest, "2026-11",
     "an info found with FI_SOURCE gives EINVAL when it is connected",
     "the endpoint's info carries both addresses", "link_test BothSidesComeUpOnce"},
    {QuirkId::kNone, "verbs", k1_17, kLatest, "2026-11",
     "receives of a shared context are not counted against the completion queue, and injected "
     "sends "
     "take entries that nobody sees: it can be overrun, which ends every connection",
     "what is in flight is counted and bounded; no fi_inject()",
     "verbs_test ASmallCompletionQueueIsNeverOverrun"},
    {QuirkId::kNone, "verbs", k1_17, kLatest, "2026-11",
     "atomics on connected endpoints take the operand's pointer for its value; iWARP has none",
     "the target carries them out", ""},
    {QuirkId::kNone, "verbs", k1_17, kLatest, "2026-11",
     "the local end of a read is writable by peers on iWARP: so was a region for reading only",
     "it is registered without that right, and once more when something is read into it",
     "one_sided_test RangesAndRightsAreEnforced"},
    {QuirkId::kNone, "verbs", k1_17, kLatest, "2026-11",
     "a write to a key that is not there completes on iWARP, and the connection ends after it",
     "only an answer of the peer proves delivery", "one_sided_test RangesAndRightsAreEnforced"},
    {QuirkId::kNone, "verbs", k1_17, kLatest, "2026-11",
     "a refused connection over iWARP is an error of fi_eq_read() that names no endpoint",
     "it is the connecting link's, if there is one; else its time limit decides",
     "link_test ConnectingToNobodyFails"},
    {QuirkId::kNone, "verbs", k1_17, FI_VERSION(1, 21), "2026-11",
     "fi_reject() leaks the request's rdma_cm id, 600 bytes and one of the kernel's",
     "an endpoint takes the id over and is closed",
     "verbs_test RejectedRequestsLeaveNothingBehind"},
    {QuirkId::kNone, "verbs", k1_17, kLatest, "2026-11",
     "nothing is reported for a minute and more when the peer's host is gone",
     "heartbeats on the control connection", ""},
    {QuirkId::kNone, "*", k1_17, kLatest, "2026-11",
     "references without a version bind to interface 1.0, whose objects refuse what 1.17 offers",
     "our libraries that use it are linked statically", "link_test BothSidesComeUpOnce"},
};

}  // namespace

const ProviderQuirk* begin_quirks() { return std::begin(kQuirks); }
const ProviderQuirk* end_quirks() { return std::end(kQuirks); }

bool HasQuirk(QuirkId id) {
  const uint32_t version = fi_version();
  for (const ProviderQuirk& quirk : kQuirks) {
    if (quirk.id == id && version >= quirk.first_version && version <= quirk.last_version) {
      return true;
    }
  }
  return false;
}

}  // namespace weft
