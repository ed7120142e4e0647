/* The ABI of the C interface, which libweft_c.so.1 keeps: what a program that is built already has
   in it. The structs lie in memory as here, constants have these values, and functions take and
   return these types. That is the ABI of x86-64.

   What is here stays. Lines may be added: a field of options goes behind the last one, and then,
   and only then, the struct's SIZE may grow. A field in what was `reserved` keeps the SIZE, and 0
   means there what older programs got. No test compares this file with that of the last release, so
   who reads a change of it looks at that; tools/install/c_symbols_test.sh wants every function and
   every constant to be here.

   The compiler looks, under the strictest settings (BUILD); there is nothing left to run. */
#include <stddef.h>
#include <stdint.h>

#include "weft/c.h"
#include "weft/c_host.h"
#include "weft/c_memory.h"
#include "weft/c_server.h"
#include "weft/c_stream.h"

/* --- structs ---------------------------------------------------------------------------------- */

#define AT(type, field, offset) \
  _Static_assert(offsetof(type, field) == (offset), #type "." #field " has moved")
#define SIZE(type, size) _Static_assert(sizeof(type) == (size), #type " has another size")

AT(weft_bytes, data, 0);
AT(weft_bytes, size, 8);
SIZE(weft_bytes, 16);

AT(weft_security, struct_size, 0);
AT(weft_security, certificate_file, 8);
AT(weft_security, key_file, 16);
AT(weft_security, roots_file, 24);
AT(weft_security, server_name, 32);
AT(weft_security, expected_uri, 40);
AT(weft_security, psk_name, 48);
AT(weft_security, psk_secret, 56);
AT(weft_security, admit_anonymous_clients, 72);
AT(weft_security, require_encryption, 76);
AT(weft_security, kernel_tls, 80);
AT(weft_security, reserved, 84);
AT(weft_security, certificate_pem, 88);
AT(weft_security, key_pem, 104);
AT(weft_security, roots_pem, 120);
SIZE(weft_security, 136);

AT(weft_engine_options, struct_size, 0);
AT(weft_engine_options, drive, 8);
AT(weft_engine_options, inbox_slots, 12);
AT(weft_engine_options, name, 16);
AT(weft_engine_options, spin_ns, 24);
AT(weft_engine_options, no_spin, 32);
AT(weft_engine_options, reserved, 36);
AT(weft_engine_options, now_ns, 40);
AT(weft_engine_options, now_arg, 48);
AT(weft_engine_options, log, 56);
SIZE(weft_engine_options, 64);

AT(weft_channel_options, struct_size, 0);
AT(weft_channel_options, security, 8);
AT(weft_channel_options, paths, 16);
AT(weft_channel_options, connect_timeout_us, 24);
AT(weft_channel_options, default_timeout_us, 32);
AT(weft_channel_options, max_reply_bytes, 40);
AT(weft_channel_options, hedge_after_us, 48);
AT(weft_channel_options, spin_ns, 56);
AT(weft_channel_options, connect_later, 64);
AT(weft_channel_options, max_attempts, 68);
AT(weft_channel_options, exactly_once, 72);
AT(weft_channel_options, max_outstanding_calls, 76);
AT(weft_channel_options, max_queued_calls, 80);
AT(weft_channel_options, max_streams, 84);
AT(weft_channel_options, stream_window_messages, 88);
AT(weft_channel_options, stream_window_bytes, 92);
AT(weft_channel_options, server_engine, 96);
AT(weft_channel_options, reserved, 100);
SIZE(weft_channel_options, 104);

AT(weft_call_options, struct_size, 0);
AT(weft_call_options, timeout_us, 8);
AT(weft_call_options, context, 16);
AT(weft_call_options, priority, 24);
AT(weft_call_options, wait_for_server, 28);
AT(weft_call_options, no_retry, 32);
AT(weft_call_options, reserved, 36);
SIZE(weft_call_options, 40);

AT(weft_server_options, struct_size, 0);
AT(weft_server_options, name, 8);
AT(weft_server_options, security, 16);
AT(weft_server_options, paths, 24);
AT(weft_server_options, policy_file, 32);
AT(weft_server_options, max_request_bytes, 40);
AT(weft_server_options, max_running_bytes, 48);
AT(weft_server_options, max_unsent_reply_bytes, 56);
AT(weft_server_options, spin_ns, 64);
AT(weft_server_options, max_connections, 72);
AT(weft_server_options, max_outstanding_calls, 76);
AT(weft_server_options, max_streams, 80);
AT(weft_server_options, stream_window_messages, 84);
AT(weft_server_options, stream_window_bytes, 88);
AT(weft_server_options, log_allowed_calls, 92);
AT(weft_server_options, executor, 96);
AT(weft_server_options, log, 104);
AT(weft_server_options, max_connections_of_one, 112);
AT(weft_server_options, reserved, 116);
AT(weft_server_options, idle_timeout_us, 120);
SIZE(weft_server_options, 128);

AT(weft_executor, struct_size, 0);
AT(weft_executor, run, 8);
AT(weft_executor, arg, 16);
SIZE(weft_executor, 24);

AT(weft_memory_hooks, struct_size, 0);
AT(weft_memory_hooks, take, 8);
AT(weft_memory_hooks, give, 16);
AT(weft_memory_hooks, arg, 24);
SIZE(weft_memory_hooks, 32);

AT(weft_log_record, struct_size, 0);
AT(weft_log_record, level, 8);
AT(weft_log_record, line, 12);
AT(weft_log_record, file, 16);
AT(weft_log_record, text, 24);
SIZE(weft_log_record, 32);

AT(weft_log, struct_size, 0);
AT(weft_log, write, 8);
AT(weft_log, arg, 16);
AT(weft_log, min_level, 24);
AT(weft_log, reserved, 28);
SIZE(weft_log, 32);

AT(weft_piece, offset, 0);
AT(weft_piece, buffer, 8);
AT(weft_piece, buffer_offset, 16);
AT(weft_piece, size, 24);
SIZE(weft_piece, 32);

/* Functions of the program's in structs. */
#define CALLBACK(type, field, ...)                                             \
  _Static_assert(_Generic(((type*)NULL)->field, __VA_ARGS__ : 1, default : 0), \
                 #type "." #field " has another type")

CALLBACK(weft_engine_options, now_ns, uint64_t (*)(void*));
CALLBACK(weft_executor, run, int (*)(void*, void (*)(void*), void*));
CALLBACK(weft_memory_hooks, take, void* (*)(void*, size_t, size_t, int));
CALLBACK(weft_memory_hooks, give, void (*)(void*, void*, size_t, size_t, int));
CALLBACK(weft_log, write, void (*)(void*, const weft_log_record*));

/* --- constants -------------------------------------------------------------------------------- */

#define VALUE(name, value) _Static_assert((name) == (value), #name " has another value")

VALUE(WEFT_OK, 0);
VALUE(WEFT_CANCELLED, 1);
VALUE(WEFT_UNKNOWN, 2);
VALUE(WEFT_INVALID_ARGUMENT, 3);
VALUE(WEFT_DEADLINE_EXCEEDED, 4);
VALUE(WEFT_NOT_FOUND, 5);
VALUE(WEFT_ALREADY_EXISTS, 6);
VALUE(WEFT_PERMISSION_DENIED, 7);
VALUE(WEFT_RESOURCE_EXHAUSTED, 8);
VALUE(WEFT_FAILED_PRECONDITION, 9);
VALUE(WEFT_ABORTED, 10);
VALUE(WEFT_OUT_OF_RANGE, 11);
VALUE(WEFT_UNIMPLEMENTED, 12);
VALUE(WEFT_INTERNAL, 13);
VALUE(WEFT_UNAVAILABLE, 14);
VALUE(WEFT_DATA_LOSS, 15);
VALUE(WEFT_UNAUTHENTICATED, 16);
VALUE(WEFT_DELIVERY_UNKNOWN, 0);
VALUE(WEFT_NOT_SENT, 1);
VALUE(WEFT_MAY_HAVE_RUN, 2);
VALUE(WEFT_OWN_THREAD, 1);
VALUE(WEFT_CALLER, 2);
VALUE(WEFT_EXTERNAL, 3);
VALUE(WEFT_UNARY, 1);
VALUE(WEFT_CLIENT_STREAMING, 2);
VALUE(WEFT_SERVER_STREAMING, 3);
VALUE(WEFT_BIDI_STREAMING, 4);
VALUE(WEFT_ONE_WAY, 5);
VALUE(WEFT_ONCE, 0);
VALUE(WEFT_NO_SIDE_EFFECTS, 1);
VALUE(WEFT_IDEMPOTENT, 2);
VALUE(WEFT_NORMAL, 0);
VALUE(WEFT_CONTROL, 1);
VALUE(WEFT_BACKGROUND, 2);
VALUE(WEFT_MEMORY_OBJECTS, 0);
VALUE(WEFT_MEMORY_TABLES, 1);
VALUE(WEFT_MEMORY_SLOTS, 2);
VALUE(WEFT_MEMORY_BUFFERS, 3);
VALUE(WEFT_MEMORY_SHARED, 4);
VALUE(WEFT_LOG_DEBUG, 1);
VALUE(WEFT_LOG_INFO, 2);
VALUE(WEFT_LOG_WARNING, 3);
VALUE(WEFT_LOG_ERROR, 4);
VALUE(WEFT_HANDLE_BYTES, 56);
VALUE(WEFT_MAY_READ, 1);
VALUE(WEFT_MAY_WRITE, 2);
VALUE(WEFT_MAY_USE_ATOMICS, 4);
VALUE(WEFT_ALL_RIGHTS, 7);
VALUE(WEFT_PEER_ADDRESS, 1);
VALUE(WEFT_PEER_PATH, 2);
VALUE(WEFT_PEER_SUBJECT, 3);
VALUE(WEFT_PEER_DNS_NAME, 4);
VALUE(WEFT_PEER_URI, 5);
VALUE(WEFT_PEER_PSK_NAME, 6);

/* --- types and functions, declared once more: C wants them to be alike ------------------------ */

typedef void (*weft_task)(void* arg);
typedef void (*weft_done)(void* arg, weft_status* status);
typedef uint32_t weft_method;
typedef void (*weft_metric)(void* arg, const char* name, uint64_t value);
typedef void (*weft_value_done)(void* arg, weft_status* status, uint64_t before);
typedef void (*weft_handler)(void* arg, weft_server_call* call);
typedef void (*weft_stream_done)(void* arg, int ok);

weft_status* weft_status_new(int code, const char* message);
int weft_status_code(const weft_status* status);
const char* weft_status_message(const weft_status* status);
int weft_status_delivery(const weft_status* status);
void weft_status_free(weft_status* status);
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
weft_status* weft_channel_open(weft_engine* engine, const char* address,
                               const weft_channel_options* options, weft_channel** channel);
weft_status* weft_channel_free(weft_channel* channel);
weft_engine* weft_channel_engine(weft_channel* channel);
weft_status* weft_channel_explain(weft_channel* channel, weft_message* text);
weft_status* weft_channel_method(weft_channel* channel, const char* service, const char* method,
                                 int kind, int idempotency, weft_method* number);
weft_message* weft_message_new(void);
weft_bytes weft_message_bytes(const weft_message* message);
void weft_message_free(weft_message* message);
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
weft_status* weft_memory_set_hooks(const weft_memory_hooks* hooks);
weft_status* weft_log_set(const weft_log* log);
weft_status* weft_engine_metrics(weft_engine* engine, weft_metric each, void* arg);
weft_status* weft_channel_metrics(weft_channel* channel, weft_metric each, void* arg);
weft_status* weft_server_metrics(weft_server* server, weft_metric each, void* arg);
weft_status* weft_memory_metrics(weft_metric each, void* arg);
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
weft_status* weft_remote_read(weft_remote* remote, const weft_piece* pieces, size_t count);
weft_status* weft_remote_write(weft_remote* remote, const weft_piece* pieces, size_t count);
weft_status* weft_remote_fetch_add(weft_remote* remote, uint64_t offset, uint64_t operand,
                                   uint64_t* before);
weft_status* weft_remote_compare_swap(weft_remote* remote, uint64_t offset, uint64_t expected,
                                      uint64_t desired, uint64_t* before);
weft_status* weft_remote_read_start(weft_remote* remote, const weft_piece* pieces, size_t count,
                                    weft_done done, void* arg);
weft_status* weft_remote_write_start(weft_remote* remote, const weft_piece* pieces, size_t count,
                                     weft_done done, void* arg);
weft_status* weft_remote_fetch_add_start(weft_remote* remote, uint64_t offset, uint64_t operand,
                                         weft_value_done done, void* arg);
weft_status* weft_remote_compare_swap_start(weft_remote* remote, uint64_t offset, uint64_t expected,
                                            uint64_t desired, weft_value_done done, void* arg);
weft_service* weft_service_new(const char* full_name);
weft_status* weft_service_add_method(weft_service* service, const char* name, int kind,
                                     int idempotency, weft_handler handler, void* arg);
void weft_service_free(weft_service* service);
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
weft_bytes weft_server_call_peer(const weft_server_call* call, int what, size_t index);
weft_context* weft_context_from_call(weft_server_call* call);
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

int main(void) { return 0; }
