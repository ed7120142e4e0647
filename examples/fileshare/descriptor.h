// A file descriptor that closes itself. -1: none.
//
// Threads: one at a time.
#pragma once

#include <unistd.h>

#include <utility>

namespace fileshare {

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }

  int get() const { return fd_; }
  bool ok() const { return fd_ >= 0; }

  // It is somebody else's to close.
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

}  // namespace fileshare
