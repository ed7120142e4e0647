// Streams under random faults: whatever happens to machines and wires, every stream ends exactly
// once, every read and write that waits ends once, messages come in order and whole, credits are
// conserved, and slots and memory are back; what a stream has lent is touched by nobody once it is
// reclaimed.
//
// Replay a failure: --seed=N
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/random.h"
#include "rpc/client/bulk_call.h"
#include "rpc/client/client_streams.h"
#include "rpc/testing/payload_service.h"
#include "rpc/testing/random_world.h"
#include "rpc/testing/stream_test.h"
#include "rpc/testing/ticks.h"

namespace weft::test {
namespace {

constexpr uint8_t kReclaimed = 77;  // what memory is filled with that is its owner's again

// What message `number` of stream `id` is.
size_t SizeOf(uint64_t id, uint64_t number) {
  const uint64_t mixed = (id * 31 + number) * 2654435761u % 1000;
  return mixed < 20 ? 9'000 + mixed * 3000 : mixed % 400;
}
void Fill(uint64_t id, uint64_t number, Data* data) {
  data->set_number(number);
  data->mutable_payload()->assign(SizeOf(id, number), static_cast<char>('a' + (id + number) % 26));
}

// Reads and writes by callback, at either end, while it is not paused. Counts what is under way.
template <class Handle>
struct Talker {
  std::optional<Handle> handle;
  Data in;
  Data out;
  bool paused_reads = false;
  bool reading = false;
  bool writing = false;
  bool reads_over = false;
  bool writes_over = false;
  uint64_t read = 0;
  uint64_t written = 0;

  void Read(Function<void()> then) {
    if (reading || reads_over || paused_reads || !handle) return;
    reading = true;
    handle->Read(&in, [this, then = std::move(then)](bool ok) mutable {
      ASSERT_TRUE(std::exchange(reading, false)) << "it ends twice";
      if (!ok) reads_over = true;
      then();
    });
  }
  void Write(const Data& message, Function<void()> then) {
    if (writing || writes_over || !handle) return;
    writing = true;
    if (&message != &out) out = message;
    handle->Write(out, [this, then = std::move(then)](bool ok) mutable {
      ASSERT_TRUE(std::exchange(writing, false)) << "it ends twice";
      if (ok) ++written;
      if (!ok) writes_over = true;
      then();
    });
  }
};

// Echoes in order what it reads.
class Echoing final : public Streams::Service {
 public:
  using Handle = ServerReaderWriter<Data, Data>;
  using Server = Talker<Handle>;

  // Streams that lend memory find parts of `source` there.
  Echoing(Random random, GuardedMemory* source) : source_(*source), random_(random) {}

  void StartTalk(Handle stream) override {
    talkers.push_back(std::make_unique<Server>());
    Server* const talker = talkers.back().get();
    talker->handle.emplace(std::move(stream));
    if (random_.Chance(0.1)) return Finish(*talker, absl::AbortedError("handlers may fail"));
    Next(*talker);
  }
  void Next(Server& talker) {
    talker.Read([this, &talker] { OnRead(talker); });
  }
  void OnRead(Server& talker) {
    if (talker.reads_over) return Finish(talker, absl::OkStatus());
    ++talker.read;
    WriteSomewhere(talker.handle->context().bulk());
    if (random_.Chance(0.02)) return Finish(talker, absl::AbortedError("handlers may stop"));
    talker.Write(talker.in, [this, &talker] {
      if (talker.writes_over) return Finish(talker, absl::AbortedError("nobody reads"));
      Next(talker);
    });
  }
  // Into what the stream lends; nobody may wait for it.
  void WriteSomewhere(ServerBulk& bulk) {
    const uint64_t room = bulk.writable_bytes(1);
    if (room == 0 || random_.Chance(0.5)) return;
    const uint64_t offset = random_.Uniform(room);
    const Slice part = source_.slice(0, random_.Uniform(room - offset) + 1);
    if (random_.Chance(0.5)) return bulk.Write(part, 1, offset, nullptr);
    auto ended = std::make_shared<bool>(false);
    bulk.Write(part, 1, offset, [ended](const absl::Status&) {
      EXPECT_FALSE(std::exchange(*ended, true)) << "it ends twice";
    });
  }
  void Finish(Server& talker, absl::Status status) {
    if (!talker.handle) return;
    Handle handle = *std::move(talker.handle);
    talker.handle.reset();
    if (random_.Chance(0.9)) handle.Finish(std::move(status));
  }
  void PauseOrGoOn() {
    if (talkers.empty()) return;
    Server& talker = *talkers[random_.Uniform(talkers.size())];
    talker.paused_reads = !talker.paused_reads;
    if (!talker.writing) Next(talker);
  }
  void GoOn() {
    for (const std::unique_ptr<Server>& talker : talkers) {
      talker->paused_reads = false;
      if (!talker->writing) Next(*talker);
    }
  }
  void DropAll() {
    for (const std::unique_ptr<Server>& talker : talkers) talker->handle.reset();
  }

  std::vector<std::unique_ptr<Server>> talkers;

