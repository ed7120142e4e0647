// Weft for programs in C, and in every language that calls C: channels, calls, engines.
// weft/c_server.h has servers, weft/c_stream.h streams, weft/c_memory.h remote memory; and
// weft/c_host.h what a program gives to Weft, and what it is told: memory, log, metrics.
//
//   weft_channel* channel;
//   weft_method get;
//   weft_message* reply = weft_message_new();
//   weft_call_options options = {.struct_size = sizeof(options), .timeout_us = 1000000};
//   weft_status* status = weft_channel_open(NULL, "db7:4711", NULL, &channel);
//   if (status == NULL)
//     status = weft_channel_method(channel, "kv.Kv", "Get", WEFT_UNARY, WEFT_NO_SIDE_EFFECTS,
//                                  &get);
//   if (status == NULL)
//     status = weft_call(channel, get, (weft_bytes){key, key_size}, &options, reply);
//   if (status == NULL) Use(weft_message_bytes(reply));
//   else fprintf(stderr, "%s\n", weft_status_message(status));
//   weft_status_free(status);
//   weft_message_free(reply);
//   weft_status_free(weft_channel_free(channel));
//
// A call carries bytes. Weft does not look into them: they may be encoded protobuf, and then the
// other side may be a program of generated C++ code, or anything else that both sides understand.
//
// Copies: a request is copied once, into the memory that it is sent from, as the bytes of a C++
//   message are; a reply is copied once, out of the memory that it was received in.
// Objects: a handle is made by a function that stands beside its `_free`. What is made of a channel
//   (streams, buffers, remote memory) is freed before the channel, and what is on an engine before
//   the engine: freeing one too early is refused, and says what is left.
// Strings: bytes of UTF-8 with a zero byte behind them. Functions copy what they keep.
// Times are in microseconds (`_us`), sizes in bytes, if nothing else is said. Flags are 0 or 1.
// Options: NULL is all defaults. Else set everything to zero, which is the default of each field
//   whatever it is, and struct_size to sizeof the struct: so a program that was built with an older
//   header goes on working when fields are added behind. A struct_size that this library does not
//   know (larger than its own), or that is no multiple of 8, is refused.
// Threads: any, several at once, where nothing else is said. Callbacks run on the engine's thread,
//   one after the other: they do not block. What would wait for that engine is refused in them, and
//   nothing happens: to free it, or a channel, a server, an export or remote memory on it.
// Errors: a function that can fail returns a weft_status, which is NULL if it went well, and else
//   the caller's to free; the out parameter is then NULL or 0. NULL in the place of an object or of
//   an out parameter is INVALID_ARGUMENT, or does nothing where there is no status; every `_free`
//   takes NULL. Undefined, as in C: pointers that are none, objects that were freed.
// Exceptions and signals: none leaves the library. Out of memory may end the process
//   (weft/c_host.h, weft_memory_hooks, says when it does).
// fork(): in a child calls by what the parent has made end with FAILED_PRECONDITION, and `_free`
//   tells nobody anything. What the child makes itself works, over shared memory and tcp
//   (docs/guide.md, "Processes that fork").
// ABI: libweft_c.so.1. What stands here does not change but for fields behind the last one of
//   options, new functions, and new values.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_status weft_status;
typedef struct weft_engine weft_engine;
typedef struct weft_channel weft_channel;
typedef struct weft_message weft_message;
typedef struct weft_context weft_context;
typedef struct weft_log weft_log;  // weft/c_host.h

// Somebody else's bytes. {NULL, 0} is empty.
typedef struct weft_bytes {
  const void* data;
  size_t size;
} weft_bytes;

typedef void (*weft_task)(void* arg);
// `status`: NULL, or the callback's to free.
typedef void (*weft_done)(void* arg, weft_status* status);

// --- status: how something ended ----------------------------------------------------------------

