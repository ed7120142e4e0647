// Remote memory as an array of records of fixed layout: RemoteArray.
#pragma once

#include "rpc/memory/remote_array.h"