 private:
  GuardedMemory& source_;
  Random random_;
};

// A machine that serves, until it is killed.
struct ServerMachine {
  std::string node;
  std::unique_ptr<Echoing> service;
  std::unique_ptr<Server> server;
};

struct Client : Talker<ClientReaderWriter<Data, Data>> {
  uint64_t id = 0;
  uint64_t wanted = 0;  // messages to be written
  int ends = 0;
  bool finishing = false;
  bool early = false;  // it was finished before all was read
  absl::Status status;
  std::unique_ptr<BulkCall> bulk;  // null: it lends nothing
  GuardedMemory* lent = nullptr;

  // Lends `memory`, and fills it once it is reclaimed.
  void Lend(Channel& channel, GuardedMemory* memory) {
    lent = memory;
    bulk = std::make_unique<BulkCall>(channel);
    bulk->Receive(memory->all());
  }
  void FillWhenReclaimed() {
    if (bulk != nullptr) bulk->WhenReclaimed([this] { lent->Fill(kReclaimed); });
  }
  // Nobody has touched it since.
  bool IsWhole() {
    return bulk == nullptr || (bulk->state() == BulkCall::State::kReclaimed &&
                               lent->Holds(kReclaimed) && lent->CanariesLive());
  }

  void WriteNext() {
    if (written == wanted) {
      if (handle && !writes_over) handle->WritesDone();
      writes_over = true;
      return;
    }
    Fill(id, written, &out);
    Write(out, [this] {
      if (!writes_over) WriteNext();
    });
  }
  void ReadNext() {
    Read([this] {
      if (reads_over) return Finish();
      ASSERT_EQ(in.number(), read);
      Data expected;
      Fill(id, read, &expected);
      ASSERT_EQ(in.payload(), expected.payload());
      ++read;
      ReadNext();
    });
  }
  void Finish() {
    if (!handle || std::exchange(finishing, true)) return;
    handle->Finish([this](absl::Status ended) {
      ++ends;
      status = std::move(ended);
      handle.reset();  // inside its own callback
    });
  }
};

// Transfers of killed machines go with the network, and this behind it.
struct LentByClients {
  std::deque<GuardedMemory> memories_;
};

class RandomFaults final : private LentByClients, private RandomWorld {
 public:
  static SimOptions Options(uint64_t seed) {
    SimOptions options;
    if (seed % 2 == 1) options.frames_to_part = 2;
    if (seed % 3 == 1) options.slot_bytes = 1024;
    return options;
  }

