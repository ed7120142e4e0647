// A whole server on the simulated network, and two clients of it that keep no rule, for a fuzzer.
//
// The bytes choose the hello, then event after event: what the clients send (hostile_client.h),
// what handlers do with what they hold, faults of the network and of what the server relies on,
// time. They may also choose limits, a policy, handlers on an executor, records in a store, and
// that the server tells its clients to go to another process, or is shut down, with whatever is
// under way. An honest client makes a call at the end, which must be answered; and the server must
// have given everything back.

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
#include "core/testing/fuzz_input.h"
#include "rpc/operation/cancellable.h"
#include "rpc/operation/executor.h"
#include "rpc/server/access_policy.h"
#include "rpc/server/admission.h"
#include "rpc/server/incoming_call.h"
#include "rpc/server/server_bulk.h"
#include "rpc/server/server_context.h"
#include "rpc/server/server_core.h"
#include "rpc/server/server_interceptor.h"
#include "rpc/testing/hostile_client.h"
#include "rpc/testing/ledger_service.h"
#include "rpc/testing/memory_store.h"
#include "rpc/testing/payload_service.h"
#include "rpc/testing/probe_service.h"
#include "rpc/testing/raw_hellos.h"
#include "rpc/testing/raw_peer.h"
#include "rpc/testing/signal_service.h"
#include "rpc/testing/stream_service.h"
#include "rpc/wire/completion_id.h"
#include "rpc/wire/status_text.h"
#include "transport/engine.h"
#include "transport/sim/sim_network.h"

namespace weft::test {
namespace {

constexpr int kMostEvents = 120;
constexpr uint64_t kPatienceNs = 200 * kNsPerSec;  // virtual: bounds a hang
constexpr size_t kMemoryBytes = 4096;              // of payloads
constexpr uint32_t kTenant = 7;                    // of all clients, where there are tenants

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

// A call to somebody else, on behalf of one that the server has.
struct Follower final : Cancellable {
  absl::Status Cancel() override { return absl::OkStatus(); }
};

// Looks at all that a call has beside its request, and gives back some of it.
void Look(ServerContext& context) {
  static const auto follower = std::make_shared<Follower>();
  WEFT_CHECK(!context.path().peer.empty());
  WEFT_CHECK(context.peer_id().empty() == (context.peer_incarnation() == 0));
  const Metadata& metadata = context.metadata();
  const std::string* const user = metadata.Find("user");
  if (user != nullptr) context.AddReplyMetadata("user", *user).IgnoreError();
  if (context.priority() != Priority::kNormal) context.SetReplyAttachment(context.attachment());
  context.OnCancel([] {});
  internal::CancelWith(context, follower);
  internal::CancelWith(context, std::make_shared<Follower>());  // it has ended
  const CompletionId* const id = context.completion_id();
  WEFT_CHECK(id == nullptr || id->sequence > 0);
  // Blocks on an executor; on the engine it may not.
  std::array<std::byte, 8> bytes;
  LocalMemory memory{MutableByteSpan(bytes)};
  context.bulk().Read(/*window=*/1, /*offset=*/0, {&memory, 0, bytes.size()}).IgnoreError();
}

// Refuses who says so.
class Watches final : public ServerInterceptor {
 public:
  static constexpr size_t kRefusedBytes = 13;

