// A Channel is a client's handle to the services at one address. It outlives connections: it
// connects, and after a loss connects again when the next call needs it.
//
//   auto channel = weft::Channel::Open("db7:4711");  // channel.status() if it is not ok()
//   Kv::Stub kv(**channel);
//   absl::Status status = kv.Get(request, &reply, {.timeout_us = 2000});
//
// A call travels in one of max_outstanding_calls slots of the connection. When the peer grants no
// credit, or no slot is free, the call is queued in this process, up to max_queued_calls.
//
// A message to a one-way method, (weft.one_way) in the .proto file, takes no slot and has no reply.
// It ends with OK as soon as the connection has it: it arrives at most once, behind the small
// messages that were sent before, and is lost, unheard, with the connection, or if the server has
// no room for it or fails it. Until the connection can take it, it waits and fails as calls do.
//
// Threads: any, several at once. A channel belongs to an engine (engine.h). On the thread that
//   drives it, calls go straight to the connection; from others they are posted there. A channel
//   that brings its own engine is caller-driven: the thread that waits for a reply does the work,
//   with no hand-over and no wake-up; callbacks then run while some thread waits or polls.
// Lifetime: the engine outlives the channel. Stubs refer to the channel and must not outlive it.
//   Destroying the channel fails what is outstanding with CANCELLED; every callback has run when
//   the destructor returns. A call that such a callback starts is not sent, and ends with
//   FAILED_PRECONDITION: a callback that repeats its call whatever the error keeps the destructor
//   from returning. REQUIRES: not destroyed from inside a callback of its engine.
// Errors of calls, by what to do next. DeliveryOf() (weft/status.h) says of each that Weft makes
//   whether the call was not sent, or not run, or may have run.
//   the handler's own   as it returned them.
//   UNAVAILABLE         no connection, or it was lost; or the server is about to shut down, and
//                       nothing was sent, or run.
//   DEADLINE_EXCEEDED   its time was over.
//   RESOURCE_EXHAUSTED  the queue is full, or the message too large for this server or client.
//   UNIMPLEMENTED       this server has no such service or method, and nothing was sent; or the
//                       service does not override the method, and nothing has run. (A server that
//                       takes no lent memory says it of a call with CallOptions::bulk.)
//   INVALID_ARGUMENT    a required field is missing, and nothing was sent; or the server could not
//                       decode the request, and nothing has run. (CallOptions::bulk has errors of
//                       its own: weft/bulk.h.)
//   DATA_LOSS           the reply cannot be decoded.
//   FAILED_PRECONDITION a blocking call from inside a callback of the same engine; a call started
//                       while the channel is destroyed; a server of another protocol version; or
//                       a channel of the process of which this one is a fork()ed child.
//   INTERNAL            the handler dropped the call, or its reply lacks a required field.
//   CANCELLED           ClientContext::Cancel(), or the channel was destroyed.
//   UNAUTHENTICATED     ChannelOptions::security: one side has not proved who it is.
//   ABORTED             RetryOptions::exactly_once: what became of an earlier attempt is not known.
// Invariants: every call completes exactly once; a request is sent once, but for RetryOptions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/cache_line.h"
#include "core/function.h"
#include "core/huge_page_arena.h"
#include "rpc/client/channel_stats.h"
#include "rpc/wire/service.h"
#include "transport/options.h"
#include "transport/path.h"
#include "transport/security.h"
#include "weft/status.h"

namespace google::protobuf {
class MessageLite;
}  // namespace google::protobuf

