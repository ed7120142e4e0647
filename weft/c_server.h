// Servers in C: services whose handlers take and give bytes. Read weft/c.h first.
//
//   void Get(void* arg, weft_server_call* call) {
//     weft_bytes request = weft_server_call_request(call);
//     ...
//     weft_server_call_finish(call, NULL, (weft_bytes){value, value_size});
//   }
//
//   weft_server_new(NULL, NULL, &server);
//   weft_service* kv = weft_service_new("kv.Kv");
//   weft_service_add_method(kv, "Get", WEFT_UNARY, WEFT_NO_SIDE_EFFECTS, Get, store);
//   weft_server_add_service(server, kv);
//   weft_server_listen(server, "0.0.0.0:4711");
//   weft_server_wait(server);
//
// A handler runs on the server's engine and does not block, or on threads of the program's
// (weft_executor); it may answer later, on any thread. It has the right and the duty to finish its
// call, exactly once. So a program whose data belongs to threads of its own needs no executor: the
// handler looks at the request, on the engine, and hands the call to the thread that its key names.
//
// Copies: a request is copied once, out of the memory that it was received in, as the fields of a
//   C++ message are. A reply is copied once, into the memory that it is sent from, if it lies in
//   weft_server_call_reserve()'s; and once more before if it does not.
// Threads: any; one at a time for what is done with one call, and for the functions that set a
//   server up.
// Lifetime: `arg` of a handler stays until weft_server_free() has returned. A call, and what its
//   functions have given, is good until it is finished, also when the connection is lost meanwhile
//   (the reply then goes nowhere). Undefined: finishing a call twice, or using it afterwards. A
//   call that is never finished keeps weft_server_shutdown() and weft_server_free() from returning.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "weft/c.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_server weft_server;
typedef struct weft_service weft_service;
typedef struct weft_server_call weft_server_call;

typedef void (*weft_handler)(void* arg, weft_server_call* call);

// --- service ------------------------------------------------------------------------------------

weft_service* weft_service_new(const char* full_name);  // with its package; NULL: full_name was
// `kind`, `idempotency`: as weft_channel_method(). ALREADY_EXISTS; RESOURCE_EXHAUSTED: 4096.
weft_status* weft_service_add_method(weft_service* service, const char* name, int kind,
                                     int idempotency, weft_handler handler, void* arg);
// Of one that no server has taken.
void weft_service_free(weft_service* service);

// --- server -------------------------------------------------------------------------------------

// Threads of the program's that run handlers, which may then be slow, and block; also the blocking
// functions of weft/c_stream.h are for such handlers.
typedef struct weft_executor {
  size_t struct_size;
  // Has task(task_arg) run soon, once, on any thread but not inside of this, and returns 1. 0:
  // there is no room, and it never runs; the caller gets RESOURCE_EXHAUSTED, "not run". Called on
  // the engine's thread: it does not block. Until weft_server_free() has returned, which waits for
  // all tasks, as weft_server_shutdown() does.
  int (*run)(void* arg, weft_task task, void* task_arg);
  void* arg;
} weft_executor;

typedef struct weft_server_options {
  size_t struct_size;
  const char* name;                 // told to clients, stands in their errors
  const weft_security* security;    // NULL: whoever reaches an address is served, in the clear
  const char* paths;                // as weft_channel_options
  const char* policy_file;          // rules, in a file that is watched (docs/guide.md); NULL: all
  uint64_t max_request_bytes;       // default and most: 64 MiB
  uint64_t max_running_bytes;       // of all requests that have no answer; default 1 GiB
  uint64_t max_unsent_reply_bytes;  // of each connection; default 256 MiB
  uint64_t spin_ns;                 // of a server without an engine: as the engine's
  uint32_t max_connections;         // default 1024
  uint32_t max_outstanding_calls;   // of each connection; default 256
  uint32_t max_streams;             // as weft_channel_options
  uint32_t stream_window_messages;
  uint32_t stream_window_bytes;
  uint32_t log_allowed_calls;     // with a policy: the first of each client and method
  const weft_executor* executor;  // of all handlers; NULL: they run on the engine
  const weft_log* log;            // of a server without an engine alone: as the engine's
  // Of one client: who TLS has proved to be the same, else a user of this host, else an address.
  // 0: all but an eighth of max_connections, which is for those that have less than their share.
  // Else at most max_connections. That itself lets one client have everything: nothing is reserved.
  uint32_t max_connections_of_one;
  uint32_t reserved;  // 0
  // So long, in microseconds, or up to a quarter longer, a connection may be without a call, a
  // stream, a one-way message, or a large message under way: 1 s to 24 h. Then its client is asked
  // to leave, and connects again with its next call, which fails where others have taken all of
  // max_connections meanwhile. A connection that has, or ever had, a lease on memory of the
  // server's is never asked. 0: for ever.
  uint64_t idle_timeout_us;
} weft_server_options;

