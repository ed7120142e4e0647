// Points that a message passes on its way, with the time at which it does: for measuring where the
// nanoseconds of a call go (bench/breakdown), and for nothing else.
//
// Without WEFT_TRACE, as in every build but --config=trace, Trace() is empty and leaves nothing
// behind: no code, no data. With it, it stores the processor's time stamp counter into the present
// row, if there is one: about 8 ns. (In a namespace of its own: the other files of that build have
// the empty one.)
//
// Threads: one per process, which does everything that is traced. Only code that --config=trace
// compiles with WEFT_TRACE (.bazelrc names the files) may include this.
// Lifetime: rows belong to who calls TraceInto().
#pragma once

#include <cstdint>

namespace weft {

enum class TracePoint : uint8_t {
  kStarted = 0,    // the caller calls
  kWritten = 1,    // a message is serialized into its slot, and committed
  kSending = 2,    // its batch goes to the provider
  kSent = 3,       // the provider's send has returned
  kSeen = 4,       // a batch has been received
  kHandler = 5,    // the handler begins
  kReturned = 6,   // the caller has its reply
  kReadyFlag = 7,  // a link that is not polled in every turn has set its ready flag (shm)
};
inline constexpr int kTracePoints = 8;

// What one side of one call has passed, by TracePoint; the last time counts. 0: not passed.
struct TraceRow {
  uint64_t at[kTracePoints] = {};
};

#ifdef WEFT_TRACE

inline namespace traced {

inline TraceRow* trace_row = nullptr;

inline void TraceInto(TraceRow* row) { trace_row = row; }
inline void Trace(TracePoint point) {
  if (trace_row != nullptr) trace_row->at[static_cast<int>(point)] = __builtin_ia32_rdtsc();
}

}  // namespace traced

#else

inline void Trace(TracePoint) {}

#endif

}  // namespace weft