namespace weft {

class BlockingCall;
class Buffer;
class BufferPool;
class BulkCall;
class ClientCall;
class ClientConnection;
class ClientContext;
class ClientInterceptor;
class Channel;
class ChannelLanes;
class ChannelWatch;
class Engine;
class EngineCore;
struct LayoutCall;
enum class ChannelState : uint8_t;

namespace internal {

// For Weft itself: the engine's side, and channels of all kinds.
struct ChannelParts;
struct LaneParts;
ClientConnection& ConnectionOf(Channel& channel);
absl::StatusOr<std::unique_ptr<Channel>> MakeChannel(ChannelParts parts);
ChannelLanes* LanesOf(Channel& channel);  // null: it has one engine, or is itself a lane

}  // namespace internal

struct CallOptions {
  // The call fails with DEADLINE_EXCEEDED this long after it was started, in microseconds. The
  // server is told the time that remains and does not start a call that has none left.
  // 0: ChannelOptions::default_timeout_us.
  uint64_t timeout_us = 0;

  // Without a connection, a call fails with UNAVAILABLE as soon as one attempt to connect has
  // failed, and at once while the server is about to shut down. True: it waits through failed
  // attempts and for the next server, until its deadline (without one, for ever).
  bool wait_for_server = false;

  bool no_retry = false;  // it is sent once, whatever ChannelOptions::retry says

  // Of what waits (requests here; replies, messages of streams and transfers at the server) the
  // most urgent leaves first. kControl: it may use 8 slots more; few and small. kBackground: it
  // leaves slots to others. Calls that are not kNormal take half a microsecond more.
  Priority priority = Priority::kNormal;

  BulkCall* bulk = nullptr;  // memory that it lends (weft/bulk.h), which outlives the call
  // For metadata, attachments and Cancel() (weft/client_context.h): for this call alone, which it
  // outlives. Null: none.
  ClientContext* context = nullptr;
  uint64_t server_key = 0;  // of many servers, equal ones prefer one (weft/balancing.h); 0: any
};

// The rules are in docs/guide.md, "Calls that are sent again". Times are up to an hour.
struct RetryOptions {
  uint32_t max_attempts = 1;             // 1..4 for one call, hedges included; 1: none again
  uint64_t initial_backoff_us = 10'000;  // the longest pause before the second attempt; doubled
  uint64_t max_backoff_us = 1'000'000;   // with each, up to this. Half of a pause is random
  uint32_t budget_tokens = 100;          // 3..1000; failures and hedges take one, of one half only
  uint32_t refill_millitokens = 100;     // 1..1'000'000; what a call gives back that ends with OK
  uint64_t hedge_after_us = 0;           // then a slow call has a second attempt; 0: never
  bool exactly_once = false;  // methods without idempotency_level run once; max_attempts > 1
};

struct ChannelOptions {
  // Behaviour.
  bool connect_at_once = true;          // Open() waits for the connection and reports its failure.
                                        // False: the first call connects; Open() never waits.
  uint64_t default_timeout_us = 0;      // of calls that give none; 0: such calls have no deadline
  uint64_t min_backoff_us = 10'000;     // pause before the second attempt to connect; doubled with
  uint64_t max_backoff_us = 1'000'000;  // each failure up to this. Lower: a restarted server is
                                        // found sooner; more load while it is away.
  LinkOptions link = {};                // paths, time to connect, resources of the connection
  // Around each call (weft/interceptor.h): 0 to kMaxInterceptors, which outlive the channel.
  std::vector<ClientInterceptor*> interceptors = {};
  // The server must speak TLS, and prove who it is (weft/security.h). None: plain bytes.
  std::optional<SecurityOptions> security = {};
  RetryOptions retry = {};  // which calls are sent again, and when; by default none is
  // Performance.
  uint32_t max_outstanding_calls = 256;  // 1..kMaxOutstandingCalls; the server may allow less
  uint32_t max_queued_calls = 4096;      // 0..65536; beyond: RESOURCE_EXHAUSTED
  uint64_t max_reply_bytes = 64 << 20;   // larger replies fail that call; told to the server
  uint32_t max_streams = 16384;          // 0..kMaxStreams, at once; the server may allow less
  // Of each stream: what may be sent that nobody has read. Higher: less waiting on long paths; more
  // memory for each stream that is not read. 1..65535, 1..64 MiB; one message may be larger.
  uint32_t stream_window_messages = 1024;
  uint32_t stream_window_bytes = 64 << 10;
  uint64_t spin_ns = kDefaultSpinNs;  // own engines only: EngineOptions::spin_ns
  // Own engines, 1 to 64, each caller-driven and with a connection: so many threads call at once.
  // Higher: so many connections and networks, with their memory. Also of OpenBalanced(target).
  uint32_t engines = 1;
  BufferPoolOptions buffers = {};  // of AllocateBuffer()
};

class alignas(kCacheLineBytes) Channel : public InHugePageArena {
 public:
  // With a caller-driven engine and a network of its own.
  static absl::StatusOr<std::unique_ptr<Channel>> Open(const std::string& address,
                                                       const ChannelOptions& options = {});

