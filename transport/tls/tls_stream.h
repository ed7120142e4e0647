// A connected stream socket, plain or with TLS 1.3 on it, with the semantics of a non-blocking
// socket's calls either way.
//
//   state       set by                              left for
//   kPlain      construction                        kHandshake
//   kHandshake  Start()                             kUp, kFailed
//   kUp         the handshake is complete, and the  kFailed
//               peer is who it should be
//   kFailed     the peer, or the stream, broke the  (never)
//               rules; error() says how
//
// Read(), Write() and Flush() go on with the handshake by themselves, and find EAGAIN until it is
// complete. OpenSSL is asked only once a record of the peer's is whole: ReceiveFlight() says so,
// and costs no more than to take it from the socket. A client is in kUp before the server has
// looked at its certificate: where the server refuses it, the client's first Read() fails with the
// server's alert.
//
// A Write() becomes records of 16 KiB, the last one shorter, and one send(2). What the kernel does
// not take of them is held here: unsent() says how much, and Flush() goes on with it once the
// socket is writable; Write() takes nothing more until then. A Read() takes a little more than
// asked for out of the kernel; has_pending() says that bytes wait here, which no poller tells of.
// It opens kMaxReadRecords records at most, however short they are: the rest waits for the next.
//
// OpenSSL carries out the handshake. Behind it, a stream with a pre-shared key goes over to records
// of our own (tls_record_stream.h): its suite is AES-256-GCM, and its server gives no tickets, so
// that OpenSSL has used neither side's key. Streams with certificates stay with OpenSSL, whose
// servers send a ticket under the first number. TakeOver() checks this, and stays with OpenSSL
// where it does not hold. It is the same TLS for the peer, who need not do the same.
//
// After UseKernel() the kernel makes and opens the records instead (tls_kernel_stream.h), where it
// offers that, and nothing of what the peer has sealed was taken from the socket: such a stream
// takes whole records during the handshake, one by one. Where one of these does not hold somebody
// else makes the records, as above, and why_not_kernel() says why. (OpenSSL has kernel TLS only for
// a socket that it reads and writes by itself, record by record.)
//
// Threads: one engine's. Lifetime: the descriptor, credentials and scratch outlive it. It does not
//   move. It closes nothing.
// Errors: kFailed's are in error(), and calls return -1 with EPROTO: UNAUTHENTICATED for a peer
//   that cannot prove who it is, or does not accept our proof; FAILED_PRECONDITION for one that
//   speaks no TLS, or none that we do; UNAVAILABLE for a stream that was cut; DATA_LOSS for one
//   that was tampered with. A plain socket's are in errno.
// Invariants: held for a peer before kUp: what it sent, <= kMaxHandshakeBytes; unsent() <=
//   kMaxUnsentBytes; read ahead of the reader: <= kMaxReadBytes, and what OpenSSL holds, a record.
//   What Read() returns has been authenticated; nothing else gets into the reader's memory, but for
//   what nobody sees by its word.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "core/bytes.h"
#include "transport/identity.h"
#include "transport/tls/tls_credentials.h"
#include "transport/tls/tls_output.h"
#include "transport/tls/tls_record_stream.h"
#include "transport/tls/tls_scratch.h"

struct ssl_st;   // OpenSSL's SSL
struct x509_st;  // OpenSSL's X509

namespace weft {

// A pre-shared key: a name, which is no secret, and a secret.
struct TlsKey {
  std::string_view name = {};
  ByteSpan secret = {};
};

class TlsStream {
 public:
  static constexpr size_t kRecordBytes = TlsRecordStream::kRecordBytes;
  static constexpr size_t kMaxWriteBytes = TlsRecordStream::kMaxWriteBytes;
  static constexpr size_t kMaxReadBytes = TlsRecordStream::kMaxReadBytes;
  static constexpr int kMaxReadRecords = TlsRecordStream::kMaxReadRecords;
  static constexpr size_t kMaxIdleBytes = TlsRecordStream::kMaxIdleBytes;
  static constexpr uint64_t kMaxOwnMessages = TlsOwnMessages::kMost;
  static constexpr size_t kMaxUnsentBytes = TlsScratch::kMaxUnsentBytes;
  // A hello, a chain of four certificates with RSA keys, and as much again. OpenSSL's own limit for
  // a chain is set below it.
  static constexpr size_t kMaxHandshakeBytes = size_t{64} << 10;
  // Certificates that a peer may show: its own and those of authorities between it and a root, of
  // which there are two or three. Each costs up to 0.3 ms (sect571r1) before anything is known of
  // who shows it.
  static constexpr int kMaxCertificates = 8;
  // Alternative names of a peer's certificate. Those of public authorities have up to 100; each
  // takes part in each decision about the peer's calls.
  static constexpr size_t kMaxNames = 256;
  // Extensions of any of its certificates, of which others have some ten; OpenSSL keeps 150 bytes
  // of each for as long as the peer is connected.
  static constexpr int kMaxExtensions = 64;
  // Reads of a handshake, two for each record, after which it is no more read for the kernel: a
  // handshake has some six records.
  static constexpr int kMaxHandshakeReads = 32;
  // One record with its header and all that may be added to it.
  static constexpr size_t kReadAheadBytes = kRecordBytes + 256 + 5;

