// What those who implement services use: Service, ServerContext, UnaryCall.
#pragma once

#include "rpc/server/server_context.h"
#include "rpc/server/unary_call.h"
#include "rpc/wire/metadata.h"
#include "rpc/wire/service.h"
