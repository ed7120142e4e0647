// Calls with structs of fixed layout: with whom, in which format, and what a hostile peer can do.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/log.h"
#include "rpc/client/client_context.h"
#include "rpc/generated.h"
#include "rpc/testing/ledger_service.h"
#include "rpc/testing/raw_peer.h"
#include "rpc/testing/rpc_test.h"
#include "rpc/wire/frame.h"
#include "rpc/wire/hello.pb.h"

namespace weft::test {
namespace {

// What the log was told while this exists.
class LogLines {
 public:
  LogLines() {
    SetLogSink([this](const LogRecord& record) {
      if (record.file.ends_with("method_table.cc")) lines.emplace_back(record.text);
    });
  }
  ~LogLines() { SetLogSink({}); }
  std::vector<std::string> lines;
};

// A client and a server of Ledger on a simulated network; what services there are is up to a test.
class LayoutCallTest : public testing::Test {
 protected:
  ~LayoutCallTest() override {
    stub_.reset();
    channel_.reset();
    server_.reset();
  }

  EngineCore& client() { return CoreOf(network_.Node("client")); }
  EngineCore& server_engine() { return CoreOf(network_.Node("server")); }

  void Serve(Service* service, const ServerOptions& options = {}) {
    server_ = *Server::Create(server_engine(), options);
    ASSERT_TRUE(server_->AddService(service).ok());
    const absl::Status listening = server_->Listen("sim:server");
    ASSERT_TRUE(listening.ok()) << listening;
  }
  void OpenChannel(const ChannelOptions& options = {}) {
    auto channel = Channel::Open(client(), "sim:server", options);
    ASSERT_TRUE(channel.ok()) << channel.status();
    channel_ = *std::move(channel);
    stub_.emplace(*channel_);
  }
  void Start(Service* service) {
    Serve(service);
    OpenChannel();
  }
  bool RunUntil(Function<bool()> done) {
    return network_.RunUntil(std::move(done), 100 * kNsPerSec);
  }

