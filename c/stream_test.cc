// Streams of the C interface, and between it and C++ that was generated, in both directions.
#include "weft/stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "c/testing/loopback.h"
#include "c/testing/shelf.weft.h"
#include "weft/c.h"
#include "weft/c_server.h"
#include "weft/c_stream.h"
#include "weft/channel.h"
#include "weft/server.h"

namespace weft::c_test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

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
std::string Reversed(std::string text) {
  std::reverse(text.begin(), text.end());
  return text;
}

// A thread for each handler.
class ThreadEach final : public Executor {
 public:
  ~ThreadEach() {
    for (std::thread& thread : threads_) thread.join();
  }
  bool Run(Function<void()> task) override {
    threads_.emplace_back([task = std::move(task)]() mutable { task(); });
    return true;
  }

 private:
  std::vector<std::thread> threads_;
};

// Blocking handlers, each on a thread of its own.
class GeneratedShelf final : public Shelf::Service {
  absl::Status Join(ServerContext&, ServerReader<c_test::Text>& stream,
                    c_test::Text* reply) override {
    c_test::Text text;
    std::string all;
    while (stream.Read(&text)) all += text.text();
    reply->set_text(all);
    return absl::OkStatus();
  }
  absl::Status Split(ServerContext&, const c_test::Text& request,
                     ServerWriter<c_test::Text>& stream) override {
    c_test::Text text;
    for (const char letter : request.text()) {
      text.set_text(std::string(1, letter));
      stream.Write(text);
    }
    return request.text() == "fail" ? absl::AbortedError("as you like") : absl::OkStatus();
  }
  absl::Status Chat(ServerContext&,
                    ServerReaderWriter<c_test::Text, c_test::Text>& stream) override {
    c_test::Text text;
    while (stream.Read(&text)) {
      text.set_text(Reversed(text.text()));
      stream.Write(text);
    }
    return absl::OkStatus();
  }
};

// Handlers of the C interface, with callbacks on the engine.
struct CHandler {
  weft_server_call* call;
  weft_stream* stream;
  weft_message* message = weft_message_new();
  std::string all;
  std::string out;
  size_t at = 0;

  explicit CHandler(weft_server_call* of) : call(of), stream(weft_server_call_stream(of)) {
    EXPECT_NE(stream, nullptr);
    EXPECT_EQ(weft_server_call_stream(of), stream);
  }
  ~CHandler() { weft_message_free(message); }

  void Finish(std::string_view reply = {}) {
    weft_server_call_finish(call, nullptr, Bytes(reply));
    delete this;
  }
  void Read(weft_stream_done done) {
    EXPECT_OK(weft_stream_read_start(stream, message, done, this));
  }
  void Write(weft_stream_done done, int last = 0) {
    EXPECT_OK(weft_stream_write_start(stream, Bytes(out), last, done, this));
  }
};

void JoinNext(void* arg, int ok) {
  auto* const self = static_cast<CHandler*>(arg);
  if (ok == 0) return self->Finish(Encoded(self->all));
  self->all += Decoded(TextOf(self->message));
  self->Read(JoinNext);
}
void Join(void*, weft_server_call* call) { (new CHandler(call))->Read(JoinNext); }

void SplitNext(void* arg, int ok) {
  auto* const self = static_cast<CHandler*>(arg);
  if (ok == 0 || self->at == self->all.size()) {
    if (self->at > 0) {
      EXPECT_EQ(weft_stream_write(self->stream, Bytes("x"), 0), 0);
    }
    return self->Finish();
  }
  self->out = Encoded(self->all.substr(self->at++, 1));
  self->Write(SplitNext, /*last=*/self->at == self->all.size() ? 1 : 0);
}
void Split(void*, weft_server_call* call) {
  auto* const self = new CHandler(call);
  self->all = Decoded(ViewOf(weft_server_call_request(call)));
  EXPECT_THAT(Take(weft_stream_read_start(self->stream, self->message, SplitNext, self)),
              HasSubstr("the handler of this method's kind does not do that"));
  SplitNext(self, 1);
}

void ChatRead(void* arg, int ok);
void ChatWritten(void* arg, int ok) {
  auto* const self = static_cast<CHandler*>(arg);
  if (ok == 0) return self->Finish();
  self->Read(ChatRead);
}
void ChatRead(void* arg, int ok) {
  auto* const self = static_cast<CHandler*>(arg);
  if (ok == 0) return self->Finish();
  self->out = Encoded(Reversed(Decoded(TextOf(self->message))));
  self->Write(ChatWritten);
}
void Chat(void*, weft_server_call* call) { (new CHandler(call))->Read(ChatRead); }

