#include "embed/rocksdb/over_grpc/grpc_file_calls.h"

#include <google/protobuf/io/coded_stream.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <chrono>
#include <mutex>
#include <utility>
#include <vector>

#include "core/strings.h"
#include "embed/rocksdb/file_limits.h"
#include "embed/rocksdb/over_grpc/grpc_events.h"
#include "embed/rocksdb/over_grpc/grpc_file.grpc.pb.h"
#include "embed/session_client.h"
#include "weft/status.h"

namespace weft::embed {
namespace {

using Stub = wire::GrpcFiles::Stub;
using TimePoint = std::chrono::system_clock::time_point;

// As FileClient::Open() has it for Weft's: a server that was started again is to be found soon.
constexpr int kMaxBackoffMs = 100;

// Tags of GrpcReadReply.
constexpr uint32_t kBytesTag = (1 << 3) | 2;
constexpr uint32_t kDataTag = (2 << 3) | 2;

absl::Status FromGrpc(const grpc::Status& status) {
  // gRPC's codes are Abseil's.
  absl::Status result(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  switch (result.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kInternal:
      return WithDelivery(std::move(result), Delivery::kMayHaveRun);
    default:
      return result;
  }
}

TimePoint After(uint64_t timeout_us) {
  return std::chrono::system_clock::now() + std::chrono::microseconds(timeout_us);
}

void ShutDown(grpc::CompletionQueue& queue) {
  queue.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue.Next(&tag, &ok)) {
  }
}

// Parses a GrpcReadReply, and copies its bytes to where they belong.
absl::Status TakePieces(grpc::ByteBuffer* reply, absl::Span<PieceToRead* const> pieces) {
  grpc::ProtoBufferReader reader(reply);
  google::protobuf::io::CodedInputStream in(&reader);
  size_t total = 0;
  size_t count = 0;
  uint32_t length = 0;
  uint32_t tag = in.ReadTag();
  if (tag == kBytesTag && in.ReadVarint32(&length)) {
    const auto limit = in.PushLimit(static_cast<int>(length));
    for (uint32_t got = 0; in.BytesUntilLimit() > 0 && in.ReadVarint32(&got); ++count) {
      if (count == pieces.size() || got > pieces[count]->into.size()) {
        return WrongReply("more bytes than were asked for");
      }
      pieces[count]->got = got;
      total += got;
    }
    in.PopLimit(limit);
    tag = in.ReadTag();
  }
  if (count != pieces.size()) return WrongReply("not as many pieces as were asked for");
  length = 0;
  if (tag == kDataTag && !in.ReadVarint32(&length)) return WrongReply("no data");
  if (length != total) return WrongReply("other data than its pieces");
  for (PieceToRead* const piece : pieces) {
    if (!in.ReadRaw(piece->into.data(), static_cast<int>(piece->got))) {
      return WrongReply("less data than there should be");
    }
  }
  return absl::OkStatus();
}

// A session's stream, which ends with this.
struct SessionStream {
  ~SessionStream() {
    context.TryCancel();
    if (stream != nullptr) stream->Finish(&status, nullptr);
    ShutDown(queue);
  }

  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  std::unique_ptr<grpc::ClientAsyncReader<wire::AttachReply>> stream;
  wire::AttachReply told;
  grpc::Status status;
};

class GrpcFileCalls final : public FileCalls {
 public:
  GrpcFileCalls(const std::shared_ptr<grpc::Channel>& channel, std::string address,
                uint64_t spin_ns)
      : stub_(channel), reads_(channel), address_(std::move(address)), spin_ns_(spin_ns) {}
  ~GrpcFileCalls() override {
    session_.reset();
    for (const auto& queue : queues_) ShutDown(*queue);
  }

  absl::StatusOr<wire::AttachReply> Attach(const wire::AttachRequest& request,
                                           uint64_t timeout_us) override {
    session_.reset();
    auto session = std::make_unique<SessionStream>();
    const TimePoint deadline = After(timeout_us);
    void* tag = nullptr;
    bool ok = false;
    bool in_time = true;
    const auto succeeds = [&] {
      in_time = NextEvent(session->queue, spin_ns_, deadline, &tag, &ok);
      if (in_time) return ok;
      session->context.TryCancel();
      session->queue.Next(&tag, &ok);  // it has ended
      return false;
    };
    session->stream = stub_.AsyncAttach(&session->context, request, &session->queue, nullptr);
    bool got = succeeds();
    if (got) {
      session->stream->Read(&session->told, nullptr);
      got = succeeds();
    }
    if (!got) {
      session->stream->Finish(&session->status, nullptr);
      session->queue.Next(&tag, &ok);
      session->stream.reset();
      if (!in_time) return NotInTime();
      absl::Status status = FromGrpc(session->status);
      return status.ok() ? WrongReply("a session that has ended before it began") : status;
    }
    session_ = std::move(session);
    return session_->told;
  }

