// RocksDB's FileSystem on the files of a weft_rocksd.
//
//   weft::embed::RegisterWeftFileSystem();
//   std::shared_ptr<rocksdb::FileSystem> files;
//   rocksdb::Status found = rocksdb::FileSystem::CreateFromString(
//       rocksdb::ConfigOptions(), "weft://10.0.0.7:7100/orders", &files);
//   if (!found.ok()) ...
//   std::unique_ptr<rocksdb::Env> env = rocksdb::NewCompositeEnv(files);  // outlives the DB
//   rocksdb::Options options;
//   options.env = env.get();
//   rocksdb::DB::Open(options, "/db", &db);
//
// With libweft_rocksdb.so preloaded, RocksDB's own programs know such URIs: db_bench, ldb and
// sst_dump take --fs_uri. weft_uri.h has their form; besides, `one_sided:0` reads all files by
// calls. Whatever path RocksDB uses, "/db/x" or "db/x", lies below the URI's folder, and below the
// server's.
//
// What RocksDB may rely upon: what POSIX files give it, on the server (file_client.h says how).
//
// - Append: the server's kernel has the bytes when it returns. A kill of this process, or of the
//   server's, loses nothing; a crash of the server's host may.
//
// - Sync: all that was appended before is on the server's medium when it returns.
//
// - Directory::Fsync: names (new files, renames) are on the medium when it returns.
//
// - LockFile: one holder among all clients and the server's own host; it ends with this process.
//
// - MultiRead: all reads are sent before the first one is waited for.
//
// Errors: PathNotFound, NotFound, NoSpace as POSIX files have them; IOFenced after another client
//   has had a lock of ours; other IOErrors are retryable where only the server was away for too
//   long, and have data loss set where written bytes are gone.
//
// Not there: RandomRWFile, memory mapping, direct I/O, ReadAsync that does not wait (RocksDB then
// reads at once).
//
// Threads: as RocksDB's interface says: any. Lifetime: files go before their FileSystem.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "rocksdb/file_system.h"

namespace weft::embed {

class FileClient;

// One connection of its own, made at once. INVALID_ARGUMENT: the URI; others: FileClient::Open()'s.
absl::StatusOr<std::unique_ptr<rocksdb::FileSystem>> OpenWeftFileSystem(const std::string& uri);

// Makes RocksDB know "weft://" of file systems, in this process. Any thread; once is enough.
void RegisterWeftFileSystem();

// --- for another way to the server (over_grpc/) --------------------------------------------------

// Files are those of `client`, below `folder`.
std::unique_ptr<rocksdb::FileSystem> MakeFileSystem(std::unique_ptr<FileClient> client,
                                                    std::string folder);

// Makes RocksDB know "SCHEME://" of file systems, in this process.
using OpenFileSystem =
    absl::StatusOr<std::unique_ptr<rocksdb::FileSystem>> (*)(const std::string& uri);
void RegisterFileSystem(const std::string& scheme, OpenFileSystem open);

}  // namespace weft::embed
