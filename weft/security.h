// Who the other side of a connection is, and what this side proves: SecurityOptions, PeerIdentity,
// and the flags of programs that say it.
#pragma once

#include "transport/identity.h"
#include "transport/security.h"
#include "transport/security_flags.h"
