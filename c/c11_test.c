/* The headers are C11, by the strictest of compilers' settings (BUILD), and their structs lie in
   memory as programs that are built already have them: the numbers here never change, but for
   fields behind the last one. And a program in C serves and calls. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weft/c.h"
#include "weft/c_host.h"
#include "weft/c_memory.h"
#include "weft/c_server.h"
#include "weft/c_stream.h"

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
_Static_assert(WEFT_HANDLE_BYTES == 56, "a handle has another size");

static void Expect(int holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "not so: %s\n", what);
  exit(1);
}
#define EXPECT(condition) Expect((condition), #condition)

static void ExpectOk(weft_status* status) {
  if (status == NULL) return;
  fprintf(stderr, "%d: %s\n", weft_status_code(status), weft_status_message(status));
  exit(1);
}

static weft_bytes Text(const char* text) {
  weft_bytes bytes = {text, strlen(text)};
  return bytes;
}

static int Is(weft_bytes bytes, const char* text) {
  return bytes.size == strlen(text) && memcmp(bytes.data, text, bytes.size) == 0;
}

/* Answers with what it was asked, twice. */
static void Twice(void* arg, weft_server_call* call) {
  weft_bytes request = weft_server_call_request(call);
  weft_bytes reply = {NULL, 2 * request.size};
  char* room = weft_server_call_reserve(call, reply.size);
  ++*(int*)arg;
  memcpy(room, request.data, request.size);
  memcpy(room + request.size, request.data, request.size);
  reply.data = room;
  weft_server_call_finish(call, NULL, reply);
}

static void Refuse(void* arg, weft_server_call* call) {
  (void)arg;
  weft_server_call_finish(call, weft_status_new(WEFT_NOT_FOUND, "no such thing"), Text("unused"));
}

static void* TakeMemory(void* arg, size_t bytes, size_t alignment, int kind) {
  void* memory = aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  (void)kind;
  if (memory == NULL) return NULL;
  ++*(_Atomic int*)arg;
  return memset(memory, 0, bytes);
}

static void GiveMemory(void* arg, void* memory, size_t bytes, size_t alignment, int kind) {
  (void)arg;
  (void)bytes;
  (void)alignment;
  (void)kind;
  free(memory);
}

static void WriteLine(void* arg, const weft_log_record* record) {
  (void)arg;
  fprintf(stderr, "%d %s:%d %s\n", record->level, record->file, record->line, record->text);
}

/* Of "channel.calls_ok". */
static void Look(void* arg, const char* name, uint64_t value) {
  if (strcmp(name, "channel.calls_ok") == 0) *(uint64_t*)arg = value;
}

int main(void) {
  int calls = 0;
  _Atomic int blocks = 0;
  uint64_t calls_ok = 0;
  weft_memory_hooks hooks = {sizeof(hooks), TakeMemory, GiveMemory, NULL};
  weft_log log = {sizeof(log), WriteLine, NULL, WEFT_LOG_WARNING, 0};
  weft_server* server = NULL;
  weft_channel* channel = NULL;
  weft_method twice = 0;
  weft_method refuse = 0;
  weft_service* service = weft_service_new("c11.Service");
  weft_message* reply = weft_message_new();
  weft_call_options options;
  weft_status* status = NULL;

  hooks.arg = &blocks;
  ExpectOk(weft_memory_set_hooks(&hooks));
  ExpectOk(weft_log_set(&log));
  ExpectOk(weft_service_add_method(service, "Twice", WEFT_UNARY, WEFT_ONCE, Twice, &calls));
  ExpectOk(weft_service_add_method(service, "Refuse", WEFT_UNARY, WEFT_ONCE, Refuse, NULL));
  ExpectOk(weft_server_new(NULL, NULL, &server));
  ExpectOk(weft_server_add_service(server, service));
  ExpectOk(weft_server_listen(server, "127.0.0.1:0"));

  ExpectOk(weft_channel_open(NULL, weft_server_address(server), NULL, &channel));
  ExpectOk(weft_channel_method(channel, "c11.Service", "Twice", WEFT_UNARY, WEFT_ONCE, &twice));
  ExpectOk(weft_channel_method(channel, "c11.Service", "Refuse", WEFT_UNARY, WEFT_ONCE, &refuse));
  memset(&options, 0, sizeof(options));
  options.struct_size = sizeof(options);
  options.timeout_us = 30000000;
  ExpectOk(weft_call(channel, twice, Text("ab"), &options, reply));
  EXPECT(Is(weft_message_bytes(reply), "abab"));
  ExpectOk(weft_call(channel, twice, Text(""), &options, reply));
  EXPECT(Is(weft_message_bytes(reply), ""));
  EXPECT(calls == 2);
  ExpectOk(weft_channel_metrics(channel, Look, &calls_ok));
  EXPECT(calls_ok == 2);
  EXPECT(blocks > 0);

  status = weft_call(channel, refuse, Text("ab"), &options, reply);
  EXPECT(weft_status_code(status) == WEFT_NOT_FOUND);
  EXPECT(strcmp(weft_status_message(status), "no such thing") == 0);
  EXPECT(weft_status_delivery(status) == WEFT_DELIVERY_UNKNOWN);
  weft_status_free(status);

  weft_message_free(reply);
  ExpectOk(weft_channel_free(channel));
  ExpectOk(weft_server_free(server));
  return 0;
}
