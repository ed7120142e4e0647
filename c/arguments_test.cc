// What a program does wrong is refused in words, and changes nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <utility>

#include "c/testing/loopback.h"
#include "weft/c.h"
#include "weft/c_memory.h"
#include "weft/c_server.h"
#include "weft/c_stream.h"

namespace weft::c_test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr weft_bytes kNone = {nullptr, 0};
constexpr weft_bytes kWrong = {nullptr, 5};

void Echo(void*, weft_server_call* call) {
  weft_server_call_finish(call, nullptr, weft_server_call_request(call));
}

// A server with a method of each of two kinds, and a client.
class ArgumentsTest : public testing::Test {
 protected:
  ArgumentsTest() {
    EXPECT_OK(weft_server_new(nullptr, nullptr, &server_));
    weft_service* const service = weft_service_new("weft.c_test.Shelf");
    EXPECT_OK(weft_service_add_method(service, "Echo", WEFT_UNARY, WEFT_ONCE, Echo, nullptr));
    EXPECT_OK(weft_server_add_service(server_, service));
    EXPECT_OK(weft_server_listen(server_, "127.0.0.1:0"));
    EXPECT_OK(weft_channel_open(nullptr, weft_server_address(server_), nullptr, &channel_));
    EXPECT_OK(
        weft_channel_method(channel_, "weft.c_test.Shelf", "Echo", WEFT_UNARY, WEFT_ONCE, &echo_));
    EXPECT_OK(weft_channel_method(channel_, "weft.c_test.Shelf", "Chat", WEFT_BIDI_STREAMING,
                                  WEFT_ONCE, &chat_));
    message_ = weft_message_new();
  }
  ~ArgumentsTest() override {
    // It all works still.
    EXPECT_OK(weft_call(channel_, echo_, Bytes("x"), nullptr, message_));
    weft_message_free(message_);
    EXPECT_OK(weft_channel_free(channel_));
    EXPECT_OK(weft_server_free(server_));
  }

  weft_server* server_ = nullptr;
  weft_channel* channel_ = nullptr;
  weft_method echo_ = 0;
  weft_method chat_ = 0;
  weft_message* message_ = nullptr;
};

void NeverDone(void*, weft_status* status) {
  weft_status_free(status);
  ADD_FAILURE() << "a callback of what was refused";
}

TEST_F(ArgumentsTest, NullIsRefusedByName) {
  weft_method method = 77;
  EXPECT_EQ(Take(weft_call(nullptr, echo_, kNone, nullptr, message_)),
            "3: weft_call(): channel is NULL");
  EXPECT_EQ(Take(weft_call(channel_, echo_, kNone, nullptr, nullptr)),
            "3: weft_call(): reply is NULL, and the method has one");
  EXPECT_EQ(Take(weft_call_start(channel_, echo_, kNone, nullptr, message_, nullptr, nullptr)),
            "3: weft_call_start(): done is NULL");
  EXPECT_EQ(TakeCode(weft_channel_method(channel_, nullptr, "Echo", 1, 0, &method)),
            WEFT_INVALID_ARGUMENT);
  EXPECT_EQ(method, 0u);
  EXPECT_EQ(TakeCode(weft_channel_method(channel_, "a.B", "C", 1, 0, nullptr)),
            WEFT_INVALID_ARGUMENT);
}

TEST(OutParameterTest, IsNullAfterAFailure) {
  auto* channel = reinterpret_cast<weft_channel*>(uintptr_t{1});
  EXPECT_EQ(TakeCode(weft_channel_open(nullptr, nullptr, nullptr, &channel)),
            WEFT_INVALID_ARGUMENT);
  EXPECT_EQ(channel, nullptr);
}

