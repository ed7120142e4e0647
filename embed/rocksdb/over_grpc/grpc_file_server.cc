#include "embed/rocksdb/over_grpc/grpc_file_server.h"

#include <fcntl.h>
#include <google/protobuf/io/coded_stream.h>
#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/random.h"
#include "core/status.h"
#include "core/strings.h"
#include "embed/nbdkit/disk_pool.h"
#include "embed/rocksdb/file_limits.h"
#include "embed/rocksdb/over_grpc/grpc_events.h"
#include "embed/rocksdb/over_grpc/grpc_file.grpc.pb.h"

namespace weft::embed {
namespace {

using Service = wire::GrpcFiles::WithRawMethod_Read<wire::GrpcFiles::AsyncService>;

// As one connection of Weft's has.
constexpr uint32_t kSlots = kMaxFileRequests;

// Clients at once. More wait until one has left.
constexpr uint32_t kMaxSessions = 16;

// Of GrpcReadReply.data.
constexpr uint8_t kDataTag = (2 << 3) | 2;

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  // gRPC's codes are Abseil's.
  return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message())};
}

absl::Status TooLarge(uint64_t bytes, uint64_t limit) {
  return absl::InvalidArgumentError(StrCat("a payload of ", bytes, " bytes; the limit is ", limit));
}

// --- what a request does -------------------------------------------------------------------------

// None: it would have to wait, and may not.
using Answer = std::optional<absl::Status>;

// Sessions, and their files. Threads: any.
class Files {
 public:
  explicit Files(ServedFolder& folder) : folder_(folder) {}

  ServedFolder& folder() { return folder_; }

  absl::StatusOr<uint64_t> Attach(const wire::AttachRequest& request, wire::AttachReply* reply) {
    if (request.locks_size() > 0) {
      return absl::FailedPreconditionError("locks end with their session: open anew");
    }
    const uint64_t number = SecureRandom64();
    const std::lock_guard<std::mutex> lock(mutex_);
    sessions_[number].epoch = folder_.epoch();
    reply->set_session(number);
    reply->set_epoch(folder_.epoch());
    reply->set_read_only(folder_.read_only());
    return number;
  }
  void Detach(uint64_t number) {
    const std::lock_guard<std::mutex> lock(mutex_);
    sessions_.erase(number);
  }

  Answer Open(const wire::OpenRequest& request, wire::OpenReply* reply, bool may_wait) {
    if (!may_wait) return std::nullopt;
    return OpenNow(request, reply);
  }
  Answer Close(const wire::CloseRequest& request, wire::CloseReply*, bool may_wait) {
    if (!may_wait) return std::nullopt;
    std::shared_ptr<OpenFile> file;  // closed when nothing is locked any more
    return WithSession(request.session(), [&](Session& session) {
      const auto found = session.files.find(request.handle());
      if (found == session.files.end()) return absl::OkStatus();
      file = std::move(found->second);
      session.files.erase(found);
      return absl::OkStatus();
    });
  }

  Answer Read(grpc::ByteBuffer& bytes, grpc::ByteBuffer* reply, bool may_wait) {
    wire::GrpcReadRequest request;
    grpc::ProtoBufferReader reader(&bytes);
    if (!request.ParseFromZeroCopyStream(&reader)) {
      return absl::InvalidArgumentError("not a GrpcReadRequest");
    }
    const size_t pieces = static_cast<size_t>(request.offset_size());
    if (pieces != static_cast<size_t>(request.bytes_size()) || pieces > kMaxFileRequests) {
      return absl::InvalidArgumentError(
          StrCat(pieces, " offsets, ", request.bytes_size(), " lengths"));
    }
    size_t total = 0;
    size_t largest = 0;
    for (const uint32_t asked : request.bytes()) {
      total += asked;
      largest = std::max<size_t>(largest, asked);
    }
    if (largest > kMaxFilePayloadBytes) return TooLarge(largest, kMaxFilePayloadBytes);
    if (!may_wait && largest > kMaxInlineFileBytes) return std::nullopt;
    const auto file = FileOf(request.session(), request.handle());
    if (!file.ok()) return file.status();
    return ReadPieces((*file)->file, request, total, reply, may_wait);
  }

