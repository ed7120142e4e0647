// What the links of a tcp domain move of large transfers in one turn of the engine: some hundred
// KiB, whatever they have, so that the turn is short. Batches, and what is as small, do not wait
// for the large transfers of anybody; these go on by turns, and each waits the longer the more
// there are.
//
// A link that is alone sends TcpOutput::kMostPumpBytes of a large transfer at a time, which is the
// fastest. It is alone when it has moved kAloneBytes since any other link has moved something;
// until then, and for as long as others do, it sends kSharedBytes at a time.
//
// Threads: the engine's. Lifetime: a member of TcpParts; a link that closes is forgotten.
#pragma once

#include <cstdint>

#include "transport/tcp/tcp_frame.h"
#include "transport/tcp/tcp_output.h"

namespace weft {

class TcpTurn {
 public:
  // When so many bytes of all links have been received in a turn, or sent, the others wait for the
  // next one: 0.1 to 0.2 ms of the kernel's copying. The last link may have moved what one moves at
  // a time on top of it: 256 KiB received, kSharedBytes or TcpOutput::kMostPumpBytes sent.
  static constexpr uint64_t kMostBytes = 256 << 10;
  // 2 ms at 4 GB/s: a link that has something more often is not to be held up by 1 MiB at a time.
  static constexpr uint64_t kAloneBytes = 8 << 20;
  static constexpr uint64_t kSharedBytes = kPieceBytes;

  void Begin() { received_bytes_ = sent_bytes_ = 0; }
  void OnReceived(const void* link, uint64_t bytes) {
    received_bytes_ += bytes;
    Note(link, bytes);
  }
  void OnSent(const void* link, uint64_t bytes) {
    sent_bytes_ += bytes;
    Note(link, bytes);
  }
  void Forget(const void* link) {
    if (mover_ == link) mover_ = nullptr;
  }

  uint64_t received_bytes() const { return received_bytes_; }
  bool may_receive() const { return received_bytes_ < kMostBytes; }
  bool may_send() const { return sent_bytes_ < kMostBytes; }
  bool is_alone(const void* link) const { return mover_ == link && moved_bytes_ >= kAloneBytes; }
  // Of a large transfer, at one time.
  uint64_t most_bytes(const void* link) const {
    return is_alone(link) ? TcpOutput::kMostPumpBytes : kSharedBytes;
  }

 private:
  void Note(const void* link, uint64_t bytes) {
    if (bytes == 0) return;
    if (mover_ != link) [[unlikely]] {
      mover_ = link;
      moved_bytes_ = 0;
    }
    moved_bytes_ += bytes;
  }

  uint64_t received_bytes_ = 0;  // in this turn, by all links
  uint64_t sent_bytes_ = 0;
  const void* mover_ = nullptr;  // who has moved something last
  uint64_t moved_bytes_ = 0;     // and how much, since another one did
};

}  // namespace weft
