// CallOptions, which stand in weft/channel.h.
#pragma once

#include "weft/channel.h"
