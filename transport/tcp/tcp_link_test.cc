// Links through sockets: batches of all sizes, one-sided operations, and their ends.

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "core/strings.h"
#include "transport/sockets/address.h"
#include "transport/sockets/join.h"
#include "transport/sockets/socket.h"
#include "transport/tcp/testing/raw_peer.h"
#include "transport/tcp/testing/tcp_side.h"
#include "transport/testing/post.h"

namespace weft {
namespace {

std::string Text(size_t bytes, size_t seed) {
  std::string text(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(seed * 31 + i * 7 + i / 251);
  return text;
}

class TcpLinkTest : public testing::Test {
 protected:
  static TcpOptions Options() {
    TcpOptions options;
    options.wide_slot_bytes = (64 << 10) + 576;
    return options;
  }

  void SetUp() override { TcpLinkEnds(a_, a_.end, b_, b_.end, 17); }

  template <class Done>
  bool Run(Done done) {
    return TcpRunUntil({&a_, &b_}, done);
  }

  TcpSide a_{Options()};
  TcpSide b_{Options()};
};

TEST_F(TcpLinkTest, BatchesOfEverySizeArriveInOrder) {
  std::vector<std::string> sent;
  for (const size_t bytes : {16, 17, 23, 24, 25, 100, 4096, 8191, 8192, 9000, 66112}) {
    for (int times = 0; times < 3; ++times) {
      sent.push_back(Text(bytes, sent.size()));
      ASSERT_TRUE(a_.Send(a_.end, sent.back(), /*wide=*/bytes > 8192).ok());
      ASSERT_TRUE(b_.Send(b_.end, sent.back(), /*wide=*/bytes > 8192).ok());
    }
    ASSERT_TRUE(Run(
        [&] { return a_.received.size() == sent.size() && b_.received.size() == sent.size(); }));
  }
  EXPECT_EQ(b_.received, sent);
  EXPECT_EQ(a_.received, sent);
  EXPECT_EQ(a_.domain->stats().send_slots_in_use, 0u);
}

TEST_F(TcpLinkTest, ReadsAndWritesMoveEverySize) {
  for (const size_t bytes :
       {1, 7, 8, 2047, 2048, 2049, 4095, 65535, 65536, 65537, 1 << 20, (8 << 20) + 3}) {
    SCOPED_TRACE(bytes);
    const std::string text = Text(bytes, bytes);
    std::vector<std::byte> here(bytes), there(bytes);
    std::copy(text.begin(), text.end(), reinterpret_cast<char*>(there.data()));
    auto local = std::move(a_.domain->Register(here, Access::kLocalOnly)).value();
    auto remote = std::move(b_.domain->Register(there, Access::kRemoteReadWrite)).value();
    CountedOperation read, write;
    ASSERT_TRUE(Read(*a_.end.link, *local, 0, remote->remote(), &read).ok());
    EXPECT_EQ(read.completions, 0);
    ASSERT_TRUE(Run([&] { return read.completions == 1; }));
    ASSERT_TRUE(read.status.ok()) << read.status;
    EXPECT_EQ(here, there);
    std::reverse(here.begin(), here.end());
    ASSERT_TRUE(Write(*a_.end.link, *local, 0, remote->remote(), &write).ok());
    ASSERT_TRUE(a_.Send("behind the write, 16 or more").ok());
    ASSERT_TRUE(Run([&] { return !b_.received.empty(); }));
    EXPECT_EQ(here, there) << "a write is there before a batch behind it";
    b_.received.clear();
    ASSERT_TRUE(Run([&] { return write.completions == 1; }));
    ASSERT_TRUE(write.status.ok()) << write.status;
  }
}

// --- addresses and joins ------------------------------------------------------------------------

TEST(TcpLinkAddresses, LinksComeUpOverEveryKindOfAddress) {
  // A short path: the kernel allows 107 bytes.
  std::vector<std::string> addresses = {"127.0.0.1:0",
                                        StrCat("unix:/tmp/weft-tcp-link-", getpid())};
  if (ListenInternet(ParseNumericAddress("[::1]:0").value()).ok()) addresses.push_back("[::1]:0");
  for (const std::string& address : addresses) {
    SCOPED_TRACE(address);
    TcpSide a, b({}, address);
    TcpLinkEnds(a, a.end, b, b.end, 17);
    ASSERT_TRUE(a.Send("from the active side").ok());
    ASSERT_TRUE(b.Send("from the passive side").ok());
    ASSERT_TRUE(TcpRunUntil({&a, &b}, [&] { return !a.received.empty() && !b.received.empty(); }));
    EXPECT_EQ(a.end.ups + b.end.ups, 2);
    b.end.link.reset();
    ASSERT_TRUE(TcpRunUntil({&a, &b}, [&] { return a.end.downs == 1; }));
    EXPECT_EQ(a.end.down_status.code(), absl::StatusCode::kUnavailable);
  }
}

TEST(TcpLinkAddresses, OnlyNumericAddressesAreDialled) {
  TcpSide side;
  for (const char* address : {"", "localhost:1", "127.0.0.1", "unix:relative", "x"}) {
    LinkPeer peer;
    peer.address = address;
    EXPECT_EQ(side.domain->Connect(peer, &side.end).status().code(),
              absl::StatusCode::kInvalidArgument)
        << address;
  }
  EXPECT_EQ(side.domain->stats().links_open, 0u);
}

// The error of a dial that is decided later said nothing of the address.
TEST(TcpLinkAddresses, NobodyAtTheAddressIsUnavailable) {
  TcpSide side;
  LinkPeer peer;
  {
    const TcpSide gone;
    peer.address = gone.listens_at;
  }
  auto link = side.domain->Connect(peer, &side.end);
  absl::Status why = link.status();
  if (link.ok()) {
    ASSERT_TRUE(TcpRunUntil({&side}, [&] { return side.end.downs == 1; }));
    why = side.end.down_status;
  }
  EXPECT_EQ(why.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(why.message().find(peer.address), std::string::npos) << why;
  EXPECT_NE(why.message().find("no server listens there"), std::string::npos) << why;
  EXPECT_EQ(side.end.ups, 0);
}

class TcpJoinTest : public testing::Test {
 protected:
  // A socket that has been connected to `side_`, which knows nothing of it yet.
  Descriptor Dial() {
    return std::move(StartDial(ParseNumericAddress(side_.listens_at).value())).value();
  }
  static std::string Join(const Nonce128& token) {
    std::string join(kJoinBytes, '\0');
    auto* const bytes = reinterpret_cast<std::byte*>(join.data());
    StoreLe64(bytes, kJoinMagic);
    StoreLe64(bytes + 8, token.high);
    StoreLe64(bytes + 16, token.low);
    return join;
  }
  void Await(const Nonce128& token) {
    LinkPeer peer;
    peer.nonce = token.high;
    peer.nonce_low = token.low;
    side_.end.link = std::move(side_.domain->Accept(peer, &side_.end)).value();
  }
  // What becomes of the next join.
  absl::Status Result() {
    side_.last_join = absl::UnknownError("");
    EXPECT_TRUE(TcpRunUntil({&side_},
                            [&] { return side_.last_join.code() != absl::StatusCode::kUnknown; }));
    return side_.last_join;
  }
  static void Send(const Descriptor& socket, std::string_view bytes) {
    EXPECT_EQ(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }

  TcpSide side_;
};

TEST_F(TcpJoinTest, ATokenWithAnyBitWrongIsNotTaken) {
  const Nonce128 token = {0x0123456789abcdef, 0xfedcba9876543210};
  Await(token);
  for (int bit = 0; bit < 128; ++bit) {
    Nonce128 wrong = token;
    (bit < 64 ? wrong.high : wrong.low) ^= uint64_t{1} << (bit % 64);
    const Descriptor socket = Dial();
    Send(socket, Join(wrong));
    EXPECT_EQ(Result().code(), absl::StatusCode::kNotFound);
  }
  const Descriptor socket = Dial();
  Send(socket, Join({token.low, token.high}));
  EXPECT_EQ(Result().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(side_.end.ups, 0);
  const Descriptor right = Dial();
  Send(right, Join(token));
  EXPECT_TRUE(Result().ok());
  ASSERT_TRUE(TcpRunUntil({&side_}, [&] { return side_.end.ups == 1; }));
}

TEST_F(TcpJoinTest, ATokenIsGoodForOneSocket) {
  Await({1, 2});
  const Descriptor first = Dial();
  Send(first, Join({1, 2}));
  EXPECT_TRUE(Result().ok());
  const Descriptor second = Dial();
  Send(second, Join({1, 2}));
  EXPECT_EQ(Result().code(), absl::StatusCode::kNotFound);
  side_.end.link.reset();
  const Descriptor third = Dial();
  Send(third, Join({1, 2}));
  EXPECT_EQ(Result().code(), absl::StatusCode::kNotFound);
}

TEST_F(TcpJoinTest, ALinkThatIsGoneIsJoinedNoMore) {
  Await({1, 2});
  side_.end.link.reset();
  const Descriptor socket = Dial();
  Send(socket, Join({1, 2}));
  EXPECT_EQ(Result().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(side_.domain->stats().links_open, 0u);
}

TEST_F(TcpJoinTest, EachWaitingLinkGetsItsOwnSocket) {
  constexpr uint64_t kLinks = 20;
  std::vector<LinkEnd> ends(kLinks);
  for (uint64_t i = 0; i < kLinks; ++i) {
    LinkPeer peer;
    peer.nonce = 1;
    peer.nonce_low = i;
    ends[i].link = std::move(side_.domain->Accept(peer, &ends[i])).value();
  }
  for (uint64_t i = kLinks; i-- > 0;) {
    const Descriptor socket = Dial();
    Send(socket, Join({1, i}));
    EXPECT_TRUE(Result().ok());
    ASSERT_TRUE(TcpRunUntil({&side_}, [&] { return ends[i].ups == 1; }));
    ends[i].link.reset();
  }
}

// --- rights and bounds --------------------------------------------------------------------------

class TcpOneSidedTest : public TcpLinkTest {
 protected:
  TcpOneSidedTest() {
    for (size_t i = 0; i < there_.size(); ++i) there_[i] = static_cast<std::byte>(i * 7 + i / 251);
  }
  void SetUp() override {
    TcpLinkTest::SetUp();
    local_ = std::move(a_.domain->Register(here_, Access::kLocalOnly)).value();
    remote_ = std::move(b_.domain->Register(there_, Access::kRemoteReadWrite)).value();
  }
  absl::Status Outcome(TransferKind kind, const RemoteSpan& span) {
    CountedOperation op;
    EXPECT_TRUE(Post(*a_.end.link, kind, {{local_.get(), 0, span}}, &op).ok());
    EXPECT_TRUE(Run([&] { return op.completions == 1; }));
    return op.status;
  }

  std::vector<std::byte> here_ = std::vector<std::byte>(1 << 20);
  std::vector<std::byte> there_ = std::vector<std::byte>(1 << 20);
  std::unique_ptr<Region> local_;
  std::unique_ptr<Region> remote_;
};

TEST_F(TcpOneSidedTest, WhatIsNotGrantedEndsItsOperationAndTheLinkGoesOn) {
  std::vector<std::byte> few(100);
  const auto region = std::move(b_.domain->Register(few, Access::kRemoteReadWrite)).value();
  const auto only_read = std::move(b_.domain->Register(few, Access::kRemoteRead)).value();
  const auto only_write = std::move(b_.domain->Register(few, Access::kRemoteWrite)).value();
  const uint64_t key = region->remote().key;
  const auto denied = absl::StatusCode::kPermissionDenied;
  for (const TransferKind kind :
       {TransferKind::kRead, TransferKind::kWrite, TransferKind::kWriteAcknowledged}) {
    for (const RemoteSpan& bad :
         {RemoteSpan{key, 0, 101}, RemoteSpan{key, 1, 100}, RemoteSpan{key, 100, 1},
          RemoteSpan{key, 0, 100'000}, RemoteSpan{key + 1, 0, 1}, RemoteSpan{0, 0, 1}}) {
      EXPECT_EQ(Outcome(kind, bad).code(), denied);
    }
    EXPECT_TRUE(Outcome(kind, {key, 0, 100}).ok());
    EXPECT_TRUE(Outcome(kind, {key, 99, 1}).ok());
    const bool reads = kind == TransferKind::kRead;
    EXPECT_EQ(Outcome(kind, only_read->remote()).ok(), reads);
    EXPECT_EQ(Outcome(kind, only_write->remote()).ok(), !reads);
  }
  EXPECT_EQ(a_.end.downs + b_.end.downs, 0);
}

TEST_F(TcpOneSidedTest, WhatIsWrongOnThisSideIsTheCallersFault) {
  CountedOperation op;
  Link& link = *a_.end.link;
  const RemoteSpan all = remote_->remote();
  const auto invalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(Read(link, *local_, 1, all, &op).code(), invalid);
  EXPECT_EQ(Read(link, *local_, here_.size(), all.Slice(0, 1), &op).code(), invalid);
  EXPECT_EQ(Read(link, *local_, ~size_t{0}, all.Slice(0, 2), &op).code(), invalid);
  EXPECT_EQ(Read(link, *local_, 0, all.Slice(0, 0), &op).code(), invalid);
  EXPECT_EQ(Read(link, *local_, 0, {all.key, ~uint64_t{0}, 1}, &op).code(), invalid);
  EXPECT_EQ(Read(link, *remote_, 0, all, &op).code(), invalid) << "of another domain";
  const Transfer good_and_bad[2] = {{local_.get(), 0, all.Slice(0, 8)}, {local_.get(), 1, all}};
  EXPECT_EQ(WriteBatch(link, good_and_bad, &op).code(), invalid) << "all or none";
  TcpSettle({&a_, &b_});
  EXPECT_EQ(op.completions, 0);
  EXPECT_EQ(there_[0], std::byte{0});
  LinkEnd waiting;
  LinkPeer peer;
  waiting.link = std::move(a_.domain->Accept(peer, &waiting)).value();
  EXPECT_EQ(Read(*waiting.link, *local_, 0, all, &op).code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(TcpOneSidedTest, ABatchScattersAndGathersRangesOfEverySize) {
  for (const bool is_read : {true, false}) {
    std::vector<Transfer> transfers;
    size_t local_at = 0, remote_at = here_.size();
    for (size_t i = 0; i < kMaxBatchTransfers; ++i) {
      const size_t bytes = i % 7 == 0 ? 70'001 : i % 5 == 0 ? 2049 : 1 + i * 31;
      remote_at -= bytes;
      transfers.push_back({local_.get(), local_at, remote_->remote().Slice(remote_at, bytes)});
      local_at += bytes + 1;
      if (local_at + 80'000 > here_.size() || remote_at < 80'000) break;
    }
    std::fill(here_.begin(), here_.end(), std::byte{0xCA});
    const std::vector<std::byte> before = there_;
    CountedOperation op;
    ASSERT_TRUE(
        Post(*a_.end.link, is_read ? TransferKind::kRead : TransferKind::kWrite, transfers, &op)
            .ok());
    ASSERT_TRUE(Run([&] { return op.completions == 1; }));
    EXPECT_TRUE(op.status.ok()) << op.status;
    for (const Transfer& transfer : transfers) {
      EXPECT_TRUE(std::equal(
          here_.begin() + static_cast<ptrdiff_t>(transfer.local_offset),
          here_.begin() + static_cast<ptrdiff_t>(transfer.local_offset + transfer.remote.length),
          there_.begin() + static_cast<ptrdiff_t>(transfer.remote.offset)));
      EXPECT_EQ(here_[transfer.local_offset + transfer.remote.length], std::byte{0xCA});
    }
    if (is_read) {
      EXPECT_TRUE(there_ == before);
    }
  }
}

TEST_F(TcpOneSidedTest, AWriteIsInMemoryWhenItIsComplete) {
  for (const TransferKind kind : {TransferKind::kWrite, TransferKind::kWriteAcknowledged}) {
    for (const size_t bytes : {1, 2048, 100'000, 1 << 20}) {
      std::fill(here_.begin(), here_.end(), std::byte{0x55});
      std::fill(there_.begin(), there_.end(), std::byte{0});
      bool was_there = false;
      CountedOperation op;
      op.on_complete = [&] { was_there = there_[bytes - 1] == std::byte{0x55}; };
      ASSERT_TRUE(
          Post(*a_.end.link, kind, {{local_.get(), 0, remote_->remote().Slice(0, bytes)}}, &op)
              .ok());
      ASSERT_TRUE(Run([&] { return op.completions == 1; }));
      EXPECT_TRUE(op.status.ok() && was_there);
    }
  }
}

TEST_F(TcpOneSidedTest, RangesOfOneLinkAreBoundedAndRoomIsTold) {
  TcpOptions options;
  options.max_outstanding_operations = 65536;
  TcpSide large(options);
  LinkEnd end, far;
  TcpLinkEnds(large, end, b_, far, 99);
  auto local = std::move(large.domain->Register(here_, Access::kLocalOnly)).value();
  std::vector<CountedOperation> ops(1025);
  for (size_t i = 0; i < 1024; ++i) {
    ASSERT_TRUE(Read(*end.link, *local, i, remote_->remote().Slice(i, 1), &ops[i]).ok());
  }
  EXPECT_EQ(Read(*end.link, *local, 0, remote_->remote().Slice(0, 1), &ops[1024]).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(end.slots_free, 0);
  ASSERT_TRUE(TcpRunUntil({&large, &b_}, [&] { return ops[1023].completions == 1; }));
  TcpSettle({&large, &b_});
  EXPECT_EQ(end.slots_free, 1);
  EXPECT_TRUE(std::equal(here_.begin(), here_.begin() + 1024, there_.begin()));
  ASSERT_TRUE(Read(*end.link, *local, 0, remote_->remote().Slice(0, 1), &ops[1024]).ok());
  ASSERT_TRUE(TcpRunUntil({&large, &b_}, [&] { return ops[1024].completions == 1; }));
  end.link.reset();
}

TEST_F(TcpOneSidedTest, BothSidesMayReadMuchFromEachOther) {
  auto mine = std::move(a_.domain->Register(here_, Access::kRemoteRead)).value();
  std::vector<std::byte> to_a(1 << 20), to_b(1 << 20);
  auto local_a = std::move(a_.domain->Register(to_a, Access::kLocalOnly)).value();
  auto local_b = std::move(b_.domain->Register(to_b, Access::kLocalOnly)).value();
  std::vector<CountedOperation> ops(16);
  for (size_t i = 0; i < 8; ++i) {
    ASSERT_TRUE(Read(*a_.end.link, *local_a, 0, remote_->remote(), &ops[i]).ok());
    ASSERT_TRUE(Read(*b_.end.link, *local_b, 0, mine->remote(), &ops[8 + i]).ok());
  }
  ASSERT_TRUE(Run([&] {
    return std::all_of(ops.begin(), ops.end(), [](const auto& op) { return op.completions == 1; });
  }));
  EXPECT_TRUE(to_a == there_ && to_b == here_);
}

// --- peers that do not read, and ends -----------------------------------------------------------

TEST_F(TcpOneSidedTest, APeerThatIsNotDrivenHoldsUpNobodyElse) {
  TcpSide idle;
  LinkEnd to_idle;
  TcpLinkEnds(a_, to_idle, idle, idle.end, 99);
  size_t sent = 0;
  while (to_idle.link->HasRoom()) {
    ASSERT_TRUE(a_.Send(to_idle, Text(8000, sent)).ok());
    ASSERT_LT(++sent, 10'000u);
    a_.Poll();
  }
  EXPECT_LE(a_.domain->stats().send_slots_in_use, 5u);
  EXPECT_TRUE(Outcome(TransferKind::kRead, remote_->remote()).ok());
  ASSERT_TRUE(a_.Send("a batch to the other").ok());
  ASSERT_TRUE(Run([&] { return b_.received.size() == 1; }));
  EXPECT_EQ(to_idle.slots_free, 0);
  ASSERT_TRUE(TcpRunUntil({&a_, &idle}, [&] { return idle.received.size() == sent; }));
  for (size_t i = 0; i < sent; ++i) ASSERT_EQ(idle.received[i], Text(8000, i));
  EXPECT_EQ(to_idle.slots_free, 1);
  EXPECT_EQ(a_.domain->stats().send_slots_in_use, 0u);
}

TEST_F(TcpOneSidedTest, ALinkThatEndsEndsItsOperationsOnce) {
  enum class How { kDestroyed, kAbandoned, kPeerCloses };
  for (const How how : {How::kDestroyed, How::kAbandoned, How::kPeerCloses}) {
    LinkEnd end, far;
    TcpLinkEnds(a_, end, b_, far, 99);
    std::vector<CountedOperation> ops(20);
    for (CountedOperation& op : ops) {
      const bool is_read = (&op - ops.data()) % 2 == 0;
      ASSERT_TRUE((is_read ? Read(*end.link, *local_, 0, remote_->remote(), &op)
                           : Write(*end.link, *local_, 0, remote_->remote(), &op))
                      .ok());
    }
    a_.Poll();
    if (how == How::kDestroyed) end.link.reset();
    if (how == How::kAbandoned) end.link->Abandon();
    if (how == How::kPeerCloses) far.link.reset();
    if (how != How::kDestroyed) {
      ASSERT_TRUE(TcpRunUntil({&a_}, [&] { return end.downs == 1; }));
    }
    for (const CountedOperation& op : ops) {
      EXPECT_EQ(op.completions, 1);
      EXPECT_EQ(op.status.code(), how == How::kDestroyed ? absl::StatusCode::kCancelled
                                                         : absl::StatusCode::kUnavailable);
    }
    if (how != How::kPeerCloses) {
      ASSERT_TRUE(Run([&] { return far.downs == 1; }));
      EXPECT_EQ(far.down_status.code(), absl::StatusCode::kUnavailable);
    }
    end.link.reset();
  }
  EXPECT_TRUE(Outcome(TransferKind::kRead, remote_->remote()).ok());
}

TEST_F(TcpOneSidedTest, WhatWasSentBeforeTheEndArrives) {
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(a_.Send(Text(5000, static_cast<size_t>(i))).ok());
  const bool all = Run([&] { return a_.domain->stats().send_slots_in_use == 0; });
  ASSERT_TRUE(all);
  a_.end.link.reset();
  ASSERT_TRUE(TcpRunUntil({&b_}, [&] { return b_.end.downs == 1; }));
  EXPECT_EQ(b_.received.size(), 20u);
}

TEST_F(TcpLinkTest, ManyLinksOfOneDomainEachHaveTheirBatches) {
  constexpr size_t kMany = 150;
  std::vector<LinkEnd> ends(kMany), far(kMany);
  for (size_t i = 0; i < kMany; ++i) TcpLinkEnds(a_, ends[i], b_, far[i], 1000 + i);
  for (size_t i = 0; i < kMany; ++i)
    ASSERT_TRUE(a_.Send(ends[i], "of link " + std::to_string(i)).ok());
  ASSERT_TRUE(Run([&] { return b_.received.size() == kMany; }));
  std::sort(b_.received.begin(), b_.received.end());
  EXPECT_EQ(std::unique(b_.received.begin(), b_.received.end()), b_.received.end());
  ends.clear();
  ASSERT_TRUE(Run([&] {
    return std::all_of(far.begin(), far.end(), [](const LinkEnd& end) { return end.downs == 1; });
  }));
  far.clear();
  EXPECT_EQ(a_.domain->stats().links_open, 1u);
}

// --- options and slots --------------------------------------------------------------------------

TEST(TcpOptionsTest, EachOptionIsChecked) {
  struct NoSink final : BatchSink {
    void OnReceived(ByteSpan, LinkHandler*) override {}
  } sink;
  const auto code = [&](auto change) {
    TcpOptions options;
    options.sink = &sink;
    change(options);
    return OpenTcpDomain(options).status().code();
  };
  const auto invalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(code([](TcpOptions&) {}), absl::StatusCode::kOk);
  EXPECT_EQ(code([](TcpOptions& o) { o.sink = nullptr; }), invalid);
  for (const uint32_t bytes : {0u, 192u, 255u, 8193u, 131136u, ~0u}) {
    EXPECT_EQ(code([=](TcpOptions& o) { o.slot_bytes = bytes; }), invalid) << bytes;
    if (bytes == 0) continue;
    EXPECT_EQ(code([=](TcpOptions& o) { o.wide_slot_bytes = bytes; }), invalid) << bytes;
  }
  for (const uint32_t count : {0u, 65537u}) {
    EXPECT_EQ(code([=](TcpOptions& o) { o.max_outstanding_operations = count; }), invalid);
  }
  EXPECT_EQ(code([](TcpOptions& o) { o.max_outstanding_operations = 65536; }),
            absl::StatusCode::kOk);
}

TEST(TcpOptionsTest, SlotsAreBoundedByWhatWasAskedForAndByMemory) {
  TcpOptions options;
  options.wide_slot_bytes = 65536;
  options.max_pool_bytes = 1 << 20;
  TcpSide side(options);  // has asked for 64
  ASSERT_TRUE(side.domain->AddSlots(1000, 0).ok());
  std::vector<SendSlot> slots;
  SendSlot slot;
  while ((slot = side.domain->AcquireSlot()).data != nullptr) slots.push_back(slot);
  EXPECT_EQ(slots.size(), (768u << 10) / (8192 + 64)) << "three quarters of the memory";
  while ((slot = side.domain->AcquireWideSlot()).data != nullptr) slots.push_back(slot);
  EXPECT_EQ(slots.size(), (768u << 10) / (8192 + 64) + (256u << 10) / (65536 + 64));
  for (const SendSlot& taken : slots) side.domain->ReleaseSlot(taken);
  slots.clear();
  side.domain->RemoveSlots(1000, 0);
  while ((slot = side.domain->AcquireSlot()).data != nullptr) slots.push_back(slot);
  EXPECT_EQ(slots.size(), 64u);
  for (const SendSlot& taken : slots) side.domain->ReleaseSlot(taken);
}

}  // namespace
}  // namespace weft
