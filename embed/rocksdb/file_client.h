// The files of a folder that a server of file.proto serves, as a client uses them from many
// threads.
//
//   auto client = FileClient::Open({.address = "10.0.0.7:7100"});
//   auto file = (*client)->OpenFile("db/000007.sst", FileClient::Mode::kRead);
//   (*client)->Read(**file, 4096, into);
//
// Losses of the connection and restarts of the server are survived (embed/session_client.h): an
// operation that was under way attaches again, opens its file again, and is sent again, for as long
// as `patience_us`. Appends carry their place, and the server lets none of an earlier session come
// behind those of the next one (file.proto); so a repeated append doubles nothing.
//
// What was written and not synced. When the server's host, and not only its process, has died, or
// its medium has failed, the epoch that the server tells is another one. Then a file with appends
// that were not synced is broken: all further operations on it fail with DATA_LOSS. Nothing is
// written again by itself, for nobody here has the bytes any more.
//
// Files in the server's memory. A file that is opened for reading is asked for (Lend), and read by
// calls until the server has it in memory. From then on reads are one-sided: no code of the
// server's runs. When that ends (the server was restarted, the file is to be changed) reads go by
// calls again.
//
// Locks belong to the server's sessions. While this has some, a thread asks for the server every
// kKeepLocksUs, so that a client without anything else to do comes back to a server that was
// started again before its locks are given away. If another client has had one of them meanwhile,
// all that would change a file fails with FAILED_PRECONDITION, until the lock is given back
// (Unlock()).
//
// Threads: any, several at once; each operation blocks its own. Operations on one file that is
//   written: one at a time.
// Lifetime: over Weft it has an engine of its own, which is driven by the threads that wait. Files
//   go before it; no thread is in an operation when it is destroyed. Made after fork(2), it may be
//   used by that process alone.
// Errors: the server's (file.proto); what has not succeeded within the patience has the last
//   reason, with how long and how often it was tried.
// Invariants: Sync() is OK only if all that was appended before it began is on the medium.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "embed/rocksdb/file.pb.h"
#include "embed/rocksdb/file_calls.h"
#include "embed/session_client.h"
#include "weft/bytes.h"
#include "weft/channel.h"
#include "weft/remote_memory.h"

namespace weft::embed {

struct FileClientOptions {
  // Behaviour.
  std::string address;
  ChannelOptions channel = {};        // paths, security; limits are set here
  uint64_t patience_us = 30'000'000;  // of an operation, from its beginning
  bool crc32c = true;                 // over payloads that are lent, both ways
  // Performance.
  bool one_sided = true;  // files in the server's memory are read there
};

class FileClient {
 public:
  static constexpr uint64_t kKeepLocksUs = 1'000'000;  // a fifth of kLockGraceUs

  enum class Mode : uint8_t { kRead = 1, kWriteNew = 2, kWriteExisting = 3 };
  struct Facts {
    uint64_t bytes = 0;
    uint64_t modified_s = 0;  // since 1970
    bool is_folder = false;
    uint64_t links = 0;
    uint64_t identity = 0;
    uint64_t free_bytes = 0;  // of the medium
  };
  class File;

  // Connects and attaches: one attempt, so that mistakes are told at once.
  static absl::StatusOr<std::unique_ptr<FileClient>> Open(const FileClientOptions& options);
  // By calls that were made for it: of `options`, address, channel and crc32c do not count.
  static absl::StatusOr<std::unique_ptr<FileClient>> Open(const FileClientOptions& options,
                                                          std::unique_ptr<FileCalls> calls);
  ~FileClient();
  FileClient(const FileClient&) = delete;
  FileClient& operator=(const FileClient&) = delete;

  // --- files ------------------------------------------------------------------------------------

  absl::StatusOr<std::unique_ptr<File>> OpenFile(const std::string& name, Mode mode);
  // How many bytes there were; fewer than asked for: the file ends there.
  absl::StatusOr<size_t> Read(File& file, uint64_t offset, MutableByteSpan into);
  // All of them are sent before the first one is waited for.
  void ReadMany(File& file, absl::Span<PieceToRead> pieces);
  // At the file's end, as this client has written it. `durable`: on the medium when it returns OK.
  absl::Status Append(File& file, ByteSpan from, bool durable = false);
  absl::Status Sync(File& file);
  // The file ends at `bytes`, which are not more than there are.
  absl::Status Truncate(File& file, uint64_t bytes);
  // Else the destructor does it, without waiting for long.
  absl::Status Close(File& file);