  absl::Status OnStart(IncomingCall& call) override {
    const std::string* const user = call.context().metadata().Find("user");
    if (call.method().empty()) return absl::InternalError("it has no name");
    if (user != nullptr && user->size() == kRefusedBytes) {
      return absl::PermissionDeniedError("not this user");
    }
    ++running;
    return absl::OkStatus();
  }
  void OnEnd(IncomingCall&, const absl::Status&) override { --running; }
  int running = 0;
};

// Some methods are for all, some for nobody, and the rest for who proves who it is; until the door
// is closed: then nothing is for anybody.
class Door final : public Authorizer {
 public:
  Decision Decide(const PathInfo& path, std::string_view service,
                  std::string_view method) override {
    static const auto* const rules =
        new AccessPolicy(AccessPolicy::Parse("allow anyone weft.test.Probe/Echo\n"
                                             "allow anyone weft.test.Probe/Hold\n"
                                             "allow anyone weft.test.Streams/*\n"
                                             "allow anyone weft.test.Signals/Hold\n"
                                             "deny anyone weft.test.Streams/Count\n"
                                             "allow anyone-authenticated *\n")
                             .value());
    return closed ? Decision() : rules->Decide(path.identity, service, method);
  }
  uint64_t Generation(uint64_t) override { return closed ? 1 : 0; }
  bool closed = false;
};

// As the tests have them, but for a size and a sum that are the client's: handlers bound those.
constexpr uint64_t kMostMade = 100'000;

class Probes final : public ProbeService {
  absl::Status Make(ServerContext&, const Size& request, Data* reply) override {
    reply->mutable_payload()->assign(std::min<uint64_t>(request.bytes(), kMostMade), 'm');
    return absl::OkStatus();
  }
};

class Sums final : public StreamService {
  void StartSum(ServerReader<Data> reader, Data* reply) override {
    struct Summing {
      ServerReader<Data> reader;
      Data* reply;
      Data request;
    };
    Next(std::shared_ptr<Summing>(new Summing{std::move(reader), reply, {}}));
  }
  static void Next(const auto& sum) {
    sum->reader.Read(&sum->request, [sum](bool ok) {
      if (!ok) return sum->reader.Finish(absl::OkStatus());
      sum->reply->set_number(sum->reply->number() + 1);
      Next(sum);
    });
  }
};

// How handlers end, or a store fails.
absl::Status Outcome(uint8_t how) {
  absl::Status with_details = absl::AbortedError("there is more to it");
  with_details.SetPayload("test/why", absl::Cord("because"));
  const std::array<absl::Status, 5> kOutcomes = {
      absl::OkStatus(), with_details, absl::InternalError(std::string(2000, 'x')),
      NotRunError(absl::StatusCode::kResourceExhausted, "not now"), absl::CancelledError()};
  return kOutcomes[how % kOutcomes.size()];
}

// A transfer of a handler, in each of the forms that there are.
struct Move {
  ServerBulk& bulk;
  const Bulk& place;  // as a message of the client has it
  Bulk* field;
  Slice slice;
  BulkOptions options;

  struct Form {
    void (*start)(const Move& move, ServerBulk::Done done);
    absl::Status (*block)(const Move& move);
  };
  static constexpr size_t kForms = 5;
  static const Form& FormOf(uint8_t how) {
    using Done = ServerBulk::Done;
    static constexpr Form kAll[kForms] = {
        {[](const Move& m, Done done) { m.bulk.Fetch(m.place, m.slice, std::move(done)); },
         [](const Move& m) { return m.bulk.Fetch(m.place, m.slice); }},
        {[](const Move& m, Done done) {
           m.bulk.Push(m.slice, m.field, m.options, std::move(done));
         },
         [](const Move& m) { return m.bulk.Push(m.slice, m.field, m.options); }},
        {[](const Move& m, Done done) {
           m.bulk.Push(m.slice, m.place, m.field, m.options, std::move(done));
         },
         [](const Move& m) { return m.bulk.Push(m.slice, m.place, m.field, m.options); }},
        {[](const Move& m, Done done) {
           m.bulk.Read(m.place.window(), m.place.offset(), m.slice, std::move(done));
         },
         [](const Move& m) { return m.bulk.Read(m.place.window(), m.place.offset(), m.slice); }},
        {[](const Move& m, Done done) {
           m.bulk.Write(m.slice, m.place.window(), m.place.offset(), std::move(done));
         },
         [](const Move& m) { return m.bulk.Write(m.slice, m.place.window(), m.place.offset()); }},
    };
    return kAll[how % kForms];
  }
};

class World {
 public:
  explicit World(FuzzInput input) : input_(input), payloads_(kMemoryBytes) {}

