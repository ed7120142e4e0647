// Links between processes, and what is left of them when one is killed.
//
// The parent uses no libfabric itself until all children are forked. What shm links are made of,
// the two take from each other through /proc.

#include <poll.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "transport/ofi/testing/link_fixture.h"
#include "transport/ofi/testing/two_processes.h"
#include "transport/testing/post.h"

namespace weft {
namespace {

constexpr uint32_t kWindow = 64;

// What is done in the child, named so that a failure says where.
enum class Load { kEcho, kFlood };

// A descriptor of another process of ours.
class Borrowed {
 public:
  Borrowed(int pid, const std::string& number)
      : fd_(open(absl::StrCat("/proc/", pid, "/fd/", number).c_str(), O_RDWR | O_CLOEXEC)) {}
  ~Borrowed() { close(fd_); }
  int get() const { return fd_; }

 private:
  const int fd_;
};

// Connects to the parent and works until it is killed or told to stop.
void RunChild(PathKind kind, Load load, uint64_t nonce, const Pipes& parent) {
  Side side(kind);
  if (side.domain == nullptr || !side.domain->AddSlots(kWindow, kWindow).ok()) return;
  parent.Tell(side.domain->address());
  parent.Tell(absl::StrCat(side.domain->host_descriptor()));
  LinkPeer peer;
  peer.address = parent.Hear();
  peer.nonce = nonce;
  peer.process_id = getppid();
  const Borrowed host(getppid(), parent.Hear());
  const Borrowed memory(getppid(), parent.Hear());
  peer.host_descriptor = host.get();
  peer.memory_descriptor = memory.get();
  auto link = side.domain->Connect(peer, &side.endpoint);
  parent.Tell("connected");
  if (!link.ok()) return;
  side.endpoint.link = *std::move(link);
  size_t echoed = 0;
  side.on_received = [&] {
    side.received.clear();
    ++echoed;
  };
  size_t answered = 0;
  std::string flood(200, 'f');
  while (side.endpoint.downs == 0) {
    side.domain->Poll(64);
    if (side.endpoint.ups == 0) continue;
    if (load == Load::kFlood) {
      side.Send(flood).IgnoreError();
    } else if (answered < echoed && side.Send("echo").ok()) {
      ++answered;
    }
  }
}

class PeerDeathTest : public testing::TestWithParam<PathKind> {
 protected:
  // Forks a child and returns its number. All before Start().
  void Fork(Load load) {
    const uint64_t nonce = 1000 + children_.size();
    children_.push_back(
        std::make_unique<ForkedProcess>([kind = GetParam(), load, nonce](const Pipes& parent) {
          RunChild(kind, load, nonce, parent);
        }));
  }

  void Start() {
    side_ = std::make_unique<Side>(GetParam());
    ASSERT_NE(side_->domain, nullptr);
  }

  // Brings the link to child `i` up.
  void Join(size_t i) {
    ASSERT_TRUE(side_->domain->AddSlots(kWindow, kWindow).ok());
    const Pipes& child = children_[i]->pipes();
    LinkPeer peer;
    peer.address = child.Hear();
    peer.nonce = 1000 + i;
    peer.process_id = children_[i]->pid();
    const Borrowed host(children_[i]->pid(), child.Hear());
    peer.host_descriptor = host.get();
    const absl::StatusOr<int> memory = side_->domain->NewLinkMemory();
    if (memory.ok()) peer.memory_descriptor = *memory;
    links_.resize(children_.size());
    links_[i] = std::make_unique<LinkEnd>();
    auto link = side_->domain->Accept(peer, links_[i].get());
    ASSERT_TRUE(link.ok()) << link.status();
    links_[i]->link = *std::move(link);
    child.Tell(side_->domain->address());
    child.Tell(absl::StrCat(side_->domain->host_descriptor()));
    child.Tell(absl::StrCat(peer.memory_descriptor));
    ASSERT_TRUE(Run([&] { return links_[i]->ups == 1; }));
    EXPECT_EQ(child.Hear(), "connected");
    if (memory.ok()) close(*memory);
  }

  void Leave(size_t i) {
    if (GetParam() == PathKind::kShm) links_[i]->link->Abandon();
    links_[i]->link.reset();
    side_->domain->RemoveSlots(kWindow, kWindow);
  }

  template <class Done>
  bool Run(Done done) {
    return RunUntil({side_.get()}, done);
  }

