#include "bench/peers/grpc_ends.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "bench/peers/grpc_peer.grpc.pb.h"
#include "bench/peers/grpc_peer.pb.h"
#include "bench/perf/ends/pipe.h"
#include "bench/perf/ends/run_clock.h"
#include "core/clock.h"
#include "core/histogram.h"
#include "core/status.h"
#include "core/strings.h"
#include "transport/certificate_authority.h"

namespace weft::bench {
namespace {

constexpr char kFetch[] = "/weft.bench.GrpcPeer/Fetch";
constexpr char kEnd[] = "end";  // the payload of the last call of a run
// More than are outstanding in any cell: a call always finds a slot.
constexpr int kServerSlots = 160;
constexpr int kFrameBytes = 4 << 20;
constexpr int kConnectSeconds = 20;

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  return absl::UnavailableError(StrCat("gRPC: ", status.error_message()));
}

// The next event, or none yet: never sleeps.
bool Next(grpc::CompletionQueue& queue, void** tag, bool* ok) {
  return queue.AsyncNext(tag, ok, gpr_time_0(GPR_CLOCK_REALTIME)) ==
         grpc::CompletionQueue::GOT_EVENT;
}

// A server's credentials, and, as one line, what its clients trust.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeTls(std::string* roots) {
  constexpr int64_t kValidSeconds = 86'400;
  WEFT_ASSIGN_OR_RETURN(const CertificateAuthority authority,
                        CertificateAuthority::Create("perf", kValidSeconds));
  CertificateRequest request;
  request.common_name = "perf";
  request.addresses = {"127.0.0.1"};
  request.valid_until_s = kValidSeconds;
  WEFT_ASSIGN_OR_RETURN(const CertificateAndKey leaf, authority.Sign(request));
  grpc::SslServerCredentialsOptions options;
  options.pem_key_cert_pairs.push_back({leaf.key_pem, leaf.certificate_pem});
  *roots = authority.pem().certificate_pem;
  std::replace(roots->begin(), roots->end(), '\n', '|');
  return grpc::SslServerCredentials(options);
}

std::shared_ptr<grpc::ChannelCredentials> Trust(std::string roots) {
  std::replace(roots.begin(), roots.end(), '|', '\n');
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = std::move(roots);
  return grpc::SslCredentials(options);
}

grpc::ByteBuffer BufferOf(const grpc::Slice& slice) { return grpc::ByteBuffer(&slice, 1); }

// --- server -------------------------------------------------------------------------------------

using Service = GrpcPeer::WithRawMethod_Fetch<
    GrpcPeer::WithAsyncMethod_Talk<GrpcPeer::WithAsyncMethod_Echo<GrpcPeer::Service>>>;

// What the slots of a server share.
struct ServerState {
  Service service;
  std::unique_ptr<grpc::ServerCompletionQueue> queue;
  grpc::Slice bulk;  // of the present cell
  bool over = false;
  bool closing = false;
};

// One call at a time: waits for a request, answers, waits for the next.
class Slot {
 public:
  virtual ~Slot() = default;
  virtual void OnEvent(bool ok) = 0;
};

class EchoSlot final : public Slot {
 public:
  explicit EchoSlot(ServerState* state) : state_(state) { Await(); }

  void OnEvent(bool ok) override {
    if (state_->closing) return;
    if (answering_ || !ok) {
      if (answering_ && request_.payload() == kEnd) state_->over = true;
      return Await();
    }
    answering_ = true;
    reply_.set_payload(request_.payload());
    responder_->Finish(reply_, grpc::Status::OK, this);
  }

 private:
  void Await() {
    answering_ = false;
    context_.emplace();
    responder_.emplace(&*context_);
    state_->service.RequestEcho(&*context_, &request_, &*responder_, state_->queue.get(),
                                state_->queue.get(), this);
  }

  ServerState* const state_;
  std::optional<grpc::ServerContext> context_;
  std::optional<grpc::ServerAsyncResponseWriter<GrpcPayload>> responder_;
  GrpcPayload request_;
  GrpcPayload reply_;
  bool answering_ = false;
};

