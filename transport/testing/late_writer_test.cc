// Memory that its owner reclaims while another process writes to it, and reads from it, without a
// pause: when the owner is told that it is reclaimed, no byte of it changes any more, and no byte
// of what is put there next is seen by the peer. The same at the end of a connection, and when the
// peer is killed. (The peer is this program, started again.)

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/random.h"
#include "transport/control/rdma_offers.h"
#include "transport/network.h"
#include "transport/testing/endpoint.h"
#include "transport/testing/post.h"
#include "transport/testing/test_memory.h"

namespace weft {
namespace {

constexpr size_t kSlabBytes = 512 << 10;
constexpr size_t kCanaryBytes = 4096;
constexpr size_t kPieceBytes = 128 << 10;

constexpr std::byte kOld{0x11};     // what the peer may read
constexpr std::byte kTheirs{0xee};  // what it writes
constexpr std::byte kFresh{0x5a};   // what it must never see, and never overwrite
constexpr std::byte kCanary{0xc7};

// `asks`: over shared memory the peer is asked to copy.
std::unique_ptr<Engine> NewEngine(bool asks = false) {
  EngineOptions options;
  options.drive = EngineOptions::Drive::kExternal;
  NetworkOptions network;
  network.shm_mappings = network.shm_system_calls = !asks;
  auto engine = OpenNetworkEngine(options, network);
  if (!engine.ok()) std::fprintf(stderr, "%s\n", engine.status().ToString().c_str()), _exit(3);
  return *std::move(engine);
}

LinkOptions Over(PathKind path) {
  LinkOptions options;
  options.paths = {path};
  // No test here is about the limits, which are short on a machine that stands still for seconds.
  options.connect_timeout_ns = 50 * kNsPerSec;
  options.path_timeout_ns = 25 * kNsPerSec;
  return options;
}

// --- the writer's process -----------------------------------------------------------------------

// One connection: writes and reads what it is told of until that fails, or the connection ends.
class Writer {
 public:
  Writer(Engine& engine, const std::string& address, PathKind path) : engine_(engine) {
    ConnectOptions options;
    options.link = Over(path);
    end_.on_message = [this](ByteSpan message) { Begin(message); };
    end_.on_closed = [this] { region_.reset(); };
    engine.transport().Connect(address, options, &end_).status().IgnoreError();
  }

  void Run() {
    while (!end_.closed()) {
      engine_.Poll();
      for (size_t i : std::exchange(done_at_once_, {})) {
        if (!failed_ && !end_.closed()) Post(i);
      }
      if (failed_ && !end_.closed()) end_.connection().Close("refused");
    }
  }

 private:
  void Begin(ByteSpan message) {
    std::memcpy(&remote_, message.data(), sizeof(remote_));
    auto region =
        end_.connection().memory().Register({memory_.data(), memory_.size()}, Access::kLocalOnly);
    if (!region.ok()) _exit(4);
    region_ = *std::move(region);
    for (size_t i = 0; i < operations_.size(); ++i) {
      operations_[i].on_complete = [this, i] { OnDone(i); };
      Post(i);
    }
  }

  MutableByteSpan Piece(size_t i) {
    return MutableByteSpan(memory_.data(), memory_.size()).subspan(i * kPieceBytes, kPieceBytes);
  }

  // Even ones write, odd ones read.
  void Post(size_t i) {
    const MutableByteSpan piece = Piece(i);
    std::fill(piece.begin(), piece.end(), kTheirs);
    const RemoteSpan remote =
        remote_.Slice(random_.UniformInRange(0, kSlabBytes - kPieceBytes), kPieceBytes);
    Connection& connection = end_.connection();
    posting_ = true;
    const absl::Status posted =
        i % 2 == 0 ? Write(connection, *region_, i * kPieceBytes, remote, &operations_[i])
                   : Read(connection, *region_, i * kPieceBytes, remote, &operations_[i]);
    posting_ = false;
    failed_ |= !posted.ok();
  }