TEST(NullTest, FunctionsWithoutAStatusTakeIt) {
  weft_status_free(nullptr);
  weft_message_free(nullptr);
  weft_context_free(nullptr);
  weft_service_free(nullptr);
  weft_stream_free(nullptr);
  weft_buffer_free(nullptr);
  weft_export_free(nullptr);
  weft_remote_free(nullptr);
  EXPECT_OK(weft_engine_free(nullptr));
  EXPECT_OK(weft_channel_free(nullptr));
  EXPECT_OK(weft_server_free(nullptr));
  EXPECT_EQ(weft_status_code(nullptr), WEFT_OK);
  EXPECT_STREQ(weft_status_message(nullptr), "");
  EXPECT_EQ(weft_message_bytes(nullptr).size, 0u);
  EXPECT_EQ(weft_engine_poll(nullptr, 0), 0);
  EXPECT_EQ(weft_engine_fd(nullptr), -1);
  EXPECT_EQ(weft_engine_arm(nullptr), 0);
  EXPECT_EQ(weft_engine_timeout_ms(nullptr), -1);
  EXPECT_EQ(weft_engine_run_until(nullptr, nullptr, nullptr, 0), 0);
  EXPECT_EQ(weft_channel_engine(nullptr), nullptr);
  EXPECT_EQ(weft_service_new(nullptr), nullptr);
  EXPECT_STREQ(weft_server_address(nullptr), "");
  weft_server_wait(nullptr);
  weft_server_shutdown(nullptr, 0);
  EXPECT_EQ(weft_server_call_request(nullptr).size, 0u);
  EXPECT_EQ(weft_server_call_reserve(nullptr, 8), nullptr);
  weft_server_call_finish(nullptr, weft_status_new(WEFT_ABORTED, "mine to free"), kNone);
  EXPECT_EQ(weft_server_call_stream(nullptr), nullptr);
  EXPECT_EQ(weft_stream_read(nullptr, nullptr), 0);
  EXPECT_EQ(weft_stream_write(nullptr, kNone, 0), 0);
  weft_stream_writes_done(nullptr);
  weft_stream_cancel(nullptr);
  EXPECT_EQ(weft_buffer_data(nullptr), nullptr);
  EXPECT_EQ(weft_export_data(nullptr), nullptr);
  EXPECT_EQ(weft_export_revoke(nullptr, 0, 0), 0);
  EXPECT_EQ(weft_remote_size(nullptr), 0u);
}

TEST(StatusTest, IsWhatItWasMadeOf) {
  EXPECT_EQ(weft_status_new(WEFT_OK, "well"), nullptr);
  EXPECT_EQ(Take(weft_status_new(WEFT_DATA_LOSS, "gone")), "15: gone");
  EXPECT_EQ(Take(weft_status_new(WEFT_DATA_LOSS, nullptr)), "15: ");
  EXPECT_EQ(Take(weft_status_new(17, "no code")), "2: no code");
  EXPECT_EQ(Take(weft_status_new(-1, "no code")), "2: no code");
}

TEST_F(ArgumentsTest, BytesAtNullAreRefused) {
  EXPECT_EQ(Take(weft_call(channel_, echo_, kWrong, nullptr, message_)),
            "3: weft_call(): request has 5 bytes at NULL");
}

TEST_F(ArgumentsTest, NumbersThatAreNoMethodAreRefused) {
  for (const weft_method method : {0u, 1u, 0x10005u, 0x60000u, 0xFFFFFFFFu}) {
    EXPECT_THAT(Take(weft_call(channel_, method, kNone, nullptr, message_)),
                HasSubstr("weft_channel_method() gives this channel's numbers"))
        << method;
  }
}

TEST_F(ArgumentsTest, AMethodIsCalledAsWhatItIs) {
  EXPECT_THAT(Take(weft_call(channel_, chat_, kNone, nullptr, message_)),
              HasSubstr("the method is a stream"));
  weft_stream* stream = nullptr;
  EXPECT_THAT(Take(weft_stream_start(channel_, echo_, kNone, nullptr, message_, &stream)),
              HasSubstr("the method is no stream"));
  EXPECT_EQ(stream, nullptr);
  EXPECT_THAT(Take(weft_stream_start(channel_, chat_, Bytes("x"), nullptr, nullptr, &stream)),
              HasSubstr("request has to be empty"));
}