class StreamTest : public testing::TestWithParam<std::string> {
 protected:
  std::string ServeGenerated() {
    ServerOptions options;
    options.executor = &executor_;
    auto server = Server::Create(options);
    EXPECT_TRUE(server.ok());
    generated_server_ = *std::move(server);
    EXPECT_TRUE(generated_server_->AddService(&generated_).ok());
    EXPECT_TRUE(generated_server_->Listen("127.0.0.1:0").ok());
    return generated_server_->address();
  }
  std::string ServeC() {
    EXPECT_OK(weft_server_new(nullptr, nullptr, &server_));
    weft_service* const service = weft_service_new("weft.c_test.Shelf");
    const auto add = [&](const char* name, int kind, weft_handler handler) {
      EXPECT_OK(weft_service_add_method(service, name, kind, WEFT_ONCE, handler, nullptr));
    };
    add("Join", WEFT_CLIENT_STREAMING, Join);
    add("Split", WEFT_SERVER_STREAMING, Split);
    add("Chat", WEFT_BIDI_STREAMING, Chat);
    EXPECT_OK(weft_server_add_service(server_, service));
    EXPECT_OK(weft_server_listen(server_, "127.0.0.1:0"));
    return weft_server_address(server_);
  }
  ~StreamTest() override { EXPECT_OK(weft_server_free(server_)); }

  ThreadEach executor_;
  GeneratedShelf generated_;
  std::unique_ptr<Server> generated_server_;
  weft_server* server_ = nullptr;
};

