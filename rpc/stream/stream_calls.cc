#include "rpc/stream/stream_calls.h"

#include <utility>

#include "core/inline.h"
#include "rpc/stream/run_or_post.h"
#include "rpc/stream/stream.h"
#include "transport/engine.h"

namespace weft {
namespace {

// Tries again with each turn, which empties the inbox.
class LaterPost final : public Timer {
 public:
  LaterPost(EngineCore& engine, Function<void()> task) : engine_(engine), task_(std::move(task)) {}

  void OnTimer() override {
    if (!engine_.Post(std::move(task_))) return engine_.timers().Schedule(this, 0);
    delete this;
  }

 private:
  EngineCore& engine_;
  Function<void()> task_;
};

}  // namespace

void PostInLaterTurn(EngineCore& engine, Function<void()> task) {
  engine.timers().Schedule(new LaterPost(engine, std::move(task)), 0);
}

}  // namespace weft

namespace weft::internal {
namespace {

// As WaitFor(), where another thread drives, or this one must not wait.
template <class Attempt, class Begin>
WEFT_COLD bool WaitElsewhere(EngineCore& engine, Stream& stream, Attempt attempt, Begin begin) {
  if (engine.InTurn()) {
    RunOrPost(engine, stream, [&stream] { stream.FailBlocked(); });
    return false;
  }
  Waiter waiter;
  bool ok = false;
  RunOrPost(engine, stream, [&] {
    const auto finish = [&](bool result_ok) {
      ok = result_ok;
      engine.Finish(waiter);
    };
    const StreamResult result = attempt();
    if (result == StreamResult::kNotYet) return begin(finish);
    finish(result == StreamResult::kDone);
  });
  engine.Wait(waiter);
  return ok;
}

// As WaitFor(), for who drives, and has found that he must wait.
template <class Begin>
WEFT_APART bool WaitHere(EngineCore& engine, Stream& stream, Begin begin) {
  if (engine.in_turn()) [[unlikely]] {
    stream.FailBlocked();
    engine.Leave();
    return false;
  }
  Waiter waiter;
  bool ok = false;
  begin([&](bool result_ok) {
    ok = result_ok;
    engine.Finish(waiter);
  });
  if (!engine.entered_once()) stream.Flush();  // what was written before
  engine.Drive(waiter);
  engine.Leave();
  return ok;
}

// `begin(done)` begins what `attempt` could not do at once. True: it has done what it was to do.
template <class Attempt, class Begin>
WEFT_INLINE bool WaitFor(const StreamHandle& handle, Attempt attempt, Begin begin) {
  Stream& stream = *handle.stream;
  EngineCore& engine = *handle.engine;
  if (stream.posted() || !engine.Enter()) [[unlikely]]
    return WaitElsewhere(engine, stream, attempt, begin);
  const StreamResult result = attempt();
  if (result == StreamResult::kNotYet) return WaitHere(engine, stream, begin);
  if (engine.entered_once()) stream.Flush();
  engine.Leave();
  return result == StreamResult::kDone;
}

WEFT_COLD void ReadElsewhere(const StreamHandle& handle, google::protobuf::MessageLite* to,
                             Function<void(bool)>&& done) {
  if (handle.engine->forked()) return done(false);
  RunOrPost(*handle.engine, *handle.stream,
            [stream = handle.stream, to, done = std::move(done)]() mutable {
              stream->Read(to, std::move(done));
            });
}

WEFT_COLD void WriteElsewhere(const StreamHandle& handle,
                              const google::protobuf::MessageLite& message, bool last,
                              Function<void(bool)>&& done) {
  if (handle.engine->forked()) return done(false);
  RunOrPost(*handle.engine, *handle.stream,
            [stream = handle.stream, &message, last, done = std::move(done)]() mutable {
              stream->Write(message, last, std::move(done));
            });
}

template <class Attempt>
WEFT_APART StreamResult TryHere(const StreamHandle& handle, Attempt attempt) {
  if (handle.stream->posted() || !handle.engine->Enter()) return StreamResult::kNotYet;
  const StreamResult result = attempt();
  if (handle.engine->entered_once()) handle.stream->Flush();  // a message, or credit
  handle.engine->Leave();
  return result;
}

}  // namespace

StreamResult StreamHandle::TryRead(google::protobuf::MessageLite* to) const {
  if (MayGoAhead(*engine, *stream)) [[likely]]
    return stream->TryRead(to);
  return TryHere(*this, [this, to] { return stream->TryRead(to); });
}

StreamResult StreamHandle::TryWrite(const google::protobuf::MessageLite& message, bool last) const {
  if (MayGoAhead(*engine, *stream)) [[likely]]
    return stream->TryWrite(message, last);
  return TryHere(*this, [this, &message, last] { return stream->TryWrite(message, last); });
}

bool StreamHandle::Read(google::protobuf::MessageLite* to) const {
  return WaitFor(
      *this, [this, to] { return stream->TryRead(to); },
      [this, to](Function<void(bool)> done) { stream->Read(to, std::move(done)); });
}

bool StreamHandle::Write(const google::protobuf::MessageLite& message, bool last) const {
  return WaitFor(
      *this, [this, &message, last] { return stream->TryWrite(message, last); },
      [this, &message, last](Function<void(bool)> done) {
        stream->Write(message, last, std::move(done));
      });
}

void StreamHandle::Read(google::protobuf::MessageLite* to, Function<void(bool)>&& done) const {
  if (!MayGoAhead(*engine, *stream)) [[unlikely]]
    return ReadElsewhere(*this, to, std::move(done));
  stream->Read(to, std::move(done));
}

void StreamHandle::Write(const google::protobuf::MessageLite& message, bool last,
                         Function<void(bool)>&& done) const {
  if (!MayGoAhead(*engine, *stream)) [[unlikely]]
    return WriteElsewhere(*this, message, last, std::move(done));
  stream->Write(message, last, std::move(done));
}

void StreamHandle::WhenWritable(Function<void(bool)> done) const {
  if (engine->forked()) return done(false);
  RunOrPost(*engine, *stream, [stream = stream, done = std::move(done)]() mutable {
    stream->WhenWritable(std::move(done));
  });
}

bool StreamHandle::OnEngine() const { return engine->OnEngine(); }

void StreamHandle::WritesDone() const {
  RunOrPost(*engine, *stream, [stream = stream] { stream->WritesDone(); });
}

}  // namespace weft::internal
