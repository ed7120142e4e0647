// Key-value pairs from a text file, one in each line. Any file is a valid one:
//
//   KEY<TAB>VALUE   a line whose first tab has 1 to 1,024 bytes before it. The value is all that
//                   follows, further tabs included.
//   VALUE           any other line. Its key is the line's number, in ten digits from 0000000001.
//
// Lines end with a line feed, which belongs to neither; the last one need not have it. Nothing else
// is special: bytes are bytes. A key that comes again replaces the value it had.
//
// Threads:   a constant after Read().
// Lifetime:  owns the text; pairs refer to it.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace kv::client {

class Dataset {
 public:
  struct Pair {
    std::string key;
    std::string_view value;
    bool replaced;  // a later line has the same key
  };

  // The whole file is held in memory; RESOURCE_EXHAUSTED beyond 1 GiB.
  static absl::StatusOr<Dataset> Read(const std::string& path);
  static Dataset FromText(std::string text);

  const std::vector<Pair>& pairs() const { return pairs_; }
  // Of values and keys.
  size_t bytes() const;

 private:
  explicit Dataset(std::string text);
  void MarkReplaced();

  std::unique_ptr<const std::string> text_;  // stays where it is when the set is moved
  std::vector<Pair> pairs_;                  // in the order of the lines
};

}  // namespace kv::client