// What a client of the C interface does with either server.
void CallAll(const CClient& client) {
  const weft_call_options patient = Patient();
  weft_message* const message = weft_message_new();
  weft_stream* stream = nullptr;

  ASSERT_OK(weft_stream_start(client.channel(), client.Method("Join", WEFT_CLIENT_STREAMING),
                              {nullptr, 0}, &patient, message, &stream));
  EXPECT_EQ(weft_stream_write(stream, Bytes(Encoded("ab")), 0), 1);
  EXPECT_EQ(weft_stream_write(stream, Bytes(Encoded("")), 0), 1);
  EXPECT_EQ(weft_stream_write(stream, Bytes(Encoded("cd")), 1), 1);
  EXPECT_EQ(weft_stream_write(stream, Bytes(Encoded("x")), 0), 0);  // behind the last one
  weft_message* const other = weft_message_new();
  EXPECT_EQ(weft_stream_read(stream, other), 0);  // its reply is no message of a stream
  EXPECT_OK(weft_stream_finish(stream));
  EXPECT_EQ(Decoded(TextOf(message)), "abcd");
  weft_stream_free(stream);

  const std::string request = Encoded("hello");
  ASSERT_OK(weft_stream_start(client.channel(), client.Method("Split", WEFT_SERVER_STREAMING),
                              Bytes(request), &patient, nullptr, &stream));
  std::string all;
  while (weft_stream_read(stream, other) != 0) all += Decoded(TextOf(other)) + ".";
  EXPECT_EQ(all, "h.e.l.l.o.");
  EXPECT_OK(weft_stream_finish(stream));
  weft_stream_free(stream);

  ASSERT_OK(weft_stream_start(client.channel(), client.Method("Chat", WEFT_BIDI_STREAMING),
                              {nullptr, 0}, &patient, nullptr, &stream));
  for (const std::string& text :
       {std::string("abc"), std::string(), std::string(100'000, 'x') + "y"}) {
    EXPECT_EQ(weft_stream_write(stream, Bytes(Encoded(text)), 0), 1);
    ASSERT_EQ(weft_stream_read(stream, other), 1);
    EXPECT_EQ(Decoded(TextOf(other)), Reversed(text));
  }
  weft_stream_writes_done(stream);
  EXPECT_EQ(weft_stream_read(stream, other), 0);
  EXPECT_OK(weft_stream_finish(stream));
  EXPECT_OK(weft_stream_finish(stream));  // says the same again
  weft_stream_free(stream);
  weft_message_free(other);
  weft_message_free(message);
}

INSTANTIATE_TEST_SUITE_P(Paths, StreamTest, testing::Values("shm", "tcp"),
                         [](const auto& info) { return info.param; });

TEST_P(StreamTest, ACClientCallsAGeneratedServer) {
  CallAll(CClient(ServeGenerated(), GetParam()));
}

TEST_P(StreamTest, ACClientCallsACServer) { CallAll(CClient(ServeC(), GetParam())); }

TEST_P(StreamTest, AGeneratedClientCallsACServer) {
  const std::string address = ServeC();
  ChannelOptions options;
  options.link.paths = *ParsePathList(GetParam());
  auto channel = Channel::Open(address, options);
  ASSERT_TRUE(channel.ok()) << channel.status();
  Shelf::Stub stub(**channel);
  c_test::Text text;
  c_test::Text reply;

  auto join = stub.Join(&reply);
  for (const char* part : {"ab", "", "cd"}) {
    text.set_text(part);
    EXPECT_TRUE(join.Write(text));
  }
  EXPECT_TRUE(join.Finish().ok());
  EXPECT_EQ(reply.text(), "abcd");

  text.set_text("hello");
  auto split = stub.Split(text);
  std::string all;
  while (split.Read(&reply)) all += reply.text() + ".";
  EXPECT_EQ(all, "h.e.l.l.o.");
  EXPECT_TRUE(split.Finish().ok());

  auto chat = stub.Chat();
  text.set_text("abc");
  EXPECT_TRUE(chat.Write(text));
  ASSERT_TRUE(chat.Read(&reply));
  EXPECT_EQ(reply.text(), "cba");
  chat.WritesDone();
  EXPECT_FALSE(chat.Read(&reply));
  EXPECT_TRUE(chat.Finish().ok());
}

TEST_P(StreamTest, AHandlersErrorComesBehindItsMessages) {
  const CClient client(ServeGenerated(), GetParam());
  weft_message* const message = weft_message_new();
  weft_stream* stream = nullptr;
  const std::string request = Encoded("fail");
  ASSERT_OK(weft_stream_start(client.channel(), client.Method("Split", WEFT_SERVER_STREAMING),
                              Bytes(request), nullptr, nullptr, &stream));
  std::string all;
  while (weft_stream_read(stream, message) != 0) all += Decoded(TextOf(message));
  EXPECT_EQ(all, "fail");
  EXPECT_EQ(Take(weft_stream_finish(stream)), "10: as you like");
  weft_stream_free(stream);
  weft_message_free(message);
}

TEST_P(StreamTest, CallbacksTellOfEachMessage) {
  const std::string address = ServeC();
  weft_engine* engine = nullptr;
  ASSERT_OK(weft_engine_new(nullptr, &engine));
  {
    const CClient client(address, GetParam(), engine);
    weft_message* const message = weft_message_new();
    weft_stream* stream = nullptr;
    ASSERT_OK(weft_stream_start(client.channel(), client.Method("Chat", WEFT_BIDI_STREAMING),
                                {nullptr, 0}, nullptr, nullptr, &stream));
    Signal read;
    Signal written;
    ASSERT_OK(weft_stream_read_start(stream, message, Signal::OnStream, &read));
    // One at a time.
    EXPECT_EQ(TakeCode(weft_stream_read_start(stream, message, Signal::OnStream, &read)),
              WEFT_FAILED_PRECONDITION);
    EXPECT_EQ(weft_stream_read(stream, message), 0);
    const std::string text = Encoded("abc");
    ASSERT_OK(weft_stream_write_start(stream, Bytes(text), 0, Signal::OnStream, &written));
    EXPECT_EQ(written.Wait(), "ok");
    EXPECT_EQ(read.Wait(), "ok");
    EXPECT_EQ(Decoded(TextOf(message)), "cba");
    weft_stream_writes_done(stream);
    ASSERT_OK(weft_stream_read_start(stream, message, Signal::OnStream, &read));
    EXPECT_EQ(read.Wait(), "over");
    Signal end;
    ASSERT_OK(weft_stream_finish_start(stream, Signal::OnDone, &end));
    EXPECT_EQ(end.Wait(), "OK");
    weft_stream_free(stream);
    weft_message_free(message);
  }
  EXPECT_OK(weft_engine_free(engine));
}

// A read waits when its stream is freed: it ends, the handler's too, and the channel can go.
TEST_P(StreamTest, AStreamIsFreedWhileAReadWaits) {
  const std::string address = ServeC();
  weft_engine* engine = nullptr;
  ASSERT_OK(weft_engine_new(nullptr, &engine));
  Signal read;
  weft_message* const message = weft_message_new();
  {
    const CClient client(address, GetParam(), engine);
    weft_stream* stream = nullptr;
    ASSERT_OK(weft_stream_start(client.channel(), client.Method("Chat", WEFT_BIDI_STREAMING),
                                {nullptr, 0}, nullptr, nullptr, &stream));
    ASSERT_OK(weft_stream_read_start(stream, message, Signal::OnStream, &read));
    weft_stream_free(stream);
  }
  EXPECT_EQ(read.Wait(), "over");
  weft_message_free(message);
  EXPECT_OK(weft_engine_free(engine));
}

TEST_P(StreamTest, ACancelEndsIt) {
  const CClient client(ServeC(), GetParam());
  weft_message* const message = weft_message_new();
  weft_stream* stream = nullptr;
  ASSERT_OK(weft_stream_start(client.channel(), client.Method("Chat", WEFT_BIDI_STREAMING),
                              {nullptr, 0}, nullptr, nullptr, &stream));
  weft_stream_cancel(stream);
  EXPECT_EQ(weft_stream_read(stream, message), 0);
  EXPECT_THAT(Take(weft_stream_finish(stream)), StartsWith("1: "));
  weft_stream_free(stream);
  weft_message_free(message);
}

}  // namespace
}  // namespace weft::c_test
