// A whole server on the simulated network, and a client of it that keeps no rule, for a fuzzer.
//
// The bytes choose the hello, then event after event: frames of calls, streams, one-way messages,
// payloads, sessions and peers, mostly right, with a field here and there that is not; what
// handlers do with what they hold; time. They may also choose limits, a policy, handlers on an
// executor, records in a store, and that the server is shut down. An honest client makes a call at
// the end, which must be answered; and the server must have given everything back.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/strings.h"
#include "core/testing/fuzz_input.h"
#include "core/timer_wheel.h"
#include "rpc/operation/executor.h"
#include "rpc/server/policy_file.h"
#include "rpc/server/server.h"
#include "rpc/server/server_context.h"
#include "rpc/server/server_interceptor.h"
#include "rpc/testing/memory_store.h"
#include "rpc/testing/payload_service.h"
#include "rpc/testing/probe_service.h"
#include "rpc/testing/raw_hellos.h"
#include "rpc/testing/raw_peer.h"
#include "rpc/testing/signal_service.h"
#include "rpc/testing/stream_service.h"
#include "rpc/wire/completion_id.h"
#include "rpc/wire/extras.h"
#include "rpc/wire/peer_frame.h"
#include "rpc/wire/sessions.pb.h"
#include "rpc/wire/stream_frame.h"
#include "transport/engine.h"
#include "transport/sim/sim_network.h"

namespace weft::test {
namespace {

constexpr int kMostEvents = 120;
constexpr uint64_t kPatienceNs = 200 * kNsPerSec;  // virtual: bounds a hang
constexpr uint32_t kSlots = 4;                     // that the client asks for
// The services in the order in which they are added; forms with a fixed layout are behind them.
constexpr uint16_t kMethods = 7 + 5 + 5 + 5;
constexpr size_t kLentBytes = 4096;

using Talk = ServerReaderWriter<Data, Data>;

// Tasks wait until an event runs them; a few at a time.
class Queue final : public Executor {
 public:
  bool Run(Function<void()> task) override {
    if (tasks_.size() == 3) return false;
    tasks_.push_back(std::move(task));
    return true;
  }
  void RunAll() {
    while (!tasks_.empty()) {
      Function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      task();
    }
  }

 private:
  std::deque<Function<void()>> tasks_;
};

// Looks at all that a call has beside its request, and gives back some of it.
void Look(ServerContext& context) {
  WEFT_CHECK(!context.path().peer.empty());
  const Metadata& metadata = context.metadata();
  const std::string* const user = metadata.Find("user");
  if (user != nullptr) context.AddReplyMetadata("user", *user).IgnoreError();
  if (context.priority() != Priority::kNormal) context.SetReplyAttachment(context.attachment());
  context.OnCancel([] {});
}

class Watches final : public ServerInterceptor {
 public:
  absl::Status OnStart(IncomingCall& call) override {
    ++running;
    return call.method().empty() ? absl::InternalError("it has no name") : absl::OkStatus();
  }
  void OnEnd(IncomingCall&, const absl::Status&) override { --running; }
  int running = 0;
};

// Some methods are for all, some for nobody, and the rest for who proves who it is.
std::unique_ptr<PolicyFile> OpenPolicy() {
  constexpr std::string_view kRules =
      "allow anyone weft.test.Probe/Echo\n"
      "allow anyone weft.test.Probe/Hold\n"
      "allow anyone weft.test.Streams/*\n"
      "allow anyone weft.test.Signals/Hold\n"
      "deny anyone weft.test.Streams/Count\n"
      "allow anyone-authenticated *\n";
  static const int file = [&] {
    const int memory = ::memfd_create("policy", MFD_CLOEXEC);
    WEFT_CHECK(::write(memory, kRules.data(), kRules.size()) ==
               static_cast<ssize_t>(kRules.size()));
    return memory;
  }();
  return PolicyFile::Open(StrCat("/proc/self/fd/", file)).value();
}

class World {
 public:
  explicit World(FuzzInput input) : input_(input), payloads_(kLentBytes) {}

  void Run() {
    const uint8_t how = input_.U8();
    // (Among the values of `how` that meant nothing before there was more to choose.)
    more_ = how / 64 == 2 ? input_.U8() : 0;
    Serve(how);
    Dial(how);
    for (int i = 0; i < kMostEvents && input_.more(); ++i) Event();
    EndHandlers();
    End();
  }

