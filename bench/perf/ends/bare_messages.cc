#include "bench/perf/ends/bare_messages.h"

#include <utility>

#include "bench/perf/ends/polled_server.h"
#include "bench/perf/ends/run_clock.h"
#include "core/clock.h"
#include "core/histogram.h"
#include "core/status.h"

namespace weft::bench {
namespace {

// A size that no message of the cell has.
size_t OverBytes(const Cell& cell) { return cell.bytes == 1 ? 2 : 1; }

void PollWhileBusy(Engine& engine) {
  while (engine.Poll() > 0) {
  }
}

}  // namespace

// --- receiver -----------------------------------------------------------------------------------

absl::StatusOr<std::unique_ptr<MessageReceiver>> MessageReceiver::Open(
    std::unique_ptr<Engine> engine, const LinkOptions& link,
    const std::optional<SecurityOptions>& security) {
  std::unique_ptr<MessageReceiver> receiver(new MessageReceiver(std::move(engine)));
  ListenOptions options;
  options.link = link;
  options.security = security;
  WEFT_ASSIGN_OR_RETURN(receiver->listener_,
                        receiver->engine_->transport().Listen(kAnyPort, options, receiver.get()));
  return receiver;
}

MessageReceiver::~MessageReceiver() {
  listener_.reset();
  engine_.reset();  // closes the connection, which still tells this object
}

absl::StatusOr<ConnectionHandler*> MessageReceiver::OnIncoming(Connection&) {
  return static_cast<ConnectionHandler*>(this);
}

void MessageReceiver::OnMessage(Connection&, ByteSpan message) {
  if (message.size() != cell_.bytes) {
    over_ = true;
  } else if (++unconfirmed_ == ConfirmEvery(cell_)) {
    unconfirmed_ = 0;
    ++owed_;
    Confirm();
  }
}

void MessageReceiver::OnClosed(Connection&, const absl::Status& why) {
  connection_ = nullptr;
  status_ = why;
}

void MessageReceiver::Confirm() {
  while (owed_ > 0 && connection_ != nullptr && connection_->Reserve(0).ok()) {
    connection_->Commit(0);
    --owed_;
  }
}

absl::Status MessageReceiver::Serve(const Cell& cell) {
  cell_ = cell;
  over_ = false;
  while (!over_ && status_.ok()) {
    engine_->Poll();
    if (owed_ > 0) Confirm();
  }
  return status_;
}

void MessageReceiver::Rest() { PollWhileBusy(*engine_); }

// --- sender -------------------------------------------------------------------------------------

absl::StatusOr<std::unique_ptr<MessageSender>> MessageSender::Open(
    std::unique_ptr<Engine> engine, const std::string& address, const LinkOptions& link,
    const std::optional<SecurityOptions>& security) {
  std::unique_ptr<MessageSender> sender(new MessageSender(std::move(engine)));
  ConnectOptions options;
  options.link = link;
  options.security = security;
  EngineCore& driven = CoreOf(*sender->engine_);
  driven.Enter();
  absl::Status status = driven.transport().Connect(address, options, sender.get()).status();
  while (status.ok() && !sender->open() && sender->status_.ok()) driven.Poll();
  driven.Leave();
  if (status.ok()) status = sender->status_;
  WEFT_RETURN_IF_ERROR(status);
  return sender;
}

MessageSender::~MessageSender() { engine_.reset(); }

void MessageSender::OnMessage(Connection&, ByteSpan) { ++confirmations_; }

void MessageSender::OnClosed(Connection&, const absl::Status& why) {
  connection_ = nullptr;
  status_ = why;
}

bool MessageSender::Send(size_t bytes) {
  if (!open() || !connection_->Reserve(bytes).ok()) return false;
  connection_->Commit(bytes);
  return true;
}

void MessageSender::SendSurely(size_t bytes) {
  while (open() && !Send(bytes)) engine_->Poll();
  if (open()) connection_->Flush();
}

absl::StatusOr<Figures> MessageSender::Run(const Cell& cell, double seconds) {
  CoreOf(*engine_).Enter();
  Figures figures;
  if (cell.outstanding == 1) {
    figures = OneByOne(cell, seconds);
  } else {
    figures.per_s = Rate(cell, seconds);
  }
  SendSurely(OverBytes(cell));
  CoreOf(*engine_).Leave();
  WEFT_RETURN_IF_ERROR(status_);
  return figures;
}

Figures MessageSender::OneByOne(const Cell& cell, double seconds) {
  LatencyHistogram latency;
  const RunClock run(seconds);
  uint64_t start_ns = Clock::Real().NowNs();
  while (open() && !(run.IsOver(start_ns) && latency.count() > 0)) {
    const uint64_t confirmed = confirmations_;
    SendSurely(cell.bytes);
    while (open() && confirmations_ == confirmed) engine_->Poll();
    const uint64_t end_ns = Clock::Real().NowNs();
    if (run.IsCounted(start_ns)) latency.Record(end_ns - start_ns);
    start_ns = end_ns;
  }
  return FiguresOf(latency);
}

double MessageSender::Rate(const Cell& cell, double seconds) {
  RateCounter rate(seconds, cell.outstanding);
  const uint32_t group = ConfirmEvery(cell);
  uint64_t outstanding = 0;
  uint64_t sent = 0;
  const auto poll = [&] {
    const uint64_t confirmed_before = confirmations_;
    engine_->Poll();
    const uint64_t ended = (confirmations_ - confirmed_before) * group;
    outstanding -= ended;
    rate.Add(ended);
  };
  while (open() && rate.Continue()) {
    while (outstanding < cell.outstanding && Send(cell.bytes)) {
      ++outstanding;
      ++sent;
    }
    poll();
  }
  const double per_second = rate.PerSecond();
  // In whole groups: so that all of them are confirmed, and have arrived.
  for (; open() && sent % group != 0; ++sent, ++outstanding) {
    while (open() && !Send(cell.bytes)) poll();
  }
  while (open() && outstanding > 0) poll();
  return per_second;
}

void MessageSender::Rest() {
  CoreOf(*engine_).Enter();
  PollWhileBusy(*engine_);
  CoreOf(*engine_).Leave();
}

}  // namespace weft::bench
