// ServerStats as a server's engine counts them: its handlers' threads, and those of other engines,
// may read them at any time.
//
// Threads: counted by the engine's; AddTo() any.
#pragma once

#include <cstdint>

#include "core/tally.h"
#include "rpc/server/server.h"

namespace weft {

struct ServerTallies {
  Tally<uint64_t> requests;
  Tally<uint64_t> ended;  // of them; not in ServerStats, where `running` is what is left
  Tally<uint64_t> replies_ok;
  Tally<uint64_t> replies_failed;
  Tally<uint64_t> refused;
  Tally<uint64_t> one_way;
  Tally<uint64_t> one_way_failed;
  Tally<uint64_t> one_way_dropped;
  Tally<uint64_t> denied;
  Tally<uint64_t> refused_by_client_limit;
  Tally<uint64_t> refused_by_method_limit;
  Tally<uint64_t> refused_by_adaptive_limit;
  Tally<uint32_t> adaptive_limit;
  Tally<uint64_t> protocol_errors;
  Tally<uint32_t> connections;
  Tally<uint64_t> running_bytes;
  Tally<uint64_t> unsent_reply_bytes;
  Tally<uint64_t> slow_readers;
  Tally<uint64_t> told_idle;
  Tally<uint32_t> peers;
  Tally<uint64_t> repeated;
  Tally<uint64_t> record_bytes;
  Tally<uint32_t> sessions;

  // Calls that have begun and not ended.
  uint32_t running() const {
    // In this order, so that one that ends meanwhile does not make it negative.
    const uint64_t over = ended;
    return static_cast<uint32_t>(requests - over);
  }

  void AddTo(ServerStats* sum) const {
    sum->running += running();
    sum->requests += requests;
    sum->replies_ok += replies_ok;
    sum->replies_failed += replies_failed;
    sum->refused += refused;
    sum->one_way += one_way;
    sum->one_way_failed += one_way_failed;
    sum->one_way_dropped += one_way_dropped;
    sum->denied += denied;
    sum->refused_by_client_limit += refused_by_client_limit;
    sum->refused_by_method_limit += refused_by_method_limit;
    sum->refused_by_adaptive_limit += refused_by_adaptive_limit;
    sum->adaptive_limit += adaptive_limit;
    sum->protocol_errors += protocol_errors;
    sum->connections += connections;
    sum->running_bytes += running_bytes;
    sum->unsent_reply_bytes += unsent_reply_bytes;
    sum->slow_readers += slow_readers;
    sum->told_idle += told_idle;
    sum->peers += peers;
    sum->repeated += repeated;
    sum->record_bytes += record_bytes;
    sum->sessions += sessions;
  }
};

}  // namespace weft