TEST_F(ArgumentsTest, NamesAndKindsAreChecked) {
  weft_method method = 0;
  for (const char* name : {"", ".", "a.", ".a", "a..b", "a b", "a/b", "a\xC3\xA4"}) {
    EXPECT_THAT(Take(weft_channel_method(channel_, name, "Echo", WEFT_UNARY, WEFT_ONCE, &method)),
                HasSubstr("is no full name of a service"))
        << name;
  }
  for (const char* name : {"", "a.b", "a b"}) {
    EXPECT_THAT(Take(weft_channel_method(channel_, "a.B", name, WEFT_UNARY, WEFT_ONCE, &method)),
                HasSubstr("is no name of a method"))
        << name;
  }
  EXPECT_THAT(Take(weft_channel_method(channel_, std::string(256, 'a').c_str(), "Echo", WEFT_UNARY,
                                       WEFT_ONCE, &method)),
              HasSubstr("up to 255 bytes"));
  EXPECT_THAT(Take(weft_channel_method(channel_, "a.B", "C", 0, WEFT_ONCE, &method)),
              HasSubstr("kind of a method is 0"));
  EXPECT_THAT(Take(weft_channel_method(channel_, "a.B", "C", 6, WEFT_ONCE, &method)),
              HasSubstr("kind of a method is 6"));
  EXPECT_THAT(Take(weft_channel_method(channel_, "a.B", "C", WEFT_UNARY, 3, &method)),
              HasSubstr("idempotency of a method is 3"));
}

TEST_F(ArgumentsTest, TheSameNamesAreTheSameMethod) {
  weft_method again = 0;
  ASSERT_OK(
      weft_channel_method(channel_, "weft.c_test.Shelf", "Echo", WEFT_UNARY, WEFT_ONCE, &again));
  EXPECT_EQ(again, echo_);
}

TEST_F(ArgumentsTest, AChannelHasSoManyMethods) {
  weft_method method = 0;
  std::string refused;
  int named = 2;  // the fixture's
  for (; refused.empty() && named < 3000; ++named) {
    const std::string name = "M" + std::to_string(named);
    weft_status* const status =
        weft_channel_method(channel_, "a.B", name.c_str(), WEFT_UNARY, WEFT_ONCE, &method);
    if (status != nullptr) refused = Take(status);
  }
  EXPECT_THAT(refused, HasSubstr("this channel has named 2048 methods"));
  EXPECT_EQ(named, 2049);
}

// --- options ------------------------------------------------------------------------------------

TEST_F(ArgumentsTest, OptionsOfAnUnknownSizeAreRefused) {
  auto options = Defaults<weft_call_options>();
  options.struct_size = sizeof(options) + 8;
  EXPECT_THAT(Take(weft_call(channel_, echo_, kNone, &options, message_)),
              HasSubstr("weft_call_options: struct_size is 48, and this libweft_c knows 40 bytes: "
                        "the program was built with a newer weft/c.h"));
  for (const size_t size : {0, 4, 7, 9, 39}) {
    options.struct_size = size;
    EXPECT_THAT(Take(weft_call(channel_, echo_, kNone, &options, message_)),
                HasSubstr("set it to sizeof(weft_call_options), which is 40"))
        << size;
  }
}

// A program that was built when the struct ended behind timeout_us.
TEST_F(ArgumentsTest, OlderOptionsHaveDefaultsForTheRest) {
  weft_call_options options;
  std::memset(&options, 0xEE, sizeof(options));
  options.struct_size = 16;
  options.timeout_us = 30'000'000;
  EXPECT_OK(weft_call(channel_, echo_, Bytes("x"), &options, message_));
  options.struct_size = 8;
  EXPECT_OK(weft_call(channel_, echo_, Bytes("x"), &options, message_));
}

// A program whose struct ends anywhere, with bytes of its own behind.
template <class Options, class Use>
void ExpectEverySizeIsTaken(Use use) {
  for (size_t size = sizeof(size_t); size <= sizeof(Options); size += 8) {
    Options options;
    std::memset(&options, 0xEE, sizeof(options));
    std::memset(&options, 0, size);
    options.struct_size = size;
    EXPECT_OK(use(&options)) << size;
  }
}

