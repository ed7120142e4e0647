// A control connection's socket: frames in and out, non-blocking, bounded in both directions, plain
// or inside TLS (transport/tls/tls_stream.h). It is also the lifeline: while the connection lives
// nothing but a Bye ends it, so an end of the stream or an error means that the peer's process or
// host is gone.
//
// A TLS handshake goes on when it has its turn (shared_tls.h). It stands in the line for that once
// there is a whole record of the peer's, or room for what is still to be sent to it.
//
// Frames are pulled. `on_activity` says that there is something; the owner then calls Receive()
// until it returns false. No callback runs while a frame is looked at. Receive() never reads the
// socket. The poller does, kReadBytes at a time. TLS may then hold more, of which no poller tells:
// has_more() is true, and the owner calls ReadMore() once in its next turn; until it has, the
// poller reads nothing. So a peer takes two reads of a turn at most.
//
// Threads: one engine's. Lifetime: the poller outlives it; it is not destroyed inside
// `on_activity`.
//   Destroying it closes the socket at once; Linger() is the polite end.
// Errors: ended() says what happened, once there is no frame left to receive: UNAVAILABLE for the
//   end of the stream and broken sockets, DATA_LOSS and FAILED_PRECONDITION for a peer that does
//   not keep to the protocol, RESOURCE_EXHAUSTED for one that does not read.
// Invariants: unsent bytes <= kMaxUnsentBytes; unread bytes <= kMaxUnreadBytes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/function.h"
#include "transport/control/control_frame.h"
#include "transport/control/shared_tls.h"
#include "transport/descriptor.h"
#include "transport/path.h"
#include "transport/poller.h"
#include "transport/sockets/address.h"
#include "transport/tls/tls_stream.h"

namespace weft {

class ControlSocket final : private PollHandler, private Handshaker {
 public:
  // A hello and some short messages beside it.
  static constexpr size_t kMaxUnsentBytes = kMaxHelloBodyBytes + (size_t{64} << 10);
  // One largest frame and one read.
  static constexpr size_t kReadBytes = size_t{16} << 10;
  static constexpr size_t kMaxUnreadBytes = kMaxHelloBodyBytes + kControlHeaderBytes + kReadBytes;

  // `descriptor` is connected. `on_activity`: frames have arrived, or the stream has ended. It is
  // called from Poller::Poll().
  ControlSocket(Descriptor descriptor, Poller* poller, Function<void()> on_activity);
  ~ControlSocket();
  ControlSocket(const ControlSocket&) = delete;
  ControlSocket& operator=(const ControlSocket&) = delete;

  // Begins to watch. RESOURCE_EXHAUSTED: the poller is full.
  absl::Status Start() { return Watch(WantedEvents()); }

  // Before the first byte. A client's: TLS begins now, with `server`, whose host it must name, and
  // whose engine it may ask for (wanted_engine.h). A server's: a peer whose first byte is TLS's
  // gets TLS; another one is read as it is, for a socket may join a link, whose own TLS then
  // follows, and whoever lacks TLS should be told so.
  absl::Status StartTls(TlsCredentials* credentials, SharedTls* tls, uint64_t now_ns,
                        const ServerAddress& server, uint32_t wanted_engine = kAnyEngine);
  void ExpectTls(TlsCredentials* credentials, SharedTls* tls, uint64_t now_ns);
  // What is received comes from a peer that has proved what the credentials ask for.
  bool is_secured() const { return stream_.state() == TlsStream::State::kUp; }
  // TLS has begun, and nothing can be said yet.
  bool is_shaking_hands() const { return stream_.state() == TlsStream::State::kHandshake; }
  const TlsStream& stream() const { return stream_; }
  // By TLS; kNone without.
  PeerIdentity identity() const { return is_secured() ? stream_.identity() : PeerIdentity(); }

  // The next frame; false: none now. Its body is valid until the next call.
  bool Receive(ControlFrame* frame);
  // TLS holds more, and the poller may be silent about it: the owner comes back in its next turn,
  // and begins it with ReadMore(). Until then the poller's word is not heeded.
  bool has_more() const { return !gone() && stream_.has_pending(); }
  void ReadMore() {
    if (has_more()) ReadSome();
  }
  // OK while the stream lives, or while frames of it are still to be received.
  const absl::Status& ended() const { return ended_; }
  // The stream has ended, whatever is still to be received.
  bool gone() const { return !stream_end_.ok(); }
  // The protocol that the peer's first bytes belong to.
  ControlFrameReader::Greeting greeting() const { return reader_.greeting(); }

  // Queues a frame, the first one behind the preamble, and sends what the socket takes. After the
  // end it is dropped.
  void Send(ControlType type, ByteSpan body) { Queue(type, /*flags=*/0, body); }
  void Send(ControlType type, const std::string& body) { Send(type, AsBytes(body)); }
  // One that a peer may skip which does not know it.
  void SendIgnorable(ControlType type) { Queue(type, kIgnorable, {}); }
  // Sends text as it is: an answer for a peer that speaks another protocol.
  void SendRaw(std::string_view text);

  // Sends what is queued, tells the peer that no more will come, and from then on throws away what
  // arrives: `on_activity` comes when the peer has closed as well. (Closing with unread bytes
  // would make TCP drop what the peer has not read yet, the Bye among it.)
  // REQUIRES: !is_shaking_hands().
  void Linger();

  // Of Greeting::kJoin.
  const Nonce128& join() const { return reader_.join(); }
  // Lets go of the socket, which may have ended: somebody else's from now on.
  Descriptor Release();

  int fd() const { return descriptor_.get(); }
  // Of the peer's, which Receive() has left out.
  uint64_t skipped_frames() const { return reader_.skipped_frames(); }
  // Ever received.
  uint64_t received_bytes() const { return received_bytes_; }
  // Something has arrived, the end of the stream included, and the poller has not said so yet.
  bool HasUnread() const;
  // Bytes held for this peer.
  size_t held_bytes() const { return reader_.buffered() + unsent_.size(); }

 private:
  void OnReady(uint32_t events) override;
  void GoOn() override;
  void OnHandshakeReady(uint32_t events);
  void Queue(ControlType type, uint16_t flags, ByteSpan body);
  void ReadSome();
  void StartExpectedTls();
  void WriteSome();
  absl::Status Watch(uint32_t events);
  uint32_t WantedEvents() const;
  void EndStream(absl::Status why);

  // A server's, until the peer's first byte.
  struct ExpectedTls {
    TlsCredentials* credentials = nullptr;
    uint64_t now_ns = 0;
  };

  Descriptor descriptor_;
  TlsStream stream_;
  ExpectedTls expected_tls_;
  SharedTls* tls_ = nullptr;  // null: without TLS
  Poller* const poller_;
  Function<void()> on_activity_;
  ControlFrameReader reader_;
  std::vector<std::byte> unsent_;
  uint64_t received_bytes_ = 0;
  // A server's, whose peer has not begun with TLS: what is behind a join stays in the socket.
  bool may_join_ = false;
  bool greeted_ = false;  // the preamble is queued, or sent
  bool lingering_ = false;
  bool shut_ = false;        // no more is sent
  absl::Status stream_end_;  // what the socket said; frames may still be held
  absl::Status ended_;
  uint32_t watched_events_ = 0;  // 0: not in the poller
};

}  // namespace weft