  void Run() {
    const uint8_t how = input_.U8();
    // (Among the values of `how` that meant nothing before there was more to choose.)
    const bool chooses_all = how / 64 == 1;
    more_ = how / 64 == 2 || chooses_all ? input_.U8() : 0;
    const uint8_t also = chooses_all ? input_.U8() : 0;
    Serve(how, also);
    client().Dial(how, chooses_all ? input_.U8() : 0);
    WEFT_CHECK(RunUntil([&] { return !client().is_dialing(); }));
    for (int i = 0; i < kMostEvents && input_.more(); ++i) Event();
    EndHandlers();
    End();
  }

 private:
  // What else the server has, by bits of two bytes.
  enum More : uint8_t {
    kAdaptive = 1,
    kPerClient = 2,
    kPerMethod = 4,
    kPolicy = 8,
    kExecutor = 16,
    kStore = 32,
    kTenants = 64,
    kLooks = 128,
  };
  enum Also : uint8_t {
    kManySessions = 1,
    kRestored = 2,  // the store has a session from before
    kFewSlots = 4,
    kLogsAllowed = 8,
    kNoStreams = 16,
  };

  void Serve(uint8_t how, uint8_t also) {
    ServerOptions options;
    options.max_request_bytes = 20'000;
    options.max_running_bytes = 60'000;
    options.max_unsent_reply_bytes = 70'000;
    options.reply_timeout_us = 500'000;
    options.max_record_bytes = 20'000;
    options.max_sessions = (also & kManySessions) != 0 ? 12 : 4;
    options.session_lease_us = 10'000'000;  // a dial that is waited for may take half of it
    options.max_outstanding_calls = 8;
    options.max_streams = (also & kNoStreams) != 0 ? 0 : 8;
    options.stream_window_messages = 4;
    options.stream_window_bytes = 2000;
    if ((how & HostileClient::kPeer) != 0) options.peer_id = "server";
    if ((also & kFewSlots) != 0) options.link.window_slots = 4;
    if ((more_ & kAdaptive) != 0) {
      options.limits.adaptive = true;
      options.limits.adaptive_most = 3;
    }
    if ((more_ & kPerClient) != 0) options.limits.per_client = 2;
    if ((more_ & kPerMethod) != 0) {
      options.limits.per_method = {{"weft.test.Probe/Hold", 1},
                                   {"weft.test.Streams/Talk", 1},
                                   {"weft.test.Signals/Hold", 1}};
    }
    if ((more_ & kPolicy) != 0) options.authorizer = &door_;
    options.log_allowed_calls = (also & kLogsAllowed) != 0;
    if ((more_ & kExecutor) != 0) options.executor = &executor_;
    if ((more_ & kStore) != 0) options.completion_store = &store_;
    if ((more_ & kTenants) != 0) options.tenant_of = [](const PathInfo&) { return kTenant; };
    if ((also & kRestored) != 0) FillStore();
    if ((more_ & kLooks) != 0) {
      options.interceptors = {&watches_};
      probe_.look = Look;
      signals_.look = Look;
      streams_.look = Look;
    }
    WEFT_CHECK(Admission::Check(options.limits).ok());
    server_ = std::make_unique<ServerCore>(CoreOf(network_.Node("server")), options);
    for (Service* service :
         std::initializer_list<Service*>{&probe_, &streams_, &signals_, &payloads_, &ledger_}) {
      WEFT_CHECK(server_->AddService(service, /*executor=*/nullptr).ok());
    }
    WEFT_CHECK(server_->Listen("sim:server").ok());
  }
  // Of calls before a restart: one that succeeded, one whose reply is none, and one that failed.
  void FillStore() {
    const SessionId id = {1, 2};  // hostile_client.cc knows it, too
    const uint32_t tenant = (more_ & kTenants) != 0 ? kTenant : kDefaultTenant;
    WEFT_CHECK(store_.AddSession({id, tenant}).ok());
    store_.Commit({id, 1}, 1, {absl::OkStatus(), MakeData(1, 10).SerializeAsString()});
    store_.Commit({id, 2}, 2, {absl::OkStatus(), "\xFF"});
    store_.Commit({id, 3}, 3, {absl::NotFoundError("it was not there"), ""});
  }
  bool RunUntil(Function<bool()> done) { return network_.RunUntil(std::move(done), kPatienceNs); }
  HostileClient& client() { return clients_[at_]; }
  // Nobody is waited for: time would pass, until the next timer.
  ServerStats Stats() {
    ServerStats stats;
    server_->AddStats(/*waits=*/false, &stats);
    return stats;
  }
  void CheckInvariants() {
    network_.CheckInvariants();
    server_->CheckInvariants();
  }