  SimNetwork network_{1};
  MessageLedger messages_;
  LayoutLedger layouts_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<Channel> channel_;
  std::optional<Ledger::Stub> stub_;
};

// --- values --------------------------------------------------------------------------------------

SampleLayout MakeSample() {
  SampleLayout sample;
  sample.flag = true;
  sample.u32 = 0xFFFFFFFF;
  sample.i32 = -5;
  sample.u64 = 0x0123456789ABCDEF;
  sample.i64 = -6;
  sample.f32 = 1.5F;
  sample.f64 = -2.25;
  sample.color = Sample::BLUE;
  sample.tag = {std::byte{1}, std::byte{0}, std::byte{255}, std::byte{0}, std::byte{4}};
  sample.point.x = -9;
  sample.point.visible = true;
  sample.numbers = {1, -2, 3};
  sample.flags = {true, false, true};
  sample.colors = {Sample::BLUE, static_cast<Sample::Color>(77)};  // open: any number
  sample.names[1] = {std::byte{'a'}, std::byte{'b'}, std::byte{'c'}};
  sample.points[0].x = 4;
  sample.points[1].visible = true;
  return sample;
}

// All four pairs of stubs and services, which choose the struct's bytes once and protobuf thrice.
TEST_F(LayoutCallTest, EveryFormGivesTheSameValues) {
  const SampleLayout sample = MakeSample();
  Sample message;
  sample.CopyTo(&message);
  for (Service* service : {static_cast<Service*>(&messages_), static_cast<Service*>(&layouts_)}) {
    Start(service);
    SampleLayout struct_reply;
    ASSERT_TRUE(stub_->Mirror(sample, &struct_reply).ok());
    EXPECT_TRUE(SameBytes(struct_reply, sample));
    Sample message_reply;
    ASSERT_TRUE(stub_->Mirror(message, &message_reply).ok());
    EXPECT_EQ(message_reply.SerializeAsString(), message.SerializeAsString());
    SampleLayout again;
    ASSERT_TRUE(again.CopyFrom(message_reply).ok());
    EXPECT_TRUE(SameBytes(again, sample));
  }
}

TEST_F(LayoutCallTest, EveryFormTravelsWithMetadata) {
  const SampleLayout sample = MakeSample();
  for (Service* service : {static_cast<Service*>(&messages_), static_cast<Service*>(&layouts_)}) {
    Start(service);
    ClientContext context;
    ASSERT_TRUE(context.AddMetadata("k", "v").ok());
    SampleLayout reply;
    const absl::Status status = stub_->Mirror(sample, &reply, {.context = &context});
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(SameBytes(reply, sample));
  }
}

TEST_F(LayoutCallTest, ADirectionMayHaveALayoutAlone) {
  for (Service* service : {static_cast<Service*>(&messages_), static_cast<Service*>(&layouts_)}) {
    Start(service);
    Words words;
    ASSERT_TRUE(stub_->Explain(MakePayment(1, -4), &words).ok());
    EXPECT_EQ(words.text(), "-4 nnnnnnnnnnnnn");
    BalanceLayout balance;
    ASSERT_TRUE(stub_->Find(MakeWords("seven77"), &balance).ok());
    EXPECT_EQ(balance.amount, 7);
    ASSERT_TRUE(stub_->Note(MakeWords("as ever"), &words).ok());
    EXPECT_EQ(words.text(), "as ever");
  }
}

TEST_F(LayoutCallTest, RepliesStartEmptyInEveryCall) {
  class Silent final : public Ledger::LayoutService {
    absl::Status Move(ServerContext&, const PaymentLayout& request, BalanceLayout* reply) override {
      if (request.from != 0) *reply = {5, 6, {}};
      return absl::OkStatus();
    }
  } silent;
  Start(&silent);
  for (uint64_t from : {1u, 0u, 1u, 0u}) {
    BalanceLayout balance{9, 9, {}};
    ASSERT_TRUE(stub_->Move(MakePayment(from, 1), &balance).ok());
    EXPECT_EQ(balance.amount, from == 0 ? 0 : 5);
    EXPECT_EQ(balance.moves, from == 0 ? 0u : 6u);
  }
}

TEST_F(LayoutCallTest, StructsLargerThanAFrameTravel) {
  auto page = std::make_unique<PageLayout>();
  auto reply = std::make_unique<PageLayout>();
  for (size_t i = 0; i < page->words.size(); ++i) page->words[i] = i;
  for (Service* service : {static_cast<Service*>(&messages_), static_cast<Service*>(&layouts_)}) {
    Start(service);
    const absl::Status status = stub_->Turn(*page, reply.get());
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(reply->words.front(), page->words.back());
    EXPECT_EQ(reply->words.back(), 0u);
  }
}

TEST_F(LayoutCallTest, RepliesLargerThanTheClientTakesAreRefusedInEveryForm) {
  for (Service* service : {static_cast<Service*>(&messages_), static_cast<Service*>(&layouts_)}) {
    Serve(service);
    ChannelOptions options;
    options.max_reply_bytes = 8;
    OpenChannel(options);
    BalanceLayout balance;
    const absl::Status status = stub_->Move(MakePayment(1, 2), &balance);
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  }
}

TEST_F(LayoutCallTest, MethodsThatNobodyImplementsAreUnimplemented) {
  class Empty final : public Ledger::LayoutService {
  } empty;
  Start(&empty);
  BalanceLayout balance;
  EXPECT_EQ(stub_->Move(MakePayment(1, 2), &balance),
            WithDelivery(absl::UnimplementedError("method Move (weft.test.Payment to "
                                                  "weft.test.Balance) is not implemented by this "
                                                  "server"),
                         Delivery::kNotSent));
}

TEST_F(LayoutCallTest, AServerHasOneOfTheTwoServices) {
  Serve(&layouts_);
  server_ = *Server::Create(server_engine());
  ASSERT_TRUE(server_->AddService(&layouts_).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(server_->AddService(&messages_)));
}

// --- conversions ---------------------------------------------------------------------------------

TEST(LayoutCopyTest, AnEmptyMessageIsAStructOfZeros) {
  PaymentLayout payment = MakePayment(1, 2);
  ASSERT_TRUE(payment.CopyFrom(Payment()).ok());
  EXPECT_TRUE(SameBytes(payment, PaymentLayout()));
}

TEST(LayoutCopyTest, ShorterFieldsAreFilledUpWithZeros) {
  Sample message;
  message.set_tag("ab");
  message.add_numbers(5);
  message.add_names("x");
  SampleLayout sample = MakeSample();
  ASSERT_TRUE(sample.CopyFrom(message).ok());
  EXPECT_EQ(sample.tag[1], std::byte{'b'});
  EXPECT_EQ(sample.tag[2], std::byte{0});
  EXPECT_EQ(sample.numbers, (std::array<int64_t, 3>{5, 0, 0}));
  EXPECT_EQ(sample.names[0][0], std::byte{'x'});
  EXPECT_EQ(sample.names[0][1], std::byte{0});
}

TEST(LayoutCopyTest, LongerFieldsAreErrorsThatNameThem) {
  const auto error_of = [](const Sample& message) {
    SampleLayout sample;
    return sample.CopyFrom(message);
  };
  Sample message;
  message.set_tag("123456");
  EXPECT_EQ(error_of(message),
            absl::InvalidArgumentError(
                "field tag of weft.test.Sample has 6 bytes; its fixed layout has room for 5"));
  message.Clear();
  for (int i = 0; i < 4; ++i) message.add_flags(true);
  EXPECT_EQ(error_of(message),
            absl::InvalidArgumentError(
                "field flags of weft.test.Sample has 4 elements; its fixed layout has room for 3"));
  message.Clear();
  message.add_names("");
  message.add_names("1234");
  EXPECT_EQ(error_of(message),
            absl::InvalidArgumentError(
                "field names of weft.test.Sample has 4 bytes; its fixed layout has room for 3"));
}

// What goes out is the struct as it stands in memory: a byte that no member owns would be whatever
// was on the stack before.
TEST(LayoutCopyTest, NoByteOfAStructIsUndefined) {
  alignas(SampleLayout) std::array<std::byte, sizeof(SampleLayout)> memory;
  memory.fill(std::byte{0xAA});
  auto* sample = new (memory.data()) SampleLayout;
  for (std::byte byte : memory) EXPECT_EQ(byte, std::byte{0});
  memory.fill(std::byte{0xAA});
  ASSERT_TRUE(sample->CopyFrom(Sample()).ok());
  for (std::byte byte : memory) EXPECT_EQ(byte, std::byte{0});
}

// --- other releases ------------------------------------------------------------------------------

// A server of Ledger as a later release has it: another layout of Move's request, the same of its
// reply.
class LaterLedger final : public Service {
 public:
  const ServiceDescriptor& weft_descriptor() const override {
    static const MethodDescriptor kMethods[] = {Describe<false, false>()};
    static const MethodDescriptor kForms[] = {Describe<true, true>(), Describe<true, false>(),
                                              Describe<false, true>()};
    static const ServiceDescriptor kService = {"weft.test.Ledger", kMethods, kForms};
    return kService;
  }
  void StartMove(UnaryCall<NextPaymentLayout, BalanceLayout> call) {
    call.reply()->amount = call.request().amount * 10;
    formats = call.context().method().layouts;
    note = reinterpret_cast<const char*>(call.request().note.data());
    call.Finish(absl::OkStatus());
  }

