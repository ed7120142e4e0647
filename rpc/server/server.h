// weft/server.h, and what those who use a server from the inside use beside it.
#pragma once

#include "rpc/server/exported_memory.h"
#include "rpc/wire/service.h"
#include "transport/buffer_pool.h"
#include "transport/engine.h"
#include "transport/mapped_memory.h"
#include "transport/transport.h"
#include "weft/server.h"
