#include "rpc/client/channel.h"

#include <google/protobuf/message_lite.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/fork_guard.h"
#include "core/inline.h"
#include "core/random.h"
#include "core/status.h"
#include "core/strings.h"
#include "rpc/client/balancer.h"
#include "rpc/client/bulk_call.h"
#include "rpc/client/call_context.h"
#include "rpc/client/channel_lanes.h"
#include "rpc/client/channel_parts.h"
#include "rpc/client/client_connection.h"
#include "rpc/client/client_steps.h"
#include "rpc/layout/method_layouts.h"
#include "rpc/operation/callback_operations.h"
#include "rpc/operation/on_engine.h"
#include "rpc/wire/status_text.h"
#include "rpc/wire/stream_frame.h"
#include "weft/status.h"

namespace weft {
namespace {

absl::Status Bounded(const char* name, uint64_t value, uint64_t least, uint64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat("ChannelOptions::", name, " is ", value, "; ", least, " to ", most, " are allowed"));
}

constexpr uint64_t kLongestBackoffUs = 3600 * uint64_t{1'000'000};  // an hour: more is a mistake

absl::Status CheckRetryOptions(const RetryOptions& retry) {
  // Fewer tokens permit nothing, for more than half of them must be left. The most are gRPC's.
  constexpr uint32_t kFewestTokens = 3;
  constexpr uint32_t kMostTokens = 1000;
  constexpr uint32_t kMostRefill = 1'000'000;  // a thousand tokens: all there can be
  WEFT_RETURN_IF_ERROR(Bounded("retry.max_attempts", retry.max_attempts, 1, kMaxAttempts));
  WEFT_RETURN_IF_ERROR(Bounded("retry.max_backoff_us", retry.max_backoff_us, 1, kLongestBackoffUs));
  WEFT_RETURN_IF_ERROR(
      Bounded("retry.initial_backoff_us", retry.initial_backoff_us, 1, retry.max_backoff_us));
  WEFT_RETURN_IF_ERROR(
      Bounded("retry.budget_tokens", retry.budget_tokens, kFewestTokens, kMostTokens));
  WEFT_RETURN_IF_ERROR(
      Bounded("retry.refill_millitokens", retry.refill_millitokens, 1, kMostRefill));
  if (retry.exactly_once && retry.max_attempts == 1) {
    return absl::InvalidArgumentError(
        "ChannelOptions::retry.exactly_once is set; retry.max_attempts is 1, and 2 to 4 are "
        "allowed then: a call that is sent once runs at most once");
  }
  // A hedge is an attempt.
  return Bounded("retry.hedge_after_us", retry.hedge_after_us, 0,
                 retry.max_attempts > 1 ? kLongestBackoffUs : 0);
}

// ChannelOptions::engines is 1 to `most`.
absl::Status CheckEngines(uint32_t engines, uint32_t most) {
  if (engines >= 1 && engines <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat("ChannelOptions::engines is ", engines, "; 1 to ", kMaxEngines,
             " are allowed for Channel::Open(address) and OpenBalanced(target), which make them, "
             "and 1 where the engines are given, or there is a peer"));
}

absl::Status CheckEngines(const internal::ChannelParts& parts) {
  const std::string_view function = parts.make_source ? "OpenBalanced" : "Channel::Open";
  const std::vector<Engine*>& engines = parts.engines;
  if (engines.empty() || engines.size() > kMaxEngines) {
    return absl::InvalidArgumentError(
        StrCat(function, " on ", engines.size(), " engines; 1 to ", kMaxEngines, " are allowed"));
  }
  for (auto engine = engines.begin(); engine != engines.end(); ++engine) {
    if (*engine != nullptr && std::find(engines.begin(), engine, *engine) == engine) continue;
    return absl::InvalidArgumentError(
        StrCat(function, " on engines, of which number ", engine - engines.begin(),
               *engine == nullptr ? " is null" : " is there before", "; each is another one"));
  }
  return absl::OkStatus();
}

absl::Status CheckOptions(const ChannelOptions& options) {
  constexpr uint32_t kMostQueued = 65536;  // calls: a second's work of a server of 15 us each
  WEFT_RETURN_IF_ERROR(
      Bounded("max_outstanding_calls", options.max_outstanding_calls, 1, kMaxOutstandingCalls));
  WEFT_RETURN_IF_ERROR(CheckEngines(options.engines, 1));
  WEFT_RETURN_IF_ERROR(Bounded("interceptors", options.interceptors.size(), 0, kMaxInterceptors));
  WEFT_RETURN_IF_ERROR(Bounded("max_queued_calls", options.max_queued_calls, 0, kMostQueued));
  WEFT_RETURN_IF_ERROR(CheckStreamOptions("ChannelOptions", options.max_streams,
                                          options.stream_window_messages,
                                          options.stream_window_bytes));
  WEFT_RETURN_IF_ERROR(CheckRetryOptions(options.retry));
  WEFT_RETURN_IF_ERROR(Bounded("max_backoff_us", options.max_backoff_us, 1, kLongestBackoffUs));
  return Bounded("min_backoff_us", options.min_backoff_us, 1, options.max_backoff_us);
}

WEFT_COLD absl::Status IncompleteError(const google::protobuf::MessageLite& request) {
  const std::string text =
      StrCat("the request lacks required fields of ", std::string(request.GetTypeName()), ": ",
             request.InitializationErrorString(), " (not sent)");
  return WithDelivery(absl::InvalidArgumentError(text), Delivery::kNotSent);
}

WEFT_COLD absl::Status CalledInTurn() {
  return WithDelivery(
      absl::FailedPreconditionError("a blocking call inside a callback of its own engine would "
                                    "wait for itself: use the form with a callback"),
      Delivery::kNotSent);
}

// The call has a loan or a context.
bool HasMore(const CallOptions& options) {
  return options.bulk != nullptr || options.context != nullptr ||
         options.priority != Priority::kNormal;
}

// The end of a call that Begin() has begun, and that is not started.
WEFT_COLD void NotStarted(const ClientCall& call, const CallOptions& options,
                          const absl::Status& why) {
  if (call.loan != nullptr) options.bulk->NotStarted();
  if (call.context != nullptr) call.context->Reset(why);
}

std::string_view RecordOf(const LayoutCall& bodies) {
  return {static_cast<const char*>(bodies.request_record), bodies.layouts->request.type->bytes};
}

// --- bodies: what a call sends, and where its reply goes ----------------------------------------

// A call of protobuf messages.
struct MessageCall {
  const google::protobuf::MessageLite& request;
  google::protobuf::MessageLite* reply;
};

// A one-way message: its bodies have no reply.
struct OneWayCall {
  const LayoutCall& bodies;
};

WEFT_INLINE void SetReply(ClientCall& call, const MessageCall& bodies) {
  call.reply.message = bodies.reply;
}

WEFT_INLINE void SetReply(ClientCall& call, const LayoutCall& bodies) {
  call.reply = bodies.reply;
  call.layouts = bodies.layouts;
  call.reply_converted = false;
}

WEFT_INLINE void SetReply(ClientCall& call, const OneWayCall& bodies) {
  SetReply(call, bodies.bodies);
}

// A blocking call on an engine that somebody else may drive, or nobody: the caller goes on at the
// deadline, and what the engine's thread touches is here, until the last of both is done with it.
struct UndrivenCall {
  enum Step : uint8_t { kPosted = 1, kStarted = 2, kGivenUp = 3 };