TEST_F(ArgumentsTest, OptionsOfEveryOlderSizeAreTaken) {
  ExpectEverySizeIsTaken<weft_engine_options>([](const weft_engine_options* options) {
    weft_engine* engine = nullptr;
    EXPECT_OK(weft_engine_new(options, &engine));
    return weft_engine_free(engine);
  });
  ExpectEverySizeIsTaken<weft_server_options>([](const weft_server_options* options) {
    weft_server* server = nullptr;
    EXPECT_OK(weft_server_new(nullptr, options, &server));
    EXPECT_OK(weft_server_add_service(server, weft_service_new("a.B")));
    EXPECT_OK(weft_server_listen(server, "127.0.0.1:0"));
    return weft_server_free(server);
  });
  ExpectEverySizeIsTaken<weft_channel_options>([this](const weft_channel_options* options) {
    weft_channel* channel = nullptr;
    EXPECT_OK(weft_channel_open(nullptr, weft_server_address(server_), options, &channel));
    return weft_channel_free(channel);
  });
  ExpectEverySizeIsTaken<weft_call_options>([this](const weft_call_options* options) {
    return weft_call(channel_, echo_, Bytes("x"), options, message_);
  });
}

TEST_F(ArgumentsTest, WrongOptionsAreRefused) {
  auto options = Defaults<weft_call_options>();
  options.priority = 9;
  EXPECT_THAT(Take(weft_call(channel_, echo_, kNone, &options, message_)),
              HasSubstr("priority is 9"));
  options.priority = 0;
  options.reserved = 1;
  EXPECT_THAT(Take(weft_call_start(channel_, echo_, kNone, &options, message_, NeverDone, nullptr)),
              HasSubstr("reserved is 1"));

  weft_channel* channel = nullptr;
  auto of_channel = Defaults<weft_channel_options>();
  of_channel.paths = "shm,carrier_pigeon";
  EXPECT_THAT(Take(weft_channel_open(nullptr, "127.0.0.1:1", &of_channel, &channel)),
              HasSubstr("carrier_pigeon"));
  of_channel = Defaults<weft_channel_options>();
  of_channel.connect_timeout_us = ~uint64_t{0};
  EXPECT_THAT(Take(weft_channel_open(nullptr, "127.0.0.1:1", &of_channel, &channel)),
              HasSubstr("connect_timeout_us"));
  of_channel = Defaults<weft_channel_options>();
  of_channel.server_engine = 65;
  EXPECT_THAT(Take(weft_channel_open(nullptr, "127.0.0.1:1", &of_channel, &channel)),
              HasSubstr("server_engine is 65; at most 64"));
  of_channel.server_engine = 0;
  of_channel.reserved = 1;
  EXPECT_THAT(Take(weft_channel_open(nullptr, "127.0.0.1:1", &of_channel, &channel)),
              HasSubstr("weft_channel_options: reserved is 1"));
  auto security = Defaults<weft_security>();
  security.psk_secret = kWrong;
  of_channel = Defaults<weft_channel_options>();
  of_channel.security = &security;
  EXPECT_THAT(Take(weft_channel_open(nullptr, "127.0.0.1:1", &of_channel, &channel)),
              HasSubstr("psk_secret has no bytes"));
  security.struct_size = 3;
  EXPECT_THAT(Take(weft_channel_open(nullptr, "127.0.0.1:1", &of_channel, &channel)),
              HasSubstr("weft_security: struct_size is 3"));

  weft_engine* engine = nullptr;
  auto of_engine = Defaults<weft_engine_options>();
  of_engine.drive = 4;
  EXPECT_THAT(Take(weft_engine_new(&of_engine, &engine)), HasSubstr("drive is 4"));
  of_engine.drive = WEFT_CALLER;
  of_engine.inbox_slots = 17;
  EXPECT_THAT(Take(weft_engine_new(&of_engine, &engine)), HasSubstr("inbox_slots"));

  weft_server* server = nullptr;
  auto of_server = Defaults<weft_server_options>();
  of_server.policy_file = "/no/such/file";
  EXPECT_EQ(TakeCode(weft_server_new(nullptr, &of_server, &server)), WEFT_NOT_FOUND);
  of_server = Defaults<weft_server_options>();
  of_server.reserved = 1;
  EXPECT_THAT(Take(weft_server_new(nullptr, &of_server, &server)),
              HasSubstr("weft_server_options: reserved is 1"));
  of_server.reserved = 0;
  of_server.max_connections = 4;
  of_server.max_connections_of_one = 5;
  ASSERT_OK(weft_server_new(nullptr, &of_server, &server));
  EXPECT_THAT(Take(weft_server_listen(server, "127.0.0.1:0")),
              HasSubstr("max_connections_of_one is 5; 0 to 4"));
  EXPECT_OK(weft_server_free(server));
}