// Messages of a stream go back, or are confirmed.
class TalkSlot final : public Slot {
 public:
  explicit TalkSlot(ServerState* state) : state_(state) { Await(); }

  void OnEvent(bool ok) override {
    if (state_->closing) return;
    switch (step_) {
      case Step::kAwaiting:
        return ok ? Read() : Await();
      case Step::kReading:
        return ok ? OnMessage() : Finish();
      case Step::kWriting:
        return ok ? Read() : Finish();
      case Step::kFinishing:
        return Await();
    }
  }

 private:
  enum class Step : uint8_t { kAwaiting = 1, kReading = 2, kWriting = 3, kFinishing = 4 };

  void Await() {
    step_ = Step::kAwaiting;
    confirm_every_ = unconfirmed_ = 0;
    context_.emplace();
    stream_.emplace(&*context_);
    state_->service.RequestTalk(&*context_, &*stream_, state_->queue.get(), state_->queue.get(),
                                this);
  }
  void Read() {
    step_ = Step::kReading;
    stream_->Read(&message_, this);
  }
  void OnMessage() {
    if (confirm_every_ == 0 && message_.confirm_every() == 0) return Write(message_);
    if (message_.confirm_every() != 0) {
      confirm_every_ = message_.confirm_every();
    } else if (++unconfirmed_ == confirm_every_) {
      unconfirmed_ = 0;
      return Write(GrpcTalk::default_instance());
    }
    Read();
  }
  void Write(const GrpcTalk& message) {
    step_ = Step::kWriting;
    stream_->Write(message, this);
  }
  void Finish() {
    step_ = Step::kFinishing;
    stream_->Finish(grpc::Status::OK, this);
  }

  ServerState* const state_;
  Step step_ = Step::kAwaiting;
  std::optional<grpc::ServerContext> context_;
  std::optional<grpc::ServerAsyncReaderWriter<GrpcTalk, GrpcTalk>> stream_;
  GrpcTalk message_;
  uint32_t confirm_every_ = 0;
  uint32_t unconfirmed_ = 0;
};

class FetchSlot final : public Slot {
 public:
  explicit FetchSlot(ServerState* state) : state_(state) { Await(); }

  void OnEvent(bool ok) override {
    if (state_->closing) return;
    if (answering_ || !ok) return Await();
    answering_ = true;
    responder_->Finish(BufferOf(state_->bulk), grpc::Status::OK, this);
  }

 private:
  void Await() {
    answering_ = false;
    context_.emplace();
    responder_.emplace(&*context_);
    state_->service.RequestFetch(&*context_, &request_, &*responder_, state_->queue.get(),
                                 state_->queue.get(), this);
  }

  ServerState* const state_;
  std::optional<grpc::ServerContext> context_;
  std::optional<grpc::ServerAsyncResponseWriter<grpc::ByteBuffer>> responder_;
  grpc::ByteBuffer request_;
  bool answering_ = false;
};