  std::atomic<Step> step{kPosted};  // kPosted -> kStarted: the engine; -> kGivenUp: the caller
  Waiter waiter;
  absl::Status status;
  std::unique_ptr<google::protobuf::MessageLite> reply;  // one of the two
  std::vector<std::max_align_t> reply_record;
  std::shared_ptr<CallContext> context;  // null: it has none
};

// The bodies of `bodies`, with a reply of the call's own.
MessageCall WithOwnReply(const MessageCall& bodies, UndrivenCall& call) {
  call.reply.reset(bodies.reply->New());
  return {bodies.request, call.reply.get()};
}
LayoutCall WithOwnReply(const LayoutCall& bodies, UndrivenCall& call) {
  LayoutCall own = bodies;
  if (const LayoutType* const type = bodies.layouts->reply.type; type != nullptr) {
    call.reply_record.resize(type->bytes / sizeof(std::max_align_t) + 1);
    own.reply.record = call.reply_record.data();
  } else {
    call.reply.reset(bodies.reply.message->New());
    own.reply.message = call.reply.get();
  }
  return own;
}
OneWayCall WithOwnReply(const OneWayCall& bodies, UndrivenCall&) { return bodies; }

void TakeReply(UndrivenCall& call, const MessageCall& bodies) {
  bodies.reply->Clear();
  bodies.reply->CheckTypeAndMergeFrom(*call.reply);
}
void TakeReply(UndrivenCall& call, const LayoutCall& bodies) {
  const LayoutType* const type = bodies.layouts->reply.type;
  if (type == nullptr) return TakeReply(call, MessageCall{*call.reply, bodies.reply.message});
  std::memcpy(bodies.reply.record, call.reply_record.data(), type->bytes);
}
void TakeReply(UndrivenCall&, const OneWayCall&) {}

absl::Status UndrivenError(const std::string& address, uint64_t timeout_us, bool started) {
  return WithDelivery(
      absl::DeadlineExceededError(StrCat(
          "no reply from ", address, " within ", DurationText(timeout_us),
          started ? ": nobody drives the engine (the request may have been sent, and may have run)"
                  : ": nobody drives the engine (not sent, safe to retry)")),
      started ? Delivery::kMayHaveRun : Delivery::kNotSent);
}

// The way of most calls. False: nothing has happened; Begin() has the call.
WEFT_INLINE bool SendAtOnce(ClientCalls& calls, ClientCall& call, uint32_t method,
                            const MessageCall& bodies) {
  return bodies.request.IsInitialized() && calls.SendAtOnce(call, method, bodies.request);
}

WEFT_INLINE bool SendAtOnce(ClientCalls& calls, ClientCall& call, uint32_t form,
                            const LayoutCall& bodies) {
  if (bodies.request == nullptr) return calls.SendAtOnce(call, form, RecordOf(bodies));
  return bodies.request->IsInitialized() && calls.SendAtOnce(call, form, *bodies.request);
}

WEFT_INLINE bool SendAtOnce(ClientCalls&, ClientCall&, uint32_t, const OneWayCall&) {
  return false;  // what can be sent at once is so before there is a call
}

// Fails what could never be sent.
absl::Status SetRequest(ClientCall& call, const MessageCall& bodies) {
  if (!bodies.request.IsInitialized()) return IncompleteError(bodies.request);
  call.request = &bodies.request;
  return absl::OkStatus();
}

absl::Status SetRequest(ClientCall& call, const LayoutCall& bodies) {
  if (bodies.request != nullptr && !bodies.request->IsInitialized()) {
    return IncompleteError(*bodies.request);
  }
  call.request = bodies.request;
  if (bodies.request == nullptr) call.encoded = RecordOf(bodies);
  return absl::OkStatus();
}

absl::Status SetRequest(ClientCall& call, const OneWayCall& bodies) {
  return SetRequest(call, bodies.bodies);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Channel>> Channel::Open(Engine& engine, const std::string& address,
                                                       const ChannelOptions& options) {
  return Open(std::vector<Engine*>{&engine}, address, options);
}

absl::StatusOr<std::unique_ptr<Channel>> Channel::Open(const std::vector<Engine*>& engines,
                                                       const std::string& address,
                                                       const ChannelOptions& options) {
  return internal::MakeChannel({.engines = engines, .address = address, .options = options});
}

absl::StatusOr<std::unique_ptr<Channel>> internal::MakeChannel(ChannelParts parts) {
  const bool has_own = static_cast<bool>(parts.make_engine);
  WEFT_RETURN_IF_ERROR(has_own ? CheckEngines(parts.options.engines, kMaxEngines)
                               : CheckEngines(parts));
  const size_t count = has_own ? parts.options.engines : parts.engines.size();
  if (has_own) parts.options.engines = 1;  // of each lane
  const auto states = count > 1 ? std::make_shared<LaneStates>() : nullptr;
  // Of a long list of servers all lanes take the same part: then a key has one server.
  if (count > 1 && !parts.balancing.client_number) {
    parts.balancing.client_number = static_cast<uint32_t>(SecureRandom64());
  }
  std::vector<LaneParts> lanes;
  while (lanes.size() < count) {
    std::unique_ptr<AddressSource> source;
    if (parts.make_source) {
      WEFT_ASSIGN_OR_RETURN(source, parts.make_source());
    }
    std::unique_ptr<Engine> own_engine;
    if (has_own) {
      WEFT_ASSIGN_OR_RETURN(own_engine, parts.make_engine());
    }
    const auto number = static_cast<uint32_t>(lanes.size());
    EngineCore& engine = CoreOf(has_own ? *own_engine : *parts.engines[number]);
    lanes.push_back({.own_engine = std::move(own_engine),
                     .engine = engine,
                     .address = parts.address,
                     .options = parts.options,
                     .session = parts.session,
                     .source = std::move(source),
                     .balancing = parts.balancing,
                     .lanes = states,
                     .number = number});
  }
  if (count == 1) return Channel::Make(std::move(lanes.front()));
  // In their order: a server whose engines have as many connections each gives the first lane to
  // its first engine, and so on; and where there are several cards each lane begins with another
  // one.
  std::vector<std::unique_ptr<Channel>> made;
  for (LaneParts& lane : lanes) {
    if (!made.empty()) lane.first_lane = made.front().get();
    WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Channel> channel, Channel::Make(std::move(lane)));
    made.push_back(std::move(channel));
  }
  return std::unique_ptr<Channel>(
      new Channel(std::make_unique<ChannelLanes>(std::move(made), states)));
}

absl::StatusOr<std::unique_ptr<Channel>> Channel::Make(internal::LaneParts parts) {
  WEFT_RETURN_IF_ERROR(CheckOptions(parts.options));
  LinkOptions& link = parts.options.link;
  if (link.server_engine == kSameEngine) link.server_engine = parts.number;
  link.first_port += parts.number;
  if (parts.source != nullptr) {
    WEFT_RETURN_IF_ERROR(CheckBalancing(parts.balancing, parts.options));
  }
  EngineCore& engine = parts.engine;
  if (engine.forked()) return EngineCore::ForkedError();
  if (parts.options.connect_at_once && engine.InTurn()) {
    return absl::FailedPreconditionError(
        "Channel::Open would wait inside a callback of its own engine: set "
        "ChannelOptions::connect_at_once to false");
  }
  std::unique_ptr<Channel> channel(new Channel(parts));
  ClientConnection& client = *channel->client_;
  if (parts.lanes != nullptr) client.JoinLanes(std::move(parts.lanes), parts.number);
  // Before there are calls to its servers, which share them as well.
  if (parts.first_lane != nullptr) {
    client.calls().ShareServices(parts.first_lane->client_->calls());
  }
  if (parts.session != nullptr) RunOnEngine(engine, [&] { client.JoinSession(); });
  if (parts.source != nullptr) {
    RunOnEngine(engine, [&] { client.Balance(std::move(parts.source), parts.balancing); });
  }
  if (parts.options.connect_at_once) WEFT_RETURN_IF_ERROR(channel->ConnectAtOnce());
  return channel;
}

Channel::Channel(internal::LaneParts& parts)
    : own_engine_(std::move(parts.own_engine)),
      engine_(parts.engine),
      client_(new ClientConnection(engine_, parts.address, parts.options, parts.session)),
      default_timeout_us_(parts.options.default_timeout_us),
      takes_long_way_(!parts.options.interceptors.empty() || parts.options.retry.max_attempts > 1 ||
                      parts.source != nullptr),
      address_(parts.address),
      buffers_(std::make_unique<BufferPool>(&engine_, parts.options.buffers)) {}

Channel::Channel(std::unique_ptr<ChannelLanes> lanes)
    : engine_(lanes->all().front()->engine_),
      client_(lanes->all().front()->client_),
      default_timeout_us_(lanes->all().front()->default_timeout_us_),
      takes_long_way_(lanes->all().front()->takes_long_way_),
      lanes_(std::move(lanes)),
      address_(lanes_->all().front()->address_) {}

// The front of several lanes has nothing of its own: each function hands itself to a lane first.

Channel& Channel::OfThisThread() { return lanes_->OfThisThread(); }

Channel& Channel::ForCall(const CallOptions& options, bool blocks) {
  return lanes_->ForCall(options, blocks);
}

// All lanes end before one is destroyed: callbacks that run meanwhile may use the channel.
Channel::~Channel() {
  if (lanes_ == nullptr) {
    Shutdown();
  } else {
    for (const std::unique_ptr<Channel>& lane : lanes_->all()) lane->Shutdown();
  }
}

void Channel::Shutdown() {
  if (std::exchange(shut_down_, true)) return;
  if (engine_.forked()) {
    LeaveBehind(static_cast<ClientConnection*>(client_));
    return;
  }
  WEFT_CHECK(!engine_.InTurn());  // User: not destroyed inside a callback
  // Behind everything that was posted: those calls get their callbacks.
  RunOnEngine(engine_, [this] { client_->Shutdown(); });
}

absl::Status Channel::ConnectAtOnce() {
  absl::Status connected;
  Waiter waiter;
  RunOnEngine(engine_, [&] {
    client_->Connect([&](absl::Status status) {
      connected = std::move(status);
      engine_.Finish(waiter);
    });
  });
  engine_.Wait(waiter);
  return connected;
}

absl::StatusOr<std::unique_ptr<Buffer>> Channel::AllocateBuffer(size_t bytes) {
  if (lanes_ != nullptr) return OfThisThread().AllocateBuffer(bytes);
  return buffers_->Allocate(bytes);
}

absl::StatusOr<PathInfo> Channel::path() {
  if (lanes_ != nullptr) return OfThisThread().path();
  absl::StatusOr<PathInfo> path;
  if (!RunOnEngine(engine_, [&] { path = client_->path(); })) return NotPostedError(engine_);
  return path;
}

std::string Channel::Explain() {
  if (lanes_ != nullptr) return OfThisThread().Explain();
  std::string text;
  if (!RunOnEngine(engine_, [&] { text = client_->explanation(); })) {
    return StrCat(ToStd(EngineCore::ForkedError().message()), "\n");
  }
  return text;
}

uint64_t Channel::peer_incarnation() {
  if (lanes_ != nullptr) return OfThisThread().peer_incarnation();
  return engine_.forked() ? 0 : client_->peer_incarnation();
}

ChannelStats Channel::stats() {
  ChannelStats stats;
  if (lanes_ == nullptr) {
    RunOnEngine(engine_, [&] { stats = client_->stats(); });
    return stats;
  }
  const auto& lanes = lanes_->all();
  const auto in_turn = [](const auto& lane) { return lane->engine_.InTurn(); };
  // Two callbacks that waited for each other's engines would wait for ever.
  const auto own = std::find_if(lanes.begin(), lanes.end(), in_turn);
  if (own != lanes.end()) return (*own)->stats();
  for (const std::unique_ptr<Channel>& lane : lanes) Add(lane->stats(), stats);
  return stats;
}

Channel::State Channel::state() {
  if (lanes_ != nullptr) return OfThisThread().state();
  State state = State::kIdle;
  RunOnEngine(engine_, [&] { state = client_->state(); });
  return state;
}

absl::StatusOr<ChannelWatch> Channel::WatchState(Function<void(State)> changed) {
  if (lanes_ != nullptr) return OfThisThread().WatchState(std::move(changed));
  absl::StatusOr<ChannelWatch> watch;
  if (!RunOnEngine(engine_, [&] { watch = client_->events().Watch(std::move(changed)); })) {
    return NotPostedError(engine_);
  }
  return watch;
}

void Channel::WhenWritable(Function<void(absl::Status)> done) {
  using Done = Function<void(absl::Status)>;
  if (lanes_ != nullptr) return OfThisThread().WhenWritable(std::move(done));
  if (engine_.InTurn()) return client_->events().WhenWritable(std::move(done));
  const auto refused =
      PostOwned(engine_, std::make_unique<Done>(std::move(done)), [this](Done& posted) {
        client_->events().WhenWritable(std::move(*std::unique_ptr<Done>(&posted)));
      });
  if (refused != nullptr) (*refused)(NotPostedError(engine_));
}

Engine& Channel::engine() {
  if (lanes_ != nullptr) return OfThisThread().engine();
  return engine_;
}

uint32_t Channel::Bind(const ServiceDescriptor& service) {
  if (lanes_ != nullptr) return OfThisThread().Bind(service);  // it is bound for all of them
  // Nothing is called by it; and who had the table's lock when the process forked has it still.
  return engine_.forked() ? 0 : client_->calls().Bind(service);
}

WEFT_INLINE void Channel::SetDeadline(ClientCall& call, const CallOptions& options) {
  const uint64_t timeout_us = options.timeout_us != 0 ? options.timeout_us : default_timeout_us_;
  if (timeout_us == 0) return;
  call.deadline_ns = LaterByUs(engine_.clock().NowNs(), timeout_us);
  if (call.deadline_ns != kNever) call.timeout_us = timeout_us;
}

// A call that does not leave at once gets all it was given, and what it lends.
template <class Bodies>
WEFT_COLD absl::Status Channel::Begin(ClientCall& call, uint32_t method, const Bodies& bodies,
                                      const CallOptions& options) {
  WEFT_RETURN_IF_ERROR(SetRequest(call, bodies));
  WEFT_ASSIGN_OR_RETURN(CallContext* const context,
                        client_->calls().BeginContext(method, options.context));
  if (options.bulk != nullptr) {
    const absl::StatusOr<Loan*> loan = options.bulk->Begin(engine_);
    if (!loan.ok()) {
      const absl::Status why = WithDelivery(loan.status(), Delivery::kNotSent);
      if (context != nullptr) context->Reset(why);
      return why;
    }
    call.loan = *loan;
  }
  call.context = context;
  if (context != nullptr && context->deadline_ns() < call.deadline_ns) {
    call.deadline_ns = context->deadline_ns();
    call.timeout_us = context->timeout_us();
  }
  call.one_way = std::is_same_v<Bodies, OneWayCall>;
  call.priority = options.priority;
  call.is_plain = call.loan == nullptr && context == nullptr && !call.one_way &&
                  call.priority == Priority::kNormal;
  call.method = method;
  call.server_key = options.server_key;
  call.wait_for_server = options.wait_for_server;
  call.may_retry = !options.no_retry;
  return absl::OkStatus();
}

template <class Bodies>
WEFT_INLINE absl::Status Channel::CallBlocking(uint32_t method, const Bodies& bodies,
                                               const CallOptions& options) {
  client_->calls().PrefetchFirst();  // nothing behind an atomic exchange begins before it is done
  const bool entered = engine_.Enter();
  if (entered) [[likely]]
    client_->calls().PrefetchIfCold();
  BlockingCall call(client_->calls(), engine_);
  SetReply(call, bodies);
  SetDeadline(call, options);
  if (!entered) [[unlikely]]
    return CallElsewhere(call, method, bodies, options);
  if (engine_.in_turn()) [[unlikely]] {
    engine_.Leave();
    return CalledInTurn();
  }
  if (HasMore(options) || takes_long_way_ || !SendAtOnce(client_->calls(), call, method, bodies))
      [[unlikely]] {
    if (absl::Status begun = Begin(call, method, bodies, options); !begun.ok()) {
      engine_.Leave();
      return begun;
    }
    client_->calls().Start(call);
  }
  client_->calls().Flush();
  if (!engine_.Drive(call.waiter(), call.deadline_ns)) [[unlikely]]
    client_->calls().Expire(call);
  engine_.Leave();
  return std::move(call.status());
}

absl::Status Channel::Call(uint32_t method, const google::protobuf::MessageLite& request,
                           google::protobuf::MessageLite* reply, const CallOptions& options) {
  if (lanes_ != nullptr) [[unlikely]]
    return ForCall(options, /*blocks=*/true).Call(method, request, reply, options);
  return CallBlocking(method, MessageCall{request, reply}, options);
}

absl::Status Channel::Call(uint32_t form, const LayoutCall& bodies, const CallOptions& options) {
  if (lanes_ != nullptr) [[unlikely]]
    return ForCall(options, /*blocks=*/true).Call(form, bodies, options);
  return CallBlocking(form, bodies, options);
}

// For a thread that may not drive the engine.
template <class Bodies>
WEFT_COLD absl::Status Channel::CallElsewhere(BlockingCall& call, uint32_t method,
                                              const Bodies& bodies, const CallOptions& options) {
  if (engine_.forked()) return NotPostedError(engine_);
  if (!engine_.drives_itself()) return CallUndriven(method, bodies, options);
  WEFT_RETURN_IF_ERROR(Begin(call, method, bodies, options));
  if (!engine_.Post([this, &call] { client_->calls().StartTimed(call, absl::OkStatus()); })) {
    const absl::Status why = NotPostedError(engine_);
    NotStarted(call, options, why);
    return why;
  }
  engine_.Wait(call.waiter());
  return std::move(call.status());
}

// The same, where perhaps nobody drives it.
template <class Bodies>
WEFT_COLD absl::Status Channel::CallUndriven(uint32_t method, const Bodies& bodies,
                                             const CallOptions& options) {
  // Where the engine is driven, it ends the call at its deadline, with better words: so much later
  // at the latest, a tick of its timers and a long turn.
  constexpr uint64_t kGraceNs = 2'000'000;
  const auto shared = std::make_shared<UndrivenCall>();
  const Bodies own = WithOwnReply(bodies, *shared);
  auto call = std::make_unique<CallbackCall>(client_->calls());
  call->done = [shared, engine = &engine_](absl::Status status) {
    shared->status = std::move(status);
    engine->Finish(shared->waiter);
  };
  SetReply(*call, own);
  SetDeadline(*call, options);
  WEFT_RETURN_IF_ERROR(Begin(*call, method, own, options));
  call->KeepRequest();
  if (call->context != nullptr) shared->context = call->context->shared_from_this();
  const uint64_t timeout_us = call->timeout_us;
  const uint64_t deadline_ns = call->deadline_ns < kNever - kGraceNs ? call->deadline_ns + kGraceNs
                                                                     : EngineCore::kNoDeadline;
  call = PostOwned(
      engine_, std::move(call), [calls = &client_->calls(), shared](CallbackCall& posted) {
        auto step = UndrivenCall::kPosted;
        const bool wanted = shared->step.compare_exchange_strong(step, UndrivenCall::kStarted,
                                                                 std::memory_order_acq_rel);
        calls->StartTimed(posted, wanted ? absl::OkStatus() : absl::CancelledError("given up"));
      });
  if (call != nullptr) {
    const absl::Status why = NotPostedError(engine_);
    NotStarted(*call, options, why);
    return why;
  }
  if (!engine_.Wait(shared->waiter, deadline_ns)) {
    auto step = UndrivenCall::kPosted;
    const bool started = !shared->step.compare_exchange_strong(step, UndrivenCall::kGivenUp,
                                                               std::memory_order_acq_rel);
    return UndrivenError(address_, timeout_us, started);
  }
  if (shared->status.ok()) TakeReply(*shared, bodies);
  return std::move(shared->status);
}

template <class Bodies>
WEFT_INLINE void Channel::CallBack(uint32_t method, const Bodies& bodies,
                                   const CallOptions& options,
                                   Function<void(absl::Status)>&& done) {
  // Who holds the engine may start more calls: the turn's end, or the next turn, sends them
  // together.
  if (!engine_.OnEngine()) [[unlikely]]
    return EnterAndCall(method, bodies, options, std::move(done));
  client_->calls().PrefetchIfCold();
  CallbackCall& call = client_->calls().NewCallbackCall();
  call.done.TakeFrom(done);
  SetReply(call, bodies);
  SetDeadline(call, options);
  if (HasMore(options) || takes_long_way_ || !SendAtOnce(client_->calls(), call, method, bodies))
      [[unlikely]] {
    client_->calls().StartFromCallback(call, Begin(call, method, bodies, options));
  } else if (call.deadline_ns != kNever) {
    engine_.timers().Schedule(&call, call.deadline_ns);
  }
}

template <class Bodies>
WEFT_COLD void Channel::EnterAndCall(uint32_t method, const Bodies& bodies,
                                     const CallOptions& options,
                                     Function<void(absl::Status)>&& done) {
  StartOrPost(
      engine_, /*behind=*/false,
      [&] { CallBack(method, bodies, options, std::move(done)); },  // finds itself on the engine
      [&] { PostCall(method, bodies, options, std::move(done)); },
      [&] { client_->calls().Flush(); });
}

void Channel::Call(uint32_t method, const google::protobuf::MessageLite& request,
                   google::protobuf::MessageLite* reply, const CallOptions& options,
                   Function<void(absl::Status)>&& done) {
  if (lanes_ != nullptr) [[unlikely]]
    return ForCall(options, /*blocks=*/false)
        .Call(method, request, reply, options, std::move(done));
  CallBack(method, MessageCall{request, reply}, options, std::move(done));
}

void Channel::Call(uint32_t form, const LayoutCall& bodies, const CallOptions& options,
                   Function<void(absl::Status)>&& done) {
  if (lanes_ != nullptr) [[unlikely]]
    return ForCall(options, /*blocks=*/false).Call(form, bodies, options, std::move(done));
  CallBack(form, bodies, options, std::move(done));
}

void Channel::Flush() {
  Channel& mine = here();
  if (mine.engine_.InTurn()) mine.client_->calls().Flush();
}

// The way of most one-way messages. False: nothing has happened. REQUIRES: the driver's.
WEFT_INLINE bool Channel::SendOneWayAtOnce(uint32_t form, const LayoutCall& bodies,
                                           const CallOptions& options) {
  if (HasMore(options) || takes_long_way_) [[unlikely]]
    return false;
  const uint64_t timeout_us = options.timeout_us != 0 ? options.timeout_us : default_timeout_us_;
  ClientCalls& calls = client_->calls();
  if (bodies.request == nullptr) return calls.SendOneWayAtOnce(form, timeout_us, RecordOf(bodies));
  return bodies.request->IsInitialized() &&
         calls.SendOneWayAtOnce(form, timeout_us, *bodies.request);
}

absl::Status Channel::SendOneWay(uint32_t form, const LayoutCall& bodies,
                                 const CallOptions& options) {
  if (lanes_ != nullptr) [[unlikely]]
    return ForCall(options, /*blocks=*/true).SendOneWay(form, bodies, options);
  bool sent = false;
  if (engine_.Enter()) [[likely]] {
    if (!engine_.in_turn()) {
      // Nobody else may be driving the engine: a connection that has ended is to be known before
      // the message is handed to it, and what the peer gives back has to be taken at some time.
      engine_.Poll();
      sent = SendOneWayAtOnce(form, bodies, options);
      if (sent) client_->calls().Flush();
    }
    engine_.Leave();
  }
  return sent ? absl::OkStatus() : CallBlocking(form, OneWayCall{bodies}, options);
}

void Channel::SendOneWay(uint32_t form, const LayoutCall& bodies, const CallOptions& options,
                         Function<void(absl::Status)>&& done) {
  if (lanes_ != nullptr) [[unlikely]]
    return ForCall(options, /*blocks=*/false).SendOneWay(form, bodies, options, std::move(done));
  if (!done) {
    if (engine_.OnEngine() && SendOneWayAtOnce(form, bodies, options)) return;
    done = [](const absl::Status&) {};
  }
  CallBack(form, OneWayCall{bodies}, options, std::move(done));
}

// From another thread than the engine's: the request is encoded here, and handed over.
template <class Bodies>
WEFT_COLD void Channel::PostCall(uint32_t method, const Bodies& bodies, const CallOptions& options,
                                 Function<void(absl::Status)>&& done) {
  if (engine_.forked()) return done(NotPostedError(engine_));
  auto call = std::make_unique<CallbackCall>(client_->calls());
  call->done = std::move(done);
  SetReply(*call, bodies);
  SetDeadline(*call, options);
  absl::Status valid = Begin(*call, method, bodies, options);
  if (valid.ok()) call->KeepRequest();
  call =
      PostOwned(engine_, std::move(call), [calls = &client_->calls(), valid](CallbackCall& posted) {
        calls->StartTimed(posted, valid);
      });
  if (call == nullptr) return;
  const absl::Status why = NotPostedError(engine_);
  NotStarted(*call, options, why);
  call->done(why);
}

ClientConnection& internal::ConnectionOf(Channel& channel) { return *channel.here().client_; }

ChannelLanes* internal::LanesOf(Channel& channel) { return channel.lanes_.get(); }

}  // namespace weft