  void OnDone(size_t i) {
    const MutableByteSpan piece = Piece(i);
    if (std::find(piece.begin(), piece.end(), kFresh) != piece.end()) {
      std::printf("saw what came after\n");
      std::fflush(stdout);
    }
    failed_ |= !operations_[i].result.ok();
    if (failed_ || end_.closed()) return;
    if (posting_) {
      done_at_once_.push_back(i);  // by the post itself: Run() posts the next one
    } else {
      Post(i);
    }
  }

  Engine& engine_;
  Endpoint end_;
  Random random_{1};
  RemoteSpan remote_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(6 * kPieceBytes);
  std::vector<TestOperation> operations_{6};
  std::unique_ptr<Region> region_;
  std::vector<size_t> done_at_once_;
  bool posting_ = false;
  bool failed_ = false;
};

[[noreturn]] void RunWriter(const std::string& address, PathKind path, bool asks) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const std::unique_ptr<Engine> engine = NewEngine(asks);
  for (;;) Writer(*engine, address, path).Run();
}

// --- the owner ----------------------------------------------------------------------------------

class WriterProcess {
 public:
  WriterProcess(const std::string& address, PathKind path, bool asks) {
    int said[2];
    EXPECT_EQ(::pipe2(said, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, said[1], STDOUT_FILENO);
    std::string words[] = {"late_writer", "--writer", address,
                           std::to_string(static_cast<int>(path)), asks ? "asks" : "copies"};
    char* const arguments[] = {words[0].data(), words[1].data(), words[2].data(),
                               words[3].data(), words[4].data(), nullptr};
    EXPECT_EQ(::posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    ::close(said[1]);
    said_ = said[0];
  }
  ~WriterProcess() {
    Kill();
    ::close(said_);
  }

  void Kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(std::exchange(pid_, -1), nullptr, 0);
  }
  // Everything that it complained of. REQUIRES: Kill().
  std::string Complaints() const {
    char text[200] = {};
    return ::read(said_, text, sizeof(text) - 1) > 0 ? text : "";
  }

 private:
  pid_t pid_ = -1;
  int said_ = -1;
};

struct LateWriterParam {
  PathKind path;
  bool memory_in_files = false;
  bool asks = false;  // both processes
};

class LateWriterTest : public testing::TestWithParam<LateWriterParam> {
 protected:
  LateWriterTest() {
    TestMemory::UseFiles(GetParam().memory_in_files);
    memory_ = std::make_unique<TestMemory>(kSlabBytes + 2 * kCanaryBytes, kCanary);
    engine_ = NewEngine(GetParam().asks);
    ListenOptions options;
    options.link = Over(GetParam().path);
    auto listener = engine_->transport().Listen("127.0.0.1:0", options, &acceptor_);
    EXPECT_TRUE(listener.ok()) << listener.status();
    listener_ = *std::move(listener);
    writer_ =
        std::make_unique<WriterProcess>(listener_->address(), GetParam().path, GetParam().asks);
  }
  ~LateWriterTest() override {
    writer_->Kill();
    EXPECT_EQ(writer_->Complaints(), "");
    EXPECT_TRUE(Run([this] { return lent_to_ == 0 || end().closed(); }));
    listener_.reset();
    engine_.reset();
  }

  // The connection that the slab is lent to. (The writer may have made the next one already.)
  Endpoint& end() { return *acceptor_.endpoints[lent_to_ - 1]; }
  MutableByteSpan slab() { return memory_->bytes().subspan(kCanaryBytes, kSlabBytes); }

  // False: it is a hang. (An emulated device that loses packets takes seconds for each.)
  bool Run(Function<bool()> done) {
    const uint64_t give_up_ns = Clock::Real().NowNs() + 240 * kNsPerSec;
    while (!done()) {
      engine_->Poll();
      if (Clock::Real().NowNs() > give_up_ns) return false;
    }
    return true;
  }
  void RunTurns(int turns) {
    for (int i = 0; i < turns; ++i) engine_->Poll();
  }

