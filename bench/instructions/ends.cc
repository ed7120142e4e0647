#include "bench/instructions/ends.h"

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "bench/instructions/c_ends.h"
#include "bench/instructions/registrations.h"
#include "bench/perf/ends/polled_server.h"
#include "bench/rpc/echo.pb.h"
#include "bench/rpc/echo.weft.h"
#include "bench/rpc/echo_service.h"
#include "core/check.h"
#include "core/status.h"
#include "core/strings.h"
#include "rpc/client/balancing.h"
#include "rpc/client/channel.h"
#include "rpc/server/server.h"
#include "transport/engine.h"
#include "transport/network.h"
#include "weft/coroutine.h"

namespace weft::bench {
namespace {

using rpc::Echo;
using rpc::EchoMessage;
using rpc::EchoRecordLayout;
using rpc::EchoService;

// What calls send and fill.
template <class Body>
struct Exchange {
  Body request;
  std::vector<Body> replies;
};

// An engine's network, and who is polled when the engine has nothing to do: so that a thread that
// waits for a call drives the server too.
class SharedThread final : public Transport {
 public:
  SharedThread(std::unique_ptr<Transport> network, Function<void()> when_idle)
      : network_(std::move(network)), when_idle_(std::move(when_idle)) {}

  absl::StatusOr<std::unique_ptr<Listener>> Listen(const std::string& address,
                                                   const ListenOptions& options,
                                                   Acceptor* acceptor) override {
    return network_->Listen(address, options, acceptor);
  }
  absl::StatusOr<Connection*> Connect(const std::string& address, const ConnectOptions& options,
                                      ConnectionHandler* handler) override {
    return network_->Connect(address, options, handler);
  }
  Exports& exports() override { return network_->exports(); }
  int Poll(int budget, uint64_t now_ns) override { return network_->Poll(budget, now_ns); }
  void FlushAll() override { network_->FlushAll(); }
  bool Arm() override { return network_->Arm(); }
  bool busy() const override { return network_->busy(); }
  bool Idle(uint64_t until_ns) override {
    (void)until_ns;
    when_idle_();
    return true;
  }

 private:
  const std::unique_ptr<Transport> network_;
  Function<void()> when_idle_;
};

}  // namespace

class Ends::Impl {
 public:
  absl::Status Open(PathKind path) {
    path_ = path;
    LinkOptions link = OnlyPath(path);
    // Under valgrind everything takes fifty times as long.
    link.connect_timeout_ns = 60 * kNsPerSec;
    link.path_timeout_ns = 30 * kNsPerSec;
    link.peer_timeout_ns = 0;
    server_options_.link = link;
    WEFT_ASSIGN_OR_RETURN(server_, PolledServer::Open(&service_, server_options_));

    EngineOptions client_drive;
    client_drive.drive = EngineOptions::Drive::kCaller;
    client_drive.spin_ns = kSpinForever;
    WEFT_ASSIGN_OR_RETURN(
        client_engine_,
        EngineCore::Create(
            client_drive,
            [this](const EngineContext& context) -> absl::StatusOr<std::unique_ptr<Transport>> {
              WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Transport> network,
                                    MakeNetworkTransport(context, NetworkOptions()));
              client_network_ = network.get();
              return std::unique_ptr<Transport>(
                  std::make_unique<SharedThread>(std::move(network), [this] { OnClientIdle(); }));
            }));
    channel_options_.link = link;
    WEFT_ASSIGN_OR_RETURN(channel_,
                          Channel::Open(*client_engine_, server_.address(), channel_options_));
    stub_ = std::make_unique<Echo::Stub>(*channel_);
    messages_.request.set_payload(std::string(kCallBytes, 'x'));
    static_assert(sizeof(EchoRecordLayout) == kCallBytes);
    structs_.request.payload.fill(std::byte{'x'});
    return absl::OkStatus();
  }

  ~Impl() {
    talk_.reset();
    sink_.reset();
    balanced_.reset();
    channel_.reset();
    client_engine_.reset();
  }

  Turns CallBlocking(uint64_t calls, Bodies bodies) {
    return bodies == Bodies::kMessages ? CallBlocking(messages_, calls)
                                       : CallBlocking(structs_, calls);
  }
  Turns CallByCallback(uint64_t calls, uint64_t outstanding, Bodies bodies) {
    return bodies == Bodies::kMessages ? CallByCallback(messages_, calls, outstanding)
                                       : CallByCallback(structs_, calls, outstanding);
  }

