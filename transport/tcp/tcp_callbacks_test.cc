// What a link does when whoever it calls back destroys it, gives it up, or
// posts again; and that no turn is lost to a sleep.

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "transport/sockets/join.h"
#include "transport/tcp/testing/limited_sends.h"
#include "transport/tcp/testing/raw_peer.h"
#include "transport/tcp/testing/tcp_side.h"
#include "transport/testing/post.h"

namespace weft {
namespace {

using Kind = TcpFrameKind;

class TcpCallbacksTest : public testing::Test {
 protected:
  TcpCallbacksTest() {
    local_ = std::move(side_.domain->Register(here_, Access::kLocalOnly)).value();
    region_ = std::move(side_.domain->Register(memory_, Access::kRemoteReadWrite)).value();
  }
  ~TcpCallbacksTest() override {
    peer_.reset();
    end_.link.reset();
    other_.link.reset();
    EXPECT_EQ(side_.domain->stats().send_slots_in_use, 0u);
    EXPECT_EQ(side_.domain->stats().links_open, 0u);
  }

  uint32_t PostRead(uint64_t bytes, Operation* op) {
    EXPECT_TRUE(Read(*end_.link, *local_, 0, {99, 0, bytes}, op).ok());
    TcpSettle({&side_});
    return peer_->ReadFrame().header.operation;
  }
  std::string Frame(Kind kind, uint8_t flags, uint32_t operation, std::string_view payload) {
    return peer_->Next(kind, flags, operation, payload);
  }
  // Frames as the kernel may bring them: all at once.
  void WriteAtOnce(std::initializer_list<std::string> frames) {
    std::string all;
    for (const std::string& frame : frames) all += frame;
    peer_->Write(all);
  }

