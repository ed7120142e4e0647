// What both ends of file.proto keep to.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::embed {

// Payload that stands in the message; what is larger is lent: the figures of
// embed/nbdkit/block_limits.h hold here, too.
inline constexpr size_t kMaxInlineFileBytes = size_t{16} << 10;

// Payload of one request; what is larger goes in pieces. RocksDB appends 1 MiB at a time by
// default. 64 requests that one client may have under way are 64 MiB.
inline constexpr size_t kMaxFilePayloadBytes = size_t{1} << 20;

// Requests under way of one connection: a MultiGet's reads of one file, twice. The rest waits in
// the client's queue.
inline constexpr uint32_t kMaxFileRequests = 64;

// Of one session. RocksDB keeps all its tables open by default (max_open_files = -1): 4096 of
// 64 MiB are 256 GiB.
inline constexpr uint32_t kMaxOpenFiles = 4096;

// Files that one session may read out of the server's memory at a time; a connection has room for
// 256 leases. The others are read by calls.
inline constexpr uint32_t kMaxLentFiles = 192;

// Of one session: a process has few databases. Their names stand in one request, of
// kMaxInlineFileBytes + 4096 at most.
inline constexpr uint32_t kMaxLocks = 16;

// A name: RocksDB's own are below 30 bytes, and below a path that somebody types.
inline constexpr size_t kMaxNameBytes = 1024;
inline constexpr size_t kMaxNameParts = 16;

// Of one reply: 256 KiB of names of the longest kind, 64 KiB of RocksDB's.
inline constexpr uint32_t kMaxListedNames = 1024;
inline constexpr size_t kMaxListedBytes = size_t{256} << 10;

// Of one folder, as a client takes them: it has all of them in memory, which are some 100 MiB then.
// A million of RocksDB's tables are 64 TiB.
inline constexpr size_t kMaxFolderNames = size_t{1} << 20;
inline constexpr size_t kMaxFolderBytes = size_t{64} << 20;  // of the names together

// Nobody guesses 128 bits.
inline constexpr size_t kFileClientIdBytes = 16;

// After a start of the server, a lock that a client of its predecessor held is kept for it. A
// client that has something to do comes back within its longest pause between attempts to connect,
// 0.1 s; one that has nothing to do does not notice that its connection is gone. Longer: such a
// client keeps its lock more often; after a kill of both, its successor waits for so long.
inline constexpr uint64_t kLockGraceUs = 5'000'000;

}  // namespace weft::embed
