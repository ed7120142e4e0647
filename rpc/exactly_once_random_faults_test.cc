// Calls that run exactly once, under random faults: servers that are killed at any moment, with and
// without a store that outlives them, connections that are lost, sessions that expire. Every call
// ends once; no handler's effect comes twice; who is told of success has it, and the right answer;
// who is told that nothing was sent has none.
//
// Many seeds: ./dev once
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/random.h"
#include "rpc/client/client_context.h"
#include "rpc/server/server_interceptor.h"
#include "rpc/testing/fickle_executor.h"
#include "rpc/testing/memory_store.h"
#include "rpc/testing/once_test.h"
#include "rpc/testing/random_world.h"
#include "weft/status.h"

namespace weft::test {
namespace {

// What all servers of a world write to: the disk, where there is one.
struct Books {
  bool has_store = false;
  MemoryStore store;                      // with has_store
  std::map<uint64_t, int> begun;          // how often the handler of each number began
  std::map<uint64_t, int> effects;        // how often it had its effect
  std::map<uint64_t, uint64_t> answered;  // with what
  uint64_t next_answer = 1;
};

// Takes each call through the steps that a real handler has: it begins, has its effect (with a
// store: commits it with the outcome), and answers; the world may end between any two.
class Account final : public Store::Service {
 public:
  using Attempt = UnaryCall<Data, Data>;

  struct Task {
    Attempt attempt;
    bool had_effect = false;
  };

  Account(Books* books, Random random) : books_(*books), random_(random) {}

  void StartLook(Attempt attempt) override { attempt.Finish(absl::OkStatus()); }
  void StartSet(Attempt attempt) override { attempt.Finish(absl::OkStatus()); }
  void StartAdd(Attempt attempt) override {
    ++books_.begun[attempt.request().number()];
    tasks.push_back({std::move(attempt)});
    for (uint64_t steps = random_.Uniform(3); steps > 0 && !tasks.empty(); --steps) {
      Go(tasks.size() - 1);
    }
  }

  // One step of any task.
  void GoOne() {
    if (!tasks.empty()) Go(random_.Uniform(tasks.size()));
  }

  std::deque<Task> tasks;

 private:
  void Go(size_t at) {
    Task& task = tasks[at];
    if (!task.had_effect) {
      if (random_.Chance(0.1)) return End(at, absl::NotFoundError("no such account"));
      if (random_.Chance(0.05)) return End(at, absl::UnavailableError("the bank is closed"));
      return HaveEffect(task);
    }
    if (random_.Chance(0.02)) {
      Task dropped = std::move(task);
      tasks.erase(tasks.begin() + static_cast<ptrdiff_t>(at));
      return;  // it forgets to answer: INTERNAL
    }
    End(at, absl::OkStatus());
  }

  void HaveEffect(Task& task) {
    task.had_effect = true;
    const Data& request = task.attempt.request();
    Data& reply = *task.attempt.reply();
    reply.set_number(books_.next_answer++);
    reply.set_payload(request.payload());
    books_.answered[request.number()] = reply.number();
    ++books_.effects[request.number()];
    // Null: the server keeps no sessions.
    const CompletionId* const id = task.attempt.context().completion_id();
    if (books_.has_store && id != nullptr) {
      books_.store.Commit(*id, request.number(), {absl::OkStatus(), reply.SerializeAsString()});
    }
  }

  void End(size_t at, absl::Status status) {
    Task task = std::move(tasks[at]);
    tasks.erase(tasks.begin() + static_cast<ptrdiff_t>(at));
    task.attempt.Finish(std::move(status));
  }

  Books& books_;
  Random random_;
};

// Lets most attempts pass.
class FickleGuard final : public ServerInterceptor {
 public:
  explicit FickleGuard(Random random) : random_(random) {}
  absl::Status OnStart(IncomingCall&) override {
    return random_.Chance(0.05) ? absl::PermissionDeniedError("not now") : absl::OkStatus();
  }

