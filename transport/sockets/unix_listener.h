// A listening Unix socket and its file: taken over from a dead server, never from a living one,
// and removed at the end.
//
// A server that is killed leaves its socket file behind, and bind(2) then fails. Whether the file
// belongs to a living server is asked by connecting to it. Between that question, the removal, and
// the moment when the new socket listens, a second starting server could come to the same
// conclusion and remove the first one's file: servers therefore hold a lock (flock) on the file's
// folder during these three steps. The lock is the kernel's and leaves no file.
//
// Threads: one at a time. Lifetime: the descriptor is closed, and the file removed if it is still
// this socket's, by the destructor.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "transport/descriptor.h"

namespace weft {

class UnixListener {
 public:
  // ALREADY_EXISTS: a server listens there, or the file is something else and is left alone.
  // The file's permissions follow the umask, and the folder's decide who may connect.
  static absl::StatusOr<std::unique_ptr<UnixListener>> Open(const std::string& path);
  // `descriptor` listens there already: another process has bound it, and has the file until
  // TakeFile(). INVALID_ARGUMENT: the file there is none of a socket.
  static absl::StatusOr<std::unique_ptr<UnixListener>> Adopt(const std::string& path,
                                                             Descriptor descriptor);
  ~UnixListener();
  UnixListener(const UnixListener&) = delete;
  UnixListener& operator=(const UnixListener&) = delete;

  int fd() const { return descriptor_.get(); }
  // The destructor removes the file, or leaves it where it is, for another process.
  void TakeFile() { leaves_file_ = false; }
  void LeaveFile() { leaves_file_ = true; }

 private:
  UnixListener(std::string path, Descriptor descriptor, dev_t device, ino_t inode)
      : path_(std::move(path)),
        descriptor_(std::move(descriptor)),
        device_(device),
        inode_(inode) {}

  const std::string path_;
  const Descriptor descriptor_;
  // Which file is ours: another server may have replaced it.
  const dev_t device_;
  const ino_t inode_;
  bool leaves_file_ = false;
};

}  // namespace weft
