// What libfabric 1.17's tcp provider touches of an endpoint: to be prefetched before it does.
//
// An endpoint is one piece of memory of 19 KB, which begins where its fid does. With each message
// the provider goes to its beginning, its middle and its end, three pages.
//
// These are hints, and nothing is read: with a provider that keeps its things elsewhere some lines
// are fetched that nobody needs. The places are those of Debian's 1.17.0 on 64 bits.
//
// Threads: any. Errors: none.
#pragma once

#include <cstddef>

#include "core/cache_line.h"
#include "transport/ofi/fabric.h"
#include "transport/prefetch_list.h"

namespace weft {

class EndpointLines {
 public:
  explicit EndpointLines(const fid_ep* endpoint)
      : begin_(reinterpret_cast<const std::byte*>(endpoint)) {}

  // What sending and receiving a small message takes.
  void ListForMessage(PrefetchList* prefetch) const {
    prefetch->Add(begin_, kObjectBytes);
    prefetch->Add(begin_ + kState, kStateBytes);
    prefetch->Add(begin_ + kReceived, kSmallMessageBytes);
  }

 private:
  // Interfaces and queues, then the socket and how much waits to be sent.
  static constexpr size_t kObjectBytes = 448;
  // How much was received, and its first bytes.
  static constexpr size_t kReceived = 0x24c8;
  static constexpr size_t kSmallMessageBytes = 3 * kCacheLineBytes;
  // What is under way, the lists of it, the lock.
  static constexpr size_t kState = 0x4810;
  static constexpr size_t kStateBytes = 0x210;

  const std::byte* begin_;
};

}  // namespace weft