 private:
  Random random_;
};

// A machine that serves, until it is killed.
struct ServerMachine {
  std::string node;
  std::unique_ptr<Account> service;
  std::unique_ptr<FickleGuard> guard;        // or none
  std::unique_ptr<FickleExecutor> executor;  // or none
  std::unique_ptr<Server> server;
};

struct Call {
  Data reply;
  uint64_t number = 0;
  size_t bytes = 0;
  int completions = 0;
  absl::Status status;
  std::unique_ptr<ClientContext> context;  // or none
};

SimOptions QuickLoss() {
  SimOptions options;
  options.lifeline_timeout_ns = 20 * kNsPerMs;
  return options;
}

class OnceRandomFaults final : private RandomWorld {
 public:
  explicit OnceRandomFaults(uint64_t seed) : RandomWorld(seed, QuickLoss()) {
    books_.has_store = random_.Chance(0.5);
    StartServer();
    channels_.resize(kClients);
    for (int i = 0; i < kClients; ++i) OpenChannel(i);
  }

  ~OnceRandomFaults() {
    channels_.clear();
    for (ServerMachine& machine : machines_) machine.service->tasks.clear();
    machines_.clear();
  }

  void Run() {
    for (int step = 0; step < kSteps; ++step) {
      Step();
      // Often nothing happens in between: the next step comes at the same moment.
      if (random_.Chance(0.7)) network_.RunFor(random_.Uniform(kNsPerMs));
    }
    // The world becomes friendly again, and everything ends.
    for (int i = 0; i < kClients; ++i) Heal(i);
    for (int i = 0; i < 100; ++i) {
      for (size_t n = 2 * service().tasks.size(); n > 0; --n) service().GoOne();
      network_.RunFor(50 * kNsPerMs);
    }
    while (!service().tasks.empty()) service().GoOne();
    network_.RunFor(kNsPerSec);
    network_.CheckInvariants();
    Check();
  }

  uint64_t ok() const { return ok_; }
  uint64_t unknown() const { return unknown_; }
  uint64_t repeated() const { return repeated_; }
  uint64_t kills() const { return machines_.size() - 1; }

 private:
  static constexpr int kClients = 2;
  static constexpr int kSteps = 120;

  Account& service() { return *machines_.back().service; }

  void StartServer() {
    ServerMachine machine;
    machine.node = TakeServerNode();
    machine.service = std::make_unique<Account>(&books_, random_.Fork());
    if (random_.Chance(0.5))
      machine.executor = std::make_unique<FickleExecutor>(random_.Fork(), 0.05);
    ServerOptions options = DrawServerOptions();
    if (random_.Chance(0.3)) {
      machine.guard = std::make_unique<FickleGuard>(random_.Fork());
      options.interceptors = {machine.guard.get()};
    }
    options.session_lease_us = 1'000'000;
    if (random_.Chance(0.1)) options.max_sessions = 1;
    if (random_.Chance(0.1)) options.max_record_bytes = 5'000;
    if (books_.has_store) options.completion_store = &books_.store;
    machine.server = *Server::Create(network_.Node(machine.node), options);
    EXPECT_TRUE(machine.server->AddService(machine.service.get(), machine.executor.get()).ok());
    EXPECT_TRUE(machine.server->Listen("sim:server").ok());
    machines_.push_back(std::move(machine));
  }