  explicit RandomFaults(uint64_t seed) : RandomWorld(seed, Options(seed)) {
    StartServer();
    for (int i = 0; i < kClients; ++i) {
      ChannelOptions options;
      options.connect_at_once = false;
      options.max_streams = Draw(1, 32);
      options.max_queued_calls = Draw(0, 64);
      options.link.window_slots = Draw(4, 16);
      options.stream_window_messages = Draw(1, 50);
      options.stream_window_bytes = Draw(1, 20'000);
      channels_.push_back(*Channel::Open(ClientNode(i), "sim:server", options));
      stubs_.emplace_back(*channels_.back());
    }
  }

  ~RandomFaults() {
    for (const std::unique_ptr<Client>& client : clients_) client->handle.reset();
    channels_.clear();
    for (ServerMachine& machine : machines_) {
      machine.service->DropAll();
      machine.server.reset();
    }
  }

  void Run() {
    for (int step = 0; step < kSteps; ++step) {
      Step();
      network_.RunFor(random_.Uniform(kNsPerMs));
      CheckInvariants();
    }
    // The world becomes friendly again, and everything ends.
    for (int i = 0; i < kClients; ++i) Heal(i);
    for (int i = 0; i < 300; ++i) {
      machines_.back().service->GoOn();
      for (const std::unique_ptr<Client>& client : clients_) {
        client->paused_reads = false;
        client->ReadNext();
      }
      network_.RunFor(20 * kNsPerMs);
    }
    CheckInvariants();
    Check();
  }

 private:
  static constexpr int kClients = 3;
  static constexpr int kSteps = 300;
  // What a stream lends: some microseconds on the wire, and several frames.
  static constexpr size_t kLent = 10'000;

  void StartServer() {
    ServerMachine machine;
    machine.node = TakeServerNode();
    machine.service = std::make_unique<Echoing>(random_.Fork(), &sources_.emplace_back(kLent));
    ServerOptions options;
    options.max_streams = Draw(1, 40);
    options.link.window_slots = Draw(4, 16);
    options.stream_window_messages = Draw(1, 50);
    options.stream_window_bytes = Draw(1, 20'000);
    machine.server = *Server::Create(network_.Node(machine.node), options);
    EXPECT_TRUE(machine.server->AddService(machine.service.get()).ok());
    EXPECT_TRUE(machine.server->Listen("sim:server").ok());
    machines_.push_back(std::move(machine));
  }

  void CheckInvariants() {
    network_.CheckInvariants();
    for (const std::unique_ptr<Channel>& channel : channels_) {
      internal::ConnectionOf(*channel).calls().CheckInvariants();
    }
  }

  void Step() {
    const int client = static_cast<int>(random_.Uniform(kClients));
    switch (random_.Uniform(60)) {
      case 0:
        KillServer();
        return StartServer();
      case 1:
        return network_.Partition(ClientName(client), server_node());
      case 2:
        return network_.Cut(server_node(), ClientName(client));
      case 3:
        return network_.SlowDown(server_node(), random_.Uniform(2 * kNsPerMs));
      case 4:
        return network_.SlowDown(ClientName(client), random_.Uniform(kNsPerMs));
      case 5:
      case 6:
      case 7:
      case 8:
        return Heal(client);
      case 9:
      case 10:
      case 11:
      case 12:
        return machines_.back().service->PauseOrGoOn();
      case 13:
      case 14:
      case 15:
        return Disturb();
      case 16:
        return RestartServer();
      default:
        for (uint64_t n = random_.Uniform(3); n > 0; --n) StartStream(client);
    }
  }

  // The server shuts down, while streams go on and new ones start, and another takes its place.
  void RestartServer() {
    ServerMachine& old = machines_.back();
    std::deque<Ticks> meanwhile;
    meanwhile.emplace_back(network_.Node(old.node), &random_, [&] {
      if (random_.Chance(0.5)) return old.service->PauseOrGoOn();
      old.service->GoOn();
    });
    for (int i = 0; i < kClients; ++i) {
      meanwhile.emplace_back(network_.Node(ClientName(i)), &random_, [this, i] {
        Disturb();
        if (random_.Chance(0.5)) StartStream(i);
      });
    }
    old.server->Shutdown(random_.Uniform(100'000));
    const ServerStats stats = old.server->stats();
    EXPECT_EQ(stats.running, 0u);
    EXPECT_EQ(stats.connections, 0u);
    EXPECT_EQ(stats.protocol_errors, 0u);
    StartServer();
  }

  // One of the clients' streams is paused, goes on, is cancelled, finished or dropped.
  void Disturb() {
    if (clients_.empty()) return;
    Client& client = *clients_[random_.Uniform(clients_.size())];
    if (!client.handle) return;
    switch (random_.Uniform(8)) {
      case 0:
        return client.handle->Cancel();
      case 1:
        client.early = true;
        return client.Finish();
      case 2:
        ++client.ends;  // nobody hears of it
        client.status = absl::CancelledError();
        if (client.finishing) --client.ends;
        return client.handle.reset();
      default:
        client.paused_reads = !client.paused_reads;
        return client.ReadNext();
    }
  }

  void StartStream(int channel) {
    clients_.push_back(std::make_unique<Client>());
    Client& client = *clients_.back();
    client.id = clients_.size();
    client.wanted = random_.Chance(0.2) ? random_.Uniform(500) : random_.Uniform(20);
    CallOptions options;
    if (random_.Chance(0.4)) options.timeout_us = random_.UniformInRange(1, 100'000);
    if (options.timeout_us != 0) options.wait_for_server = random_.Chance(0.3);
    if (random_.Chance(0.3)) {
      client.Lend(*channels_[channel], &memories_.emplace_back(kLent));
      options.bulk = client.bulk.get();
    }
    client.handle.emplace(stubs_[channel].Talk(options));
    client.FillWhenReclaimed();
    client.WriteNext();
    client.ReadNext();
  }

  void Check() {
    int ok = 0;
    uint64_t read = 0;
    for (const std::unique_ptr<Client>& client : clients_) {
      SCOPED_TRACE(testing::Message() << "stream " << client->id << ": " << client->status);
      ASSERT_EQ(client->ends, 1);
      ASSERT_FALSE(client->reading);
      ASSERT_FALSE(client->writing);
      ASSERT_TRUE(client->IsWhole());
      read += client->read;
      if (!client->status.ok()) continue;
      ++ok;
      if (!client->early) {
        ASSERT_EQ(client->read, client->wanted);
      }
    }
    EXPECT_GT(ok, 0);
    EXPECT_GT(read, 0u);
    for (const std::unique_ptr<Channel>& channel : channels_) {
      ExpectNothingUnderWay(channel->stats());
    }
    const ServerStats stats = machines_.back().server->stats();
    ExpectNothingUnderWay(stats);
    EXPECT_EQ(stats.protocol_errors, 0u);
  }

  std::deque<GuardedMemory> sources_;   // of servers: registered, so they go before the network
  std::deque<ServerMachine> machines_;  // the last one lives
  std::vector<std::unique_ptr<Channel>> channels_;
  std::vector<Streams::Stub> stubs_;
  std::vector<std::unique_ptr<Client>> clients_;
};

TEST(StreamRandomFaultsTest, EveryStreamEndsOnceAndNothingIsLeft) {
  ForEachSeed(60, [](uint64_t seed) { RandomFaults(seed).Run(); });
}

}  // namespace
}  // namespace weft::test

int main(int argc, char** argv) { return weft::test::RunWithSeeds(argc, argv); }
