#include "examples/interop/scenarios.h"

#include <array>
#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "examples/interop/interop.weft.h"
#include "weft/client_context.h"
#include "weft/stream.h"

namespace interop {
namespace {

using Duplex = weft::ClientReaderWriter<OutputRequest, PayloadReply>;
using weft::Channel;

// The descriptions' sizes, in bytes.
constexpr uint32_t kLargeRequest = 271828;
constexpr uint32_t kLargeReply = 314159;
constexpr std::array<uint32_t, 4> kRequests = {27182, 8, 1828, 45904};
constexpr uint64_t kAllRequests = 74922;
constexpr std::array<uint32_t, 4> kReplies = {31415, 9, 2653, 58979};

std::string Zeros(size_t bytes) { return std::string(bytes, '\0'); }

UnaryRequest LargeUnaryRequest() {
  UnaryRequest request;
  request.set_reply_bytes(kLargeReply);
  request.set_payload(Zeros(kLargeRequest));
  return request;
}

// Asks for one reply.
OutputRequest DuplexRequest(uint32_t bytes, uint32_t reply_bytes) {
  OutputRequest request;
  request.set_payload(Zeros(bytes));
  request.add_reply_bytes(reply_bytes);
  return request;
}

// Reads one reply more.
template <class Stream>
void ExpectReply(uint32_t bytes, Stream& stream, Expectations& expect) {
  PayloadReply reply;
  expect.Number("replies", 1, stream.Read(&reply));
  expect.Zeros("the reply", bytes, reply.payload());
}

template <class Stream>
void ExpectNoReply(Stream& stream, Expectations& expect) {
  PayloadReply reply;
  expect.Number("further replies", 0, stream.Read(&reply));
}

// --- calls ---------------------------------------------------------------------------------------

void EmptyUnary(Channel& channel, Expectations& expect) {
  Empty reply;
  expect.Ok("the call", TestService::Stub(channel).EmptyCall({}, &reply));
  expect.Number("bytes of the reply", 0, reply.ByteSizeLong());
}

void LargeUnary(Channel& channel, Expectations& expect) {
  PayloadReply reply;
  expect.Ok("the call", TestService::Stub(channel).UnaryCall(LargeUnaryRequest(), &reply));
  expect.Zeros("the reply", kLargeReply, reply.payload());
}

// --- streams -------------------------------------------------------------------------------------

void ClientStreaming(Channel& channel, Expectations& expect) {
  InputReply reply;
  auto stream = TestService::Stub(channel).StreamingInputCall(&reply);
  InputRequest request;
  for (const uint32_t bytes : kRequests) {
    request.set_payload(Zeros(bytes));
    expect.Number("writes", 1, stream.Write(request));
  }
  stream.WritesDone();
  expect.Ok("the end", stream.Finish());
  expect.Number("bytes that the server counts", kAllRequests, reply.payload_bytes());
}

void ServerStreaming(Channel& channel, Expectations& expect) {
  OutputRequest request;
  for (const uint32_t bytes : kReplies) request.add_reply_bytes(bytes);
  auto stream = TestService::Stub(channel).StreamingOutputCall(request);
  for (const uint32_t bytes : kReplies) ExpectReply(bytes, stream, expect);
  ExpectNoReply(stream, expect);
  expect.Ok("the end", stream.Finish());
}

void PingPong(Channel& channel, Expectations& expect) {
  Duplex stream = TestService::Stub(channel).FullDuplexCall();
  for (size_t i = 0; i < kRequests.size(); ++i) {
    expect.Number("writes", 1, stream.Write(DuplexRequest(kRequests[i], kReplies[i])));
    ExpectReply(kReplies[i], stream, expect);
  }
  stream.WritesDone();
  ExpectNoReply(stream, expect);
  expect.Ok("the end", stream.Finish());
}

void EmptyStream(Channel& channel, Expectations& expect) {
  Duplex stream = TestService::Stub(channel).FullDuplexCall();
  stream.WritesDone();
  ExpectNoReply(stream, expect);
  expect.Ok("the end", stream.Finish());
}

// --- ends before their time ----------------------------------------------------------------------

void CancelAfterBegin(Channel& channel, Expectations& expect) {
  InputReply reply;
  auto stream = TestService::Stub(channel).StreamingInputCall(&reply);
  stream.Cancel();
  expect.Code("the end", absl::StatusCode::kCancelled, stream.Finish());
}

void CancelAfterFirstResponse(Channel& channel, Expectations& expect) {
  Duplex stream = TestService::Stub(channel).FullDuplexCall();
  expect.Number("writes", 1, stream.Write(DuplexRequest(kRequests[0], kReplies[0])));
  ExpectReply(kReplies[0], stream, expect);
  stream.Cancel();
  expect.Code("the end", absl::StatusCode::kCancelled, stream.Finish());
}

// The server sleeps: it ends the stream when its client writes no more, which this client never
// says. So the deadline comes first, however slow the machine.
void TimeoutOnSleepingServer(Channel& channel, Expectations& expect) {
  Duplex stream = TestService::Stub(channel).FullDuplexCall({.timeout_us = 1'000});
  OutputRequest request;
  request.set_payload(Zeros(kRequests[0]));
  stream.Write(request);  // it, too, may be too late
  ExpectNoReply(stream, expect);
  expect.Code("the end", absl::StatusCode::kDeadlineExceeded, stream.Finish());
}

// --- statuses ------------------------------------------------------------------------------------

Ending EndingWith(const absl::Status& status) {
  Ending ending;
  ending.set_code(static_cast<int32_t>(status.code()));
  ending.set_message(std::string(status.message()));
  return ending;
}

void ExpectUnaryStatus(const absl::Status& status, Channel& channel, Expectations& expect) {
  UnaryRequest request;
  *request.mutable_ending() = EndingWith(status);
  PayloadReply reply;
  expect.Status("the call", status, TestService::Stub(channel).UnaryCall(request, &reply));
}

void ExpectDuplexStatus(const absl::Status& status, Channel& channel, Expectations& expect) {
  OutputRequest request;
  *request.mutable_ending() = EndingWith(status);
  Duplex stream = TestService::Stub(channel).FullDuplexCall();
  expect.Number("writes", 1, stream.Write(request));
  stream.WritesDone();
  ExpectNoReply(stream, expect);
  expect.Status("the stream", status, stream.Finish());
}

// Statuses of streams travel in another frame than those of calls.
void ExpectStatus(const absl::Status& status, Channel& channel, Expectations& expect) {
  ExpectUnaryStatus(status, channel, expect);
  ExpectDuplexStatus(status, channel, expect);
}

void StatusCodeAndMessage(Channel& channel, Expectations& expect) {
  ExpectStatus(absl::UnknownError("test status message"), channel, expect);
}

void SpecialStatusMessage(Channel& channel, Expectations& expect) {
  ExpectStatus(absl::UnknownError("\t\ntest with whitespace\r\nand Unicode BMP \xE2\x98\xBA and "
                                  "non-BMP \xF0\x9F\x98\x88\t\n"),
               channel, expect);
}

// --- what the server does not have ---------------------------------------------------------------

void UnimplementedMethod(Channel& channel, Expectations& expect) {
  Empty reply;
  expect.Code("the call", absl::StatusCode::kUnimplemented,
              TestService::Stub(channel).UnimplementedCall({}, &reply));
}

void UnimplementedServiceScenario(Channel& channel, Expectations& expect) {
  Empty reply;
  expect.Code("the call", absl::StatusCode::kUnimplemented,
              UnimplementedService::Stub(channel).UnimplementedCall({}, &reply));
}

// --- metadata ------------------------------------------------------------------------------------

// gRPC has the first come back before the replies and the second behind them. Weft's metadata of a
// reply come with its end, all of them.
constexpr char kTextKey[] = "x-weft-test-echo-initial";
constexpr char kText[] = "test_initial_metadata_value";
constexpr char kBytesKey[] = "x-weft-test-echo-trailing-bin";
constexpr char kBytes[] = "\xab\xab\xab";

void AddMetadata(weft::ClientContext& context, Expectations& expect) {
  expect.Ok("adding text", context.AddMetadata(kTextKey, kText));
  expect.Ok("adding bytes", context.AddMetadata(kBytesKey, kBytes));
}

void ExpectMetadata(const weft::ClientContext& context, Expectations& expect) {
  const weft::Metadata& metadata = context.reply_metadata();
  const auto value = [&metadata](const char* key) {
    const std::string* found = metadata.Find(key);
    return found == nullptr ? std::string() : *found;
  };
  expect.Number("entries of metadata", 2, metadata.size());
  expect.Text(kTextKey, kText, value(kTextKey));
  expect.Text(kBytesKey, kBytes, value(kBytesKey));
}

void CustomMetadataOfACall(Channel& channel, Expectations& expect) {
  weft::ClientContext context;
  AddMetadata(context, expect);
  PayloadReply reply;
  expect.Ok("the call", TestService::Stub(channel).UnaryCall(LargeUnaryRequest(), &reply,
                                                             {.context = &context}));
  ExpectMetadata(context, expect);
}

void CustomMetadataOfAStream(Channel& channel, Expectations& expect) {
  weft::ClientContext context;
  AddMetadata(context, expect);
  Duplex stream = TestService::Stub(channel).FullDuplexCall({.context = &context});
  expect.Number("writes", 1, stream.Write(DuplexRequest(kLargeRequest, kLargeReply)));
  stream.WritesDone();
  ExpectReply(kLargeReply, stream, expect);
  ExpectNoReply(stream, expect);
  expect.Ok("the end", stream.Finish());
  ExpectMetadata(context, expect);
}

void CustomMetadata(Channel& channel, Expectations& expect) {
  CustomMetadataOfACall(channel, expect);
  CustomMetadataOfAStream(channel, expect);
}

constexpr Scenario kScenarios[] = {
    {"empty_unary", EmptyUnary},
    {"large_unary", LargeUnary},
    {"client_streaming", ClientStreaming},
    {"server_streaming", ServerStreaming},
    {"ping_pong", PingPong},
    {"empty_stream", EmptyStream},
    {"cancel_after_begin", CancelAfterBegin},
    {"cancel_after_first_response", CancelAfterFirstResponse},
    {"timeout_on_sleeping_server", TimeoutOnSleepingServer},
    {"status_code_and_message", StatusCodeAndMessage},
    {"special_status_message", SpecialStatusMessage},
    {"unimplemented_method", UnimplementedMethod},
    {"unimplemented_service", UnimplementedServiceScenario},
    {"custom_metadata", CustomMetadata},
};

}  // namespace

std::span<const Scenario> Scenarios() { return kScenarios; }

}  // namespace interop
