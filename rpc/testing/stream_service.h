// The service of streams, as its tests want it.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "rpc/testing/probe_service.h"
#include "rpc/testing/stream_service.weft.h"

namespace weft::test {

class StreamService : public Streams::Service {
 public:
  void StartTalk(ServerReaderWriter<Data, Data> stream) override {
    if (look) look(stream.context());
    talks.push_back(std::move(stream));
  }

  // Reads by callback, on the engine.
  void StartSum(ServerReader<Data> reader, Data* reply) override {
    struct Summing {
      ServerReader<Data> reader;
      Data* reply;
      Data request;
      uint64_t sum = 0;

      void Next() {
        reader.Read(&request, [this](bool ok) {
          if (!ok) return End();
          reply->set_number(reply->number() + 1);
          sum += request.number();
          Next();
        });
      }
      void End() {
        reply->set_payload(std::string(sum, 's'));
        reader.Finish(absl::OkStatus());
        delete this;
      }
    };
    (new Summing{std::move(reader), reply, {}})->Next();
  }

  // Writes by callback, on the engine.
  void StartCount(const Size& request, ServerWriter<Data> writer) override {
    struct Counting {
      ServerWriter<Data> writer;
      uint64_t count;
      Data reply;
      uint64_t next = 0;

      void Next() {
        if (next == count) return End(absl::OkStatus());
        reply.set_number(next++);
        writer.Write(reply, [this](bool ok) {
          if (!ok) return End(absl::AbortedError("nobody reads"));
          Next();
        });
      }
      void End(absl::Status status) {
        writer.Finish(std::move(status));
        delete this;
      }
    };
    (new Counting{std::move(writer), request.bytes(), {}})->Next();
  }

  absl::Status Plain(ServerContext&, const Data& request, Data* reply) override {
    *reply = request;
    return absl::OkStatus();
  }

  Function<void(ServerContext&)> look;  // of Talk, first
  std::deque<ServerReaderWriter<Data, Data>> talks;
};

}  // namespace weft::test