// Codes, as gRPC numbers them. docs/errors.md says what each means, and what to do next.
enum {
  WEFT_OK = 0,
  WEFT_CANCELLED = 1,
  WEFT_UNKNOWN = 2,
  WEFT_INVALID_ARGUMENT = 3,
  WEFT_DEADLINE_EXCEEDED = 4,
  WEFT_NOT_FOUND = 5,
  WEFT_ALREADY_EXISTS = 6,
  WEFT_PERMISSION_DENIED = 7,
  WEFT_RESOURCE_EXHAUSTED = 8,
  WEFT_FAILED_PRECONDITION = 9,
  WEFT_ABORTED = 10,
  WEFT_OUT_OF_RANGE = 11,
  WEFT_UNIMPLEMENTED = 12,
  WEFT_INTERNAL = 13,
  WEFT_UNAVAILABLE = 14,
  WEFT_DATA_LOSS = 15,
  WEFT_UNAUTHENTICATED = 16
};

// Whether the call that an error has ended may have run (weft/status.h).
enum { WEFT_DELIVERY_UNKNOWN = 0, WEFT_NOT_SENT = 1, WEFT_MAY_HAVE_RUN = 2 };

// For handlers. NULL for WEFT_OK; a code that is none becomes WEFT_UNKNOWN. `message`: NULL is "".
weft_status* weft_status_new(int code, const char* message);
int weft_status_code(const weft_status* status);             // NULL: WEFT_OK
const char* weft_status_message(const weft_status* status);  // until the free; NULL: ""
int weft_status_delivery(const weft_status* status);
void weft_status_free(weft_status* status);

// --- security: what this side proves, and wants to see ------------------------------------------

// SecurityOptions of C++; admit_anonymous_clients is the opposite of its
// require_client_certificate. docs/guide.md, "TLS", has a table of what each field is for.
typedef struct weft_security {
  size_t struct_size;
  // Certificates: names of PEM files, which are read again when they change.
  const char* certificate_file;
  const char* key_file;
  const char* roots_file;
  const char* server_name;
  const char* expected_uri;
  // Or a secret that both sides have: its name, and 32 to 256 random bytes.
  const char* psk_name;
  weft_bytes psk_secret;
  uint32_t admit_anonymous_clients;  // servers: a client need not show a certificate
  uint32_t require_encryption;       // of one-sided operations between hosts, too
  uint32_t kernel_tls;               // over tcp the kernel makes the records, where it can; no card
                                     // that encrypts was tried (docs/security.md)
  uint32_t reserved;                 // 0
  // In the place of the three files: PEM texts, which are copied, and do not change. A file and a
  // text of the same thing are INVALID_ARGUMENT.
  weft_bytes certificate_pem;
  weft_bytes key_pem;
  weft_bytes roots_pem;
} weft_security;

// --- engine: who does the work ------------------------------------------------------------------

enum { WEFT_OWN_THREAD = 1, WEFT_CALLER = 2, WEFT_EXTERNAL = 3 };

typedef struct weft_engine_options {
  size_t struct_size;
  // WEFT_OWN_THREAD (default): a thread of Weft. WEFT_CALLER: whoever blocks in a call, or polls.
  // WEFT_EXTERNAL: the program's event loop, on the thread that made the engine or adopted it.
  int32_t drive;
  int32_t inbox_slots;  // tasks of other threads: a power of two, 16 to 65536; default 4096
  const char* name;     // of the thread, at most 15 characters
  uint64_t spin_ns;     // how long to poll before sleeping; default 50,000; UINT64_MAX: for ever
  uint32_t no_spin;     // sleeps at once; spin_ns is 0 then
  uint32_t reserved;    // 0
  // The program's clock, for deadlines and timers: nanoseconds since whenever, and never fewer than
  // a thread has seen before. Asked on any thread, in every turn, until weft_engine_free() has
  // returned. NULL: the kernel's monotonic clock. Threads sleep by that one in any case.
  uint64_t (*now_ns)(void* arg);
  void* now_arg;
  // Of what is said in its turns; NULL: weft_log_set()'s. The struct (weft/c_host.h) is copied;
  // write() and its arg stay until weft_engine_free() has returned. Engines that are given the same
  // struct call write() at the same time.
  const weft_log* log;
} weft_engine_options;

weft_status* weft_engine_new(const weft_engine_options* options, weft_engine** engine);
// FAILED_PRECONDITION: a channel, server or export is still on it; nothing has happened then.
// REQUIRES: nobody drives it.
weft_status* weft_engine_free(weft_engine* engine);

