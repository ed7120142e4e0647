// Grants that no honest peer sends, put into the control connection of one that is open: each ends
// that connection, in words, and nothing else.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "gtest/gtest.h"
#include "transport/control/control_frame.h"
#include "transport/control/grant_queue.h"
#include "transport/control/negotiate.h"
#include "transport/control/testing/network_world.h"
#include "transport/control/testing/relay.h"
#include "transport/leases/grant_message.h"

namespace weft {
namespace {

std::vector<std::byte> Frame(ByteSpan grant) {
  std::vector<std::byte> bytes;
  AppendControlFrame(ControlType::kGrant, 0, grant, &bytes);
  return bytes;
}

std::vector<std::byte> Frame(const GrantMessage& message) {
  return Frame(EncodeGrant(message).bytes());
}

class TestLease final : public Lease {
 public:
  bool held() const { return state() == State::kHeld; }
  int endings = 0;
  absl::Status why;

 private:
  void OnGranted() override {}
  void OnEnded(const absl::Status& status) override {
    ++endings;
    why = status;
  }
};

class HostileGrantsTest : public NetworkTest {
 protected:
  void SetUp() override {
    NetworkTest::SetUp();
    Listen("127.0.0.1:0");
    memory_.resize(4096);
    auto added = server_->transport().exports().Add({memory_.data(), memory_.size()}, {});
    ASSERT_TRUE(added.ok()) << added.status();
    export_ = *std::move(added);
  }
  void TearDown() override {
    for (auto& end : dialed_) {
      if (!end->closed()) end->connection().Close("done");
    }
    EXPECT_TRUE(RunRelayed([&] {
      for (auto& end : dialed_) {
        if (!end->closed()) return false;
      }
      for (auto& end : acceptor_.ends) {
        if (!end->closed()) return false;
      }
      return true;
    }));
    EXPECT_TRUE(export_->Revoke(0, nullptr));
    export_.reset();
  }

  template <class Done>
  bool RunRelayed(Done done) {
    return Run([&] {
      if (relay_ != nullptr) relay_->Turn();
      return done();
    });
  }

  // A client whose control connection the test has its hand on.
  NetworkEnd* DialRelayed(const std::string& said = "", const std::string& instead = "") {
    relay_ = std::make_unique<Relay>(listener_->address());
    relay_->Replace(said, instead);
    NetworkEnd* const end = DialAt(relay_->address(), Over({PathKind::kTcp}));
    EXPECT_TRUE(RunRelayed([&] { return end->opened() || end->closed(); }));
    EXPECT_TRUE(end->opened());
    return end;
  }
  NetworkEnd& attacked() { return *acceptor_.ends.back(); }

  // A client that holds a lease, is not attacked, and does not notice anything.
  void OpenHonest() {
    honest_ = Dial(Over({PathKind::kTcp}));
    ASSERT_TRUE(RunUntilDecided(*honest_));
    ASSERT_TRUE(
        honest_->connection().memory().Resolve(export_->handle(), 0, kMaxLeaseNs, &kept_).ok());
    ASSERT_TRUE(Run([&] { return kept_.held(); }));
  }
  void ExpectHonestUndisturbed() {
    EXPECT_TRUE(kept_.held());
    TestLease more;
    ASSERT_TRUE(
        honest_->connection().memory().Resolve(export_->handle(), 0, kMaxLeaseNs, &more).ok());
    ASSERT_TRUE(Run([&] { return more.held(); }));
    honest_->connection().memory().Return(&more);
  }

  // The server hears these bytes after those of an open connection.
  absl::Status ServersEndAfter(const std::vector<std::byte>& bytes) {
    NetworkEnd* const end = DialRelayed();
    NetworkEnd& server = attacked();
    relay_->SayToServer(bytes);
    EXPECT_TRUE(RunRelayed([&] { return server.closed() && end->closed(); }));
    return server.closed() ? server.why() : absl::UnknownError("not closed");
  }