TEST_F(ArgumentsTest, TheIdleTimeoutIsTheServers) {
  auto options = Defaults<weft_server_options>();
  options.idle_timeout_us = 1;
  weft_server* server = nullptr;
  EXPECT_THAT(Take(weft_server_new(nullptr, &options, &server)),
              HasSubstr("idle_timeout_us is 1; 0 or 1000000 to 86400000000"));
  // As a program gives them that was built before there was such an option.
  options.struct_size = offsetof(weft_server_options, idle_timeout_us);
  ASSERT_OK(weft_server_new(nullptr, &options, &server));
  EXPECT_OK(weft_server_free(server));
}

// A program that was built before there was such an option gives fewer bytes, and has its default.
TEST_F(ArgumentsTest, OneClientHasNoMoreConnectionsThanItsNumber) {
  auto options = Defaults<weft_server_options>();
  options.max_connections_of_one = 1;
  options.paths = "tcp";  // on which both are one address
  for (const bool is_built_before : {false, true}) {
    if (is_built_before)
      options.struct_size = offsetof(weft_server_options, max_connections_of_one);
    weft_server* server = nullptr;
    weft_channel* first = nullptr;
    weft_channel* second = nullptr;
    ASSERT_OK(weft_server_new(nullptr, &options, &server));
    ASSERT_OK(weft_server_add_service(server, weft_service_new("a.B")));
    ASSERT_OK(weft_server_listen(server, "127.0.0.1:0"));
    ASSERT_OK(weft_channel_open(nullptr, weft_server_address(server), nullptr, &first));
    const std::string opened =
        Take(weft_channel_open(nullptr, weft_server_address(server), nullptr, &second));
    if (is_built_before) {
      EXPECT_EQ(opened, "OK");
      EXPECT_OK(weft_channel_free(second));
    } else {
      EXPECT_THAT(opened, HasSubstr("takes 1 (ListenOptions::max_connections_of_one)"));
    }
    EXPECT_OK(weft_channel_free(first));
    EXPECT_OK(weft_server_free(server));
  }
}

// --- lifetimes ----------------------------------------------------------------------------------

TEST_F(ArgumentsTest, WhatIsInUseIsNotFreed) {
  weft_engine* engine = nullptr;
  weft_channel* channel = nullptr;
  weft_buffer* buffer = nullptr;
  ASSERT_OK(weft_engine_new(nullptr, &engine));
  ASSERT_OK(weft_channel_open(engine, weft_server_address(server_), nullptr, &channel));
  ASSERT_OK(weft_buffer_new(channel, 100, &buffer));
  EXPECT_EQ(weft_channel_engine(channel), engine);
  EXPECT_THAT(Take(weft_engine_free(engine)), HasSubstr("1 of them is not freed yet"));
  EXPECT_THAT(Take(weft_channel_free(channel)), HasSubstr("1 of them is not freed yet"));
  weft_buffer_free(buffer);
  EXPECT_OK(weft_channel_free(channel));
  EXPECT_OK(weft_engine_free(engine));

  EXPECT_THAT(Take(weft_engine_free(weft_channel_engine(channel_))),
              HasSubstr("a channel's or a server's own"));
  weft_export* memory = nullptr;
  ASSERT_OK(weft_export_new(server_, 100, WEFT_MAY_READ, &memory));
  EXPECT_THAT(Take(weft_server_free(server_)), HasSubstr("the server has exports"));
  weft_export_free(memory);
}

