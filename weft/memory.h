// Memory of this process. As the near end of transfers: Buffer, and Slice, a piece of it.
// Offered to clients: ExportedMemory. Where the library's own comes from, and how much of it there
// is: SetMemoryHooks(), MemoryUsage().
#pragma once

#include "core/memory_hooks.h"
#include "rpc/server/exported_memory.h"
#include "transport/buffer.h"
#include "transport/slice.h"
