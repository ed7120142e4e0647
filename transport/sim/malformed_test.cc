// Batches from a peer that breaks the rules: they end its connection, and nothing else.

#include <string>
#include <utility>
#include <vector>

#include "transport/framing/batch.h"
#include "transport/sim/sim_fabric.h"
#include "transport/sim/sim_fixture.h"
#include "transport/sim/sim_transport.h"

namespace weft {
namespace {

using Batch = std::vector<std::byte>;

// Appends a frame, and counts it in the header.
void Append(Batch& batch, FrameKind kind, ByteSpan payload) {
  const size_t at = batch.size();
  batch.resize(at + FrameBytes(payload.size()));
  EncodeFrameHeader(&batch[at], static_cast<uint32_t>(payload.size()), kind);
  std::copy(payload.begin(), payload.end(), batch.begin() + static_cast<ptrdiff_t>(at) + 8);
  StoreLe16(&batch[10], static_cast<uint16_t>(LoadLe16(&batch[10]) + 1));
}

void AppendOffer(Batch& batch, const LargeOffer& offer) {
  std::byte payload[LargeOffer::kBytes];
  EncodeLargeOffer(payload, offer);
  Append(batch, FrameKind::kLargeOffer, payload);
}

void AppendDone(Batch& batch, const LargeDone& done) {
  std::byte payload[LargeDone::kBytes];
  EncodeLargeDone(payload, done);
  Append(batch, FrameKind::kLargeDone, payload);
}

void AppendRequest(Batch& batch, const Request& request) {
  std::byte payload[Request::kBytes];
  EncodeRequest(payload, request);
  Append(batch, FrameKind::kRequest, payload);
}

void AppendReply(Batch& batch, const Reply& reply) {
  std::byte payload[Reply::kBytes];
  EncodeReply(payload, reply);
  Append(batch, FrameKind::kReply, payload);
}

Request ProbeNumber(uint64_t id) { return {id, RequestKind::kProbe, 0, 0, 0, 0}; }

void SetKind(Batch& batch, uint32_t kind_flags_reserved) {
  StoreLe32(&batch[20], kind_flags_reserved);
}

struct Attack {
  const char* name;
  void (*change)(Batch& batch);  // of a batch with one message of 5 bytes
};

const Attack kAttacks[] = {
    {"SequenceAhead", [](Batch& b) { StoreLe32(&b[12], LoadLe32(&b[12]) + 1); }},
    {"SequenceBehind", [](Batch& b) { StoreLe32(&b[12], LoadLe32(&b[12]) - 1); }},
    {"MoreCreditsThanGranted", [](Batch& b) { StoreLe16(&b[8], 60'000); }},
    {"OneCreditTooMany", [](Batch& b) { StoreLe16(&b[8], 1); }},
    {"OneFrameTooFewAnnounced", [](Batch& b) { StoreLe16(&b[10], 0); }},
    {"OneFrameTooManyAnnounced", [](Batch& b) { StoreLe16(&b[10], 2); }},
    {"BytesAfterTheLastFrame", [](Batch& b) { b.resize(b.size() + 8); }},
    {"CutShort", [](Batch& b) { b.resize(b.size() - 1); }},
    {"NoRoomForTheFrameHeader", [](Batch& b) { b.resize(20); }},
    {"LengthBeyondTheBatch", [](Batch& b) { StoreLe32(&b[16], 9); }},
    {"LengthThatWraps", [](Batch& b) { StoreLe32(&b[16], 0xfffffffb); }},
    {"KindZero", [](Batch& b) { SetKind(b, 0); }},
    {"KindWithoutName", [](Batch& b) { SetKind(b, 200); }},
    {"FlagsSet", [](Batch& b) { SetKind(b, 0x0101); }},
    {"ReservedSet", [](Batch& b) { SetKind(b, 0x10001); }},
    {"OfferTooShort", [](Batch& b) { Append(b, FrameKind::kLargeOffer, Pattern(0, 31)); }},
    {"OfferOutOfOrder",
     [](Batch& b) {
       AppendOffer(b, {1, 7, 0, 100});
     }},
    {"OfferOfNothing",
     [](Batch& b) {
       AppendOffer(b, {0, 7, 0, 0});
     }},
    {"OfferOfTooMuch",
     [](Batch& b) {
       AppendOffer(b, {0, 7, 0, kMaxMessageBytes + 1});
     }},
    {"OfferThatWraps",
     [](Batch& b) {
       AppendOffer(b, {0, 7, ~uint64_t{0} - 10, 100});
     }},
    {"OfferOfAKeyThatIsNone",
     [](Batch& b) {
       AppendOffer(b, {0, 7, 0, 100});
     }},
    {"TooManyOffers",
     [](Batch& b) {
       for (uint64_t id = 0; id <= kLargeOutstanding; ++id) AppendOffer(b, {id, 7, 0, 100});
     }},
    {"DoneForNoOffer",
     [](Batch& b) {
       AppendDone(b, {0, 0});
     }},
    {"DoneTooLong", [](Batch& b) { Append(b, FrameKind::kLargeDone, Pattern(0, 24)); }},
    {"RequestTooShort", [](Batch& b) { Append(b, FrameKind::kRequest, Pattern(0, 40)); }},
    {"RequestOutOfOrder", [](Batch& b) { AppendRequest(b, ProbeNumber(1)); }},
    {"RequestOfNoKind",
     [](Batch& b) {
       AppendRequest(b, {0, static_cast<RequestKind>(9), 0, 0, 0, 0});
     }},
    {"RequestWithReservedSet",
     [](Batch& b) {
       AppendRequest(b, ProbeNumber(0));
       b[b.size() - Request::kBytes + 12] = std::byte{1};
     }},
    {"TooManyRequests",
     [](Batch& b) {
       for (uint64_t id = 0; id <= kMaxRequests; ++id) AppendRequest(b, ProbeNumber(id));
     }},
    {"ReplyToNothing",
     [](Batch& b) {
       AppendReply(b, {0, 0, ReplyStatus::kDone});
     }},
    {"ReplyTooLong", [](Batch& b) { Append(b, FrameKind::kReply, Pattern(0, 32)); }},
};

class MalformedTest : public SimTest, public testing::WithParamInterface<Attack> {};

TEST_P(MalformedTest, EndsItsConnectionAndNoOther) {
  Listen("db");
  const auto [attacker, victim] = Pair("app", "db");
  const auto [bystander, bystander_server] = Pair("app", "db");
  network_->Corrupt("app", "db", [](Batch& batch) { GetParam().change(batch); });
  attacker->Send("12345");
  ASSERT_TRUE(Run([a = attacker, v = victim] { return a->closed() && v->closed(); }));
  const bool key_refused = std::string(GetParam().name) == "OfferOfAKeyThatIsNone";
  EXPECT_EQ(victim->why().code(),
            key_refused ? absl::StatusCode::kPermissionDenied : absl::StatusCode::kDataLoss)
      << victim->why();
  EXPECT_TRUE(absl::IsUnavailable(attacker->why())) << attacker->why();
  bystander->Send("still here");
  ASSERT_TRUE(Run([s = bystander_server] { return s->received_count == 1; }));
  EXPECT_FALSE(bystander->closed());
}

INSTANTIATE_TEST_SUITE_P(Attacks, MalformedTest, testing::ValuesIn(kAttacks),
                         [](const auto& info) { return info.param.name; });

// The reply to an atomic operation with one of its fields changed: the operation still ends once.
TEST_F(SimTest, AFalseReplyEndsItsConnection) {
  Listen("db");
  constexpr size_t kReplyAt = kBatchHeaderBytes + kFrameHeaderBytes;
  for (const size_t at : {size_t{0}, size_t{7}, size_t{16}, size_t{20}}) {
    const auto [client, server] = Pair("app", "db");
    TestAtomic add;
    ASSERT_TRUE(client->connection().memory().FetchAdd({7, 0, 8}, 1, &add).ok());
    network_->Corrupt("db", "app", [at](Batch& batch) { batch[kReplyAt + at] = std::byte{0x7f}; });
    ASSERT_TRUE(Run([c = client, s = server] { return c->closed() && s->closed(); }));
    EXPECT_TRUE(absl::IsDataLoss(client->why())) << client->why();
    EXPECT_EQ(add.completions, 1);
    EXPECT_EQ(add.result, client->why());
  }
}

// A flood that keeps to the rules is answered, and the batch that carries it costs a credit like
// any other: it takes no more of the victim than messages would.
TEST_F(SimTest, AFloodOfProbesIsAnsweredAtTheFloodersPace) {
  Listen("db");
  const auto [client, server] = Pair("app", "db");
  constexpr size_t kCount = 5'000;
  std::vector<TestOperation> probes(kCount);
  size_t posted = 0;
  // Each answer makes room for the next probe.
  Function<void()> post = [&, c = client] {
    if (posted == kCount) return;
    probes[posted].on_complete = [&] { post(); };
    ASSERT_TRUE(c->connection().memory().Probe(&probes[posted++]).ok());
  };
  for (uint32_t i = 0; i < kMaxRequests; ++i) post();
  ASSERT_TRUE(Run([&] { return probes.back().done(); }));
  for (const TestOperation& probe : probes) {
    EXPECT_TRUE(probe.completions == 1 && probe.result.ok());
  }
  EXPECT_EQ(server->received_count, 0u);
}

class UnknownBatchTest : public SimTest {
 protected:
  ConnectionTable& TableOf(const std::string& node) {
    SimFabric& fabric = network_->fabric();
    return fabric.transport(fabric.IdOf(node))->table();
  }
};

TEST_F(UnknownBatchTest, ABatchThatNamesNoConnectionIsCountedAndDropped) {
  Listen("db");
  const auto [client, server] = Pair("app", "db");
  ConnectionTable& table = TableOf("db");
  const Batch too_short(15);
  Batch wrong_index(16);
  StoreLe32(&wrong_index[0], 0xffffffff);
  Batch free_index(16);
  StoreLe32(&free_index[0], 1000);
  const Batch wrong_token(16);  // index 0 is the connection's, and 0 is not its token
  for (const Batch& batch : {Batch(), too_short, wrong_index, free_index, wrong_token}) {
    table.OnReceived(batch, /*by=*/nullptr);
  }
  EXPECT_EQ(table.stats().batches_unknown, 5u);
  EXPECT_EQ(table.stats().batches_malformed, 0u);
  client->Send("unharmed");
  ASSERT_TRUE(Run([s = server] { return s->received_count == 1; }));
}

TEST_F(UnknownBatchTest, AMisaddressedBatchEndsTheConnectionOfItsLink) {
  Listen("db");
  const auto [client, server] = Pair("app", "db");
  network_->Corrupt("app", "db", [](Batch& batch) { batch[5] ^= std::byte{1}; });
  client->Send("lost");
  ASSERT_TRUE(Run([s = server] { return s->closed(); }));
  EXPECT_EQ(server->received_count, 0u);
  EXPECT_TRUE(absl::IsDataLoss(server->why())) << server->why();
}

// Batches were given to whichever connection they named: a peer that guessed (here: knew) the index
// and the token of another one's connection spoke in its name, and could end it.
TEST_F(UnknownBatchTest, ABatchInTheNameOfAnotherConnectionEndsItsOwn) {
  Listen("db");
  const auto [victim, server_of_victim] = Pair("app", "db");
  const auto [attacker, server_of_attacker] = Pair("mallory", "db");
  Batch victims(kBatchHeaderBytes);
  network_->Corrupt("app", "db", [&](Batch& batch) { victims = batch; });
  victim->Send("first");
  ASSERT_TRUE(Run([s = server_of_victim] { return s->received_count == 1; }));
  network_->Corrupt("mallory", "db", [&](Batch& batch) {
    std::copy_n(victims.begin(), 8, batch.begin());  // index and token
    StoreLe32(&batch[12], LoadLe32(&victims[12]) + 1);
  });
  attacker->Send("forged");
  ASSERT_TRUE(Run([s = server_of_attacker] { return s->closed(); }));
  EXPECT_TRUE(absl::IsDataLoss(server_of_attacker->why())) << server_of_attacker->why();
  EXPECT_EQ(TableOf("db").stats().batches_unknown, 1u);
  victim->Send("second");
  ASSERT_TRUE(Run([s = server_of_victim] { return s->received_count == 2; }));
  EXPECT_EQ(AsStringView(server_of_victim->received.back()), "second");
  EXPECT_FALSE(server_of_victim->closed());
}

}  // namespace
}  // namespace weft
