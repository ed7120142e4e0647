// Random traffic and random faults on several machines, and what must hold at the end:
// every message arrived once and whole, or its connection closed; every operation completed once;
// credits are conserved; slots, receives and registrations are back.

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/random.h"
#include "core/test_seed.h"
#include "transport/framing/framed_connection.h"
#include "transport/sim/sim_fabric.h"
#include "transport/sim/sim_fixture.h"
#include "transport/sim/sim_transport.h"
#include "transport/testing/post.h"

namespace weft {
namespace {

constexpr int kSteps = 300;
constexpr size_t kRegionBytes = 64 << 10;

// Checks what one end receives: numbered messages, small and large ones each in order.
class Stream {
 public:
  void Listen(Endpoint* end) {
    end->keep = false;
    end->on_message = [this](ByteSpan message) { OnMessage(message); };
  }

  std::vector<std::byte> Next(size_t bytes, size_t eager_bytes) {
    bytes = std::max(bytes, size_t{8});
    std::vector<std::byte> message = Pattern(sent, bytes);
    StoreLe64(message.data(), sent++);
    is_large_.push_back(bytes > eager_bytes);
    return message;
  }

  uint64_t sent = 0;
  uint64_t received = 0;

 private:
  void OnMessage(ByteSpan message) {
    ASSERT_GE(message.size(), 8u);
    const uint64_t number = LoadLe64(message.data());
    ASSERT_LT(number, sent);
    std::vector<std::byte> expected = Pattern(number, message.size());
    StoreLe64(expected.data(), number);
    ASSERT_TRUE(std::equal(message.begin(), message.end(), expected.begin(), expected.end()));
    uint64_t& next = is_large_[number] ? next_large_ : next_small_;
    ASSERT_GE(number, next) << "out of order, or twice";
    // None of its kind was skipped.
    for (uint64_t skipped = next; skipped < number; ++skipped) {
      ASSERT_NE(is_large_[skipped], is_large_[number]) << skipped << " is missing";
    }
    next = number + 1;
    ++received;
  }

  std::vector<bool> is_large_;
  uint64_t next_small_ = 0;
  uint64_t next_large_ = 0;
};

struct Line {
  std::string from, to;
  Endpoint* client = nullptr;
  Endpoint* server = nullptr;
  Stream up, down;
  std::vector<std::byte> client_memory, server_memory;
  std::unique_ptr<Region> client_region, server_region;
  std::vector<std::unique_ptr<TestOperation>> operations;
  uint64_t counter = 0;  // the server's, that the client adds to
  std::unique_ptr<Region> counter_region;
  std::vector<std::unique_ptr<TestAtomic>> additions;
  bool open() const { return client->opened() && !client->closed() && !server->closed(); }
};

class RandomFaultsTest : public SimTest {
 protected:
  static constexpr const char* kNodes[] = {"a", "b", "c", "d"};

  ~RandomFaultsTest() override { Clear(); }

  // Regions go before the network; operations after it: those of a dead node complete with it.
  void Clear() {
    for (auto& line : lines_) ResetRegions(*line);
    Reset(0, {});
    lines_.clear();
  }

  static void ResetRegions(Line& line) {
    line.client_region.reset();
    line.server_region.reset();
    line.counter_region.reset();
  }

  std::string AnyNode() { return kNodes[random_.Uniform(4)]; }

  void MakeLine() {
    std::string from = AnyNode();
    std::string to = AnyNode();
    if (from == to || dead_ == from || dead_ == to || lines_.size() >= 24) return;
    auto line = std::make_unique<Line>();
    line->from = from;
    line->to = to;
    ConnectOptions options;
    options.link.window_slots = static_cast<uint32_t>(random_.UniformInRange(4, 32));
    options.link.max_outstanding_operations = static_cast<uint32_t>(random_.UniformInRange(1, 80));
    const size_t before = acceptors_[to].endpoints.size();
    Endpoint& client = Connect(from, to, options);
    line->client = &client;
    network_->RunUntil([&] { return client.opened() || client.closed(); }, 20 * kNsPerSec);
    if (!client.opened() || client.closed()) return;
    ASSERT_GT(acceptors_[to].endpoints.size(), before);
    line->server = acceptors_[to].endpoints.back().get();
    network_->RunUntil([&] { return line->server->opened() || line->server->closed(); },
                       20 * kNsPerSec);
    if (!line->server->opened() || !line->open()) return;
    line->up.Listen(line->server);
    line->down.Listen(line->client);
    line->server_memory = Pattern(1, kRegionBytes);
    line->client_memory = Pattern(2, kRegionBytes);
    line->server_region = Register(*line->server, line->server_memory);
    line->client_region = Register(*line->client, line->client_memory);
    line->counter_region = Register(
        *line->server, {reinterpret_cast<std::byte*>(&line->counter), sizeof(line->counter)});
    lines_.push_back(std::move(line));
  }