  absl::Status Open(const wire::OpenRequest& request, wire::OpenReply* reply,
                    uint64_t timeout_us) override {
    return Call(&Stub::AsyncOpen, request, reply, timeout_us);
  }
  void Close(const wire::CloseRequest& request, uint64_t timeout_us) override {
    wire::CloseReply reply;
    Call(&Stub::AsyncClose, request, &reply, timeout_us).IgnoreError();
  }
  void Read(uint64_t session, uint64_t handle, absl::Span<PieceToRead* const> pieces,
            uint64_t timeout_us) override {
    static const std::string method = "/weft.embed.wire.GrpcFiles/Read";
    wire::GrpcReadRequest request;
    request.set_session(session);
    request.set_handle(handle);
    for (const PieceToRead* const piece : pieces) {
      request.add_offset(piece->offset);
      request.add_bytes(static_cast<uint32_t>(piece->into.size()));
    }
    grpc::ByteBuffer reply;
    absl::Status status = Await(&reply, timeout_us, [&](auto* context, auto* queue) {
      auto call = reads_.PrepareUnaryCall(context, method, request, queue);
      call->StartCall();
      return call;
    });
    if (status.ok()) status = TakePieces(&reply, pieces);
    for (PieceToRead* const piece : pieces) {
      if (!status.ok()) piece->got = 0;
      piece->status = status;
    }
  }
  absl::Status Append(wire::AppendRequest* request, ByteSpan data, uint64_t timeout_us) override {
    wire::AppendReply reply;
    request->set_inline_data(data.data(), data.size());
    return Call(&Stub::AsyncAppend, *request, &reply, timeout_us);
  }
  absl::Status Sync(const wire::SyncRequest& request, wire::SyncReply* reply,
                    uint64_t timeout_us) override {
    return Call(&Stub::AsyncSync, request, reply, timeout_us);
  }

  absl::Status Stat(const wire::StatRequest& request, wire::StatReply* reply,
                    uint64_t timeout_us) override {
    return Call(&Stub::AsyncStat, request, reply, timeout_us);
  }
  absl::Status List(const wire::ListRequest& request, wire::ListReply* reply,
                    uint64_t timeout_us) override {
    return Call(&Stub::AsyncList, request, reply, timeout_us);
  }
  absl::Status Change(const wire::ChangeRequest& request, wire::ChangeReply* reply,
                      uint64_t timeout_us) override {
    return Call(&Stub::AsyncChange, request, reply, timeout_us);
  }

  absl::Status Lock(const wire::LockRequest& request, wire::LockReply* reply,
                    uint64_t timeout_us) override {
    return Call(&Stub::AsyncLock, request, reply, timeout_us);
  }
  absl::Status Unlock(const wire::UnlockRequest& request, wire::UnlockReply* reply,
                      uint64_t timeout_us) override {
    return Call(&Stub::AsyncUnlock, request, reply, timeout_us);
  }

  std::string Explain() override { return StrCat("gRPC to ", address_); }
  Channel* channel() override { return nullptr; }

 private:
  template <class Request, class Reply>
  using Method = std::unique_ptr<grpc::ClientAsyncResponseReader<Reply>> (Stub::*)(
      grpc::ClientContext*, const Request&, grpc::CompletionQueue*);

  template <class Request, class Reply>
  absl::Status Call(Method<Request, Reply> method, const Request& request, Reply* reply,
                    uint64_t timeout_us) {
    return Await(reply, timeout_us, [&](grpc::ClientContext* context, auto* queue) {
      return (stub_.*method)(context, request, queue);
    });
  }

  // `begin`(context, queue): the call that it has begun.
  template <class Reply, class Begin>
  absl::Status Await(Reply* reply, uint64_t timeout_us, Begin begin) {
    std::unique_ptr<grpc::CompletionQueue> queue = TakeQueue();
    grpc::Status status;
    {
      grpc::ClientContext context;
      const auto call = begin(&context, queue.get());
      call->Finish(reply, &status, nullptr);
      void* tag = nullptr;
      bool ok = false;
      if (!NextEvent(*queue, spin_ns_, After(timeout_us), &tag, &ok)) {
        context.TryCancel();
        queue->Next(&tag, &ok);
      }
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    queues_.push_back(std::move(queue));
    return FromGrpc(status);
  }

  std::unique_ptr<grpc::CompletionQueue> TakeQueue() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (queues_.empty()) return std::make_unique<grpc::CompletionQueue>();
    std::unique_ptr<grpc::CompletionQueue> queue = std::move(queues_.back());
    queues_.pop_back();
    return queue;
  }

  Stub stub_;
  grpc::TemplatedGenericStub<wire::GrpcReadRequest, grpc::ByteBuffer> reads_;
  const std::string address_;
  const uint64_t spin_ns_;

  std::mutex mutex_;
  // As many as threads have waited at once; those that nobody uses. Guarded by mutex_.
  std::vector<std::unique_ptr<grpc::CompletionQueue>> queues_;

  std::unique_ptr<SessionStream> session_;  // of the thread in Attach()
};

}  // namespace

std::unique_ptr<FileCalls> OpenGrpcFileCalls(const std::string& address, uint64_t spin_ns) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetCompressionAlgorithm(GRPC_COMPRESS_NONE);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_MINIMAL_STACK, 1);
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kGrpcFrameBytes);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kGrpcFrameBytes);
  arguments.SetInt(GRPC_ARG_HTTP2_WRITE_BUFFER_SIZE, kGrpcFrameBytes);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kMaxBackoffMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kMaxBackoffMs);
  // A client's connection is its own, as Weft's is.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return std::make_unique<GrpcFileCalls>(
      grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments), address,
      spin_ns);
}

}  // namespace weft::embed