class GrpcServer final : public ServerEnd {
 public:
  absl::Status Open(const WorkloadOptions& options) {
    const bool is_unix = options.path.kind() == PathKind::kShm;
    const std::string name = StrCat("unix-abstract:weft-grpc-", getpid());
    int port = 0;
    std::shared_ptr<grpc::ServerCredentials> credentials = grpc::InsecureServerCredentials();
    std::string roots;
    if (options.tls) {
      WEFT_ASSIGN_OR_RETURN(credentials, MakeTls(&roots));
    }
    grpc::ServerBuilder builder;
    builder.AddListeningPort(is_unix ? name : "127.0.0.1:0", credentials, &port);
    builder.SetMaxReceiveMessageSize(-1);
    builder.SetMaxSendMessageSize(-1);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kFrameBytes);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kFrameBytes);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_WRITE_BUFFER_SIZE, kFrameBytes);
    builder.AddChannelArgument(GRPC_ARG_MINIMAL_STACK, 1);
    builder.RegisterService(&state_.service);
    state_.queue = builder.AddCompletionQueue();
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) return absl::UnavailableError("gRPC: the server does not start");
    slots_.push_back(std::make_unique<TalkSlot>(&state_));
    for (int i = 0; i < kServerSlots; ++i) {
      slots_.push_back(std::make_unique<EchoSlot>(&state_));
      slots_.push_back(std::make_unique<FetchSlot>(&state_));
    }
    WEFT_RETURN_IF_ERROR(WriteLine(options.peer_fd, is_unix ? name : StrCat("127.0.0.1:", port)));
    return options.tls ? WriteLine(options.peer_fd, roots) : absl::OkStatus();
  }
  ~GrpcServer() override {
    state_.closing = true;
    if (server_ == nullptr) return;
    server_->Shutdown(std::chrono::system_clock::now());
    state_.queue->Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (state_.queue->Next(&tag, &ok)) {
    }
  }

  absl::Status Serve(const Cell& cell) override {
    state_.bulk = grpc::Slice(std::string(cell.bytes, 'x'));
    while (!std::exchange(state_.over, false)) Turn();
    return absl::OkStatus();
  }
  void Rest() override { Turn(); }

 private:
  void Turn() {
    void* tag = nullptr;
    bool ok = false;
    if (Next(*state_.queue, &tag, &ok)) static_cast<Slot*>(tag)->OnEvent(ok);
  }

  ServerState state_;
  std::unique_ptr<grpc::Server> server_;
  std::vector<std::unique_ptr<Slot>> slots_;
};

// --- client -------------------------------------------------------------------------------------

// One call at a time, again and again.
class ClientCall {
 public:
  virtual ~ClientCall() = default;
  virtual void Start() = 0;
  const grpc::Status& status() const { return status_; }

 protected:
  std::optional<grpc::ClientContext> context_;
  grpc::Status status_;
};

class EchoCall final : public ClientCall {
 public:
  EchoCall(GrpcPeer::Stub* stub, grpc::CompletionQueue* queue, const std::string& payload)
      : stub_(stub), queue_(queue) {
    request_.set_payload(payload);
  }
  void Start() override {
    context_.emplace();
    reader_ = stub_->PrepareAsyncEcho(&*context_, request_, queue_);
    reader_->StartCall();
    reader_->Finish(&reply_, &status_, static_cast<ClientCall*>(this));
  }

 private:
  GrpcPeer::Stub* const stub_;
  grpc::CompletionQueue* const queue_;
  std::unique_ptr<grpc::ClientAsyncResponseReader<GrpcPayload>> reader_;
  GrpcPayload request_;
  GrpcPayload reply_;
};

class FetchCall final : public ClientCall {
 public:
  FetchCall(grpc::GenericStub* stub, grpc::CompletionQueue* queue)
      : stub_(stub), queue_(queue), request_(BufferOf(grpc::Slice(std::string(64, 'x')))) {}
  void Start() override {
    context_.emplace();
    reader_ = stub_->PrepareUnaryCall(&*context_, kFetch, request_, queue_);
    reader_->StartCall();
    reader_->Finish(&reply_, &status_, static_cast<ClientCall*>(this));
  }

 private:
  grpc::GenericStub* const stub_;
  grpc::CompletionQueue* const queue_;
  std::unique_ptr<grpc::ClientAsyncResponseReader<grpc::ByteBuffer>> reader_;
  const grpc::ByteBuffer request_;
  grpc::ByteBuffer reply_;
};

// One stream, for one run.
class Talk {
 public:
  Talk(GrpcPeer::Stub* stub, grpc::CompletionQueue* queue, const Cell& cell)
      : queue_(queue), cell_(cell), stream_(stub->AsyncTalk(&context_, queue, &starting_)) {
    message_.set_payload(std::string(cell.bytes, 'x'));
    starting_ = true;
    while (starting_ && ok_) Take();
  }

  absl::StatusOr<Figures> Run(double seconds) {
    Figures figures;
    if (cell_.outstanding == 1) {
      figures = ThereAndBack(seconds);
    } else {
      figures.per_s = OneWay(seconds);
    }
    ok_ = true;
    writing_ = true;
    stream_->WritesDone(&writing_);
    while (writing_) Take();
    while (reading_) Take();  // ends with the stream
    grpc::Status status;
    bool finishing = true;
    stream_->Finish(&status, &finishing);
    while (finishing) Take();
    WEFT_RETURN_IF_ERROR(FromGrpc(status));
    return figures;
  }

