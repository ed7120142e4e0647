// What a scenario expects, beside what has come. What differs is kept, in words.
//
//   expect.Number("replies", 4, replies);
//   expect.Ok("the end", stream.Finish());
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace interop {

class Expectations {
 public:
  void Number(const std::string& what, uint64_t expected, uint64_t came);
  void Text(const std::string& what, const std::string& expected, const std::string& came);
  // A payload of so many zeros.
  void Zeros(const std::string& what, uint64_t bytes, const std::string& came);

  void Ok(const std::string& what, const absl::Status& came);
  // Of `came` the code alone: the words are Weft's.
  void Code(const std::string& what, absl::StatusCode expected, const absl::Status& came);
  // Code and words.
  void Status(const std::string& what, const absl::Status& expected, const absl::Status& came);

  const std::vector<std::string>& failures() const { return failures_; }

 private:
  void Fail(const std::string& what, const std::string& expected, const std::string& came);

  std::vector<std::string> failures_;
};

}  // namespace interop
