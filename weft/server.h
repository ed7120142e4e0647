// Services for the clients that connect: Server, ServerOptions.
#pragma once

#include "rpc/server/server.h"