  // Lends the slab to the next connection, and lets the peer at it for some turns. (A connection of
  // a slow machine may be lost before: then it is the next one.)
  void Lend() {
    do {
      region_.reset();
      std::fill(slab().begin(), slab().end(), kOld);
      ASSERT_TRUE(Run([this] { return acceptor_.endpoints.size() > lent_to_; }));
      lent_to_ = acceptor_.endpoints.size();
      ASSERT_TRUE(Run([this] { return end().opened() || end().closed(); }));
      if (!end().closed()) LendToThisOne();
      ASSERT_TRUE(Run([this] { return end().closed() || IsWritten(); }));
    } while (end().closed());
    RunTurns(static_cast<int>(random_.UniformInRange(0, 30)));
  }
  void LendToThisOne() {
    auto region = end().connection().memory().Register(slab(), Access::kRemoteReadWrite);
    ASSERT_TRUE(region.ok()) << region.status();
    region_ = *std::move(region);
    const RemoteSpan remote = region_->remote();
    ASSERT_TRUE(end().TrySend({reinterpret_cast<const std::byte*>(&remote), sizeof(remote)}).ok());
  }
  bool IsWritten() { return std::find(slab().begin(), slab().end(), kTheirs) != slab().end(); }

  void Reclaim() {
    if (end().closed()) return region_.reset();
    TestOperation reclaimed;
    if (end().connection().memory().Reclaim(std::move(region_), &reclaimed)) return;
    ASSERT_TRUE(Run([&] { return reclaimed.done(); }));
  }

  // The memory is the owner's again: nobody else touches it, however long the peer goes on.
  void ExpectUntouched() {
    std::fill(slab().begin(), slab().end(), kFresh);
    RunTurns(200);
    ASSERT_TRUE(Run([this] { return end().closed(); }));  // its writer was refused
    RunTurns(2000);
    const auto strange = [](MutableByteSpan bytes, std::byte expected) {
      return static_cast<size_t>(bytes.size()) -
             static_cast<size_t>(std::count(bytes.begin(), bytes.end(), expected));
    };
    EXPECT_EQ(strange(slab(), kFresh), 0u);
    EXPECT_EQ(strange(memory_->bytes().first(kCanaryBytes), kCanary), 0u);
    EXPECT_EQ(strange(memory_->bytes().last(kCanaryBytes), kCanary), 0u);
  }

