// Legal but odd programs whose streams lend memory: what they do in callbacks, and while memory is
// being reclaimed.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/random.h"
#include "rpc/client/client_calls.h"
#include "rpc/client/client_connection.h"
#include "rpc/testing/payload_test.h"
#include "rpc/testing/peer_machine.h"
#include "rpc/testing/random_world.h"
#include "weft/status.h"

namespace weft::test {
namespace {

using State = BulkCall::State;
using ClientStreamOf = ClientReaderWriter<Part, Part>;

// The wire takes 1 ms for 1 MB: a transfer of this size is under way for 4 ms.
constexpr size_t kLong = 4'000'000;

class StreamBulkAttackTest : public PayloadTest {
 protected:
  explicit StreamBulkAttackTest(const SimOptions& options = {}) : PayloadTest(options) {}

  ClientStreamOf Open(BulkCall& bulk, CallOptions options = {}) {
    options.bulk = &bulk;
    const size_t before = service_.carried.size();
    ClientStreamOf client = stub_->Carry(options);
    EXPECT_TRUE(RunUntil([&] { return service_.carried.size() > before; }));
    return client;
  }
  // What is started waits until an attempt to connect has failed.
  void StartOutOfReach() {
    server_ = *Server::Create(server_engine(), {});
    ASSERT_TRUE(server_->AddService(&service_).ok());
    ASSERT_TRUE(server_->Listen("sim:server").ok());
    client();
    network_.Partition("client", "server");
    ChannelOptions options;
    options.connect_at_once = false;
    OpenChannel(options);
  }
  PayloadService::HeldStream TakeCarried() {
    PayloadService::HeldStream stream = std::move(service_.carried.front());
    service_.carried.pop_front();
    return stream;
  }
  absl::Status Finish(ClientStreamOf& stream) {
    return EndOf([&](auto done) { stream.Finish(std::move(done)); });
  }

  GuardedMemory memory_{kLong};
};

// As on tcp and iWARP: memory is reclaimed some time after the server is done with it.
class SlowReclaimTest : public StreamBulkAttackTest {
 public:
  static SimOptions Late() {
    SimOptions options;
    options.late_placing_ns = 50'000;
    return options;
  }

