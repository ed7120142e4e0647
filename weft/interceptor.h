// What runs around calls, at either end: ClientInterceptor for ChannelOptions::interceptors,
// ServerInterceptor for ServerOptions::interceptors.
#pragma once

#include "rpc/client/client_interceptor.h"
#include "rpc/server/server_interceptor.h"
