// Room that all TLS streams of an engine use in turn, for the length of one call.
//
// Threads: one engine's. Lifetime: outlives its streams. Errors: none.
#pragma once

#include <cstddef>
#include <vector>

#include "core/bytes.h"
#include "transport/tls/tls_records.h"

namespace weft {

class TlsScratch {
 public:
  // Of one recv(2), and of one send(2), in records: what is sealed and opened in between stays in
  // the near cache, and with two cores one seals while the other opens.
  static constexpr size_t kRecords = 4;
  static constexpr size_t kInputBytes = kRecords * TlsRecords::kMostBytes;
  // Each record may have a key update before it.
  static constexpr size_t kSealedBytes =
      kRecords * (TlsRecords::kMostBytes + TlsRecords::kKeyUpdateBytes);
  // What a stream may hold that the kernel has not taken, in bytes: of a write, and what TLS has to
  // say by itself: alerts, key updates.
  static constexpr size_t kMaxUnsentBytes = kSealedBytes + (size_t{64} << 10);

  MutableByteSpan input() { return input_; }
  // Where records of our own are made.
  MutableByteSpan sealed() { return sealed_; }
  // What OpenSSL makes. Empty between calls. It grows to what one call seals: kMaxUnsentBytes at
  // most.
  std::vector<std::byte>& output() { return output_; }
  // Plain bytes of one record that OpenSSL is to make.
  MutableByteSpan record() { return record_; }

 private:
  std::vector<std::byte> input_ = std::vector<std::byte>(kInputBytes);
  std::vector<std::byte> sealed_ = std::vector<std::byte>(kSealedBytes);
  std::vector<std::byte> output_;
  std::vector<std::byte> record_ = std::vector<std::byte>(TlsRecords::kMostPlainBytes);
};

}  // namespace weft
