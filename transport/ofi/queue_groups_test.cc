// What queue groups promise beyond what every link does: many links at once, over tcp.

#include "transport/ofi/queue_groups.h"

#include <poll.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "core/cache_line.h"
#include "gtest/gtest.h"
#include "transport/ofi/testing/link_fixture.h"
#include "transport/ofi/testing/poll_hook.h"
#include "transport/ofi/testing/write_calls.h"
#include "transport/prefetch_list.h"
#include "transport/testing/post.h"

namespace weft {
namespace {

constexpr uint32_t kWindow = 64;
// Three groups that share a queue to send by.
constexpr size_t kLinks = 2 * size_t{QueueGroups::kEndpoints} + 1;
// The first of the second group.
constexpr size_t kSecond = QueueGroups::kEndpoints;
// Completions that the domain reads at once. Behind as many, the provider has its endpoints go on.
constexpr int kSendsRead = 32;
// Longer than the provider takes with its fi_inject(): such a send has a completion.
constexpr size_t kSentBytes = 300;

bool HasGroups() { return FI_VERSION_LT(fi_version(), FI_VERSION(1, 18)); }

class QueueGroupsTest : public testing::Test {
 protected:
  explicit QueueGroupsTest(uint32_t near_links = 0)
      : a_(PathKind::kTcp, Options(), near_links), b_(PathKind::kTcp, Options(), near_links) {
    EXPECT_TRUE(a_.domain->AddSlots(kWindow * kLinks, kWindow * kLinks).ok());
    EXPECT_TRUE(b_.domain->AddSlots(kWindow * kLinks, kWindow * kLinks).ok());
    for (size_t i = 0; i < kLinks; ++i) Open(i);
  }

  static OfiOptions Options() {
    OfiOptions options;
    options.slot_bytes = 8192;
    return options;
  }

  void Open(size_t i) { LinkEnds(a_, of_a_[i], b_, of_b_[i], /*nonce=*/0x1234 + i); }

  template <class Done>
  bool Run(Done done) {
    return RunUntil({&a_, &b_}, done);
  }

  static bool Readable(const Side& side) {
    pollfd fd = {side.domain->descriptor(), POLLIN, 0};
    return poll(&fd, 1, 0) == 1;
  }

  // `a_` is about to sleep, and there is nothing to wake it.
  void Sleep() {
    while (!a_.domain->Arm()) a_.domain->Poll(64);
    ASSERT_FALSE(Readable(a_));
  }

  // While `a_` reads a message on the first link: it sends so many there that the completions are
  // to be read in this very turn, and a message comes for it by the last link, in another group.
  // That read takes the message off its socket.
  void LetASendQueueTakeAMessage() {
    a_.on_received = [&] {
      a_.on_received = nullptr;
      for (int i = 0; i < 16; ++i)
        ASSERT_TRUE(a_.Send(of_a_[0], std::string(kSentBytes, 's')).ok());
      ASSERT_TRUE(b_.Send(of_b_[kLinks - 1], "taken").ok());
    };
    a_.received.clear();
    ASSERT_TRUE(b_.Send(of_b_[0], "go on").ok());
    while (a_.received.empty()) a_.domain->Poll(64);
  }

  // Everything has come, and no group of a_'s is on the list.
  void Rest() {
    for (int i = 0; i < 1000; ++i) {
      b_.domain->Poll(64);
      a_.domain->Poll(64);
    }
    a_.received.clear();
  }
  void ExpectSoon(const std::string& text) {
    const auto has_come = [&] {
      return std::count(a_.received.begin(), a_.received.end(), text) == 1;
    };
    for (int turn = 0; !has_come(); ++turn) {
      ASSERT_LT(turn, 64) << a_.received.size() << " others have come";
      a_.domain->Poll(64);
    }
  }