  Answer Append(const wire::AppendRequest& request, wire::AppendReply*, bool may_wait) {
    const std::string& data = request.inline_data();
    if (data.size() > kMaxFilePayloadBytes) return TooLarge(data.size(), kMaxFilePayloadBytes);
    if (!may_wait && (!folder_.in_memory() || data.size() > kMaxInlineFileBytes)) {
      return std::nullopt;
    }
    if (request.offset() > uint64_t{INT64_MAX} - data.size()) {
      return absl::InvalidArgumentError("no file is so large");
    }
    const auto file = FileOf(request.session(), request.handle());
    if (!file.ok()) return file.status();
    if (!(*file)->writable) return absl::InvalidArgumentError("the file is open for reading");
    absl::Status written = folder_.WriteAt((*file)->file, request.offset(), AsBytes(data));
    if (written.ok() && request.durable()) written = folder_.Sync((*file)->file);
    return written;
  }
  Answer Sync(const wire::SyncRequest& request, wire::SyncReply*, bool may_wait) {
    if (!may_wait && !folder_.in_memory()) return std::nullopt;
    const auto file = FileOf(request.session(), request.handle());
    return file.ok() ? folder_.Sync((*file)->file) : file.status();
  }

  Answer Stat(const wire::StatRequest& request, wire::StatReply* reply, bool may_wait) {
    if (!may_wait) return std::nullopt;
    return StatNow(request, reply);
  }
  Answer List(const wire::ListRequest& request, wire::ListReply* reply, bool may_wait) {
    if (!may_wait) return std::nullopt;
    return ListNow(request, reply);
  }
  Answer Change(const wire::ChangeRequest& request, wire::ChangeReply*, bool may_wait) {
    if (!may_wait) return std::nullopt;
    return ChangeNow(request);
  }

  Answer Lock(const wire::LockRequest& request, wire::LockReply* reply, bool may_wait) {
    if (!may_wait) return std::nullopt;
    return LockNow(request, reply);
  }
  Answer Unlock(const wire::UnlockRequest& request, wire::UnlockReply*, bool may_wait) {
    if (!may_wait) return std::nullopt;
    return WithSession(request.session(), [&](Session& session) {
      session.locks.erase(request.name());
      return absl::OkStatus();
    });
  }

 private:
  struct OpenFile {
    Descriptor file;
    bool writable;
  };
  struct Session {
    uint64_t epoch = 0;
    std::unordered_map<uint64_t, std::shared_ptr<OpenFile>> files;
    uint64_t last_handle = 0;
    std::map<std::string, Descriptor> locks;
  };

