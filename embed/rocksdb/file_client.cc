#include "embed/rocksdb/file_client.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "core/clock.h"
#include "core/status.h"
#include "core/strings.h"
#include "embed/rocksdb/file.weft.h"
#include "embed/rocksdb/file_limits.h"
#include "embed/session_client.h"
#include "weft/memory.h"

namespace weft::embed {
namespace {

// A server that had no room for a file in its memory is asked again after so long.
constexpr uint64_t kAskAgainNs = 1'000'000'000;

// Of a one-sided read: what takes longer goes by a call, which notices more. The server's engine is
// taken for dead after 3 s (LinkOptions::peer_timeout_ns).
constexpr uint64_t kOneSidedTimeoutUs = 5'000'000;

// One-sided reads of one batch, and of one read: RocksDB's longest readahead and some more.
constexpr size_t kMaxBatchBytes = size_t{8} << 20;

wire::OpenRequest::Mode WireModeOf(FileClient::Mode mode, bool again) {
  if (mode == FileClient::Mode::kRead) return wire::OpenRequest::READ;
  const bool is_new = mode == FileClient::Mode::kWriteNew && !again;
  return is_new ? wire::OpenRequest::WRITE_NEW : wire::OpenRequest::WRITE_EXISTING;
}

// Else a path of which it is a part could lead elsewhere.
bool IsName(std::string_view text) {
  return !text.empty() && text != "." && text != ".." && text.find('/') == text.npos;
}

uint64_t NowNs() { return Clock::Real().NowNs(); }

}  // namespace

// The question for a file in the server's memory, and the answer; shared with the call's callback.
struct FileClient::Lent {
  wire::LendReply reply;  // of the call, until it has ended
  std::mutex mutex;
  // Guarded by mutex.
  bool is_dropped = false;  // nobody wants the answer any more
  bool has_failed = false;
  std::shared_ptr<RemoteMemory> memory;
  // Constant.
  uint64_t session = 0;
  uint64_t asked_ns = 0;
};

FileClient::FileClient(const FileClientOptions& options, std::unique_ptr<FileCalls> calls)
    : options_(options),
      calls_(std::move(calls)),
      channel_(calls_->channel()),
      client_id_(NewClientId(kFileClientIdBytes)),
      sessions_(options.patience_us,
                [this](uint64_t timeout_us) { return AskForSession(timeout_us); }) {}

FileClient::~FileClient() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  stopped_.notify_all();
  if (keeper_.joinable()) keeper_.join();
}

absl::StatusOr<std::unique_ptr<FileClient>> FileClient::Open(const FileClientOptions& options) {
  ChannelOptions channel_options = options.channel;
  channel_options.max_outstanding_calls = kMaxFileRequests;
  // The longest reply is a list: its names, and less than kMaxInlineFileBytes around them.
  channel_options.max_reply_bytes = kMaxListedBytes + kMaxInlineFileBytes;
  // A server that was started again is to be found soon.
  channel_options.max_backoff_us = std::min<uint64_t>(channel_options.max_backoff_us, 100'000);
  WEFT_ASSIGN_OR_RETURN(auto calls,
                        OpenFileCalls(options.address, channel_options, options.crc32c));
  return Open(options, std::move(calls));
}

absl::StatusOr<std::unique_ptr<FileClient>> FileClient::Open(const FileClientOptions& options,
                                                             std::unique_ptr<FileCalls> calls) {
  std::unique_ptr<FileClient> client(new FileClient(options, std::move(calls)));
  WEFT_RETURN_IF_ERROR(client->sessions_.Attach());
  return client;
}

// --- sessions ------------------------------------------------------------------------------------

absl::StatusOr<FileClient::Session> FileClient::AskForSession(uint64_t timeout_us) {
  wire::AttachRequest request;
  request.set_client(client_id_);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [name, generation] : locks_) {
      wire::HeldLock* const held = request.add_locks();
      held->set_name(name);
      held->set_generation(generation);
    }
  }
  WEFT_ASSIGN_OR_RETURN(const wire::AttachReply reply, calls_->Attach(request, timeout_us));
  server_lends_.store(reply.lends(), std::memory_order_relaxed);
  return Session{reply.session(), reply.epoch()};
}

