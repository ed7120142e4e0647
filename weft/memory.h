// Memory of this process. As the near end of transfers: Buffer, and Slice, a piece of it.
// Offered to clients: ExportedMemory.
#pragma once

#include "rpc/server/exported_memory.h"
#include "transport/buffer.h"
#include "transport/slice.h"
