// Calls of the C interface, and between it and C++ that was generated, in both directions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "c/testing/loopback.h"
#include "c/testing/shelf.weft.h"
#include "weft/c.h"
#include "weft/c_server.h"
#include "weft/channel.h"
#include "weft/client_context.h"
#include "weft/server.h"

namespace weft::c_test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string Reversed(std::string text) {
  std::reverse(text.begin(), text.end());
  return text;
}

// Bytes of a weft.c_test.Text.
std::string Encoded(const std::string& text) {
  c_test::Text message;
  message.set_text(text);
  return message.SerializeAsString();
}
std::string Decoded(std::string_view bytes) {
  c_test::Text message;
  EXPECT_TRUE(message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())));
  return message.text();
}

class GeneratedShelf final : public Shelf::Service {
 public:
  std::atomic<int> notes{0};

 private:
  absl::Status Turn(ServerContext& context, const c_test::Text& request,
                    c_test::Text* reply) override {
    for (const Metadata::Entry& entry : context.metadata()) {
      if (auto added = context.AddReplyMetadata(entry.key, entry.value); !added.ok()) return added;
    }
    if (request.text() == "fail") return absl::AbortedError("as you like");
    reply->set_text(Reversed(request.text()));
    return absl::OkStatus();
  }
  absl::Status Note(ServerContext&, const c_test::Text&) override {
    ++notes;
    return absl::OkStatus();
  }
};

// A server of the C interface with handlers as lambdas without captures.
class CServer {
 public:
  explicit CServer(const std::string& path, weft_engine* engine = nullptr) {
    auto options = Defaults<weft_server_options>();
    options.paths = path.c_str();
    options.name = "shelf";
    EXPECT_OK(weft_server_new(engine, &options, &server_));
    service_ = weft_service_new("weft.c_test.Shelf");
  }
  ~CServer() { EXPECT_OK(weft_server_free(server_)); }
  CServer(const CServer&) = delete;
  CServer& operator=(const CServer&) = delete;

  void Add(const char* name, weft_handler handler, void* arg = nullptr, int kind = WEFT_UNARY) {
    EXPECT_OK(weft_service_add_method(service_, name, kind, WEFT_ONCE, handler, arg));
  }
  std::string Listen() {
    EXPECT_OK(weft_server_add_service(server_, std::exchange(service_, nullptr)));
    EXPECT_OK(weft_server_listen(server_, "127.0.0.1:0"));
    return weft_server_address(server_);
  }
  weft_server* server() const { return server_; }

 private:
  weft_server* server_ = nullptr;
  weft_service* service_ = nullptr;
};

void Echo(void*, weft_server_call* call) {
  weft_server_call_finish(call, nullptr, weft_server_call_request(call));
}

void Turn(void*, weft_server_call* call) {
  const std::string reply = Encoded(Reversed(Decoded(ViewOf(weft_server_call_request(call)))));
  weft_server_call_finish(call, nullptr, Bytes(reply));
}

class CallTest : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Paths, CallTest, testing::Values("shm", "tcp"),
                         [](const auto& info) { return info.param; });

TEST_P(CallTest, ACClientCallsAGeneratedServer) {
  GeneratedShelf service;
  auto server = Server::Create();
  ASSERT_TRUE(server.ok());
  ASSERT_TRUE((*server)->AddService(&service).ok());
  ASSERT_TRUE((*server)->Listen("127.0.0.1:0").ok());
  const CClient client((*server)->address(), GetParam());
  const weft_method turn = client.Method("Turn", WEFT_UNARY, WEFT_NO_SIDE_EFFECTS);
  weft_message* const reply = weft_message_new();
  const weft_call_options patient = Patient();

  for (const std::string& text : {std::string("abc"), std::string(), std::string(100, 'x') + "y",
                                  std::string(3 << 20, 'z') + "a"}) {
    ASSERT_OK(weft_call(client.channel(), turn, Bytes(Encoded(text)), &patient, reply));
    EXPECT_EQ(Decoded(TextOf(reply)), Reversed(text));
  }
  EXPECT_EQ(Take(weft_call(client.channel(), turn, Bytes(Encoded("fail")), &patient, reply)),
            "10: as you like");
  // What is no protobuf is the server's to refuse.
  EXPECT_THAT(Take(weft_call(client.channel(), turn, Bytes("\xFF\xFF"), &patient, reply)),
              HasSubstr("cannot be decoded"));
  EXPECT_OK(weft_channel_explain(client.channel(), reply));
  EXPECT_THAT(TextOf(reply), testing::ContainsRegex(GetParam() + " +chosen"));
  weft_message_free(reply);
}