  // Of the last call.
  const MethodLayouts* formats = nullptr;
  std::string note;

 private:
  template <bool kFixedRequest, bool kFixedReply>
  static constexpr MethodDescriptor Describe() {
    return {
        "Move",
        "weft.test.Payment",
        "weft.test.Balance",
        &internal::MakeMessages<NextPaymentLayout, BalanceLayout>,
        &internal::StartUnary<LaterLedger, NextPaymentLayout, BalanceLayout,
                              &LaterLedger::StartMove>,
        &internal::kMethodLayouts<NextPaymentLayout, BalanceLayout, kFixedRequest, kFixedReply>};
  }
};

TEST_F(LayoutCallTest, AServerWithoutLayoutsIsSpokenToInProtobuf) {
  LogLines log;
  Start(&messages_);
  for (uint32_t i = 1; i < 4; ++i) {
    BalanceLayout balance;
    ASSERT_TRUE(stub_->Move(MakePayment(3, 4), &balance).ok());
    EXPECT_EQ(balance.amount, 7);
    EXPECT_EQ(balance.moves, 1000 + i);
  }
  EXPECT_EQ(log.lines, (std::vector<std::string>{
                           "the request of weft.test.Ledger.Move travels as protobuf: server "
                           "sim:server has no fixed layout of it",
                           "the reply of weft.test.Ledger.Move travels as protobuf: server "
                           "sim:server has no fixed layout of it"}));
}

TEST_F(LayoutCallTest, ADifferentLayoutFallsBackInItsDirectionAlone) {
  LogLines log;
  LaterLedger later;
  Start(&later);
  BalanceLayout balance;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(stub_->Move(MakePayment(1, 7), &balance).ok());
    EXPECT_EQ(balance.amount, 70);
    EXPECT_EQ(later.note, "nnnnnnnnnnnnn");
    EXPECT_FALSE(later.formats->request.fixed());
    EXPECT_TRUE(later.formats->reply.fixed());
  }
  ASSERT_EQ(log.lines.size(), 1u);
  EXPECT_EQ(log.lines[0].find("the request of weft.test.Ledger.Move travels as protobuf: the "
                              "layout of weft.test.Payment is "),
            0u)
      << log.lines[0];
}

TEST_F(LayoutCallTest, WhatAnotherLayoutHasNoRoomForIsAnError) {
  LaterLedger later;
  Start(&later);
  Payment message;
  Balance reply;
  message.set_amount(7);
  message.set_note(std::string(16, 'n'));
  ASSERT_TRUE(stub_->Move(message, &reply).ok());
  EXPECT_EQ(reply.amount(), 70);
  message.set_note(std::string(17, 'n'));
  EXPECT_EQ(
      stub_->Move(message, &reply),
      WithDelivery(absl::InvalidArgumentError(
                       "the request for method Move cannot be decoded: field note of "
                       "weft.test.NextPayment has 17 bytes; its fixed layout has room for 16"),
                   Delivery::kNotSent));
}

// --- queues and threads --------------------------------------------------------------------------

TEST_F(LayoutCallTest, AQueuedCallKeepsItsStruct) {
  for (Service* service : {static_cast<Service*>(&messages_), static_cast<Service*>(&layouts_)}) {
    server_.reset();
    ChannelOptions options;
    options.connect_at_once = false;
    OpenChannel(options);
    BalanceLayout balance;
    std::optional<absl::Status> status;
    {
      auto payment = std::make_unique<PaymentLayout>(MakePayment(1, 41));
      stub_->Move(*payment, &balance, {.wait_for_server = true},
                  [&](absl::Status result) { status = std::move(result); });
      payment->amount = 0;
    }
    network_.Settle();
    EXPECT_FALSE(status.has_value());
    Serve(service);
    ASSERT_TRUE(RunUntil([&] { return status.has_value(); }));
    EXPECT_TRUE(status->ok()) << *status;
    EXPECT_EQ(balance.amount, 42);
  }
}

// --- hostile peers -------------------------------------------------------------------------------

// Numbers of Ledger::layout_descriptor(): six methods, then the forms.
constexpr uint16_t kMove = 0;
constexpr uint16_t kMoveForm = 6;
constexpr uint16_t kMirrorForm = 9;

class HostileLayoutTest : public LayoutCallTest {
 protected:
  HostileLayoutTest() {
    Start(&layouts_);
    peer_.Dial(client().transport());
    EXPECT_TRUE(RunUntil([&] { return peer_.connection != nullptr; }));
  }
  ~HostileLayoutTest() override {
    if (peer_.connection != nullptr) peer_.connection->Close("done");
    network_.Settle();
  }