  Turns CallBalanced(uint64_t calls) {
    // Before what is measured: these are the calls that warm up.
    if (balanced_ == nullptr) WEFT_CHECK(OpenBalancedChannel().ok());
    turns_ = {};
    if (messages_.replies.empty()) messages_.replies.resize(1);
    for (uint64_t i = 0; i < calls; ++i) {
      WEFT_CHECK(balanced_stub_->Call(messages_.request, &messages_.replies[0]).ok());
    }
    turns_.all += calls;
    return turns_;
  }

  Turns CallByC(uint64_t calls, uint64_t outstanding) {
    if (c_ends_ == nullptr) {
      absl::StatusOr<std::unique_ptr<CEnds>> opened = CEnds::Open(path_);
      WEFT_CHECK(opened.ok());
      c_ends_ = *std::move(opened);
    }
    return c_ends_->CallByCallback(calls, outstanding);
  }

  Turns CallByCoroutine(uint64_t calls) {
    turns_ = {};
    if (messages_.replies.empty()) messages_.replies.resize(1);
    Wait(*client_engine_, Calls(*stub_, messages_, calls));
    turns_.all += calls;
    return turns_;
  }

  Turns StreamPingPong(uint64_t messages) {
    turns_ = {};
    if (!talk_) talk_.emplace(stub_->Talk());
    for (uint64_t i = 0; i < messages; ++i) {
      WEFT_CHECK(talk_->Write(messages_.request));
      WEFT_CHECK(talk_->Read(&streamed_));
    }
    turns_.all += messages;
    return turns_;
  }

  Turns StreamOneWay(uint64_t messages) {
    turns_ = {};
    if (!sink_) sink_.emplace(stub_->Sink(&streamed_));
    WEFT_CHECK(client_engine_->Enter());
    const uint64_t all = service_.sunk + messages;
    while (service_.sunk < all) {
      while (messages > 0 && sink_->TryWrite(messages_.request) == StreamResult::kDone) --messages;
      PollBoth();
    }
    client_engine_->Leave();
    return turns_;
  }

  Turns OneWay(uint64_t messages) {
    turns_ = {};
    const uint64_t all = service_.sunk + messages;
    for (uint64_t i = 0; i < messages; ++i) WEFT_CHECK(stub_->Drop(messages_.request).ok());
    turns_.all += messages;  // the client's, before each
    while (service_.sunk < all) PollBoth();
    return turns_;
  }

  uint64_t registrations() const {
    return RegistrationsOf(server_.engine->transport()) + RegistrationsOf(*client_network_);
  }

  Turns Idle(uint64_t turns) {
    turns_ = {};
    WEFT_CHECK(client_engine_->Enter());
    while (turns_.all < turns) PollBoth();
    client_engine_->Leave();
    return turns_;
  }

 private:
  // Two servers more, on the engine of the first.
  absl::Status OpenBalancedChannel() {
    std::string target = StrCat("list:", server_.address());
    for (std::unique_ptr<Server>& server : more_servers_) {
      WEFT_ASSIGN_OR_RETURN(server, Server::Create(*server_.engine, server_options_));
      WEFT_RETURN_IF_ERROR(server->AddService(&service_));
      WEFT_RETURN_IF_ERROR(server->Listen(kAnyPort));
      target += "," + server->address();
    }
    WEFT_ASSIGN_OR_RETURN(balanced_, OpenBalanced(*client_engine_, target, channel_options_));
    balanced_stub_ = std::make_unique<Echo::Stub>(*balanced_);
    return absl::OkStatus();
  }

  // The method for these: blocking, or with a callback.
  template <class... Rest>
  auto Call(const EchoMessage& request, EchoMessage* reply, Rest&&... rest) {
    return stub_->Call(request, reply, {}, std::forward<Rest>(rest)...);
  }
  template <class... Rest>
  auto Call(const EchoRecordLayout& request, EchoRecordLayout* reply, Rest&&... rest) {
    return stub_->CallStruct(request, reply, {}, std::forward<Rest>(rest)...);
  }

  static Task<> Calls(const Echo::Stub& stub, Exchange<EchoMessage>& exchange, uint64_t calls) {
    for (uint64_t i = 0; i < calls; ++i) {
      const absl::Status status = co_await stub.CoCall(exchange.request, &exchange.replies[0]);
      WEFT_CHECK(status.ok());
    }
  }