  enum class State : uint8_t { kPlain = 1, kHandshake = 2, kUp = 3, kFailed = 4 };
  enum class RecordsBy : uint8_t { kOpenssl = 1, kWeft = 2, kKernel = 3 };

  // Plain.
  explicit TlsStream(int fd) : fd_(fd), output_(fd) {}
  ~TlsStream();
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;

  // From here on all bytes are TLS's, in the role of the credentials. `host`, a client's: of the
  // server's address, which its certificate must name. `address`: all of it, by which the server's
  // tickets are known. `key`: if the credentials bring none; outlives the stream. REQUIRES: kPlain.
  absl::Status Start(TlsCredentials* credentials, TlsScratch* scratch, uint64_t now_ns,
                     std::string_view host = {}, std::string_view address = {},
                     const TlsKey& key = {});
  // A client's: its hello offers one more protocol (ALPN) behind weft/1. No server of ours chooses
  // it: it is for who looks at the hello on the way in. 1 to 255 bytes. REQUIRES: between Start()
  // and the first Flush().
  absl::Status AlsoOffer(std::string_view protocol);
  // Behind the handshake the kernel is to make and open the records, if it can: AskKernelForTls()
  // is asked. REQUIRES: behind Start(), before anything has been received.
  void UseKernel();

  // The bytes read into `iovecs`; 0: the peer has ended the stream in good order. A stream that
  // ends without TLS's own end may have been cut by anybody on the way: that is an error.
  // `seen_bytes`: of the reader's memory, the first ones that others may look at at any time. The
  // rest nobody sees before it is told to be read, nor if the stream fails: there, a record that is
  // found to be wrong may leave whatever its maker likes.
  ssize_t Read(const iovec* iovecs, int count, size_t seen_bytes = ~size_t{0});
  // The bytes taken out of `iovecs`.
  ssize_t Write(const iovec* iovecs, int count);
  // Goes on with the handshake and with what is unsent. False: there is something left for the
  // kernel to take; wait until the socket is writable.
  bool Flush();
  // Tells the peer that nothing more comes. The socket is the caller's to shut down, after Flush().
  // No Write() may follow.
  void End();

  State state() const { return state_; }
  bool is_plain() const { return state_ == State::kPlain; }
  const absl::Status& error() const { return error_; }
  // Whether the handshake has what it needs for its next step, which may cost milliseconds (a
  // signature, the checks of others): a whole record, or a client's first word. Takes what the
  // socket has; where that shows that there will be no handshake, the stream has failed.
  // REQUIRES: kHandshake.
  bool ReceiveFlight();
  // A Read() would not be in vain, whatever the socket says: bytes wait here, or the end does.
  bool has_pending() const;
  // Memory that is held between two calls, without OpenSSL's, in bytes.
  size_t reserved() const {
    return kept_.capacity() + output_.reserved() + (layer_ == nullptr ? 0 : layer_->reserved());
  }
  size_t unsent() const { return layer_ == nullptr ? output_.unsent() : layer_->unsent(); }
  // What is proved in the place of a certificate, of credentials that use pre-shared keys.
  const TlsKey& key() const { return key_; }
  // The handshake did without certificates, for the peers had met before.
  bool resumed() const;
  // Who makes and opens the records behind the handshake. REQUIRES: kUp.
  RecordsBy records_by() const { return records_by_; }
  // In words, why it is not the kernel. Empty where it is, and without UseKernel(). REQUIRES: kUp.
  const std::string& why_not_kernel() const { return why_not_kernel_; }