  std::vector<std::byte> memory_;
  std::unique_ptr<Export> export_;
  std::unique_ptr<Relay> relay_;
  NetworkEnd* honest_ = nullptr;
  TestLease kept_;
};

TEST_F(HostileGrantsTest, AMalformedGrantEndsItsConnectionAndNoOther) {
  OpenHonest();
  const GrantBytes good = EncodeGrant(GrantResolve{1, kMinLeaseNs, 0, export_->handle()});
  std::vector<std::byte> cut(good.bytes().begin(), good.bytes().end() - 1);
  std::vector<std::byte> reserved(good.bytes().begin(), good.bytes().end());
  reserved[5] = std::byte{1};
  std::vector<std::byte> unknown = reserved;
  unknown[0] = std::byte{77};
  for (const std::vector<std::byte>& bytes : {std::vector<std::byte>(), cut, reserved, unknown}) {
    const absl::Status why = ServersEndAfter(Frame(ByteSpan(bytes)));
    EXPECT_EQ(why.code(), absl::StatusCode::kDataLoss) << why;
    EXPECT_NE(why.message().find("a malformed grant"), absl::string_view::npos) << why;
  }
  ExpectHonestUndisturbed();
}

TEST_F(HostileGrantsTest, AnswersThatNobodyAskedForEndTheConnection) {
  const GrantMessage kUnasked[] = {
      GrantGranted{1, 1, kMinLeaseNs, {1, 0, 8}, kMayRead},
      GrantRefused{1, absl::StatusCode::kPermissionDenied, 0, ""},
      GrantDerived{1, export_->handle()},
  };
  for (const GrantMessage& message : kUnasked) {
    const absl::Status why = ServersEndAfter(Frame(message));
    EXPECT_EQ(why.code(), absl::StatusCode::kDataLoss) << why;
    EXPECT_NE(why.message().find("nobody asked for"), absl::string_view::npos) << why;
  }
}

TEST_F(HostileGrantsTest, AClientIsNotFooledByItsServerEither) {
  NetworkEnd* const end = DialRelayed();
  TestLease lease;
  ASSERT_TRUE(end->connection().memory().Resolve(export_->handle(), 0, kMaxLeaseNs, &lease).ok());
  ASSERT_TRUE(RunRelayed([&] { return lease.held(); }));
  // The lease that it holds, given once more under another question.
  relay_->SayToClient(Frame(GrantGranted{7, 1, kMaxLeaseNs, {1, 0, memory_.size()}, kMayRead}));
  ASSERT_TRUE(RunRelayed([&] { return end->closed() && attacked().closed(); }));
  EXPECT_EQ(end->why().code(), absl::StatusCode::kDataLoss) << end->why();
  EXPECT_EQ(lease.endings, 1);
  EXPECT_EQ(export_->leases(), 0u);
}

TEST_F(HostileGrantsTest, AFloodOfGrantsEndsItsConnectionAndNoOther) {
  OpenHonest();
  NetworkEnd* const end = DialRelayed();
  NetworkEnd& server = attacked();
  // Harmless by themselves: leases that are over are ignored.
  std::vector<std::byte> some;
  for (int i = 0; i < 100; ++i)
    AppendControlFrame(ControlType::kGrant, 0, EncodeGrant(GrantReturn{99}).bytes(), &some);
  bool flooding = true;
  ASSERT_TRUE(RunRelayed([&] {
    // More in each turn than the server takes of it, and as much as the connection holds: the
    // server looks every 200 us only.
    if (flooding && server.closed()) flooding = false;
    if (flooding) relay_->FloodServer(some);
    return end->closed() && server.closed();
  }));
  EXPECT_NE(server.why().message().find("floods"), absl::string_view::npos) << server.why();
  ExpectHonestUndisturbed();
}

std::vector<std::byte> Skipped(int frames) {
  std::vector<std::byte> bytes;
  for (int i = 0; i < frames; ++i) {
    AppendControlFrame(static_cast<ControlType>(31), kIgnorable, {}, &bytes);
  }
  return bytes;
}

// A peer could keep the other's engine busy with what that only threw away.
TEST_F(HostileGrantsTest, AFloodOfWhatIsSkippedEndsItsConnection) {
  OpenHonest();
  const absl::Status why = ServersEndAfter(Skipped(1000));
  EXPECT_EQ(why.code(), absl::StatusCode::kDataLoss) << why;
  EXPECT_NE(why.message().find("does not know"), absl::string_view::npos) << why;
  ExpectHonestUndisturbed();
}

TEST_F(HostileGrantsTest, AFewMessagesOfANewerReleaseAreNoFlood) {
  NetworkEnd* const end = DialRelayed();
  relay_->SayToServer(Skipped(200));
  // Behind them, so they have been read when it is answered.
  TestLease lease;
  ASSERT_TRUE(end->connection().memory().Resolve(export_->handle(), 0, kMaxLeaseNs, &lease).ok());
  ASSERT_TRUE(RunRelayed([&] { return lease.held(); }));
  EXPECT_FALSE(attacked().closed());
}

TEST_F(HostileGrantsTest, AsManyQuestionsAsAreAllowedAtOnceAreNoFlood) {
  NetworkEnd* const end = DialRelayed();
  std::vector<TestLease> leases(kMaxLeases);
  for (TestLease& lease : leases) {
    ASSERT_TRUE(end->connection().memory().Resolve(export_->handle(), 0, kMaxLeaseNs, &lease).ok());
  }
  ASSERT_TRUE(RunRelayed([&] { return leases.back().held(); }));
  EXPECT_EQ(export_->leases(), kMaxLeases);
  for (TestLease& lease : leases) {
    ASSERT_TRUE(end->connection().memory().Renew(kMaxLeaseNs, &lease).ok());
    end->connection().memory().Return(&lease);
  }
  ASSERT_TRUE(RunRelayed([&] { return export_->leases() == 0; }));
  EXPECT_FALSE(end->closed());
}

TEST_F(HostileGrantsTest, AGrantWithoutTheFeatureBreaksTheProtocol) {
  NetworkEnd* const end = DialRelayed(kLeasesFeature, "xeases");
  TestLease lease;
  EXPECT_TRUE(absl::IsUnimplemented(
      end->connection().memory().Resolve(export_->handle(), 0, kMaxLeaseNs, &lease)));
  relay_->SayToServer(Frame(GrantResolve{1, kMinLeaseNs, 0, export_->handle()}));
  ASSERT_TRUE(RunRelayed([&] { return attacked().closed() && end->closed(); }));
  EXPECT_EQ(attacked().why().code(), absl::StatusCode::kDataLoss) << attacked().why();
  EXPECT_EQ(export_->leases(), 0u);
}

TEST(GrantQueue, KeepsTheOrderAndItsBound) {
  GrantQueue queue;
  const auto number = [](uint64_t n) { return EncodeGrant(GrantReturn{n}); };
  uint64_t pushed = 0;
  uint64_t popped = 0;
  for (int round = 0; round < 10'000; ++round) {
    // More comes than is taken, until it is full.
    for (int i = 0; i < 3 && queue.size() < GrantQueue::kCapacity; ++i) {
      ASSERT_TRUE(queue.Push(number(pushed++).bytes()));
    }
    GrantMessage message;
    ASSERT_TRUE(DecodeGrant(queue.Pop(), &message));
    ASSERT_EQ(std::get<GrantReturn>(message).lease, popped++);
  }
  while (queue.size() < GrantQueue::kCapacity) ASSERT_TRUE(queue.Push(number(0).bytes()));
  EXPECT_FALSE(queue.Push(number(0).bytes()));
}

}  // namespace
}  // namespace weft
