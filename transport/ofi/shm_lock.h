// The lock in the memory of an shm endpoint, as libfabric 1.17 lays it out.
//
// Threads: any. Lifetime: holds its own mapping of the file's first page.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace weft {

class ShmLock {
 public:
  // The layout is known for the library that this process runs with.
  static bool IsKnown();
  // Null when the file is not there or not laid out so.
  static std::unique_ptr<ShmLock> Map(const std::string& endpoint);
  ~ShmLock();
  ShmLock(const ShmLock&) = delete;
  ShmLock& operator=(const ShmLock&) = delete;

  // Opens it, whoever holds it. True when it was held.
  bool ForceOpen();

 private:
  explicit ShmLock(void* page) : page_(page) {}

  void* const page_;
};

}  // namespace weft
