/* A program that was built with the first headers of the C interface (c/older/c_2026_11_25.h), and
   never again: it serves, calls, streams and reads memory with today's library. Its structs of
   options are as short as they were then, and what lies behind them is none of the library's
   business. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "c/older/c_2026_11_25.h"

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

/* Of all of it, on a busy machine. */
#define PATIENCE_SECONDS 240
static void GiveUp(int signal) {
  static const char kWords[] = "something that the program waits for has not come in 240 s\n";
  (void)signal;
  _exit(write(STDERR_FILENO, kWords, sizeof(kWords) - 1) > 0 ? 1 : 2);
}

static weft_bytes Text(const char* text) {
  weft_bytes bytes = {text, strlen(text)};
  return bytes;
}

static int Is(weft_bytes bytes, const char* text) {
  return bytes.size == strlen(text) && memcmp(bytes.data, text, bytes.size) == 0;
}

/* Options, and the program's own bytes behind them: whoever takes these for fields that were added
   later refuses them, or follows a pointer to nowhere. */
#define OLDER(type) \
  struct {          \
    type options;   \
    char own[64];   \
  }
#define SET_TO_DEFAULTS(older)                             \
  do {                                                     \
    memset(&(older), 0xEE, sizeof(older));                 \
    memset(&(older).options, 0, sizeof((older).options));  \
    (older).options.struct_size = sizeof((older).options); \
  } while (0)

/* The sizes that went into programs then. */
_Static_assert(sizeof(weft_security) == 80, "weft_security");
_Static_assert(sizeof(weft_engine_options) == 40, "weft_engine_options");
_Static_assert(sizeof(weft_channel_options) == 96, "weft_channel_options");
_Static_assert(sizeof(weft_call_options) == 40, "weft_call_options");
_Static_assert(sizeof(weft_server_options) == 96, "weft_server_options");
_Static_assert(sizeof(weft_piece) == 32, "weft_piece");

static void Twice(void* arg, weft_server_call* call) {
  weft_bytes request = weft_server_call_request(call);
  weft_bytes reply = {NULL, 2 * request.size};
  char* room = weft_server_call_reserve(call, reply.size);
  weft_bytes key, value;
  ++*(int*)arg;
  EXPECT(weft_server_call_priority(call) == WEFT_CONTROL);
  EXPECT(weft_server_call_metadata(call, 0, &key, &value) && Is(key, "who") && Is(value, "me"));
  EXPECT(Is(weft_server_call_peer(call, WEFT_PEER_PSK_NAME, 0), "older"));
  memcpy(room, request.data, request.size);
  memcpy(room + request.size, request.data, request.size);
  reply.data = room;
  ExpectOk(weft_server_call_add_reply_metadata(call, Text("so"), Text("be it")));
  weft_server_call_finish(call, NULL, reply);
}

static void Refuse(void* arg, weft_server_call* call) {
  (void)arg;
  weft_server_call_finish(call, weft_status_new(WEFT_NOT_FOUND, "no such thing"), Text("unused"));
}

/* "x" a hundred times. */
static void Count(void* arg, weft_server_call* call) {
  weft_stream* stream = weft_server_call_stream(call);
  (void)arg;
  for (int i = 0; i < 100; ++i) EXPECT(weft_stream_write(stream, Text("x"), i == 99));
  weft_server_call_finish(call, NULL, Text(""));
}

static void Arrived(void* arg, weft_status* status) {
  ExpectOk(status);
  *(int*)arg = 1;
}

/* In the program's loop, as the first header showed it. */
static void DriveUntil(weft_engine* engine, const int* done) {
  while (!*done) {
    struct pollfd ready = {weft_engine_fd(engine), POLLIN, 0};
    if (weft_engine_poll(engine, 0) > 0) continue;
    if (!weft_engine_arm(engine)) continue;
    if (!*done) poll(&ready, 1, weft_engine_timeout_ms(engine));
  }
}

