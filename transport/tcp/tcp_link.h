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
// What leaves is in tcp_output.h. What arrives is read into the domain's buffer, and taken there:
// batches are handed out where they were received. A frame that is not whole yet is kept: its head
// here, a batch or a request in a cell of its own, into which the rest is received; and bytes of
// reads and writes are received straight into their place, without the buffer.
//
//   what the next bytes are   body_
//   a frame                   kNone
//   the rest of a batch, or of a request to read    kFrame
//   of an answer, for local memory of an operation  kAnswer
//   of a write, for a region                        kWrite
//   of a write that is refused                      kNowhere
//
// A link with a secret (LinkPeer::secret) has TLS 1.3 on its socket, right behind the join: with
// the secret as its pre-shared key, named by the nonce in hexadecimal; the active side is TLS's
// client. It takes no byte from outside of TLS, and a link without a secret speaks none. What is
// below here is the same with and without.
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
// Errors: DATA_LOSS for a peer that breaks the rules of tcp_frame.h, UNAVAILABLE for the end of the
//   socket; with a secret those of tls_stream.h.
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
#include "transport/tcp/tcp_output.h"
#include "transport/tcp/tcp_regions.h"
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
                      public TcpRegionUser,
                      public ListNode<TcpAwaitTag>,
                      public ListNode<TcpRecentTag> {
 public:
  TcpLink(TcpParts* parts, LinkHandler* handler, const Nonce128& token,
          const std::optional<LinkSecret>& secret);
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
  // Sends what waits.
  void Retry();
  void DeliverEvent();
  // Others are used now (TcpRecentLinks).
  void GoCold();
  // What the peer writes there is dropped from here on.
  void OnRegionGone(uint64_t key) override;

 private:
  enum class Body : uint8_t { kNone = 1, kFrame = 2, kAnswer = 3, kWrite = 4, kNowhere = 5 };

  // Batches that wait for the socket to take bytes. One that finds so many before it would wait for
  // as long as the peer likes, in a slot that others could use. With the widest slots it is 512
  // KiB.
  static constexpr uint32_t kMaxBatchesInLine = 4;
  // The rest of a body that is received into its place, in bytes. Less is copied out of the buffer:
  // that takes 0.05 us where it lies in the near caches, and readv(2) takes 0.4 us more than
  // recv(2), but the caches are not always near.
  static constexpr size_t kDirectBytes = 4 << 10;
  // Read behind a piece into the buffer, in bytes: the next piece is not to be copied out of there.
  static constexpr size_t kBehindPiece = 1 << 10;
  static constexpr size_t kMostHeadBytes = kTcpHeaderBytes + kTcpWriteHeadBytes;

  // Of a link with a secret. Its stream is there once the socket has to speak TLS.
  struct Tls {
    const LinkSecret secret;
    const std::string name;
    std::optional<TlsStream> stream;
  };

  absl::Status BeginWatch();
  void StartTls(TlsRole role);
  int OnTlsHandshake();
  void EndTls();
  ssize_t ReadTls(const iovec* iovecs, int count, bool* more, size_t seen_bytes);
  bool has_unsent() const { return tls_ != nullptr && tls_->stream->unsent() > 0; }
  bool SendWhole(ByteSpan bytes);
  void SendWelcome();
  void BecomeUp();
  void Fail(const absl::Status& why);
  void BreakRules(const TcpHeader& header, std::string_view what);
  void Close();
  void EndAll(absl::Status why);
  void Pump();
  void FinishDial();
  int OnWelcome();
  int OnNothing(ssize_t count);
  void BeReady();
  absl::Status Check(const Transfer& transfer) const;
  TcpOperation* FindOperation(const TcpHeader& header) const;

  // All of these: false: the link has failed, or is gone.
  bool Take(const std::byte* at, size_t bytes);
  bool TakeFrame(const std::byte** at, size_t* bytes);
  bool BeginBody(const TcpHeader& header, const std::byte* payload);
  bool BeginAnswer(const TcpHeader& header);
  bool BeginWrite(const TcpHeader& header, const std::byte* payload);
  bool OnFrame(const TcpHeader& header, const std::byte* payload);
  bool OnRead(const TcpHeader& header, const std::byte* spans);
  bool OnEnd(const TcpHeader& header);
  bool FinishBody();
  bool FinishOperation(const TcpHeader& header, TcpOperation* operation);
  template <class Add>
  bool Owe(const TcpHeader& header, Add add);
  MutableByteSpan Place() const;
  bool Advance(size_t bytes);
  bool Complete(TcpOperation* operation, const absl::Status& status);

  TcpParts* const parts_;
  PrefetchList* const prefetch_;
  LinkLife life_;
  Descriptor socket_;
  std::unique_ptr<Tls> tls_;       // null: the link has no secret, or is down
  bool* gone_ = nullptr;           // is set by the destructor: somebody is inside of a callback
  bool watched_ = false;           // by epoll
  bool writable_ = false;          // the kernel has not refused bytes since it took some
  bool wants_room_ = false;        // HasRoom() was false
  bool wants_operations_ = false;  // Post() found too many on this link
  bool tell_room_ = false;         // the handler is to hear of room
  bool ended_ = false;             // epoll says that the peer has closed, or that there is an error
  bool dials_ = false;             // the active side, until the socket is connected
  bool joined_ = false;            // the active side: the join has been sent

  // What arrives.
  Body body_ = Body::kNone;
  uint8_t padding_ = 0;         // bytes to skip, behind the body
  uint8_t head_bytes_ = 0;      // of head_
  bool refused_ = false;        // the write, or a piece of it before
  bool in_transfer_ = false;    // the last frame was a piece, and more will come
  bool write_goes_on_ = false;  // its last piece has not come
  uint32_t sequence_ = 0;       // of the next frame
  uint32_t written_ = 0;        // the peer's number of the write
  TcpHeader header_;            // of the body
  uint64_t body_left_ = 0;
  std::byte* place_ = nullptr;                 // kFrame, kWrite: of the next byte
  uint64_t region_key_ = 0;                    // kWrite
  TcpOperation* answered_ = nullptr;           // kAnswer
  std::unique_ptr<std::byte[]> frame_;         // kFrame
  alignas(8) std::byte head_[kMostHeadBytes];  // of a frame that is not whole

  uint32_t ranges_ = 0;  // of operations_
  IntrusiveList<TcpOperation, TcpOperationTag> operations_;
  const Nonce128 token_;
  TcpOutput output_;
};

}  // namespace weft
