// Who a certificate says that its holder is.
//
// Threads: any. Errors: none: names of other kinds than these, and those that hold a zero, which
//   readers of C strings would take for another one, are left out.
#pragma once

#include "transport/identity.h"

struct x509_st;  // OpenSSL's X509

namespace weft {

// Its subject (RFC 2253), and its alternative names that are DNS names, URIs or IP addresses
// (RFC 5280, 4.2.1.6); where it has none of these but addresses, a digest of its key in their place
// (PeerIdentity::subject). Whether it is to be believed was found out before.
PeerIdentity IdentityOf(const x509_st* certificate);

}  // namespace weft
