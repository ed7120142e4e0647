// The C interface as it was first, on 2026-11-25: what weft/c.h, c_server.h, c_stream.h and
// c_memory.h declared, in this order, without their comments. A program that was built with them
// goes on working with today's library, which is what c/older_test.c is for. So nothing is changed
// here.
#pragma once

#include <stddef.h>
#include <stdint.h>

// --- weft/c.h ------------------------------------------------------------------------------------

typedef struct weft_status weft_status;
typedef struct weft_engine weft_engine;
typedef struct weft_channel weft_channel;
typedef struct weft_message weft_message;
typedef struct weft_context weft_context;
typedef struct weft_bytes {
  const void* data;
  size_t size;
} weft_bytes;
typedef void (*weft_task)(void* arg);
typedef void (*weft_done)(void* arg, weft_status* status);
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
enum { WEFT_DELIVERY_UNKNOWN = 0, WEFT_NOT_SENT = 1, WEFT_MAY_HAVE_RUN = 2 };
weft_status* weft_status_new(int code, const char* message);
int weft_status_code(const weft_status* status);
const char* weft_status_message(const weft_status* status);
int weft_status_delivery(const weft_status* status);
void weft_status_free(weft_status* status);
typedef struct weft_security {
  size_t struct_size;
  const char* certificate_file;
  const char* key_file;
  const char* roots_file;
  const char* server_name;
  const char* expected_uri;
  const char* psk_name;
  weft_bytes psk_secret;
  uint32_t admit_anonymous_clients;
  uint32_t require_encryption;
} weft_security;
enum { WEFT_OWN_THREAD = 1, WEFT_CALLER = 2, WEFT_EXTERNAL = 3 };
typedef struct weft_engine_options {
  size_t struct_size;
  int32_t drive;
  int32_t inbox_slots;
  const char* name;
  uint64_t spin_ns;
  uint32_t no_spin;
  uint32_t reserved;
} weft_engine_options;
weft_status* weft_engine_new(const weft_engine_options* options, weft_engine** engine);
weft_status* weft_engine_free(weft_engine* engine);
int weft_engine_poll(weft_engine* engine, int budget);
int weft_engine_fd(const weft_engine* engine);
int weft_engine_arm(weft_engine* engine);
int weft_engine_timeout_ms(const weft_engine* engine);
int64_t weft_engine_timeout_ns(const weft_engine* engine);
void weft_engine_adopt(weft_engine* engine);
weft_status* weft_engine_post(weft_engine* engine, weft_task task, void* arg);
int weft_engine_run_until(weft_engine* engine, int (*done)(void* arg), void* arg,
                          uint64_t timeout_us);
typedef struct weft_channel_options {
  size_t struct_size;
  const weft_security* security;
  const char* paths;
  uint64_t connect_timeout_us;
  uint64_t default_timeout_us;
  uint64_t max_reply_bytes;
  uint64_t hedge_after_us;
  uint64_t spin_ns;
  uint32_t connect_later;
  uint32_t max_attempts;
  uint32_t exactly_once;
  uint32_t max_outstanding_calls;
  uint32_t max_queued_calls;
  uint32_t max_streams;
  uint32_t stream_window_messages;
  uint32_t stream_window_bytes;
} weft_channel_options;
weft_status* weft_channel_open(weft_engine* engine, const char* address,
                               const weft_channel_options* options, weft_channel** channel);
weft_status* weft_channel_free(weft_channel* channel);
weft_engine* weft_channel_engine(weft_channel* channel);
weft_status* weft_channel_explain(weft_channel* channel, weft_message* text);
enum {
  WEFT_UNARY = 1,
  WEFT_CLIENT_STREAMING = 2,
  WEFT_SERVER_STREAMING = 3,
  WEFT_BIDI_STREAMING = 4,
  WEFT_ONE_WAY = 5
};
enum { WEFT_ONCE = 0, WEFT_NO_SIDE_EFFECTS = 1, WEFT_IDEMPOTENT = 2 };
typedef uint32_t weft_method;
weft_status* weft_channel_method(weft_channel* channel, const char* service, const char* method,
                                 int kind, int idempotency, weft_method* number);