  // `work`(session), while nobody else uses it.
  template <class Work>
  absl::Status WithSession(uint64_t number, Work work) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = sessions_.find(number);
    if (found == sessions_.end() || found->second.epoch != folder_.epoch()) {
      return absl::AbortedError("no such session: it has ended, or never began; attach");
    }
    return work(found->second);
  }
  absl::StatusOr<std::shared_ptr<OpenFile>> FileOf(uint64_t number, uint64_t handle) {
    std::shared_ptr<OpenFile> file;
    WEFT_RETURN_IF_ERROR(WithSession(number, [&](Session& session) {
      const auto found = session.files.find(handle);
      if (found != session.files.end()) file = found->second;
      return absl::OkStatus();
    }));
    if (file != nullptr) return file;
    return absl::NotFoundError(StrCat("no handle ", handle, ": open the file"));
  }
  absl::Status CheckSession(uint64_t number) {
    return WithSession(number, [](Session&) { return absl::OkStatus(); });
  }

  absl::Status OpenNow(const wire::OpenRequest& request, wire::OpenReply* reply) {
    ServedFolder::Mode mode = ServedFolder::Mode::kRead;
    if (request.mode() == wire::OpenRequest::WRITE_NEW) {
      mode = ServedFolder::Mode::kWriteNew;
    } else if (request.mode() == wire::OpenRequest::WRITE_EXISTING) {
      mode = ServedFolder::Mode::kWriteExisting;
    } else if (request.mode() != wire::OpenRequest::READ) {
      return absl::InvalidArgumentError("no such mode of opening");
    }
    WEFT_RETURN_IF_ERROR(CheckSession(request.session()));
    WEFT_ASSIGN_OR_RETURN(Descriptor opened, folder_.OpenFile(request.name(), mode));
    WEFT_ASSIGN_OR_RETURN(const ServedFolder::Facts facts, ServedFolder::FactsOf(opened));
    reply->set_bytes(facts.bytes);
    reply->set_identity(facts.identity);
    auto file =
        std::make_shared<OpenFile>(OpenFile{std::move(opened), mode != ServedFolder::Mode::kRead});
    return WithSession(request.session(), [&](Session& session) {
      if (session.files.size() >= kMaxOpenFiles) {
        return absl::ResourceExhaustedError(
            StrCat(kMaxOpenFiles, " files are open; set max_open_files below that"));
      }
      reply->set_handle(++session.last_handle);
      session.files.emplace(session.last_handle, std::move(file));
      return absl::OkStatus();
    });
  }

  // The data's slice is read into, and sent as it is; before it goes all that a GrpcReadReply has.
  Answer ReadPieces(const Descriptor& file, const wire::GrpcReadRequest& request, size_t total,
                    grpc::ByteBuffer* reply, bool may_wait) {
    grpc::Slice data(total);
    MutableByteSpan left(reinterpret_cast<std::byte*>(const_cast<uint8_t*>(data.begin())), total);
    wire::GrpcReadReply head;
    for (int i = 0; i < request.offset_size(); ++i) {
      const MutableByteSpan into = left.first(request.bytes(i));
      size_t got = into.size();
      if (!may_wait && !folder_.in_memory()) {
        if (!into.empty() && !ServedFolder::ReadCached(file, request.offset(i), into)) {
          return std::nullopt;
        }
      } else {
        const absl::StatusOr<size_t> read = ServedFolder::Read(file, request.offset(i), into);
        if (!read.ok()) return read.status();
        got = *read;
      }
      head.add_bytes(static_cast<uint32_t>(got));
      left = left.subspan(got);
    }
    const size_t length = total - left.size();
    std::string text = head.SerializeAsString();
    uint8_t before[1 + 5] = {kDataTag};
    const uint8_t* const end = google::protobuf::io::CodedOutputStream::WriteVarint32ToArray(
        static_cast<uint32_t>(length), before + 1);
    text.append(reinterpret_cast<const char*>(before), static_cast<size_t>(end - before));
    const grpc::Slice parts[] = {grpc::Slice(text), data.sub(0, length)};
    *reply = grpc::ByteBuffer(parts, 2);
    return absl::OkStatus();
  }

  absl::Status StatNow(const wire::StatRequest& request, wire::StatReply* reply) {
    WEFT_RETURN_IF_ERROR(CheckSession(request.session()));
    WEFT_ASSIGN_OR_RETURN(const ServedFolder::Facts facts, folder_.Stat(request.name()));
    reply->set_bytes(facts.bytes);
    reply->set_modified_s(facts.modified_s);
    reply->set_is_folder(facts.is_folder);
    reply->set_links(facts.links);
    reply->set_identity(facts.identity);
    reply->set_free_bytes(facts.free_bytes);
    return absl::OkStatus();
  }

  absl::Status ListNow(const wire::ListRequest& request, wire::ListReply* reply) {
    WEFT_RETURN_IF_ERROR(CheckSession(request.session()));
    WEFT_ASSIGN_OR_RETURN(ServedFolder::Listing listing,
                          folder_.List(request.name(), request.after()));
    for (std::string& name : listing.names) reply->add_names(std::move(name));
    reply->set_has_more(listing.has_more);
    return absl::OkStatus();
  }

  absl::Status ChangeNow(const wire::ChangeRequest& request) {
    WEFT_RETURN_IF_ERROR(CheckSession(request.session()));
    switch (request.kind()) {
      case wire::ChangeRequest::REMOVE:
        return folder_.Remove(request.name());
      case wire::ChangeRequest::MAKE_FOLDER:
        return folder_.MakeFolder(request.name());
      case wire::ChangeRequest::REMOVE_FOLDER:
        return folder_.RemoveFolder(request.name());
      case wire::ChangeRequest::RENAME:
        return folder_.Rename(request.name(), request.to());
      case wire::ChangeRequest::LINK:
        return folder_.Link(request.name(), request.to());
      case wire::ChangeRequest::TRUNCATE:
        return folder_.Truncate(request.name(), request.bytes());
      case wire::ChangeRequest::SYNC_FOLDER:
        return folder_.SyncFolder(request.name());
      default:
        return absl::InvalidArgumentError("no such change");
    }
  }

  absl::Status LockNow(const wire::LockRequest& request, wire::LockReply* reply) {
    WEFT_RETURN_IF_ERROR(CheckSession(request.session()));
    WEFT_ASSIGN_OR_RETURN(Descriptor file,
                          folder_.OpenFile(request.name(), ServedFolder::Mode::kLock));
    struct flock range = {};
    range.l_type = F_WRLCK;
    range.l_whence = SEEK_SET;
    if (::fcntl(file.get(), F_OFD_SETLK, &range) != 0) {
      if (errno != EAGAIN && errno != EACCES) return StatusFromErrno(errno, "lock a file");
      return absl::FailedPreconditionError(
          StrCat("another client, or a process of the server's host, has the lock \"",
                 request.name(), "\""));
    }
    reply->set_generation(1);
    return WithSession(request.session(), [&](Session& session) {
      if (session.locks.size() >= kMaxLocks) {
        return absl::ResourceExhaustedError(StrCat("this client has ", kMaxLocks, " locks"));
      }
      session.locks.insert_or_assign(request.name(), std::move(file));
      return absl::OkStatus();
    });
  }

  ServedFolder& folder_;
  std::mutex mutex_;
  std::unordered_map<uint64_t, Session> sessions_;  // guarded by it
};

