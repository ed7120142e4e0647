// interop_server: TestService of interop.proto, until SIGINT or SIGTERM.
//
// Its first line on stdout is "listening on ADDRESS". Exit status: 0 stopped by a signal, 1 it
// could not start or a client has broken the protocol, 2 the command line is wrong.
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "examples/interop/interop.weft.h"
#include "examples/process/stop_signal.h"
#include "examples/process/thread_pool.h"
#include "weft/security.h"
#include "weft/server.h"
#include "weft/service.h"
#include "weft/stream.h"

ABSL_FLAG(std::string, listen, "127.0.0.1:0",
          "address to serve at: host:port, [v6]:port or unix:/path; port 0: any free one");

namespace interop {
namespace {

// As many streams have a handler at once; further ones wait for a thread.
constexpr int kThreads = 8;
// For what still runs when the server is told to stop. Its clients have ended by then.
constexpr uint64_t kGraceUs = 1'000'000;
// Clients choose how large replies are: a bound to what they can make this process allocate.
constexpr uint32_t kMaxReplyBytes = 1 << 20;
// Metadata with such keys is sent back.
constexpr std::string_view kEchoed = "x-weft-test-echo-";

absl::Status EchoMetadata(weft::ServerContext& context) {
  for (const weft::Metadata::Entry& entry : context.metadata()) {
    if (!entry.key.starts_with(kEchoed)) continue;
    if (auto added = context.AddReplyMetadata(entry.key, entry.value); !added.ok()) return added;
  }
  return absl::OkStatus();
}

absl::Status StatusOf(const Ending& ending) {
  return absl::Status(static_cast<absl::StatusCode>(ending.code()), ending.message());
}

absl::Status SetZeros(uint32_t bytes, PayloadReply* reply) {
  if (bytes > kMaxReplyBytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("a reply of %d bytes; at most %d are allowed", bytes, kMaxReplyBytes));
  }
  reply->mutable_payload()->assign(bytes, '\0');
  return absl::OkStatus();
}

// `Stream`: one that the handler writes to.
template <class Stream>
absl::Status WriteReplies(const OutputRequest& request, Stream& stream) {
  PayloadReply reply;
  for (const uint32_t bytes : request.reply_bytes()) {
    if (auto set = SetZeros(bytes, &reply); !set.ok()) return set;
    if (!stream.Write(reply)) return absl::AbortedError("the stream is over");
  }
  return absl::OkStatus();
}

// Its handlers wait for their streams: they run on an executor.
class Handlers final : public TestService::Service {
  absl::Status EmptyCall(weft::ServerContext&, const Empty&, Empty*) override {
    return absl::OkStatus();
  }

  absl::Status UnaryCall(weft::ServerContext& context, const UnaryRequest& request,
                         PayloadReply* reply) override {
    if (auto echoed = EchoMetadata(context); !echoed.ok()) return echoed;
    if (request.has_ending()) return StatusOf(request.ending());
    return SetZeros(request.reply_bytes(), reply);
  }

  absl::Status StreamingInputCall(weft::ServerContext&, weft::ServerReader<InputRequest>& reader,
                                  InputReply* reply) override {
    uint64_t bytes = 0;
    InputRequest request;
    while (reader.Read(&request)) bytes += request.payload().size();
    reply->set_payload_bytes(bytes);
    return absl::OkStatus();
  }

  absl::Status StreamingOutputCall(weft::ServerContext&, const OutputRequest& request,
                                   weft::ServerWriter<PayloadReply>& writer) override {
    return WriteReplies(request, writer);
  }

  absl::Status FullDuplexCall(
      weft::ServerContext& context,
      weft::ServerReaderWriter<PayloadReply, OutputRequest>& stream) override {
    if (auto echoed = EchoMetadata(context); !echoed.ok()) return echoed;
    OutputRequest request;
    while (stream.Read(&request)) {
      if (request.has_ending()) return StatusOf(request.ending());
      if (auto written = WriteReplies(request, stream); !written.ok()) return written;
    }
    return absl::OkStatus();
  }
};

absl::Status Serve(const std::optional<weft::SecurityOptions>& security) {
  examples::StopSignal stop;  // before the server: before any thread
  examples::ThreadPool threads(kThreads);
  Handlers handlers;
  auto server =
      weft::Server::Create({.name = "interop_server", .executor = &threads, .security = security});
  if (!server.ok()) return server.status();
  if (auto added = (*server)->AddService(&handlers); !added.ok()) return added;
  if (auto listening = (*server)->Listen(absl::GetFlag(FLAGS_listen)); !listening.ok()) {
    return listening;
  }
  absl::PrintF("listening on %s\n", (*server)->address());
  std::fflush(stdout);
  stop.Wait();
  (*server)->Shutdown(kGraceUs);
  const uint64_t broken = (*server)->stats().protocol_errors;
  if (broken == 0) return absl::OkStatus();
  return absl::DataLossError(absl::StrFormat("%d broken connections", broken));
}

}  // namespace
}  // namespace interop

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      absl::StrCat("interop_server: what interop_client calls (examples/README.md)\n\n",
                   weft::kSecurityFlagsHelp));
  const auto security = weft::TakeSecurityFlags(&argc, argv);
  if (!security.ok()) {
    absl::FPrintF(stderr, "interop_server: %s\n", security.status().ToString());
    return 2;
  }
  if (absl::ParseCommandLine(argc, argv).size() > 1) {
    absl::FPrintF(stderr, "interop_server: takes flags only (interop_server --help)\n");
    return 2;
  }
  const absl::Status status = interop::Serve(*security);
  if (status.ok()) return 0;
  absl::FPrintF(stderr, "interop_server: %s\n", status.ToString());
  return 1;
}
