// What errors mean, and whether the call or operation that one has ended may have run.
//
// Every fallible function of Weft returns absl::Status or absl::StatusOr<T>. The code says what the
// caller may do next, the text says what failed, where, and with which value:
//
//   INVALID_ARGUMENT, OUT_OF_RANGE, FAILED_PRECONDITION, NOT_FOUND, ALREADY_EXISTS, UNIMPLEMENTED
//                       fix the call, the options or the installation: the same call fails again
//   PERMISSION_DENIED   ask the owner of the memory for a handle that permits it; of an operation
//                       on remote memory that is kMayHaveRun: the lease has just ended, try again;
//                       of a call: ask who keeps the server's rules (weft/authorization.h)
//   UNAUTHENTICATED     one side has not proved who it is: correct the certificates, names or
//                       secrets of SecurityOptions
//   RESOURCE_EXHAUSTED  a limit: try again later, send less, or raise the limit that the text names
//   UNAVAILABLE         the peer, or the way to it, is gone: try again, here or at another server
//   DEADLINE_EXCEEDED   the time was over
//   ABORTED             start over: a handle was revoked, or a record changed each time it was
//                       read. Of a call that runs exactly once: nobody knows any more what became
//                       of it. It may have run if DeliveryOf() says so: do not repeat it then
//   CANCELLED           this process ended it: a ClientContext cancelled it, or a channel, an
//                       engine or a connection was destroyed
//   DATA_LOSS           a peer broke the protocol, or what came is not what was sent
//   INTERNAL            a handler did not finish its call, or a registration failed
//   UNKNOWN             an error of the system that nothing above fits; or a handler's own
//
// Beside the code stands the Delivery: a payload of the status, which programs read with
// DeliveryOf(). It says whether sending again can do harm; the code says whether it is of use. A
// call that is wrong is kNotSent, and fails again.
//
//   absl::Status status = kv.Put(request, &reply, {.timeout_us = 2000});
//   if (absl::IsUnavailable(status) && weft::DeliveryOf(status) == weft::Delivery::kNotSent) {
//     retry();  // nothing has run
//   }
//
// Every error that Weft makes for a call or for an operation on remote memory has one, whatever its
// code; where the code does not tell, the text says the same to people. Statuses without one are:
// OK; errors of functions that are neither (Create, Listen, AllocateBuffer ...); and an error that
// the handler, or a transfer of its payloads, has ended with. That is an answer: it has run. But
// five codes are also those of Weft's own errors of requests that were sent: UNAVAILABLE,
// DEADLINE_EXCEEDED, CANCELLED, RESOURCE_EXHAUSTED and INTERNAL. With these a handler's error is
// kMayHaveRun.
//
// Payloads of a handler's status travel with its code and text, up to 8 KiB; but for those of Weft
// itself ("weft."): a Delivery that the handler sets with WithDelivery(), or passes on from a call
// of its own, does not reach the client.
//
// Threads:  all functions are pure.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace weft {

enum class Delivery : uint8_t {
  kUnknown = 0,     // OK, or an error that has none
  kNotSent = 1,     // it was not carried out and will not be: it never left this process, or the
                    // server refused it before its handler ran. It is safe to send it again.
  kMayHaveRun = 2,  // it was carried out, or it was not, or it still will be. (A read of remote
                    // memory has changed nothing even so.)
};

Delivery DeliveryOf(const absl::Status& status);

// `status` with that answer for DeliveryOf(), in a payload; an earlier one is replaced. OK stays
// OK.
absl::Status WithDelivery(absl::Status status, Delivery delivery);

}  // namespace weft