 private:
  // Takes an event, if there is one. Its tag is the flag that says what is under way.
  void Take() {
    void* tag = nullptr;
    bool ok = false;
    if (!Next(*queue_, &tag, &ok)) return;
    *static_cast<bool*>(tag) = false;
    ok_ = ok_ && ok;
  }
  void Write(const GrpcTalk& message, bool leaves) {
    grpc::WriteOptions options;
    if (!leaves) options.set_buffer_hint();
    writing_ = true;
    stream_->Write(message, options, &writing_);
  }
  void Read() {
    reading_ = true;
    stream_->Read(&reply_, &reading_);
  }

  Figures ThereAndBack(double seconds) {
    LatencyHistogram latency;
    const RunClock run(seconds);
    uint64_t start_ns = Clock::Real().NowNs();
    while (ok_ && !(run.IsOver(start_ns) && latency.count() > 0)) {
      Write(message_, /*leaves=*/true);
      Read();
      while (ok_ && (writing_ || reading_)) Take();
      const uint64_t end_ns = Clock::Real().NowNs();
      if (run.IsCounted(start_ns)) latency.Record(end_ns - start_ns);
      start_ns = end_ns;
    }
    return FiguresOf(latency);
  }

  // gRPC takes one write at a time, and may put several into one packet.
  double OneWay(double seconds) {
    const uint32_t group = ConfirmEvery(cell_);
    GrpcTalk mode;
    mode.set_confirm_every(group);
    Write(mode, /*leaves=*/true);
    while (ok_ && writing_) Take();
    Read();
    RateCounter rate(seconds, cell_.outstanding);
    uint64_t outstanding = 0;
    uint64_t sent = 0;
    const auto turn = [&] {
      Take();
      if (!reading_ && ok_) {
        outstanding -= group;
        rate.Add(group);
        Read();
      }
    };
    while (ok_ && rate.Continue()) {
      if (!writing_ && outstanding < cell_.outstanding) {
        ++outstanding;
        Write(message_, /*leaves=*/++sent % group == 0);
      }
      turn();
    }
    const double per_second = rate.PerSecond();
    while (ok_ && (outstanding > 0 || writing_)) {
      if (!writing_ && sent % group != 0) {
        ++outstanding;
        Write(message_, /*leaves=*/++sent % group == 0);
      }
      turn();
    }
    return per_second;
  }

  grpc::CompletionQueue* const queue_;
  const Cell cell_;
  // What is under way.
  bool starting_ = false;
  bool writing_ = false;
  bool reading_ = false;
  bool ok_ = true;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientAsyncReaderWriter<GrpcTalk, GrpcTalk>> stream_;
  GrpcTalk message_;
  GrpcTalk reply_;
};