  Side a_;
  Side b_;
  Endpoint of_a_[kLinks];
  Endpoint of_b_[kLinks];
};

// The provider wrote a byte to itself for each message that came, and read it back: 1.5 us of 17.
TEST_F(QueueGroupsTest, NoMessageIsSignalled) {
  if (!HasGroups()) GTEST_SKIP() << "this libfabric has one queue for all";
  const uint64_t before = WriteCalls();
  constexpr size_t kMessages = 20 * kLinks;
  for (size_t i = 0; i < kMessages; ++i) {
    const size_t bytes = i % 2 == 0 ? 64 : kSentBytes;
    ASSERT_TRUE(Run([&] { return a_.Send(of_a_[i % kLinks], std::string(bytes, 'm')).ok(); }));
    ASSERT_TRUE(Run([&] { return b_.received.size() == i + 1; }));
  }
  EXPECT_LT(WriteCalls() - before, kMessages / 10);
}

// Reading what has been sent moves all endpoints that send by the same queue: a message of another
// group was then in that group's queue, its socket was silent, and it waited for the group's turn,
// which came after 1,024 turns for each group.
TEST_F(QueueGroupsTest, AMessageThatASendQueueHasTakenIsFound) {
  for (int round = 0; round < 20; ++round) {
    LetASendQueueTakeAMessage();
    for (uint32_t turn = 0; a_.received.size() < 2; ++turn) {
      ASSERT_LT(turn, 4 * QueueGroups::kGroupsPerSendQueue) << "round " << round;
      a_.domain->Poll(64);
    }
    EXPECT_EQ(a_.received.back(), "taken");
    ASSERT_TRUE(Run([&] { return b_.received.size() == size_t{16} * (round + 1); }));
  }
}

TEST_F(QueueGroupsTest, NobodySleepsOverAMessageThatASendQueueHasTaken) {
  for (int round = 0; round < 20; ++round) {
    Sleep();
    LetASendQueueTakeAMessage();
    while (a_.received.size() < 2) {
      ASSERT_TRUE(!a_.domain->Arm() || Readable(a_)) << "round " << round;
      a_.domain->Poll(64);
    }
    ASSERT_TRUE(Run([&] { return b_.received.size() == size_t{16} * (round + 1); }));
  }
}

// The look before a sleep took messages of two groups off their sockets, found the first, and gave
// the sleep up: the second waited for its group's turn.
TEST_F(QueueGroupsTest, AMessageThatAnAbandonedSleepHasTakenIsFound) {
  if (!HasGroups()) GTEST_SKIP() << "this libfabric has one queue for all";
  for (int round = 0; round < 20; ++round) {
    Sleep();
    a_.domain->Poll(64);
    // So many that their queue is read at once, and its groups are to be looked at.
    for (int i = 0; i < 8; ++i) ASSERT_TRUE(a_.Send(of_a_[0], std::string(kSentBytes, 's')).ok());
    a_.domain->Poll(64);
    a_.received.clear();
    ASSERT_TRUE(b_.Send(of_b_[0], "first").ok());
    ASSERT_TRUE(b_.Send(of_b_[kLinks - 1], "second").ok());
    while (!Readable(a_)) {  // the kernel takes its time now and then
    }
    ASSERT_FALSE(a_.domain->Arm());
    for (uint32_t turn = 0; a_.received.size() < 2; ++turn) {
      ASSERT_LT(turn, 512u) << "round " << round;
      a_.domain->Poll(64);
    }
    ASSERT_TRUE(Run([&] { return b_.received.size() == size_t{8} * (round + 1); }));
  }
}

// What the provider has taken from fi_inject() and its socket had no room for: nobody hears of it
// again. It went on with the group's turn, 1,024 turns for each group.
TEST_F(QueueGroupsTest, HeldUpMessagesGoOnAsSoonAsThereIsRoom) {
  const size_t messages = SendMoreThanFits(a_, of_a_[kLinks - 1]);
  // It was awaited for a while, and read in each turn: that is over now.
  for (int i = 0; i < 1000; ++i) a_.domain->Poll(64);
  uint32_t longest = 0;
  uint32_t without = 0;
  while (b_.received.size() < messages) {
    const size_t had = b_.received.size();
    a_.domain->Poll(64);
    b_.domain->Poll(64);
    without = b_.received.size() == had ? without + 1 : 0;
    longest = std::max(longest, without);
    ASSERT_LT(longest, 4096u) << b_.received.size() << " have come";
  }
  EXPECT_LT(longest, 64u);
}

// The same for the answer to a read of the peer's that comes after the group's last look at its
// sockets, and before it leaves the list.
TEST_F(QueueGroupsTest, AnAnswerThatHasNoRoomGoesOnAsSoonAsThereIs) {
  LongRead of_a(a_, b_);
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < 1000; ++i) a_.domain->Poll(64);  // no group is on the list
    a_.received.clear();
    ASSERT_TRUE(b_.Send(of_b_[kLinks - 1], "brings the group onto it").ok());
    while (a_.received.empty()) a_.domain->Poll(64);
    CountedOperation read;
    const PollHook hook(/*nth=*/1,
                        [&] { ASSERT_TRUE(of_a.Start(*of_b_[kLinks - 1].link, &read).ok()); });
    a_.domain->Poll(64);
    ASSERT_TRUE(PollHook::has_acted());
    for (uint32_t turns = 0; read.completions == 0; ++turns) {
      ASSERT_LT(turns, 512u) << "round " << round;
      b_.domain->Poll(64);
      a_.domain->Poll(64);
    }
    EXPECT_TRUE(read.status.ok()) << read.status;
    EXPECT_TRUE(of_a.IsThere());
  }
}

