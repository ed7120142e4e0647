// A file descriptor that somebody owns. Where it is this process's alone (OwnDescriptor(),
// core/fork_guard.h) it is so until it is closed here.
//
// Threads: as a plain value.
#pragma once

#include <unistd.h>

#include <utility>

#include "core/fork_guard.h"

namespace weft {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.Release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) Reset(other.Release());
    return *this;
  }
  ~Descriptor() { Reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

  // The caller closes it from now on.
  int Release() { return std::exchange(fd_, -1); }

  // Closes what is held, and holds `fd`.
  void Reset(int fd = -1) {
    if (fd_ >= 0) {
      DisownDescriptor(fd_);
      // Linux closes the descriptor even when close(2) reports an error: never try twice.
      ::close(fd_);
    }
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

}  // namespace weft
