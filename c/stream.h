// weft_stream: a stream in the hands of its caller, or of its handler.
//
// Threads: as the handles of C++ (weft/stream.h). Lifetime: reads and writes that wait hold it, so
//   that it may be freed, or its call finished, before their callbacks have run.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "c/bytes_message.h"
#include "c/engine.h"
#include "weft/c_stream.h"
#include "weft/client_context.h"
#include "weft/stream.h"

struct weft_stream {
  // One waits, at most.
  enum Operation : uint8_t { kRead = 1, kWrite = 2, kFinish = 4 };

  void AddHolder() { holders.fetch_add(1, std::memory_order_relaxed); }
  void DropHolder() {
    if (holders.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }
  // False: one of its kind waits.
  bool Begin(Operation operation) {
    return (busy.fetch_or(operation, std::memory_order_acquire) & operation) == 0;
  }
  void End(Operation operation) {
    busy.fetch_and(static_cast<uint8_t>(~operation), std::memory_order_release);
  }

  weft::internal::StreamHandle handle;
  bool reads = false;                    // this side may
  bool writes = false;                   // this side may
  weft::ClientStream* client = nullptr;  // null: the handler's
  std::shared_ptr<weft::ClientContext> context;
  weft::c::Use of_channel;        // of a caller's
  weft::c::BytesMessage written;  // by a write that has a callback
  std::atomic<uint8_t> busy{0};
  std::atomic<uint32_t> holders{1};
};
