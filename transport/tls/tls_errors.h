// OpenSSL's errors, alerts of a peer, and the kernel's numbers, in words of ours.
//
// Threads: any; the queue of errors is the thread's.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace weft {

// What OpenSSL's queue of errors has to say, and empties it. "" when there is nothing.
std::string TakeTlsErrors();

// Whether an error of OpenSSL's is an alert that the peer has sent.
bool IsPeersAlert(unsigned long error);

// What the first error of OpenSSL's queue means for our caller. `is_up`: behind the handshake.
absl::StatusCode TlsCodeOf(unsigned long error, bool is_up);

// The peer has refused, by the alert that is this error, and where there is something to be done
// about it, that. `text`: OpenSSL's.
std::string TlsRefusal(unsigned long error, const std::string& text);

// What the kernel says by a number of errno.
std::string ErrnoText(int error);

// As TlsRefusal(), for an alert behind the handshake, by its number (RFC 8446, 6).
absl::Status TlsAlertError(uint8_t alert);

}  // namespace weft