 protected:
  SlowReclaimTest() : StreamBulkAttackTest(Late()) {}
};

// The stream had left its connection when the server's end came, but went on as open until its
// memory was reclaimed: a write in between looked for the credit of a connection that was not
// there, and crashed.
TEST_F(SlowReclaimTest, AWriteWhileTheMemoryOfAnEndedStreamIsReclaimedFindsItOver) {
  Start();
  BulkCall bulk(*channel_);
  bulk.Receive(memory_.slice(0, 1000));
  ClientStreamOf client = Open(bulk);
  PayloadService::HeldStream server = TakeCarried();
  server.Finish(absl::OkStatus());
  ASSERT_TRUE(RunUntil([&] { return channel_->stats().streams == 0; }));
  EXPECT_EQ(bulk.state(), State::kPinned);
  Part part;
  EXPECT_EQ(client.TryWrite(part), StreamResult::kOver);
  bool read = true;
  client.Read(&part, [&](bool ok) { read = ok; });
  ASSERT_TRUE(RunUntil([&] { return !read; }));
  std::optional<bool> written;
  client.Write(part, [&](bool ok) { written = ok; });
  ASSERT_TRUE(RunUntil([&] { return written.has_value(); }));
  EXPECT_FALSE(*written);
  EXPECT_TRUE(Finish(client).ok());
  EXPECT_EQ(bulk.state(), State::kReclaimed);
}

// The same of a write that waited: it is over with the end, and need not wait for the memory.
TEST_F(SlowReclaimTest, AWriteThatWaitsAtTheEndIsOver) {
  ChannelOptions options;
  ServerOptions server_options;
  server_options.stream_window_messages = 1;
  Start(options, server_options);
  BulkCall bulk(*channel_);
  bulk.Receive(memory_.slice(0, 1000));
  ClientStreamOf client = Open(bulk);
  PayloadService::HeldStream server = TakeCarried();
  Part part;
  ASSERT_EQ(client.TryWrite(part), StreamResult::kDone);
  std::optional<bool> written;
  client.Write(part, [&](bool ok) { written = ok; });
  server.Finish(absl::OkStatus());
  ASSERT_TRUE(RunUntil([&] { return written.has_value(); }));
  EXPECT_FALSE(*written);
  EXPECT_TRUE(Finish(client).ok());
}

// When no server was there, the streams that waited were ended one after the other in their list,
// and who waited for the memory of one of them was told in the middle of that: if he dropped
// another one, the walk went on from a stream that was on no list.
TEST_F(StreamBulkAttackTest, WhoIsToldOfOneThatNeverOpenedMayDropTheOthersThatWait) {
  StartOutOfReach();
  std::deque<BulkCall> bulks;
  std::deque<std::optional<ClientStreamOf>> streams(4);
  for (auto& stream : streams) {
    BulkCall& bulk = bulks.emplace_back(*channel_);
    bulk.Receive(memory_.slice(0, 1000));
    CallOptions call;
    call.bulk = &bulk;
    stream.emplace(stub_->Carry(call));
  }
  bool told = false;
  bulks[0].WhenReclaimed([&] {
    told = true;
    streams[1].reset();
    streams[2].reset();
  });
  ASSERT_TRUE(RunUntil([&] { return told; }));
  network_.RunFor(kNsPerMs);
  EXPECT_EQ(channel_->stats().calls_failed, 4u);
}

// The same walk came to the streams that were started meanwhile: two programs that tried again as
// soon as they had their memory back did so for ever, and the engine did nothing else.
TEST_F(StreamBulkAttackTest, WhoTriesAgainAtOnceWithTheSameMemoryWaitsForTheNextAttempt) {
  StartOutOfReach();
  BulkCall bulk(*channel_);
  bulk.Receive(memory_.slice(0, 1000));
  BulkCall other(*channel_);
  other.Receive(memory_.slice(1000, 1000));
  struct Program {
    BulkCall& bulk;
    std::optional<ClientStreamOf> stream = {};
    int tries = 0;
  };
  Program programs[] = {{bulk}, {other}};
  std::function<void(Program&)> start = [&](Program& program) {
    if (++program.tries > 100) return;
    CallOptions call;
    call.bulk = &program.bulk;
    program.stream.emplace(stub_->Carry(call));
    program.bulk.WhenReclaimed([&] { start(program); });
  };
  for (Program& program : programs) start(program);
  network_.RunFor(10 * kNsPerSec);
  for (Program& program : programs) {
    EXPECT_LT(program.tries, 50);
    program.tries = 100;
    program.stream.reset();
  }
  network_.Settle();
}

// A BulkCall whose payload happens to be empty has no window. No server releases a stream that lent
// nothing, so that after a cancel it stayed pinned as long as the handler liked, and its destructor
// ended a connection that was as good as before.
TEST_F(StreamBulkAttackTest, WhatLendsNothingIsNotWaitedFor) {
  Start();
  auto bulk = std::make_unique<BulkCall>(*channel_);
  Bulk field;
  bulk->Send(memory_.slice(0, 0), &field);
  std::optional<ClientStreamOf> client(Open(*bulk));
  PayloadService::HeldStream server = TakeCarried();
  client->Cancel();
  EXPECT_TRUE(absl::IsCancelled(Finish(*client)));
  EXPECT_EQ(bulk->state(), State::kReclaimed);
  bulk.reset();
  client.reset();
  network_.RunFor(10 * kNsPerMs);
  Parcel reply;
  EXPECT_TRUE(stub_->Store(Part(), &reply).ok());
  EXPECT_EQ(channel_->stats().connects, 1u);
  server.Finish(absl::OkStatus());
  network_.Settle();
  EXPECT_EQ(channel_->stats().connects, 1u);
  EXPECT_EQ(channel_->stats().streams, 0u);
}

// The same of a call.
TEST_F(StreamBulkAttackTest, ACallThatLendsNothingIsNotWaitedFor) {
  Start();
  auto bulk = std::make_unique<BulkCall>(*channel_);
  bulk->Send(memory_.slice(0, 0), request_.mutable_data());
  ParcelOutcome outcome;
  CallOptions options;
  options.timeout_us = 1000;
  StartHeld(*bulk, &outcome, options);
  ASSERT_TRUE(RunUntil([&] { return outcome.done(); }));
  EXPECT_TRUE(absl::IsDeadlineExceeded(outcome.status));
  EXPECT_EQ(bulk->state(), State::kReclaimed);
  bulk.reset();
  network_.RunFor(10 * kNsPerMs);
  Parcel reply;
  EXPECT_TRUE(stub_->Store(Part(), &reply).ok());
  EXPECT_EQ(channel_->stats().connects, 1u);
  service_.held.clear();
  network_.Settle();
  EXPECT_EQ(channel_->stats().connects, 1u);
}

// A stream that was finished with transfers under way was ended with the last of them, and not told
// of it before: a read that waited could still get a message, for a handler that was gone.
TEST_F(StreamBulkAttackTest, AReadThatWaitsWhenItsStreamIsFinishedEndsThoughTransfersAreUnderWay) {
  Start();
  BulkCall bulk(*channel_);
  bulk.Receive(memory_.all());
  ClientStreamOf client = Open(bulk);
  PayloadService::HeldStream server = TakeCarried();
  server.context().bulk().Write(service_.memory().slice(0, kLong), 1, 0, nullptr);
  Part part;
  std::optional<bool> read;
  server.Read(&part, [&](bool ok) { read = ok; });
  server.Finish(absl::OkStatus());
  EXPECT_EQ(client.TryWrite(Part()), StreamResult::kDone);
  EXPECT_TRUE(Finish(client).ok());
  ASSERT_TRUE(read.has_value());
  EXPECT_FALSE(*read);
}

// And what came meanwhile was kept for that handler: when it was too much, the stream failed,
// though it had been finished with OK.
TEST_F(StreamBulkAttackTest, WhatAFinishedStreamsClientSendsDoesNotFailIt) {
  ServerOptions options;
  options.max_running_bytes = 2000;
  options.max_request_bytes = 1000;
  Start({}, options);
  BulkCall bulk(*channel_);
  bulk.Receive(memory_.all());
  ClientStreamOf client = Open(bulk);
  PayloadService::HeldStream server = TakeCarried();
  server.context().bulk().Write(service_.memory().slice(0, kLong), 1, 0, nullptr);
  server.Finish(absl::OkStatus());
  // More than the server holds of what nobody reads.
  Part part;
  part.set_offset(~uint64_t{0});
  part.set_length(~uint64_t{0});
  part.mutable_data()->set_length(~uint64_t{0});
  part.mutable_data()->set_offset(~uint64_t{0});
  size_t written = 0;
  while (client.TryWrite(part) == StreamResult::kDone) written += part.ByteSizeLong();
  EXPECT_GT(written, options.max_running_bytes);
  const absl::Status status = Finish(client);
  EXPECT_TRUE(status.ok()) << status;
}

// --- peers ---------------------------------------------------------------------------------------

class PeerStreamBulkTest : public PeerTest {
 protected:
  PeerStreamBulkTest() : PeerTest(/*seed=*/1, SlowReclaimTest::Late()) {}
};

// Releases, ends and opens with any number of windows, both ways at once on one connection.
TEST_F(PeerStreamBulkTest, StreamsOfBothSidesLendMemory) {
  PeerMachine& a = Start("a");
  PeerMachine& b = Start("b");
  a.Open("b");
  b.Open("a");
  ASSERT_TRUE(BothReady(a, b));
  PeerMachine* const machines[] = {&a, &b};
  GuardedMemory memory(2 * 8000);
  for (uint32_t windows = 1; windows <= kMaxWindows; ++windows) {
    for (const bool cancel : {false, true}) {
      SCOPED_TRACE(testing::Message() << windows << cancel);
      std::optional<BulkCall> bulks[2];
      std::optional<ClientStreamOf> streams[2];
      std::optional<absl::Status> ended[2];
      int pushed = 0;
      for (int i = 0; i < 2; ++i) {
        Channel& channel = machines[i]->to(machines[1 - i]->id());
        bulks[i].emplace(channel);
        for (uint32_t w = 0; w < windows; ++w) {
          bulks[i]->Receive(memory.slice(i * 8000 + w * 1000, 1000));
        }
        CallOptions options;
        options.bulk = &*bulks[i];
        streams[i].emplace(Payloads::Stub(channel).Carry(options));
      }
      ASSERT_TRUE(RunUntil(
          [&] { return a.payloads.carried.size() == 1 && b.payloads.carried.size() == 1; }));
      for (int i = 0; i < 2; ++i) {
        PayloadService& served = machines[i]->payloads;
        ServerBulk& bulk = served.carried.front().context().bulk();
        ASSERT_EQ(bulk.window_count(), windows);
        bulk.Write(served.memory().slice(0, 1000), windows, 0, [&](const absl::Status& status) {
          EXPECT_TRUE(status.ok()) << status;
          ++pushed;
        });
      }
      ASSERT_TRUE(RunUntil([&] { return pushed == 2; }));
      for (int i = 0; i < 2; ++i) {
        if (cancel) {
          streams[i]->Cancel();
        } else {
          machines[i]->payloads.carried.front().Finish(absl::OkStatus());
        }
        streams[i]->Finish([&ended, i](absl::Status status) { ended[i] = std::move(status); });
      }
      ASSERT_TRUE(RunUntil([&] {
        return ended[0] && ended[1] && bulks[0]->state() == State::kReclaimed &&
               bulks[1]->state() == State::kReclaimed;
      }));
      for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(ended[i]->ok(), !cancel) << *ended[i];
        machines[i]->payloads.carried.clear();
        streams[i].reset();
      }
      RunFor(kNsPerMs);
    }
  }
  EXPECT_EQ(a.to("b").stats().connects, 1u);
  EXPECT_EQ(b.to("a").stats().connects, 1u);
}

TEST_F(PeerStreamBulkTest, AChannelThatGoesWhileItsStreamsMemoryIsReclaimedGetsItBack) {
  PeerMachine& a = Start("a");
  PeerMachine& b = Start("b");
  a.Open("b");
  b.Open("a");
  ASSERT_TRUE(BothReady(a, b));
  GuardedMemory memory(1000);
  BulkCall bulk(a.to("b"));
  bulk.Receive(memory.all());
  CallOptions options;
  options.bulk = &bulk;
  std::optional<ClientStreamOf> stream(Payloads::Stub(a.to("b")).Carry(options));
  ASSERT_TRUE(RunUntil([&] { return !b.payloads.carried.empty(); }));
  b.payloads.carried.front().Finish(absl::OkStatus());
  ASSERT_TRUE(RunUntil([&] { return a.to("b").stats().streams == 0; }));
  EXPECT_EQ(bulk.state(), State::kPinned);
  stream.reset();
  a.Close("b");
  EXPECT_TRUE(bulk.WaitReclaimed(1'000'000));
  b.payloads.carried.clear();
  // The connection went with it, and b makes another one.
  ASSERT_TRUE(RunUntil([&] { return b.to("a").stats().connects == 2; }));
  EXPECT_TRUE(Echo(b, "a").ok());
}

// --- whatever programs may do --------------------------------------------------------------------

// Clients and handlers that do anything at all in every callback, while machines die and wires are
// cut. What was reclaimed is filled, and must stay as it is until it is lent again.
class Programs {
 public:
  explicit Programs(uint64_t seed) : random_(seed), network_(seed, OptionsOf(random_)) {
    StartServer();
    for (int i = 0; i < kClients; ++i) {
      network_.Node(ClientName(i));
      OpenChannel(i);
    }
    for (int i = 0; i < kMemories; ++i) memories_.emplace_back(kLent);
  }
  ~Programs() {
    over_ = true;
    for (auto& server : servers_) server->streams.clear();
    network_.Settle();
    for (auto& talk : talks_) talk->handle.reset();
    for (auto& stub : stubs_) stub.reset();
    for (auto& channel : channels_) channel.reset();
    network_.Settle();
    for (auto& server : servers_) {
      server->streams.clear();
      server->server.reset();
    }
    network_.Settle();
  }

