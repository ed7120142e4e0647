// What those who implement services use: Service, ServerContext, UnaryCall, CompletionStore.
#pragma once

#include "rpc/server/completion_store.h"
#include "rpc/server/server_context.h"
#include "rpc/server/unary_call.h"
#include "rpc/wire/completion_id.h"
#include "rpc/wire/metadata.h"
#include "rpc/wire/service.h"
