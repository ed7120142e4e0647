// The service of file.proto on a ServedFolder.
//
// The engine's thread checks a request, and moves its payload between the client's memory and
// a buffer; a thread of the pool makes the system calls. What is in the page cache is read by the
// engine's thread itself, if it is small (preadv2(2) with RWF_NOWAIT never waits for a disk); so
// are all small requests where the folder is in memory (tmpfs).
//
// Its clients have sessions (embed/server_sessions.h). While one is kOpening a thread of the pool
// takes its client's locks again; it goes with its handles and locks.
//
// A lock is a lock of the kernel on that file (fcntl(2), F_OFD_SETLK), held by the session's
// descriptor. So it ends with the session, or with the server, and excludes also a RocksDB that
// opens the folder on the server's own host. The file has a record of 16 bytes: the generation,
// which grows with each grant and which a client that comes back has to know, and which server
// process has granted it (0: it was given back).
//
// Limits: for each connection those of LimitServer(), which come to 64 requests and 64 MiB; for
// each session those of file_limits.h; for all the pool of buffers, files that are open, locks, and
// memory for files, of which one client leaves some to others (core/client_shares.h). What would be
// more is refused with RESOURCE_EXHAUSTED, and was not run.
//
// Threads: handlers on the engine's thread. The rest from one thread.
// Lifetime: folder, files, engine and buffers outlive it; it outlives the server. REQUIRES: the
//   engine has a thread of its own, or is driven by another one while this is destroyed.
// Errors: as file.proto says.
// Invariants: a lock of a session is another one's only when nothing of that session can still be
//   carried out.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "embed/client_limit.h"
#include "embed/nbdkit/disk_pool.h"
#include "embed/rocksdb/file.weft.h"
#include "embed/rocksdb/file_limits.h"
#include "embed/rocksdb/lent_files.h"
#include "embed/rocksdb/served_folder.h"
#include "embed/server_sessions.h"
#include "transport/buffer_pool.h"
#include "weft/engine.h"
#include "weft/server.h"
#include "weft/service.h"

namespace weft::embed {

struct FileServiceOptions {
  int threads = 8;  // system calls at once that wait for the disk
  // Files of all sessions that are open, on their way, or being closed: beside kMaxOpenFiles of
  // each, so that descriptors are left for connections, and for locks, of which there is one for 12
  // of these. 0: half of those that the system lets this process have now (client_limit.h).
  uint64_t max_open_files = 0;
  uint64_t lock_grace_us = kLockGraceUs;
};

class FileService final : public wire::Files::Service {
 public:
  // `lent`: null: nothing is lent.
  FileService(ServedFolder& folder, LentFiles* lent, Engine& engine, BufferPool& buffers,
              const FileServiceOptions& options);
  ~FileService() override;

  // What one connection may ask of a server of this service.
  static void LimitServer(ServerOptions* options);

  // ServerSessions::End(). Any thread.
  void EndSessions() { sessions_.End(); }

  void StartAttach(const wire::AttachRequest& request,
                   ServerWriter<wire::AttachReply> stream) override;
  void StartOpen(UnaryCall<wire::OpenRequest, wire::OpenReply> call) override;
  void StartClose(UnaryCall<wire::CloseRequest, wire::CloseReply> call) override;
  void StartRead(UnaryCall<wire::ReadRequest, wire::ReadReply> call) override;
  void StartLend(UnaryCall<wire::LendRequest, wire::LendReply> call) override;
  void StartAppend(UnaryCall<wire::AppendRequest, wire::AppendReply> call) override;
  void StartSync(UnaryCall<wire::SyncRequest, wire::SyncReply> call) override;
  void StartStat(UnaryCall<wire::StatRequest, wire::StatReply> call) override;
  void StartList(UnaryCall<wire::ListRequest, wire::ListReply> call) override;
  void StartChange(UnaryCall<wire::ChangeRequest, wire::ChangeReply> call) override;
  void StartLock(UnaryCall<wire::LockRequest, wire::LockReply> call) override;
  void StartUnlock(UnaryCall<wire::UnlockRequest, wire::UnlockReply> call) override;

 private:
  enum class Kind : uint8_t { kReads = 1, kChanges = 2 };

  // A handle's. It goes on a thread of the pool: close(2) may wait.
  struct OpenFile {
    OpenFile(FileService& service, ClientLimit::Place place, Descriptor file, uint64_t identity,
             bool writable);
    ~OpenFile();
    FileService& service;
    const ClientLimit::Place place;
    const Descriptor file;
    const uint64_t identity;
    const bool writable;
    LentFiles::Loan loan;  // engine thread only
  };
  struct HeldLock {
    ClientLimit::Place place;
    Descriptor file;
    uint64_t generation = 0;
  };
  using Locks = std::map<std::string, HeldLock>;
  struct OfSession {  // engine thread only
    wire::AttachRequest asked = {};
    std::unordered_map<uint64_t, std::shared_ptr<OpenFile>> files = {};
    uint64_t last_handle = 0;
    uint32_t opening = 0;  // handles on their way
    uint32_t lent = 0;     // loans
    uint32_t lending = 0;  // loans on their way
    uint32_t locking = 0;  // locks on their way
    Locks locks = {};
  };
  using Sessions = ServerSessions<wire::AttachReply, OfSession>;
  using Session = Sessions::Session;
  using Ticket = Sessions::Ticket;

  absl::StatusOr<Ticket> Admit(uint64_t session, Kind kind);
  absl::StatusOr<std::shared_ptr<OpenFile>> FileOf(const Session& session, uint64_t handle);
  void Reclaim(Session& session);
  void Open(Session& session);
  void CloseOnPool(std::shared_ptr<OpenFile> file);
  absl::StatusOr<HeldLock> TakeLock(uint64_t client, const std::string& name,
                                    std::optional<uint64_t> generation);
  absl::Status Change(const wire::ChangeRequest& request);
  void ForgetFileOf(const std::string& name);
  absl::StatusOr<LentFiles::Loan> LendFile(const OpenFile& file, uint64_t client);

  // `work`(call) on a thread of the pool, and its status as the call's end.
  template <class Call, class Work>
  void RunOnPool(Call call, Ticket ticket, Work work) {
    Sessions::RunOn(*disks_, std::move(call), std::move(ticket), std::move(work));
  }
  // The same, or here and now where no medium is waited for; for what is small.
  template <class Call, class Work>
  void RunSoon(Call call, Ticket ticket, Work work);
  // As RunOnPool(), and then `then`(session, call, result) on the engine, whose status is the
  // call's end; of a session that is not open any more it is SessionOver(). One that has ended
  // before `work` runs gets neither.
  template <class Call, class Work, class Then>
  void RunOnPoolThen(Call call, Ticket ticket, Work work, Then then);
  void ReadLent(UnaryCall<wire::ReadRequest, wire::ReadReply> call, Ticket ticket,
                std::shared_ptr<OpenFile> file);

  ServedFolder& folder_;
  LentFiles* const lent_;
  Engine& engine_;
  const FileServiceOptions options_;
  const uint64_t instance_;  // of this process, in the locks' records; never 0
  const uint64_t started_ns_;
  ClientLimit open_files_;
  ClientLimit held_locks_;

  Sessions sessions_;

  std::mutex writers_mutex_;
  std::multiset<uint64_t> writers_;  // identities of files open for writing; guarded by it

  std::unique_ptr<DiskPool> disks_;  // goes first: its tasks use the rest
};

}  // namespace weft::embed
