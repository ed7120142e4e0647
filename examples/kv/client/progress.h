// One line that says how far a long command is: rewritten in place on a terminal, printed anew
// every few seconds where the output goes into a file or a pipe.
//
//   load        43 %     45,120 puts    512,400/s
//
// Threads:   one.
// Lifetime:  the line disappears from a terminal when the object does.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

#include "core/clock.h"

namespace kv::client {

class Progress {
 public:
  // What is `done` is counted in `unit`s.
  Progress(std::string label, std::string unit);
  // For tests: any stream, taken for a terminal or not, and any clock.
  Progress(std::string label, std::string unit, std::FILE* out, bool terminal,
           const weft::Clock& clock);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Call it as often as you like; it prints when it is time. `fraction`: 0 to 1.
  void Update(double fraction, uint64_t done);

 private:
  const std::string label_;
  const std::string unit_;
  std::FILE* const out_;
  const bool terminal_;
  const weft::Clock& clock_;
  const uint64_t start_ns_;
  uint64_t next_ns_;
  bool shown_ = false;
};

}  // namespace kv::client
