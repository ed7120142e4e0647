// Memory of this process. As the near end of transfers: Buffer, ApplicationMemory, Slice.
// Offered to clients: ExportedMemory.
#pragma once

#include "rpc/bulk/slice.h"
#include "rpc/memory/application_memory.h"
#include "rpc/server/exported_memory.h"
#include "transport/buffer_pool.h"