TEST_F(ArgumentsTest, ServicesAreChecked) {
  EXPECT_EQ(TakeCode(weft_server_add_service(server_, nullptr)), WEFT_INVALID_ARGUMENT);
  EXPECT_EQ(TakeCode(weft_server_add_service(nullptr, weft_service_new("a.B"))),
            WEFT_INVALID_ARGUMENT);
  weft_server* server = nullptr;
  ASSERT_OK(weft_server_new(nullptr, nullptr, &server));
  EXPECT_THAT(Take(weft_server_add_service(server, weft_service_new("no name"))),
              HasSubstr("is no full name of a service"));
  weft_service* const service = weft_service_new("a.B");
  EXPECT_THAT(
      Take(weft_service_add_method(service, "Echo", WEFT_UNARY, WEFT_ONCE, nullptr, nullptr)),
      HasSubstr("handler is NULL"));
  EXPECT_OK(weft_service_add_method(service, "Echo", WEFT_UNARY, WEFT_ONCE, Echo, nullptr));
  EXPECT_EQ(
      TakeCode(weft_service_add_method(service, "Echo", WEFT_UNARY, WEFT_ONCE, Echo, nullptr)),
      WEFT_ALREADY_EXISTS);
  EXPECT_OK(weft_server_add_service(server, service));
  EXPECT_EQ(TakeCode(weft_server_add_service(server, weft_service_new("a.B"))),
            WEFT_ALREADY_EXISTS);
  EXPECT_EQ(TakeCode(weft_server_listen(server, "nowhere")), WEFT_INVALID_ARGUMENT);
  EXPECT_STREQ(weft_server_address(server), "");
  EXPECT_OK(weft_server_free(server));
}

// --- callbacks ----------------------------------------------------------------------------------

// A program freed what its callback was about inside of it, shut its server down in a handler, or
// drove the engine there: each ended the process, where weft/c.h says that it is refused, or does
// nothing.
class CallbackTest : public ArgumentsTest {
 public:
  // In a task of the server's engine.
  void Run(void (*task)(CallbackTest& test)) {
    struct Posted {
      CallbackTest& test;
      void (*task)(CallbackTest& test);
      Signal ran;
    } posted{*this, task, {}};
    ASSERT_OK(weft_engine_post(
        weft_server_engine(server_),
        [](void* arg) {
          auto& self = *static_cast<Posted*>(arg);
          self.task(self.test);
          self.ran.Give("ran");
        },
        &posted));
    EXPECT_EQ(posted.ran.Wait(), "ran");
  }
  weft_server* server() { return server_; }

  weft_channel* of_server_ = nullptr;
  weft_export* memory_ = nullptr;
  weft_remote* remote_ = nullptr;
};

TEST_F(CallbackTest, AnEngineIsNotDrivenInItsOwn) {
  Run([](CallbackTest& test) {
    weft_engine* const engine = weft_server_engine(test.server());
    EXPECT_EQ(weft_engine_run_until(
                  engine, [](void*) { return 1; }, nullptr, 0),
              0);
    EXPECT_EQ(weft_engine_poll(engine, 0), 0);
  });
}

TEST_F(CallbackTest, AServerIsNotEndedInItsOwn) {
  Run([](CallbackTest& test) {
    weft_server_wait(test.server());
    weft_server_shutdown(test.server(), 0);
    EXPECT_THAT(Take(weft_server_free(test.server())), HasSubstr("in a callback"));
  });
}

TEST_F(CallbackTest, AChannelIsNotFreedInItsOwn) {
  ASSERT_OK(weft_channel_open(weft_server_engine(server_), weft_server_address(server_), nullptr,
                              &of_server_));
  Run([](CallbackTest& test) {
    EXPECT_THAT(Take(weft_channel_free(test.of_server_)), HasSubstr("in a callback"));
  });
  EXPECT_OK(weft_channel_free(of_server_));
}