// All receives were held by messages of the first group, unread: a message of the second was taken
// off its socket, which is silent then, found no receive, and waited for its group's turn, which
// came after 1,024 turns for each group.
TEST_F(QueueGroupsTest, AMessageThatFindsNoReceiveIsTakenInOneOfTheNextTurns) {
  if (!HasGroups()) GTEST_SKIP() << "this libfabric has one queue for all";
  for (int round = 0; round < 5; ++round) {
    Rest();
    // Both groups are to be read, the first one first, and the queue that they send by behind them:
    // it has as many completions as one read takes, so another one moves all endpoints.
    for (int i = 0; i < kSendsRead - 2; ++i)
      ASSERT_TRUE(a_.Send(of_a_[0], std::string(kSentBytes, 's')).ok());
    ASSERT_TRUE(a_.Send(of_a_[kSecond], std::string(kSentBytes, 's')).ok());
    ASSERT_TRUE(a_.Send(of_a_[0], std::string(kSentBytes, 's')).ok());
    for (int i = 0; i < 200; ++i) {  // more than a_ has receives
      ASSERT_TRUE(b_.Send(of_b_[i % QueueGroups::kEndpoints], "flood").ok());
    }
    a_.on_received = [&] {
      a_.on_received = nullptr;
      ASSERT_TRUE(b_.Send(of_b_[kSecond], "finds none").ok());
    };
    ASSERT_NO_FATAL_FAILURE(ExpectSoon("finds none")) << "round " << round;
  }
}

// One link has the near queue, the others have groups.
class BesideANearLinkTest : public QueueGroupsTest {
 protected:
  BesideANearLinkTest() : QueueGroupsTest(/*near_links=*/1) {}
};

// The same, where the near queue holds them, behind as many completions of sends as a turn reads.
TEST_F(BesideANearLinkTest, AMessageThatFindsNoReceiveIsTakenInOneOfTheNextTurns) {
  if (!HasGroups()) GTEST_SKIP() << "this libfabric has one queue for all";
  constexpr int kBudget = 64;
  for (int round = 0; round < 5; ++round) {
    Rest();
    const std::string text(kSentBytes, 's');
    for (int i = 0; i < kBudget; ++i) ASSERT_TRUE(a_.Send(of_a_[0], text).ok());
    for (int i = 0; i < 200; ++i) ASSERT_TRUE(b_.Send(of_b_[0], "flood").ok());
    for (int i = 0; i < 10; ++i) ASSERT_FALSE(a_.domain->Arm());  // the messages have all receives
    // Two groups are read, and the queue that they send by twice.
    for (int i = 1; i < kSendsRead; ++i) ASSERT_TRUE(a_.Send(of_a_[kSecond + 1], text).ok());
    ASSERT_TRUE(a_.Send(of_a_[1], text).ok());
    const PollHook hook(/*nth=*/3,
                        [&] { ASSERT_TRUE(b_.Send(of_b_[kSecond + 1], "finds none").ok()); });
    a_.domain->Poll(kBudget);
    ASSERT_TRUE(PollHook::has_acted());
    ASSERT_NO_FATAL_FAILURE(ExpectSoon("finds none")) << "round " << round;
  }
}

