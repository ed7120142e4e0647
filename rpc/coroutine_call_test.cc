// Coroutines at both ends of calls and streams, on a simulated network.
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rpc/client/client_context.h"
#include "rpc/generated_streams.h"
#include "rpc/memory/remote_memory.h"
#include "rpc/server/exported_memory.h"
#include "rpc/testing/rpc_test.h"
#include "rpc/testing/stream_service.h"
#include "weft/coroutine.h"

namespace weft::test {
namespace {

// Handlers that are coroutines; Echo is one only if `echo` is set, Make and the others are not.
class CoProbe final : public Probe::CoService {
 public:
  Task<absl::Status> CoEcho(ServerContext& context, const Data& request, Data* reply) override {
    if (upstream == nullptr) return {};
    return Forward(context, request, reply);
  }
  Task<absl::Status> CoFail(ServerContext&, const Failure& request, Data*) override {
    co_return absl::Status(static_cast<absl::StatusCode>(request.code()), request.text());
  }
  Task<absl::Status> CoHold(ServerContext& context, const Data& request, Data* reply) override {
    ++holding;
    const Count on_the_stack{&holding};
    co_await Await<int>([this, &context](Function<void(int)> done) {
      context.OnCancel([this] { Release(); });
      release = std::move(done);
    });
    if (context.cancelled()) co_return absl::CancelledError("nobody waits");
    *reply = request;
    co_return absl::OkStatus();
  }
  absl::Status Make(ServerContext&, const Size& request, Data* reply) override {
    reply->mutable_payload()->assign(request.bytes(), 'm');
    return absl::OkStatus();
  }
  void Release() {
    Function<void(int)> done = std::move(release);
    release = nullptr;
    if (done) done(0);
  }

  Probe::Stub* upstream = nullptr;
  Function<void(int)> release;
  int holding = 0;

 private:
  struct Count {
    ~Count() { --*of; }
    int* of;
  };
  // Asks elsewhere, twice.
  Task<absl::Status> Forward(ServerContext&, const Data& request, Data* reply) {
    Data halfway;
    absl::Status status = co_await upstream->CoEcho(request, &halfway);
    if (!status.ok()) co_return status;
    co_return co_await upstream->CoEcho(halfway, reply);
  }
};

class CoStreams final : public Streams::CoService {
 public:
  Task<absl::Status> CoTalk(ServerContext&, ServerReaderWriter<Data, Data>& stream) override {
    Data data;
    while (co_await stream.CoRead(&data)) {
      if (!co_await stream.CoWrite(data)) co_return absl::AbortedError("nobody reads");
    }
    co_return absl::OkStatus();
  }
  Task<absl::Status> CoSum(ServerContext&, ServerReader<Data>& reader, Data* reply) override {
    Data data;
    uint64_t sum = 0;
    while (co_await reader.CoRead(&data)) {
      sum += data.number();
      reply->set_number(reply->number() + 1);
    }
    reply->set_payload(std::string(sum, 's'));
    co_return absl::OkStatus();
  }
  Task<absl::Status> CoCount(ServerContext&, const Size& request,
                             ServerWriter<Data>& writer) override {
    for (uint64_t i = 0; i < request.bytes(); ++i) {
      if (!co_await writer.CoWrite(MakeData(i, 1))) break;
      ++counted;
    }
    ++ended;
    co_return absl::OkStatus();
  }

  uint64_t counted = 0;
  int ended = 0;
};

class CoroutineCallTest : public RpcTest {
 protected:
  ~CoroutineCallTest() override {
    talks_.reset();
    channel_.reset();
    server_.reset();
    upstream_stub_.reset();
    upstream_.reset();
    upstream_server_.reset();
  }

  void StartCoroutines() {
    server_ = *Server::Create(server_engine());
    ASSERT_TRUE(server_->AddService(&probe_).ok());
    ASSERT_TRUE(server_->AddService(&streams_).ok());
    ASSERT_TRUE(server_->Listen("sim:server").ok());
    OpenChannel();
    talks_.emplace(*channel_);
  }
  // Another server, which the first one asks.
  void StartUpstream() {
    upstream_server_ = *Server::Create(CoreOf(network_.Node("upstream")));
    ASSERT_TRUE(upstream_server_->AddService(&service_).ok());
    ASSERT_TRUE(upstream_server_->Listen("sim:upstream").ok());
    ChannelOptions options;
    options.connect_at_once = false;
    upstream_ = *Channel::Open(server_engine(), "sim:upstream", options);
    upstream_stub_.emplace(*upstream_);
    probe_.upstream = &*upstream_stub_;
  }