// --- files ---------------------------------------------------------------------------------------

absl::StatusOr<std::unique_ptr<FileClient::File>> FileClient::OpenFile(const std::string& name,
                                                                       Mode mode) {
  std::unique_ptr<File> file(new File(*this, name, mode));
  WEFT_RETURN_IF_ERROR(sessions_.Operate(
      StrCat("open ", name), [&](const Attempt& attempt) { return EnsureOpen(*file, attempt); }));
  return file;
}

absl::Status FileClient::EnsureOpen(File& file, const Attempt& attempt) {
  const std::lock_guard<std::mutex> lock(file.mutex_);
  if (file.session_ == attempt.session.number) return absl::OkStatus();
  const bool again = file.session_ != 0;
  wire::OpenRequest request;
  wire::OpenReply reply;
  request.set_session(attempt.session.number);
  request.set_name(file.name_);
  request.set_mode(WireModeOf(file.mode_, again));
  WEFT_RETURN_IF_ERROR(calls_->Open(request, &reply, attempt.timeout_us));
  if (again && reply.identity() != file.identity_) {
    return absl::DataLossError(StrCat("another file has the name ", file.name_, " now"));
  }
  if (again && reply.bytes() < file.bytes_ && file.mode_ != Mode::kRead) {
    return absl::DataLossError(StrCat(file.name_, " has ", reply.bytes(), " bytes, and had ",
                                      file.bytes_, ": some that were written are lost"));
  }
  if (!again) {
    file.identity_ = reply.identity();
    file.bytes_ = reply.bytes();
    file.synced_bytes_ = reply.bytes();
  }
  file.session_ = attempt.session.number;
  file.handle_ = reply.handle();
  return absl::OkStatus();
}

FileClient::File::~File() { client_.Close(*this).IgnoreError(); }

absl::Status FileClient::Close(File& file) {
  if (std::exchange(file.is_closed_, true)) return absl::OkStatus();
  std::shared_ptr<RemoteMemory> memory;
  wire::CloseRequest request;
  {
    const std::lock_guard<std::mutex> lock(file.mutex_);
    request.set_session(file.session_);
    request.set_handle(file.handle_);
    if (file.lent_ != nullptr) {
      const std::lock_guard<std::mutex> lent_lock(file.lent_->mutex);
      file.lent_->is_dropped = true;
      memory = std::move(file.lent_->memory);
    }
  }
  memory.reset();  // before the server may use it for something else
  if (request.session() == 0) return absl::OkStatus();  // it was never open
  // Whatever becomes of it, the handle ends with the session.
  calls_->Close(request, options_.patience_us);
  return absl::OkStatus();
}

// --- reads ---------------------------------------------------------------------------------------

// The answer comes while this thread, or another one, waits for something else.
void FileClient::AskForMemory(File& file, const Session& session) {
  const bool server_lends = server_lends_.load(std::memory_order_relaxed);
  if (!options_.one_sided || channel_ == nullptr || !server_lends || file.mode_ != Mode::kRead) {
    return;
  }
  const std::lock_guard<std::mutex> lock(file.mutex_);
  const uint64_t now_ns = NowNs();
  if (file.session_ != session.number) return;
  if (file.lent_ != nullptr && file.lent_->session == session.number) {
    const std::lock_guard<std::mutex> lent_lock(file.lent_->mutex);
    if (!file.lent_->has_failed || now_ns < file.lent_->asked_ns + kAskAgainNs) return;
  }
  file.lent_ = std::make_shared<Lent>();
  file.lent_->session = session.number;
  file.lent_->asked_ns = now_ns;
  wire::LendRequest request;
  request.set_session(session.number);
  request.set_handle(file.handle_);
  const wire::Files::Stub stub(*channel_);
  stub.Lend(request, &file.lent_->reply, {.timeout_us = options_.patience_us},
            [lent = file.lent_, channel = channel_](const absl::Status& status) {
              const std::lock_guard<std::mutex> lock(lent->mutex);
              if (lent->is_dropped) return;
              RemoteMemoryOptions options;
              options.timeout_us = kOneSidedTimeoutUs;
              options.resolve_at_once = false;
              auto memory = status.ok() ? RemoteMemory::Open(*channel, lent->reply.file(), options)
                                        : absl::StatusOr<std::unique_ptr<RemoteMemory>>(status);
              if (memory.ok()) lent->memory = *std::move(memory);
              lent->has_failed = !memory.ok();
            });
}