TEST(EngineTest, IsNotFreedInItsOwnCallback) {
  weft_engine* engine = nullptr;
  auto options = Defaults<weft_engine_options>();
  options.drive = WEFT_CALLER;
  ASSERT_OK(weft_engine_new(&options, &engine));
  ASSERT_OK(weft_engine_post(
      engine,
      [](void* arg) {
        EXPECT_THAT(Take(weft_engine_free(static_cast<weft_engine*>(arg))),
                    HasSubstr("in a callback"));
      },
      engine));
  while (weft_engine_poll(engine, 0) == 0) {
  }
  EXPECT_OK(weft_engine_free(engine));
}

TEST_F(CallbackTest, MemoryIsNotFreedInItsOwn) {
  ASSERT_OK(weft_channel_open(weft_server_engine(server_), weft_server_address(server_), nullptr,
                              &of_server_));
  ASSERT_OK(weft_export_new(server_, 100, WEFT_MAY_READ, &memory_));
  char handle[WEFT_HANDLE_BYTES];
  ASSERT_OK(weft_export_handle(memory_, handle));
  ASSERT_OK(weft_remote_open(of_server_, {handle, sizeof(handle)}, &remote_));
  Run([](CallbackTest& test) {
    weft_remote_free(test.remote_);
    weft_export_free(test.memory_);
  });
  EXPECT_THAT(Take(weft_channel_free(of_server_)), HasSubstr("not freed yet"));
  weft_remote_free(remote_);
  weft_export_free(memory_);
  EXPECT_OK(weft_channel_free(of_server_));
}

// --- handlers -----------------------------------------------------------------------------------

// One that finishes twice in its own turn, where that can be seen: the first one counts.
TEST(HandlerTest, ASecondFinishInTheHandlerIsIgnored) {
  weft_server* server = nullptr;
  ASSERT_OK(weft_server_new(nullptr, nullptr, &server));
  weft_service* const service = weft_service_new("a.B");
  EXPECT_OK(weft_service_add_method(
      service, "Twice", WEFT_UNARY, WEFT_ONCE,
      [](void*, weft_server_call* call) {
        weft_server_call_finish(call, nullptr, Bytes("first"));
        weft_server_call_finish(call, weft_status_new(WEFT_ABORTED, "second"), Bytes("second"));
        EXPECT_EQ(weft_server_call_request(call).size, 0u);
      },
      nullptr));
  EXPECT_OK(weft_service_add_method(
      service, "Null", WEFT_UNARY, WEFT_ONCE,
      [](void*, weft_server_call* call) { weft_server_call_finish(call, nullptr, kWrong); },
      nullptr));
  EXPECT_OK(weft_service_add_method(
      service, "Huge", WEFT_UNARY, WEFT_ONCE,
      [](void*, weft_server_call* call) {
        EXPECT_EQ(weft_server_call_reserve(call, (size_t{64} << 20) + 1), nullptr);
        EXPECT_EQ(weft_server_call_stream(call), nullptr);
        // The bytes are never looked at.
        weft_server_call_finish(call, nullptr, {&call, size_t{1} << 40});
      },
      nullptr));
  EXPECT_OK(weft_server_add_service(server, service));
  EXPECT_OK(weft_server_listen(server, "127.0.0.1:0"));
  weft_channel* channel = nullptr;
  ASSERT_OK(weft_channel_open(nullptr, weft_server_address(server), nullptr, &channel));
  weft_message* const reply = weft_message_new();
  const weft_call_options patient = Patient();
  const auto call = [&](const char* name) {
    weft_method method = 0;
    EXPECT_OK(weft_channel_method(channel, "a.B", name, WEFT_UNARY, WEFT_ONCE, &method));
    return Take(weft_call(channel, method, Bytes("x"), &patient, reply));
  };
  EXPECT_EQ(call("Twice"), "OK");
  EXPECT_EQ(TextOf(reply), "first");
  EXPECT_EQ(call("Null"), "13: the handler of Null gave 5 bytes at NULL");
  EXPECT_THAT(call("Huge"), StartsWith("8: the reply of method Huge has 1099511627776 bytes"));
  EXPECT_EQ(call("Twice"), "OK");
  weft_message_free(reply);
  EXPECT_OK(weft_channel_free(channel));
  EXPECT_OK(weft_server_free(server));
}

}  // namespace
}  // namespace weft::c_test
