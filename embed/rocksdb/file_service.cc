#include "embed/rocksdb/file_service.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/random.h"
#include "core/status.h"
#include "core/strings.h"
#include "embed/rocksdb/file_limits.h"
#include "weft/bulk.h"

namespace weft::embed {
namespace {

MutableByteSpan BytesOf(std::string* text) {
  return {reinterpret_cast<std::byte*>(text->data()), text->size()};
}

absl::Status TooLarge(uint64_t bytes, uint64_t limit) {
  return absl::InvalidArgumentError(StrCat("a payload of ", bytes, " bytes; the limit is ", limit));
}

// What a lock's file has. Of this host alone: its byte order does not matter.
struct LockRecord {
  uint64_t generation = 0;
  uint64_t holder = 0;  // FileService::instance_ of who has granted it; 0: it was given back
};

absl::Status WriteRecord(const Descriptor& file, const LockRecord& record) {
  if (::pwrite(file.get(), &record, sizeof(record), 0) != sizeof(record)) {
    return StatusFromErrno(errno, "write the record of a lock");
  }
  if (::fdatasync(file.get()) == 0) return absl::OkStatus();
  return StatusFromErrno(errno, "sync the record of a lock");
}

// A database has one lock and many files. Of 4,096 descriptors 3,072 are for files then, 256 for
// locks, and the rest for connections, of which each has three at most.
constexpr uint64_t kOpenFilesForEachLock = 12;

FileServiceOptions WithOpenFiles(FileServiceOptions options) {
  if (options.max_open_files > 0) return options;
  options.max_open_files = EighthsOfDescriptors(4);
  return options;
}

std::optional<ServedFolder::Mode> ModeOf(wire::OpenRequest::Mode mode) {
  switch (mode) {
    case wire::OpenRequest::READ:
      return ServedFolder::Mode::kRead;
    case wire::OpenRequest::WRITE_NEW:
      return ServedFolder::Mode::kWriteNew;
    case wire::OpenRequest::WRITE_EXISTING:
      return ServedFolder::Mode::kWriteExisting;
    default:
      return std::nullopt;
  }
}

}  // namespace

FileService::OpenFile::OpenFile(FileService& service, ClientLimit::Place place, Descriptor file,
                                uint64_t identity, bool writable)
    : service(service),
      place(std::move(place)),
      file(std::move(file)),
      identity(identity),
      writable(writable) {
  if (!writable) return;
  const std::lock_guard<std::mutex> lock(service.writers_mutex_);
  service.writers_.insert(identity);
}

FileService::OpenFile::~OpenFile() {
  if (!writable) return;
  const std::lock_guard<std::mutex> lock(service.writers_mutex_);
  service.writers_.erase(service.writers_.find(identity));
}

FileService::FileService(ServedFolder& folder, LentFiles* lent, Engine& engine, BufferPool& buffers,
                         const FileServiceOptions& options)
    : folder_(folder),
      lent_(lent),
      engine_(engine),
      options_(WithOpenFiles(options)),
      instance_(SecureRandom64() | 1),
      started_ns_(engine.clock().NowNs()),
      open_files_("open files", options_.max_open_files),
      held_locks_("locks",
                  std::max<uint64_t>(kMaxLocks, options_.max_open_files / kOpenFilesForEachLock)),
      sessions_(
          engine, buffers, [this](Session& session) { Reclaim(session); },
          [this](Session& session) {
            for (auto& [handle, file] : session.files) CloseOnPool(std::move(file));
          }),
      disks_(std::make_unique<DiskPool>(options.threads)) {}

FileService::~FileService() {
  sessions_.Stop();
  disks_.reset();
  sessions_.Clear();
}

void FileService::LimitServer(ServerOptions* options) {
  options->max_outstanding_calls = kMaxFileRequests;
  options->max_request_bytes = kMaxInlineFileBytes + 4096;  // names, twice, and the rest
  options->max_streams = 2;  // a session, and the next one while that ends
}

// --- sessions ------------------------------------------------------------------------------------

void FileService::StartAttach(const wire::AttachRequest& request,
                              ServerWriter<wire::AttachReply> stream) {
  if (request.client().size() != kFileClientIdBytes) {
    return stream.Finish(absl::InvalidArgumentError(
        StrCat("a client's id has ", kFileClientIdBytes, " bytes, not ", request.client().size())));
  }
  if (request.locks_size() > static_cast<int>(kMaxLocks)) {
    return stream.Finish(absl::InvalidArgumentError(
        StrCat(request.locks_size(), " locks; a client has ", kMaxLocks, " at most")));
  }
  sessions_.Attach(request.client(), std::move(stream), {.asked = request});
}

void FileService::CloseOnPool(std::shared_ptr<OpenFile> file) {
  file->loan.reset();
  if (sessions_.stopping()) return;  // the pool takes no more
  disks_->Run(DiskPool::kServer, [file = std::move(file)] {});
}

void FileService::Reclaim(Session& session) {
  if (session.asked.locks().empty()) return Open(session);
  disks_->Run(session.client, [this, ticket = Sessions::Enter(session)]() mutable {
    auto locks = std::make_shared<Locks>();
    std::vector<std::string> lost;
    for (const wire::HeldLock& asked : ticket->asked.locks()) {
      // Its client is gone: who attaches and goes without end waits for no medium.
      if (ticket->state.load() == Sessions::State::kClosed) break;
      absl::StatusOr<HeldLock> lock = TakeLock(ticket->client, asked.name(), asked.generation());
      if (lock.ok()) {
        locks->emplace(asked.name(), *std::move(lock));
      } else {
        lost.push_back(asked.name());
      }
    }
    sessions_.Post([this, locks = std::move(locks), lost = std::move(lost),
                    ticket = std::move(ticket)]() mutable {
      if (ticket->state.load() != Sessions::State::kOpening) return;
      ticket->locks = std::move(*locks);
      for (const std::string& name : lost) ticket->told.add_lost_locks(name);
      Open(*ticket);
    });
  });
}

void FileService::Open(Session& session) {
  session.told.set_read_only(folder_.read_only());
  session.told.set_lends(lent_ != nullptr);
  sessions_.Open(session, folder_.epoch());
}

absl::StatusOr<FileService::Ticket> FileService::Admit(uint64_t number, Kind kind) {
  WEFT_ASSIGN_OR_RETURN(Ticket ticket,
                        sessions_.Admit(number, folder_.epoch(), 2 * kMaxFileRequests));
  if (kind == Kind::kChanges && ticket->told.lost_locks_size() > 0) {
    return absl::FailedPreconditionError(StrCat(
        "this client has lost its lock \"", ticket->told.lost_locks(0),
        "\" while it was not connected: others may have changed what it would change; open anew"));
  }
  return ticket;
}

absl::StatusOr<std::shared_ptr<FileService::OpenFile>> FileService::FileOf(const Session& session,
                                                                           uint64_t handle) {
  const auto found = session.files.find(handle);
  if (found != session.files.end()) return found->second;
  return absl::NotFoundError(StrCat("no handle ", handle, ": open the file"));
}

// --- requests ------------------------------------------------------------------------------------

template <class Call, class Work>
void FileService::RunSoon(Call call, Ticket ticket, Work work) {
  if (!folder_.in_memory()) return RunOnPool(std::move(call), std::move(ticket), std::move(work));
  absl::Status status = work(call);
  call.Finish(std::move(status));
}

template <class Call, class Work, class Then>
void FileService::RunOnPoolThen(Call call, Ticket ticket, Work work, Then then) {
  const uint64_t client = ticket->client;
  disks_->Run(client, [this, call = std::move(call), ticket = std::move(ticket),
                       work = std::move(work), then = std::move(then)]() mutable {
    if (ticket->state.load() == Sessions::State::kClosed) return call.Finish(SessionOver());
    auto result = work(call);
    sessions_.Post([call = std::move(call), ticket = std::move(ticket), then = std::move(then),
                    result = std::move(result)]() mutable {
      const bool is_open = ticket->state.load() == Sessions::State::kOpen;
      absl::Status status = then(*ticket, call, std::move(result));
      call.Finish(is_open ? std::move(status) : SessionOver());
    });
  });
}

void FileService::StartOpen(UnaryCall<wire::OpenRequest, wire::OpenReply> call) {
  const std::optional<ServedFolder::Mode> mode = ModeOf(call.request().mode());
  if (!mode.has_value()) {
    return call.Finish(
        absl::InvalidArgumentError(StrCat("mode ", static_cast<int>(call.request().mode()),
                                          " of opening is not known: is the "
                                          "client of a newer release?")));
  }
  const bool writable = *mode != ServedFolder::Mode::kRead;
  absl::StatusOr<Ticket> ticket =
      Admit(call.request().session(), writable ? Kind::kChanges : Kind::kReads);
  if (!ticket.ok()) return call.Finish(ticket.status());
  if ((*ticket)->files.size() + (*ticket)->opening >= kMaxOpenFiles) {
    return call.Finish(absl::ResourceExhaustedError(
        StrCat(kMaxOpenFiles, " files are open; set max_open_files below that")));
  }
  absl::StatusOr<ClientLimit::Place> place = open_files_.Take((*ticket)->client);
  if (!place.ok()) return call.Finish(place.status());
  ++(*ticket)->opening;
  RunOnPoolThen(
      std::move(call), *std::move(ticket),
      [this, mode = *mode, writable,
       place = *std::move(place)](auto& call) mutable -> absl::StatusOr<std::shared_ptr<OpenFile>> {
        WEFT_ASSIGN_OR_RETURN(Descriptor file, folder_.OpenFile(call.request().name(), mode));
        WEFT_ASSIGN_OR_RETURN(const ServedFolder::Facts facts, ServedFolder::FactsOf(file));
        call.reply()->set_bytes(facts.bytes);
        call.reply()->set_identity(facts.identity);
        auto opened = std::make_shared<OpenFile>(*this, std::move(place), std::move(file),
                                                 facts.identity, writable);
        if (writable && lent_ != nullptr) lent_->Forget(facts.identity);
        return opened;
      },
      [this](Session& session, auto& call, absl::StatusOr<std::shared_ptr<OpenFile>> opened) {
        --session.opening;
        if (!opened.ok()) return opened.status();
        if (session.state.load() != Sessions::State::kOpen) {
          CloseOnPool(*std::move(opened));
          return SessionOver();
        }
        call.reply()->set_handle(++session.last_handle);
        session.files.emplace(session.last_handle, *std::move(opened));
        return absl::OkStatus();
      });
}

void FileService::StartClose(UnaryCall<wire::CloseRequest, wire::CloseReply> call) {
  absl::StatusOr<Ticket> ticket = Admit(call.request().session(), Kind::kReads);
  if (!ticket.ok()) return call.Finish(ticket.status());
  Session& session = **ticket;
  const auto found = session.files.find(call.request().handle());
  if (found == session.files.end()) return call.Finish(absl::OkStatus());
  if (found->second->loan != nullptr) --session.lent;
  CloseOnPool(std::move(found->second));
  session.files.erase(found);
  call.Finish(absl::OkStatus());
}

void FileService::StartRead(UnaryCall<wire::ReadRequest, wire::ReadReply> call) {
  const wire::ReadRequest& request = call.request();
  absl::StatusOr<Ticket> ticket = Admit(request.session(), Kind::kReads);
  if (!ticket.ok()) return call.Finish(ticket.status());
  if (request.bytes() > kMaxFilePayloadBytes) {
    return call.Finish(TooLarge(request.bytes(), kMaxFilePayloadBytes));
  }
  absl::StatusOr<std::shared_ptr<OpenFile>> file = FileOf(**ticket, request.handle());
  if (!file.ok()) return call.Finish(file.status());
  if (request.bytes() > kMaxInlineFileBytes) {
    return ReadLent(std::move(call), *std::move(ticket), *std::move(file));
  }
  std::string* const data = call.reply()->mutable_inline_data();
  data->resize(request.bytes());
  if (data->empty() || (!folder_.in_memory() &&
                        ServedFolder::ReadCached((*file)->file, request.offset(), BytesOf(data)))) {
    return call.Finish(absl::OkStatus());
  }
  RunSoon(std::move(call), *std::move(ticket), [file = *std::move(file), data](auto& call) {
    absl::StatusOr<size_t> got =
        ServedFolder::Read(file->file, call.request().offset(), BytesOf(data));
    if (got.ok()) data->resize(*got);
    return got.status();
  });
}

void FileService::ReadLent(UnaryCall<wire::ReadRequest, wire::ReadReply> call, Ticket ticket,
                           std::shared_ptr<OpenFile> file) {
  absl::StatusOr<std::unique_ptr<Buffer>> buffer =
      sessions_.Allocate(*ticket, call.request().bytes());
  if (!buffer.ok()) return call.Finish(buffer.status());
  const uint64_t client = ticket->client;
  disks_->Run(client, [call = std::move(call), ticket = std::move(ticket), file = std::move(file),
                       buffer = *std::move(buffer)]() mutable {
    if (ticket->state.load() == Sessions::State::kClosed) return call.Finish(SessionOver());
    const wire::ReadRequest& request = call.request();
    absl::StatusOr<size_t> got = ServedFolder::Read(file->file, request.offset(), buffer->bytes());
    if (!got.ok()) return call.Finish(got.status());
    const Slice slice = buffer->slice(0, *got);
    ServerContext& context = call.context();
    weft::Bulk* const field = call.reply()->mutable_lent_data();
    const BulkOptions options = {.crc32c = !request.without_crc32c()};
    context.bulk().Push(slice, field, options,
                        [call = std::move(call), ticket = std::move(ticket),
                         buffer = std::move(buffer)](absl::Status pushed) mutable {
                          buffer.reset();
                          call.Finish(std::move(pushed));
                        });
  });
}

absl::StatusOr<LentFiles::Loan> FileService::LendFile(const OpenFile& file, uint64_t client) {
  const auto is_written = [this, &file] {
    const std::lock_guard<std::mutex> lock(writers_mutex_);
    return writers_.contains(file.identity);
  };
  if (is_written()) return absl::InvalidArgumentError("the file is open for writing");
  WEFT_ASSIGN_OR_RETURN(const ServedFolder::Facts facts, ServedFolder::FactsOf(file.file));
  WEFT_ASSIGN_OR_RETURN(LentFiles::Loan loan,
                        lent_->Lend(file.identity, file.file, facts.bytes, client));
  if (!is_written()) return loan;
  // It was opened meanwhile, perhaps before there was something to forget.
  lent_->Forget(file.identity);
  return absl::InvalidArgumentError("the file is open for writing");
}

void FileService::StartLend(UnaryCall<wire::LendRequest, wire::LendReply> call) {
  absl::StatusOr<Ticket> ticket = Admit(call.request().session(), Kind::kReads);
  if (!ticket.ok()) return call.Finish(ticket.status());
  if (lent_ == nullptr) return call.Finish(absl::UnimplementedError("nothing is lent here"));
  Session& session = **ticket;
  absl::StatusOr<std::shared_ptr<OpenFile>> file = FileOf(session, call.request().handle());
  if (!file.ok()) return call.Finish(file.status());
  if ((*file)->loan == nullptr && session.lent + session.lending >= kMaxLentFiles) {
    return call.Finish(absl::ResourceExhaustedError(
        StrCat(kMaxLentFiles, " files are lent to this session; read by calls")));
  }
  ++session.lending;
  RunOnPoolThen(
      std::move(call), *std::move(ticket),
      [this, file = *file, client = session.client](auto&) { return LendFile(*file, client); },
      [file = *file](Session& session, auto& call, absl::StatusOr<LentFiles::Loan> loan) {
        --session.lending;
        if (!loan.ok()) return loan.status();
        if (!session.files.contains(call.request().handle())) {
          return absl::AbortedError("the file was closed");
        }
        *call.reply()->mutable_file() = (*loan)->region();
        if (file->loan == nullptr) ++session.lent;
        file->loan = *std::move(loan);
        return absl::OkStatus();
      });
}

void FileService::StartAppend(UnaryCall<wire::AppendRequest, wire::AppendReply> call) {
  const wire::AppendRequest& request = call.request();
  const bool is_lent = request.has_lent_data();
  const uint64_t bytes = is_lent ? request.lent_data().length() : request.inline_data().size();
  const uint64_t limit = is_lent ? kMaxFilePayloadBytes : kMaxInlineFileBytes;
  absl::StatusOr<Ticket> ticket = Admit(request.session(), Kind::kChanges);
  if (!ticket.ok()) return call.Finish(ticket.status());
  if (bytes > limit) return call.Finish(TooLarge(bytes, limit));
  if (request.offset() > uint64_t{INT64_MAX} - bytes) {
    return call.Finish(absl::InvalidArgumentError("no file is so large"));
  }
  absl::StatusOr<std::shared_ptr<OpenFile>> file = FileOf(**ticket, request.handle());
  if (!file.ok()) return call.Finish(file.status());
  if (!(*file)->writable) {
    return call.Finish(absl::InvalidArgumentError("the file is open for reading"));
  }
  const auto write = [this, file = *file](auto& call, ByteSpan data) {
    WEFT_RETURN_IF_ERROR(folder_.WriteAt(file->file, call.request().offset(), data));
    return call.request().durable() ? folder_.Sync(file->file) : absl::OkStatus();
  };
  if (!is_lent || bytes == 0) {
    return RunSoon(std::move(call), *std::move(ticket), [write](auto& call) {
      return write(call, AsBytes(call.request().inline_data()));
    });
  }
  absl::StatusOr<std::unique_ptr<Buffer>> buffer = sessions_.Allocate(**ticket, bytes);
  if (!buffer.ok()) return call.Finish(buffer.status());
  const Slice slice = (*buffer)->slice();
  ServerContext& context = call.context();
  context.bulk().Fetch(request.lent_data(), slice,
                       [this, write, call = std::move(call), ticket = *std::move(ticket),
                        buffer = *std::move(buffer)](absl::Status fetched) mutable {
                         if (!fetched.ok()) return call.Finish(std::move(fetched));
                         RunOnPool(std::move(call), std::move(ticket),
                                   [write, buffer = std::move(buffer)](auto& call) mutable {
                                     absl::Status written = write(call, buffer->bytes());
                                     buffer.reset();
                                     return written;
                                   });
                       });
}

void FileService::StartSync(UnaryCall<wire::SyncRequest, wire::SyncReply> call) {
  absl::StatusOr<Ticket> ticket = Admit(call.request().session(), Kind::kChanges);
  if (!ticket.ok()) return call.Finish(ticket.status());
  absl::StatusOr<std::shared_ptr<OpenFile>> file = FileOf(**ticket, call.request().handle());
  if (!file.ok()) return call.Finish(file.status());
  RunSoon(std::move(call), *std::move(ticket),
          [this, file = *std::move(file)](auto&) { return folder_.Sync(file->file); });
}

// --- names ---------------------------------------------------------------------------------------

void FileService::StartStat(UnaryCall<wire::StatRequest, wire::StatReply> call) {
  absl::StatusOr<Ticket> ticket = Admit(call.request().session(), Kind::kReads);
  if (!ticket.ok()) return call.Finish(ticket.status());
  RunOnPool(std::move(call), *std::move(ticket), [this](auto& call) {
    absl::StatusOr<ServedFolder::Facts> facts = folder_.Stat(call.request().name());
    if (!facts.ok()) return facts.status();
    call.reply()->set_bytes(facts->bytes);
    call.reply()->set_modified_s(facts->modified_s);
    call.reply()->set_is_folder(facts->is_folder);
    call.reply()->set_links(facts->links);
    call.reply()->set_identity(facts->identity);
    call.reply()->set_free_bytes(facts->free_bytes);
    return absl::OkStatus();
  });
}

void FileService::StartList(UnaryCall<wire::ListRequest, wire::ListReply> call) {
  absl::StatusOr<Ticket> ticket = Admit(call.request().session(), Kind::kReads);
  if (!ticket.ok()) return call.Finish(ticket.status());
  RunOnPool(std::move(call), *std::move(ticket), [this](auto& call) {
    absl::StatusOr<ServedFolder::Listing> listing =
        folder_.List(call.request().name(), call.request().after());
    if (!listing.ok()) return listing.status();
    for (std::string& name : listing->names) call.reply()->add_names(std::move(name));
    call.reply()->set_has_more(listing->has_more);
    return absl::OkStatus();
  });
}

void FileService::ForgetFileOf(const std::string& name) {
  if (lent_ == nullptr) return;
  const absl::StatusOr<ServedFolder::Facts> facts = folder_.Stat(name);
  if (facts.ok()) lent_->Forget(facts->identity);
}

absl::Status FileService::Change(const wire::ChangeRequest& request) {
  switch (request.kind()) {
    case wire::ChangeRequest::REMOVE:
      ForgetFileOf(request.name());
      return folder_.Remove(request.name());
    case wire::ChangeRequest::MAKE_FOLDER:
      return folder_.MakeFolder(request.name());
    case wire::ChangeRequest::REMOVE_FOLDER:
      return folder_.RemoveFolder(request.name());
    case wire::ChangeRequest::RENAME:
      ForgetFileOf(request.to());
      return folder_.Rename(request.name(), request.to());
    case wire::ChangeRequest::LINK:
      return folder_.Link(request.name(), request.to());
    case wire::ChangeRequest::TRUNCATE:
      ForgetFileOf(request.name());
      return folder_.Truncate(request.name(), request.bytes());
    case wire::ChangeRequest::SYNC_FOLDER:
      return folder_.SyncFolder(request.name());
    default:
      return absl::InvalidArgumentError("no such change");
  }
}

void FileService::StartChange(UnaryCall<wire::ChangeRequest, wire::ChangeReply> call) {
  absl::StatusOr<Ticket> ticket = Admit(call.request().session(), Kind::kChanges);
  if (!ticket.ok()) return call.Finish(ticket.status());
  RunOnPool(std::move(call), *std::move(ticket),
            [this](auto& call) { return Change(call.request()); });
}

// --- locks ---------------------------------------------------------------------------------------

// Of a client that had it: with its generation.
absl::StatusOr<FileService::HeldLock> FileService::TakeLock(uint64_t client,
                                                            const std::string& name,
                                                            std::optional<uint64_t> generation) {
  WEFT_ASSIGN_OR_RETURN(ClientLimit::Place place, held_locks_.Take(client));
  const ServedFolder::Mode mode =
      generation.has_value() ? ServedFolder::Mode::kWriteExisting : ServedFolder::Mode::kLock;
  WEFT_ASSIGN_OR_RETURN(Descriptor file, folder_.OpenFile(name, mode));
  WEFT_ASSIGN_OR_RETURN(const ServedFolder::Facts facts, ServedFolder::FactsOf(file));
  if (facts.bytes != 0 && facts.bytes != sizeof(LockRecord)) {
    return absl::FailedPreconditionError(StrCat("\"", name, "\" is no lock: it has ", facts.bytes,
                                                " bytes, and a lock none, or ",
                                                sizeof(LockRecord)));
  }
  struct flock range = {};
  range.l_type = F_WRLCK;
  range.l_whence = SEEK_SET;
  if (::fcntl(file.get(), F_OFD_SETLK, &range) != 0) {
    if (errno != EAGAIN && errno != EACCES) return StatusFromErrno(errno, StrCat("lock ", name));
    return absl::FailedPreconditionError(
        StrCat("another client, or a process of the server's host, has the lock \"", name, "\""));
  }
  LockRecord record;
  if (::pread(file.get(), &record, sizeof(record), 0) != sizeof(record)) record = {};
  if (generation.has_value() && (record.generation != *generation || record.holder == 0)) {
    return absl::FailedPreconditionError(
        StrCat("another client has had the lock \"", name, "\" meanwhile"));
  }
  const uint64_t age_us = (engine_.clock().NowNs() - started_ns_) / 1000;
  if (!generation.has_value() && record.holder != 0 && record.holder != instance_ &&
      age_us < options_.lock_grace_us) {
    return absl::ResourceExhaustedError(
        StrCat("the lock \"", name, "\" was held when the server was ended, ", age_us / 1000,
               " ms ago: it is kept for its client for ", options_.lock_grace_us / 1000, " ms"));
  }
  if (!generation.has_value()) ++record.generation;
  record.holder = instance_;
  WEFT_RETURN_IF_ERROR(WriteRecord(file, record));
  return HeldLock{std::move(place), std::move(file), record.generation};
}

void FileService::StartLock(UnaryCall<wire::LockRequest, wire::LockReply> call) {
  absl::StatusOr<Ticket> ticket = Admit(call.request().session(), Kind::kChanges);
  if (!ticket.ok()) return call.Finish(ticket.status());
  if ((*ticket)->locks.size() + (*ticket)->locking >= kMaxLocks) {
    return call.Finish(
        absl::ResourceExhaustedError(StrCat("this client has ", kMaxLocks, " locks")));
  }
  ++(*ticket)->locking;
  const uint64_t client = (*ticket)->client;
  RunOnPoolThen(
      std::move(call), *std::move(ticket),
      [this, client](auto& call) { return TakeLock(client, call.request().name(), std::nullopt); },
      [](Session& session, auto& call, absl::StatusOr<HeldLock> lock) {
        --session.locking;
        if (!lock.ok()) return lock.status();
        call.reply()->set_generation(lock->generation);
        session.locks.insert_or_assign(call.request().name(), *std::move(lock));
        return absl::OkStatus();
      });
}

void FileService::StartUnlock(UnaryCall<wire::UnlockRequest, wire::UnlockReply> call) {
  absl::StatusOr<Ticket> ticket = Admit(call.request().session(), Kind::kReads);
  if (!ticket.ok()) return call.Finish(ticket.status());
  Session& session = **ticket;
  auto* const lost = session.told.mutable_lost_locks();
  lost->erase(std::remove(lost->begin(), lost->end(), call.request().name()), lost->end());
  const auto found = session.locks.find(call.request().name());
  if (found == session.locks.end()) return call.Finish(absl::OkStatus());
  auto lock = std::make_shared<HeldLock>(std::move(found->second));
  session.locks.erase(found);
  RunOnPool(std::move(call), *std::move(ticket), [lock = std::move(lock)](auto&) {
    const absl::Status written = WriteRecord(lock->file, {lock->generation, 0});
    lock->file.Reset();
    return written;
  });
}

}  // namespace weft::embed
