// A channel on the simulated network, and a server that keeps no rule, for a fuzzer.
//
// The bytes choose what the channel is (one that sends calls again, hedges them or runs them
// exactly once; over several servers; a peer's), then event after event: what the program does with
// calls and streams of every shape, what the server does (rpc/testing/hostile_server.h), and time.
// Whatever the server does, every call, read, write and stream ends once, memory that was lent is
// given back, and all has ended when the channel is gone.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "core/check.h"
#include "core/testing/fuzz_input.h"
#include "rpc/client/balancing.h"
#include "rpc/client/bulk_call.h"
#include "rpc/client/channel.h"
#include "rpc/client/client_connection.h"
#include "rpc/client/client_context.h"
#include "rpc/client/client_interceptor.h"
#include "rpc/client/client_streams.h"
#include "rpc/server/server.h"
#include "rpc/testing/hostile_server.h"
#include "rpc/testing/ledger.weft.h"
#include "rpc/testing/payload_service.h"
#include "rpc/testing/probe_service.h"
#include "rpc/testing/retry_service.weft.h"
#include "rpc/testing/signal_service.weft.h"
#include "rpc/testing/stream_service.h"
#include "transport/sim/sim_network.h"

namespace weft::test {
namespace {

constexpr int kMostEvents = 100;
constexpr uint64_t kPatienceNs = 200 * kNsPerSec;  // virtual: bounds a hang
constexpr size_t kMostCalls = 16;
constexpr size_t kLentBytes = 2048;
constexpr uint32_t kFewSlots = 4;            // of a connection: as few as there may be
constexpr uint64_t kLongUs = 5'000'000'000;  // more than a server can be told

using Done = Function<void(absl::Status)>;

class World {
 public:
  explicit World(FuzzInput input) : input_(input) {}

  void Run() {
    const uint8_t how = input_.U8();
    // (Among the values of `how` that meant nothing before there was more to choose.)
    more_ = how / 64 == 2 ? input_.U8() : 0;
    also_ = Has(kAlso) ? input_.U8() : 0;
    SimOptions options;
    if (Also(kLate)) options.late_placing_ns = kNsPerMs;
    options.sealed = Also(kSealed);
    network_.emplace(/*seed=*/1, options);
    hostile_.Listen(&*network_, how,
                    {.has_stores = more_ != 0,
                     .has_ledgers = Has(kAlso),
                     .has_forms = Also(kForms),
                     .is_other = Also(kOther),
                     .has_several = (more_ & (kProcesses | kMany | kPeer | kAlso)) != 0,
                     .peer_of = Has(kPeer) ? own_id() : ""});
    if (Has(kPeer)) Serve();
    if (OpenChannel(/*at_once=*/true)) {
      network_->RunFor(kNsPerMs);
      for (int i = 0; i < kMostEvents && input_.more(); ++i) Event();
      End();
    }  // else the hello was none
    hostile_.StopListening();
  }

 private:
  // What else there is, by bits of a byte.
  static constexpr uint8_t kRetries = 1;
  static constexpr uint8_t kHedges = 2;
  static constexpr uint8_t kOnce = 4;
  static constexpr uint8_t kProcesses = 8;  // of the server
  static constexpr uint8_t kLends = 16;
  static constexpr uint8_t kPeer = 32;  // the channel is that of a server to its peer
  static constexpr uint8_t kMany = 64;  // it has several servers
  static constexpr uint8_t kAlso = 128;
  bool Has(uint8_t bit) const { return (more_ & bit) != 0; }
  // And by those of another one: with it there are more shapes of calls and streams.
  static constexpr uint8_t kLate = 1;    // what was lent is not reclaimed at once
  static constexpr uint8_t kNarrow = 2;  // few calls, queued or not, and few batches under way
  static constexpr uint8_t kWatches = 4;
  static constexpr uint8_t kForms = 8;
  static constexpr uint8_t kOther = 16;
  static constexpr uint8_t kLater = 32;  // the peer's id stands before this side's
  static constexpr uint8_t kSealed = 64;
  static constexpr uint8_t kNoQueue = 128;
  bool Also(uint8_t bit) const { return (also_ & bit) != 0; }