  // --- events -----------------------------------------------------------------------------------

  // `how`: which of its kinds a step is.
  using Step = void (World::*)(uint8_t how);

  void Event() {
    static constexpr std::array<Step, 16> kSteps = {
        &World::EndCall,  &World::EndSignal, &World::TakeTalks,     &World::Read,
        &World::Write,    &World::EndTalk,   &World::FetchPayload,  &World::DropCarried,
        &World::PassTime, &World::HangUp,    &World::StopAnswering, &World::TakeLentBack,
        &World::RunTasks, &World::ShutDown,  &World::SomethingElse, &World::Check};
    const uint8_t event = input_.U8();
    if (event % 4 != 0) return client().SendAny();
    (this->*kSteps[event / 4 % kSteps.size()])(event);
  }
  void SomethingElse(uint8_t) {
    static constexpr std::array<Step, 16> kSteps = {
        &World::Dial,        &World::UseOther,     &World::PassLittleTime, &World::MoveAway,
        &World::Transfer,    &World::EndPayload,   &World::EndCallWith,    &World::EndSignalWith,
        &World::EndTalkWith, &World::PassMoreTime, &World::SlowDown,       &World::Cut,
        &World::FailStore,   &World::CloseDoor,    &World::FailNotify,     &World::ReadOrWriteNow};
    const uint8_t how = input_.U8();
    (this->*kSteps[how % kSteps.size()])(how / kSteps.size());
  }

  void Check(uint8_t) {
    network_.Settle();
    CheckInvariants();
  }
  // Less than a message takes, perhaps.
  void PassLittleTime(uint8_t) { network_.RunFor(uint64_t{input_.U8()} * kNsPerUs); }
  void PassTime(uint8_t) { network_.RunFor(uint64_t{input_.U8()} * kNsPerMs); }
  void PassMoreTime(uint8_t) { network_.RunFor(uint64_t{input_.U8()} * 100 * kNsPerMs); }

  // --- the clients ------------------------------------------------------------------------------

  void HangUp(uint8_t how) {
    if (how > 200) client().Close("the client's wish");
  }
  void StopAnswering(uint8_t how) {
    if (how > 200) network_.StopAnswering(client().node());
  }
  void TakeLentBack(uint8_t how) {
    if (how > 128) client().TakeLentBack();
  }
  // The other one, if this one is there. It is not waited for.
  void Dial(uint8_t) {
    if (client().is_open()) at_ ^= 1;
    const uint8_t how = input_.U8();
    client().Dial(how, input_.U8());
  }
  void UseOther(uint8_t) {
    if (clients_[at_ ^ 1].has_dialed()) at_ ^= 1;
  }
  void SlowDown(uint8_t how) { network_.SlowDown(client().node(), how * 50 * kNsPerMs); }
  void Cut(uint8_t how) {
    if (how % 3 == 0) return network_.Heal("server", client().node());
    how % 3 == 1 ? network_.Cut("server", client().node())
                 : network_.Cut(client().node(), "server");
  }

  // --- the server -------------------------------------------------------------------------------

  // Clients are told so, and whatever else happens goes on.
  void ShutDown(uint8_t how) {
    if (more_ == 0 || how < 128) return network_.Settle();
    is_leaving_ = true;
    server_->StartShutdown(uint64_t{input_.U8()} * 1000);
  }
  void MoveAway(uint8_t) {
    is_leaving_ = true;
    server_->MoveAway();
  }
  void CloseDoor(uint8_t) { door_.closed = !door_.closed; }
  void FailStore(uint8_t how) {
    store_.add_error = Outcome(how);
    store_.find_errors = how;
  }

  // --- handlers ---------------------------------------------------------------------------------

