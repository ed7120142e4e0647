// Something that is under way and may be cancelled from any thread: a call of this process, on
// behalf of one that it serves.
#pragma once

#include "absl/status/status.h"

namespace weft {

class Cancellable {
 public:
  // Soon, if it has not ended. Error: nothing has happened; try again.
  virtual absl::Status Cancel() = 0;

 protected:
  ~Cancellable() = default;
};

}  // namespace weft
