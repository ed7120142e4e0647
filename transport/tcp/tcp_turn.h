// What the links of a tcp domain may move in one turn of the engine, so that whoever has a small
// call waits for the copies of some hundred KiB at most, whatever the others move.
//
// A link that is alone sends TcpOutput::kMostPumpBytes of a large transfer at a time, which is the
// fastest. It is alone when it has moved kAloneBytes since any other link has moved something;
// until then, and for as long as others do, it sends kSharedBytes.
//
// Threads: the engine's. Lifetime: a member of TcpParts; a link that closes is forgotten.
#pragma once

#include <cstdint>

#include "transport/tcp/tcp_frame.h"
#include "transport/tcp/tcp_output.h"

namespace weft {

class TcpTurn {
 public:
  // So many bytes of all links are received in a turn, and so many are sent while large transfers
  // wait, which are then others' turns: 0.1 to 0.2 ms of the kernel's copying. On top comes what
  // one link moves at a time. With half of it calls beside eight heavy links waited no less.
  static constexpr uint64_t kMostBytes = 256 << 10;
  // 2 ms at 4 GB/s: beside a link that has something more often, a transfer is not to hold it up.
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
    if (last_ == link) last_ = nullptr;
  }

  uint64_t received_bytes() const { return received_bytes_; }
  bool may_receive() const { return received_bytes_ < kMostBytes; }
  bool may_send() const { return sent_bytes_ < kMostBytes; }
  // Of a large transfer, at one time.
  uint64_t most_bytes(const void* link) const {
    return last_ == link && last_bytes_ >= kAloneBytes ? TcpOutput::kMostPumpBytes : kSharedBytes;
  }

 private:
  void Note(const void* link, uint64_t bytes) {
    if (last_ != link) [[unlikely]] {
      last_ = link;
      last_bytes_ = 0;
    }
    last_bytes_ += bytes;
  }

  uint64_t received_bytes_ = 0;  // in this turn, by all links
  uint64_t sent_bytes_ = 0;
  const void* last_ = nullptr;  // who has moved something last
  uint64_t last_bytes_ = 0;     // and how much, since another one did
};

}  // namespace weft
