// weft/c_host.h: a host's memory and log, and what it is told.
#include "c/host.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "c/channel.h"
#include "c/engine.h"
#include "c/server.h"
#include "c/status.h"
#include "core/counters.h"
#include "core/log.h"
#include "core/memory_hooks.h"
#include "core/status.h"
#include "core/strings.h"
#include "weft/c_host.h"

namespace weft::c {
namespace {

static_assert(static_cast<int>(MemoryKind::kObjects) == WEFT_MEMORY_OBJECTS);
static_assert(static_cast<int>(MemoryKind::kTables) == WEFT_MEMORY_TABLES);
static_assert(static_cast<int>(MemoryKind::kSlots) == WEFT_MEMORY_SLOTS);
static_assert(static_cast<int>(MemoryKind::kBuffers) == WEFT_MEMORY_BUFFERS);
static_assert(static_cast<int>(MemoryKind::kShared) == WEFT_MEMORY_SHARED);
static_assert(kMemoryKinds == 5, "weft/c_host.h has them, too");

static_assert(static_cast<int>(LogLevel::kDebug) == WEFT_LOG_DEBUG);
static_assert(static_cast<int>(LogLevel::kInfo) == WEFT_LOG_INFO);
static_assert(static_cast<int>(LogLevel::kWarning) == WEFT_LOG_WARNING);
static_assert(static_cast<int>(LogLevel::kError) == WEFT_LOG_ERROR);

// --- memory -------------------------------------------------------------------------------------

void* Take(size_t bytes, size_t alignment, MemoryKind kind, void* context) {
  const auto& hooks = *static_cast<const weft_memory_hooks*>(context);
  return hooks.take(hooks.arg, bytes, alignment, static_cast<int>(kind));
}

void Give(void* memory, size_t bytes, size_t alignment, MemoryKind kind, void* context) {
  const auto& hooks = *static_cast<const weft_memory_hooks*>(context);
  hooks.give(hooks.arg, memory, bytes, alignment, static_cast<int>(kind));
}

absl::Status SetHooks(const weft_memory_hooks& given) {
  weft_memory_hooks from;
  WEFT_RETURN_IF_ERROR(ReadOptions("weft_memory_hooks", &given, &from));
  if (from.take == nullptr || from.give == nullptr) {
    return absl::InvalidArgumentError("weft_memory_hooks: take or give is NULL; both are needed");
  }
  auto kept = std::make_unique<weft_memory_hooks>(from);
  WEFT_RETURN_IF_ERROR(SetMemoryHooks({.take = Take, .give = Give, .context = kept.get()}));
  kept.release();  // for ever, as blocks may be
  return absl::OkStatus();
}

// --- log ----------------------------------------------------------------------------------------

void Write(const weft_log& log, const LogRecord& record) {
  const std::string file(record.file);
  const std::string text(record.text);
  weft_log_record to = {};
  to.struct_size = sizeof(to);
  to.level = static_cast<int32_t>(record.level);
  to.line = record.line;
  to.file = file.c_str();
  to.text = text.c_str();
  log.write(log.arg, &to);
}

// --- metrics ------------------------------------------------------------------------------------

void Tell(const ChannelStats& stats, weft_metric each, void* arg) {
  each(arg, "channel.calls_started", stats.calls_started);
  each(arg, "channel.calls_ok", stats.calls_ok);
  each(arg, "channel.calls_failed", stats.calls_failed);
  each(arg, "channel.deadlines_exceeded", stats.deadlines_exceeded);
  each(arg, "channel.late_replies", stats.late_replies);
  each(arg, "channel.connects", stats.connects);
  each(arg, "channel.connect_failures", stats.connect_failures);
  each(arg, "channel.retries", stats.retries);
  each(arg, "channel.hedges", stats.hedges);
  each(arg, "channel.retries_refused", stats.retries_refused);
  each(arg, "channel.outstanding", stats.outstanding);
  each(arg, "channel.abandoned", stats.abandoned);
  each(arg, "channel.queued", stats.queued);
  each(arg, "channel.streams", stats.streams);
}

void Tell(const ServerStats& stats, weft_metric each, void* arg) {
  each(arg, "server.requests", stats.requests);
  each(arg, "server.replies_ok", stats.replies_ok);
  each(arg, "server.replies_failed", stats.replies_failed);
  each(arg, "server.refused", stats.refused);
  each(arg, "server.one_way", stats.one_way);
  each(arg, "server.one_way_failed", stats.one_way_failed);
  each(arg, "server.one_way_dropped", stats.one_way_dropped);
  each(arg, "server.denied", stats.denied);
  each(arg, "server.protocol_errors", stats.protocol_errors);
  each(arg, "server.slow_readers", stats.slow_readers);
  each(arg, "server.told_idle", stats.told_idle);
  each(arg, "server.repeated", stats.repeated);
  each(arg, "server.connections", stats.connections);
  each(arg, "server.running", stats.running);
  each(arg, "server.running_bytes", stats.running_bytes);
  each(arg, "server.unsent_reply_bytes", stats.unsent_reply_bytes);
  each(arg, "server.record_bytes", stats.record_bytes);
  each(arg, "server.sessions", stats.sessions);
}

void Tell(std::string_view of, const MemoryAmount& amount, weft_metric each, void* arg) {
  each(arg, StrCat("memory.", of, ".bytes").c_str(), amount.bytes);
  each(arg, StrCat("memory.", of, ".peak_bytes").c_str(), amount.peak_bytes);
}

}  // namespace

absl::StatusOr<HostLog> ReadHostLog(const weft_log& given) {
  weft_log from;
  WEFT_RETURN_IF_ERROR(ReadOptions("weft_log", &given, &from));
  WEFT_RETURN_IF_ERROR(CheckReserved("weft_log", from.reserved));
  if (from.write == nullptr) return absl::InvalidArgumentError("weft_log: write is NULL");
  if (from.min_level < 0 || from.min_level > WEFT_LOG_ERROR) {
    return absl::InvalidArgumentError(StrCat("weft_log: min_level is ", from.min_level,
                                             "; it is WEFT_LOG_DEBUG to WEFT_LOG_ERROR: 1 to 4"));
  }
  return HostLog{[from](const LogRecord& record) { Write(from, record); },
                 static_cast<LogLevel>(from.min_level != 0 ? from.min_level : WEFT_LOG_INFO)};
}

absl::Status ReadLog(const weft_log* given, std::optional<Log>* log, Log** to) {
  if (given == nullptr) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(HostLog read, ReadHostLog(*given));
  *to = &log->emplace(std::move(read.sink), read.min_level);
  return absl::OkStatus();
}

namespace {

absl::Status SetLog(const weft_log* given) {
  if (given == nullptr) {
    SetLogSink(nullptr);
    return absl::OkStatus();
  }
  WEFT_ASSIGN_OR_RETURN(HostLog log, ReadHostLog(*given));
  SetLogSink(std::move(log.sink), log.min_level);
  return absl::OkStatus();
}

}  // namespace
}  // namespace weft::c

