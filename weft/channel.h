// A client's handle to the services at one address: Channel, ChannelOptions, CallOptions.
#pragma once

#include "rpc/client/channel.h"