  static std::unique_ptr<Region> Register(Endpoint& end, MutableByteSpan memory) {
    auto region = end.connection().memory().Register(memory, Access::kRemoteReadWrite);
    EXPECT_TRUE(region.ok()) << region.status();
    return *std::move(region);
  }

  Line* AnyOpenLine() {
    for (int tries = 0; tries < 8 && !lines_.empty(); ++tries) {
      Line* line = lines_[random_.Uniform(lines_.size())].get();
      if (line->open() && dead_ != line->from && dead_ != line->to) return line;
    }
    return nullptr;
  }

  void SendSome() {
    Line* line = AnyOpenLine();
    if (line == nullptr) return;
    const bool up = random_.Chance(0.5);
    Endpoint& end = up ? *line->client : *line->server;
    Stream& stream = up ? line->up : line->down;
    const size_t eager = end.connection().eager_bytes();
    for (uint64_t n = random_.UniformInRange(1, 60); n > 0; --n) {
      const size_t bytes = random_.Chance(0.9)   ? random_.Uniform(300)
                           : random_.Chance(0.8) ? eager - 2 + random_.Uniform(5)
                                                 : random_.Uniform(300'000);
      end.Send(stream.Next(bytes, eager));
    }
  }

  void Operate() {
    Line* line = AnyOpenLine();
    if (line == nullptr) return;
    for (uint64_t n = random_.UniformInRange(1, 20); n > 0; --n) {
      line->operations.push_back(std::make_unique<TestOperation>());
      const size_t bytes = random_.UniformInRange(1, 4096);
      const size_t at = random_.Uniform(kRegionBytes - bytes);
      const RemoteSpan remote = line->server_region->remote().Slice(at, bytes);
      TestOperation* op = line->operations.back().get();
      Connection& connection = line->client->connection();
      const absl::Status status = random_.Chance(0.5)
                                      ? Read(connection, *line->client_region, at, remote, op)
                                      : Write(connection, *line->client_region, at, remote, op);
      if (status.ok()) continue;
      EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
      line->operations.pop_back();
      return;
    }
  }

  void Add() {
    Line* line = AnyOpenLine();
    if (line == nullptr) return;
    for (uint64_t n = random_.UniformInRange(1, 40); n > 0; --n) {
      line->additions.push_back(std::make_unique<TestAtomic>());
      const absl::Status status = line->client->connection().memory().FetchAdd(
          line->counter_region->remote(), 1, line->additions.back().get());
      if (status.ok()) continue;
      EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
      line->additions.pop_back();
      return;
    }
  }

  // Each was executed at most once, and once if its end says so.
  void CheckAdditions(const Line& line) {
    std::set<uint64_t> seen;
    for (const auto& addition : line.additions) {
      EXPECT_EQ(addition->completions, dead_ == line.from ? addition->completions : 1);
      if (!addition->done() || !addition->result.ok()) continue;
      EXPECT_TRUE(seen.insert(addition->before).second) << addition->before << " twice";
      EXPECT_LT(addition->before, line.counter);
    }
    EXPECT_LE(line.counter, line.additions.size());
    if (!line.client->closed() && dead_ != line.from) {
      EXPECT_EQ(line.counter, seen.size());
    }
  }

  void DoOneThing() {
    const std::string a = AnyNode();
    const std::string b = AnyNode();
    switch (random_.Uniform(18)) {
      case 0:
        return MakeLine();
      case 1:
        if (a != b) network_->Partition(a, b);
        return;
      case 2:
        if (a != b) network_->Cut(a, b);
        return;
      case 3:
      case 4:
        return HealAll();
      case 5:
        return network_->SlowDown(a, random_.Uniform(200'000));
      case 6:
        if (Line* line = AnyOpenLine(); line != nullptr && random_.Chance(0.3)) {
          (random_.Chance(0.5) ? line->client : line->server)->connection().Close("at random");
        }
        return;
      case 7:
        if (dead_.empty() && random_.Chance(0.1)) network_->Kill(dead_ = a);
        return;
      case 8:
      case 9:
        return Operate();
      case 10:
      case 11:
        return Add();
      default:
        return SendSome();
    }
  }

  void HealAll() {
    for (const char* a : kNodes) {
      for (const char* b : kNodes) {
        if (std::strcmp(a, b) < 0) network_->Heal(a, b);
      }
    }
  }

  // Nothing is under way any more, and nothing cut.
  void CheckLine(const Line& line) {
    CheckAdditions(line);
    for (const auto& op : line.operations) {
      EXPECT_EQ(op->completions, dead_ == line.from ? op->completions : 1);
    }
    const bool client_lives = dead_ != line.from;
    const bool server_lives = dead_ != line.to;
    if (client_lives && server_lives) {
      EXPECT_EQ(line.client->closed(), line.server->closed());
    } else {
      EXPECT_TRUE(!client_lives || line.client->closed());
      EXPECT_TRUE(!server_lives || line.server->closed());
      return;
    }
    if (line.client->closed()) return;
    EXPECT_EQ(line.up.received, line.up.sent);
    EXPECT_EQ(line.down.received, line.down.sent);
    const auto& client = static_cast<FramedConnection&>(line.client->connection()).window();
    const auto& server = static_cast<FramedConnection&>(line.server->connection()).window();
    EXPECT_EQ(client.credits() + server.owed(), client.send_window());
    EXPECT_EQ(server.credits() + client.owed(), server.send_window());
  }

  void CheckNodeIsClean(const std::string& node) {
    SimFabric& fabric = network_->fabric();
    SimTransport& transport = *fabric.transport(fabric.IdOf(node));
    const LinkDomainStats& stats = transport.links().stats();
    EXPECT_EQ(stats.links_open, 0u);
    EXPECT_EQ(stats.send_slots_in_use, 0u);
    EXPECT_EQ(stats.receives_posted, 0u);
    EXPECT_EQ(transport.framing().promised(), 0u);
    EXPECT_EQ(transport.framing().send_pool().in_use_bytes(), 0u);
    EXPECT_EQ(transport.framing().receive_pool().in_use_bytes(), 0u);
    transport.framing().send_pool().CheckInvariants();
    transport.framing().receive_pool().CheckInvariants();
    EXPECT_EQ(transport.table().size(), 0u);
    EXPECT_EQ(transport.table().stats().batches_unknown, 0u);
    EXPECT_EQ(transport.table().stats().batches_malformed, 0u);
  }

  void RunSeed(uint64_t seed) {
    SimOptions options;
    options.slot_bytes = 1024;
    if (seed % 2 == 1) options.usual_slot_bytes = 320;
    if (seed % 4 >= 2) options.frames_to_part = 2;
    if (seed % 8 >= 4) options.done_at_once_percent = 50;
    options.sealed = seed % 3 == 1;
    Clear();
    Reset(seed, options);
    dead_.clear();
    random_ = Random(seed);
    for (const char* node : kNodes) Listen(node);
    for (int i = 0; i < 6; ++i) MakeLine();
    for (int step = 0; step < kSteps && !HasFatalFailure(); ++step) {
      DoOneThing();
      network_->RunFor(random_.Uniform(random_.Chance(0.02) ? kNsPerSec : 100'000));
      network_->CheckInvariants();
    }
    HealAll();
    for (const char* node : kNodes) network_->SlowDown(node, 0);
    network_->RunFor(10 * kNsPerSec);
    network_->Settle();
    network_->CheckInvariants();
    for (const auto& line : lines_) CheckLine(*line);
    // Now everything is closed, and has to be back.
    for (const auto& line : lines_) {
      ResetRegions(*line);
      if (dead_ != line->from && !line->client->closed()) line->client->connection().Close("end");
    }
    for (const auto& client : clients_) {
      if (client->opened() && !client->closed() && dead_.empty()) client->connection().Close("end");
    }
    network_->Settle();
    for (const char* node : kNodes) {
      if (dead_ != node && dead_.empty()) CheckNodeIsClean(node);
    }
    hash_ = network_->trace_hash();
  }

  Random random_{0};
  std::vector<std::unique_ptr<Line>> lines_;
  std::string dead_;
  uint64_t hash_ = 0;
};

TEST_F(RandomFaultsTest, NothingIsLostTwiceOrLeaked) {
  Random seeds(TestSeed());
  for (int run = 0; run < 40 && !HasFailure(); ++run) {
    const uint64_t seed = run == 0 ? TestSeed() : seeds.Next64();
    SCOPED_TRACE(SeedTrace(seed));
    RunSeed(seed);
  }
}

TEST_F(RandomFaultsTest, TheSameSeedGivesTheSameRun) {
  RunSeed(7);
  const uint64_t first = hash_;
  RunSeed(7);
  EXPECT_EQ(hash_, first);
}

}  // namespace
}  // namespace weft