weft_status* weft_memory_set_hooks(const weft_memory_hooks* hooks) {
  WEFT_C_REQUIRE(hooks);
  return weft::c::ToC(weft::c::SetHooks(*hooks));
}

weft_status* weft_log_set(const weft_log* log) { return weft::c::ToC(weft::c::SetLog(log)); }

weft_status* weft_engine_metrics(weft_engine* engine, weft_metric each, void* arg) {
  WEFT_C_REQUIRE(engine);
  WEFT_C_REQUIRE(each);
  for (const auto& [name, value] : engine->engine->counters().Snapshot()) {
    each(arg, name.c_str(), value);
  }
  return nullptr;
}

weft_status* weft_channel_metrics(weft_channel* channel, weft_metric each, void* arg) {
  WEFT_C_REQUIRE(channel);
  WEFT_C_REQUIRE(each);
  weft::c::Tell(channel->channel->stats(), each, arg);
  return nullptr;
}

weft_status* weft_server_metrics(weft_server* server, weft_metric each, void* arg) {
  WEFT_C_REQUIRE(server);
  WEFT_C_REQUIRE(each);
  weft::c::Tell(server->server->stats(), each, arg);
  return nullptr;
}

weft_status* weft_memory_metrics(weft_metric each, void* arg) {
  WEFT_C_REQUIRE(each);
  const weft::MemoryReport report = weft::MemoryUsage();
  weft::c::Tell("total", report.total, each, arg);
  weft::c::Tell("objects", report.of(weft::MemoryKind::kObjects), each, arg);
  weft::c::Tell("tables", report.of(weft::MemoryKind::kTables), each, arg);
  weft::c::Tell("slots", report.of(weft::MemoryKind::kSlots), each, arg);
  weft::c::Tell("buffers", report.of(weft::MemoryKind::kBuffers), each, arg);
  weft::c::Tell("shared", report.of(weft::MemoryKind::kShared), each, arg);
  return nullptr;
}