int main(void) {
  static const char kSecret[] = "a secret of 32 bytes, both have it";
  static char table[] = "in place";
  int calls = 0;
  int arrived = 0;
  int streamed = 0;
  unsigned char handle[WEFT_HANDLE_BYTES];
  weft_bytes key, value;
  OLDER(weft_security) security;
  OLDER(weft_engine_options) of_engine;
  OLDER(weft_channel_options) of_channel;
  OLDER(weft_call_options) of_call;
  OLDER(weft_server_options) of_server;
  weft_service* service = weft_service_new("older.Service");
  weft_server* server = NULL;
  weft_engine* engine = NULL;
  weft_channel* channel = NULL;
  weft_context* context = weft_context_new();
  weft_message* reply = weft_message_new();
  weft_stream* stream = NULL;
  weft_export* memory = NULL;
  weft_remote* remote = NULL;
  weft_buffer* buffer = NULL;
  weft_method twice, refuse, count;
  weft_status* status = NULL;

  signal(SIGALRM, GiveUp);
  alarm(PATIENCE_SECONDS);
  SET_TO_DEFAULTS(security);
  security.options.psk_name = "older";
  security.options.psk_secret = Text(kSecret);
  SET_TO_DEFAULTS(of_server);
  of_server.options.name = "older";
  of_server.options.security = &security.options;
  ExpectOk(weft_service_add_method(service, "Twice", WEFT_UNARY, WEFT_ONCE, Twice, &calls));
  ExpectOk(weft_service_add_method(service, "Refuse", WEFT_UNARY, WEFT_ONCE, Refuse, NULL));
  ExpectOk(weft_service_add_method(service, "Count", WEFT_SERVER_STREAMING, WEFT_NO_SIDE_EFFECTS,
                                   Count, NULL));
  ExpectOk(weft_server_new(NULL, &of_server.options, &server));
  ExpectOk(weft_server_add_service(server, service));
  ExpectOk(weft_server_listen(server, "127.0.0.1:0"));

  /* Its own engine: blocking calls, a stream, memory. */
  SET_TO_DEFAULTS(of_channel);
  of_channel.options.security = &security.options;
  of_channel.options.paths = "tcp";
  ExpectOk(weft_channel_open(NULL, weft_server_address(server), &of_channel.options, &channel));
  ExpectOk(weft_channel_method(channel, "older.Service", "Twice", WEFT_UNARY, WEFT_ONCE, &twice));
  ExpectOk(weft_channel_method(channel, "older.Service", "Refuse", WEFT_UNARY, WEFT_ONCE, &refuse));
  ExpectOk(weft_channel_method(channel, "older.Service", "Count", WEFT_SERVER_STREAMING,
                               WEFT_NO_SIDE_EFFECTS, &count));
  ExpectOk(weft_context_add_metadata(context, Text("who"), Text("me")));
  SET_TO_DEFAULTS(of_call);
  of_call.options.timeout_us = 30000000;
  of_call.options.priority = WEFT_CONTROL;
  of_call.options.context = context;
  ExpectOk(weft_call(channel, twice, Text("ab"), &of_call.options, reply));
  EXPECT(Is(weft_message_bytes(reply), "abab"));
  EXPECT(weft_context_reply_metadata(context, 0, &key, &value) && Is(key, "so"));
  of_call.options.context = NULL;
  status = weft_call(channel, refuse, Text("ab"), &of_call.options, reply);
  EXPECT(weft_status_code(status) == WEFT_NOT_FOUND);
  EXPECT(strcmp(weft_status_message(status), "no such thing") == 0);
  EXPECT(weft_status_delivery(status) == WEFT_DELIVERY_UNKNOWN);
  weft_status_free(status);

  ExpectOk(weft_stream_start(channel, count, Text(""), &of_call.options, NULL, &stream));
  while (weft_stream_read(stream, reply)) ++streamed;
  EXPECT(streamed == 100);
  ExpectOk(weft_stream_finish(stream));
  weft_stream_free(stream);

  ExpectOk(weft_export_existing(server, table, sizeof(table), WEFT_MAY_READ, &memory));
  ExpectOk(weft_export_handle(memory, handle));
  ExpectOk(weft_remote_open(channel, (weft_bytes){handle, sizeof(handle)}, &remote));
  EXPECT(weft_remote_size(remote) == sizeof(table) && weft_remote_rights(remote) == WEFT_MAY_READ);
  ExpectOk(weft_buffer_new(channel, 64, &buffer));
  ExpectOk(weft_remote_read(remote, &(weft_piece){0, buffer, 8, sizeof(table)}, 1));
  EXPECT(memcmp((char*)weft_buffer_data(buffer) + 8, table, sizeof(table)) == 0);
  weft_buffer_free(buffer);
  weft_remote_free(remote);
  ExpectOk(weft_channel_free(channel));
  weft_export_free(memory);

  /* The program's loop. */
  SET_TO_DEFAULTS(of_engine);
  of_engine.options.drive = WEFT_EXTERNAL;
  ExpectOk(weft_engine_new(&of_engine.options, &engine));
  of_channel.options.connect_later = 1;
  ExpectOk(weft_channel_open(engine, weft_server_address(server), &of_channel.options, &channel));
  ExpectOk(weft_channel_method(channel, "older.Service", "Twice", WEFT_UNARY, WEFT_ONCE, &twice));
  weft_context_free(context);
  context = weft_context_new();
  ExpectOk(weft_context_add_metadata(context, Text("who"), Text("me")));
  of_call.options.context = context;
  ExpectOk(weft_call_start(channel, twice, Text("cd"), &of_call.options, reply, Arrived, &arrived));
  DriveUntil(engine, &arrived);
  EXPECT(Is(weft_message_bytes(reply), "cdcd"));
  EXPECT(calls == 2);

  weft_context_free(context);
  weft_message_free(reply);
  ExpectOk(weft_channel_free(channel));
  ExpectOk(weft_engine_free(engine));
  ExpectOk(weft_server_free(server));
  return 0;
}
