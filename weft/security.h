// Who the other side of a connection is, and what this side proves: SecurityOptions, PeerIdentity.
#pragma once

#include "transport/identity.h"
#include "transport/security.h"