  // One message there and back.
  void Echo(size_t i) {
    side_->received.clear();
    ASSERT_TRUE(Run([&] { return side_->Send(*links_[i], "ping").ok(); }));
    ASSERT_TRUE(Run([&] {
      for (const std::string& text : side_->received) {
        if (text == "echo") return true;
      }
      return false;
    }));
  }

  std::vector<std::unique_ptr<ForkedProcess>> children_;
  std::unique_ptr<Side> side_;
  std::vector<std::unique_ptr<LinkEnd>> links_;
};

TEST_P(PeerDeathTest, ProcessesExchangeMessages) {
  Fork(Load::kEcho);
  Start();
  Join(0);
  for (int i = 0; i < 100; ++i) Echo(0);
  Leave(0);
}

TEST_P(PeerDeathTest, KilledPeerTakesDownItsLinkOnly) {
  Fork(Load::kEcho);
  Fork(Load::kEcho);
  Start();
  Join(0);
  Join(1);
  Echo(0);
  Echo(1);
  const int descriptors = CountDescriptors();
  children_[0]->Kill();
  if (GetParam() != PathKind::kShm) {
    ASSERT_TRUE(Run([&] { return links_[0]->downs == 1; }));
    EXPECT_EQ(links_[0]->down_status.code(), absl::StatusCode::kUnavailable);
  }
  for (int i = 0; i < 100; ++i) side_->Send(*links_[0], "into the void").IgnoreError();
  Echo(1);
  Leave(0);
  EXPECT_EQ(side_->domain->stats().send_slots_in_use, 0u);
  if (GetParam() != PathKind::kVerbs) {  // there a link has no descriptor of its own
    EXPECT_LT(CountDescriptors(), descriptors);
  }
  Echo(1);
  Leave(1);
}

// libfabric's shared memory, which Weft used once, left the survivor spinning for ever in 1 kill of
// 6: the dead peer held a lock.
TEST_P(PeerDeathTest, SurvivorOutlivesKilledPeersUnderLoad) {
  if (GetParam() == PathKind::kVerbs) {
    GTEST_SKIP() << "this flood has no credits, which verbs needs: it retries a missing receive "
                    "for ever";
  }
  constexpr size_t kKills = 40;
  Fork(Load::kEcho);  // the bystander
  for (size_t i = 0; i < kKills; ++i) Fork(Load::kFlood);
  Start();
  side_->on_received = [&] {
    if (side_->received.size() > 1000) side_->received.clear();
  };
  Join(0);
  for (size_t i = 1; i <= kKills; ++i) {
    Join(i);
    size_t turns = 0;
    ASSERT_TRUE(Run([&] {
      side_->Send(*links_[i], std::string(200, 's')).IgnoreError();
      return ++turns > 300;
    }));
    kill(children_[i]->pid(), SIGKILL);
    turns = 0;
    ASSERT_TRUE(Run([&] {
      side_->Send(*links_[i], std::string(200, 's')).IgnoreError();
      return ++turns > 300;
    }));
    children_[i]->Wait();
    Leave(i);
    Echo(0);
  }
  Leave(0);
  EXPECT_EQ(side_->domain->stats().send_slots_in_use, 0u);
}

TEST_P(PeerDeathTest, NothingOfAKilledPeerStaysInShm) {
  const size_t files = ShmFiles();
  Fork(Load::kEcho);
  Start();
  Join(0);
  Echo(0);
  children_[0]->Kill();
  Leave(0);
  side_.reset();
  EXPECT_LE(ShmFiles(), files);  // fewer: opening a domain also removes what others left
}

TEST_P(PeerDeathTest, OperationsOnAKilledPeerFail) {
  Fork(Load::kEcho);
  Start();
  Join(0);
  std::vector<std::byte> here(64);
  auto local = side_->domain->Register(MutableByteSpan(here), Access::kLocalOnly);
  ASSERT_TRUE(local.ok());
  children_[0]->Kill();
  CountedOperation op;
  RemoteSpan anything;
  anything.key = 4242;
  anything.length = 64;
  const absl::Status posted = Read(*links_[0]->link, **local, 0, anything, &op);
  if (posted.ok()) {
    ASSERT_TRUE(Run([&] { return op.completions == 1 || links_[0]->downs == 1; }));
  }
  Leave(0);
  EXPECT_EQ(op.completions, posted.ok() ? 1 : 0);
  EXPECT_FALSE(op.status.ok());
}

INSTANTIATE_TEST_SUITE_P(Providers, PeerDeathTest, testing::ValuesIn(TestedPaths()),
                         [](const auto& info) { return std::string(PathKindName(info.param)); });

}  // namespace
}  // namespace weft
