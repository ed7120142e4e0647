// Streams: calls whose requests or replies are many messages. Generated code includes it where
// methods are streams.
#pragma once

#include "rpc/client/client_stream_handles.h"
#include "rpc/generated_streams.h"
#include "rpc/server/server_stream_handles.h"