// --- gRPC ----------------------------------------------------------------------------------------

// A place for one call at a time: waits for a request, answers, waits for the next.
class Slot {
 public:
  virtual ~Slot() = default;
  virtual void OnEvent(bool ok) = 0;
};

// What the slots of a server share.
struct ServerState {
  // All tasks are one client's to the pool, which has all threads but one.
  explicit ServerState(ServedFolder& folder, int threads) : files(folder), disks(threads + 1) {}

  Files files;
  Service service;
  std::unique_ptr<grpc::ServerCompletionQueue> queue;
  std::atomic<bool> is_closing{false};  // no slot waits for another request
  uint32_t calls = 0;                   // under way; of the thread that waits for events
  DiskPool disks;
};

template <class Request, class Reply>
class UnarySlot final : public Slot {
 public:
  using Await = void (Service::*)(grpc::ServerContext*, Request*,
                                  grpc::ServerAsyncResponseWriter<Reply>*, grpc::CompletionQueue*,
                                  grpc::ServerCompletionQueue*, void*);
  // A request that is bytes may not be constant: gRPC reads it so.
  using Do = std::conditional_t<std::is_same_v<Request, grpc::ByteBuffer>,
                                Answer (Files::*)(Request&, Reply*, bool),
                                Answer (Files::*)(const Request&, Reply*, bool)>;

  UnarySlot(ServerState& state, Await await, Do work) : state_(state), await_(await), do_(work) {
    Begin();
  }

  void OnEvent(bool ok) override {
    const bool has_request = ok && !is_answering_;
    if (!has_request) {
      if (is_answering_) --state_.calls;
      call_.reset();
      if (!state_.is_closing) Begin();
      return;
    }
    is_answering_ = true;
    ++state_.calls;
    if (Try(/*may_wait=*/false)) return;
    state_.disks.Run(DiskPool::kServer, [this] { Try(/*may_wait=*/true); });
  }