  // Who the peer is, without what only the kernel knows. REQUIRES: kUp.
  PeerIdentity identity() const;
  // Bytes that both sides of this stream, and nobody else, can compute (RFC 8446, 7.5).
  // REQUIRES: kUp.
  absl::Status Export(std::string_view label, ByteSpan context, MutableByteSpan secret) const;

 private:
  friend struct TlsCallbacks;  // OpenSSL's calls, in tls_stream.cc

  // Goes on with the handshake; whether it is complete.
  bool ContinueHandshake();
  void RunFlight();
  absl::Status CheckPeer() const;
  absl::Status CheckSize(x509_st* own) const;
  ssize_t ReadTls(const iovec* iovecs, int count, size_t seen_bytes);
  ssize_t WriteTls(const iovec* iovecs, int count);
  // Makes one record of 1..kRecordBytes; false: failed, and errno says so.
  bool Seal(ByteSpan plain);

  // Goes over to records of our own, or the kernel's, where that can be.
  void TakeOver();
  // Why OpenSSL goes on with the records, in words; nullptr: *records are made, for somebody else.
  const char* MakeRecords(std::unique_ptr<TlsRecords>* records);
  // False: *records are still there, to be used by ourselves.
  bool GiveToKernel(std::unique_ptr<TlsRecords>* records);
  // What a call of layer_ has returned: where that has failed, this has.
  ssize_t OfLayer(ssize_t result);

  // What a call of OpenSSL's that returned `result` means: the errno for our caller.
  int Judge(int result, const char* action);
  void Fail(absl::Status why);
  // The same, and says nothing to the peer.
  void BecomeFailed(absl::Status why);
  absl::Status HandshakeError() const;
  // Sends what OpenSSL has made, and keeps the rest.
  void SendOutput();

  // BIO: what OpenSSL reads and writes.
  int TakeInput(std::byte* to, size_t bytes);
  // A message of TLS's own has come, or a record without data.
  void CountOwnMessage();
  // A message of the handshake has come, and is to be read by OpenSSL.
  void LookAtCertificates(MutableByteSpan message);
  // The header of a record has come.
  void CountRecord() { ++read_records_; }
  // The call is over: what is left of the scratch's input is kept here.
  void KeepInput();
  // Of kHandshake: what is to be read at most.
  size_t HandshakeBytesWanted() const;
  // One recv(2), of recv_limit_ bytes at most. An empty span: nothing now, or cut_, or
  // socket_error_.
  ByteSpan Receive();
  // Of kHandshake: takes what the peer has sent, behind what is held. False: nothing has come, or
  // the stream has failed.
  bool ReceiveHandshake();
  // kFailed if the stream has ended; whether it has.
  bool FailIfEnded(const char* action);

  // Constant after Start().
  const int fd_;
  TlsCredentials* credentials_ = nullptr;
  TlsScratch* scratch_ = nullptr;
  ssl_st* ssl_ = nullptr;
  std::string host_;
  TlsKey key_;
  std::string ticket_name_;

  bool speaks_first_ = false;  // a client's, until it has
  State state_ = State::kPlain;
  absl::Status error_;
  std::unique_ptr<TlsTrafficSecrets> secrets_;  // in kHandshake, once OpenSSL has told one
  bool ended_ = false;                          // by End()
  TlsOutput output_;
  bool wants_kernel_ = false;
  RecordsBy records_by_ = RecordsBy::kOpenssl;
  std::string why_not_kernel_;
  std::unique_ptr<TlsRecordLayer> layer_;  // null: OpenSSL makes and reads the records

  // While OpenSSL reads:
  bool cut_ = false;              // recv(2) has said that the stream is at its end
  bool at_end_ = false;           // the peer has ended it in good order
  int socket_error_ = 0;          // errno of recv(2)
  uint64_t handshake_bytes_ = 0;  // received in kHandshake
  int handshake_reads_ = 0;
  bool too_many_certificates_ = false;  // the peer has shown
  TlsOwnMessages own_messages_;         // of TLS itself in kUp: key updates, tickets
  int read_records_ = 0;                // begun by OpenSSL in this Read()
  bool paused_ = false;                 // its last Read() left off before the socket was empty
  size_t recv_limit_ = 0;               // of this call; 0: the socket has been emptied
  ByteSpan input_;                      // in the scratch or in kept_: not yet given to OpenSSL
  size_t whole_bytes_ = 0;  // of input_ in kHandshake: whole records, which OpenSSL may have
  std::vector<std::byte> kept_;
};

}  // namespace weft
