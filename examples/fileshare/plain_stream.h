// The comparison: a tree over plain TCP sockets, as simply as TCP does it best.
//
// A sender writes a record for each folder and file of its part of the tree, and each file's bytes
// behind its record, by sendfile(2): from the page cache to the socket. There are no requests and
// no replies in between, so a stream never waits for a round trip. The receiver reads into a buffer
// and writes to files that appear whole, as everybody in this folder does. Several streams at once
// share the files out. Nothing is checked but what TCP checks.
//
//   record   u32 length of path (0: the end), u32 mode (+ kFolderMark), u64 bytes, path, then the
//            bytes. Little-endian, as this machine.
//
// Threads: a stream is one thread's.
// Errors: UNAVAILABLE when the other side goes; DATA_LOSS for a malformed record.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "examples/fileshare/folder.h"

namespace fileshare {

// Folders, and each file whose number is `part` of `parts`.
absl::Status SendTree(int socket, const Folder& root, uint32_t part, uint32_t parts);

absl::Status ReceiveTree(int socket, const Folder& root);

// All of `bytes`, or an error.
absl::Status SendAll(int socket, const void* data, size_t bytes);
absl::Status ReceiveAll(int socket, void* data, size_t bytes);

}  // namespace fileshare