  struct Call {
    Data reply;
    Parcel parcel;
    Words words;
    BalanceLayout balance;
    Required required;
    int ends = 0;
    ClientContext context;
    GuardedMemory memory{kLentBytes};
    std::optional<BulkCall> bulk;
  };
  struct Talking {
    std::variant<std::monostate, ClientReaderWriter<Data, Data>, ClientWriter<Data>,
                 ClientReader<Data>>
        stream;
    Data in;
    Data out;
    Data reply;
    int reads = 0;  // that have not ended
    int writes = 0;
    int finishes = 0;  // the same; at most one is begun
    bool is_finished = false;
    bool ends_by_itself = false;  // it has a deadline
    ClientContext context;
    GuardedMemory memory{kLentBytes};
    std::optional<BulkCall> bulk;
  };
  struct Stubs {
    explicit Stubs(Channel& channel)
        : probe(channel),
          absent(channel),
          streams(channel),
          store(channel),
          payloads(channel),
          ledger(channel),
          signals(channel) {}
    Probe::Stub probe;
    Absent::Stub absent;
    Streams::Stub streams;
    Store::Stub store;
    Payloads::Stub payloads;
    Ledger::Stub ledger;
    Signals::Stub signals;
  };
  struct Watches final : ClientInterceptor {
    absl::Status OnStart(OutgoingCall& call) override {
      if (call.method() == "Explain") return absl::PermissionDeniedError("not this one");
      ++running;
      return call.AddMetadata("user", "otto");
    }
    void OnEnd(OutgoingCall&, const absl::Status&) override { --running; }
    int running = 0;
  };

  // --- the channel
  // --------------------------------------------------------------------------------

  std::string own_id() const { return Also(kLater) ? "this" : "own"; }

  // The program's own server, which has a peer.
  void Serve() {
    ServerOptions options;
    options.peer_id = own_id();
    options.max_outstanding_calls = 4;
    options.link.window_slots = kFewSlots;
    own_ = Server::Create(network_->Node("client"), options).value();
    WEFT_CHECK(own_->AddService(&probe_).ok() && own_->AddService(&streams_).ok());
    WEFT_CHECK(own_->Listen("sim:client").ok());
  }
  ChannelOptions Options() {
    ChannelOptions options;
    options.max_reply_bytes = 20'000;
    options.stream_window_messages = 4;
    options.stream_window_bytes = 2000;
    if (Has(kRetries)) {
      options.retry.max_attempts = 3;
      if (Has(kHedges)) options.retry.hedge_after_us = 5000;
      options.retry.exactly_once = Has(kOnce) && !Has(kMany);
      if (Also(kNarrow)) options.retry.budget_tokens = 3;
    }
    if (Also(kNarrow)) {
      options.max_outstanding_calls = 2;
      options.max_queued_calls = 2;
      options.link.window_slots = kFewSlots;
    }
    if (Also(kNoQueue)) options.max_queued_calls = 0;
    if (Also(kWatches)) options.interceptors = {&watches_};
    return options;
  }
  bool OpenChannel(bool at_once) {
    ChannelOptions options = Options();
    options.connect_at_once = at_once;
    Engine& engine = network_->Node("client");
    absl::StatusOr<std::unique_ptr<Channel>> channel =
        Has(kPeer)
            ? own_->OpenPeer(HostileServer::kPeerId, input_.Bit() ? "" : "sim:server", options)
        : Has(kMany) ? OpenBalanced(engine, "list:sim:server,sim:other", options)
                     : Channel::Open(engine, "sim:server", options);
    if (!channel.ok()) return false;
    channel_ = *std::move(channel);
    stubs_.emplace(*channel_);
    return true;
  }
  // All that was begun has ended then.
  void CloseChannel() {
    for (auto& talk : talks_) talk->stream.emplace<std::monostate>();
    channel_.reset();  // stubs stay: callbacks may still call
    stubs_.reset();
    WEFT_CHECK(AllEnded() && wishes_ == 0 && watches_.running == 0);
  }
  bool AllEnded() const {
    return std::all_of(calls_.begin(), calls_.end(), [](auto& c) { return c->ends == 1; }) &&
           std::all_of(talks_.begin(), talks_.end(),
                       [](auto& t) { return t->reads == 0 && t->writes == 0 && t->finishes == 0; });
  }

