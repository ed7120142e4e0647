#include "bench/perf/ends/call_streams.h"

#include <cstdint>
#include <string>
#include <utility>

#include "bench/perf/ends/run_clock.h"
#include "core/clock.h"
#include "core/histogram.h"
#include "core/status.h"

namespace weft::bench {
namespace {

using ClientTalk = ClientReaderWriter<TalkMessage, TalkMessage>;

// --- server -------------------------------------------------------------------------------------

// One stream. Deletes itself at its end.
class Answers {
 public:
  explicit Answers(ServerReaderWriter<TalkMessage, TalkMessage> stream)
      : stream_(std::move(stream)) {}

  void Next() {
    stream_.Read(&message_, [this](bool ok) { ok ? OnMessage() : End(); });
  }

 private:
  void OnMessage() {
    if (confirm_every_ == 0 && message_.confirm_every() == 0) return Send(message_);
    if (message_.confirm_every() != 0) {
      confirm_every_ = message_.confirm_every();
    } else if (++unconfirmed_ == confirm_every_) {
      unconfirmed_ = 0;
      return Send(TalkMessage::default_instance());
    }
    Next();
  }

  void Send(const TalkMessage& message) {
    if (stream_.TryWrite(message) == StreamResult::kDone) return Next();
    stream_.Write(message, [this](bool) { Next(); });
  }

  void End() {
    stream_.Finish(absl::OkStatus());
    delete this;
  }

  ServerReaderWriter<TalkMessage, TalkMessage> stream_;
  TalkMessage message_;
  uint32_t confirm_every_ = 0;  // 0: each message goes back
  uint32_t unconfirmed_ = 0;
};

// --- client -------------------------------------------------------------------------------------

Figures ThereAndBack(ClientTalk& stream, const TalkMessage& message, double seconds) {
  LatencyHistogram latency;
  TalkMessage reply;
  const RunClock run(seconds);
  uint64_t start_ns = Clock::Real().NowNs();
  while (!(run.IsOver(start_ns) && latency.count() > 0)) {
    if (!stream.Write(message) || !stream.Read(&reply)) break;
    const uint64_t end_ns = Clock::Real().NowNs();
    if (run.IsCounted(start_ns)) latency.Record(end_ns - start_ns);
    start_ns = end_ns;
  }
  return FiguresOf(latency);
}

// Sends in one direction, as many at a time as the cell says.
class OneWay {
 public:
  OneWay(Engine& engine, ClientTalk& stream, const TalkMessage& message, const Cell& cell)
      : engine_(engine), stream_(stream), message_(message), cell_(cell) {}

  double PerSecond(double seconds) {
    TalkMessage mode;
    mode.set_confirm_every(ConfirmEvery(cell_));
    Send(mode);
    AwaitConfirmation();
    RateCounter rate(seconds, cell_.outstanding);
    while (open_ && rate.Continue()) {
      while (outstanding_ < cell_.outstanding && TrySend(message_)) {
      }
      rate.Add(Poll());
    }
    const double per_second = rate.PerSecond();
    // In whole groups: so that all of them are confirmed, and have been read.
    while (open_ && sent_ % ConfirmEvery(cell_) != 0) Send(message_);
    while (open_ && outstanding_ > 0) Poll();
    // The read that waits ends with the stream.
    stream_.WritesDone();
    while (open_) Poll();
    return per_second;
  }

 private:
  bool TrySend(const TalkMessage& message) {
    if (stream_.TryWrite(message) != StreamResult::kDone) return false;
    if (message.confirm_every() != 0) return true;
    ++outstanding_;
    ++sent_;
    return true;
  }
  void Send(const TalkMessage& message) {
    while (open_ && !TrySend(message)) Poll();
  }

  void AwaitConfirmation() {
    stream_.Read(&confirmation_, [this](bool ok) {
      open_ = ok;
      if (!ok) return;
      confirmed_ += ConfirmEvery(cell_);
      AwaitConfirmation();
    });
  }

  // How many were confirmed meanwhile.
  uint64_t Poll() {
    const uint64_t before = confirmed_;
    engine_.Poll();
    outstanding_ -= confirmed_ - before;
    return confirmed_ - before;
  }

  Engine& engine_;
  ClientTalk& stream_;
  const TalkMessage& message_;
  const Cell& cell_;
  TalkMessage confirmation_;
  bool open_ = true;
  uint64_t outstanding_ = 0;
  uint64_t sent_ = 0;
  uint64_t confirmed_ = 0;
};

}  // namespace

absl::StatusOr<Figures> RunCallStream(Engine& engine, const Perf::Stub& stub, const Cell& cell,
                                      double seconds) {
  TalkMessage message;
  message.set_payload(std::string(cell.bytes, 'x'));
  ClientTalk stream = stub.Talk();
  Figures figures;
  if (cell.outstanding == 1) {
    figures = ThereAndBack(stream, message, seconds);
    stream.WritesDone();
  } else {
    CoreOf(engine).Enter();
    OneWay one_way(engine, stream, message, cell);
    figures.per_s = one_way.PerSecond(seconds);
    CoreOf(engine).Leave();
  }
  WEFT_RETURN_IF_ERROR(stream.Finish());
  return figures;
}

void AnswerTalk(ServerReaderWriter<TalkMessage, TalkMessage> stream) {
  (new Answers(std::move(stream)))->Next();
}

}  // namespace weft::bench
