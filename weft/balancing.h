// A channel over many servers: OpenBalanced().
#pragma once

#include "rpc/client/balancing.h"