 private:
  struct Call {
    grpc::ServerContext context;
    grpc::ServerAsyncResponseWriter<Reply> responder{&context};
    Request request;
    Reply reply;
  };

  void Begin() {
    is_answering_ = false;
    call_.emplace();
    (state_.service.*await_)(&call_->context, &call_->request, &call_->responder,
                             state_.queue.get(), state_.queue.get(), static_cast<Slot*>(this));
  }

  // False: it would have to wait. Behind an answer the slot is the next event's.
  bool Try(bool may_wait) {
    const Answer answer = (state_.files.*do_)(call_->request, &call_->reply, may_wait);
    if (!answer.has_value()) return false;
    if (answer->ok()) {
      call_->responder.Finish(call_->reply, grpc::Status::OK, static_cast<Slot*>(this));
    } else {
      call_->responder.FinishWithError(ToGrpc(*answer), static_cast<Slot*>(this));
    }
    return true;
  }

  ServerState& state_;
  const Await await_;
  const Do do_;
  std::optional<Call> call_;
  bool is_answering_ = false;
};

// One client: its stream, which lasts as long as its session.
class SessionSlot final : public Slot {
 public:
  explicit SessionSlot(ServerState& state) : state_(state), end_(*this) { Begin(); }

  void OnEvent(bool ok) override {
    switch (step_) {
      case Step::kWaiting:
        return ok ? Attach() : Leave();
      case Step::kTelling:
        step_ = Step::kOpen;
        return is_over_ ? Finish(grpc::Status::CANCELLED) : void();
      default:
        step_ = Step::kFinished;
        return is_over_ ? Leave() : void();
    }
  }

 private:
  enum class Step : uint8_t {
    kWaiting = 1,
    kTelling = 2,
    kOpen = 3,
    kFinishing = 4,
    kFinished = 5,
  };

  // The client has ended the call, or is gone, or the call has been finished.
  class End final : public Slot {
   public:
    explicit End(SessionSlot& slot) : slot_(slot) {}
    void OnEvent(bool) override { slot_.OnEnd(); }

   private:
    SessionSlot& slot_;
  };
  struct Call {
    grpc::ServerContext context;
    grpc::ServerAsyncWriter<wire::AttachReply> stream{&context};
    wire::AttachRequest request;
    wire::AttachReply told;
  };

  void Begin() {
    step_ = Step::kWaiting;
    is_over_ = false;
    session_.reset();
    call_.emplace();
    call_->context.AsyncNotifyWhenDone(static_cast<Slot*>(&end_));
    state_.service.RequestAttach(&call_->context, &call_->request, &call_->stream,
                                 state_.queue.get(), state_.queue.get(), static_cast<Slot*>(this));
  }
  void Leave() {
    if (step_ != Step::kWaiting) --state_.calls;
    call_.reset();
    if (!state_.is_closing) Begin();
  }
  void Attach() {
    ++state_.calls;
    const absl::StatusOr<uint64_t> session = state_.files.Attach(call_->request, &call_->told);
    if (!session.ok()) return Finish(ToGrpc(session.status()));
    session_ = *session;
    step_ = Step::kTelling;
    call_->stream.Write(call_->told, static_cast<Slot*>(this));
  }
  void OnEnd() {
    is_over_ = true;
    if (session_.has_value()) state_.files.Detach(*session_);
    if (step_ == Step::kOpen) Finish(grpc::Status::CANCELLED);
    if (step_ == Step::kFinished) Leave();
  }
  void Finish(const grpc::Status& status) {
    step_ = Step::kFinishing;
    call_->stream.Finish(status, static_cast<Slot*>(this));
  }

  ServerState& state_;
  End end_;
  Step step_ = Step::kWaiting;
  bool is_over_ = false;
  std::optional<uint64_t> session_;
  std::optional<Call> call_;
};

