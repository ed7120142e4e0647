// The records of a TLS stream behind its handshake, made and opened by the kernel (kernel_tls.h):
// for who has a card that encrypts, or wants the work there. TlsStream begins one in the place of a
// TlsRecordStream, with the same calls.
//
// The kernel has the keys of both directions, one each at a time. What remains here are TLS's own
// messages: alerts, key updates, tickets.
//
//   out   a key update leaves before the kernel has made records_per_key() records with a key, and
//         when the peer asks for one. The kernel takes it whole or not at all, and gets the next
//         key right behind it: nothing is between the two. What the socket has no room for waits
//         in update_ and ends_, and nothing leaves before it. A broken socket takes everything,
//         as TlsOutput's does: what is read of it says why
//   end   the kernel may hold records that a full socket had no room for. It forgets them when the
//         socket is closed (7.2), where bytes of Weft's own records would still leave: then the
//         peer has not heard the end either, and finds the stream cut
//   in    the kernel gives records of one type at a time. A key update stops it until it has the
//         next key, which it gets at once
//
// A Read() is one call of recvmsg(2) that brings data, of kMaxReadBytes at most, and no more than
// kMaxReadRecords that bring something else. The kernel copies what it has opened, and checked
// first: in TLS 1.3 it opens in the reader's memory only where TLS_RX_EXPECT_NO_PAD has been set,
// which nobody here does. What others may see of the reader's memory is read by the scratch all the
// same, so that a message of TLS's own is not there for a moment.
//
// What the kernel does not bound: records of one byte, of which a Read() opens as many as it has
// bytes asked for, and records without data, which it opens as long as there are more
// (docs/security.md, "What does not hold"). That is why nobody gets this stream who has not asked
// for it (SecurityOptions::kernel_tls).
//
// Threads: one engine's. Lifetime: descriptor and scratch outlive it.
// Errors: as TlsRecordStream's, in the same words as far as the kernel tells one from the other.
//   INTERNAL for a kernel that does not take a next key: one whose card makes the records may not.
// Invariants: the kernel has no key twice. Nothing is held here between two calls.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/bytes.h"
#include "transport/tls/kernel_tls.h"
#include "transport/tls/tls_record_layer.h"
#include "transport/tls/tls_record_stream.h"
#include "transport/tls/tls_records.h"
#include "transport/tls/tls_scratch.h"

namespace weft {

class TlsKernelStream final : public TlsRecordLayer {
 public:
  static constexpr size_t kMaxWriteBytes = TlsRecordStream::kMaxWriteBytes;
  static constexpr size_t kMaxReadBytes = TlsScratch::kInputBytes;
  static constexpr int kMaxReadRecords = TlsRecordStream::kMaxReadRecords;

  // Gives the keys to the kernel. An error: the socket is as it was, *records too; where it is
  // INTERNAL, the kernel has one direction's key, and the socket is good for nothing. REQUIRES:
  // nothing has been made or read with the keys, and what the peer has sent with its own is still
  // in the socket, all of it; AskKernelForTls() is OK.
  static absl::StatusOr<std::unique_ptr<TlsKernelStream>> Begin(
      int fd, TlsScratch* scratch, std::unique_ptr<TlsRecords>* records);
  TlsKernelStream(const TlsKernelStream&) = delete;
  TlsKernelStream& operator=(const TlsKernelStream&) = delete;

  ssize_t Read(const iovec* iovecs, int count, size_t seen_bytes) override;
  ssize_t Write(const iovec* iovecs, int count) override;
  void Flush() override;
  void End() override;

  // The kernel stops at what is of another type, and does not say so: there may be more until it
  // says that there is none.
  bool has_pending() const override { return at_end_ || socket_has_more_; }
  size_t unsent() const override;
  size_t reserved() const override { return 0; }

 private:
  enum class Update : uint8_t { kNone = 1, kOwn = 2, kAsksForPeers = 3 };
  // The pieces of a call that are handed on: as many as TcpOutput gathers.
  static constexpr int kMaxPieces = 64;
  struct Pieces {
    iovec first[kMaxPieces];
    int count = 0;
    size_t bytes = 0;
  };

  TlsKernelStream(int fd, TlsScratch* scratch, std::unique_ptr<TlsRecords> records)
      : fd_(fd), scratch_(scratch), records_(std::move(records)) {}

  static Pieces Clip(const iovec* iovecs, int count, size_t most_bytes);
  // One call of the kernel's; what it has brought of data.
  size_t Receive(const Pieces& pieces, bool is_seen, const iovec* iovecs, int count);
  // What is no data: `received` of it lies at the beginning of the scratch.
  void OnMessage(KernelTlsReceived received);
  void OnSaid(TlsRecords::Message said);
  void OnReceiveError(int error);
  void CountOwnMessage();
  void CountData(size_t bytes);
  // Hands a message of TLS's own to the kernel. False: the socket is full, or the stream has
  // failed.
  bool SendMessage(TlsRecords::Kind kind, ByteSpan content);
  bool OnSendError(int error);
  bool SendUpdate();
  void WantUpdate(Update update);
  void FailRecord(TlsRecords::Fault fault);
  void Fail(absl::Status why);

  const int fd_;
  TlsScratch* const scratch_;
  const std::unique_ptr<TlsRecords> records_;

  Update update_ = Update::kNone;  // to be sent
  bool ends_ = false;              // close_notify is to be sent
  bool ended_ = false;             // by End()
  bool socket_broken_ = false;     // it takes everything
  uint64_t out_records_ = 0;       // with this key

  bool at_end_ = false;          // the peer has ended its direction in good order
  bool socket_has_more_ = true;  // as far as this side knows
  bool asked_ = false;           // for the peer's next key
  uint64_t in_bytes_ = 0;        // since the kernel was asked for the number of records
  TlsOwnMessages own_messages_;
};

}  // namespace weft