  template <class Body>
  Turns CallBlocking(Exchange<Body>& exchange, uint64_t calls) {
    turns_ = {};
    if (exchange.replies.empty()) exchange.replies.resize(1);
    for (uint64_t i = 0; i < calls; ++i) {
      WEFT_CHECK(Call(exchange.request, &exchange.replies[0]).ok());
    }
    turns_.all += calls;  // the client's that brought the replies
    return turns_;
  }

  template <class Body>
  Turns CallByCallback(Exchange<Body>& exchange, uint64_t calls, uint64_t outstanding) {
    turns_ = {};
    if (exchange.replies.size() < outstanding) exchange.replies.resize(outstanding);
    to_start_ = calls;
    to_end_ = calls;
    WEFT_CHECK(client_engine_->Enter());
    for (uint64_t i = 0; i < outstanding && to_start_ > 0; ++i) {
      StartNext(exchange, &exchange.replies[i]);
    }
    while (to_end_ > 0) PollBoth();
    client_engine_->Leave();
    return turns_;
  }

  template <class Body>
  void StartNext(Exchange<Body>& exchange, Body* reply) {
    --to_start_;
    Call(exchange.request, reply, [this, &exchange, reply](const absl::Status& status) {
      WEFT_CHECK(status.ok());
      --to_end_;
      if (to_start_ > 0) StartNext(exchange, reply);
    });
  }

  void PollBoth() {
    Count(client_engine_->Poll());
    Count(server_.Poll());
  }
  void OnClientIdle() {
    Count(0);
    Count(server_.Poll());
  }
  void Count(int work) {
    ++turns_.all;
    turns_.idle += work == 0;
  }

  PathKind path_ = PathKind::kShm;
  ServerOptions server_options_;
  ChannelOptions channel_options_;
  EchoService service_;
  PolledServer server_;
  std::array<std::unique_ptr<Server>, 2> more_servers_;  // of the balanced channel
  std::unique_ptr<EngineCore> client_engine_;
  Transport* client_network_ = nullptr;  // of it
  std::unique_ptr<Channel> channel_;
  std::unique_ptr<Echo::Stub> stub_;
  std::unique_ptr<Channel> balanced_;
  std::unique_ptr<Echo::Stub> balanced_stub_;
  std::unique_ptr<CEnds> c_ends_;  // others, which nothing of the above belongs to
  std::optional<ClientReaderWriter<EchoMessage, EchoMessage>> talk_;
  std::optional<ClientWriter<EchoMessage>> sink_;
  EchoMessage streamed_;
  Exchange<EchoMessage> messages_;
  Exchange<EchoRecordLayout> structs_;
  uint64_t to_start_ = 0;
  uint64_t to_end_ = 0;
  Turns turns_;
};

absl::StatusOr<std::unique_ptr<Ends>> Ends::Open(PathKind path) {
  auto impl = std::make_unique<Impl>();
  WEFT_RETURN_IF_ERROR(impl->Open(path));
  return std::unique_ptr<Ends>(new Ends(std::move(impl)));
}

Ends::Ends(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Ends::~Ends() = default;
Turns Ends::CallBlocking(uint64_t calls, Bodies bodies) {
  return impl_->CallBlocking(calls, bodies);
}
Turns Ends::CallByCallback(uint64_t calls, uint64_t outstanding, Bodies bodies) {
  return impl_->CallByCallback(calls, outstanding, bodies);
}
Turns Ends::CallBalanced(uint64_t calls) { return impl_->CallBalanced(calls); }
Turns Ends::CallByC(uint64_t calls, uint64_t outstanding) {
  return impl_->CallByC(calls, outstanding);
}
Turns Ends::CallByCoroutine(uint64_t calls) { return impl_->CallByCoroutine(calls); }
Turns Ends::StreamPingPong(uint64_t messages) { return impl_->StreamPingPong(messages); }
Turns Ends::StreamOneWay(uint64_t messages) { return impl_->StreamOneWay(messages); }
Turns Ends::OneWay(uint64_t messages) { return impl_->OneWay(messages); }
Turns Ends::Idle(uint64_t turns) { return impl_->Idle(turns); }
uint64_t Ends::registrations() const { return impl_->registrations(); }

}  // namespace weft::bench
