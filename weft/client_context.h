// What a caller has in hand of one call: metadata both ways, and Cancel().
#pragma once

#include "rpc/client/client_context.h"
#include "rpc/wire/metadata.h"
