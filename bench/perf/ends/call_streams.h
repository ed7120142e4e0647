// Messages of one stream of the service Perf: there and back one after the other, or in one
// direction, confirmed as those of bare_messages.h are.
//
// Threads: the one that drives the client's engine; the server's engine's.
#pragma once

#include "absl/status/statusor.h"
#include "bench/perf/cell/cell.h"
#include "bench/perf/cell/figures.h"
#include "bench/perf/ends/perf.pb.h"
#include "bench/perf/ends/perf.weft.h"
#include "transport/engine.h"

namespace weft::bench {

// The client's end. `engine` is the stub's, in caller mode.
absl::StatusOr<Figures> RunCallStream(Engine& engine, const Perf::Stub& stub, const Cell& cell,
                                      double seconds);

// The handler of Perf.Talk, on the engine: until the client has written its last message.
void AnswerTalk(ServerReaderWriter<TalkMessage, TalkMessage> stream);

}  // namespace weft::bench