  // On `engine`. FAILED_PRECONDITION: connect_at_once, from inside a callback of that engine.
  static absl::StatusOr<std::unique_ptr<Channel>> Open(Engine& engine, const std::string& address,
                                                       const ChannelOptions& options = {});
  // On several, 1 to 64, with a connection on each (docs/guide.md, "Several engines").
  static absl::StatusOr<std::unique_ptr<Channel>> Open(const std::vector<Engine*>& engines,
                                                       const std::string& address,
                                                       const ChannelOptions& options = {});
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  const std::string& address() const { return address_; }
  // Of several engines: the part of this by which this thread's calls go (by others while it has no
  // connection). In a callback of one of the engines that one's; else always the same on a thread.
  // What is made with it (RemoteMemory, Buffer, BulkCall) is that engine's. Of one: this. All
  // below, but for stats(), is about it.
  Channel& here() { return lanes_ == nullptr ? *this : OfThisThread(); }
  Engine& engine();

  // The path of the present connection; UNAVAILABLE, with the last reason, when there is none.
  absl::StatusOr<PathInfo> path();
  // Of the last connection: every path considered, with reasons, and who the server is (path.h).
  std::string Explain();
  // Of the server of the present or the last connection: another one after each start of it. 0:
  // there was none, or it has no ServerOptions::peer_id. Any thread; no turn.
  uint64_t peer_incarnation();
  ChannelStats stats();  // of all engines; inside of a callback of one, its own

  // Callbacks (weft/metrics.h) run on the engine's thread, not inside of what they tell of.
  using State = ChannelState;
  State state();

  // `changed` runs soon with the present state, perhaps before this returns, and then after each
  // change (the last of several in quick succession), until the watch is destroyed. Errors:
  // RESOURCE_EXHAUSTED, there are 64 watches; FAILED_PRECONDITION, the channel is being destroyed.
  absl::StatusOr<ChannelWatch> WatchState(Function<void(State)> changed);

  // `done` runs once: with OK when a small call, started then, would be sent and not queued; soon
  // if that is so now. A channel connects for it. Errors: CANCELLED, the channel is being
  // destroyed; INVALID_ARGUMENT, its address is none; RESOURCE_EXHAUSTED, 1024 wait, or the
  // engine's inbox is full. What is known at once runs `done` inside this function.
  void WhenWritable(Function<void(absl::Status)> done);
  // In a callback of the engine: sends what calls have left for the turn's end, so that the server
  // begins with it while the callback goes on. Elsewhere calls have left nothing.
  void Flush();

  // --- memory for bulk payloads (weft/memory.h) --------------------------------------------------
  // Out of the channel's pool, good for all channels and servers on this engine. It goes before the
  // channel. RESOURCE_EXHAUSTED: the pool's bound.
  absl::StatusOr<std::unique_ptr<Buffer>> AllocateBuffer(size_t bytes);

  // --- for generated code -----------------------------------------------------------------------
  // Makes the service's methods callable; returns the number of its first one, always the same.
  uint32_t Bind(const ServiceDescriptor& service);