  // The reply's status; its body goes to body_.
  absl::StatusCode Send(uint16_t method, std::string_view body) {
    generation_ += 2;
    peer_.received.clear();
    peer_.Send(Request({0, generation_}, method, std::string(body)));
    EXPECT_TRUE(RunUntil([&] { return !peer_.received.empty() || !peer_.why.ok(); }));
    ReplyHeader header;
    ByteSpan rest;
    EXPECT_TRUE(!peer_.received.empty() && DecodeReply(peer_.received.back(), &header, &rest));
    body_ = std::string(AsStringView(rest));
    return static_cast<absl::StatusCode>(header.status);
  }

  RawPeer peer_;
  uint32_t generation_ = 1;
  std::string body_;
};

TEST_F(HostileLayoutTest, OnTheWireAStructIsItsBytes) {
  ASSERT_EQ(Send(kMoveForm, BytesOfRecord(MakePayment(5, 6))), absl::StatusCode::kOk);
  BalanceLayout expected;
  expected.amount = 11;
  expected.moves = 1001;
  EXPECT_EQ(body_, BytesOfRecord(expected));
  EXPECT_TRUE(SameBytes(layouts_.last, MakePayment(5, 6)));
}

TEST_F(HostileLayoutTest, AnotherLengthFailsThatCallAlone) {
  const std::string good(BytesOfRecord(MakePayment(5, 6)));
  for (size_t bytes : {size_t{0}, size_t{1}, good.size() - 1, good.size() + 1, size_t{4000}}) {
    std::string bad = good;
    bad.resize(bytes, 'x');
    EXPECT_EQ(Send(kMoveForm, bad), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(body_, "the request for method Move cannot be decoded: it has " +
                         std::to_string(bytes) + " bytes; the layout of weft.test.Payment has 48");
  }
  EXPECT_EQ(layouts_.moves, 0u);
  EXPECT_EQ(Send(kMoveForm, good), absl::StatusCode::kOk);
  EXPECT_TRUE(peer_.why.ok());
}

TEST_F(HostileLayoutTest, ProtobufInPlaceOfTheStructIsRefusedAndTheOtherWayRound) {
  Payment message;
  MakePayment(5, 6).CopyTo(&message);
  EXPECT_EQ(Send(kMoveForm, message.SerializeAsString()), absl::StatusCode::kInvalidArgument);
  std::string record(BytesOfRecord(MakePayment(5, 6)));
  EXPECT_EQ(Send(kMove, record), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(body_,
            "the request for method Move cannot be decoded: the 48 bytes cannot be decoded as "
            "weft.test.Payment");
  EXPECT_EQ(layouts_.moves, 0u);
}

TEST_F(HostileLayoutTest, NoByteOfAStructDoesHarm) {
  for (int value = 0; value < 256; ++value) {
    const std::string bytes(sizeof(SampleLayout), static_cast<char>(value));
    ASSERT_EQ(Send(kMirrorForm, bytes), absl::StatusCode::kOk);
    SampleLayout sample;
    ASSERT_EQ(body_.size(), sizeof(sample));
    std::memcpy(static_cast<void*>(&sample), body_.data(), sizeof(sample));
    EXPECT_EQ(static_cast<bool>(sample.flag), value != 0);
    Sample message;
    sample.CopyTo(&message);
    EXPECT_EQ(message.flags(2), value != 0);
    EXPECT_EQ(static_cast<int>(message.color()), static_cast<int>(sample.color));
  }
}

TEST_F(HostileLayoutTest, NumbersBeyondTheFormsAreUnimplemented) {
  EXPECT_EQ(Send(static_cast<uint16_t>(Ledger::layout_descriptor().methods.size() +
                                       Ledger::layout_descriptor().forms.size()),
                 ""),
            absl::StatusCode::kUnimplemented);
  EXPECT_EQ(body_, "no method has the number 17; this server has 6 methods");
}

// A server that says what it is told to say.
class RawServerTest : public LayoutCallTest {
 protected:
  using Forms = std::vector<std::array<uint64_t, 3>>;  // method, request's and reply's hash

  // Lists Move alone, number 0, and `forms`.
  absl::Status Serve(const Forms& forms, uint32_t slots = 4) {
    rpc::ServerHello hello;
    hello.set_protocol(kRpcProtocolVersion);
    hello.set_max_outstanding_calls(slots);
    hello.set_max_request_bytes(1000);
    rpc::ServiceTable* table = hello.add_services();
    table->set_name("weft.test.Ledger");
    table->add_methods("Move");
    for (const auto& [method, request_layout, reply_layout] : forms) {
      rpc::MethodForm* form = hello.add_forms();
      form->set_method(static_cast<uint32_t>(method));
      form->set_request_layout(request_layout);
      form->set_reply_layout(reply_layout);
    }
    ListenOptions options;
    options.hello = hello.SerializeAsString();
    listener_ = *server_engine().transport().Listen("sim:server", options, &acceptor_);
    auto channel = Channel::Open(client(), "sim:server");
    if (!channel.ok()) return channel.status();
    channel_ = *std::move(channel);
    stub_.emplace(*channel_);
    EXPECT_TRUE(RunUntil([&] { return acceptor_.peer.connection != nullptr; }));
    return absl::OkStatus();
  }
  ~RawServerTest() override {
    stub_.reset();
    channel_.reset();
    network_.Settle();
  }

  // Calls with MakePayment(1, 2), and waits until the server has the request.
  RequestHeader Call() {
    acceptor_.peer.received.clear();
    status_.reset();
    stub_->Move(MakePayment(1, 2), &balance_, {},
                [this](absl::Status result) { status_ = std::move(result); });
    EXPECT_TRUE(RunUntil([&] { return !acceptor_.peer.received.empty(); }));
    ByteSpan body;
    const RequestHeader header = DecodeRequest(acceptor_.peer.received.front(), &body);
    body_ = std::string(AsStringView(body));
    return header;
  }
  void Answer(CallId id, const std::string& body) {
    acceptor_.peer.Send(Reply(id, 0, 0, body));
    ASSERT_TRUE(RunUntil([&] { return status_.has_value(); }));
  }

  const PaymentLayout payment_ = MakePayment(1, 2);
  BalanceLayout balance_;
  std::optional<absl::Status> status_;
  std::string body_;  // of the last request
  RawAcceptor acceptor_;
  std::unique_ptr<Listener> listener_;
};

constexpr uint64_t kPaymentHash = PaymentLayout::kLayoutHash;
constexpr uint64_t kBalanceHash = BalanceLayout::kLayoutHash;

BalanceLayout MakeBalance(int64_t amount) {
  BalanceLayout balance;
  balance.amount = amount;
  return balance;
}

std::string AsMessage(const BalanceLayout& balance) {
  Balance message;
  balance.CopyTo(&message);
  return message.SerializeAsString();
}

TEST_F(RawServerTest, TheFormWithBothLayoutsIsPreferred) {
  ASSERT_TRUE(
      Serve({{0, 0, kBalanceHash}, {0, kPaymentHash, 0}, {0, kPaymentHash, kBalanceHash}}).ok());
  const RequestHeader header = Call();
  EXPECT_EQ(header.method, 3);
  EXPECT_EQ(body_, BytesOfRecord(payment_));
  Answer(header.id, std::string(BytesOfRecord(MakeBalance(4))));
  EXPECT_TRUE(status_->ok());
  EXPECT_EQ(balance_.amount, 4);
}

TEST_F(RawServerTest, EitherDirectionMayBeAgreedOnAlone) {
  ASSERT_TRUE(Serve({{0, kPaymentHash, 0}}).ok());
  const RequestHeader header = Call();
  EXPECT_EQ(header.method, 1);
  EXPECT_EQ(body_, BytesOfRecord(payment_));
  Answer(header.id, AsMessage(MakeBalance(5)));
  EXPECT_TRUE(status_->ok());
  EXPECT_EQ(balance_.amount, 5);
}

TEST_F(RawServerTest, FormsThatMeanNothingAreNotUsed) {
  ASSERT_TRUE(Serve({{7, kPaymentHash, kBalanceHash},
                     {0xFFFFFFFF, kPaymentHash, kBalanceHash},
                     {0, 0, 0},
                     {0, kPaymentHash + 1, kBalanceHash},
                     {0, kBalanceHash, kPaymentHash}})
                  .ok());
  const RequestHeader header = Call();
  EXPECT_EQ(header.method, 0);
  Payment message;
  EXPECT_TRUE(message.ParseFromString(body_));
  EXPECT_EQ(message.amount(), 2);
  Answer(header.id, AsMessage(MakeBalance(6)));
  EXPECT_TRUE(status_->ok());
  EXPECT_EQ(balance_.amount, 6);
}

TEST_F(RawServerTest, MoreFormsThanCanBeNumberedMakeNoSense) {
  const absl::Status status = Serve(Forms(0xFFFE));
  EXPECT_NE(status.message().find("the server's hello makes no sense"), absl::string_view::npos)
      << status;
}

TEST_F(RawServerTest, AReplyOfAnotherLengthFailsItsCallOnly) {
  ASSERT_TRUE(Serve({{0, kPaymentHash, kBalanceHash}}).ok());
  const std::string good(BytesOfRecord(MakeBalance(4)));
  for (size_t bytes : {size_t{0}, good.size() - 1, good.size() + 1, size_t{4000}}) {
    std::string bad = good;
    bad.resize(bytes, 'x');
    Answer(Call().id, bad);
    EXPECT_EQ(
        *status_,
        WithDelivery(absl::DataLossError("the reply from sim:server cannot be decoded: it has " +
                                         std::to_string(bytes) +
                                         " bytes; the layout of weft.test.Balance has 16"),
                     Delivery::kMayHaveRun));
  }
  Answer(Call().id, good);
  EXPECT_TRUE(status_->ok());
  EXPECT_EQ(channel_->stats().connects, 1u);
}

TEST_F(RawServerTest, AReplyInProtobufWithTooLongFieldsFailsItsCallOnly) {
  ASSERT_TRUE(Serve({}).ok());
  Answer(Call().id, "\xFF\xFF");
  EXPECT_EQ(*status_,
            WithDelivery(absl::DataLossError("the reply from sim:server cannot be decoded: the 2 "
                                             "bytes cannot be decoded as weft.test.Balance"),
                         Delivery::kMayHaveRun));
  Answer(Call().id, AsMessage(MakeBalance(8)));
  EXPECT_TRUE(status_->ok());
  EXPECT_EQ(balance_.amount, 8);
}

// A call was converted for one server, found no slot there, and was queued: what the next server
// gets is the struct again, and not what the first one would have got.
TEST_F(RawServerTest, AConvertedCallThatWasNotSentIsNotConvertedForTheNextServer) {
  ASSERT_TRUE(Serve({}, /*slots=*/1).ok());
  Call();
  BalanceLayout second;
  std::optional<absl::Status> status;
  stub_->Move(MakePayment(1, 41), &second, {.wait_for_server = true},
              [&](absl::Status result) { status = std::move(result); });
  EXPECT_EQ(channel_->stats().queued, 1u);
  listener_.reset();
  LayoutCallTest::Serve(&layouts_);
  acceptor_.peer.connection->Close("gone");
  ASSERT_TRUE(RunUntil([&] { return status.has_value() && status_.has_value(); }));
  EXPECT_TRUE(absl::IsUnavailable(*status_)) << *status_;
  EXPECT_TRUE(status->ok()) << *status;
  EXPECT_EQ(second.amount, 42);
  EXPECT_TRUE(SameBytes(layouts_.last, MakePayment(1, 41)));
}

}  // namespace
}  // namespace weft::test
