// A Connection made of a Link: batches, credits, large messages.
//
// Who brings connections up (the control protocol, the simulated network) owns them and decides
// about their life; this class does everything between. The owner's road:
//
//   Create()      takes an index in the table; index() and token() go into the hello.
//   StartLink()   when both sides know each other's; OnLinkUp() or OnBroken() follow. A path that
//                 failed, or takes too long, is dropped with StopLink() and another one started.
//   Open()        when both links are up, as the owners tell each other: OnOpen() for the handler.
//                 (Batches of a peer that opened earlier are kept until then.)
//   End()         the only end: OnClosed() for the handler, everything given back. Then delete it.
//
//   state            from                          to
//   kConnecting      Create()                      Open() -> kOpen; Close(), End() -> kClosed
//   kOpen            Open()                        Close(), End(), a broken link or protocol
//   kClosed          nothing is sent or delivered any more; the owner calls End()
//
// Sending. The open slot is a batch in the making: Reserve() makes room for a frame, Commit()
// completes it; Append() does both. It leaves when the next frame does not fit, at Flush(), at the
// turn's end, and behind a large batch of the peer's (batch_parts.h). Opening it takes its credit,
// and lists the connection in the table, to be flushed. A message larger than a usual slot opens a
// wide one; above eager_bytes() it goes to a buffer of the send pool, an offer into the batch.
//
// Threads: one engine's. Lifetime: as above; owner, handler, table and domains outlive it.
// Errors: as transport.h says; a peer that breaks the rules gets DATA_LOSS for this connection.
// Invariants: credit_window.h; first_unsent() <= messages committed; kLargeOutstanding each way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/bytes.h"
#include "core/cache_line.h"
#include "core/dense_memory.h"
#include "core/intrusive_list.h"
#include "transport/framing/batch.h"
#include "transport/framing/connection_leases.h"
#include "transport/framing/connection_owner.h"
#include "transport/framing/connection_table.h"
#include "transport/framing/credit_window.h"
#include "transport/framing/early_batches.h"
#include "transport/framing/framing_domain.h"
#include "transport/framing/large_receiver.h"
#include "transport/framing/large_sender.h"
#include "transport/framing/operation_slots.h"
#include "transport/framing/reclaimer.h"
#include "transport/framing/requests.h"
#include "transport/link.h"
#include "transport/transport.h"
#include "transport/warm_up.h"

