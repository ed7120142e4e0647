// Memory of this process. As the near end of transfers: Buffer, ApplicationMemory, MemorySlice.
// Offered to clients: ExportedMemory.
#pragma once

#include "rpc/bulk/memory_slice.h"
#include "rpc/memory/application_memory.h"
#include "rpc/server/exported_memory.h"
#include "transport/buffer_pool.h"
