// The service of recorded sessions: what it answers depends on what it is asked alone, now and in
// any later build.
//
// Threads: its engine's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/function.h"
#include "rpc/server/exported_memory.h"
#include "rpc/server/server_bulk.h"
#include "rpc/testing/recorded_service.weft.h"
#include "transport/local_memory.h"
#include "transport/slice.h"

namespace weft::test {

class RecordedService final : public recorded::Recorded::Service {
 public:
  using Line = recorded::Line;
  using Cargo = recorded::Cargo;
  using HeldCall = UnaryCall<Line, Line>;
  using CargoCall = UnaryCall<Cargo, Cargo>;
  using Talking = ServerReaderWriter<Line, Line>;

  absl::Status Echo(ServerContext& context, const Line& request, Line* reply) override {
    ++echoes;
    if (after_echo) after_echo();
    if (request.fails()) return absl::NotFoundError(request.text());
    reply->set_text(request.text());
    context.SetReplyAttachment(context.attachment());
    for (const auto& [key, value] : context.metadata()) {
      if (auto added = context.AddReplyMetadata(key, value); !added.ok()) return added;
    }
    return absl::OkStatus();
  }
  void StartHold(HeldCall call) override {
    held_.emplace(std::move(call));
    held_->context().OnCancel([this] {
      HeldCall ended = *std::move(held_);
      held_.reset();
      ended.Finish(absl::CancelledError("as its caller wants"));
    });
  }
  absl::Status Note(ServerContext&, const Line& request) override {
    notes.push_back(request.text());
    return absl::OkStatus();
  }
  void StartSwap(CargoCall call) override {
    auto* const swapped = new CargoCall(std::move(call));
    const size_t length = swapped->request().data().length();
    swapped->context().bulk().Fetch(
        swapped->request().data(), {&cargo_, 0, length},
        [this, swapped, length](absl::Status fetched) {
          CargoCall call = std::move(*swapped);
          delete swapped;
          if (fetched.ok()) {
            call.context().bulk().Push({&cargo_, 0, length}, call.reply()->mutable_data(), nullptr);
          }
          call.Finish(std::move(fetched));
        });
  }
  absl::Status Lend(ServerContext&, const Line&, recorded::Field* reply) override {
    if (field == nullptr) return absl::FailedPreconditionError("there is none");
    *reply->mutable_memory() = field->handle();
    return absl::OkStatus();
  }
  // Reads and writes by callback, on the engine.
  void StartTalk(Talking stream) override {
    struct Echoing {
      Talking stream;
      Line line;

      void Next() {
        stream.Read(&line, [this](bool is_one) {
          if (!is_one) return End();
          stream.Write(line, [this](bool written) { written ? Next() : End(); });
        });
      }
      void End() {
        stream.Finish(absl::OkStatus());
        delete this;
      }
    };
    (new Echoing{std::move(stream), {}})->Next();
  }

  int echoes = 0;
  Function<void()> after_echo;
  std::vector<std::string> notes;
  std::unique_ptr<ExportedMemory> field;  // what Lend() lends

 private:
  std::optional<HeldCall> held_;
  std::vector<std::byte> bytes_ = std::vector<std::byte>(64 << 10);
  LocalMemory cargo_{bytes_};  // what Swap() swaps, at most
};

}  // namespace weft::test