 private:
  void Serve(uint8_t how) {
    ServerOptions options;
    options.max_request_bytes = 20'000;
    options.max_running_bytes = 60'000;
    options.max_unsent_reply_bytes = 70'000;
    options.max_record_bytes = 20'000;
    options.max_sessions = 4;
    options.max_outstanding_calls = 8;
    options.max_streams = 8;
    options.stream_window_messages = 4;
    options.stream_window_bytes = 2000;
    if ((how & 1) != 0) options.peer_id = "server";
    if ((more_ & 1) != 0) options.limits.adaptive = true;
    if ((more_ & 2) != 0) options.limits.per_client = 2;
    if ((more_ & 4) != 0) {
      options.limits.per_method = {{"weft.test.Probe/Hold", 1},
                                   {"weft.test.Streams/Talk", 1},
                                   {"weft.test.Signals/Hold", 1}};
    }
    if ((more_ & 8) != 0) {
      policy_ = OpenPolicy();
      options.authorizer = policy_.get();
    }
    if ((more_ & 16) != 0) options.executor = &executor_;
    if ((more_ & 32) != 0) options.completion_store = &store_;
    if ((more_ & 64) != 0) options.tenant_of = [](const PathInfo&) { return 7u; };
    if ((more_ & 128) != 0) {
      options.interceptors = {&watches_};
      probe_.look = Look;
      signals_.look = Look;
      streams_.look = Look;
    }
    server_ = Server::Create(network_.Node("server"), options).value();
    for (Service* service :
         std::initializer_list<Service*>{&probe_, &streams_, &signals_, &payloads_}) {
      WEFT_CHECK(server_->AddService(service).ok());
    }
    WEFT_CHECK(server_->Listen("sim:server").ok());
  }
  bool RunUntil(Function<bool()> done) { return network_.RunUntil(std::move(done), kPatienceNs); }

  void Dial(uint8_t how) {
    rpc::ClientHello hello = (how & 1) != 0 ? PeerDialingHello("raw", 77) : PeerCallingHello();
    hello.set_max_outstanding_calls(kSlots);
    hello.set_max_windows((how & 2) != 0 ? 3 : 0);
    hello.set_max_extras_bytes((how & 4) != 0 ? kMaxExtrasBytes : 0);
    hello.set_takes_goaway((how & 8) != 0);
    hello.set_takes_attachments((how & 16) != 0);
    hello.set_control_calls((how & 32) != 0 ? 2 : 0);
    std::string text = hello.SerializeAsString();
    if ((how & 192) == 192) {  // something in it is wrong
      text[input_.U8() % text.size()] ^= static_cast<char>(input_.U8());
    }
    ConnectOptions options;
    options.hello = text;
    peer_.why = absl::OkStatus();
    WEFT_CHECK(CoreOf(network_.Node("raw"))
                   .transport()
                   .Connect("sim:server", options, &peer_handler())
                   .ok());
    WEFT_CHECK(RunUntil([&] { return peer_.connection != nullptr || !peer_.why.ok(); }));
    if (peer_.connection == nullptr) return;
    auto region =
        peer_.connection->memory().Register(MutableByteSpan(lent_), Access::kRemoteReadWrite);
    if (region.ok()) region_ = *std::move(region);
  }

  // The raw peer, without a test's assertions.
  struct Peer final : ConnectionHandler {
    void OnOpen(Connection& opened) override { connection = &opened; }
    void OnMessage(Connection&, ByteSpan message) override {
      WEFT_CHECK(message.size() >= kCallHeaderBytes);
      ++received;
      // The session that it was given, if this is one.
      rpc::SessionReply reply;
      const ByteSpan body = message.subspan(kCallHeaderBytes);
      if (reply.ParseFromArray(body.data(), static_cast<int>(body.size())) && reply.high() != 0) {
        session = {reply.high(), reply.low()};
      }
    }
    void OnClosed(Connection&, const absl::Status& status) override {
      connection = nullptr;
      why = status;
    }
    Connection* connection = nullptr;
    absl::Status why;
    uint64_t received = 0;
    SessionId session;
  };
  ConnectionHandler& peer_handler() { return peer_; }

  void Send(const Bytes& frame) {
    if (peer_.connection == nullptr) return;
    const MessageSpace space = peer_.connection->Append(frame.size());
    if (space.data == nullptr) return network_.Settle();  // no room
    if (!frame.empty()) std::memcpy(space.data, frame.data(), frame.size());
  }

  // --- frames -----------------------------------------------------------------------------------