weft_message* weft_message_new(void);
weft_bytes weft_message_bytes(const weft_message* message);
void weft_message_free(weft_message* message);
enum { WEFT_NORMAL = 0, WEFT_CONTROL = 1, WEFT_BACKGROUND = 2 };
typedef struct weft_call_options {
  size_t struct_size;
  uint64_t timeout_us;
  weft_context* context;
  int32_t priority;
  uint32_t wait_for_server;
  uint32_t no_retry;
  uint32_t reserved;
} weft_call_options;
weft_status* weft_call(weft_channel* channel, weft_method method, weft_bytes request,
                       const weft_call_options* options, weft_message* reply);
weft_status* weft_call_start(weft_channel* channel, weft_method method, weft_bytes request,
                             const weft_call_options* options, weft_message* reply, weft_done done,
                             void* arg);
weft_context* weft_context_new(void);
weft_status* weft_context_add_metadata(weft_context* context, weft_bytes key, weft_bytes value);
weft_status* weft_context_cancel(weft_context* context);
int weft_context_reply_metadata(const weft_context* context, size_t index, weft_bytes* key,
                                weft_bytes* value);
void weft_context_free(weft_context* context);

// --- weft/c_server.h -----------------------------------------------------------------------------

typedef struct weft_server weft_server;
typedef struct weft_service weft_service;
typedef struct weft_server_call weft_server_call;
typedef void (*weft_handler)(void* arg, weft_server_call* call);
weft_service* weft_service_new(const char* full_name);
weft_status* weft_service_add_method(weft_service* service, const char* name, int kind,
                                     int idempotency, weft_handler handler, void* arg);
void weft_service_free(weft_service* service);
typedef struct weft_server_options {
  size_t struct_size;
  const char* name;
  const weft_security* security;
  const char* paths;
  const char* policy_file;
  uint64_t max_request_bytes;
  uint64_t max_running_bytes;
  uint64_t max_unsent_reply_bytes;
  uint64_t spin_ns;
  uint32_t max_connections;
  uint32_t max_outstanding_calls;
  uint32_t max_streams;
  uint32_t stream_window_messages;
  uint32_t stream_window_bytes;
  uint32_t log_allowed_calls;
} weft_server_options;
weft_status* weft_server_new(weft_engine* engine, const weft_server_options* options,
                             weft_server** server);
weft_status* weft_server_free(weft_server* server);
weft_status* weft_server_add_service(weft_server* server, weft_service* service);
weft_status* weft_server_listen(weft_server* server, const char* address);
const char* weft_server_address(const weft_server* server);
void weft_server_wait(weft_server* server);
void weft_server_shutdown(weft_server* server, uint64_t grace_us);
weft_engine* weft_server_engine(weft_server* server);
weft_bytes weft_server_call_request(const weft_server_call* call);
void* weft_server_call_reserve(weft_server_call* call, size_t size);
void weft_server_call_finish(weft_server_call* call, weft_status* status, weft_bytes reply);
int weft_server_call_cancelled(const weft_server_call* call);
void weft_server_call_on_cancel(weft_server_call* call, weft_task task, void* arg);
uint64_t weft_server_call_remaining_us(const weft_server_call* call);
int weft_server_call_priority(const weft_server_call* call);
int weft_server_call_metadata(const weft_server_call* call, size_t index, weft_bytes* key,
                              weft_bytes* value);
weft_status* weft_server_call_add_reply_metadata(weft_server_call* call, weft_bytes key,
                                                 weft_bytes value);
enum {
  WEFT_PEER_ADDRESS = 1,
  WEFT_PEER_PATH = 2,
  WEFT_PEER_SUBJECT = 3,
  WEFT_PEER_DNS_NAME = 4,
  WEFT_PEER_URI = 5,
  WEFT_PEER_PSK_NAME = 6
};
weft_bytes weft_server_call_peer(const weft_server_call* call, int what, size_t index);
weft_context* weft_context_from_call(weft_server_call* call);

// --- weft/c_stream.h -----------------------------------------------------------------------------