  void Run() {
    for (int step = 0; step < 150; ++step) {
      Fault();
      Something();
      network_.RunFor(random_.Uniform(random_.Chance(0.1) ? 20 * kNsPerMs : 200'000));
      network_.CheckInvariants();
      if (testing::Test::HasFailure()) return;
    }
    over_ = true;
    for (int i = 0; i < kClients; ++i) Heal(i);
    for (size_t n = 0; n < talks_.size(); ++n) talks_[n]->handle.reset();
    // Opens may still be on their way.
    for (int i = 0; i < 2; ++i) {
      for (auto& server : servers_) {
        if (!server->dead) FinishAll(*server);
      }
      network_.RunFor(5 * kNsPerSec);
    }
    for (auto& channel : channels_) {
      EXPECT_EQ(channel->stats().streams, 0u);
      internal::ConnectionOf(*channel).calls().CheckInvariants();
    }
    for (auto& server : servers_) {
      EXPECT_EQ(server->server->stats().protocol_errors, 0u);
      if (!server->dead) {
        EXPECT_EQ(server->server->stats().running, 0u);
      }
    }
    for (auto& talk : talks_) {
      if (talk->bulk == nullptr) continue;
      ASSERT_EQ(talk->bulk->state(), State::kReclaimed) << talk->number;
      CheckWhole(*talk);
    }
  }

 private:
  static constexpr int kClients = 2;
  static constexpr int kMemories = 12;
  static constexpr size_t kLent = 30'000;
  using Served = PayloadService::HeldStream;

  struct Memory {
    explicit Memory(size_t bytes) : guarded(bytes) {}
    GuardedMemory guarded;
    bool taken = false;
  };
  struct Talk {
    uint64_t number = 0;
    int client = 0;
    std::optional<ClientStreamOf> handle;
    std::unique_ptr<BulkCall> bulk;
    Memory* memory = nullptr;
    bool ours = false;  // filled
    bool reading = false, writing = false, finishing = false;
    Part in, out;
  };
  struct Serving {
    std::optional<Served> handle;
    bool reading = false, writing = false;
    Part in, out, place, pushed;
  };
  class Machine final : public Payloads::Service {
   public:
    void StartCarry(Served stream) override { owner->OnCarry(*this, std::move(stream)); }
    Programs* owner = nullptr;
    std::string node;
    bool dead = false;
    GuardedMemory memory{kLent};
    std::vector<std::shared_ptr<Serving>> streams;
    std::unique_ptr<Server> server;
  };

  static SimOptions OptionsOf(Random& random) {
    SimOptions options;
    if (random.Chance(0.6)) options.late_placing_ns = random.Uniform(300'000);
    if (random.Chance(0.4)) options.done_at_once_percent = 50;
    return options;
  }
  static std::string ClientName(int i) { return "client" + std::to_string(i); }
  void Heal(int i) { network_.Heal(ClientName(i), servers_.back()->node); }

  void StartServer() {
    auto machine = std::make_unique<Machine>();
    machine->owner = this;
    machine->node = "server" + std::to_string(servers_.size());
    ServerOptions options;
    options.max_streams = static_cast<uint32_t>(random_.UniformInRange(1, 6));
    options.link.window_slots = static_cast<uint32_t>(random_.UniformInRange(4, 16));
    options.link.max_outstanding_operations = static_cast<uint32_t>(random_.UniformInRange(1, 4));
    options.stream_window_messages = static_cast<uint32_t>(random_.UniformInRange(1, 10));
    machine->server = *Server::Create(network_.Node(machine->node), options);
    EXPECT_TRUE(machine->server->AddService(machine.get()).ok());
    EXPECT_TRUE(machine->server->Listen("sim:server").ok());
    servers_.push_back(std::move(machine));
  }
  void OpenChannel(int i) {
    ChannelOptions options;
    options.connect_at_once = false;
    options.link.window_slots = static_cast<uint32_t>(random_.UniformInRange(4, 16));
    if (random_.Chance(0.3)) options.max_queued_calls = 2;
    channels_[i] = *Channel::Open(network_.Node(ClientName(i)), "sim:server", options);
    stubs_[i].emplace(*channels_[i]);
  }

  void Fault() {
    const int i = static_cast<int>(random_.Uniform(kClients));
    switch (random_.Uniform(40)) {
      case 0: {
        Machine& old = *servers_.back();
        old.dead = true;
        network_.Kill(old.node);
        network_.fabric().RemoveListener("server", network_.fabric().IdOf(old.node));
        return StartServer();
      }
      case 1:
        return network_.Partition(ClientName(i), servers_.back()->node);
      case 2:
        return network_.Cut(servers_.back()->node, ClientName(i));
      case 3:
        return network_.SlowDown(servers_.back()->node, random_.Uniform(kNsPerMs));
      case 4: {
        stubs_[i].reset();
        for (size_t n = 0; n < talks_.size(); ++n) {
          if (talks_[n]->client == i) talks_[n]->handle.reset();
        }
        channels_[i].reset();
        return OpenChannel(i);
      }
      case 5:
      case 6:
      case 7:
      case 8:
        return Heal(i);
      default:
        return;
    }
  }

  void Something() {
    if (over_ || depth_ > 6) return;
    ++depth_;
    for (uint64_t n = random_.Uniform(4); n > 0; --n) {
      if (talks_.empty() || random_.Chance(0.2)) {
        StartTalk(static_cast<int>(random_.Uniform(kClients)));
      } else if (random_.Chance(0.5)) {
        DoClient(talks_[talks_.size() - 1 - random_.Uniform(std::min<size_t>(8, talks_.size()))]);
      } else {
        DoServer(*servers_.back());
      }
    }
    --depth_;
  }

  // --- clients -----------------------------------------------------------------------------------

  void CheckWhole(Talk& talk) {
    if (!talk.ours) return;
    ASSERT_TRUE(talk.memory->guarded.Holds(77)) << "of " << talk.number;
    ASSERT_TRUE(talk.memory->guarded.CanariesLive());
  }
  void StartTalk(int client) {
    if (!stubs_[client]) return;
    auto talk = std::make_shared<Talk>();
    for (Memory& memory : memories_) {
      if (memory.taken) continue;
      memory.taken = true;
      talk->memory = &memory;
      break;
    }
    talk->number = talks_.size();
    talk->client = client;
    CallOptions options;
    if (talk->memory != nullptr) {
      talk->bulk = std::make_unique<BulkCall>(*channels_[client]);
      if (!random_.Chance(0.1)) talk->bulk->Receive(talk->memory->guarded.slice(0, kLent / 2));
      if (random_.Chance(0.5)) talk->bulk->Lend(talk->memory->guarded.slice(kLent / 2, 1000));
      options.bulk = talk->bulk.get();
    }
    if (random_.Chance(0.4)) options.timeout_us = random_.UniformInRange(1, 30'000);
    options.wait_for_server = options.timeout_us != 0 && random_.Chance(0.3);
    options.priority = static_cast<Priority>(random_.Uniform(3));
    talks_.push_back(talk);
    talk->handle.emplace(stubs_[client]->Carry(options));
    if (talk->bulk != nullptr) WatchBulk(talk);
  }
  void WatchBulk(const std::shared_ptr<Talk>& talk) {
    talk->bulk->WhenReclaimed([this, talk] {
      talk->memory->guarded.Fill(77);
      talk->ours = true;
      if (random_.Chance(0.3)) talk->handle.reset();
      Something();
      if (!over_ && !talk->handle && talk->bulk != nullptr && talk->ours && random_.Chance(0.4) &&
          stubs_[talk->client]) {
        // The same again, at once.
        CheckWhole(*talk);
        talk->ours = false;
        auto next = std::make_shared<Talk>();
        next->number = talks_.size();
        next->client = talk->client;
        next->memory = talk->memory;
        next->bulk = std::move(talk->bulk);
        talks_.push_back(next);
        CallOptions options;
        options.bulk = next->bulk.get();
        if (random_.Chance(0.5)) options.timeout_us = random_.UniformInRange(1, 3000);
        next->handle.emplace(stubs_[next->client]->Carry(options));
        return WatchBulk(next);
      }
      if (random_.Chance(0.3)) Release(*talk);
      Something();
    });
  }
  // Its memory is for another.
  void Release(Talk& talk) {
    if (!talk.ours || talk.bulk == nullptr || talk.bulk->state() != State::kReclaimed) return;
    CheckWhole(talk);
    talk.ours = false;
    talk.bulk.reset();
    talk.memory->taken = false;
  }
  void DoClient(std::shared_ptr<Talk> talk) {
    if (!talk->handle) return Release(*talk);
    switch (random_.Uniform(12)) {
      case 0:
        return talk->handle->Cancel();
      case 1:
        return talk->handle.reset();
      case 2:
        if (talk->finishing) return;
        talk->finishing = true;
        return talk->handle->Finish([this, talk](const absl::Status& status) {
          EXPECT_EQ(status.message().find("malformed"), absl::string_view::npos) << status;
          if (talk->bulk != nullptr && random_.Chance(0.5)) Release(*talk);
          if (random_.Chance(0.5)) talk->handle.reset();
          Something();
        });
      case 3:
      case 4:
      case 5:
        if (talk->reading) return;
        talk->reading = true;
        return talk->handle->Read(&talk->in, [this, talk](bool) {
          talk->reading = false;
          Something();
        });
      case 6:
      case 7:
        if (talk->writing || talk->finishing) return;
        talk->writing = true;
        Describe(*talk);
        return talk->handle->Write(talk->out, [this, talk](bool) {
          talk->writing = false;
          Something();
        });
      case 8:
        if (talk->writing || talk->finishing) return;
        return talk->handle->WritesDone();
      default:
        if (talk->writing || talk->finishing) return;
        Describe(*talk);
        talk->handle->TryWrite(talk->out);
    }
  }
  void Describe(Talk& talk) {
    if (talk.bulk == nullptr) return;
    const size_t at = random_.Uniform(kLent / 2);
    const Slice part = talk.memory->guarded.slice(at, random_.Uniform(kLent / 2 - at) + 1);
    static_cast<void>(talk.bulk->Describe(part, talk.out.mutable_data()));
  }

  // --- servers -----------------------------------------------------------------------------------

  void OnCarry(Machine& machine, Served stream) {
    auto serving = std::make_shared<Serving>();
    serving->handle.emplace(std::move(stream));
    machine.streams.push_back(serving);
    if (random_.Chance(0.5)) {
      serving->handle->context().OnCancel([this, &machine, weak = std::weak_ptr<Serving>(serving)] {
        const auto told = weak.lock();
        if (told != nullptr && random_.Chance(0.5)) FinishNow(*told);
        if (!machine.dead) DoServer(machine);
      });
    }
    for (uint64_t n = random_.Uniform(4); n > 0; --n) DoServer(machine);
  }
  void FinishNow(Serving& serving) {
    if (!serving.handle) return;
    Served stream = *std::move(serving.handle);
    serving.handle.reset();
    if (random_.Chance(0.2)) return;  // dropped
    stream.Finish(random_.Chance(0.8) ? absl::OkStatus() : absl::AbortedError("as it likes"));
  }
  void FinishAll(Machine& machine) {
    for (auto& serving : std::vector(machine.streams)) FinishNow(*serving);
  }
  void DoServer(Machine& machine) {
    if (over_ || depth_ > 6 || machine.streams.empty()) return;
    ++depth_;
    Do(machine, machine.streams[machine.streams.size() - 1 -
                                random_.Uniform(std::min<size_t>(6, machine.streams.size()))]);
    --depth_;
  }
  void Do(Machine& machine, std::shared_ptr<Serving> serving) {
    if (!serving->handle) return;
    ServerBulk& bulk = serving->handle->context().bulk();
    const auto again = [this, &machine, serving](const absl::Status&) {
      if (random_.Chance(0.2)) FinishNow(*serving);
      if (!machine.dead) DoServer(machine);
    };
    switch (random_.Uniform(12)) {
      case 0:
        return FinishNow(*serving);
      case 1:
      case 2:
      case 3:
        if (serving->reading) return;
        serving->reading = true;
        return serving->handle->Read(&serving->in, [this, &machine, serving](bool ok) {
          serving->reading = false;
          if (!ok && random_.Chance(0.5)) return FinishNow(*serving);
          if (!machine.dead) DoServer(machine);
        });
      case 4:
        if (serving->writing) return;
        serving->writing = true;
        return serving->handle->Write(serving->out, [this, &machine, serving](bool) {
          serving->writing = false;
          if (!machine.dead) DoServer(machine);
        });
      case 5:
        return bulk.Fetch(serving->in.data(), machine.memory.all(), again);
      case 6:
      case 7: {
        const Slice part = machine.memory.slice(0, random_.Uniform(kLent / 2));
        if (random_.Chance(0.3))
          return bulk.Push(part, serving->in.data(), serving->pushed.mutable_data(), {}, nullptr);
        return bulk.Push(part, serving->in.data(), serving->pushed.mutable_data(), {}, again);
      }
      default: {
        const uint64_t room = bulk.writable_bytes(1);
        if (room == 0) return;
        const uint64_t at = random_.Uniform(room);
        const Slice part = machine.memory.slice(0, random_.Uniform(room - at) + 1);
        if (random_.Chance(0.3)) return bulk.Write(part, 1, at, nullptr);
        return bulk.Write(part, 1, at, again);
      }
    }
  }

  Random random_;
  std::deque<Memory> memories_;
  SimNetwork network_;
  bool over_ = false;
  int depth_ = 0;
  std::vector<std::unique_ptr<Machine>> servers_;  // the last one lives
  std::unique_ptr<Channel> channels_[kClients];
  std::optional<Payloads::Stub> stubs_[kClients];
  std::vector<std::shared_ptr<Talk>> talks_;
};

TEST(StreamBulkProgramsTest, WhateverTheyDoMemoryComesBackOnceAndUntouched) {
  ForEachSeed(50, [](uint64_t seed) { Programs(seed).Run(); });
}

}  // namespace
}  // namespace weft::test

int main(int argc, char** argv) { return weft::test::RunWithSeeds(argc, argv); }