// `engine`: NULL: one of its own, with a thread.
weft_status* weft_server_new(weft_engine* engine, const weft_server_options* options,
                             weft_server** server);
// weft_server_shutdown(server, 0), and the end. FAILED_PRECONDITION: exports of it are not freed,
// or this is a handler on its engine. REQUIRES: nobody is in weft_server_wait(). With WEFT_EXTERNAL
// this, the wait and the shutdown drive the engine on its loop's thread; on another one the loop
// has to go on until they return.
weft_status* weft_server_free(weft_server* server);

// Takes the service, whatever it returns. Before the first weft_server_listen(). ALREADY_EXISTS: it
// has one of that name.
weft_status* weft_server_add_service(weft_server* server, weft_service* service);
// Serves at `address` when this returns NULL; port 0: any free one. May be called again.
weft_status* weft_server_listen(weft_server* server, const char* address);
// Where it listens: the first address, with the port in use. "" before. Until the free.
const char* weft_server_address(const weft_server* server);
// Blocks until the shutdown.
void weft_server_wait(weft_server* server);
// Stops listening, tells all clients to leave, lets calls go on for `grace_us`, and ends the rest:
// they are cancelled. Returns when the last call is finished. Nothing, and a line in the log, in a
// handler on the server's engine, which these two would wait for.
void weft_server_shutdown(weft_server* server, uint64_t grace_us);
// Its engine; goes with the server if it is the server's own.
weft_engine* weft_server_engine(weft_server* server);

// --- one call -----------------------------------------------------------------------------------

weft_bytes weft_server_call_request(const weft_server_call* call);

// Room for a reply of `size` bytes, whose contents are undefined. A second one takes the place of
// the first. NULL: it is of a method without a single reply, or more than 64 MiB.
void* weft_server_call_reserve(weft_server_call* call, size_t size);

// Ends the call: with `reply`, or with the error `status`, which this takes. Never waits.
void weft_server_call_finish(weft_server_call* call, weft_status* status, weft_bytes reply);

// Nobody waits for the reply any more: the caller has cancelled, its deadline has passed, its
// connection is gone, or the server ends.
int weft_server_call_cancelled(const weft_server_call* call);
// `task` runs once when that happens, on the engine's thread (inside this if it has happened), but
// not when the call is finished first; it may then still be running, if it was finished on another
// thread. It may finish the call. Before the handler has returned.
void weft_server_call_on_cancel(weft_server_call* call, weft_task task, void* arg);
// Until the caller's deadline; UINT64_MAX: it has none.
uint64_t weft_server_call_remaining_us(const weft_server_call* call);
int weft_server_call_priority(const weft_server_call* call);

// Entry `index` of what the caller has sent beside the request. 0: there are not so many.
int weft_server_call_metadata(const weft_server_call* call, size_t index, weft_bytes* key,
                              weft_bytes* value);
// Travels with the reply or the error. The errors of weft_context_add_metadata().
weft_status* weft_server_call_add_reply_metadata(weft_server_call* call, weft_bytes key,
                                                 weft_bytes value);

// Who calls. Of what is not known, and behind the last one, {NULL, 0}.
enum {
  WEFT_PEER_ADDRESS = 1,   // "10.0.0.7:35100", as the kernel says
  WEFT_PEER_PATH = 2,      // "shm", "verbs", "tcp", "ofi_tcp"
  WEFT_PEER_SUBJECT = 3,   // of its certificate, which was checked: "CN=store-7"
  WEFT_PEER_DNS_NAME = 4,  // the certificate's, `index` 0, 1, ...
  WEFT_PEER_URI = 5,       // the same
  WEFT_PEER_PSK_NAME = 6   // of the secret that it has
};
weft_bytes weft_server_call_peer(const weft_server_call* call, int what, size_t index);

// For a call that the handler makes to answer its own: it is cancelled with that, has its deadline
// at the latest, and carries its trace on.
weft_context* weft_context_from_call(weft_server_call* call);

#ifdef __cplusplus
}  // extern "C"
#endif