// In the program's loop, on one thread (WEFT_EXTERNAL):
//
//   for (;;) {
//     int may_sleep = weft_engine_poll(engine, 0) == 0 && weft_engine_arm(engine);
//     epoll_wait(...);   // on weft_engine_fd() for reading, and on the program's own: at most
//                        // weft_engine_timeout_ms(), or 0 if it may not sleep
//   }
//
// One turn: callbacks run inside, and what was sent leaves. Returns how much there was to do; 0
// also when this thread may not drive. `budget`: how much at most; 0: 64. WEFT_CALLER: any thread.
int weft_engine_poll(weft_engine* engine, int budget);
// Readable when something has come, or another thread has begun or posted something; not for what
// the loop's own thread does: so the loop comes by the two above each time before it sleeps.
int weft_engine_fd(const weft_engine* engine);  // -1: not WEFT_EXTERNAL
int weft_engine_arm(weft_engine* engine);       // 0: do not sleep, poll
// Until the next timer: -1: there is none; in milliseconds rounded up, as poll(2) takes it.
int weft_engine_timeout_ms(const weft_engine* engine);
int64_t weft_engine_timeout_ns(const weft_engine* engine);
// WEFT_EXTERNAL: this thread owns it from now on. Before others use it.
void weft_engine_adopt(weft_engine* engine);
// `task` runs on the engine's thread, soon. RESOURCE_EXHAUSTED: the inbox is full, it will not run.
weft_status* weft_engine_post(weft_engine* engine, weft_task task, void* arg);
// Drives the engine on this thread until done(arg) is not 0, or for `timeout_us` (UINT64_MAX: for
// ever). Returns what done() said last. Not WEFT_OWN_THREAD, and not in a callback: 0 at once.
int weft_engine_run_until(weft_engine* engine, int (*done)(void* arg), void* arg,
                          uint64_t timeout_us);

// --- channel: a client's handle to the services at one address ----------------------------------

typedef struct weft_channel_options {
  size_t struct_size;
  const weft_security* security;    // NULL: plain bytes
  const char* paths;                // "shm,tcp": allowed, in this order; NULL: docs/paths.md
  uint64_t connect_timeout_us;      // default 5 s
  uint64_t default_timeout_us;      // of calls that give none; 0: they have no deadline
  uint64_t max_reply_bytes;         // default and most: 64 MiB
  uint64_t hedge_after_us;          // a call that is slower has a second attempt; 0: never
  uint64_t spin_ns;                 // of a channel without an engine: as the engine's
  uint32_t connect_later;           // the first call connects; weft_channel_open() never waits
  uint32_t max_attempts;            // 1 to 4, of one call; default 1: nothing is sent again
  uint32_t exactly_once;            // methods that are WEFT_ONCE run once; max_attempts > 1
  uint32_t max_outstanding_calls;   // default 256
  uint32_t max_queued_calls;        // that wait for those; default 4096
  uint32_t max_streams;             // default 16384
  uint32_t stream_window_messages;  // what a stream may have sent that nobody has read: 1 to 65535,
  uint32_t stream_window_bytes;     // default 1024; and 1 byte to 64 MiB, default 64 KiB
  uint32_t server_engine;           // of the server's, the 1st to 64th, modulo theirs; 0: any
  uint32_t reserved;                // 0
} weft_channel_options;

// `address`: "host:port", "[v6]:port", "unix:/path". `engine`: NULL: one of its own, which is
// driven by who waits in a call (WEFT_CALLER): between calls nothing happens, and callbacks run
// only while somebody waits or polls. For weft_call_start() give an engine that is
// WEFT_OWN_THREAD or WEFT_EXTERNAL. The errors of calls are those of weft/channel.h.
weft_status* weft_channel_open(weft_engine* engine, const char* address,
                               const weft_channel_options* options, weft_channel** channel);