  void OpenChannel(int client) {
    ChannelOptions options = DrawChannelOptions();
    options.min_backoff_us = 1'000;
    options.max_backoff_us = 5'000;
    options.retry.exactly_once = true;
    options.retry.max_attempts = Draw(2, kMaxAttempts);
    options.retry.initial_backoff_us = random_.UniformInRange(1, 20'000);
    options.retry.max_backoff_us = random_.UniformInRange(20'000, 2'000'000);
    options.retry.budget_tokens = Draw(3, 1000);
    options.retry.refill_millitokens = Draw(1, 1000);
    channels_[client] = *Channel::Open(ClientNode(client), "sim:server", options);
  }

  void Step() {
    const int client = static_cast<int>(random_.Uniform(kClients));
    switch (random_.Uniform(40)) {
      case 0:
        repeated_ += machines_.back().server->stats().repeated;
        KillServer();
        return StartServer();
      case 1:
      case 2:
        return network_.Partition(ClientName(client), server_node());
      case 3:
        return network_.Cut(server_node(), ClientName(client));
      case 4:
        return network_.SlowDown(server_node(), random_.Uniform(2 * kNsPerMs));
      case 5:
        if (!random_.Chance(0.3)) return;
        channels_[client].reset();
        return OpenChannel(client);
      case 6:
        return network_.RunFor(random_.Uniform(40 * kNsPerMs));  // connections are given up
      case 7:
        if (random_.Chance(0.3)) network_.RunFor(random_.Uniform(2 * kNsPerSec));  // leases end
        return;
      case 8:
      case 9:
      case 10:
      case 11:
        return Heal(client);
      case 12:
        return CancelOneOf(calls_);
      default:
        if (random_.Chance(0.5)) return service().GoOne();
        for (uint64_t n = random_.Uniform(3); n > 0; --n) StartCall(client);
    }
  }

  void StartCall(int client) {
    calls_.push_back(std::make_unique<Call>());
    Call* call = calls_.back().get();
    call->number = calls_.size();
    call->bytes = random_.Chance(0.03) ? random_.Uniform(100'000) : random_.Uniform(300);
    CallOptions options;
    if (random_.Chance(0.3)) options.timeout_us = random_.UniformInRange(1, 100'000);
    options.wait_for_server = random_.Chance(0.6);
    if (random_.Chance(0.4)) {
      call->context = std::make_unique<ClientContext>();
      options.context = call->context.get();
    }
    const Store::Stub stub(*channels_[client]);
    stub.Add(MakeData(call->number, call->bytes), &call->reply, options,
             [call](absl::Status status) {
               ++call->completions;
               call->status = std::move(status);
             });
  }

  void CheckCall(const Call& call) {
    SCOPED_TRACE(testing::Message() << "call " << call.number << ": " << call.status);
    ASSERT_EQ(call.completions, 1);
    const int begun = books_.begun[call.number];
    const int effects = books_.effects[call.number];
    ASSERT_LE(effects, 1);
    if (!books_.has_store) {
      ASSERT_LE(begun, 1);
    }
    if (call.status.ok()) {
      ++ok_;
      ASSERT_EQ(effects, 1);
      ASSERT_EQ(call.reply.number(), books_.answered[call.number]);
      ASSERT_EQ(call.reply.payload().size(), call.bytes);
    }
    if (absl::IsNotFound(call.status)) {
      ASSERT_EQ(effects, 0) << "the handler has refused it";
    }
    if (absl::IsPermissionDenied(call.status) && DeliveryOf(call.status) != Delivery::kMayHaveRun) {
      ASSERT_EQ(effects, 0) << "an interceptor has refused its first attempt";
    }
    if (absl::IsAborted(call.status)) {
      ++unknown_;
    }
    CheckThatItIsTrue(call.status, begun);
  }

  void Check() {
    for (const std::unique_ptr<Call>& call : calls_) {
      CheckCall(*call);
      if (testing::Test::HasFatalFailure()) return;
    }
    for (const std::unique_ptr<Channel>& channel : channels_) {
      ExpectNothingUnderWay(channel->stats());
    }
    const ServerStats stats = machines_.back().server->stats();
    repeated_ += stats.repeated;
    ExpectNothingUnderWay(stats);
    // Nobody uses the sessions: they expire, and everything goes with them.
    network_.RunFor(3 * kNsPerSec);
    const ServerStats last = machines_.back().server->stats();
    EXPECT_EQ(last.sessions, 0u);
    EXPECT_EQ(last.record_bytes, 0u);
    EXPECT_TRUE(books_.store.sessions.empty());
    EXPECT_TRUE(books_.store.outcomes.empty());
  }

  Books books_;
  std::deque<ServerMachine> machines_;  // the last one lives
  std::vector<std::unique_ptr<Channel>> channels_;
  std::deque<std::unique_ptr<Call>> calls_;
  uint64_t ok_ = 0;
  uint64_t unknown_ = 0;
  uint64_t repeated_ = 0;
};

TEST(OnceRandomFaultsTest, EveryCallEndsOnceAndNoEffectComesTwice) {
  uint64_t ok = 0;
  uint64_t unknown = 0;
  uint64_t repeated = 0;
  uint64_t kills = 0;
  const uint64_t seeds = ForEachSeed(150, [&](uint64_t seed) {
    OnceRandomFaults world(seed);
    world.Run();
    ok += world.ok();
    unknown += world.unknown();
    repeated += world.repeated();
    kills += world.kills();
  });
  if (seeds == 0) return;
  std::cout << seeds << " seeds: " << ok << " calls ended well, " << unknown
            << " with an unknown outcome; " << repeated << " attempts were answered from records, "
            << kills << " servers were killed\n";
  EXPECT_GT(ok, 10 * seeds);
  EXPECT_GT(repeated, seeds / 5);
  EXPECT_GT(unknown, seeds / 50);
}

// --- each moment in turn ------------------------------------------------------------------------

// One call, and one fault at each microsecond of its life.
class OneFault : public OnceTest {
 protected:
  void TestBody() override {}

 public:
  OneFault() : account_(&books_, Random(1)) {}
  ~OneFault() override {
    stub_.reset();
    channel_.reset();
    account_.tasks.clear();
    server_.reset();
    killed_.clear();
  }

  void Serve() {
    ServerOptions options;
    if (books_.has_store) options.completion_store = &books_.store;
    server_ = *Server::Create(network_.Node(server_node_), options);
    ASSERT_TRUE(server_->AddService(&account_).ok());
    ASSERT_TRUE(server_->Listen("sim:server").ok());
  }

  void Kill() {
    network_.Kill(server_node_);
    network_.fabric().RemoveListener("server", network_.fabric().IdOf(server_node_));
    server_node_ += "'";
    killed_.push_back(std::move(server_));
    for (Account::Task& task : account_.tasks) lost_tasks_.push_back(std::move(task));
    account_.tasks.clear();
  }

  // False: the call had ended before `at_ns`.
  bool Run(uint64_t at_ns, bool has_store, bool kill) {
    books_.has_store = has_store;
    Serve();
    ChannelOptions options = Once();
    options.connect_at_once = false;
    OpenChannel(options);
    RetriedOutcome outcome;
    Add(outcome, {.wait_for_server = true});
    // The handler takes a step every 20 us.
    const uint64_t begin_ns = clock().NowNs();
    uint64_t next_ns = begin_ns;
    const auto run_until = [&](uint64_t end_ns) {
      while (clock().NowNs() < end_ns && !outcome.done()) {
        network_.RunFor(std::min<uint64_t>(20'000, end_ns - clock().NowNs()));
        if (clock().NowNs() >= next_ns) {
          account_.GoOne();
          next_ns += 20'000;
        }
      }
    };
    run_until(begin_ns + at_ns);
    const bool ended = outcome.done();
    if (kill) {
      Kill();
      Serve();
    } else {
      network_.Partition("client", server_node_);
      network_.RunFor(3 * kNsPerSec / 2);
      network_.Heal("client", server_node_);
    }
    next_ns = clock().NowNs();
    run_until(clock().NowNs() + 10 * kNsPerSec);
    EXPECT_EQ(outcome.completions, 1);
    const bool knows = has_store || !kill;
    const bool refused = absl::IsNotFound(outcome.status) || absl::IsUnavailable(outcome.status);
    EXPECT_TRUE(outcome.status.ok() || refused || (!knows && absl::IsAborted(outcome.status)))
        << outcome.status;
    EXPECT_LE(books_.effects[7], 1);
    if (outcome.status.ok()) {
      EXPECT_EQ(books_.effects[7], 1);
      EXPECT_EQ(outcome.reply.number(), books_.answered[7]);
    }
    return !ended;
  }

 private:
  Books books_;
  Account account_;
  std::vector<std::unique_ptr<Server>> killed_;
  std::deque<Account::Task> lost_tasks_;
};

TEST(OnceAtEachMomentTest, AKilledServerOrALostConnectionDoesNoHarm) {
  if (GivenSeeds().one) return;
  for (const bool has_store : {true, false}) {
    for (const bool kill : {true, false}) {
      bool under_way = true;
      int moments = 0;
      for (uint64_t at_ns = 0; under_way; at_ns += 1'000) {
        SCOPED_TRACE(testing::Message()
                     << "store " << has_store << ", kill " << kill << ", at " << at_ns << " ns");
        OneFault world;
        under_way = world.Run(at_ns, has_store, kill);
        ++moments;
        if (testing::Test::HasFailure()) return;
      }
      EXPECT_GT(moments, 50);
    }
  }
}

}  // namespace
}  // namespace weft::test

int main(int argc, char** argv) { return weft::test::RunWithSeeds(argc, argv); }
