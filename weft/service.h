// What those who implement services use: Service, ServerContext, UnaryCall, CompletionStore; and
// IncomingCall, by which an Executor chooses.
#pragma once

#include "rpc/server/completion_store.h"
#include "rpc/server/incoming_call.h"
#include "rpc/server/server_context.h"
#include "rpc/server/unary_call.h"
#include "rpc/wire/completion_id.h"
#include "rpc/wire/metadata.h"
#include "rpc/wire/service.h"