TEST_P(CallTest, AGeneratedClientCallsACServer) {
  CServer server(GetParam());
  server.Add("Turn", Turn);
  const std::string address = server.Listen();
  ChannelOptions options;
  options.link.paths = *ParsePathList(GetParam());
  auto channel = Channel::Open(address, options);
  ASSERT_TRUE(channel.ok()) << channel.status();
  Shelf::Stub stub(**channel);
  c_test::Text request;
  c_test::Text reply;
  for (const std::string& text :
       {std::string("abc"), std::string(), std::string(3 << 20, 'z') + "a"}) {
    request.set_text(text);
    const absl::Status status = stub.Turn(request, &reply, {.timeout_us = 30'000'000});
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(reply.text(), Reversed(text));
  }
}

TEST_P(CallTest, BytesNeedNotBeProtobuf) {
  CServer server(GetParam());
  server.Add("Echo", Echo);
  const CClient client(server.Listen(), GetParam());
  const weft_method echo = client.Method("Echo");
  weft_message* const reply = weft_message_new();
  const weft_call_options patient = Patient();
  // Lengths around the 16 bytes that protobuf's parser reads ahead, and around a batch's.
  for (const size_t size : {0, 1, 15, 16, 17, 31, 32, 33, 4000, 8000, 8192, 70'000, 2'000'000}) {
    std::string bytes(size, '\0');
    for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(0xFF - i * 7);
    ASSERT_OK(weft_call(client.channel(), echo, Bytes(bytes), &patient, reply));
    EXPECT_TRUE(TextOf(reply) == bytes) << size;
  }
  weft_message_free(reply);
}

TEST_P(CallTest, AHandlerAnswersLaterOnAnotherThread) {
  CServer server(GetParam());
  std::vector<std::thread> threads;
  server.Add(
      "Later",
      [](void* arg, weft_server_call* call) {
        static_cast<std::vector<std::thread>*>(arg)->emplace_back([call] {
          const weft_bytes request = weft_server_call_request(call);
          char* const room = static_cast<char*>(weft_server_call_reserve(call, request.size));
          const char* const from = static_cast<const char*>(request.data);
          std::reverse_copy(from, from + request.size, room);
          weft_server_call_finish(call, nullptr, {room, request.size});
        });
      },
      &threads);
  const CClient client(server.Listen(), GetParam());
  const weft_method later = client.Method("Later");
  weft_message* const reply = weft_message_new();
  const weft_call_options patient = Patient();
  for (const char* text : {"one", "two and more than sixteen bytes", "three"}) {
    ASSERT_OK(weft_call(client.channel(), later, Bytes(text), &patient, reply));
    EXPECT_EQ(TextOf(reply), Reversed(text));
  }
  for (std::thread& thread : threads) thread.join();
  weft_message_free(reply);
}

TEST_P(CallTest, CallsAreUnderWayTogether) {
  CServer server(GetParam());
  server.Add("Echo", Echo);
  const std::string address = server.Listen();
  weft_engine* engine = nullptr;
  ASSERT_OK(weft_engine_new(nullptr, &engine));
  {
    const CClient client(address, GetParam(), engine);
    const weft_method echo = client.Method("Echo");
    const weft_call_options patient = Patient();
    std::vector<Signal> ends(100);
    std::vector<weft_message*> replies(ends.size());
    for (size_t i = 0; i < ends.size(); ++i) {
      replies[i] = weft_message_new();
      ASSERT_OK(weft_call_start(client.channel(), echo, Bytes(std::to_string(i)), &patient,
                                replies[i], Signal::OnDone, &ends[i]));
    }
    for (size_t i = 0; i < ends.size(); ++i) {
      EXPECT_EQ(ends[i].Wait(), "OK");
      EXPECT_EQ(TextOf(replies[i]), std::to_string(i));
      weft_message_free(replies[i]);
    }
  }
  EXPECT_OK(weft_engine_free(engine));
}

TEST_P(CallTest, OneWayMessagesArrive) {
  GeneratedShelf service;
  auto server = Server::Create();
  ASSERT_TRUE(server.ok());
  ASSERT_TRUE((*server)->AddService(&service).ok());
  ASSERT_TRUE((*server)->Listen("127.0.0.1:0").ok());
  const CClient client((*server)->address(), GetParam());
  const weft_method note = client.Method("Note", WEFT_ONE_WAY);
  const weft_method turn = client.Method("Turn");
  weft_message* const reply = weft_message_new();
  const weft_call_options patient = Patient();
  for (int i = 0; i < 10; ++i) {
    ASSERT_OK(weft_call(client.channel(), note, Bytes(Encoded("x")), &patient, nullptr));
  }
  // Behind them.
  ASSERT_OK(weft_call(client.channel(), turn, Bytes(Encoded("x")), &patient, reply));
  EXPECT_EQ(service.notes, 10);
  weft_message_free(reply);
}

TEST_P(CallTest, AHandlerKnowsItsCaller) {
  CServer server(GetParam());
  server.Add("Who", [](void*, weft_server_call* call) {
    std::string said;
    weft_bytes key;
    weft_bytes value;
    for (size_t i = 0; weft_server_call_metadata(call, i, &key, &value) != 0; ++i) {
      said += std::string(ViewOf(key)) + "=" + std::string(ViewOf(value)) + " ";
      EXPECT_OK(weft_server_call_add_reply_metadata(call, Bytes("answer-bin"), Bytes("\x01\x02")));
    }
    said += ViewOf(weft_server_call_peer(call, WEFT_PEER_PATH, 0));
    said += weft_server_call_priority(call) == WEFT_BACKGROUND ? " background" : " ?";
    said += weft_server_call_remaining_us(call) <= 30'000'000 ? " in time" : " ?";
    EXPECT_FALSE(ViewOf(weft_server_call_peer(call, WEFT_PEER_ADDRESS, 0)).empty());
    EXPECT_TRUE(ViewOf(weft_server_call_peer(call, WEFT_PEER_ADDRESS, 1)).empty());
    EXPECT_TRUE(ViewOf(weft_server_call_peer(call, WEFT_PEER_SUBJECT, 0)).empty());
    EXPECT_EQ(weft_server_call_cancelled(call), 0);
    weft_server_call_finish(call, nullptr, Bytes(said));
  });
  const CClient client(server.Listen(), GetParam());
  weft_context* const context = weft_context_new();
  ASSERT_OK(weft_context_add_metadata(context, Bytes("user"), Bytes("anna")));
  EXPECT_EQ(TakeCode(weft_context_add_metadata(context, Bytes("User"), Bytes("anna"))),
            WEFT_INVALID_ARGUMENT);
  weft_call_options options = Patient();
  options.context = context;
  options.priority = WEFT_BACKGROUND;
  weft_message* const reply = weft_message_new();
  ASSERT_OK(weft_call(client.channel(), client.Method("Who"), Bytes(""), &options, reply));
  EXPECT_EQ(TextOf(reply), "user=anna " + GetParam() + " background in time");
  weft_bytes key;
  weft_bytes value;
  ASSERT_EQ(weft_context_reply_metadata(context, 0, &key, &value), 1);
  EXPECT_EQ(ViewOf(key), "answer-bin");
  EXPECT_EQ(ViewOf(value), "\x01\x02");
  EXPECT_EQ(weft_context_reply_metadata(context, 1, &key, &value), 0);
  weft_context_free(context);
  weft_message_free(reply);
}

// Handlers that keep their call until somebody gives it up.
struct Kept {
  Signal started;
  Signal cancelled;
  weft_server_call* call = nullptr;

  static void Handler(void* arg, weft_server_call* call) {
    auto* const kept = static_cast<Kept*>(arg);
    kept->call = call;
    weft_server_call_on_cancel(
        call,
        [](void* kept_arg) {
          auto* const kept_call = static_cast<Kept*>(kept_arg);
          EXPECT_EQ(weft_server_call_cancelled(kept_call->call), 1);
          weft_server_call_finish(kept_call->call, nullptr, Bytes("too late"));
          kept_call->cancelled.Give("cancelled");
        },
        kept);
    kept->started.Give("started");
  }
};

TEST_P(CallTest, ACancelReachesTheHandler) {
  Kept kept;
  CServer server(GetParam());
  server.Add("Keep", Kept::Handler, &kept);
  const std::string address = server.Listen();
  weft_engine* engine = nullptr;
  ASSERT_OK(weft_engine_new(nullptr, &engine));
  {
    const CClient client(address, GetParam(), engine);
    weft_context* const context = weft_context_new();
    weft_call_options options = Patient();
    options.context = context;
    weft_message* const reply = weft_message_new();
    Signal end;
    ASSERT_OK(weft_call_start(client.channel(), client.Method("Keep"), Bytes("x"), &options, reply,
                              Signal::OnDone, &end));
    kept.started.Wait();
    EXPECT_OK(weft_context_cancel(context));
    weft_context_free(context);  // before the end of the call
    EXPECT_THAT(end.Wait(), StartsWith("1: "));
    EXPECT_EQ(kept.cancelled.Wait(), "cancelled");
    weft_message_free(reply);
  }
  EXPECT_OK(weft_engine_free(engine));
}

TEST_P(CallTest, ADeadlinePasses) {
  Kept kept;
  CServer server(GetParam());
  server.Add("Keep", Kept::Handler, &kept);
  const CClient client(server.Listen(), GetParam());
  weft_message* const reply = weft_message_new();
  auto options = Defaults<weft_call_options>();
  options.timeout_us = 20'000;
  weft_status* const status =
      weft_call(client.channel(), client.Method("Keep"), Bytes("x"), &options, reply);
  EXPECT_EQ(weft_status_code(status), WEFT_DEADLINE_EXCEEDED);
  EXPECT_EQ(weft_status_delivery(status), WEFT_MAY_HAVE_RUN);
  weft_status_free(status);
  EXPECT_EQ(kept.cancelled.Wait(), "cancelled");
  weft_message_free(reply);
}

TEST_P(CallTest, WhatAServerLacksIsNotSent) {
  CServer server(GetParam());
  server.Add("Echo", Echo);
  const CClient client(server.Listen(), GetParam());
  weft_message* const reply = weft_message_new();
  weft_status* const status =
      weft_call(client.channel(), client.Method("Nothing"), Bytes("x"), nullptr, reply);
  EXPECT_EQ(weft_status_code(status), WEFT_UNIMPLEMENTED);
  EXPECT_EQ(weft_status_delivery(status), WEFT_NOT_SENT);
  EXPECT_THAT(weft_status_message(status), HasSubstr("has no method Nothing"));
  weft_status_free(status);
  weft_message_free(reply);
}

TEST_P(CallTest, AProgramDrivesItsEngine) {
  CServer server(GetParam());
  server.Add("Echo", Echo);
  const std::string address = server.Listen();
  auto options = Defaults<weft_engine_options>();
  options.drive = WEFT_EXTERNAL;
  weft_engine* engine = nullptr;
  ASSERT_OK(weft_engine_new(&options, &engine));
  EXPECT_GE(weft_engine_fd(engine), 0);
  {
    const CClient client(address, GetParam(), engine);
    weft_message* const reply = weft_message_new();
    const weft_call_options patient = Patient();
    Signal end;
    ASSERT_OK(weft_call_start(client.channel(), client.Method("Echo"), Bytes("x"), &patient, reply,
                              Signal::OnDone, &end));
    EXPECT_GT(weft_engine_timeout_ns(engine), 0);  // the deadline
    EXPECT_GT(weft_engine_timeout_ms(engine), 0);
    while (!end.given()) weft_engine_poll(engine, 0);
    EXPECT_EQ(end.Wait(), "OK");
    Signal task;
    ASSERT_OK(weft_engine_post(engine, Signal::OnTask, &task));
    EXPECT_EQ(weft_engine_run_until(
                  engine, [](void* arg) { return static_cast<Signal*>(arg)->given() ? 7 : 0; },
                  &task, 30'000'000),
              7);
    weft_message_free(reply);
  }
  EXPECT_OK(weft_engine_free(engine));
}

}  // namespace
}  // namespace weft::c_test