  // --- events
  // -------------------------------------------------------------------------------------

  // Even numbers are frames of the server's.
  void Event() {
    using Step = void (World::*)();
    static constexpr std::array<Step, 12> kSteps = {
        &World::StartCall, &World::StartCall, &World::StartCall,    &World::StartTalk,
        &World::Cancel,    &World::Read,      &World::Read,         &World::Write,
        &World::Drop,      &World::Wait,      &World::LoseOrChange, &World::Check};
    static constexpr std::array<Step, 9> kMoreSteps = {
        &World::StartStream, &World::UseStream,      &World::WantRoom,
        &World::ChangeWire,  &World::ServerActs,     &World::Reopen,
        &World::TakeBack,    &World::LetHandlersEnd, &World::Look};
    event_ = input_.U8();
    if (event_ % 2 == 0) return hostile_.SendFrame();
    const size_t at = event_ / 2;
    const bool more = Has(kAlso) && at >= 64;
    (this->*(more ? kMoreSteps[(at - 64) % kMoreSteps.size()] : kSteps[at % kSteps.size()]))();
  }
  void Wait() { network_->RunFor(uint64_t{input_.U8()} * kNsPerMs); }
  void LoseOrChange() { event_ > 220 ? hostile_.CloseOne() : hostile_.ChangeSpeaker(); }
  void Check() {
    hostile_.Settle();
    network_->CheckInvariants();
  }
  // At all that the program can ask.
  void Look() {
    internal::ConnectionOf(*channel_).calls().CheckInvariants();
    channel_->path().status().IgnoreError();
    static_cast<void>(channel_->Explain());
    WEFT_CHECK(channel_->state() != ChannelState::kShutdown);
    static_cast<void>(channel_->stats());
  }
  void WantRoom() {
    ++wishes_;
    channel_->WhenWritable([this](const absl::Status&) { --wishes_; });
  }
  // Nothing goes one way any more, or the server becomes slow; or all is well again.
  void ChangeWire() {
    const uint8_t how = input_.U8();
    if (how % 4 == 0) return network_->Cut("client", "server");
    if (how % 4 == 1) return network_->Cut("server", "client");
    if (how % 4 == 2) return network_->SlowDown("server", uint64_t{how} * kNsPerMs);
    Heal();
  }
  void Heal() {
    network_->Heal("client", "server");
    network_->SlowDown("server", 0);
  }
  void ServerActs() {
    using Act = void (HostileServer::*)();
    static constexpr std::array<Act, 4> kActs = {&HostileServer::Dial, &HostileServer::Refuse,
                                                 &HostileServer::CloseOne,
                                                 &HostileServer::ChangeSpeaker};
    (hostile_.*kActs[input_.Below(kActs.size())])();
  }
  void Reopen() {
    CloseChannel();
    WEFT_CHECK(OpenChannel(/*at_once=*/false));
  }
  void LetHandlersEnd() {
    probe_.held.clear();
    streams_.talks.clear();
  }

  // --- calls
  // --------------------------------------------------------------------------------------

