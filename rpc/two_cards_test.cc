// A channel over two RDMA ports that are alike, as `./dev lab --device rxe,rxe` has them: it uses
// both, moves stripes over both, and goes on by one when the other is gone.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/strings.h"
#include "rpc/client/channel.h"
#include "rpc/client/channel_lanes.h"
#include "rpc/client/client_connection.h"
#include "rpc/memory/remote_memory.h"
#include "rpc/server/exported_memory.h"
#include "rpc/server/server.h"
#include "rpc/testing/probe_service.h"
#include "transport/host_paths.h"

namespace weft::test {
namespace {

constexpr size_t kBytes = size_t{64} << 20;
// Emulated, half of this size takes longer than half of a lease.
constexpr RemoteMemoryOptions kHoweverLong = {.timeout_us = 0};
constexpr int kRounds = 3;  // of each transfer whose time is told; the best counts

uint64_t NowMs() { return Clock::Real().NowNs() / kNsPerMs; }

// Of the usable RDMA ports.
std::vector<HostPath> Ports() {
  LinkOptions options;
  options.paths = {PathKind::kVerbs};
  const auto host = ListHostPaths(options);
  std::vector<HostPath> ports;
  if (!host.ok()) return ports;
  std::set<std::string> devices;
  for (const HostPath& path : host->paths) {
    if (path.kind != PathKind::kVerbs || path.place == 0) continue;
    if (devices.insert(path.device).second) ports.push_back(path);
  }
  return ports;
}

// Machines of the lab stand still for seconds where others work on their host: only hangs take so
// long as these times, and what is gone is noticed by its port.
LinkOptions Patient() {
  LinkOptions link;
  link.paths = {PathKind::kVerbs};
  link.connect_timeout_ns = 60 * kNsPerSec;
  link.path_timeout_ns = 20 * kNsPerSec;
  link.peer_timeout_ns = 60 * kNsPerSec;
  return link;
}

ChannelOptions OverTwoCards() {
  ChannelOptions options;
  options.engines = 2;
  options.link = Patient();
  return options;
}

std::string DeviceOf(Channel& lane) {
  const auto path = lane.path();
  return path.ok() ? path->device : path.status().ToString();
}

// MB/s of the fastest of some rounds.
template <class Move>
uint64_t RateOf(Move move) {
  uint64_t best_ns = kNever;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t start_ns = Clock::Real().NowNs();
    EXPECT_EQ(move(), absl::OkStatus());
    best_ns = std::min(best_ns, Clock::Real().NowNs() - start_ns);
  }
  return kBytes * 1000 / std::max<uint64_t>(best_ns, 1);
}

class TwoCardsVerbsTest : public testing::Test {
 protected:
  void SetUp() override {
    // It takes a card down, and nobody brings that up again: not outside of a machine of the lab.
    if (std::getenv("WEFT_LAB_IP_CARD1") == nullptr)
      GTEST_SKIP() << "this is no machine of the lab";
    ports_ = Ports();
    if (ports_.size() < 2) GTEST_SKIP() << ports_.size() << " RDMA ports: there are no two cards";
  }
  void Serve(const std::string& address) {
    ServerOptions options;
    options.link = Patient();
    auto server = Server::Create(options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    ASSERT_TRUE(server_->AddService(&service_).ok());
    const absl::Status listening = server_->Listen(address);
    ASSERT_TRUE(listening.ok()) << listening;
  }

  std::vector<HostPath> ports_;
  ProbeService service_;
  std::unique_ptr<Server> server_;
};

TEST_F(TwoCardsVerbsTest, AChannelUsesBothAndGoesOnByOneWhenTheOtherIsGone) {
  std::vector<std::byte> owned(kBytes);
  for (size_t i = 0; i < kBytes; ++i) owned[i] = static_cast<std::byte>(i * 31 >> 3);
  ASSERT_NO_FATAL_FAILURE(Serve("127.0.0.1:0"));
  const auto exported = server_->Export(owned, {.rights = kAllRights});
  ASSERT_TRUE(exported.ok()) << exported.status();
  auto channel = Channel::Open(server_->address(), OverTwoCards());
  ASSERT_TRUE(channel.ok()) << channel.status();
  ChannelLanes& lanes = *internal::LanesOf(**channel);
  const auto device = [&lanes](uint32_t lane) { return DeviceOf(*lanes.all()[lane]); };
  EXPECT_NE(device(0), device(1)) << lanes.all()[1]->Explain();

  std::vector<std::byte> local(kBytes);
  const auto memory = RemoteMemory::Open(**channel, (*exported)->handle(), kHoweverLong);
  ASSERT_TRUE(memory.ok()) << memory.status();
  const auto buffer = (*memory)->BufferOf(local);
  ASSERT_EQ((*memory)->Read(0, buffer->slice()), absl::OkStatus());
  EXPECT_EQ(std::memcmp(local.data(), owned.data(), kBytes), 0);
  EXPECT_EQ((*exported)->leases(), 2u);
  {
    // Told, not judged: how fast the lab is says nothing of cards.
    const auto by_one = RemoteMemory::Open((*channel)->here(), (*exported)->handle(), kHoweverLong);
    ASSERT_TRUE(by_one.ok()) << by_one.status();
    const auto own = (*by_one)->BufferOf(local);
    std::cout << "64 MiB, MB/s, by one card and by two: read "
              << RateOf([&] { return (*by_one)->Read(0, own->slice()); }) << ", "
              << RateOf([&] { return (*memory)->Read(0, buffer->slice()); }) << "; write "
              << RateOf([&] { return (*by_one)->Write(0, own->slice()); }) << ", "
              << RateOf([&] { return (*memory)->Write(0, buffer->slice()); }) << std::endl;
  }

  // The card of this thread's lane goes down. The control connections go by none of both: that the
  // port is down is all that there is to notice.
  Channel& lane = (*channel)->here();
  const uint32_t home = lanes.NumberOfThisThread();
  const std::string gone = device(home);
  const std::string left = device(1 - home);
  const uint64_t down_ms = NowMs();
  for (const HostPath& port : ports_) {
    if (gone.rfind(port.device, 0) != 0) continue;
    ASSERT_EQ(std::system(StrCat("ip link set ", port.interface, " down").c_str()), 0);
  }
  ASSERT_TRUE(lane.engine().RunUntil(
      [&lane] { return internal::ConnectionOf(lane).open_connection() == nullptr; }));
  std::cout << "noticed after " << NowMs() - down_ms << " ms" << std::endl;
  Probe::Stub stub(**channel);
  Data reply;
  int calls = 0;
  for (; !lanes.states().IsReady(home); ++calls) {
    ASSERT_EQ(stub.Echo(MakeData(1, 100), &reply), absl::OkStatus()) << "call " << calls;
  }
  std::cout << calls << " calls by the other card until a connection was there again, after "
            << NowMs() - down_ms << " ms" << std::endl;
  EXPECT_EQ(device(home), left) << lane.Explain();
  std::memset(local.data(), 0, kBytes);
  ASSERT_EQ((*memory)->Read(0, buffer->slice()), absl::OkStatus());
  EXPECT_EQ(std::memcmp(local.data(), owned.data(), kBytes), 0);
}

// --- two machines --------------------------------------------------------------------------------

constexpr char kAddress[] = "0.0.0.0:4711";  // of a machine that nobody else is in
constexpr uint64_t kCallingMs = 20'000;

// A thread that calls one after the other, 100 times a second, and what became of it.
struct Caller {
  void Run(Channel& channel) {
    device = DeviceOf(channel.here());
    Probe::Stub stub(channel);
    uint64_t answered_ms = NowMs();
    for (const uint64_t end_ms = NowMs() + kCallingMs; NowMs() < end_ms; ++calls) {
      Data reply;
      const absl::Status status =
          stub.Echo(MakeData(1, 100), &reply, {.timeout_us = 10 * 1'000'000});
      const uint64_t now_ms = NowMs();
      if (status.ok()) {
        longest_ms = std::max(longest_ms, now_ms - answered_ms);
        answered_ms = now_ms;
      } else if (failed++ == 0) {
        first_error = status;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    still_answered = NowMs() - answered_ms < 1000;
    device_at_end = DeviceOf(channel.here());
  }

  std::string device;
  std::string device_at_end;
  int calls = 0;
  int failed = 0;
  uint64_t longest_ms = 0;  // between two answers
  bool still_answered = false;
  absl::Status first_error;
};

// By hand: docs/lab.md, "Two machines".
TEST_F(TwoCardsVerbsTest, BetweenTwoMachinesCallsGoOnWhenACableIsCut) {
  const char* const role = std::getenv("WEFT_TWO_CARDS");
  if (role == nullptr) GTEST_SKIP() << "WEFT_TWO_CARDS is not set: `serve` in one machine, `call`";
  if (std::string(role) == "serve") {
    ASSERT_NO_FATAL_FAILURE(Serve(kAddress));
    server_->Wait();
    return;
  }
  const char* const peer = std::getenv("WEFT_LAB_PEER");
  ASSERT_NE(peer, nullptr);
  absl::StatusOr<std::unique_ptr<Channel>> channel;
  do {  // the other machine may be slower
    channel = Channel::Open(StrCat(peer, ":4711"), OverTwoCards());
  } while (absl::IsUnavailable(channel.status()));
  ASSERT_TRUE(channel.ok()) << channel.status();
  std::cout << "calling for " << kCallingMs / 1000 << " s" << std::endl;
  Caller callers[2];
  std::vector<std::thread> threads;
  for (Caller& caller : callers) {
    threads.emplace_back([&caller, &channel] { caller.Run(**channel); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_NE(callers[0].device, callers[1].device);
  for (const Caller& caller : callers) {
    std::cout << caller.device << ": " << caller.calls << " calls, " << caller.failed
              << " failed, at most " << caller.longest_ms << " ms between two answers, by "
              << caller.device_at_end << " in the end; first error: " << caller.first_error
              << std::endl;
    EXPECT_TRUE(caller.still_answered);
    EXPECT_TRUE(caller.first_error.ok() || absl::IsUnavailable(caller.first_error));
  }
}

}  // namespace
}  // namespace weft::test
