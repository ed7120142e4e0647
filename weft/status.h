// What an error says of the call or operation that it has ended: whether that may have run.
//
// Every fallible function of Weft returns absl::Status or absl::StatusOr<T>. The code says what the
// caller may do next, the text says what failed, where, and with which value:
//
//   fix the call      INVALID_ARGUMENT, OUT_OF_RANGE, FAILED_PRECONDITION, NOT_FOUND,
//                     ALREADY_EXISTS, PERMISSION_DENIED
//   try again later   RESOURCE_EXHAUSTED (a limit: free something first)
//   try elsewhere     UNAVAILABLE (the peer or the way to it is gone)
//   take another way  UNIMPLEMENTED (this host or provider cannot do it)
//   it is over        DEADLINE_EXCEEDED, CANCELLED, ABORTED, DATA_LOSS
//   unclassified      UNKNOWN: nothing may be assumed about what was done
//
// Every UNAVAILABLE and DEADLINE_EXCEEDED that ends a call or an operation on remote memory has a
// Delivery; so have the CANCELLED and RESOURCE_EXHAUSTED that Weft itself makes for them. Programs
// ask for it; the text says the same to people.
//
//   absl::Status status = kv.Put(request, &reply, {.timeout_us = 2000});
//   if (weft::DeliveryOf(status) == weft::Delivery::kNotSent) retry();   // nothing has run
//
// Threads:  all functions are pure.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace weft {

enum class Delivery : uint8_t {
  kUnknown = 0,     // OK, or an error that says nothing of it
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