// A turn's budget went to the first group on the list as long as that was busy: with 64 and more in
// each turn, nobody else was heard.
TEST_F(QueueGroupsTest, ABusyGroupDoesNotKeepOthersWaiting) {
  if (!HasGroups()) GTEST_SKIP() << "this libfabric has one queue for all";
  constexpr int kBudget = 64;
  const auto flood = [&] {
    for (int i = 0; i < 2 * kBudget; ++i) {
      ASSERT_TRUE(b_.Send(of_b_[i % QueueGroups::kEndpoints], "flood").ok());
    }
  };
  flood();
  a_.domain->Poll(kBudget);
  ASSERT_TRUE(b_.Send(of_b_[QueueGroups::kEndpoints], "of another group").ok());
  const auto has_come = [&] {
    return std::count(a_.received.begin(), a_.received.end(), "of another group") == 1;
  };
  for (int turn = 0; !has_come(); ++turn) {
    ASSERT_LT(turn, 16);
    flood();
    a_.domain->Poll(kBudget);
  }
}

// Completions of sends are taken several at once: one that is not followed by others is taken, too.
TEST_F(QueueGroupsTest, ALoneSendGivesItsSlotBack) {
  const uint32_t before = a_.domain->stats().send_slots_in_use;
  ASSERT_TRUE(a_.Send(of_a_[0], std::string(kSentBytes, 'l')).ok());
  ASSERT_TRUE(Run([&] { return a_.domain->stats().send_slots_in_use == before; }));
  EXPECT_FALSE(a_.domain->busy());
}

// The queue for sends wakes nobody.
TEST_F(QueueGroupsTest, NobodySleepsOverTheCompletionOfASend) {
  const uint32_t before = a_.domain->stats().send_slots_in_use;
  Sleep();
  ASSERT_TRUE(a_.Send(of_a_[0], std::string(kSentBytes, 'l')).ok());
  a_.domain->Poll(64);
  Sleep();
  EXPECT_EQ(a_.domain->stats().send_slots_in_use, before);
}

// What somebody waits for is not left until others have come together.
TEST_F(QueueGroupsTest, TheCompletionOfAReadIsTakenAtOnce) {
  std::vector<std::byte> there(8), here(8);
  auto remote = b_.domain->Register(MutableByteSpan(there), Access::kRemoteRead);
  auto local = a_.domain->Register(MutableByteSpan(here), Access::kLocalOnly);
  ASSERT_TRUE(remote.ok() && local.ok());
  int at_once = 0;  // not in each round: the kernel takes its time now and then
  for (int round = 0; round < 20; ++round) {
    CountedOperation read;
    ASSERT_TRUE(Read(*of_a_[0].link, **local, 0, (*remote)->remote(), &read).ok());
    for (int i = 0; i < 10; ++i) b_.domain->Poll(64);
    int turns = 0;
    ASSERT_TRUE(Run([&] { return ++turns > 0 && read.completions > 0; }));
    at_once += turns < 8;
  }
  EXPECT_GT(at_once, 10);
}

// Who has used his few slots does not wait for others' sends, or for time to pass.
TEST_F(QueueGroupsTest, FewSlotsAreTakenBackAtOnce) {
  constexpr uint32_t kSlots = 4;
  a_.domain->RemoveSlots(kWindow * kLinks - kSlots, 0);
  const std::string text(kSentBytes, 'f');
  for (int round = 0; round < 20; ++round) {
    size_t sent = 0;
    while (a_.Send(of_a_[sent % kLinks], text).ok()) ++sent;
    ASSERT_EQ(sent, kSlots);
    for (int turn = 0; a_.domain->stats().send_slots_in_use > 0; ++turn) {
      ASSERT_LT(turn, 8) << "round " << round;
      a_.domain->Poll(64);
    }
  }
  ASSERT_TRUE(a_.domain->AddSlots(kWindow * kLinks - kSlots, 0).ok());
}

// Who has used all his slots gets them back without a wait for others.
TEST_F(QueueGroupsTest, SendsAreTakenBackWhenSlotsHaveRunOut) {
  const std::string text(kSentBytes, 'r');
  for (int round = 0; round < 100; ++round) {
    b_.received.clear();
    size_t sent = 0;
    while (a_.Send(of_a_[sent % kLinks], text).ok()) ++sent;
    EXPECT_EQ(sent, kWindow * kLinks);
    for (int turn = 0; a_.domain->stats().send_slots_in_use > 0; ++turn) {
      ASSERT_LT(turn, 1000);
      a_.domain->Poll(64);
      b_.domain->Poll(64);
    }
    ASSERT_TRUE(Run([&] { return b_.received.size() == sent; }));
  }
}