  // Of a call, or a stream: mostly the next generation of one of the slots.
  CallId NewId(std::array<uint32_t, kSlots>* generations) {
    const uint8_t how = input_.U8();
    const uint32_t slot = how % kSlots;
    if (how >= 248) return {how % 16u, input_.U8()};
    if (how >= 244) return {slot, (*generations)[slot]};  // it is no new one
    return {slot, ++(*generations)[slot]};
  }
  CallId OldId(const std::array<uint32_t, kSlots>& generations) {
    const uint8_t how = input_.U8();
    const uint32_t slot = how % kSlots;
    if (how >= 248) return {how % 16u, input_.U8()};
    if (how >= 244) return {slot, generations[slot] + 1};  // of one that is still to come
    return {slot, generations[slot] - (how >= 240 ? 1 : 0)};
  }
  std::string Body() {
    const uint8_t how = input_.U8();
    if (how < 160) return MakeData(how, how % 8 == 7 ? 9000 : how * 4u).SerializeAsString();
    if (how < 200) {  // of Payloads: a payload in a window
      Parcel parcel;
      parcel.mutable_data()->set_window(input_.Below(4));
      parcel.mutable_data()->set_length(input_.Number());
      return parcel.SerializeAsString();
    }
    if (how < 220) {
      Part part;
      part.set_offset(input_.Number());
      part.set_length(input_.Number());
      part.mutable_data()->set_window(input_.Below(4));
      part.mutable_data()->set_length(input_.Number());
      return part.SerializeAsString();
    }
    if (how < 230) {
      Failure failure;
      failure.set_code(static_cast<int>(input_.Below(20)));
      failure.set_text("as the client wants it");
      return failure.SerializeAsString();
    }
    if (how < 240) {
      Size size;
      size.set_bytes(input_.Below(8) == 7 ? input_.Number() % 100'000 : input_.U8());
      return size.SerializeAsString();
    }
    return input_.Text(input_.U8());
  }
  std::string Extras() {
    Metadata metadata;
    for (uint32_t entries = input_.Below(3); entries > 0; --entries) {
      metadata.Add(input_.Bit() ? "user" : "trace-bin", std::string(input_.U8(), 'm'))
          .IgnoreError();
    }
    if (input_.Below(4) > 0) {
      std::string extras = EncodeExtras(metadata);
      if (input_.Below(16) == 15) extras += input_.Text(8);
      return extras;
    }
    OnceAttempt attempt;
    attempt.id.session = input_.Below(8) < 7 ? peer_.session : SessionId{1, 2};
    attempt.id.sequence = input_.Below(6);
    attempt.first_unanswered = input_.Below(4);
    return EncodeExtras(metadata, absl::OkStatus(), &attempt);
  }
  void AppendWindows(uint32_t count, Bytes* frame) {
    for (; count > 0; --count) {
      Window window;
      const uint8_t how = input_.U8();
      window.span = region_ != nullptr && how < 240 ? region_->remote() : RemoteSpan{7, 0, 64};
      if (how % 8 == 7) window.span.offset += input_.Number();
      if (how % 8 >= 6) window.span.length = input_.Number();
      window.rights = how % 2 == 0 ? kMayRead : kMayWrite;
      if (how >= 250) window.rights = input_.U8();
      frame->resize(frame->size() + kWindowBytes);
      EncodeWindow(window, frame->data() + frame->size() - kWindowBytes);
    }
  }
  // What stands behind the header of a request, an open or a one-way message. Its bits.
  uint16_t AppendBeside(const std::string& body, uint8_t how, Bytes* frame) {
    uint16_t bits = 0;
    std::string extras = (how & 1) != 0 ? Extras() : std::string();
    absl::Cord attachment((how & 2) != 0 ? std::string(1 + input_.U8(), 'a') : std::string());
    const Beside beside = {extras, attachment.empty() ? nullptr : &attachment};
    bits = beside.bits();
    const size_t at = frame->size();
    frame->resize(at + beside.bytes_before() + body.size() + beside.bytes_behind());
    std::byte* const message = beside.Encode(body.size(), frame->data() + at);
    if (!body.empty()) std::memcpy(message, body.data(), body.size());
    return bits;
  }
  uint16_t Method() {
    const uint8_t how = input_.U8();
    if (how < 232) return how % kMethods;
    return how < 244 ? kSessionMethod : static_cast<uint16_t>(input_.U16());
  }

  Bytes Request() {
    Bytes frame(kCallHeaderBytes);
    const CallId id = NewId(&calls_);
    const uint8_t how = input_.U8();
    const uint32_t windows = (how & 4) != 0 ? input_.Below(5) : 0;
    const uint16_t method = Method();
    AppendWindows(windows, &frame);
    std::string body = Body();
    if (method == kSessionMethod) body = SessionRequest();
    const uint16_t bits = AppendBeside(body, how, &frame);
    const auto priority = static_cast<Priority>((how >> 3) % 3);
    EncodeRequest({id, method, how >= 224 ? input_.U32() % 5000 : 0}, frame.data(),
                  RequestKind(windows, bits, priority));
    return frame;
  }
  std::string SessionRequest() {
    rpc::SessionRequest request;
    if (input_.Bit()) {
      request.set_high(peer_.session.high);
      request.set_low(peer_.session.low);
    }
    return request.SerializeAsString();
  }
  Bytes OneWay() {
    Bytes frame(kCallHeaderBytes);
    const uint8_t how = input_.U8();
    const auto method = static_cast<uint16_t>(how < 240 ? 12 + how % 5 : Method());
    const uint16_t bits = AppendBeside(Body(), how, &frame);
    EncodeOneWay(method, how >= 200 ? 100 : 0, frame.data(), OneWayKind(bits));
    return frame;
  }
  Bytes OpenStream() {
    const CallId id = NewId(&opens_);
    const uint8_t how = input_.U8();
    const uint32_t windows = (how & 4) != 0 ? input_.Below(4) : 0;
    const std::string extras = (how & 1) != 0 ? Extras() : std::string();
    constexpr uint16_t kStreamMethods[] = {7, 7, 7, 8, 9, 10, 21, 21};
    const uint16_t method = how < 240 ? kStreamMethods[how / 8 % 8] : Method();
    Bytes frame(OpenFrameBytes(windows, extras.size()));
    EncodeOpen({id, method, (how & 2) != 0 && how > 128 ? 300u : 0u, how == 255, AsBytes(extras),
                static_cast<Priority>(how % 3), windows},
               frame.data());
    Bytes lent;
    AppendWindows(windows, &lent);
    std::copy(lent.begin(), lent.end(), frame.begin() + kCallHeaderBytes);
    numbers_[id.slot % kSlots] = 0;
    return frame;
  }
  Bytes StreamData() {
    const CallId id = OldId(opens_);
    const uint8_t how = input_.U8();
    uint32_t& number = numbers_[id.slot % kSlots];
    const bool nothing = how % 16 == 15;
    const std::string body = nothing ? "" : Body();
    const auto flags = static_cast<uint16_t>(nothing          ? 3
                                             : how % 16 == 14 ? 1
                                             : how >= 253     ? how
                                                              : 0);
    const uint32_t shown = how >= 240 ? number + how % 4 : nothing ? number : number++;
    Bytes frame(kCallHeaderBytes + body.size());
    EncodeData(id, flags, shown, /*to_opener=*/how == 252, frame.data());
    if (!body.empty()) std::memcpy(frame.data() + kCallHeaderBytes, body.data(), body.size());
    return frame;
  }
  Bytes StreamCredit() {
    Bytes frame(kCallHeaderBytes);
    const CallId id = OldId(opens_);
    const uint8_t how = input_.U8();
    EncodeCredit({id, static_cast<uint16_t>(how % 8), how >= 128 ? input_.U16() : how * 4u},
                 /*to_opener=*/false, frame.data());
    return frame;
  }
  Bytes OfPeer() {
    const uint8_t how = input_.U8();
    Bytes frame(kCallHeaderBytes);
    if (how % 4 == 0) {
      const std::string hello = PeerCallingHello().SerializeAsString();
      frame.resize(kCallHeaderBytes + hello.size());
      std::memcpy(frame.data() + kCallHeaderBytes, hello.data(), hello.size());
      EncodePeerFrame(PeerFrameKind::kBegin, frame.data());
    } else if (how % 4 == 1) {
      EncodeGoaway(how / 4, frame.data());
    } else {
      frame.resize(how >= 128 ? 9000 : kCallHeaderBytes);
      EncodePeerFrame(how % 4 == 2 ? PeerFrameKind::kEnd : PeerFrameKind::kEnded, frame.data());
    }
    if (how % 4 == 2) calls_ = opens_ = {};
    return frame;
  }
  Bytes Notice() {
    Bytes frame(kCallHeaderBytes);
    const uint8_t how = input_.U8();
    if (how % 2 == 0) {
      EncodeCancel(OldId(calls_), frame.data());
    } else {
      EncodeStreamCancel(OldId(opens_), frame.data());
    }
    return frame;
  }
  // As a server would send it: to a peer that calls, or to nobody.
  Bytes OfServer() {
    const uint8_t how = input_.U8();
    const CallId id = {how % 4u, input_.U8()};
    if (how < 128) return Reply(id, how % 18, how % 3 == 0 ? 0 : 4, how % 2 == 0 ? "" : "text");
    Bytes frame(how < 192 ? EndFrameBytes(0, 0) : kCallHeaderBytes);
    if (how < 192) {
      EncodeEnd({id, static_cast<uint16_t>(how % 17), false, how % 3u}, frame.data());
    } else {
      EncodeStreamRelease(id, frame.data());
    }
    return frame;
  }
  Bytes AnyFrame() {
    Bytes frame;
    const uint8_t kind = input_.Below(16);
    if (kind < 5) {
      frame = Request();
    } else if (kind < 7) {
      frame = OpenStream();
    } else if (kind < 10) {
      frame = StreamData();
    } else if (kind == 10) {
      frame = StreamCredit();
    } else if (kind == 11) {
      frame = OneWay();
    } else if (kind == 12) {
      frame = Notice();
    } else if (kind == 13) {
      frame = OfPeer();
    } else if (kind == 14) {
      frame = OfServer();
    } else {
      const ByteSpan bytes = input_.Bytes(input_.U8());
      frame.assign(bytes.begin(), bytes.end());
    }
    const uint8_t how = input_.U8();
    if (how >= 252 && !frame.empty()) {
      frame[input_.U8() % frame.size()] ^= static_cast<std::byte>(input_.U8());
    } else if (how >= 248) {
      frame.resize(std::min<size_t>(frame.size(), input_.U8()));
    }
    return frame;
  }

  // --- events -----------------------------------------------------------------------------------

  void Event() {
    const uint8_t event = input_.U8();
    if (event % 4 != 0) return Send(AnyFrame());
    switch (event / 4 % 16) {
      case 0:
        if (!probe_.held.empty()) probe_.Release();
        return;
      case 1:
        if (!signals_.held.empty()) signals_.Release();
        return;
      case 2:
        return TakeTalks();
      case 3:
        return Read();
      case 4:
        return Write();
      case 5:
        if (!talks_.empty()) Finish(talks_[input_.U8() % talks_.size()].get());
        return;
      case 6:
        if (!payloads_.held.empty()) HandlePayload();
        return;
      case 7:
        payloads_.carried.clear();
        return;
      case 8:
        network_.RunFor(uint64_t{input_.U8()} * kNsPerMs);
        return;
      case 9:
        if (event > 200 && peer_.connection != nullptr)
          peer_.connection->Close("the client's wish");
        return;
      case 10:
        if (event > 200) network_.StopAnswering("raw");
        return;
      case 11:  // what is lent is taken away
        if (event > 128) region_.reset();
        return;
      case 12:
        executor_.RunAll();
        return network_.Settle();
      case 13:
        if (more_ == 0 || event < 128) return network_.Settle();
        return ShutDown();
      default:
        network_.Settle();
        network_.CheckInvariants();
    }
  }

  // Shutdown() drives the network while it waits for handlers, which end by a timer.
  class HandlersEnd final : public Timer {
   public:
    HandlersEnd(World& world, EngineCore& engine) : world_(world), engine_(engine) { Arm(); }
    ~HandlersEnd() override { engine_.timers().Cancel(this); }

   private:
    void Arm() { engine_.timers().Schedule(this, engine_.clock().NowNs() + 20 * kNsPerMs); }
    void OnTimer() override {
      world_.LetHandlersEnd();
      Arm();
    }
    World& world_;
    EngineCore& engine_;
  };
  void ShutDown() {
    is_shut_ = true;
    const HandlersEnd end(*this, CoreOf(network_.Node("server")));
    server_->Shutdown(uint64_t{input_.U8()} * 1000);
  }

  struct Talking {
    std::optional<Talk> stream;
    Data in;
    Data out;
    bool reads = false;
    bool writes = false;
  };
  void TakeTalks() {
    while (!streams_.talks.empty()) {
      auto talk = std::make_shared<Talking>();
      talk->stream.emplace(std::move(streams_.talks.front()));
      streams_.talks.pop_front();
      talks_.push_back(std::move(talk));
    }
  }
  void Read() {
    if (talks_.empty()) return;
    const std::shared_ptr<Talking> talk = talks_[input_.U8() % talks_.size()];
    if (!talk->stream || talk->reads) return;
    talk->reads = true;
    talk->stream->Read(&talk->in, [talk](bool) { talk->reads = false; });
  }
  void Write() {
    if (talks_.empty()) return;
    const uint8_t how = input_.U8();
    const std::shared_ptr<Talking> talk = talks_[how % talks_.size()];
    if (!talk->stream || talk->writes) return;
    talk->writes = true;
    talk->out = MakeData(1, how >= 240 ? 9000 : how * 2u);
    talk->stream->Write(talk->out, [talk](bool) { talk->writes = false; });
  }
  static void Finish(Talking* talk) {
    if (!talk->stream) return;
    Talk stream = std::move(*talk->stream);
    talk->stream.reset();
    stream.Finish(absl::OkStatus());
  }
  void HandlePayload() {
    auto call = std::make_shared<PayloadService::HeldCall>(std::move(payloads_.held.front()));
    payloads_.held.pop_front();
    const uint64_t length = std::min<uint64_t>(call->request().data().length(), kLentBytes);
    auto ended = [call](absl::Status status) mutable {
      PayloadService::HeldCall over = std::move(*call);
      over.Finish(std::move(status));
    };
    call->context().bulk().Fetch(call->request().data(), payloads_.memory().slice(0, length),
                                 std::move(ended));
  }

  // --- the end ----------------------------------------------------------------------------------

  void EndHandlers() {
    executor_.RunAll();
    network_.Settle();
    LetHandlersEnd();
  }
  void LetHandlersEnd() {
    executor_.RunAll();
    TakeTalks();
    for (auto& talk : talks_) Finish(talk.get());
    while (!probe_.held.empty()) probe_.Release();
    while (!signals_.held.empty()) signals_.Release();
    payloads_.held.clear();
    payloads_.carried.clear();
  }
  void End() {
    if (!is_shut_) HonestCall();
    if (peer_.connection != nullptr) peer_.connection->Close("done");
    WEFT_CHECK(RunUntil([&] {
      EndHandlers();  // what came last
      return server_->stats().connections == 0 && server_->stats().running == 0;
    }));
    const ServerStats stats = server_->stats();
    WEFT_CHECK(stats.running_bytes == 0 && stats.unsent_reply_bytes == 0);
    for (const auto& talk : talks_) WEFT_CHECK(!talk->reads && !talk->writes);
    WEFT_CHECK(watches_.running == 0);
    WEFT_CHECK(payloads_.memory().CanariesLive());
    network_.CheckInvariants();
    region_.reset();
    server_.reset();
  }
  // Somebody else, who keeps the rules.
  void HonestCall() {
    Peer honest;
    ConnectOptions options;
    options.hello = PeerCallingHello().SerializeAsString();
    WEFT_CHECK(
        CoreOf(network_.Node("honest")).transport().Connect("sim:server", options, &honest).ok());
    WEFT_CHECK(RunUntil([&] { return honest.connection != nullptr; }));
    const Bytes request = test::Request({0, 1}, 0, MakeData(1, 10).SerializeAsString());
    const MessageSpace space = honest.connection->Append(request.size());
    WEFT_CHECK(space.data != nullptr);
    std::memcpy(space.data, request.data(), request.size());
    WEFT_CHECK(RunUntil([&] {
      executor_.RunAll();
      return honest.received == 1;
    }));
    WEFT_CHECK(probe_.echoes > 0 && honest.why.ok());
    honest.connection->Close("done");
    WEFT_CHECK(RunUntil([&] { return honest.connection == nullptr; }));
  }

  FuzzInput input_;
  uint8_t more_ = 0;  // what else the server has
  bool is_shut_ = false;
  std::vector<std::byte> lent_ = std::vector<std::byte>(kLentBytes);
  Peer peer_;
  std::vector<std::shared_ptr<Talking>> talks_;
  SimNetwork network_{/*seed=*/1};
  Queue executor_;
  std::unique_ptr<PolicyFile> policy_;
  MemoryStore store_;
  Watches watches_;
  ProbeService probe_;
  StreamService streams_;
  SignalService signals_;
  PayloadService payloads_;
  std::unique_ptr<Region> region_;
  std::unique_ptr<Server> server_;
  std::array<uint32_t, kSlots> calls_ = {};
  std::array<uint32_t, kSlots> opens_ = {};
  std::array<uint32_t, kSlots> numbers_ = {};
};

}  // namespace
}  // namespace weft::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  weft::test::World(weft::FuzzInput(data, size)).Run();
  return 0;
}