std::shared_ptr<RemoteMemory> FileClient::MemoryOf(File& file) {
  const std::lock_guard<std::mutex> lock(file.mutex_);
  if (file.lent_ == nullptr) return nullptr;
  const std::lock_guard<std::mutex> lent_lock(file.lent_->mutex);
  return file.lent_->memory;
}

void FileClient::DropMemory(File& file, const std::shared_ptr<RemoteMemory>& memory) {
  const std::lock_guard<std::mutex> lock(file.mutex_);
  if (file.lent_ == nullptr) return;
  const std::lock_guard<std::mutex> lent_lock(file.lent_->mutex);
  if (file.lent_->memory != memory) return;
  file.lent_->memory = nullptr;  // the caller has it still
  file.lent_->has_failed = true;
}

// False: nothing was read so; `pieces` are as they were, but for their bytes.
bool FileClient::ReadOneSided(File& file, absl::Span<PieceToRead> pieces) {
  const std::shared_ptr<RemoteMemory> memory = MemoryOf(file);
  if (memory == nullptr) return false;
  size_t total = 0;
  for (PieceToRead& piece : pieces) {
    if (piece.into.size() > kMaxBatchBytes - total) return false;
    total += piece.into.size();
    const uint64_t left = memory->size() - std::min(memory->size(), piece.offset);
    piece.got = std::min<uint64_t>(piece.into.size(), left);
  }
  absl::StatusOr<std::unique_ptr<Buffer>> buffer =
      channel_->AllocateBuffer(std::max<size_t>(total, 1));
  if (!buffer.ok()) return false;
  std::array<RemotePiece, kMaxBatchTransfers> batch;
  size_t count = 0;
  size_t place = 0;
  for (const PieceToRead& piece : pieces) {
    if (piece.got == 0) continue;
    batch[count++] = {piece.offset, (*buffer)->slice(place, piece.got)};
    place += piece.got;
  }
  if (count > 0) {
    const absl::Status status = count == 1 ? memory->Read(batch[0].offset, batch[0].local)
                                           : memory->ReadBatch(absl::MakeSpan(batch.data(), count));
    if (!status.ok()) {
      DropMemory(file, memory);
      return false;
    }
  }
  const std::byte* from = (*buffer)->bytes().data();
  for (PieceToRead& piece : pieces) {
    std::memcpy(piece.into.data(), from, piece.got);
    from += piece.got;
    piece.status = absl::OkStatus();
  }
  one_sided_reads_.fetch_add(pieces.size(), std::memory_order_relaxed);
  one_sided_batches_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

absl::StatusOr<size_t> FileClient::Read(File& file, uint64_t offset, MutableByteSpan into) {
  PieceToRead piece = {offset, into, 0, absl::OkStatus()};
  if (ReadOneSided(file, absl::MakeSpan(&piece, 1))) return piece.got;
  WEFT_RETURN_IF_ERROR(ReadByCall(file, piece));
  return piece.got;
}

absl::Status FileClient::ReadByCall(File& file, PieceToRead& piece) {
  piece.got = 0;
  while (piece.got < piece.into.size()) {
    PieceToRead part;
    part.offset = piece.offset + piece.got;
    part.into = piece.into.subspan(piece.got,
                                   std::min(piece.into.size() - piece.got, kMaxFilePayloadBytes));
    piece.status = sessions_.Operate(StrCat("read ", file.name_), [&](const Attempt& attempt) {
      WEFT_RETURN_IF_ERROR(EnsureOpen(file, attempt));
      AskForMemory(file, attempt.session);
      PieceToRead* const parts[] = {&part};
      calls_->Read(attempt.session.number, HandleOf(file), parts, attempt.timeout_us);
      return part.status;
    });
    WEFT_RETURN_IF_ERROR(piece.status);
    piece.got += part.got;
    if (part.got < part.into.size()) break;
  }
  reads_by_calls_.fetch_add(1, std::memory_order_relaxed);
  return absl::OkStatus();
}

void FileClient::ReadMany(File& file, absl::Span<PieceToRead> pieces) {
  while (!pieces.empty()) {
    const absl::Span<PieceToRead> batch = pieces.subspan(0, kMaxBatchTransfers);
    if (!ReadOneSided(file, batch)) ReadByCalls(file, batch);
    pieces.remove_prefix(batch.size());
  }
}

// One attempt for all, together; what has failed is tried alone.
void FileClient::ReadByCalls(File& file, absl::Span<PieceToRead> pieces) {
  std::vector<PieceToRead*> sent;
  for (PieceToRead& piece : pieces) {
    piece.status = absl::UnavailableError("not sent");
    if (piece.into.size() <= kMaxFilePayloadBytes) sent.push_back(&piece);
  }
  const absl::Status opened =
      sessions_.Operate(StrCat("read ", file.name_), [&](const Attempt& attempt) {
        WEFT_RETURN_IF_ERROR(EnsureOpen(file, attempt));
        AskForMemory(file, attempt.session);
        if (sent.empty()) return absl::OkStatus();
        calls_->Read(attempt.session.number, HandleOf(file), sent, attempt.timeout_us);
        return absl::OkStatus();
      });
  for (PieceToRead& piece : pieces) {
    if (piece.status.ok()) reads_by_calls_.fetch_add(1, std::memory_order_relaxed);
  }
  for (PieceToRead& piece : pieces) {
    if (!opened.ok()) piece.status = opened;
    if (opened.ok() && !piece.status.ok()) ReadByCall(file, piece).IgnoreError();
  }
}

// --- appends -------------------------------------------------------------------------------------

absl::Status FileClient::CheckEpoch(File& file, const Session& session) {
  if (file.bytes_ > file.synced_bytes_ && file.epoch_ != session.epoch) {
    return absl::DataLossError(StrCat(
        "the last ", file.bytes_ - file.synced_bytes_, " bytes of ", file.name_,
        " were not synced, and may be lost: the server's host was started again, or its medium "
        "has failed"));
  }
  file.epoch_ = session.epoch;
  return absl::OkStatus();
}

absl::Status FileClient::Append(File& file, ByteSpan from, bool durable) {
  while (!from.empty()) {
    const size_t bytes = std::min(from.size(), kMaxFilePayloadBytes);
    WEFT_RETURN_IF_ERROR(AppendPiece(file, from.first(bytes), durable && bytes == from.size()));
    from = from.subspan(bytes);
  }
  return absl::OkStatus();
}

absl::Status FileClient::AppendPiece(File& file, ByteSpan from, bool durable) {
  return sessions_.Operate(StrCat("append to ", file.name_), [&](const Attempt& attempt) {
    WEFT_RETURN_IF_ERROR(EnsureOpen(file, attempt));
    WEFT_RETURN_IF_ERROR(CheckEpoch(file, attempt.session));
    wire::AppendRequest request;
    request.set_session(attempt.session.number);
    request.set_handle(HandleOf(file));
    request.set_offset(file.bytes_);
    request.set_durable(durable);
    WEFT_RETURN_IF_ERROR(calls_->Append(&request, from, attempt.timeout_us));
    file.bytes_ += from.size();
    if (durable) file.synced_bytes_ = file.bytes_;
    return absl::OkStatus();
  });
}

absl::Status FileClient::Sync(File& file) {
  return sessions_.Operate(StrCat("sync ", file.name_), [&](const Attempt& attempt) {
    WEFT_RETURN_IF_ERROR(EnsureOpen(file, attempt));
    WEFT_RETURN_IF_ERROR(CheckEpoch(file, attempt.session));
    wire::SyncRequest request;
    wire::SyncReply reply;
    request.set_session(attempt.session.number);
    request.set_handle(HandleOf(file));
    WEFT_RETURN_IF_ERROR(calls_->Sync(request, &reply, attempt.timeout_us));
    file.synced_bytes_ = file.bytes_;
    return absl::OkStatus();
  });
}

absl::Status FileClient::Truncate(File& file, uint64_t bytes) {
  if (bytes > file.bytes_) {
    return absl::InvalidArgumentError(
        StrCat(file.name_, " has ", file.bytes_, " bytes, less than ", bytes));
  }
  WEFT_RETURN_IF_ERROR(Truncate(file.name_, bytes));
  file.bytes_ = bytes;
  file.synced_bytes_ = std::min(file.synced_bytes_, bytes);
  return absl::OkStatus();
}

uint64_t FileClient::HandleOf(File& file) {
  const std::lock_guard<std::mutex> lock(file.mutex_);
  return file.handle_;
}

// --- names ---------------------------------------------------------------------------------------

absl::StatusOr<FileClient::Facts> FileClient::Stat(const std::string& name) {
  wire::StatReply reply;
  WEFT_RETURN_IF_ERROR(sessions_.Operate(StrCat("stat ", name), [&](const Attempt& attempt) {
    wire::StatRequest request;
    request.set_session(attempt.session.number);
    request.set_name(name);
    return calls_->Stat(request, &reply, attempt.timeout_us);
  }));
  return Facts{reply.bytes(), reply.modified_s(), reply.is_folder(),
               reply.links(), reply.identity(),   reply.free_bytes()};
}

absl::StatusOr<std::vector<std::string>> FileClient::List(const std::string& name) {
  std::vector<std::string> names;
  size_t bytes = 0;
  for (bool has_more = true; has_more;) {
    WEFT_RETURN_IF_ERROR(sessions_.Operate(StrCat("list ", name), [&](const Attempt& attempt) {
      wire::ListRequest request;
      wire::ListReply reply;
      request.set_session(attempt.session.number);
      request.set_name(name);
      if (!names.empty()) request.set_after(names.back());
      WEFT_RETURN_IF_ERROR(calls_->List(request, &reply, attempt.timeout_us));
      has_more = reply.has_more();
      if (has_more && reply.names().empty()) return WrongReply("no names, and more of them");
      for (std::string& next : *reply.mutable_names()) {
        if (!IsName(next)) return WrongReply("a name that no file can have");
        if (!names.empty() && next <= names.back()) return WrongReply("names without order");
        bytes += next.size();
        names.push_back(std::move(next));
      }
      return absl::OkStatus();
    }));
    if (names.size() > kMaxFolderNames || bytes > kMaxFolderBytes) {
      return absl::ResourceExhaustedError(StrCat("list ", name, ": at least ", names.size(),
                                                 " names of ", bytes, " bytes; a client takes ",
                                                 kMaxFolderNames, " names of ", kMaxFolderBytes,
                                                 " bytes: put the files into several folders"));
    }
  }
  return names;
}

// `done_before`: what the server says if an earlier attempt, whose answer was lost, has done it.
absl::Status FileClient::Change(wire::ChangeRequest request, absl::StatusCode done_before) {
  const std::string what = StrCat(wire::ChangeRequest::Kind_Name(request.kind()), " ",
                                  request.name(), request.to().empty() ? "" : " ", request.to());
  return sessions_.Operate(what, [&](const Attempt& attempt) {
    wire::ChangeReply reply;
    request.set_session(attempt.session.number);
    absl::Status status = calls_->Change(request, &reply, attempt.timeout_us);
    if (attempt.may_have_run && status.code() == done_before) return absl::OkStatus();
    return status;
  });
}

absl::Status FileClient::Remove(const std::string& name) {
  wire::ChangeRequest request;
  request.set_kind(wire::ChangeRequest::REMOVE);
  request.set_name(name);
  return Change(std::move(request), absl::StatusCode::kNotFound);
}

absl::Status FileClient::MakeFolder(const std::string& name) {
  wire::ChangeRequest request;
  request.set_kind(wire::ChangeRequest::MAKE_FOLDER);
  request.set_name(name);
  return Change(std::move(request), absl::StatusCode::kAlreadyExists);
}

absl::Status FileClient::RemoveFolder(const std::string& name) {
  wire::ChangeRequest request;
  request.set_kind(wire::ChangeRequest::REMOVE_FOLDER);
  request.set_name(name);
  return Change(std::move(request), absl::StatusCode::kNotFound);
}

absl::Status FileClient::Rename(const std::string& from, const std::string& to) {
  wire::ChangeRequest request;
  request.set_kind(wire::ChangeRequest::RENAME);
  request.set_name(from);
  request.set_to(to);
  return Change(std::move(request), absl::StatusCode::kNotFound);
}

absl::Status FileClient::Link(const std::string& from, const std::string& to) {
  wire::ChangeRequest request;
  request.set_kind(wire::ChangeRequest::LINK);
  request.set_name(from);
  request.set_to(to);
  return Change(std::move(request), absl::StatusCode::kAlreadyExists);
}

absl::Status FileClient::Truncate(const std::string& name, uint64_t bytes) {
  wire::ChangeRequest request;
  request.set_kind(wire::ChangeRequest::TRUNCATE);
  request.set_name(name);
  request.set_bytes(bytes);
  return Change(std::move(request), absl::StatusCode::kOk);
}

absl::Status FileClient::SyncFolder(const std::string& name) {
  wire::ChangeRequest request;
  request.set_kind(wire::ChangeRequest::SYNC_FOLDER);
  request.set_name(name);
  return Change(std::move(request), absl::StatusCode::kOk);
}

// --- locks ---------------------------------------------------------------------------------------

absl::Status FileClient::Lock(const std::string& name) {
  return sessions_.Operate(StrCat("lock ", name), [&](const Attempt& attempt) {
    wire::LockRequest request;
    wire::LockReply reply;
    request.set_session(attempt.session.number);
    request.set_name(name);
    WEFT_RETURN_IF_ERROR(calls_->Lock(request, &reply, attempt.timeout_us));
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!sessions_.IsCurrent(attempt.session)) {
      return absl::AbortedError("the lock has ended with its session");
    }
    locks_[name] = reply.generation();
    if (!keeper_.joinable()) keeper_ = std::thread([this] { KeepLocks(); });
    return absl::OkStatus();
  });
}

