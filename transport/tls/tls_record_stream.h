// The records of a TLS stream behind its handshake, made and read by Weft itself (tls_records.h),
// over the stream's socket. TlsStream begins one where OpenSSL has used neither side's key yet, and
// from then on reads and writes by it alone.
//
// Calls are TlsStream's of the same names. A Read() takes records out of the socket in full ones,
// as many as the reader has room for, opens them where they lie and copies: nothing gets into the
// reader's memory that was not authenticated, for that may be a region that others see. Where the
// reader says that nobody sees it before the read is over (behind `seen_bytes`), whole records are
// opened there, which saves the copy. What is left over waits here, opened_ before input_, in one
// piece of memory:
//
//   opened_  content of the last record that was opened and has not been read
//   input_   what has been received behind it, and is sealed: at most the part of a record, or what
//            kMaxReadRecords have left
//
// Threads: one engine's. Lifetime: descriptor, scratch and output outlive it.
// Errors: failed(), for good, and error() says why: calls are -1 with EPROTO. What is wrong with a
//   record is told to the peer by an alert.
// Invariants: read ahead of the reader: <= kMaxReadBytes. Between two calls nothing of it is in
//   the scratch.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "core/bytes.h"
#include "transport/tls/tls_output.h"
#include "transport/tls/tls_record_layer.h"
#include "transport/tls/tls_records.h"
#include "transport/tls/tls_scratch.h"

namespace weft {

class TlsRecordStream final : public TlsRecordLayer {
 public:
  // The plain bytes of a full record.
  static constexpr size_t kRecordBytes = TlsRecords::kMostPlainBytes;
  // Plain bytes that a Write() takes at most, and sealed ones that a Read() takes at one go.
  static constexpr size_t kMaxWriteBytes = TlsScratch::kRecords * kRecordBytes;
  static constexpr size_t kMaxReadBytes = TlsScratch::kInputBytes;
  // A Read() opens at most so many records, those without data among them. A record of one byte
  // costs 1.5 us by OpenSSL and 0.4 us by tls_records.h, so a Read() takes 0.1 ms at most; full
  // records are 1 MiB, sixteen times what one recv(2) takes.
  static constexpr int kMaxReadRecords = 64;
  // What was read ahead, and is used up, keeps no more memory than this once the socket is empty: a
  // small message or two, which to free would gain nothing. In bytes.
  static constexpr size_t kMaxIdleBytes = size_t{1} << 10;

  // `input`: what has come already, <= kMaxReadBytes. `records` has made and read none yet.
  TlsRecordStream(int fd, TlsScratch* scratch, TlsOutput* output,
                  std::unique_ptr<TlsRecords> records, ByteSpan input);
  TlsRecordStream(const TlsRecordStream&) = delete;
  TlsRecordStream& operator=(const TlsRecordStream&) = delete;

  ssize_t Read(const iovec* iovecs, int count, size_t seen_bytes) override;
  ssize_t Write(const iovec* iovecs, int count) override;
  void Flush() override { Send(); }
  void End() override;

  bool has_pending() const override;
  size_t unsent() const override { return output_->unsent(); }
  size_t reserved() const override { return kept_.capacity(); }

 private:
  bool Receive(size_t wanted);
  // Opens the record that input_ begins with, of so many bytes, where it lies.
  // REQUIRES: opened_ is empty.
  void Open(size_t bytes);
  // The same in the reader's memory. REQUIRES: room for TlsRecords::SealedBytes() there.
  void OpenInto(size_t bytes, IovecCursor* to);
  void OnNoData(TlsRecords::Opened opened, ByteSpan content);
  void GiveOpened(IovecCursor* to);
  bool HoldsRecord() const;
  void KeepInput();
  void OnSaid(TlsRecords::Message said);
  void CountOwnMessage();
  void AddAlert(TlsRecords::Alert alert);
  void AddKeyUpdate(bool requests_update);
  void Send();
  void FailRecord();
  void Fail(absl::Status why);

  const int fd_;
  TlsScratch* const scratch_;
  TlsOutput* const output_;
  const std::unique_ptr<TlsRecords> records_;

  bool at_end_ = false;          // the peer has ended its direction in good order
  bool ended_ = false;           // by End()
  bool socket_has_more_ = true;  // it may, as far as this side knows: the last read was not short
  TlsOwnMessages own_messages_;
  MutableByteSpan opened_;  // in the scratch or in kept_
  MutableByteSpan input_;   // the same, behind it
  std::vector<std::byte> kept_;
};

}  // namespace weft