  TcpSide side_;
  LinkEnd end_;
  LinkEnd other_;
  std::vector<std::byte> here_ = std::vector<std::byte>(4096);
  std::vector<std::byte> memory_ = std::vector<std::byte>(4096);
  std::unique_ptr<Region> local_;
  std::unique_ptr<Region> region_;
  std::unique_ptr<TcpRawPeer> peer_ = std::make_unique<TcpRawPeer>(side_, end_);
};

// Looks at its status after it has destroyed the link.
struct ClosingOperation final : Operation {
  void OnComplete(const absl::Status& result) override {
    ++completions;
    link->reset();
    status = result;
  }
  std::unique_ptr<Link>* link = nullptr;
  int completions = 0;
  absl::Status status;
};

// --- destroyed ----------------------------------------------------------------------------------

TEST_F(TcpCallbacksTest, ABatchMayDestroyItsLink) {
  side_.on_received = [this] { end_.link.reset(); };
  WriteAtOnce({Frame(Kind::kBatch, 0, 0, "one"), Frame(Kind::kBatch, 0, 0, "two")});
  EXPECT_EQ(side_.received, std::vector<std::string>{"one"});
  side_.on_received = nullptr;
}

TEST_F(TcpCallbacksTest, ABatchThatCameInPartsMayDestroyItsLink) {
  side_.on_received = [this] { end_.link.reset(); };
  const std::string frame = Frame(Kind::kBatch, 0, 0, std::string(5000, 'x'));
  peer_->Write(frame.substr(0, 4000));
  peer_->Write(frame.substr(4000) + Frame(Kind::kBatch, 0, 0, "two"));
  EXPECT_EQ(side_.received.size(), 1u);
  side_.on_received = nullptr;
}

TEST_F(TcpCallbacksTest, ABatchMayDestroyAnotherLinkThatHasSomethingToo) {
  TcpRawPeer other_peer(side_, other_, 99);
  int calls = 0;
  side_.on_received = [&] {
    ++calls;
    (side_.received.back() == "mine" ? other_ : end_).link.reset();
  };
  const std::string mine = Frame(Kind::kBatch, 0, 0, "mine");
  ASSERT_EQ(peer_->WriteSome(mine), static_cast<ssize_t>(mine.size()));
  other_peer.Send(Kind::kBatch, 0, 0, "the other's");
  EXPECT_EQ(calls, 1);
  side_.on_received = nullptr;
}

TEST_F(TcpCallbacksTest, AnOperationMayDestroyItsLinkAtItsEnd) {
  for (const bool by_data : {true, false}) {
    peer_ = std::make_unique<TcpRawPeer>(side_, end_);
    ClosingOperation first;
    first.link = &end_.link;
    CountedOperation second;
    const uint32_t number = PostRead(4, &first);
    PostRead(4, &second);
    side_.received.clear();
    if (by_data) {
      WriteAtOnce({Frame(Kind::kData, kTcpLast, number, "1234"), Frame(Kind::kBatch, 0, 0, "x")});
    } else {
      WriteAtOnce({Frame(Kind::kEnd, kTcpRefused, number, ""), Frame(Kind::kBatch, 0, 0, "x")});
    }
    EXPECT_EQ(first.completions, 1);
    EXPECT_EQ(first.status.ok(), by_data);
    EXPECT_EQ(second.completions, 1);
    EXPECT_EQ(second.status.code(), absl::StatusCode::kCancelled);
    EXPECT_TRUE(side_.received.empty());
  }
}

// The status of a link that had failed was the link's own: an operation that
// destroyed the link when it was told read freed memory.
TEST_F(TcpCallbacksTest, AnOperationThatDestroysItsFailedLinkKeepsItsStatus) {
  ClosingOperation first;
  first.link = &end_.link;
  CountedOperation second;
  PostRead(4, &first);
  PostRead(4, &second);
  peer_->Send(Kind::kEnd, 0, 0, "");
  EXPECT_EQ(first.completions, 1);
  EXPECT_EQ(first.status.code(), absl::StatusCode::kDataLoss);
  EXPECT_FALSE(first.status.message().empty());
  EXPECT_EQ(second.status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(end_.downs, 0) << "the handler of a link that is gone hears nothing";
}

TEST_F(TcpCallbacksTest, AHandlerMayDestroyItsLinkWhenItIsUp) {
  struct Closing final : LinkHandler {
    void OnLinkUp() override {
      ++ups;
      link.reset();
    }
    void OnLinkDown(const absl::Status&) override { ADD_FAILURE() << "of a link that is gone"; }
    void OnSlotsFree() override {}
    std::unique_ptr<Link> link;
    int ups = 0;
  } closing;
  LinkPeer peer;
  peer.nonce = 1;
  closing.link = std::move(side_.domain->Accept(peer, &closing)).value();
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
  const Descriptor theirs(ends[0]);
  const std::string frame = TcpFrameText(0, Kind::kBatch, 0, 0, "for nobody");
  ASSERT_EQ(::send(theirs.get(), frame.data(), frame.size(), 0),
            static_cast<ssize_t>(frame.size()));
  ASSERT_TRUE(side_.domain->TakeSocket(Descriptor(ends[1]), {1, 0}).ok());
  TcpSettle({&side_});
  EXPECT_EQ(closing.ups, 1);
  EXPECT_TRUE(side_.received.empty());
}

TEST_F(TcpCallbacksTest, AHandlerMayDestroyItsLinkWhenItIsDown) {
  end_.on_down = [this] { end_.link.reset(); };
  peer_->Send(Kind::kEnd, 0, 0, "");
  EXPECT_EQ(end_.downs, 1);
  EXPECT_FALSE(end_.down_status.ok());
}

TEST_F(TcpCallbacksTest, ADestroyedLinkCancelsItsOperationsWhichMayPostInVain) {
  CountedOperation first, second, again;
  absl::Status posted;
  first.on_complete = [&] {
    posted = side_.end.link == nullptr ? absl::UnknownError("") : absl::OkStatus();
  };
  Link* const link = end_.link.get();
  first.on_complete = [&] { posted = Read(*link, *local_, 0, {99, 0, 4}, &again); };
  PostRead(4, &first);
  PostRead(4, &second);
  end_.link.reset();
  EXPECT_EQ(first.status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(second.status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(posted.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(again.completions, 0);
}

TEST_F(TcpCallbacksTest, AHandlerMayDestroyAllLinksWhenThereIsRoom) {
  struct Closing final : LinkHandler {
    void OnLinkUp() override {}
    void OnLinkDown(const absl::Status&) override {}
    void OnSlotsFree() override {
      a->reset();
      b->reset();
    }
    std::unique_ptr<Link>*a = nullptr, *b = nullptr;
  };
  Closing closing;
  TcpRawPeer other_peer(side_, other_, 99);
  closing.a = &end_.link;
  closing.b = &other_.link;
  LinkPeer peer;
  peer.nonce = 1;
  auto third = std::move(side_.domain->Accept(peer, &closing)).value();
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
  const Descriptor theirs(ends[0]);
  ASSERT_TRUE(side_.domain->TakeSocket(Descriptor(ends[1]), {1, 0}).ok());
  TcpSettle({&side_});
  std::vector<SendSlot> slots;
  SendSlot slot;
  while ((slot = side_.domain->AcquireSlot()).data != nullptr) slots.push_back(slot);
  for (const SendSlot& taken : slots) side_.domain->ReleaseSlot(taken);
  TcpSettle({&side_});
  EXPECT_EQ(end_.link, nullptr);
  EXPECT_EQ(other_.link, nullptr);
  third.reset();
}

// --- given up -----------------------------------------------------------------------------------

// A link that was abandoned by one of its operations' ends went on with what
// had been received: batches were handed out, and writes carried out, of a peer
// that was said to be dead.
TEST_F(TcpCallbacksTest, AnOperationMayAbandonItsLinkWhichThenTakesNothingMore) {
  CountedOperation first, second;
  first.on_complete = [this] { end_.link->Abandon(); };
  const uint32_t number = PostRead(4, &first);
  const uint32_t next = PostRead(4, &second);
  WriteAtOnce({Frame(Kind::kData, kTcpLast, number, "1234"),
               Frame(Kind::kData, kTcpLast, next, "5678"), Frame(Kind::kBatch, 0, 0, "x"),
               Frame(Kind::kWrite, kTcpLast, 7, TcpWriteText(region_->remote(), "y"))});
  EXPECT_TRUE(first.status.ok());
  EXPECT_EQ(second.completions, 1);
  EXPECT_EQ(second.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(side_.received.empty());
  EXPECT_EQ(memory_[0], std::byte{0});
  EXPECT_EQ(end_.downs, 1);
}

TEST_F(TcpCallbacksTest, ABatchMayAbandonItsLink) {
  side_.on_received = [this] { end_.link->Abandon(); };
  WriteAtOnce({Frame(Kind::kBatch, 0, 0, "one"), Frame(Kind::kBatch, 0, 0, "two")});
  EXPECT_EQ(side_.received.size(), 1u);
  EXPECT_EQ(end_.downs, 1);
  EXPECT_EQ(end_.down_status.code(), absl::StatusCode::kUnavailable);
  side_.on_received = nullptr;
}

// A link that waited for its socket and was given up still took the socket: the
// peer's join, which may come at any time, met a link that was down, and ended
// the process in debug builds.
TEST_F(TcpCallbacksTest, AnAbandonedLinkTakesNoSocket) {
  LinkPeer peer;
  peer.nonce = 5;
  peer.nonce_low = 6;
  LinkEnd waiting;
  waiting.link = std::move(side_.domain->Accept(peer, &waiting)).value();
  waiting.link->Abandon();
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
  const Descriptor theirs(ends[0]);
  EXPECT_EQ(side_.domain->TakeSocket(Descriptor(ends[1]), {5, 6}).code(),
            absl::StatusCode::kNotFound);
  char byte;
  EXPECT_EQ(::recv(theirs.get(), &byte, 1, 0), 0) << "closed";
  TcpSettle({&side_});
  EXPECT_EQ(waiting.downs, 1);
  EXPECT_EQ(waiting.ups, 0);
}

TEST_F(TcpCallbacksTest, AnAbandonedLinkClosesItsSocketAndSendsNothing) {
  CountedOperation read;
  PostRead(4, &read);
  end_.link->Abandon();
  EXPECT_EQ(read.completions, 0) << "only Poll() calls back";
  EXPECT_TRUE(peer_->IsClosed());
  EXPECT_EQ(side_.Send(end_, "a batch").code(), absl::StatusCode::kUnavailable);
  CountedOperation late;
  EXPECT_EQ(Read(*end_.link, *local_, 0, {99, 0, 4}, &late).code(), absl::StatusCode::kUnavailable);
  side_.Poll();
  EXPECT_EQ(read.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(end_.downs, 1);
}

TEST_F(TcpCallbacksTest, AnOperationMayPostAgainAtItsEnd) {
  CountedOperation first, again;
  first.on_complete = [&] {
    EXPECT_TRUE(Read(*end_.link, *local_, 0, {99, 0, 4}, &again).ok());
    EXPECT_TRUE(side_.Send(end_, "a batch").ok());
  };
  peer_->Send(Kind::kData, kTcpLast, PostRead(4, &first), "1234");
  EXPECT_EQ(peer_->ReadFrame().header.kind, Kind::kRead);
  const TcpSentFrame frame = peer_->ReadFrame();
  EXPECT_EQ(frame.payload, "a batch");
  EXPECT_EQ(again.completions, 0);
  EXPECT_EQ(end_.downs, 0);
  end_.link.reset();
}

// --- sleeps -------------------------------------------------------------------------------------

// What a peer sends right behind its welcome was not looked for: with another
// link nearer, the domain slept, and the batch lay in the socket until the next
// came.
TEST_F(TcpCallbacksTest, WhatComesWithTheWelcomeIsNotSleptOver) {
  const KernelAddress any = ParseNumericAddress("127.0.0.1:0").value();
  const Descriptor listener = std::move(ListenInternet(any)).value();
  peer_->Send(Kind::kBatch, 0, 0, "this link is the near one");
  LinkPeer to;
  to.address = LocalAddress(listener.get()).value().text();
  other_.link = std::move(side_.domain->Connect(to, &other_)).value();
  Descriptor socket;
  std::string join(kJoinBytes, '\0');
  ASSERT_TRUE(TcpRunUntil({&side_}, [&] {
    if (!socket.valid()) socket = std::move(AcceptClient(listener.get())).value();
    return socket.valid() &&
           ::recv(socket.get(), join.data(), join.size(), MSG_PEEK) == ssize_t{kJoinBytes};
  }));
  std::string bytes(kWelcomeBytes, '\0');
  StoreLe64(reinterpret_cast<std::byte*>(bytes.data()), kWelcomeMagic);
  bytes += TcpFrameText(0, Kind::kBatch, 0, 0, "behind the welcome");
  ASSERT_EQ(::send(socket.get(), bytes.data(), bytes.size(), 0),
            static_cast<ssize_t>(bytes.size()));
  // As an engine: sleeps on the descriptor, and polls when that is readable.
  while (side_.received.size() < 2) {
    if (side_.domain->Arm()) {
      pollfd sleep = {side_.domain->descriptor(), POLLIN, 0};
      ASSERT_EQ(::poll(&sleep, 1, 10'000), 1) << "slept over what was there";
    }
    side_.domain->Poll(64);
  }
  EXPECT_EQ(other_.ups, 1);
  EXPECT_EQ(side_.received.back(), "behind the welcome");
}

// The end of the socket came with a part of the welcome, and was not looked for
// again.
TEST_F(TcpCallbacksTest, AWelcomeThatIsCutShortFailsTheLink) {
  const KernelAddress any = ParseNumericAddress("127.0.0.1:0").value();
  const Descriptor listener = std::move(ListenInternet(any)).value();
  LinkPeer to;
  to.address = LocalAddress(listener.get()).value().text();
  for (size_t bytes = 0; bytes < kWelcomeBytes; ++bytes) {
    peer_->Send(Kind::kBatch, 0, 0, "this link is the near one");
    other_.link.reset();
    other_.downs = 0;
    other_.link = std::move(side_.domain->Connect(to, &other_)).value();
    Descriptor socket;
    std::string join(kJoinBytes, '\0');
    ASSERT_TRUE(TcpRunUntil({&side_}, [&] {
      if (!socket.valid()) socket = std::move(AcceptClient(listener.get())).value();
      return socket.valid() &&
             ::recv(socket.get(), join.data(), join.size(), 0) == ssize_t{kJoinBytes};
    }));
    std::string welcome(kWelcomeBytes, '\0');
    StoreLe64(reinterpret_cast<std::byte*>(welcome.data()), kWelcomeMagic);
    ASSERT_EQ(::send(socket.get(), welcome.data(), bytes, 0), static_cast<ssize_t>(bytes));
    socket.Reset();
    ASSERT_TRUE(TcpRunUntil({&side_}, [&] { return other_.downs == 1; })) << bytes;
    EXPECT_EQ(other_.down_status.code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(other_.ups, 0);
  }
}

TEST_F(TcpCallbacksTest, AWelcomeMayComeAByteAtATime) {
  const KernelAddress any = ParseNumericAddress("127.0.0.1:0").value();
  const Descriptor listener = std::move(ListenInternet(any)).value();
  LinkPeer to;
  to.address = LocalAddress(listener.get()).value().text();
  other_.link = std::move(side_.domain->Connect(to, &other_)).value();
  Descriptor socket;
  ASSERT_TRUE(TcpRunUntil({&side_}, [&] {
    if (!socket.valid()) socket = std::move(AcceptClient(listener.get())).value();
    return socket.valid();
  }));
  std::string bytes(kWelcomeBytes, '\0');
  StoreLe64(reinterpret_cast<std::byte*>(bytes.data()), kWelcomeMagic);
  bytes += TcpFrameText(0, Kind::kBatch, 0, 0, "behind the welcome");
  for (const char byte : bytes) {
    ASSERT_EQ(::send(socket.get(), &byte, 1, 0), 1);
    side_.Poll();
    side_.Poll();
  }
  ASSERT_TRUE(TcpRunUntil({&side_}, [&] { return !side_.received.empty(); }));
  EXPECT_EQ(side_.received.back(), "behind the welcome");
  EXPECT_EQ(other_.ups, 1);
}

// A link that had news for its handler when its socket was looked at was not
// read, and forgot that there was something.
TEST_F(TcpCallbacksTest, WhatComesWithOtherNewsIsNotSleptOver) {
  TcpRawPeer near_peer(side_, other_, 99);
  near_peer.Send(Kind::kBatch, 0, 0, "the near link's");
  near_peer.Send(Kind::kBatch, 0, 0, "the near link's, too");
  while (end_.link->HasRoom()) ASSERT_TRUE(side_.Send(end_, std::string(8000, 'x')).ok());
  TcpSettle({&side_});
  // There is room again, of which the link will tell, and a batch.
  std::string taken(1 << 20, '\0');
  while (peer_->ReadSome(taken.data(), taken.size()) > 0) {
  }
  const std::string batch = Frame(Kind::kBatch, 0, 0, "with the news");
  ASSERT_EQ(peer_->WriteSome(batch), static_cast<ssize_t>(batch.size()));
  EXPECT_FALSE(side_.domain->Arm() && !side_.IsReadable());
  TcpSettle({&side_});
  EXPECT_EQ(side_.received.back(), "with the news");
  EXPECT_EQ(end_.slots_free, 1);
}

// Slots and operations that came back outside of Poll() were told of when
// something else happened, and the domain was ready to sleep until then.
TEST_F(TcpCallbacksTest, RoomThatComesBackOutsideOfATurnIsToldWithoutOne) {
  std::vector<SendSlot> slots;
  SendSlot slot;
  while ((slot = side_.domain->AcquireSlot()).data != nullptr) slots.push_back(slot);
  TcpSettle({&side_});
  EXPECT_EQ(end_.slots_free, 0);
  side_.domain->ReleaseSlot(slots.back());
  slots.pop_back();
  EXPECT_FALSE(side_.domain->Arm());
  TcpSettle({&side_});
  EXPECT_EQ(end_.slots_free, 1);
  EXPECT_TRUE(side_.domain->Arm());
  for (const SendSlot& taken : slots) side_.domain->ReleaseSlot(taken);
  TcpSettle({&side_});
  EXPECT_EQ(end_.slots_free, 1) << "told once";
}

TEST_F(TcpCallbacksTest, OperationsThatAreCancelledMakeRoomForOthers) {
  TcpOptions options;
  options.max_outstanding_operations = 3;
  TcpSide small(options);
  LinkEnd a, b;
  TcpRawPeer peer_of_a(small, a, 1), peer_of_b(small, b, 2);
  std::vector<std::byte> bytes(8);
  auto local = std::move(small.domain->Register(bytes, Access::kLocalOnly)).value();
  std::vector<CountedOperation> ops(5);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(Read(*a.link, *local, 0, {99, 0, 1}, &ops[static_cast<size_t>(i)]).ok());
  }
  const absl::Status refused = Read(*b.link, *local, 0, {99, 0, 1}, &ops[3]);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  const Transfer two[2] = {{local.get(), 0, {99, 0, 1}}, {local.get(), 1, {99, 0, 1}}};
  EXPECT_EQ(ReadBatch(*b.link, two, &ops[3]).code(), absl::StatusCode::kResourceExhausted);
  TcpSettle({&small});
  EXPECT_EQ(b.slots_free, 0);
  a.link.reset();
  EXPECT_FALSE(small.domain->Arm());
  TcpSettle({&small});
  EXPECT_EQ(b.slots_free, 1);
  EXPECT_TRUE(ReadBatch(*b.link, two, &ops[3]).ok());
  EXPECT_TRUE(Read(*b.link, *local, 0, {99, 0, 1}, &ops[4]).ok());
  b.link.reset();
  for (const CountedOperation& op : ops) EXPECT_EQ(op.completions, 1);
}

// With a small budget the links that had had their turn were before those that
// had not.
TEST_F(TcpCallbacksTest, BusyLinksTakeTurnsWhateverTheBudget) {
  constexpr size_t kMany = 3;
  std::vector<LinkEnd> ends(kMany);
  std::vector<std::unique_ptr<TcpRawPeer>> peers;
  for (size_t i = 0; i < kMany; ++i) {
    peers.push_back(std::make_unique<TcpRawPeer>(side_, ends[i], 100 + i, 1 << 20));
  }
  for (size_t i = 0; i < kMany; ++i) {
    size_t bytes = 0;
    for (uint32_t n = 0;; ++n) {
      const std::string frame =
          TcpFrameText(n, Kind::kBatch, 0, 0, std::string(8000, static_cast<char>('a' + i)));
      const ssize_t sent = peers[i]->WriteSome(frame);
      if (sent < 0) break;
      bytes += static_cast<size_t>(sent);
    }
    if (bytes <= 256 << 10) GTEST_SKIP() << "no more than one read brings fits into a socket";
  }
  for (size_t turn = 0; turn < kMany; ++turn) side_.domain->Poll(1);
  for (size_t i = 0; i < kMany; ++i) {
    EXPECT_TRUE(std::any_of(
        side_.received.begin(), side_.received.end(),
        [&](const std::string& batch) { return batch[0] == static_cast<char>('a' + i); }))
        << i;
  }
}

// The kernel took a write but for its padding. The peer carried it out and said
// so; this side had not sent all of it, by its own account, and ended the link:
// the peer had broken the rules.
TEST_F(TcpCallbacksTest, AnEndThatIsFasterThanThePaddingIsAnEnd) {
  if (TcpTestSecret().has_value())
    GTEST_SKIP() << "TLS cuts no frame: the peer has all of a record";
  for (const size_t bytes : {5, 3001}) {  // copied, and from its place
    CountedOperation write;
    LimitedSends sends;
    sends.left = kTcpHeaderBytes + kTcpWriteHeadBytes + bytes;
    ASSERT_TRUE(Write(*end_.link, *local_, 0, {99, 0, bytes}, &write).ok());
    TcpSettle({&side_});
    ASSERT_EQ(sends.left, 0u);
    const std::string head = peer_->Read(kTcpHeaderBytes);
    const uint32_t number = DecodeTcpHeader(AsBytes(head).data()).operation;
    peer_->Read();
    const std::string end = Frame(Kind::kEnd, 0, number, "");
    ASSERT_EQ(::write(peer_->fd(), end.data(), end.size()), static_cast<ssize_t>(end.size()));
    TcpSettle({&side_});
    EXPECT_EQ(write.completions, 1);
    EXPECT_TRUE(write.status.ok()) << write.status;
    EXPECT_EQ(end_.downs, 0) << end_.down_status;
    // A link that the kernel refused bytes waits for it to say that there is
    // room; the event of another frame says so.
    sends.left = LimitedSends::kAll;
    peer_->Send(Kind::kBatch, 0, 0, "x");
    peer_->Read();
  }
}

}  // namespace
}  // namespace weft
