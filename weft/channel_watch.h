// A channel's state, and the handle of who watches it.
#pragma once

#include "rpc/client/channel_watch.h"