  Random random_{7};
  size_t lent_to_ = 0;  // endpoints
  TestAcceptor acceptor_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<TestMemory> memory_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<Region> region_;
  std::unique_ptr<WriterProcess> writer_;
};

TEST_P(LateWriterTest, ReclaimedMemoryIsUntouchedThoughTheWriterGoesOn) {
  for (size_t round = 0; round < 8; ++round) {
    SCOPED_TRACE(round);
    ASSERT_NO_FATAL_FAILURE(Lend());
    ASSERT_NO_FATAL_FAILURE(Reclaim());
    ASSERT_NO_FATAL_FAILURE(ExpectUntouched());
  }
}

TEST_P(LateWriterTest, TheEndOfTheConnectionIsTheEndOfTheWriting) {
  for (size_t round = 0; round < 8; ++round) {
    SCOPED_TRACE(round);
    ASSERT_NO_FATAL_FAILURE(Lend());
    region_.reset();
    if (!end().closed()) end().connection().Close("enough");
    ASSERT_TRUE(Run([this] { return end().closed(); }));
    ASSERT_NO_FATAL_FAILURE(ExpectUntouched());
  }
}

TEST_P(LateWriterTest, AKilledWritersMemoryIsReclaimedWithItsConnection) {
  ASSERT_NO_FATAL_FAILURE(Lend());
  writer_->Kill();
  ASSERT_NO_FATAL_FAILURE(Reclaim());
  ASSERT_NO_FATAL_FAILURE(ExpectUntouched());
}

std::vector<LateWriterParam> Paths() {
  std::vector<LateWriterParam> paths = {{PathKind::kShm},
                                        {PathKind::kShm, /*memory_in_files=*/true},
                                        {PathKind::kShm, /*memory_in_files=*/false, /*asks=*/true},
                                        {PathKind::kTcp},
                                        {PathKind::kOfiTcp}};
  RdmaOffers offers([] { return ReadRdmaView(/*wanted_lock_bytes=*/0); });
  if (offers.Choose({}, Clock::Real().NowNs())[0].unavailable.empty()) {
    paths.push_back({PathKind::kVerbs});
  }
  return paths;
}

INSTANTIATE_TEST_SUITE_P(Paths, LateWriterTest, testing::ValuesIn(Paths()), [](const auto& info) {
  return std::string(PathKindName(info.param.path)) + (info.param.memory_in_files ? "Mapped" : "") +
         (info.param.asks ? "asked" : "");
});

// --- why there is a fence -----------------------------------------------------------------------

// libfabric's tcp looks a region up when the header of a write has come; what comes behind it goes
// to its memory, whatever becomes of the registration. An owner that took the memory for its own
// when the registration was closed would find it overwritten.
TEST(OfiTcpTest, AWriteThatHasBegunGoesOnWhenItsRegionIsClosedAndIsOverWhenItIsReclaimed) {
  constexpr size_t kBytes = size_t{64} << 20;  // more than all of the sockets' buffers
  const std::unique_ptr<Engine> owner = NewEngine();
  const std::unique_ptr<Engine> client = NewEngine();
  TestAcceptor acceptor;
  Endpoint end;
  ListenOptions listen;
  listen.link = Over(PathKind::kOfiTcp);
  auto listener = owner->transport().Listen("127.0.0.1:0", listen, &acceptor);
  ASSERT_TRUE(listener.ok()) << listener.status();
  ConnectOptions connect;
  connect.link = Over(PathKind::kOfiTcp);
  ASSERT_TRUE(client->transport().Connect((*listener)->address(), connect, &end).ok());
  const auto run = [&](Function<bool()> done) {
    const uint64_t give_up_ns = Clock::Real().NowNs() + 60 * kNsPerSec;
    while (!done() && Clock::Real().NowNs() < give_up_ns) client->Poll(), owner->Poll();
    return done();
  };
  ASSERT_TRUE(run([&] { return end.opened() && acceptor.endpoints[0]->opened(); }));
  RemoteAccess& owners = acceptor.endpoints[0]->connection().memory();
  std::vector<std::byte> mine(kBytes, kOld);
  std::vector<std::byte> theirs(kBytes, kTheirs);
  auto region = owners.Register(MutableByteSpan(mine), Access::kRemoteReadWrite);
  auto source = end.connection().memory().Register(MutableByteSpan(theirs), Access::kLocalOnly);
  ASSERT_TRUE(region.ok() && source.ok());
  TestOperation write;
  ASSERT_TRUE(Write(end.connection(), **source, 0, (*region)->remote(), &write).ok());
  ASSERT_TRUE(run([&] { return mine.front() == kTheirs; }));
  ASSERT_EQ(mine.back(), kOld);
  TestOperation reclaimed;
  EXPECT_FALSE(owners.Reclaim(*std::move(region), &reclaimed));
  bool changed_before = false;
  ASSERT_TRUE(run([&] {
    changed_before |= !reclaimed.done() && mine.back() == kTheirs;
    return reclaimed.done();
  }));
  EXPECT_TRUE(changed_before) << "then ofi_tcp needs no fence any more";
  std::fill(mine.begin(), mine.end(), kFresh);
  end.connection().Close("enough");
  ASSERT_TRUE(run([&] { return end.closed() && acceptor.endpoints[0]->closed(); }));
  EXPECT_EQ(std::count(mine.begin(), mine.end(), kFresh), static_cast<ptrdiff_t>(kBytes));
}

}  // namespace
}  // namespace weft

int main(int count, char** arguments) {
  if (count == 5 && std::string(arguments[1]) == "--writer") {
    weft::RunWriter(arguments[2], static_cast<weft::PathKind>(std::stoi(arguments[3])),
                    std::string(arguments[4]) == "asks");
  }
  testing::InitGoogleTest(&count, arguments);
  return RUN_ALL_TESTS();
}