typedef struct weft_stream weft_stream;
typedef void (*weft_stream_done)(void* arg, int ok);
weft_status* weft_stream_start(weft_channel* channel, weft_method method, weft_bytes request,
                               const weft_call_options* options, weft_message* reply,
                               weft_stream** stream);
weft_stream* weft_server_call_stream(weft_server_call* call);
int weft_stream_read(weft_stream* stream, weft_message* into);
int weft_stream_write(weft_stream* stream, weft_bytes message, int last);
weft_status* weft_stream_read_start(weft_stream* stream, weft_message* into, weft_stream_done done,
                                    void* arg);
weft_status* weft_stream_write_start(weft_stream* stream, weft_bytes message, int last,
                                     weft_stream_done done, void* arg);
void weft_stream_writes_done(weft_stream* stream);
weft_status* weft_stream_finish(weft_stream* stream);
weft_status* weft_stream_finish_start(weft_stream* stream, weft_done done, void* arg);
void weft_stream_cancel(weft_stream* stream);
void weft_stream_free(weft_stream* stream);

// --- weft/c_memory.h -----------------------------------------------------------------------------

typedef struct weft_buffer weft_buffer;
typedef struct weft_export weft_export;
typedef struct weft_remote weft_remote;
enum { WEFT_HANDLE_BYTES = 56 };
enum { WEFT_MAY_READ = 1, WEFT_MAY_WRITE = 2, WEFT_MAY_USE_ATOMICS = 4, WEFT_ALL_RIGHTS = 7 };
weft_status* weft_buffer_new(weft_channel* channel, size_t size, weft_buffer** buffer);
void* weft_buffer_data(weft_buffer* buffer);
size_t weft_buffer_size(const weft_buffer* buffer);
void weft_buffer_free(weft_buffer* buffer);
weft_status* weft_export_new(weft_server* server, size_t size, int rights, weft_export** memory);
weft_status* weft_export_existing(weft_server* server, void* data, size_t size, int rights,
                                  weft_export** memory);
void* weft_export_data(weft_export* memory);
size_t weft_export_size(const weft_export* memory);
weft_status* weft_export_handle(const weft_export* memory, void* handle);
weft_status* weft_export_derive(const weft_export* memory, uint64_t offset, uint64_t length,
                                int rights, uint64_t lifetime_us, void* handle);
int weft_export_revoke(weft_export* memory, uint64_t grace_us, uint64_t wait_us);
void weft_export_free(weft_export* memory);
weft_status* weft_remote_open(weft_channel* channel, weft_bytes handle, weft_remote** remote);
uint64_t weft_remote_size(const weft_remote* remote);
int weft_remote_rights(const weft_remote* remote);
void weft_remote_free(weft_remote* remote);
typedef struct weft_piece {
  uint64_t offset;
  weft_buffer* buffer;
  size_t buffer_offset;
  size_t size;
} weft_piece;
weft_status* weft_remote_read(weft_remote* remote, const weft_piece* pieces, size_t count);
weft_status* weft_remote_write(weft_remote* remote, const weft_piece* pieces, size_t count);
weft_status* weft_remote_fetch_add(weft_remote* remote, uint64_t offset, uint64_t operand,
                                   uint64_t* before);
weft_status* weft_remote_compare_swap(weft_remote* remote, uint64_t offset, uint64_t expected,
                                      uint64_t desired, uint64_t* before);
typedef void (*weft_value_done)(void* arg, weft_status* status, uint64_t before);
weft_status* weft_remote_read_start(weft_remote* remote, const weft_piece* pieces, size_t count,
                                    weft_done done, void* arg);
weft_status* weft_remote_write_start(weft_remote* remote, const weft_piece* pieces, size_t count,
                                     weft_done done, void* arg);
weft_status* weft_remote_fetch_add_start(weft_remote* remote, uint64_t offset, uint64_t operand,
                                         weft_value_done done, void* arg);
weft_status* weft_remote_compare_swap_start(weft_remote* remote, uint64_t offset, uint64_t expected,
                                            uint64_t desired, weft_value_done done, void* arg);
