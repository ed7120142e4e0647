// The lower seam: what a provider has to offer so that connections can be built on it.
//
// A LinkDomain is one provider opened by one engine (shared memory, tcp, verbs, the simulated
// network): its registered slots, its completions, its registrations. A Link is the provider's
// ordered way to one peer. Framing (transport/framing/) makes Connections of Links: headers,
// credits, large messages. A Link knows nothing of those.
//
// Threads: one engine's; on the thread that drives it.
// Slots: cells of registered memory, `slot_bytes()` each; send slots are of two sizes where small
//   batches are not to hold memory of the larger. They are taken, filled, and given to
//   Link::Send(), which takes them: the domain takes each one back when the provider no longer
//   touches it. Over shared memory one may be a place in the ring that the peer reads: the peer
//   may see what is written to a slot before it is sent, or if it never is, and may change it. So
//   what is written to a slot is not read again. Receive slots are posted by the domain itself;
//   received bytes are valid during OnReceived() only, and the slot is posted again right after it,
//   before anything that OnReceived() queued is sent: a credit never runs ahead of its receive.
// Ordering: batches of one Link arrive in order; a write posted before a Send is visible when
//   that batch is received, but for kWriteUnordered.
// Callbacks: handlers, the sink and the users of operations are called from LinkDomain::Poll(), and
//   users of operations from a Link's destructor too. No other function calls anybody back. Framing
//   relies on it: what it has half done around Send(), TakeSlot(), GrowSlot() or Post() stays as it
//   was while it is inside.
// Lifetime: doorbells and handlers outlive their links, links and regions their domain, the sink
//   all of them. Whoever is called back may destroy any link, and open others, in the same domain;
//   not the domain. A slot that was taken is sent, or given back before its domain goes (before its
//   link goes, where slots belong to links). The local memory of an operation stays registered
//   until the operation has completed.
// Errors: nothing here aborts on what a peer does. A failing Link tells OnLinkDown() once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/bytes.h"
#include "core/secret.h"
#include "transport/descriptor.h"
#include "transport/path.h"
#include "transport/prefetch_list.h"
#include "transport/region.h"
#include "transport/transport.h"

namespace weft {

class PeerDoorbell;

// A send slot in the caller's hands. data == nullptr: none.
struct SendSlot {
  std::byte* data = nullptr;
  void* record = nullptr;  // the domain's own; nobody else looks at it
  // Bytes, if that is less than such slots have; a multiple of 8. See Link::GrowSlot().
  uint32_t room = ~uint32_t{0};
};

// What a Link tells the connection above it. Called from LinkDomain::Poll().
class LinkHandler {
 public:
  // Batches can be sent. At most once.
  virtual void OnLinkUp() = 0;
  // The path is broken (UNAVAILABLE) or never came up, at most once; or the peer has sent what was
  // not for this link's connection (DATA_LOSS, from the BatchSink). Destroy the Link soon.
  virtual void OnLinkDown(const absl::Status& why) = 0;
  // The domain has room again after it had none: for a send (AcquireSlot() failed) or for an
  // operation (Post() was RESOURCE_EXHAUSTED). Every link that is up is told. Or this
  // link has (Link::HasRoom()).
  virtual void OnSlotsFree() = 0;

 protected:
  ~LinkHandler() = default;
};

// Receives every batch that arrives at a domain, whoever sent it.
class BatchSink {
 public:
  // `by`: the handler of the link that the batch came by, which alone it may concern. Null: the
  // provider does not say (receive contexts that links share), and nothing but what the batch says
  // of itself tells whose it is. See LinkDomain::tells_links().
  virtual void OnReceived(ByteSpan batch, LinkHandler* by) = 0;

