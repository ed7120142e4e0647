// A link through a socket.
//
//   state        entered by                                         left to
//   kConnecting  construction; the active side dials and sends a    kUp, kDown
//                join, the passive side waits for TakeSocket(); with
//                a secret both go through TLS's handshake
//   kUp          the welcome, which the passive side sends at once  kDown
//   kDown        the socket ended; the peer broke the rules;        (destroyed)
//                Abandon()
//
// What leaves is in tcp_output.h, what arrives in tcp_input.h. Here are the socket, its life, and
// whoever is told of either.
//
// A link with a secret (LinkPeer::secret) has TLS 1.3 on its socket, right behind the join: with
// the secret as its pre-shared key, named by the link's token in hexadecimal; the active side is
// TLS's client. It takes no byte from outside of TLS, and a link without a secret speaks none. What
// is below here is the same with and without, and whoever makes the records (TlsStream::UseKernel).
//
// This side never stops reading: two sides that read large ranges from each other, and both waited
// for the other to take answers, would wait for ever. So what the peer may ask for is bounded
// (kMaxRangesOfLink), and answers are not made before they can leave.
//
// Threads: the engine's. Handlers and users of operations are called by Receive() and
//   DeliverEvent(), so from TcpDomain::Poll(), and by the destructor; Send(), Post(), Retry() call
//   nobody.
// Lifetime: destroyed before its domain. Inside Receive() and DeliverEvent() whoever is called may
//   destroy it: they touch nothing behind that.
// Errors: those of tcp_input.h; UNAVAILABLE for the end of the socket; with a secret those of
//   tls_stream.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/bytes.h"
#include "core/huge_page_arena.h"
#include "core/intrusive_list.h"
#include "transport/descriptor.h"
#include "transport/link.h"
#include "transport/link_life.h"
#include "transport/link_lists.h"
#include "transport/prefetch_list.h"
#include "transport/sockets/address.h"
#include "transport/tcp/tcp_frame.h"
#include "transport/tcp/tcp_input.h"
#include "transport/tcp/tcp_output.h"
#include "transport/tcp/tcp_work.h"
#include "transport/tls/tls_stream.h"

namespace weft {

struct TcpParts;
struct TcpReadyTag;
struct TcpAwaitTag;
struct TcpRecentTag;

class TcpLink final : public Link,
                      public InHugePageArena,
                      public LinkNodes,
                      public ListNode<TcpReadyTag>,
                      public ListNode<TcpAwaitTag>,
                      public ListNode<TcpRecentTag> {
 public:
  TcpLink(TcpParts* parts, LinkHandler* handler, const LinkPeer& peer);
  ~TcpLink() override;

  // The active side: begins to connect.
  absl::Status Dial(const KernelAddress& address);
  // The passive side: this is the socket, and the peer has sent its join. REQUIRES: connecting.
  void Adopt(Descriptor socket);

  // --- Link -------------------------------------------------------------------------------------
  absl::Status Send(const SendSlot& slot, uint32_t bytes) override;
  bool HasRoom() override;
  SendSlot TakeSlot(uint32_t least) override;
  absl::StatusOr<Posted> Post(TransferKind kind, absl::Span<const Transfer> transfers,
                              Operation* op) override;
  bool Reclaim(std::unique_ptr<Region> region) override;
  PrefetchList& prefetch() override { return *prefetch_; }
  void Abandon() override;
  std::string kernel_tls() const override;

  // --- for the domain ---------------------------------------------------------------------------
  bool up() const { return life_.up(); }
  LinkHandler* handler() const { return life_.handler(); }
  const Nonce128& token() const { return token_; }
  // epoll(7) says so.
  void OnReady(uint32_t events);
  // From now on epoll says nothing of this link, if all has left: whoever asks for that calls
  // Receive() in each turn. Watch() tells of what there is, and of what comes.
  void Unwatch();
  void Watch();
  // Reads what there is, once. Returns how much came of it; 0: there was nothing. It is in the
  // domain's list of ready links where there may be more. `this` may be gone then.
  int Receive();
  // Sends what is small, and takes a place among those that go on in turn if there is more.
  void Retry() { Pump(/*most_bytes=*/0); }
  // Sends more of its large transfers.
  void GoOn();
  void DeliverEvent();
  // Others are used now (TcpRecentLinks).
  void GoCold();

 private:
  // Batches that wait for the socket to take bytes. One that finds so many before it would wait for
  // as long as the peer likes, in a slot that others could use: a socket that is full holds 1 MiB
  // before it (kUnsentBytes). More than one, so that what a turn fills leaves by one sendmsg(2)
  // when there is room; four of the widest slots are 512 KiB, half of what the socket holds. 2 and
  // 8 were not tried.
  static constexpr uint32_t kMaxBatchesInLine = 4;

  // Of the active side, until it is up.
  struct Dialing {
    const KernelAddress address;
    bool connected = false;  // and the join has been sent
    uint8_t welcome_bytes = 0;
    std::byte welcome[kWelcomeBytes] = {};
  };
  // Of a link with a secret. Its stream is there once the socket has to speak TLS.
  struct Tls {
    const LinkSecret secret;
    const bool by_kernel;  // LinkPeer::kernel_tls
    const std::string name;
    std::optional<TlsStream> stream;
  };

  absl::Status BeginWatch();
  void StartTls(TlsRole role);
  int OnTlsHandshake();
  void EndTls();
  ssize_t ReadTls(const iovec* iovecs, int count, size_t seen_bytes);
  bool has_unsent() const { return tls_ != nullptr && tls_->stream->unsent() > 0; }
  // There is more to be read that no event tells of (any more): the end, or what the stream has.
  bool has_more() const { return ended_ || (tls_ != nullptr && tls_->stream->has_pending()); }
  bool SendWhole(ByteSpan bytes);
  void SendWelcome();
  void BecomeUp();
  void Fail(const absl::Status& why);
  void Close();
  void EndAll(absl::Status why);
  void Pump(uint64_t most_bytes);
  void OnDialed();
  int OnWelcome();
  int OnNothing(ssize_t count);
  void BeReady();
  absl::Status Check(const Transfer& transfer) const;
  // These: false: the link has failed, or is gone.
  bool Take(TcpInput::Received received);
  bool HandOut(ByteSpan batch);
  bool Complete(TcpOperation* operation, const absl::Status& status);

  TcpParts* const parts_;
  PrefetchList* const prefetch_;
  LinkLife life_;
  Descriptor socket_;
  std::unique_ptr<Dialing> dialing_;
  std::unique_ptr<Tls> tls_;       // null: the link has no secret, or is down
  bool* gone_ = nullptr;           // is set by the destructor: somebody is inside of a callback
  bool watched_ = false;           // by epoll
  bool writable_ = false;          // the kernel has not refused bytes since it took some
  bool wants_room_ = false;        // HasRoom() was false
  bool wants_operations_ = false;  // Post() found too many on this link
  bool tell_room_ = false;         // the handler is to hear of room
  bool ended_ = false;             // epoll says that the peer has closed, or that there is an error
  uint32_t ranges_ = 0;            // of operations_
  IntrusiveList<TcpOperation, TcpOperationTag> operations_;
  const Nonce128 token_;
  TcpInput input_;
  TcpOutput output_;  // last: GoCold()
};

}  // namespace weft
