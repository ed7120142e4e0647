// Payloads that travel beside messages: BulkCall and BulkStream of clients, ServerBulk of handlers.
#pragma once

#include "rpc/client/bulk_call.h"
#include "rpc/client/bulk_stream.h"
#include "rpc/server/server_bulk.h"
