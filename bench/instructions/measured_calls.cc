// measured_calls PATH FORM OUTSTANDING CALLS: what tools count the instructions of. FORM is
// blocking, callback, either with "_struct" for structs of fixed layout, balanced (blocking, over
// three servers), c_callback (by the C interface at both ends), coroutine, stream
// (messages there and back), stream_one_way, one_way (messages to a one-way method), or idle. Warms
// up, then does CALLS calls (idle: turns) inside weft_measured_work(), the function in which
// callgrind collects; prints one line of facts:
//
//   calls N turns N idle_turns N
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "bench/instructions/ends.h"

namespace {

struct Work {
  const char* form;
  uint64_t outstanding;
  uint64_t calls;
};

weft::bench::Turns Do(weft::bench::Ends& ends, const Work& work) {
  using weft::bench::Bodies;
  if (std::strcmp(work.form, "idle") == 0) return ends.Idle(work.calls);
  if (std::strcmp(work.form, "balanced") == 0) return ends.CallBalanced(work.calls);
  if (std::strcmp(work.form, "c_callback") == 0) {
    return ends.CallByC(work.calls, work.outstanding);
  }
  if (std::strcmp(work.form, "coroutine") == 0) return ends.CallByCoroutine(work.calls);
  if (std::strcmp(work.form, "stream") == 0) return ends.StreamPingPong(work.calls);
  if (std::strcmp(work.form, "stream_one_way") == 0) return ends.StreamOneWay(work.calls);
  if (std::strcmp(work.form, "one_way") == 0) return ends.OneWay(work.calls);
  const bool structs = std::strstr(work.form, "_struct") != nullptr;
  const Bodies bodies = structs ? Bodies::kStructs : Bodies::kMessages;
  if (std::strncmp(work.form, "blocking", 8) == 0) return ends.CallBlocking(work.calls, bodies);
  return ends.CallByCallback(work.calls, work.outstanding, bodies);
}

}  // namespace

extern "C" __attribute__((noinline)) void weft_measured_work(weft::bench::Ends* ends,
                                                             const Work* work,
                                                             weft::bench::Turns* turns) {
  *turns = Do(*ends, *work);
}

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: %s PATH FORM OUTSTANDING CALLS\n", argv[0]);
    return 2;
  }
  const auto path = weft::ParsePathKind(argv[1]);
  if (!path.ok()) {
    std::fprintf(stderr, "no path %s\n", argv[1]);
    return 2;
  }
  auto ends = weft::bench::Ends::Open(*path);
  if (!ends.ok()) {
    std::fprintf(stderr, "%s\n", ends.status().ToString().c_str());
    return 1;
  }
  Work work = {argv[2], std::strtoull(argv[3], nullptr, 10), std::strtoull(argv[4], nullptr, 10)};
  const uint64_t calls = work.calls;
  // As many as touch every slot, ring and message once.
  work.calls = 2000;
  Do(**ends, work);
  work.calls = calls;
  weft::bench::Turns turns;
  weft_measured_work(ends->get(), &work, &turns);
  std::printf("calls %llu turns %llu idle_turns %llu\n", static_cast<unsigned long long>(calls),
              static_cast<unsigned long long>(turns.all),
              static_cast<unsigned long long>(turns.idle));
  return 0;
}
