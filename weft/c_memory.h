// Remote memory in C: memory that a server offers, and clients read and write in place. Read
// weft/c.h first; docs/remote_memory.md has what is behind it.
//
//   weft_export_new(server, size, WEFT_MAY_READ, &table);        // the owner
//   fill(weft_export_data(table));
//   unsigned char handle[WEFT_HANDLE_BYTES];                     // travels in any message
//   weft_export_handle(table, handle);
//
//   weft_remote_open(channel, handle_bytes, &remote);            // the client
//   weft_buffer_new(channel, 8192, &buffer);
//   weft_piece page = {page_number * 8192, buffer, 0, 8192};
//   weft_remote_read(remote, &page, 1);
//   use(weft_buffer_data(buffer));
//
// A handle is a capability: whoever has its bytes, and a connection to the owner, has the right. In
// messages of C++ programs it is the field `capability` of a weft.RemoteRegion.
//
// Copies: none in the processor over RDMA; one over shared memory.
// Threads: any. Callbacks run on the engine's thread; nothing here is freed inside one.
// Lifetime: exports are freed before their server, buffers and remote memory before their channel;
//   a buffer not while an operation on it is under way.
// Errors: INVALID_ARGUMENT: outside of the memory, or unaligned; nothing was sent.
//   PERMISSION_DENIED: the handle lacks the right, or the owner does not know it; but with
//   WEFT_MAY_HAVE_RUN the lease has just ended: try again. ABORTED: the handle was revoked.
//   UNAVAILABLE, DEADLINE_EXCEEDED (30 s): weft_status_delivery() says whether the operation may
//   have been carried out.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "weft/c.h"
#include "weft/c_server.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_buffer weft_buffer;
typedef struct weft_export weft_export;
typedef struct weft_remote weft_remote;

enum { WEFT_HANDLE_BYTES = 56 };

// Rights: a sum of these; atomics only with both others.
enum { WEFT_MAY_READ = 1, WEFT_MAY_WRITE = 2, WEFT_MAY_USE_ATOMICS = 4, WEFT_ALL_RIGHTS = 7 };

// --- buffer: memory of a client that transfers go to and from -----------------------------------

// Registered already, out of the channel's pool. RESOURCE_EXHAUSTED: the pool has 1 GiB.
weft_status* weft_buffer_new(weft_channel* channel, size_t size, weft_buffer** buffer);
void* weft_buffer_data(weft_buffer* buffer);
size_t weft_buffer_size(const weft_buffer* buffer);
void weft_buffer_free(weft_buffer* buffer);

// --- export: memory that a server offers --------------------------------------------------------

// `size` zeros, which peers on this host map.
weft_status* weft_export_new(weft_server* server, size_t size, int rights, weft_export** memory);
// Memory that there is already, and stays until the free has returned. Over shared memory each
// operation of a client is then a system call, some 50 times as long for 64 bytes.
weft_status* weft_export_existing(weft_server* server, void* data, size_t size, int rights,
                                  weft_export** memory);
void* weft_export_data(weft_export* memory);
size_t weft_export_size(const weft_export* memory);
// Writes WEFT_HANDLE_BYTES bytes: the right to all of it, as long as the export lives.
weft_status* weft_export_handle(const weft_export* memory, void* handle);
// The right to a part, with fewer rights, for a time (0: as long as the export lives).
weft_status* weft_export_derive(const weft_export* memory, uint64_t offset, uint64_t length,
                                int rights, uint64_t lifetime_us, void* handle);
// Ends all its handles; holders have `grace_us` (at most 60 s) to come to an end. Waits for up to
// `wait_us` until nobody can touch the memory any more; 1: it is so.
int weft_export_revoke(weft_export* memory, uint64_t grace_us, uint64_t wait_us);
// Revokes it without grace, and returns when nobody can touch the memory. Nothing, and a line in
// the log, in a callback or handler on the server's engine.
void weft_export_free(weft_export* memory);

// --- remote memory: a client's use of it --------------------------------------------------------

// Waits for the owner's word. `handle`: its bytes, as a message brought them.
weft_status* weft_remote_open(weft_channel* channel, weft_bytes handle, weft_remote** remote);
uint64_t weft_remote_size(const weft_remote* remote);
int weft_remote_rights(const weft_remote* remote);
// Ends what waits with CANCELLED; every callback has run when it returns. Nothing, and a line in
// the log, in a callback on the channel's engine.
void weft_remote_free(weft_remote* remote);

// `size` bytes between remote memory from `offset` on, and a buffer from `buffer_offset` on.
typedef struct weft_piece {
  uint64_t offset;
  weft_buffer* buffer;
  size_t buffer_offset;
  size_t size;
} weft_piece;

// Blocking, for 1 to 64 pieces, posted together, in any order among themselves. A call on the same
// channel that is started after a write finds its bytes there.
weft_status* weft_remote_read(weft_remote* remote, const weft_piece* pieces, size_t count);
weft_status* weft_remote_write(weft_remote* remote, const weft_piece* pieces, size_t count);
// On 8 bytes at a multiple of 8, in the owner's byte order. `before`: what was there; may be NULL.
weft_status* weft_remote_fetch_add(weft_remote* remote, uint64_t offset, uint64_t operand,
                                   uint64_t* before);
weft_status* weft_remote_compare_swap(weft_remote* remote, uint64_t offset, uint64_t expected,
                                      uint64_t desired, uint64_t* before);

// The same with a callback, which runs once. An error that these return is a wrong argument: then
// nothing was started, and `done` will not run. `pieces` may go when they return.
typedef void (*weft_value_done)(void* arg, weft_status* status, uint64_t before);

weft_status* weft_remote_read_start(weft_remote* remote, const weft_piece* pieces, size_t count,
                                    weft_done done, void* arg);
weft_status* weft_remote_write_start(weft_remote* remote, const weft_piece* pieces, size_t count,
                                     weft_done done, void* arg);
weft_status* weft_remote_fetch_add_start(weft_remote* remote, uint64_t offset, uint64_t operand,
                                         weft_value_done done, void* arg);
weft_status* weft_remote_compare_swap_start(weft_remote* remote, uint64_t offset, uint64_t expected,
                                            uint64_t desired, weft_value_done done, void* arg);

#ifdef __cplusplus
}  // extern "C"
#endif