 protected:
  ~BatchSink() = default;
};

// Two random numbers that nobody can guess.
struct Nonce128 {
  uint64_t high = 0;
  uint64_t low = 0;
  // In a time that does not tell how much of a guess was right.
  friend bool operator==(const Nonce128& a, const Nonce128& b) {
    return ((a.high ^ b.high) | (a.low ^ b.low)) == 0;
  }
};

// What both sides of one link, and nobody else, can compute: out of the TLS of their control
// connection, both hellos, and the link's nonce.
using LinkSecret = SecretBytes<48>;

// Who is at the other end, as the handshake told.
struct LinkPeer {
  std::string address;     // LinkDomain::address() of the peer: opaque, at most 256 bytes
  uint64_t nonce = 0;      // made by the passive side for this one link; proves that a provider's
                           // connection request belongs to a handshake
  uint64_t nonce_low = 0;  // as much again, for those that send it: tcp, and the link's secret
  std::optional<LinkSecret> secret = {};  // none: without security
  bool kernel_tls = false;                // SecurityOptions::kernel_tls of this side: tcp
  // shm only, as handed over on this host:
  int32_t process_id = 0;            // the peer's, as the kernel vouched for it
  uint64_t process_start = 0;        // when it began, which tells users of one number apart
  PeerDoorbell* doorbell = nullptr;  // wakes the peer's engine; outlives the link
  int host_descriptor = -1;    // LinkDomain::host_descriptor() of the peer; borrowed for the call
  int memory_descriptor = -1;  // LinkDomain::NewLinkMemory() of the passive side; borrowed
};

// An ordered way to one peer. Destroying it closes it: afterwards no callback comes, nothing of
// this process can be touched through it, and its outstanding operations have completed with
// CANCELLED (from inside the destructor). After Abandon() the destructor makes no provider call
// that could block on a dead peer.
class Link {
 public:
  virtual ~Link() = default;

  // Takes `slot` and sends its first `bytes` bytes (1..slot_bytes). Never blocks: where the
  // provider is busy the slot is queued and retried by Poll(), in order; the queue is bounded by
  // the number of slots. An error means that the link is going down; the slot is taken all the
  // same.
  virtual absl::Status Send(const SendSlot& slot, uint32_t bytes) = 0;

  // Whether a batch would leave now, or behind one-sided operations that are under way. False: a
  // slot taken for it would only wait, for as long as the peer likes; OnSlotsFree() tells when to
  // ask again. Who asks before AcquireSlot() holds one slot at most that way.
  virtual bool HasRoom() { return true; }

  // HasRoom() and LinkDomain::AcquireSlot() in one step. Each batch begins here.
  // Where slots belong to links, one is out at a time, and goes back before the link is destroyed.
  // The slot has room for `least` bytes at least. REQUIRES: least <= usual_slot_bytes().
  virtual SendSlot TakeSlot(uint32_t least) = 0;
  // Of a slot that has less room than others: moves its first `used` bytes to where there is more.
  // False: there is none; the slot is what it was.
  virtual bool GrowSlot(SendSlot* slot, uint32_t used) {
    (void)slot, (void)used;
    return false;
  }

  // Whether there is SendFence().
  virtual bool has_fence() const { return false; }
  // As Send(). `passed` is told (with OK) when nothing can touch the memory any more of regions for
  // which Reclaim() was false before this: by the provider's word, whatever the peer says or does.
  // If the link ends first, `passed` is not told: the end reclaims. REQUIRES: has_fence().
  virtual absl::Status SendFence(const SendSlot& slot, uint32_t bytes, Operation* passed) {
    (void)passed;
    return Send(slot, bytes);
  }

  // As RemoteAccess::Post(). Bounded by LinkDomain's max_outstanding_operations.
  // REQUIRES: 1..kMaxBatchTransfers transfers, each with a region.
  virtual absl::StatusOr<Posted> Post(TransferKind kind, absl::Span<const Transfer> transfers,
                                      Operation* op) = 0;

  // As RemoteAccess::reads_prove_writes().
  virtual bool reads_prove_writes() const { return false; }

  // As RemoteAccess::MoveNow().
  virtual bool MoveNow(TransferKind kind, MutableByteSpan local, const RemoteSpan& remote) {
    (void)kind, (void)local, (void)remote;
    return false;
  }

  // Closes a region that this link's peer was told of. True: nothing writes to its memory any more,
  // and no read of it that ends from now on succeeds. (Over shm a peer may still be reading, in
  // vain.) False: what the peer had begun may go on, until a later SendFence() has passed, until
  // the peer has seen two later batches of this side and answered them, or the link is destroyed.
  virtual bool Reclaim(std::unique_ptr<Region> region) = 0;

  // What a message over this link touches, of a link that can go cold. The layers above register
  // their memory there. It belongs to the domain: when the link has gone it is not wanted, or is
  // another link's. PrefetchList::None(): this one never goes cold.
  virtual PrefetchList& prefetch() { return PrefetchList::None(); }

  // For PathInfo::kernel_tls: what has come of LinkPeer::kernel_tls, from OnLinkUp() on.
  virtual std::string kernel_tls() const { return ""; }

