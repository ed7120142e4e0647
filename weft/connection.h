// The layer without RPC: Transport, Listener, Connection, LinkOptions.
#pragma once

#include "transport/transport.h"