// What a connection would list of itself.
struct Above {
  alignas(kCacheLineBytes) char memory[2 * kCacheLineBytes] = {};
};

// The line that `wanted` is in.
bool ListsAddress(const PrefetchList& lines, uintptr_t wanted) {
  bool found = false;
  lines.ForEachLine([&](const void* line, bool /*for_write*/) {
    found = found || wanted - reinterpret_cast<uintptr_t>(line) < kCacheLineBytes;
  });
  return found;
}
bool Lists(const PrefetchList& lines, const void* wanted) {
  return ListsAddress(lines, reinterpret_cast<uintptr_t>(wanted));
}

// A link met each of its lines, and those of whoever is above it, as a miss behind the other when
// it had not been used for a thousand calls.
TEST_F(QueueGroupsTest, ALinkListsItsLinesWhenAnotherIsUsed) {
  if (!HasGroups()) GTEST_SKIP() << "this libfabric has one queue for all";
  Above above;
  PrefetchList* const first = &of_a_[0].link->prefetch();
  ASSERT_NE(first, nullptr);
  first->Register(above.memory, sizeof(above.memory));
  ASSERT_TRUE(a_.Send(of_a_[0], "used").ok());
  EXPECT_FALSE(first->wanted());
  ASSERT_TRUE(a_.Send(of_a_[1], "another").ok());
  EXPECT_TRUE(first->wanted());
  EXPECT_TRUE(Lists(*first, above.memory));
  EXPECT_TRUE(Lists(*first, above.memory + kCacheLineBytes));
  EXPECT_TRUE(Lists(*first, of_a_[0].link.get()));
  EXPECT_FALSE(of_a_[1].link->prefetch().wanted());
}

// They were prefetched when the message was here, after the provider's read, one miss behind the
// other: the epoll tells of the link before that.
TEST_F(QueueGroupsTest, NewsOfASocketCallForItsLinksLines) {
  if (!HasGroups()) GTEST_SKIP() << "this libfabric has one queue for all";
  for (const size_t link : {size_t{0}, size_t{1}, kLinks - 1}) {
    ASSERT_TRUE(a_.Send(of_a_[link], "used").ok());
    ASSERT_TRUE(a_.Send(of_a_[2], "another").ok());
    ASSERT_TRUE(of_a_[link].link->prefetch().wanted());
    for (int i = 0; i < 1000; ++i) a_.domain->Poll(64);  // no group is on the list
    a_.received.clear();
    ASSERT_TRUE(b_.Send(of_b_[link], "news").ok());
    ASSERT_TRUE(Run([&] { return a_.received.size() == 1; }));
    EXPECT_FALSE(of_a_[link].link->prefetch().wanted()) << link;
  }
}

// A list stays with the domain: who has kept it finds that it wants nothing, or another link's.
TEST_F(QueueGroupsTest, TheListOfALinkThatHasGoneIsEmpty) {
  if (!HasGroups()) GTEST_SKIP() << "this libfabric has one queue for all";
  const auto gone = reinterpret_cast<uintptr_t>(of_a_[0].link.get());
  PrefetchList& lines = of_a_[0].link->prefetch();
  PrefetchList& last_lines = of_a_[kLinks - 1].link->prefetch();
  ASSERT_TRUE(a_.Send(of_a_[0], "used").ok());
  ASSERT_TRUE(a_.Send(of_a_[kLinks - 1], "another").ok());
  ASSERT_TRUE(ListsAddress(lines, gone));
  of_a_[0].link.reset();
  EXPECT_FALSE(lines.wanted());
  EXPECT_FALSE(ListsAddress(lines, gone));
  of_a_[kLinks - 1].link.reset();  // the one that was used last, which does not go cold any more
  ASSERT_TRUE(a_.Send(of_a_[1], "and on").ok());
  EXPECT_FALSE(last_lines.wanted());
}

}  // namespace
}  // namespace weft
