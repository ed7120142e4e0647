// A kernel that takes few bytes, for tests of what happens when a send is cut.
//
// While a LimitedSends lives, send(2) and sendmsg(2) of this program go through it: they take
// `at_once` bytes at most, and `left` in all; then they take no more (EAGAIN). What is sent to the
// descriptor -1 is kept in `taken`, everything else goes to the kernel.
//
// Threads: one. Lifetime: one at a time.
#pragma once

#include <cstddef>
#include <string>

namespace weft {

struct LimitedSends {
  static constexpr size_t kAll = ~size_t{0};

  LimitedSends();
  ~LimitedSends();
  LimitedSends(const LimitedSends&) = delete;
  LimitedSends& operator=(const LimitedSends&) = delete;

  size_t at_once = kAll;
  size_t left = kAll;
  int error = 0;  // not 0: every send fails with this number of errno
  int sends = 0;
  std::string taken;
};

}  // namespace weft
