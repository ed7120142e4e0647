// What a TLS stream has sealed and the kernel has not taken yet, in order.
//
//   Add()  into the scratch, for the rest of the call;  Send()  to the kernel, and what it does not
//   take is kept here until the next Send()
//
// Threads: one engine's. Lifetime: a member of its stream; descriptor and scratch outlive it.
// Errors: a broken socket takes everything: what is read of it says why.
// Invariants: nothing is added between two calls of the stream, for others use the scratch.
#pragma once

#include <cstddef>
#include <vector>

#include "core/bytes.h"
#include "transport/tls/tls_scratch.h"

namespace weft {

class TlsOutput {
 public:
  explicit TlsOutput(int fd) : fd_(fd) {}
  TlsOutput(const TlsOutput&) = delete;
  TlsOutput& operator=(const TlsOutput&) = delete;

  // Before all else.
  void set_scratch(TlsScratch* scratch) { scratch_ = scratch; }

  void Add(ByteSpan sealed);
  // Sends what is kept, and what was added. False: more than TlsScratch::kMaxUnsentBytes are kept;
  // the peer asks for more than it reads.
  [[nodiscard]] bool Send();
  // Sends these, without a copy where the kernel takes them. REQUIRES: unsent() == 0, and nothing
  // was added.
  void SendNow(ByteSpan sealed);
  // Forgets everything.
  void Clear();

  size_t unsent() const { return unsent_.size() - sent_; }
  // Memory that is held between two calls, in bytes.
  size_t reserved() const { return unsent_.capacity(); }

 private:
  // How many of `bytes` the kernel takes.
  size_t ToKernel(ByteSpan bytes);

  const int fd_;
  TlsScratch* scratch_ = nullptr;
  std::vector<std::byte> unsent_;  // sent_ of them are sent
  size_t sent_ = 0;
};

}  // namespace weft
