// The domain of tcp links: which sockets to look at, and when.
//
// A turn (Poll()) sends what is small, reads sockets that have something, sends what came of that
// and more of large transfers, and tells handlers; tcp_turn.h bounds what it moves. A look at a
// socket and a look at all of them (epoll(7)) are a system call each. So the link that most likely
// brings something next (TcpLikelyLink) is read at once in every turn, and as long as it has
// something the others are asked for only every kLooksBetween turns. Where many links bring
// something unasked there is none, so that nobody is read in vain.
//
// For each message that arrives at a watched socket the kernel enters it into epoll's list, which
// both processors then write to: a tenth of a round trip. So a link that has been near for
// TcpLikelyLink::kHitsToUnwatch messages is not watched any more, until another takes its place,
// its socket is full, or the engine wants to sleep.
//
// Threads: the engine's.
// Lifetime: links and regions are destroyed before their domain. Handlers and sinks called from
//   Poll() may destroy any link, open new ones and post; they do not call Poll().
// Errors: what a peer does ends its link at most.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/descriptor.h"
#include "transport/link.h"
#include "transport/tcp/tcp.h"
#include "transport/tcp/tcp_parts.h"

namespace weft {

class TcpDomain final : public LinkDomain {
 public:
  // By OpenTcpDomain(), which has checked these.
  TcpDomain(const TcpOptions& options, Descriptor epoll);
  ~TcpDomain() override;

  const PathInfo& path() const override { return path_; }
  // Empty: peers know where the listener is.
  const std::string& address() const override { return path_.local; }
  uint32_t slot_bytes() const override { return parts_.slots.widest_bytes(); }
  uint32_t usual_slot_bytes() const override { return parts_.slots.usual_bytes(); }
  absl::Status AddSlots(uint32_t send, uint32_t receive) override;
  void RemoveSlots(uint32_t send, uint32_t receive) override;
  SendSlot AcquireSlot() override { return parts_.slots.Take(); }
  SendSlot AcquireWideSlot() override { return parts_.slots.TakeWide(); }
  void ReleaseSlot(SendSlot slot) override { parts_.slots.Give(TcpSlots::SlotOf(slot)); }
  absl::StatusOr<std::unique_ptr<Link>> Connect(const LinkPeer& peer,
                                                LinkHandler* handler) override;
  absl::StatusOr<std::unique_ptr<Link>> Accept(const LinkPeer& peer, LinkHandler* handler) override;
  absl::Status TakeSocket(Descriptor socket, const Nonce128& nonce) override;
  absl::StatusOr<std::unique_ptr<Region>> Register(MutableByteSpan memory, Access access) override;
  int Poll(int budget) override;
  bool Arm() override;
  int descriptor() const override { return epoll_.get(); }
  bool busy() const override { return false; }  // the descriptor tells of everything
  const LinkDomainStats& stats() const override { return parts_.stats; }

 private:
  // Links that have something are told by so many at a time; the rest in the next turn. Of 12 bytes
  // each, on the stack.
  static constexpr int kMaxEvents = 64;
  // In turns in which the likely link has something: so long others wait. A look at all is a system
  // call, a quarter of one for each turn; with more, what is left of it is not worth the waiting.
  static constexpr int kLooksBetween = 4;
  // In bytes: when it has brought so many in a turn, which takes as long as several looks, all
  // others are looked at in that turn.
  static constexpr uint64_t kBytesToLookAtAll = 16 << 10;

  bool LookAt(TcpLink* link);
  void LookAtAll();
  int ReceiveReady(int budget);
  void SendInTurn();

  PathInfo path_;
  const Descriptor epoll_;
  TcpParts parts_;
  int turns_to_look_ = 0;
};

}  // namespace weft
