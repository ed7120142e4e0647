// As Ends, by the C interface (weft/c.h): a client and a server in one thread, each with an engine
// that is polled in turn. Their calls carry bytes: no protobuf at either end.
//
// Threads: one. Errors: Open() says what cannot be had here.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "bench/instructions/ends.h"
#include "transport/path.h"

namespace weft::bench {

class CEnds {
 public:
  static absl::StatusOr<std::unique_ptr<CEnds>> Open(PathKind path);
  ~CEnds();

  // As Ends::CallByCallback().
  Turns CallByCallback(uint64_t calls, uint64_t outstanding);

 private:
  class Impl;
  explicit CEnds(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace weft::bench
