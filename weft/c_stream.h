// Streams in C: calls whose requests or replies are many messages. Read weft/c.h first, and
// weft/c_server.h for handlers.
//
//   weft_stream_start(channel, chat, (weft_bytes){NULL, 0}, NULL, NULL, &stream);
//   weft_stream_write(stream, word, 0);
//   weft_stream_writes_done(stream);
//   while (weft_stream_read(stream, message)) use(weft_message_bytes(message));
//   weft_status* end = weft_stream_finish(stream);
//   weft_stream_free(stream);
//
// Messages come in the order in which they were written. Credit is Weft's: who writes waits when
// the other side does not read (weft_channel_options.stream_window_...), and nobody else on the
// connection waits with it.
//
// Copies: as of calls: a message is copied once on its way out, and once on its way in.
// Threads: any; one at a time for reads, and one for writes. Callbacks run on the engine's thread.
//   The blocking forms are not for callbacks and handlers on the engine: what would have to wait
//   there fails the stream.
// Lifetime: the caller's stream is freed before its channel, at any time: that cancels what has not
//   ended. Callbacks that wait run still, with `ok` 0. The handler's is good until
//   weft_server_call_finish(), which ends it behind all that was written.
// Errors: 0 from a read or a write: there are no more messages, or the stream is over.
//   weft_stream_finish() says why, with the errors of calls. FAILED_PRECONDITION: another read (or
//   write, or finish) of this stream waits.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "weft/c.h"
#include "weft/c_server.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_stream weft_stream;

typedef void (*weft_stream_done)(void* arg, int ok);

// Opens one, and does not wait. `request`: of a WEFT_SERVER_STREAMING method; empty for the others.
// `reply`: of a WEFT_CLIENT_STREAMING one, which fills it before weft_stream_finish() has ended,
// and has it until then; NULL for the others. `options`: timeout_us is for the whole stream.
weft_status* weft_stream_start(weft_channel* channel, weft_method method, weft_bytes request,
                               const weft_call_options* options, weft_message* reply,
                               weft_stream** stream);

// The stream of a handler's call; always the same. NULL: its method is none.
weft_stream* weft_server_call_stream(weft_server_call* call);

// --- both sides ---------------------------------------------------------------------------------

// Block. 1: a message was read, or taken to be sent; `last`: nothing will be written behind it.
// 0 also for an argument that is NULL, and where one waits already.
int weft_stream_read(weft_stream* stream, weft_message* into);
int weft_stream_write(weft_stream* stream, weft_bytes message, int last);

// `done` runs once: with `ok` as above. `into` and the bytes of `message` stay until then.
weft_status* weft_stream_read_start(weft_stream* stream, weft_message* into, weft_stream_done done,
                                    void* arg);
weft_status* weft_stream_write_start(weft_stream* stream, weft_bytes message, int last,
                                     weft_stream_done done, void* arg);

// --- the caller's -------------------------------------------------------------------------------

// Nothing will be written any more: the handler's reads end.
void weft_stream_writes_done(weft_stream* stream);
// How it has ended, when it has. Nothing is written any more, and what was not read is dropped.
// The blocking form is FAILED_PRECONDITION inside a callback of the engine.
weft_status* weft_stream_finish(weft_stream* stream);
weft_status* weft_stream_finish_start(weft_stream* stream, weft_done done, void* arg);
// Ends it with CANCELLED, if it has not ended, and tells the server.
void weft_stream_cancel(weft_stream* stream);
void weft_stream_free(weft_stream* stream);  // nothing for a handler's

#ifdef __cplusplus
}  // extern "C"
#endif
