// Who makes and reads the records of a TLS stream behind its handshake, where it is not OpenSSL:
// Weft itself (tls_record_stream.h), or the kernel (tls_kernel_stream.h). For the peer it is the
// same TLS.
//
// Threads: one engine's. Lifetime: a member of its stream.
// Errors: failed(), for good, and error() says why, as TlsStream's do: calls are -1 with EPROTO.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"

namespace weft {

// How much a peer says that is TLS's own, once a stream is up: key updates, tickets, records
// without data. Each costs 0.4 us at least, an update 10, and brings nothing.
class TlsOwnMessages {
 public:
  // And one more for each MiB of data: Weft updates its key after 2^24 records (RFC 8446, 5.5
  // allows 2^24.5).
  static constexpr uint64_t kMost = 32;

  void AddData(uint64_t bytes) { data_bytes_ += bytes; }
  // One more. False: too many.
  [[nodiscard]] bool Count() { return ++count_ <= kMost + (data_bytes_ >> 20); }
  static absl::Status TooMany() {
    return absl::DataLossError("TLS: the peer floods the stream with key updates or empty records");
  }

 private:
  uint64_t count_ = 0;
  uint64_t data_bytes_ = 0;
};

// TlsStream's calls of the same names.
class TlsRecordLayer {
 public:
  virtual ~TlsRecordLayer() = default;

  virtual ssize_t Read(const iovec* iovecs, int count, size_t seen_bytes) = 0;
  // REQUIRES: no End() before.
  virtual ssize_t Write(const iovec* iovecs, int count) = 0;
  // Goes on with what is unsent.
  virtual void Flush() = 0;
  virtual void End() = 0;

  virtual bool has_pending() const = 0;
  // What the kernel has not taken yet, in bytes. While there is any a Write() finds EAGAIN.
  virtual size_t unsent() const = 0;
  // Memory that is held between two calls, in bytes.
  virtual size_t reserved() const = 0;

  bool failed() const { return !error_.ok(); }
  const absl::Status& error() const { return error_; }

 protected:
  absl::Status error_;
};

}  // namespace weft