namespace weft {

class FramedConnection final : public Connection,
                               public ListNode<DirtyTag>,
                               public HandsOnWarmUp,
                               public ListNode<EventTag>,
                               public InDenseMemory,
                               private LinkHandler,
                               private LargeReceiver::Host,
                               private LargeSender::Host,
                               private LargeWatcher,
                               private OperationSlots::Host,
                               private Reclaimer::Host {
 public:
  struct Options {
    // Unpredictable: no stranger's batch is taken for the peer's where a provider tells nothing.
    uint32_t token = 0;
    uint32_t max_outstanding_operations = 128;  // 1..1024
  };

  // RESOURCE_EXHAUSTED: the table is full. `handler` may be null until Open() or, first, End().
  static absl::StatusOr<std::unique_ptr<FramedConnection>> Create(ConnectionTable* table,
                                                                  ConnectionOwner* owner,
                                                                  ConnectionHandler* handler,
                                                                  const Options& options);
  ~FramedConnection() override;  // REQUIRES: End() was called.

  // --- for the owner ----------------------------------------------------------------------------

  uint32_t index() const { return index_; }
  uint32_t token() const { return token_; }
  void set_handler(ConnectionHandler* handler) { handler_ = handler; }
  ConnectionFacts& facts() { return facts_; }

  // An error (RESOURCE_EXHAUSTED, UNAVAILABLE, INVALID_ARGUMENT for an agreement out of bounds,
  // from the peer): nothing was started. REQUIRES: state() == kConnecting, and no link.
  absl::Status StartLink(FramingDomain* domain, const LinkPeer& peer, bool active,
                         const LinkAgreement& agreement);
  // Drops a path that is not open yet, if there is one. `peer_dead`: Link::Abandon() first.
  void StopLink(bool peer_dead = false);
  bool has_link() const { return link_ != nullptr; }
  // The peer is gone: no provider call is made on its behalf any more. End() follows soon.
  void AbandonLink() {
    if (link_ != nullptr) link_->Abandon();
  }

  // What the peer's SendGrant() has sent; nothing to do unless open. From Transport::Poll().
  void OnGrant(ByteSpan grant);

  // Unless closed: OnOpen(), and OnMessage() for what came early. REQUIRES: link up; a handler.
  void Open();

  // Ends everything: the link, with Link::Abandon() first if `peer_dead`; outstanding operations
  // complete; large messages are forgotten; OnClosed(why) for the handler, if there is one.
  // REQUIRES: not inside a callback of this connection other than ConnectionOwner's; !why.ok().
  void End(const absl::Status& why, bool peer_dead);

  // --- Connection -------------------------------------------------------------------------------

  absl::StatusOr<std::byte*> Reserve(size_t bytes) override;
  uint64_t Commit(size_t bytes) override;
  void Abandon() override;
  void Flush() override;
  uint64_t first_unsent() const override { return first_unsent_; }

  absl::StatusOr<std::unique_ptr<Region>> Register(MutableByteSpan memory, Access access) override;
  absl::StatusOr<Posted> Post(TransferKind kind, absl::Span<const Transfer> transfers,
                              Operation* op) override;
  absl::StatusOr<Posted> WriteThenSend(absl::Span<const Transfer> transfers, ByteSpan message,
                                       Operation* op) override;
  bool Reclaim(std::unique_ptr<Region> region, Operation* op) override;
  uint32_t path_number() const override { return domain_->path_number(); }
  absl::Status Resolve(const RegionHandle& handle, uint64_t layout, uint64_t lease_ns,
                       Lease* lease) override;
  absl::Status Renew(uint64_t lease_ns, Lease* lease) override;
  void Return(Lease* lease) override;
  absl::Status Derive(const RegionHandle& handle, uint64_t offset, uint64_t length, Rights rights,
                      uint64_t lifetime_ns, Derivation* derivation) override;
  uint32_t tenant() const override { return tenant_; }
  void set_tenant(uint32_t tenant) override { tenant_ = tenant; }

  absl::Status FetchAdd(const RemoteSpan& remote, uint64_t operand, AtomicOperation* op) override;
  absl::Status CompareSwap(const RemoteSpan& remote, uint64_t expected, uint64_t desired,
                           AtomicOperation* op) override;
  absl::Status Probe(Operation* op) override;

  void Close(std::string_view why) override;

  State state() const override { return state_; }
  const PathInfo& path() const override { return facts_.path; }
  const std::vector<PathCandidate>& candidates() const override { return facts_.candidates; }
  const std::string& peer_hello() const override { return facts_.peer_hello; }
  size_t eager_bytes() const override { return eager_bytes_; }
  const ConnectionStats& stats() const override { return stats_; }

  // For tests and diagnosis:
  const CreditWindow& window() const { return window_; }
  void CheckInvariants() const;

 private:
  friend class ConnectionLeases;
  friend class ConnectionTable;
  // What RunEvents() has to tell, as bits of events_.
  enum Event : uint8_t {
    kLinkUp = 1,
    kBroken = 2,
    kCloseRequested = 4,
    kWritable = 8,
    kAdvanceReads = 16,
    kLeasesOverdue = 32,
  };

  FramedConnection(ConnectionTable* table, ConnectionOwner* owner, ConnectionHandler* handler,
                   const Options& options);

  // Sending (framed_send.cc, framed_steps.h).
  bool MakeRoom(size_t frame_bytes);
  bool OpenNextSlot(size_t frame_bytes);
  bool OpenFirstSlot(size_t frame_bytes);
  bool TakeSlot(size_t frame_bytes);
  bool Open(SendSlot slot, uint32_t bytes);
  bool GrowOpenSlot(size_t frame_bytes);
  uint32_t FinishBatch();
  void SendOpenSlot();
  void CancelOpenSlot();
  absl::StatusOr<std::byte*> ReserveLarge(size_t bytes);
  MessageSpace AppendSlowly(size_t bytes) override;
  MessageSpace AppendLarge(size_t bytes);
  void CommitLarge(size_t bytes);
  absl::StatusOr<std::byte*> Refuse();
  void AppendDones();
  void AppendDue();
  bool IsDue() const;
  void FlushTurn();
  void MarkDirty();
  // Receiving (framed_receive.cc).
  void OnBatch(ByteSpan batch, const BatchHeader& header);
  bool TakePart(ByteSpan batch, const BatchHeader& header);
  const char* Account(const BatchHeader& header);
  void KeepEarly(ByteSpan batch);
  void DeliverEarly();
  bool DispatchFrames(ByteSpan batch, uint16_t frames);
  bool TakeOtherFrame(BatchReader& reader);
  bool IsTaken(const Frame& frame);
  void Malformed(std::string_view what);
  // Requests (framed_requests.cc).
  absl::Status AskAtomic(const Request& request, const RemoteSpan& remote, AtomicOperation* op);
  absl::Status Ask(Request request, Operation* probe, AtomicOperation* atomic);
  bool OnRequestFrame(const Frame& frame);
  bool OnReplyFrame(const Frame& frame);
  void AppendReplies();
  absl::Status CheckLeases() const;  // framed_leases.cc
  // Life, events and one-sided (framed_connection.cc).
  void Raise(Event event);
  void RunEvents();
  void Break(const absl::Status& why);
  void ReleaseLink(bool peer_dead);
  absl::Status TooManyOperations();
  absl::Status CheckTransfer(const Transfer& transfer) const;

  // The base classes'.
  void OnLinkUp() override;
  void OnLinkDown(const absl::Status& why) override;
  void OnSlotsFree() override;
  void ListLines(WarmUp* lines) override;
  void DeliverLarge(ByteSpan message) override;
  void OnLargeDelivered() override;
  void OnReadRefused() override;
  void OnReadDone() override;
  void OnReadFailed(const absl::Status& why) override;
  bool ReclaimLarge(std::unique_ptr<Region> region, Operation* op) override;
  void OnLargeReclaimed() override;
  void OnReleased() override;
  void OnOperationFree() override;
  bool HasFence() const override;
  absl::Status SendFenceForReclaimer(Operation* passed) override;
  absl::Status AskForReclaimer(Operation* probe) override;
  void AdvanceSoon() override;

  // What a message touches beside the first cache line (open batch, flush list): three of them.
  alignas(kCacheLineBytes) State state_ = State::kConnecting;
  uint8_t events_ = 0;
  bool wants_writable_ = false;
  bool due_ = false;  // this side's framing itself may have something to say: IsDue() knows
  bool reserved_ = false;
  uint8_t frames_to_part_ = 0;   // LinkDomain's
  uint16_t sent_frames_ = 0;     // of the batch that was sent last
  uint32_t batch_bytes_ = 0;     // of the largest batch; a multiple of kFrameAlignment
  uint32_t usual_bytes_ = 0;     // what most are filled up to; the same
  uint32_t reserved_bytes_ = 0;  // by the open reservation
  uint32_t fill_bytes_ = 0;      // of those opened now: usual_bytes_, or a part's
  SendSlot slot_;                // of batch_
  CreditWindow window_;
  uint32_t sent_bytes_ = 0;  // of the batch that was sent last, its header included
  uint64_t first_unsent_ = 0;
  std::unique_ptr<Link> link_;
  LinkDomain* links_ = nullptr;  // of link_
  FramingDomain* domain_ = nullptr;
  size_t eager_bytes_ = 0;
  uint32_t peer_index_ = 0;
  uint32_t peer_token_ = 0;
  uint32_t send_sequence_ = 0;
  uint32_t receive_sequence_ = 0;
  ConnectionHandler* handler_;
  ConnectionTable* const table_;
  ConnectionStats stats_;
  // The rest.
  ConnectionOwner* const owner_;
  const uint32_t token_;
  uint32_t index_ = 0;
  uint32_t tenant_ = kDefaultTenant;
  bool peer_answers_ = false;      // requests
  bool peer_leases_ = false;       // grants
  bool reads_refused_ = false;     // of large messages, for want of room in the domain
  uint32_t added_send_slots_ = 0;  // AddSlots() to undo
  LargeSender large_sender_;
  LargeReceiver large_receiver_;
  OperationSlots operations_;
  RequestSender request_sender_;
  RequestAnswerer request_answerer_;
  ConnectionLeases leases_;
  Reclaimer reclaimer_;
  EarlyBatches early_;
  absl::Status broken_;  // OK: not broken
  std::string close_reason_;
  bool ended_ = true;  // until Create() succeeds
  ConnectionFacts facts_;
};

}  // namespace weft