  void RunTasks(uint8_t) {
    executor_.RunAll();
    network_.Settle();
  }
  void EndCall(uint8_t) { EndCallWith(0); }
  void EndCallWith(uint8_t how) {
    if (!probe_.held.empty()) probe_.Release(Outcome(how));
  }
  void EndSignal(uint8_t) { EndSignalWith(0); }
  void EndSignalWith(uint8_t how) {
    if (!signals_.held.empty()) signals_.Release(Outcome(how));
  }
  void FailNotify(uint8_t how) { signals_.end = Outcome(how); }

  struct Talking {
    std::optional<Talk> stream;
    Data in;
    Data out;
    bool reads = false;
    bool writes = false;
  };
  void TakeTalks(uint8_t = 0) {
    while (!streams_.talks.empty()) {
      auto talk = std::make_shared<Talking>();
      talk->stream.emplace(std::move(streams_.talks.front()));
      streams_.talks.pop_front();
      talks_.push_back(std::move(talk));
    }
  }
  void Read(uint8_t) {
    if (talks_.empty()) return;
    const std::shared_ptr<Talking> talk = talks_[input_.U8() % talks_.size()];
    if (!talk->stream || talk->reads) return;
    talk->reads = true;
    talk->stream->Read(&talk->in, [talk](bool) { talk->reads = false; });
  }
  void Write(uint8_t) {
    if (talks_.empty()) return;
    const uint8_t how = input_.U8();
    const std::shared_ptr<Talking> talk = talks_[how % talks_.size()];
    if (!talk->stream || talk->writes) return;
    talk->writes = true;
    talk->out = MakeData(1, how >= 240 ? 9000 : how * 2u);
    talk->stream->Write(talk->out, [talk](bool) { talk->writes = false; });
  }
  // In the forms that do not wait.
  void ReadOrWriteNow(uint8_t how) {
    if (talks_.empty()) return;
    const std::shared_ptr<Talking> talk = talks_[input_.U8() % talks_.size()];
    if (!talk->stream) return;
    if (how % 2 == 0) {
      if (!talk->reads) static_cast<void>(talk->stream->TryRead(&talk->in));
      return;
    }
    if (talk->writes || talk->stream->TryWrite(MakeData(1, how * 64u)) != StreamResult::kNotYet) {
      return;
    }
    talk->writes = true;
    talk->stream->WhenWritable([talk](bool) { talk->writes = false; });
  }
  static void Finish(Talking* talk, absl::Status status) {
    if (!talk->stream) return;
    Talk stream = std::move(*talk->stream);
    talk->stream.reset();
    stream.Finish(std::move(status));
  }
  void EndTalk(uint8_t) { EndTalkWith(0); }
  void EndTalkWith(uint8_t how) {
    if (!talks_.empty()) Finish(talks_[input_.U8() % talks_.size()].get(), Outcome(how));
  }

  void FetchPayload(uint8_t) {
    if (payloads_.held.empty()) return;
    auto call = std::make_shared<PayloadService::HeldCall>(std::move(payloads_.held.front()));
    payloads_.held.pop_front();
    const uint64_t length = std::min<uint64_t>(call->request().data().length(), kMemoryBytes);
    auto ended = [call](absl::Status status) mutable {
      PayloadService::HeldCall over = std::move(*call);
      over.Finish(std::move(status));
    };
    call->context().bulk().Fetch(call->request().data(), payloads_.memory().slice(0, length),
                                 std::move(ended));
  }
  // Of the oldest call or stream that lends memory.
  void Transfer(uint8_t how) {
    const bool of_stream = (how & 1) != 0;
    if (of_stream ? payloads_.carried.empty() : payloads_.held.empty()) return;
    ServerContext& context =
        of_stream ? payloads_.carried.front().context() : payloads_.held.front().context();
    const uint8_t form = input_.U8();
    const Bulk place = client().Payload();
    Bulk field;
    const uint64_t offset = input_.Number();
    const Move move = {context.bulk(),
                       place,
                       &field,
                       payloads_.memory().slice(offset, input_.Number()),
                       {.crc32c = (how & 4) != 0}};
    if (form >= 128) return Move::FormOf(form).block(move).IgnoreError();
    for (uint32_t i = 0; i < ((how & 2) != 0 ? ServerBulk::kMaxTransfers + 1 : 1); ++i) {
      ServerBulk::Done done;
      if (form < 64) done = [](absl::Status) {};
      Move::FormOf(form).start(move, std::move(done));
    }
  }
  // With transfers under way, perhaps.
  void EndPayload(uint8_t how) {
    const bool of_stream = (how & 1) != 0;
    if (of_stream ? payloads_.carried.empty() : payloads_.held.empty()) return;
    of_stream ? EndFirst(&payloads_.carried, Outcome(how / 2))
              : EndFirst(&payloads_.held, Outcome(how / 2));
  }
  template <class Held>
  static void EndFirst(std::deque<Held>* held, absl::Status status) {
    Held first = std::move(held->front());
    held->pop_front();
    first.Finish(std::move(status));
  }
  void DropCarried(uint8_t) { payloads_.carried.clear(); }

