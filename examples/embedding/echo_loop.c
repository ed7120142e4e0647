// The echo of examples/echo in C11, in an event loop of the program's own: Weft starts no thread.
//
//   echo_loop                 serves, prints its address, and ends when its standard input does
//   echo_loop ADDRESS TEXT    calls such a server, or that of examples/echo
//
// SayRequest and SayReply are both one text with the number 1, so the server answers with the bytes
// that it got. What Weft has to say, which path was taken and why, goes to standard error.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "weft/c.h"
#include "weft/c_host.h"
#include "weft/c_server.h"

static void Check(weft_status* status) {
  if (status == NULL) return;
  fprintf(stderr, "%s\n", weft_status_message(status));
  exit(1);
}

static void WriteLine(void* file, const weft_log_record* record) {
  static const char kLevels[] = "?DIWE";
  const char level = record->level >= 1 && record->level <= 4 ? kLevels[record->level] : '?';
  fprintf(file, "%c %s:%d: %s\n", level, record->file, (int)record->line, record->text);
}

// The loop: the engine's descriptor beside one of the program's own. Returns when *stop is set, or
// when there is input (to its end) on `own_fd`; -1: there is none.
static void Run(weft_engine* engine, int own_fd, const int* stop) {
  const int epoll = epoll_create1(EPOLL_CLOEXEC);
  struct epoll_event event = {.events = EPOLLIN, .data = {.fd = weft_engine_fd(engine)}};
  epoll_ctl(epoll, EPOLL_CTL_ADD, weft_engine_fd(engine), &event);
  event.data.fd = own_fd;
  if (own_fd >= 0) epoll_ctl(epoll, EPOLL_CTL_ADD, own_fd, &event);
  while (!*stop) {
    // Callbacks run inside of weft_engine_poll(). After a turn with work it does not sleep, and
    // looks at `own_fd` all the same.
    const int may_sleep = weft_engine_poll(engine, 0) == 0 && weft_engine_arm(engine);
    const int ready = epoll_wait(epoll, &event, 1, may_sleep ? weft_engine_timeout_ms(engine) : 0);
    char input[256];
    if (ready > 0 && event.data.fd == own_fd && read(own_fd, input, sizeof(input)) <= 0) break;
  }
  close(epoll);
}

static void Say(void* arg, weft_server_call* call) {
  (void)arg;
  weft_server_call_finish(call, NULL, weft_server_call_request(call));
}

static void Serve(weft_engine* engine) {
  const int never = 0;
  weft_server* server = NULL;
  weft_service* echo = weft_service_new("echo.Echo");
  Check(weft_service_add_method(echo, "Say", WEFT_UNARY, WEFT_ONCE, Say, NULL));
  Check(weft_server_new(engine, NULL, &server));
  Check(weft_server_add_service(server, echo));
  Check(weft_server_listen(server, "127.0.0.1:0"));
  printf("%s\n", weft_server_address(server));
  fflush(stdout);
  Run(engine, STDIN_FILENO, &never);
  Check(weft_server_free(server));
}

// What a call ends with, for the loop.
struct Outcome {
  int ended;
  weft_status* status;
};

static void OnReply(void* arg, weft_status* status) {
  struct Outcome* outcome = arg;
  outcome->ended = 1;
  outcome->status = status;
}

static void Call(weft_engine* engine, const char* address, const char* text) {
  weft_channel* channel = NULL;
  weft_method say = 0;
  struct Outcome outcome = {0, NULL};
  weft_message* reply = weft_message_new();
  const weft_call_options options = {.struct_size = sizeof(options), .timeout_us = 30000000};
  char request[130] = {0x0A};  // field 1, a text
  const size_t length = strlen(text);
  if (length > 127) {
    fprintf(stderr, "the text is longer than the 127 bytes that this example encodes\n");
    exit(2);
  }
  request[1] = (char)length;
  memcpy(request + 2, text, length);

  Check(weft_channel_open(engine, address, NULL, &channel));
  Check(weft_channel_method(channel, "echo.Echo", "Say", WEFT_UNARY, WEFT_ONCE, &say));
  Check(weft_call_start(channel, say, (weft_bytes){request, length + 2}, &options, reply, OnReply,
                        &outcome));
  Run(engine, -1, &outcome.ended);
  Check(outcome.status);
  const weft_bytes bytes = weft_message_bytes(reply);
  printf("%.*s\n", bytes.size < 2 ? 0 : (int)bytes.size - 2, (const char*)bytes.data + 2);
  weft_message_free(reply);
  Check(weft_channel_free(channel));
}

int main(int argc, char** argv) {
  weft_engine* engine = NULL;
  const weft_log log = {.struct_size = sizeof(log), .write = WriteLine, .arg = stderr};
  const weft_engine_options options = {.struct_size = sizeof(options), .drive = WEFT_EXTERNAL};
  Check(weft_log_set(&log));
  Check(weft_engine_new(&options, &engine));
  if (argc == 3) {
    Call(engine, argv[1], argv[2]);
  } else {
    Serve(engine);
  }
  Check(weft_engine_free(engine));
  return 0;
}
