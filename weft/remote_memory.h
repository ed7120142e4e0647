// A client's use of memory that a server offers: RemoteMemory.
#pragma once

#include "rpc/memory/remote_memory.h"