class Server final : public GrpcFileServer {
 public:
  Server(ServedFolder& folder, const Options& options)
      : state_(folder, options.threads), spin_ns_(options.spin_ns) {}
  ~Server() override {
    if (server_ == nullptr) return;
    state_.is_closing = true;
    server_->Shutdown(std::chrono::system_clock::now());  // cancels what is under way
    grpc::Alarm closing;
    closing.Set(state_.queue.get(), gpr_now(GPR_CLOCK_REALTIME), nullptr);
    thread_.join();
  }

  absl::Status Open(const std::string& address) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
    builder.SetMaxReceiveMessageSize(-1);
    builder.SetMaxSendMessageSize(-1);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kGrpcFrameBytes);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kGrpcFrameBytes);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_WRITE_BUFFER_SIZE, kGrpcFrameBytes);
    builder.AddChannelArgument(GRPC_ARG_MINIMAL_STACK, 1);
    builder.RegisterService(&state_.service);
    state_.queue = builder.AddCompletionQueue();
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port == 0) {
      return absl::UnavailableError(StrCat("gRPC cannot listen at ", address, "; is it in use?"));
    }
    address_ = StrCat(address.substr(0, address.rfind(':')), ":", port);
    for (uint32_t i = 0; i < kMaxSessions; ++i) {
      slots_.push_back(std::make_unique<SessionSlot>(state_));
    }
    Serve<wire::OpenRequest, wire::OpenReply>(&Service::RequestOpen, &Files::Open);
    Serve<wire::CloseRequest, wire::CloseReply>(&Service::RequestClose, &Files::Close);
    Serve<grpc::ByteBuffer, grpc::ByteBuffer>(&Service::RequestRead, &Files::Read);
    Serve<wire::AppendRequest, wire::AppendReply>(&Service::RequestAppend, &Files::Append);
    Serve<wire::SyncRequest, wire::SyncReply>(&Service::RequestSync, &Files::Sync);
    Serve<wire::StatRequest, wire::StatReply>(&Service::RequestStat, &Files::Stat);
    Serve<wire::ListRequest, wire::ListReply>(&Service::RequestList, &Files::List);
    Serve<wire::ChangeRequest, wire::ChangeReply>(&Service::RequestChange, &Files::Change);
    Serve<wire::LockRequest, wire::LockReply>(&Service::RequestLock, &Files::Lock);
    Serve<wire::UnlockRequest, wire::UnlockReply>(&Service::RequestUnlock, &Files::Unlock);
    thread_ = std::thread([this] { Work(); });
    return absl::OkStatus();
  }
  const std::string& address() const override { return address_; }

 private:
  template <class Request, class Reply>
  void Serve(typename UnarySlot<Request, Reply>::Await await,
             typename UnarySlot<Request, Reply>::Do work) {
    for (uint32_t i = 0; i < kSlots; ++i) {
      slots_.push_back(std::make_unique<UnarySlot<Request, Reply>>(state_, await, work));
    }
  }

  // The queue is shut down here, behind the last call's end: nothing comes into it after that.
  void Work() {
    bool is_ending = false;
    void* tag = nullptr;
    bool ok = false;
    while (NextEvent(*state_.queue, spin_ns_, std::chrono::system_clock::time_point::max(), &tag,
                     &ok)) {
      if (tag != nullptr) static_cast<Slot*>(tag)->OnEvent(ok);
      is_ending |= tag == nullptr;
      if (is_ending && state_.calls == 0 && !std::exchange(is_shut_down_, true)) {
        state_.queue->Shutdown();
      }
    }
  }

  ServerState state_;
  const uint64_t spin_ns_;
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
  std::vector<std::unique_ptr<Slot>> slots_;
  bool is_shut_down_ = false;  // of the thread
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcFileServer>> GrpcFileServer::Start(ServedFolder& folder,
                                                                      const Options& options) {
  auto server = std::make_unique<Server>(folder, options);
  WEFT_RETURN_IF_ERROR(server->Open(options.address));
  return server;
}

}  // namespace weft::embed