  // The peer is known to be dead or cut off (its lifeline is gone): from now on no provider call
  // is made on its behalf. Outstanding operations complete with UNAVAILABLE from the next Poll().
  virtual void Abandon() = 0;
};

// Counts that tests hold to account: all return to their first value when links are closed.
struct LinkDomainStats {
  uint64_t registrations = 0;  // ever made
  uint64_t registrations_open = 0;
  uint64_t send_slots_in_use = 0;
  uint64_t receives_posted = 0;
  // Asked for, and not posted for a reason of the provider (its bound, a failure before the next
  // try). Only for providers that keep a batch until a receive is posted for it.
  uint64_t receives_withheld = 0;
  uint64_t links_open = 0;
  uint64_t eagain = 0;  // times the provider was busy
};

class LinkDomain {
 public:
  virtual ~LinkDomain() = default;

  virtual const PathInfo& path() const = 0;
  // Given to peers in the handshake. At most 256 bytes.
  virtual const std::string& address() const = 0;
  // Of receive slots, so the largest batch.
  virtual uint32_t slot_bytes() const = 0;
  // Of most send slots: what a batch is filled up to. A message that is larger takes a wide slot.
  virtual uint32_t usual_slot_bytes() const { return slot_bytes(); }
  // Of so many messages a batch is answered in parts, where its sender waits for the answer
  // (framing/batch_parts.h). Less: answers come sooner, and in more batches. Parts carry the credit
  // of the batch at hand from inside OnReceived(): only for domains that need no receive posted.
  // 0: never.
  virtual uint8_t frames_to_part() const { return 0; }

  // Makes room for one more connection: `send` more send slots, `receive` more posted receives.
  // Registers memory, so never on the hot path. RESOURCE_EXHAUSTED names the bound that was hit.
  virtual absl::Status AddSlots(uint32_t send, uint32_t receive) = 0;
  // Undoes one AddSlots(); memory is kept for the next connection.
  virtual void RemoveSlots(uint32_t send, uint32_t receive) = 0;

  // An empty send slot, or none (data == nullptr): OnSlotsFree() will tell. Always none where slots
  // belong to links: Link::TakeSlot() has them.
  virtual SendSlot AcquireSlot() { return {}; }
  // The same, with slot_bytes(). Only where usual_slot_bytes() is less.
  virtual SendSlot AcquireWideSlot() { return AcquireSlot(); }
  // Gives an unsent slot back.
  virtual void ReleaseSlot(SendSlot slot) = 0;

  // Active and passive side of one link; OnLinkUp() or OnLinkDown() follow from Poll(). The
  // caller bounds the time. The passive side accepts only the peer that presents peer.nonce.
  virtual absl::StatusOr<std::unique_ptr<Link>> Connect(const LinkPeer& peer,
                                                        LinkHandler* handler) = 0;
  virtual absl::StatusOr<std::unique_ptr<Link>> Accept(const LinkPeer& peer,
                                                       LinkHandler* handler) = 0;

  // shm only. What peers on this host are handed before their links: of the domain, and, by the
  // passive side, for one link (the caller closes it). -1 and UNIMPLEMENTED: nothing.
  virtual int host_descriptor() const { return -1; }
  virtual absl::StatusOr<int> NewLinkMemory() {
    return absl::UnimplementedError("this path shares no memory");
  }

  // tcp only. A socket that a listener has taken, whose peer has presented `nonce` in a join
  // (sockets/join.h): if a link waits for it (Accept()), that link takes it. It is one's once.
  // NOT_FOUND: none does.
  virtual absl::Status TakeSocket(Descriptor socket, const Nonce128& nonce) {
    (void)socket, (void)nonce;
    return absl::NotFoundError("this path takes no sockets");
  }

  // Whether batches come with the link that they came by (BatchSink). The same for all of them.
  virtual bool tells_links() const { return true; }

  // Registers memory; random keys, offsets from 0.
  virtual absl::StatusOr<std::unique_ptr<Region>> Register(MutableByteSpan memory,
                                                           Access access) = 0;

  // Completions, receives, retries, connection events: at most about `budget`. Returns how many.
  virtual int Poll(int budget) = 0;

  // Prepares to sleep until descriptor() is readable, which it may be already: such a sleep ends at
  // once. False: work is pending of which it will not tell, poll again.
  // A domain without a descriptor relies on the engine's doorbell, which its peers ring.
  virtual bool Arm() = 0;
  virtual int descriptor() const = 0;  // -1: none

  // Operations or sends are outstanding: the engine then sleeps in short steps only.
  virtual bool busy() const = 0;

  virtual const LinkDomainStats& stats() const = 0;

  // UNAVAILABLE: the device is gone, or no longer has the address: no link will come up here any
  // more, and a new domain is needed.
  virtual absl::Status usable() const { return absl::OkStatus(); }
};

}  // namespace weft
