// Life of connections: opening, refusing, closing, dying, and giving everything back.

#include <memory>
#include <string>
#include <vector>

#include "transport/testing/contract_test.h"
#include "transport/testing/post.h"

namespace weft {
namespace {

TEST_P(ContractTest, NothingCanBeSentBeforeOpenOrAfterClose) {
  Listen();
  Connect(client_);
  EXPECT_EQ(client_.connection().state(), Connection::State::kConnecting);
  EXPECT_TRUE(absl::IsFailedPrecondition(client_.TrySend(AsBytes("early"))));
  EXPECT_TRUE(absl::IsFailedPrecondition(client_.TrySend(Pattern(0, 100'000))));
  ASSERT_TRUE(Run([&] { return client_.opened(); }));
  EXPECT_TRUE(client_.TrySend(AsBytes("in time")).ok());
  client_.connection().Close("enough");
  EXPECT_EQ(client_.connection().state(), Connection::State::kClosed);
  EXPECT_TRUE(absl::IsFailedPrecondition(client_.TrySend(AsBytes("late"))));
  EXPECT_FALSE(client_.closed()) << "a callback came from inside Close()";
  ASSERT_TRUE(Run([&] { return client_.closed(); }));
}

TEST_P(ContractTest, CloseIsCancelledHereAndUnavailableThere) {
  Open();
  client_.connection().Close("the reason");
  client_.connection().Close("again");
  ASSERT_TRUE(Run([&] { return client_.closed() && server_end().closed(); }));
  EXPECT_TRUE(absl::IsCancelled(client_.why())) << client_.why();
  EXPECT_TRUE(absl::IsUnavailable(server_end().why())) << server_end().why();
  EXPECT_NE(server_end().why().ToString().find("the reason"), std::string::npos)
      << server_end().why();
}

TEST_P(ContractTest, TheServerCanCloseAsWell) {
  Open();
  server_end().connection().Close("not today");
  ASSERT_TRUE(Run([&] { return client_.closed() && server_end().closed(); }));
  EXPECT_TRUE(absl::IsUnavailable(client_.why())) << client_.why();
  EXPECT_TRUE(absl::IsCancelled(server_end().why())) << server_end().why();
}

TEST_P(ContractTest, BothCanCloseAtOnce) {
  Open();
  client_.connection().Close("left");
  server_end().connection().Close("right");
  ASSERT_TRUE(Run([&] { return client_.closed() && server_end().closed(); }));
  EXPECT_TRUE(absl::IsCancelled(client_.why())) << client_.why();
  EXPECT_TRUE(absl::IsCancelled(server_end().why())) << server_end().why();
}

TEST_P(ContractTest, CloseFromInsideOnMessageEndsTheBatchToo) {
  Open();
  int seen = 0;
  server_end().on_message = [&](ByteSpan) {
    ++seen;
    server_end().connection().Close("heard enough");
  };
  // All in one batch: nothing is delivered after Close().
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(client_.TrySend(AsBytes("x")).ok());
  ASSERT_TRUE(Run([&] { return client_.closed() && server_end().closed(); }));
  EXPECT_EQ(seen, 1);
}

TEST_P(ContractTest, WhatWasCommittedBeforeCloseIsHandedToTheProvider) {
  Open();
  ASSERT_TRUE(client_.TrySend(AsBytes("last words")).ok());
  Connection& connection = client_.connection();
  connection.Close("done");
  EXPECT_EQ(connection.first_unsent(), 1u);
  ASSERT_TRUE(Run([&] { return client_.closed() && server_end().closed(); }));
}

TEST_P(ContractTest, CloseCompletesOutstandingOperationsFirst) {
  Open();
  std::vector<std::byte> server_memory = Pattern(1, 1 << 20);
  std::vector<std::byte> client_memory(1 << 20);
  auto remote = server_end().connection().memory().Register(
      {server_memory.data(), server_memory.size()}, Access::kRemoteRead);
  auto local = client_.connection().memory().Register({client_memory.data(), client_memory.size()},
                                                      Access::kLocalOnly);
  ASSERT_TRUE(remote.ok() && local.ok());
  std::vector<TestOperation> reads(32);
  size_t completed_before_close = 0;
  for (TestOperation& read : reads) {
    ASSERT_TRUE(Read(client_.connection(), **local, 0, (*remote)->remote(), &read).ok());
  }
  client_.Send(Pattern(1, 100'000));
  client_.on_closed = [&] {
    for (const TestOperation& read : reads) completed_before_close += read.completions == 1;
  };
  client_.connection().Close("in the middle");
  ASSERT_TRUE(Run([&] { return client_.closed() && server_end().closed(); }));
  EXPECT_EQ(completed_before_close, reads.size());
  for (const TestOperation& read : reads) {
    EXPECT_EQ(read.completions, 1);
    EXPECT_TRUE(read.result.ok() || absl::IsCancelled(read.result)) << read.result;
  }
}

TEST_P(ContractTest, ThePeersCloseCompletesOutstandingOperations) {
  Open();
  std::vector<std::byte> server_memory = Pattern(1, 1 << 20);
  std::vector<std::byte> client_memory(1 << 20);
  auto remote = server_end().connection().memory().Register(
      {server_memory.data(), server_memory.size()}, Access::kRemoteRead);
  auto local = client_.connection().memory().Register({client_memory.data(), client_memory.size()},
                                                      Access::kLocalOnly);
  ASSERT_TRUE(remote.ok() && local.ok());
  std::vector<TestOperation> reads(32);
  for (TestOperation& read : reads) {
    ASSERT_TRUE(Read(client_.connection(), **local, 0, (*remote)->remote(), &read).ok());
  }
  server_end().connection().Close("in the middle");
  ASSERT_TRUE(Run([&] { return client_.closed() && server_end().closed(); }));
  for (const TestOperation& read : reads) EXPECT_EQ(read.completions, 1);
}

TEST_P(ContractTest, AConnectionCanBeClosedWhileItConnects) {
  Listen();
  Connect(client_);
  client_.connection().Close("changed my mind");
  ASSERT_TRUE(Run([&] { return client_.closed(); }));
  EXPECT_TRUE(absl::IsCancelled(client_.why())) << client_.why();
  EXPECT_FALSE(client_.opened());
  // The server forgets the attempt as well.
  ASSERT_TRUE(Run([&] { return acceptor_.endpoints.empty() || server_end().closed(); }));
}

TEST_P(ContractTest, NobodyListensIsUnavailable) {
  Endpoint endpoint;
  auto connection = world_->client().transport().Connect(world_->DeadAddress(), {}, &endpoint);
  ASSERT_TRUE(connection.ok()) << connection.status();
  ASSERT_TRUE(Run([&] { return endpoint.closed(); }));
  EXPECT_TRUE(absl::IsUnavailable(endpoint.why())) << endpoint.why();
  EXPECT_FALSE(endpoint.opened());
}

TEST_P(ContractTest, ARefusalCarriesTheAcceptorsWords) {
  acceptor_.refusal = absl::PermissionDeniedError("members only");
  Listen();
  Connect(client_);
  ASSERT_TRUE(Run([&] { return client_.closed(); }));
  EXPECT_FALSE(client_.opened());
  EXPECT_NE(client_.why().ToString().find("members only"), std::string::npos) << client_.why();
}

TEST_P(ContractTest, OneTooManyIsRefused) {
  ListenOptions options;
  options.max_connections = 1;
  Open({}, options);
  Endpoint second;
  Connect(second);
  ASSERT_TRUE(Run([&] { return second.closed(); }));
  EXPECT_TRUE(absl::IsResourceExhausted(second.why())) << second.why();
  // A place that falls free can be taken.
  CloseClient();
  Endpoint third;
  Connect(third);
  ASSERT_TRUE(Run([&] { return third.opened() || third.closed(); }));
  EXPECT_TRUE(third.opened());
  third.connection().Close("done");
  ASSERT_TRUE(Run([&] { return third.closed() && server_end().closed(); }));
}

TEST_P(ContractTest, BadOptionsAreRefusedAtOnce) {
  Listen();
  ConnectOptions options;
  options.link.window_slots = 3;
  Transport& transport = world_->client().transport();
  EXPECT_TRUE(
      absl::IsInvalidArgument(transport.Connect(listener_->address(), options, &client_).status()));
  options = {};
  options.hello.resize(kMaxHelloBytes + 1);
  EXPECT_TRUE(
      absl::IsInvalidArgument(transport.Connect(listener_->address(), options, &client_).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(transport.Connect("", {}, &client_).status()));
}

TEST_P(ContractTest, ConnectionsOutliveTheirListener) {
  Open();
  listener_.reset();
  client_.Send("still here");
  ASSERT_TRUE(Run([&] { return server_end().received_count == 1; }));
  CloseClient();
}

TEST_P(ContractTest, SmallestAndDifferentWindowsWork) {
  acceptor_.keep = client_.keep = false;
  ConnectOptions connect;
  connect.link.window_slots = 4;
  ListenOptions listen;
  listen.link.window_slots = 9;
  Open(connect, listen);
  const size_t eager = client_.connection().eager_bytes();
  for (uint64_t i = 0; i < 300; ++i) {
    client_.Send(Pattern(i, i % 7 == 0 ? eager + 1 : eager));
    server_end().Send(Pattern(i, i % 5 == 0 ? eager + 1 : eager));
  }
  ASSERT_TRUE(
      Run([&] { return server_end().received_count == 300 && client_.received_count == 300; }));
}

TEST_P(ContractTest, SeveralConnectionsDoNotMix) {
  Listen();
  std::vector<std::unique_ptr<Endpoint>> clients;
  for (int i = 0; i < 8; ++i) {
    clients.push_back(std::make_unique<Endpoint>());
    Connect(*clients.back());
    ASSERT_TRUE(
        Run([&] { return clients.back()->opened() && acceptor_.endpoints.size() > size_t(i); }));
  }
  for (uint64_t i = 0; i < 8; ++i) {
    for (uint64_t j = 0; j < 50; ++j) clients[i]->Send(Pattern(i * 1000 + j, 64));
  }
  ASSERT_TRUE(Run([&] {
    for (auto& end : acceptor_.endpoints) {
      if (end->received.size() != 50) return false;
    }
    return true;
  }));
  for (uint64_t i = 0; i < 8; ++i) {
    for (uint64_t j = 0; j < 50; ++j) {
      ASSERT_EQ(acceptor_.endpoints[i]->received[j], Pattern(i * 1000 + j, 64));
    }
  }
  // One that closes leaves the others alone.
  clients[3]->connection().Close("done");
  ASSERT_TRUE(Run([&] { return acceptor_.endpoints[3]->closed(); }));
  clients[4]->Send("still here");
  ASSERT_TRUE(Run([&] { return acceptor_.endpoints[4]->received.size() == 51; }));
  for (auto& client : clients) {
    if (!client->closed()) client->connection().Close("done");
  }
  ASSERT_TRUE(Run([&] {
    for (auto& client : clients) {
      if (!client->closed()) return false;
    }
    return true;
  }));
}

// Registrations, slots, links, descriptors, threads and shared memory: a connection that is over
// has left nothing behind. (The first few may warm up pools that are kept.)
TEST_P(ContractTest, AThousandConnectionsLeaveNothingBehind) {
  Listen();
  const size_t large = 100'000;
  const auto live_once = [&](int i) {
    Endpoint client;
    Connect(client);
    ASSERT_TRUE(
        Run([&] { return client.closed() || (client.opened() && !acceptor_.endpoints.empty()); }));
    ASSERT_FALSE(client.closed()) << client.why();
    client.Send("small");
    client.Send(Pattern(1, large));
    const bool server_closes = i % 3 == 0;
    const bool in_the_middle = i % 5 == 0;
    if (!in_the_middle) {
      ASSERT_TRUE(Run([&] { return server_end().received_count == 2; }));
    }
    (server_closes ? server_end() : client).connection().Close("done");
    ASSERT_TRUE(Run([&] { return client.closed() && server_end().closed(); }));
    acceptor_.endpoints.clear();
  };
  for (int i = 0; i < 30; ++i) ASSERT_NO_FATAL_FAILURE(live_once(i));
  world_->Settle();
  const ContractWorld::Resources before = world_->Count();
  EXPECT_EQ(before.links, 0u);
  EXPECT_EQ(before.send_slots, 0u);
  for (int i = 0; i < 1000; ++i) {
    ASSERT_NO_FATAL_FAILURE(live_once(i)) << "connection " << i;
  }
  world_->Settle();
  EXPECT_EQ(world_->Count(), before);
}

// Destroying the engines is the last test of every test: see ~ContractTest.
TEST_P(ContractTest, AnEngineClosesItsConnectionsWhenItGoes) {
  Open();
  client_.Send(Pattern(1, 100'000));
  listener_.reset();
  world_.reset();
  EXPECT_TRUE(client_.closed());
  EXPECT_TRUE(server_end().closed());
  EXPECT_TRUE(absl::IsCancelled(client_.why()) || absl::IsUnavailable(client_.why()));
}

}  // namespace
}  // namespace weft
