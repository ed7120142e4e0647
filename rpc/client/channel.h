// weft/channel.h, and what those who use a channel from the inside use beside it.
#pragma once

#include "rpc/wire/service.h"
#include "transport/buffer_pool.h"
#include "transport/engine.h"
#include "transport/transport.h"
#include "weft/channel.h"