  Call* NewCall() { return calls_.emplace_back(std::make_unique<Call>()).get(); }
  void StartCall() {
    if (calls_.size() == kMostCalls) return;
    const uint8_t how = input_.U8();
    const uint8_t odd = Has(kAlso) ? input_.U8() : 0;
    Call* const call = NewCall();
    CallOptions options;
    // One that has nothing beside its request can be ended by time alone.
    const bool is_plain = more_ != 0 && how % 32 >= 24;
    if (!is_plain) options.context = &call->context;
    options.timeout_us = is_plain || (how & 1) != 0 ? 50'000 : 0;
    options.priority = static_cast<Priority>((how >> 1) % 3);
    if (!is_plain && (how & 8) != 0) call->context.AddMetadata("user", "anna").IgnoreError();
    if (more_ != 0 && !is_plain && (how & 64) != 0) {
      call->context.SetAttachment(absl::Cord(std::string(how, 'a'))).IgnoreError();
    }
    options.wait_for_server = (odd & 1) != 0;
    options.no_retry = (odd & 2) != 0;
    options.server_key = (odd & 4) != 0 ? 7 : 0;
    if ((odd & 8) != 0 && !is_plain) options.timeout_us = kLongUs;
    if ((odd & 16) != 0) call->context.Cancel().IgnoreError();
    if ((odd & 32) != 0) {
      call->bulk.emplace(*channel_);
      call->bulk->Lend(call->memory.slice(0, (odd & 64) != 0 ? 0 : kLentBytes / 2));
      options.bulk = &*call->bulk;
    }
    const bool calls_again = (odd & 128) != 0;
    const uint32_t which = more_ == 0 ? 0 : input_.Below(Has(kAlso) ? 16 : 8);
    CallMethod(which, call, MakeData(how, how >= 240 ? 9000 : 20), options,
               [this, call, calls_again](const absl::Status&) {
                 WEFT_CHECK(++call->ends == 1);
                 if (calls_again) CallAgain();
               });
  }
  void CallMethod(uint32_t which, Call* call, const Data& request, const CallOptions& options,
                  Done done) {
    switch (which) {
      case 1:
      case 2:
        return stubs_->store.Look(request, &call->reply, options, std::move(done));
      case 3:
        return stubs_->store.Set(request, &call->reply, options, std::move(done));
      case 4:
      case 5:
        return stubs_->store.Add(request, &call->reply, options, std::move(done));
      case 6:
      case 7:
        if (!Has(kLends)) break;
        return StartLending(call, options, std::move(done));
      case 8:
        return stubs_->signals.Notify(request, options, std::move(done));
      case 9:
        return stubs_->signals.Mark(BeaconLayout(), options, std::move(done));
      case 10:
        return stubs_->ledger.Move(PaymentLayout(), &call->balance, options, std::move(done));
      case 11:
        return stubs_->ledger.Find(Words(), &call->balance, options, std::move(done));
      case 12:
        return stubs_->ledger.Explain(PaymentLayout(), &call->words, options, std::move(done));
      case 13:
        return stubs_->probe.Strict(RequiredOf(1), &call->required, options, std::move(done));
      case 14:
        return stubs_->absent.Echo(request, &call->reply, options, std::move(done));
      case 15:
        return stubs_->signals.Ask(request, &call->reply, options, std::move(done));
      default:
        break;
    }
    stubs_->probe.Echo(request, &call->reply, options, std::move(done));
  }
  void StartLending(Call* call, CallOptions options, Done done) {
    call->bulk.emplace(*channel_);
    Parcel request;
    call->bulk->Send(call->memory.slice(0, kLentBytes / 2), request.mutable_data());
    if (input_.Bit()) call->bulk->Receive(call->memory.slice(kLentBytes / 2, kLentBytes / 2));
    options.bulk = &*call->bulk;
    stubs_->payloads.Hold(request, &call->parcel, options,
                          [call, done = std::move(done)](absl::Status status) mutable {
                            if (status.ok()) {
                              call->bulk->Received(call->parcel.data()).status().IgnoreError();
                            }
                            done(std::move(status));
                          });
  }
  static Required RequiredOf(int64_t id) {
    Required required;
    required.set_id(id);
    return required;
  }
  // Inside of a callback; perhaps while the channel is being destroyed.
  void CallAgain() {
    if (is_ending_ || calls_.size() == kMostCalls) return;
    Call* const call = NewCall();
    stubs_->probe.Echo(MakeData(1, 20), &call->reply, {.context = &call->context},
                       [call](const absl::Status&) { WEFT_CHECK(++call->ends == 1); });
  }
  void Cancel() {
    if (!calls_.empty()) calls_[input_.U8() % calls_.size()]->context.Cancel().IgnoreError();
  }

