// Echo, as its programs serve it.
//
// Threads: the engine's that serves it.
#pragma once

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "bench/rpc/echo.pb.h"
#include "bench/rpc/echo.weft.h"
#include "rpc/server/server_context.h"

namespace weft::bench::rpc {

class EchoService final : public Echo::LayoutService {
 public:
  absl::Status Call(ServerContext&, const EchoMessage& request, EchoMessage* reply) override {
    reply->set_payload(request.payload());
    return absl::OkStatus();
  }
  absl::Status CallStruct(ServerContext&, const EchoRecordLayout& request,
                          EchoRecordLayout* reply) override {
    reply->payload = request.payload;
    return absl::OkStatus();
  }
  void StartTalk(ServerReaderWriter<EchoMessage, EchoMessage> stream) override {
    (new Talking{std::move(stream), {}})->Next();
  }
  void StartSink(ServerReader<EchoMessage> reader, EchoMessage*) override {
    (new Sinking{std::move(reader), {}, &sunk})->Next();
  }

  absl::Status Drop(ServerContext&, const EchoMessage&) override {
    ++sunk;
    return absl::OkStatus();
  }

  uint64_t sunk = 0;  // messages of all sinks, and dropped ones

 private:
  struct Talking {
    ServerReaderWriter<EchoMessage, EchoMessage> stream;
    EchoMessage message;

    void Next() {
      stream.Read(&message, [this](bool ok) {
        if (!ok) return End();
        // Beside the next read nothing is under way: there is room, but where the client stalls.
        if (stream.TryWrite(message) == StreamResult::kDone) return Next();
        stream.Write(message, [this](bool) { Next(); });
      });
    }
    void End() {
      stream.Finish(absl::OkStatus());
      delete this;
    }
  };
  struct Sinking {
    ServerReader<EchoMessage> reader;
    EchoMessage message;
    uint64_t* count;

    void Next() {
      reader.Read(&message, [this](bool ok) {
        if (!ok) return End();
        ++*count;
        Next();
      });
    }
    void End() {
      reader.Finish(absl::OkStatus());
      delete this;
    }
  };
};

}  // namespace weft::bench::rpc