  // --- names ------------------------------------------------------------------------------------

  absl::StatusOr<Facts> Stat(const std::string& name);
  // In their order. RESOURCE_EXHAUSTED: more than kMaxFolderNames or kMaxFolderBytes.
  absl::StatusOr<std::vector<std::string>> List(const std::string& name);
  absl::Status Remove(const std::string& name);
  absl::Status MakeFolder(const std::string& name);
  absl::Status RemoveFolder(const std::string& name);
  absl::Status Rename(const std::string& from, const std::string& to);
  absl::Status Link(const std::string& from, const std::string& to);
  absl::Status Truncate(const std::string& name, uint64_t bytes);
  absl::Status SyncFolder(const std::string& name);

  absl::Status Lock(const std::string& name);
  absl::Status Unlock(const std::string& name);

  std::string Explain() { return calls_->Explain(); }
  // Reads that no code of the server's had a part in, and those by calls.
  uint64_t one_sided_reads() const { return one_sided_reads_.load(std::memory_order_relaxed); }
  // In how many goes: a ReadMany() is one for each kMaxBatchTransfers pieces.
  uint64_t one_sided_batches() const { return one_sided_batches_.load(std::memory_order_relaxed); }
  uint64_t reads_by_calls() const { return reads_by_calls_.load(std::memory_order_relaxed); }

 private:
  using Session = SessionClient::Session;
  using Attempt = SessionClient::Attempt;
  struct Lent;

  FileClient(const FileClientOptions& options, std::unique_ptr<FileCalls> calls);

  absl::StatusOr<Session> AskForSession(uint64_t timeout_us);
  void KeepLocks();

  absl::Status EnsureOpen(File& file, const Attempt& attempt);
  void AskForMemory(File& file, const Session& session);
  std::shared_ptr<RemoteMemory> MemoryOf(File& file);
  void DropMemory(File& file, const std::shared_ptr<RemoteMemory>& memory);
  bool ReadOneSided(File& file, absl::Span<PieceToRead> pieces);
  absl::Status ReadByCall(File& file, PieceToRead& piece);
  void ReadByCalls(File& file, absl::Span<PieceToRead> pieces);
  static absl::Status CheckEpoch(File& file, const Session& session);
  static uint64_t HandleOf(File& file);
  absl::Status AppendPiece(File& file, ByteSpan from, bool durable);
  absl::Status Change(wire::ChangeRequest request, absl::StatusCode done_before);

  const FileClientOptions options_;
  const std::unique_ptr<FileCalls> calls_;
  Channel* const channel_;  // of calls_; null: reads are calls
  const std::string client_id_;
  std::atomic<uint64_t> one_sided_reads_{0};
  std::atomic<uint64_t> one_sided_batches_{0};
  std::atomic<uint64_t> reads_by_calls_{0};

  std::atomic<bool> server_lends_{false};  // that of the last session

  std::mutex mutex_;
  std::condition_variable stopped_;
  // Guarded by mutex_.
  std::map<std::string, uint64_t> locks_;  // their generations
  bool stopping_ = false;

  SessionClient sessions_;
  std::thread keeper_;  // while there are, or were, locks
};

// One file that is open. Its handle is the session's; it is opened again with the next one.
class FileClient::File {
 public:
  ~File();
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  const std::string& name() const { return name_; }
  // As it was opened, and with what was appended.
  uint64_t bytes() const { return bytes_; }
  uint64_t identity() const { return identity_; }

 private:
  friend class FileClient;
  File(FileClient& client, std::string name, Mode mode)
      : client_(client), name_(std::move(name)), mode_(mode) {}

  FileClient& client_;
  const std::string name_;
  const Mode mode_;
  uint64_t identity_ = 0;  // constant once it is open

  // Of its one writer.
  uint64_t bytes_ = 0;
  uint64_t synced_bytes_ = 0;
  uint64_t epoch_ = 0;  // in which bytes beyond synced_bytes_ were written
  bool is_closed_ = false;

  std::mutex mutex_;
  // Guarded by mutex_.
  uint64_t session_ = 0;  // whose handle it is; 0: none
  uint64_t handle_ = 0;
  std::shared_ptr<Lent> lent_;  // null: not asked for
};

}  // namespace weft::embed