// What is outstanding ends with CANCELLED; every callback has run when it returns.
// FAILED_PRECONDITION: streams, buffers or remote memory of it are not freed. With WEFT_EXTERNAL it
// drives the engine on its loop's thread; on another one the loop has to go on until it returns.
weft_status* weft_channel_free(weft_channel* channel);
// The engine that it is on; goes with the channel if it is the channel's own.
weft_engine* weft_channel_engine(weft_channel* channel);
// Which path it took and why, who the server is, a line each.
weft_status* weft_channel_explain(weft_channel* channel, weft_message* text);

// Who sends how many messages.
enum {
  WEFT_UNARY = 1,
  WEFT_CLIENT_STREAMING = 2,
  WEFT_SERVER_STREAMING = 3,
  WEFT_BIDI_STREAMING = 4,
  WEFT_ONE_WAY = 5
};
// Whether it may run twice for one call: the .proto file's idempotency_level (none: WEFT_ONCE), the
// same on both sides.
enum { WEFT_ONCE = 0, WEFT_NO_SIDE_EFFECTS = 1, WEFT_IDEMPOTENT = 2 };

// A method as this channel knows it; never 0.
typedef uint32_t weft_method;

// Names a method: `service` with its package ("kv.Kv"). The same names give the same number; ask
// once, not for each call. The server is not asked: a call of a method that it lacks ends with
// UNIMPLEMENTED. RESOURCE_EXHAUSTED: more than 2048 of this channel, or 16384 of this process.
weft_status* weft_channel_method(weft_channel* channel, const char* service, const char* method,
                                 int kind, int idempotency, weft_method* number);

// --- message: bytes that have come --------------------------------------------------------------

// Of replies, and of streams. It may be used again: it keeps its memory. One thread at a time.
weft_message* weft_message_new(void);
weft_bytes weft_message_bytes(const weft_message* message);  // until it is used again, or freed
void weft_message_free(weft_message* message);               // not while a call has it

// --- calls --------------------------------------------------------------------------------------

enum { WEFT_NORMAL = 0, WEFT_CONTROL = 1, WEFT_BACKGROUND = 2 };

typedef struct weft_call_options {
  size_t struct_size;
  uint64_t timeout_us;       // 0: the channel's default_timeout_us
  weft_context* context;     // NULL: none
  int32_t priority;          // WEFT_CONTROL: urgent, few and small; WEFT_BACKGROUND: can wait
  uint32_t wait_for_server;  // without a connection: waits for the next, until its deadline
  uint32_t no_retry;         // is sent once, whatever the channel's options say
  uint32_t reserved;         // 0
} weft_call_options;

// Blocks until the call has ended. `reply` counts if the result is NULL. Of a WEFT_ONE_WAY method:
// until the connection has the message; `reply` is NULL then.
weft_status* weft_call(weft_channel* channel, weft_method method, weft_bytes request,
                       const weft_call_options* options, weft_message* reply);
// Starts one. `request` may go when this returns; `reply` belongs to the call until `done`, which
// runs once, and not inside this function (only if the engine's inbox is full: then it may). An
// error that this returns is a wrong argument: nothing was started, and `done` will not run.
weft_status* weft_call_start(weft_channel* channel, weft_method method, weft_bytes request,
                             const weft_call_options* options, weft_message* reply, weft_done done,
                             void* arg);

// Of one call or stream beside its bytes: metadata both ways, and cancel. Costs half a microsecond.
weft_context* weft_context_new(void);
// Before the call. Keys are 1 to 64 of a-z, 0-9, "-_."; values are printable ASCII, or any bytes if
// the key ends with "-bin". INVALID_ARGUMENT, RESOURCE_EXHAUSTED (8 KiB), FAILED_PRECONDITION.
weft_status* weft_context_add_metadata(weft_context* context, weft_bytes key, weft_bytes value);
// Ends the call with CANCELLED soon, and tells the server. Any thread; after its end: nothing.
weft_status* weft_context_cancel(weft_context* context);
// After the call: entry `index` of what the server has sent. 0: there are not so many.
int weft_context_reply_metadata(const weft_context* context, size_t index, weft_bytes* key,
                                weft_bytes* value);
void weft_context_free(weft_context* context);  // also before the end of its call, which goes on

#ifdef __cplusplus
}  // extern "C"
#endif