  // Runs it to its end.
  template <class T>
  T Run(Task<T> task) {
    std::optional<T> result;
    weft::Start(std::move(task), [&](T value) { result.emplace(std::move(value)); });
    EXPECT_TRUE(RunUntil([&] { return result.has_value(); })) << "it does not end";
    return *std::move(result);
  }

  CoProbe probe_;
  CoStreams streams_;
  std::unique_ptr<Server> upstream_server_;
  std::unique_ptr<Channel> upstream_;
  std::optional<Probe::Stub> upstream_stub_;
  std::optional<Streams::Stub> talks_;
};

// --- calls ---------------------------------------------------------------------------------------

TEST_F(CoroutineCallTest, AwaitsCallsOneAfterTheOther) {
  StartCoroutines();
  const auto two = [](Probe::Stub& stub) -> Task<absl::StatusOr<size_t>> {
    Size size;
    Data reply;
    size_t bytes = 0;
    for (uint64_t i = 1; i <= 2; ++i) {
      size.set_bytes(i * 100);
      const absl::Status status = co_await stub.CoMake(size, &reply);
      if (!status.ok()) co_return status;
      bytes += reply.payload().size();
    }
    co_return bytes;
  };
  const absl::StatusOr<size_t> bytes = Run(two(*stub_));
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_EQ(*bytes, 300u);
}

TEST_F(CoroutineCallTest, AHandlerThatIsACoroutineAsksElsewhereAndAnswers) {
  StartCoroutines();
  StartUpstream();
  Data reply;
  const absl::Status status = stub_->Echo(MakeData(7, 100), &reply);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(reply.number(), 7u);
  EXPECT_EQ(service_.echoes, 2);
  EXPECT_EQ(server_->stats().running, 0u);
}

TEST_F(CoroutineCallTest, ItsErrorIsTheCallsError) {
  StartCoroutines();
  Failure failure;
  failure.set_code(static_cast<int>(absl::StatusCode::kAborted));
  failure.set_text("as asked");
  Data reply;
  EXPECT_EQ(stub_->Fail(failure, &reply), absl::AbortedError("as asked"));
}

// Also if the function that is to give a coroutine gives none.
TEST_F(CoroutineCallTest, WhatIsNoCoroutineIsServedByTheOtherForms) {
  StartCoroutines();
  Size size;
  size.set_bytes(5);
  Data reply;
  ASSERT_TRUE(stub_->Make(size, &reply).ok());
  EXPECT_EQ(reply.payload(), "mmmmm");
  const absl::Status echo = stub_->Echo(MakeData(1, 1), &reply);
  EXPECT_TRUE(absl::IsUnimplemented(echo)) << echo;
  const absl::Status plain = talks_->Plain(MakeData(1, 1), &reply);
  EXPECT_TRUE(absl::IsUnimplemented(plain)) << plain;
  auto missing = talks_->Missing();
  const absl::Status stream = missing.Finish();
  EXPECT_TRUE(absl::IsUnimplemented(stream)) << stream;
}

TEST_F(CoroutineCallTest, ManyCallsAreAwaitedTogether) {
  StartCoroutines();
  const auto one = [](Probe::Stub& stub, uint64_t bytes) -> Task<size_t> {
    Size size;
    size.set_bytes(bytes);
    Data reply;
    const absl::Status status = co_await stub.CoMake(size, &reply);
    co_return status.ok() ? reply.payload().size() : 0;
  };
  std::vector<Task<size_t>> tasks;
  for (uint64_t i = 0; i < 500; ++i) tasks.push_back(one(*stub_, i));
  const std::vector<size_t> sizes = Run(WhenAll(std::move(tasks)));
  ASSERT_EQ(sizes.size(), 500u);
  for (size_t i = 0; i < sizes.size(); ++i) EXPECT_EQ(sizes[i], i);
}

// A coroutine that is cancelled unwinds: what it awaits ends with CANCELLED, and what it has on its
// stack goes. So does the handler's.
TEST_F(CoroutineCallTest, CancellingACallUnwindsBothEnds) {
  StartCoroutines();
  ClientContext context;
  bool gone = false;
  struct Note {
    ~Note() { *flag = true; }
    bool* flag;
  };
  const auto hold = [&](Probe::Stub& stub) -> Task<absl::Status> {
    const Note note{&gone};
    const Data request = MakeData(1, 10);
    Data reply;
    co_return co_await stub.CoHold(request, &reply, {.context = &context});
  };
  std::optional<absl::Status> status;
  weft::Start(hold(*stub_), [&](absl::Status ended) { status = std::move(ended); });
  ASSERT_TRUE(RunUntil([&] { return probe_.holding == 1; }));
  ASSERT_TRUE(context.Cancel().ok());
  ASSERT_TRUE(RunUntil([&] { return status.has_value() && probe_.holding == 0; }));
  EXPECT_TRUE(absl::IsCancelled(*status)) << *status;
  EXPECT_TRUE(gone);
  EXPECT_TRUE(RunUntil([&] { return server_->stats().running == 0; }));
}

TEST_F(CoroutineCallTest, ADeadlineUnwindsBothEnds) {
  StartCoroutines();
  const auto hold = [](Probe::Stub& stub) -> Task<absl::Status> {
    const Data request = MakeData(1, 10);
    Data reply;
    co_return co_await stub.CoHold(request, &reply, {.timeout_us = 5000});
  };
  const absl::Status status = Run(hold(*stub_));
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_TRUE(RunUntil([&] { return probe_.holding == 0 && server_->stats().running == 0; }));
}

TEST_F(CoroutineCallTest, TheEndOfTheChannelEndsWhatIsAwaited) {
  StartCoroutines();
  const auto hold = [](Probe::Stub& stub) -> Task<absl::Status> {
    const Data request = MakeData(1, 10);
    Data reply;
    co_return co_await stub.CoHold(request, &reply);
  };
  std::optional<absl::Status> status;
  weft::Start(hold(*stub_), [&](absl::Status ended) { status = std::move(ended); });
  ASSERT_TRUE(RunUntil([&] { return probe_.holding == 1; }));
  talks_.reset();
  stub_.reset();
  channel_.reset();
  ASSERT_TRUE(status.has_value());
  EXPECT_TRUE(absl::IsCancelled(*status)) << *status;
  EXPECT_TRUE(RunUntil([&] { return probe_.holding == 0; }));
}

// The connection is gone before the coroutine ends: its end goes nowhere, and harms nobody.
TEST_F(CoroutineCallTest, AHandlerMayOutliveItsConnection) {
  StartCoroutines();
  StartUpstream();
  service_.look = [&](ServerContext&) { network_.Kill("client"); };
  const auto echo = [](Probe::Stub& stub) -> Task<absl::Status> {
    const Data request = MakeData(1, 10);
    Data reply;
    co_return co_await stub.CoEcho(request, &reply);
  };
  std::optional<absl::Status> never;
  weft::Start(echo(*stub_), [&](absl::Status ended) { never = std::move(ended); });
  ASSERT_TRUE(RunUntil([&] { return service_.echoes == 2 && server_->stats().running == 0; }));
  EXPECT_FALSE(never.has_value()) << "its machine is dead";
  talks_.reset();
  stub_.reset();
  channel_.reset();  // what it ends writes here
}

// --- streams -------------------------------------------------------------------------------------

TEST_F(CoroutineCallTest, BothEndsOfAStreamAreCoroutines) {
  StartCoroutines();
  const auto talk = [](Streams::Stub& stub) -> Task<absl::StatusOr<uint64_t>> {
    auto stream = stub.Talk();
    uint64_t sum = 0;
    Data data;
    for (uint64_t i = 1; i <= 100; ++i) {
      if (!co_await stream.CoWrite(MakeData(i, 20))) break;
      if (!co_await stream.CoRead(&data)) break;
      sum += data.number();
    }
    stream.WritesDone();
    EXPECT_FALSE(co_await stream.CoRead(&data));
    const absl::Status status = co_await stream.CoFinish();
    if (!status.ok()) co_return status;
    co_return sum;
  };
  const absl::StatusOr<uint64_t> sum = Run(talk(*talks_));
  ASSERT_TRUE(sum.ok()) << sum.status();
  EXPECT_EQ(*sum, 5050u);
  EXPECT_EQ(server_->stats().running, 0u);
}

TEST_F(CoroutineCallTest, StreamsOfOneDirectionToo) {
  StartCoroutines();
  const auto sum = [](Streams::Stub& stub) -> Task<absl::StatusOr<Data>> {
    Data reply;
    auto stream = stub.Sum(&reply);
    for (uint64_t i = 1; i <= 5; ++i) EXPECT_TRUE(co_await stream.CoWrite(MakeData(i, 3)));
    const absl::Status status = co_await stream.CoFinish();
    if (!status.ok()) co_return status;
    co_return reply;
  };
  const absl::StatusOr<Data> total = Run(sum(*talks_));
  ASSERT_TRUE(total.ok()) << total.status();
  EXPECT_EQ(total->number(), 5u);
  EXPECT_EQ(total->payload().size(), 15u);

  const auto count = [](Streams::Stub& stub, uint64_t wanted) -> Task<uint64_t> {
    Size size;
    size.set_bytes(wanted);
    auto stream = stub.Count(size);
    Data data;
    uint64_t seen = 0;
    while (co_await stream.CoRead(&data)) seen += data.number() == seen;
    EXPECT_TRUE((co_await stream.CoFinish()).ok());
    co_return seen;
  };
  EXPECT_EQ(Run(count(*talks_, 5000)), 5000u);
  EXPECT_EQ(streams_.ended, 1);
}

// A writer that waits for credit hears of the end, and its coroutine unwinds.
TEST_F(CoroutineCallTest, AStreamThatIsDroppedEndsItsHandler) {
  StartCoroutines();
  const auto some = [](Streams::Stub& stub) -> Task<int> {
    Size size;
    size.set_bytes(1'000'000);
    auto stream = stub.Count(size);
    Data data;
    EXPECT_TRUE(co_await stream.CoRead(&data));
    co_return 1;
  };
  EXPECT_EQ(Run(some(*talks_)), 1);
  EXPECT_TRUE(RunUntil([&] { return streams_.ended == 1 && server_->stats().running == 0; }));
  EXPECT_LT(streams_.counted, 1'000'000u);
}

// --- remote memory -------------------------------------------------------------------------------

TEST_F(CoroutineCallTest, RemoteMemoryIsAwaited) {
  StartCoroutines();
  alignas(64) std::array<std::byte, 4096> owned = {};
  owned[100] = std::byte{5};
  ExportOptions all;
  all.rights = kAllRights;
  auto exported = server_->Export(owned, all);
  ASSERT_TRUE(exported.ok()) << exported.status();
  auto memory = RemoteMemory::Open(*channel_, (*exported)->handle());
  ASSERT_TRUE(memory.ok()) << memory.status();
  auto buffer = channel_->AllocateBuffer(64);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  const auto use = [](RemoteMemory& remote, Buffer& local) -> Task<absl::Status> {
    absl::Status status = co_await remote.CoRead(100, local.slice(0, 1));
    if (!status.ok()) co_return status;
    local.bytes()[1] = local.bytes()[0];
    status = co_await remote.CoWrite(101, local.slice(1, 1));
    if (!status.ok()) co_return status;
    const auto before = co_await Await<absl::StatusOr<uint64_t>>(
        [&](Function<void(absl::StatusOr<uint64_t>)> done) {
          remote.FetchAdd(0, 3, std::move(done));
        });
    EXPECT_FALSE((co_await remote.CoRead(4096, local.slice(0, 1))).ok());
    co_return before.status();
  };
  const absl::Status status = Run(use(**memory, **buffer));
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(owned[101], std::byte{5});
}

}  // namespace
}  // namespace weft::test