  // --- the end ----------------------------------------------------------------------------------

  void EndHandlers() {
    executor_.RunAll();
    network_.Settle();
    executor_.RunAll();
    TakeTalks();
    for (auto& talk : talks_) Finish(talk.get(), absl::OkStatus());
    while (!probe_.held.empty()) probe_.Release();
    while (!signals_.held.empty()) signals_.Release();
    payloads_.held.clear();
    payloads_.carried.clear();
  }
  void End() {
    for (HostileClient& one : clients_) {
      if (!one.has_dialed()) continue;  // there is no such node
      network_.SlowDown(one.node(), 0);
      network_.Heal("server", one.node());
    }
    EndHandlers();
    if (!is_leaving_) HonestCall();
    WEFT_CHECK(RunUntil([&] {
      // What came last, too.
      for (HostileClient& one : clients_) one.Close("done");
      EndHandlers();
      const auto is_gone = [](const HostileClient& one) {
        return !one.is_open() && !one.is_dialing();
      };
      const ServerStats stats = Stats();
      return stats.connections == 0 && stats.running == 0 &&
             std::all_of(clients_.begin(), clients_.end(), is_gone);
    }));
    const ServerStats stats = Stats();
    WEFT_CHECK(stats.running_bytes == 0 && stats.unsent_reply_bytes == 0);
    for (const auto& talk : talks_) WEFT_CHECK(!talk->reads && !talk->writes);
    WEFT_CHECK(watches_.running == 0);
    WEFT_CHECK(payloads_.memory().CanariesLive());
    CheckInvariants();
    for (HostileClient& one : clients_) one.TakeLentBack();
    server_.reset();
  }
  // Somebody else, who keeps the rules.
  void HonestCall() {
    struct Honest final : ConnectionHandler {
      void OnOpen(Connection& opened) override { connection = &opened; }
      void OnMessage(Connection&, ByteSpan) override { ++received; }
      void OnClosed(Connection&, const absl::Status&) override { connection = nullptr; }
      Connection* connection = nullptr;
      int received = 0;
    };
    Honest honest;
    door_.closed = false;
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
    // Calls that are not over, for their transfers are not, may leave no place for another one.
    WEFT_CHECK(probe_.echoes > 0 || (more_ & kAdaptive) != 0);
    WEFT_CHECK(honest.connection != nullptr);
    honest.connection->Close("done");
    WEFT_CHECK(RunUntil([&] { return honest.connection == nullptr; }));
  }

  FuzzInput input_;
  uint8_t more_ = 0;         // what else the server has
  bool is_leaving_ = false;  // it moves away, or is being shut down
  size_t at_ = 0;            // whose frames are sent
  std::vector<std::shared_ptr<Talking>> talks_;
  SimNetwork network_{/*seed=*/1};
  SessionId session_;
  std::array<HostileClient, 2> clients_ = {HostileClient(network_, "raw", input_, session_),
                                           HostileClient(network_, "raw2", input_, session_)};
  Queue executor_;
  Door door_;
  MemoryStore store_;
  Watches watches_;
  Probes probe_;
  Sums streams_;
  SignalService signals_;
  PayloadService payloads_;
  LayoutLedger ledger_;
  std::unique_ptr<ServerCore> server_;
};

}  // namespace
}  // namespace weft::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  weft::test::World(weft::FuzzInput(data, size)).Run();
  return 0;
}