class GrpcClient final : public ClientEnd {
 public:
  absl::Status Open(const WorkloadOptions& options) {
    WEFT_ASSIGN_OR_RETURN(const std::string address, ReadLine(options.peer_fd));
    std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
    if (options.tls) {
      WEFT_ASSIGN_OR_RETURN(std::string roots, ReadLine(options.peer_fd));
      credentials = Trust(std::move(roots));
    }
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    arguments.SetMaxSendMessageSize(-1);
    arguments.SetCompressionAlgorithm(GRPC_COMPRESS_NONE);
    arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
    arguments.SetInt(GRPC_ARG_MINIMAL_STACK, 1);
    arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
    arguments.SetInt(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kFrameBytes);
    arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kFrameBytes);
    arguments.SetInt(GRPC_ARG_HTTP2_WRITE_BUFFER_SIZE, kFrameBytes);
    channel_ = grpc::CreateCustomChannel(address, credentials, arguments);
    stub_ = GrpcPeer::NewStub(channel_);
    generic_ = std::make_unique<grpc::GenericStub>(channel_);
    // The server answers while it rests, an event at a time: the connection alone is awaited here.
    const auto until = std::chrono::system_clock::now() + std::chrono::seconds(kConnectSeconds);
    if (channel_->WaitForConnected(until)) return absl::OkStatus();
    return absl::UnavailableError(StrCat("gRPC: no connection to ", address));
  }
  ~GrpcClient() override {
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  absl::StatusOr<Figures> Run(const Cell& cell, double seconds) override {
    WEFT_ASSIGN_OR_RETURN(const Figures figures, cell.pattern == Pattern::kStream
                                                     ? Talk(stub_.get(), &queue_, cell).Run(seconds)
                                                     : RunCalls(cell, seconds));
    EchoCall last(stub_.get(), &queue_, kEnd);
    last.Start();
    WEFT_RETURN_IF_ERROR(FromGrpc(Await()->status()));
    return figures;
  }

 private:
  absl::StatusOr<Figures> RunCalls(const Cell& cell, double seconds) {
    calls_.clear();
    for (uint32_t i = 0; i < cell.outstanding; ++i) calls_.push_back(MakeCall(cell));
    return cell.outstanding == 1 ? Timed(seconds) : Rate(seconds);
  }

  std::unique_ptr<ClientCall> MakeCall(const Cell& cell) {
    if (cell.pattern == Pattern::kBulk) return std::make_unique<FetchCall>(generic_.get(), &queue_);
    return std::make_unique<EchoCall>(stub_.get(), &queue_, std::string(cell.bytes, 'x'));
  }

  // The next call that has ended.
  ClientCall* Await() {
    void* tag = nullptr;
    bool ok = false;
    while (!Next(queue_, &tag, &ok)) {
    }
    return static_cast<ClientCall*>(tag);
  }

  absl::StatusOr<Figures> Timed(double seconds) {
    LatencyHistogram latency;
    const RunClock run(seconds);
    uint64_t now_ns = 0;
    while (!run.IsOver(now_ns) || latency.count() == 0) {
      const uint64_t start_ns = Clock::Real().NowNs();
      calls_[0]->Start();
      WEFT_RETURN_IF_ERROR(FromGrpc(Await()->status()));
      now_ns = Clock::Real().NowNs();
      if (run.IsCounted(start_ns)) latency.Record(now_ns - start_ns);
    }
    return FiguresOf(latency);
  }

  absl::StatusOr<Figures> Rate(double seconds) {
    RateCounter rate(seconds, calls_.size());
    for (const auto& call : calls_) call->Start();
    absl::Status status;
    size_t running = calls_.size();
    while (rate.Continue() && status.ok()) {
      ClientCall* const ended = Await();
      status = FromGrpc(ended->status());
      rate.Add(1);
      ended->Start();
    }
    for (; running > 0; --running) status.Update(FromGrpc(Await()->status()));
    WEFT_RETURN_IF_ERROR(status);
    Figures figures;
    figures.per_s = rate.PerSecond();
    return figures;
  }

  grpc::CompletionQueue queue_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<GrpcPeer::Stub> stub_;
  std::unique_ptr<grpc::GenericStub> generic_;
  std::vector<std::unique_ptr<ClientCall>> calls_;
};

}  // namespace

std::string WhyNotGrpc(const Cell& cell, const PerfPath& path) {
  if (path.kind() == PathKind::kVerbs) return "gRPC does not go over RDMA";
  if (cell.pattern == Pattern::kUnary || cell.pattern == Pattern::kStream ||
      cell.pattern == Pattern::kBulk) {
    return "";
  }
  if (cell.pattern == Pattern::kBulkChecked) return "gRPC has no checksum of its own";
  return "gRPC is measured by calls";
}

absl::StatusOr<std::unique_ptr<ClientEnd>> OpenGrpcClient(const WorkloadOptions& options) {
  auto client = std::make_unique<GrpcClient>();
  WEFT_RETURN_IF_ERROR(client->Open(options));
  return std::unique_ptr<ClientEnd>(std::move(client));
}

absl::StatusOr<std::unique_ptr<ServerEnd>> OpenGrpcServer(const WorkloadOptions& options) {
  auto server = std::make_unique<GrpcServer>();
  WEFT_RETURN_IF_ERROR(server->Open(options));
  return std::unique_ptr<ServerEnd>(std::move(server));
}

}  // namespace weft::bench
