/* The headers are C11, by the strictest of compilers' settings (BUILD), and a program in C serves
   and calls. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weft/c.h"
#include "weft/c_host.h"
#include "weft/c_memory.h"
#include "weft/c_server.h"
#include "weft/c_stream.h"

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
