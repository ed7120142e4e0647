// What a program in C gives to Weft, its memory and its log, and what it is told in turn: numbers.
// Read weft/c.h first; weft_engine_options has the clock, and a log for each instance;
// weft/c_server.h has the executor.
//
//   weft_memory_hooks hooks = {.struct_size = sizeof(hooks), .take = take, .give = give};
//   weft_log log = {.struct_size = sizeof(log), .write = write};
//   weft_memory_set_hooks(&hooks);                        // before all else
//   weft_log_set(&log);
//   ...
//   weft_server_metrics(server, print, stdout);           // print(stdout, "server.running", 3),
//   ...
//
// Threads: the functions here, any; the program's own as said at each.
// Lifetime: what is given here is copied. What a function of the program is given counts until it
//   returns.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "weft/c.h"
#include "weft/c_server.h"

#ifdef __cplusplus
extern "C" {
#endif

// --- memory: the program's allocator for what Weft takes in blocks ------------------------------

// What a block is for. weft/memory.h has what else there is that does not pass here.
enum {
  WEFT_MEMORY_OBJECTS = 0,  // connections, and what else there is one of for each
  WEFT_MEMORY_TABLES = 1,   // made for the most that may be, and filled as needed
  WEFT_MEMORY_SLOTS = 2,    // of small messages
  WEFT_MEMORY_BUFFERS = 3,  // of large messages; buffers, and exports that are not shared
  WEFT_MEMORY_SHARED = 4    // what peers map: it comes from the kernel, and is counted only
};

// Called on any thread, on several at once. They call nothing of Weft, and stay until the process
// ends, as `arg` does.
typedef struct weft_memory_hooks {
  size_t struct_size;
  // `bytes` at a multiple of `alignment`, a power of two of up to 2 MiB; for WEFT_MEMORY_SLOTS and
  // WEFT_MEMORY_BUFFERS zeros, since peers may see what is left there. NULL: there is no memory.
  // What has asked then ends with RESOURCE_EXHAUSTED if it is a buffer or a connection over RDMA;
  // and the process ends if it is of WEFT_MEMORY_OBJECTS or _TABLES (weft/memory.h has the rest).
  void* (*take)(void* arg, size_t bytes, size_t alignment, int kind);
  // What take() gave for the same numbers.
  void (*give)(void* arg, void* memory, size_t bytes, size_t alignment, int kind);
  void* arg;
} weft_memory_hooks;

// For the whole process, and once. FAILED_PRECONDITION: there are hooks, or an engine, a channel or
// a server is there, or was.
weft_status* weft_memory_set_hooks(const weft_memory_hooks* hooks);

// --- log: what Weft has to say ------------------------------------------------------------------

enum { WEFT_LOG_DEBUG = 1, WEFT_LOG_INFO = 2, WEFT_LOG_WARNING = 3, WEFT_LOG_ERROR = 4 };

typedef struct weft_log_record {
  size_t struct_size;  // of what there is: fields that are added stand behind it
  int32_t level;
  int32_t line;
  const char* file;  // of Weft's source
  const char* text;  // one line, without its end, of at most 4 KiB
} weft_log_record;

struct weft_log {
  size_t struct_size;
  // On any thread; for each engine, or for the process, one at a time. Calls no function of Weft
  // that may log: what it logs is dropped.
  void (*write)(void* arg, const weft_log_record* record);
  void* arg;
  int32_t min_level;  // what is below is dropped, and not made; 0: WEFT_LOG_INFO
  uint32_t reserved;  // 0
};

// The process's: of all that is not said in the turns of an engine with a log of its own
// (weft_engine_options.log, weft_server_options.log). NULL: silence. Until then warnings and errors
// go to stderr, some of each kind, or what WEFT_LOG in the environment says ("off": none). When
// this returns write() of the one before is not running, and is not called again. REQUIRES: not
// inside a write().
weft_status* weft_log_set(const weft_log* log);

// --- metrics: what was counted ------------------------------------------------------------------

// One number. Names are lower case, with dots: "channel.calls_ok".
typedef void (*weft_metric)(void* arg, const char* name, uint64_t value);

// Each calls `each` for every number there is, on this thread, before it returns. More names may
// come with later versions. They wait for the engine, and are not for the way of each call.
//
// What the engine has done: "path.opened.shm", "path.rejected.verbs", "engine.wakes" and others, by
// name in order; those that have a value.
weft_status* weft_engine_metrics(weft_engine* engine, weft_metric each, void* arg);
// "channel." and the names of ChannelStats (weft/channel.h): calls_started, calls_ok, calls_failed,
// deadlines_exceeded, late_replies, connects, connect_failures, retries, hedges, retries_refused;
// and, now: outstanding, abandoned, queued, streams.
weft_status* weft_channel_metrics(weft_channel* channel, weft_metric each, void* arg);
// "server." and the names of ServerStats (weft/server.h): requests, replies_ok, replies_failed,
// refused, one_way, one_way_failed, one_way_dropped, denied, protocol_errors, slow_readers,
// told_idle, repeated; and, now: connections, running, running_bytes, unsent_reply_bytes,
// record_bytes, sessions.
weft_status* weft_server_metrics(weft_server* server, weft_metric each, void* arg);
// Of the process: "memory.total.bytes", now, and "memory.total.peak_bytes", and the same of each
// kind: objects, tables, slots, buffers, shared.
weft_status* weft_memory_metrics(weft_metric each, void* arg);

#ifdef __cplusplus
}  // extern "C"
#endif