  // The program wants the memory of a call that is over. It waits for that, for a while.
  void TakeBack() {
    if (calls_.empty()) return;
    Call* const call = calls_[input_.U8() % calls_.size()].get();
    if (call->ends == 1) GiveBack(call);
  }

  // --- streams
  // ------------------------------------------------------------------------------------

  void StartTalk() {
    if (talks_.size() == kMostCalls) return;
    NewTalk()->stream.emplace<ClientReaderWriter<Data, Data>>(stubs_->streams.Talk());
  }
  void StartStream() {
    if (talks_.size() == kMostCalls) return;
    const uint8_t how = input_.U8();
    Talking* const talk = NewTalk();
    CallOptions options;
    options.priority = static_cast<Priority>(how / 64 % 3);
    options.wait_for_server = (how & 32) != 0;
    if ((how & 16) != 0) {
      talk->bulk.emplace(*channel_);
      talk->bulk->Lend(talk->memory.slice(0, kLentBytes / 2));
      options.bulk = &*talk->bulk;
    }
    talk->ends_by_itself = (how & 8) != 0;
    if (talk->ends_by_itself) options.timeout_us = 50'000;
    if ((how & 4) != 0) {
      talk->context.AddMetadata("user", "anna").IgnoreError();
      options.context = &talk->context;
    }
    switch (how % 4) {
      case 1:
        talk->stream.emplace<ClientWriter<Data>>(stubs_->streams.Sum(&talk->reply, options));
        return;
      case 2:
        talk->stream.emplace<ClientReader<Data>>(stubs_->streams.Count(Size(), options));
        return;
      default:
        talk->stream.emplace<ClientReaderWriter<Data, Data>>(stubs_->streams.Talk(options));
    }
  }
  Talking* NewTalk() { return talks_.emplace_back(std::make_shared<Talking>()).get(); }
  // Null: there is none.
  std::shared_ptr<Talking> AnyTalk() {
    return talks_.empty() ? nullptr : talks_[input_.U8() % talks_.size()];
  }
  // Calls `then` with the stream, if it is there and can be read, or written.
  template <class Then>
  static void IfReads(Talking& talk, Then then) {
    With<true>(talk, then);
  }
  template <class Then>
  static void IfWrites(Talking& talk, Then then) {
    With<false>(talk, then);
  }
  template <bool kToRead, class Then>
  static void With(Talking& talk, Then then) {
    std::visit(
        [&](auto& stream) {
          using Stream = std::remove_reference_t<decltype(stream)>;
          if constexpr (!std::is_same_v<Stream, std::monostate>) {
            if constexpr (kToRead ? Stream::kReads : Stream::kWrites) then(stream);
          }
        },
        talk.stream);
  }
  void Read() {
    const std::shared_ptr<Talking> talk = AnyTalk();
    if (talk == nullptr || talk->reads > 0) return;
    IfReads(*talk, [&](auto& stream) {
      ++talk->reads;
      stream.Read(&talk->in, [talk](bool) { WEFT_CHECK(--talk->reads == 0); });
    });
  }
  void Write() {
    const std::shared_ptr<Talking> talk = AnyTalk();
    if (talk == nullptr || talk->writes > 0) return;
    IfWrites(*talk, [&](auto& stream) {
      ++talk->writes;
      talk->out = MakeData(1, input_.U8() * 4u);
      stream.Write(talk->out, [talk](bool) { WEFT_CHECK(--talk->writes == 0); });
    });
  }
  void Drop() {
    if (const std::shared_ptr<Talking> talk = AnyTalk()) talk->stream.emplace<std::monostate>();
  }
  // What is there besides reads and writes that wait.
  void UseStream() {
    const std::shared_ptr<Talking> talk = AnyTalk();
    if (talk == nullptr) return;
    switch (input_.Below(9)) {
      case 0:
        return IfWrites(*talk, [](auto& stream) { stream.WritesDone(); });
      case 1:
        IfReads(*talk, [&](auto& stream) { Finish(talk, stream); });
        return IfWrites(*talk, [&](auto& stream) { Finish(talk, stream); });
      case 2:
        return IfReads(*talk, [](auto& stream) { stream.Cancel(); });
      case 3:
        return talk->context.Cancel().IgnoreError();
      case 4:
        if (talk->reads > 0) return;
        return IfReads(*talk, [&](auto& stream) { static_cast<void>(stream.TryRead(&talk->in)); });
      case 5:
        if (talk->writes > 0) return;
        talk->out = MakeData(2, input_.U8() * 4u);
        return IfWrites(*talk,
                        [&](auto& stream) { static_cast<void>(stream.TryWrite(talk->out)); });
      case 6:
        if (talk->writes > 0) return;
        return IfWrites(*talk, [&](auto& stream) {
          ++talk->writes;
          stream.WhenWritable([talk](bool) { WEFT_CHECK(--talk->writes == 0); });
        });
      case 7:
        if (!talk->ends_by_itself || std::exchange(talk->is_finished, true)) return;
        return IfReads(*talk, [](auto& stream) { stream.Finish().IgnoreError(); });
      default:  // more than the server takes, or than it has granted
        if (talk->writes > 0) return;
        talk->out = MakeData(3, input_.Bit() ? 21'000 : 1500);
        return IfWrites(*talk,
                        [&](auto& stream) { static_cast<void>(stream.TryWrite(talk->out)); });
    }
  }
  template <class Stream>
  static void Finish(const std::shared_ptr<Talking>& talk, Stream& stream) {
    if (std::exchange(talk->is_finished, true)) return;
    ++talk->finishes;
    stream.Finish([talk](const absl::Status&) { WEFT_CHECK(--talk->finishes == 0); });
  }

  // --- the end
  // ------------------------------------------------------------------------------------

  void End() {
    is_ending_ = true;
    Heal();
    for (auto& talk : talks_) talk->stream.emplace<std::monostate>();
    for (auto& call : calls_) call->context.Cancel().IgnoreError();
    hostile_.CloseAll();
    WEFT_CHECK(network_->RunUntil([this] { return AllEnded(); }, kPatienceNs));
    for (auto& call : calls_) GiveBack(call.get());
    for (auto& talk : talks_) GiveBack(talk.get());
    CloseChannel();
    network_->Settle();
    network_->CheckInvariants();
    hostile_.StopListening();
    hostile_.CloseAll();
    network_->Settle();
    if (!Has(kPeer)) return;
    WEFT_CHECK(network_->RunUntil(
        [this] {
          LetHandlersEnd();  // what came last
          return own_->stats().connections == 0 && own_->stats().running == 0;
        },
        kPatienceNs));
    WEFT_CHECK(own_->stats().running_bytes == 0 && own_->stats().unsent_reply_bytes == 0);
    own_.reset();
  }
  // `lender`: a call or a stream, which is over.
  template <class Lender>
  static void GiveBack(Lender* lender) {
    lender->bulk.reset();
    WEFT_CHECK(lender->memory.CanariesLive());
  }

  FuzzInput input_;
  uint8_t more_ = 0;
  uint8_t also_ = 0;
  uint8_t event_ = 0;  // the present one
  bool is_ending_ = false;
  HostileServer hostile_{&input_};
  Watches watches_;
  std::deque<std::unique_ptr<Call>> calls_;
  std::vector<std::shared_ptr<Talking>> talks_;
  int wishes_ = 0;  // for room, that have not ended
  std::optional<SimNetwork> network_;
  // Of the program's own server:
  ProbeService probe_;
  StreamService streams_;
  std::unique_ptr<Server> own_;
  std::unique_ptr<Channel> channel_;
  std::optional<Stubs> stubs_;
};

}  // namespace
}  // namespace weft::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  weft::test::World(weft::FuzzInput(data, size)).Run();
  return 0;
}