absl::Status FileClient::Unlock(const std::string& name) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (locks_.erase(name) == 0) {
      return absl::FailedPreconditionError(StrCat("this client has no lock \"", name, "\""));
    }
  }
  return sessions_.Operate(StrCat("unlock ", name), [&](const Attempt& attempt) {
    wire::UnlockRequest request;
    wire::UnlockReply reply;
    request.set_session(attempt.session.number);
    request.set_name(name);
    return calls_->Unlock(request, &reply, attempt.timeout_us);
  });
}

void FileClient::KeepLocks() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stopping_) {
    stopped_.wait_for(lock, std::chrono::microseconds(kKeepLocksUs), [this] { return stopping_; });
    if (stopping_ || locks_.empty()) continue;
    lock.unlock();
    // Two rounds: with the pause of one it stays below the time for which locks are kept.
    const absl::Status asked =
        sessions_.Operate("keep locks", 2 * kKeepLocksUs, [this](const Attempt& attempt) {
          wire::StatRequest request;
          wire::StatReply reply;
          request.set_session(attempt.session.number);
          return calls_->Stat(request, &reply, attempt.timeout_us);
        });
    // The next operation asks again, with more patience, and reports the error.
    asked.IgnoreError();
    lock.lock();
  }
}

}  // namespace weft::embed