  // Blocks until the call has completed. `reply` is meaningful only if the result is OK. It ends at
  // its deadline also where nobody drives the engine; later nothing but its BulkCall is touched.
  absl::Status Call(uint32_t method, const google::protobuf::MessageLite& request,
                    google::protobuf::MessageLite* reply, const CallOptions& options);

  // Starts a call. `request` may be dropped when this returns; `reply` stays untouched and alive
  // until `done`. `done` runs once, on the engine's thread, and no call's runs inside this
  // function; only where another thread finds the engine's inbox full, its own does.
  void Call(uint32_t method, const google::protobuf::MessageLite& request,
            google::protobuf::MessageLite* reply, const CallOptions& options,
            Function<void(absl::Status)>&& done);

  // The same for forms of methods with structs of fixed layout, in the place of the messages.
  absl::Status Call(uint32_t form, const LayoutCall& bodies, const CallOptions& options);
  void Call(uint32_t form, const LayoutCall& bodies, const CallOptions& options,
            Function<void(absl::Status)>&& done);

  // To a one-way method, or a form of one; `bodies` has no reply. Ends with OK when the connection
  // has the message. `done` may be null.
  absl::Status SendOneWay(uint32_t form, const LayoutCall& bodies, const CallOptions& options);
  void SendOneWay(uint32_t form, const LayoutCall& bodies, const CallOptions& options,
                  Function<void(absl::Status)>&& done);

 private:
  friend ClientConnection& internal::ConnectionOf(Channel& channel);
  friend absl::StatusOr<std::unique_ptr<Channel>> internal::MakeChannel(internal::ChannelParts);
  friend ChannelLanes* internal::LanesOf(Channel& channel);

  static absl::StatusOr<std::unique_ptr<Channel>> Make(internal::LaneParts parts);  // on one engine
  explicit Channel(internal::LaneParts& parts);
  explicit Channel(std::unique_ptr<ChannelLanes> lanes);
  Channel& OfThisThread();
  Channel& ForCall(const CallOptions& options, bool blocks);
  void Shutdown();  // once
  absl::Status ConnectAtOnce();
  // `Bodies`: what a call sends and where its reply goes.
  bool SendOneWayAtOnce(uint32_t form, const LayoutCall& bodies, const CallOptions& options);
  void SetDeadline(ClientCall& call, const CallOptions& options);
  template <class Bodies>
  absl::Status Begin(ClientCall& call, uint32_t method, const Bodies& bodies,
                     const CallOptions& options);
  template <class Bodies>
  absl::Status CallBlocking(uint32_t method, const Bodies& bodies, const CallOptions& options);
  template <class Bodies>
  absl::Status CallElsewhere(BlockingCall& call, uint32_t method, const Bodies& bodies,
                             const CallOptions& options);
  template <class Bodies>
  absl::Status CallUndriven(uint32_t method, const Bodies& bodies, const CallOptions& options);
  template <class Bodies>
  void CallBack(uint32_t method, const Bodies& bodies, const CallOptions& options,
                Function<void(absl::Status)>&& done);
  template <class Bodies>
  void EnterAndCall(uint32_t method, const Bodies& bodies, const CallOptions& options,
                    Function<void(absl::Status)>&& done);
  template <class Bodies>
  void PostCall(uint32_t method, const Bodies& bodies, const CallOptions& options,
                Function<void(absl::Status)>&& done);

  // Constant after construction. What every call touches, in one cache line:
  const std::unique_ptr<Engine> own_engine_;  // null: the application's
  EngineCore& engine_;
  ClientConnection* const client_;  // deletes itself when its connection is gone
  const uint64_t default_timeout_us_;
  const bool takes_long_way_;  // each call does: there are interceptors, retries or many servers
  // Of several engines: this has none of its own, and shows the first lane's. Null: of one.
  const std::unique_ptr<ChannelLanes> lanes_;

  const std::string address_;
  const std::unique_ptr<BufferPool> buffers_;
  bool shut_down_ = false;
};

}  // namespace weft
