// Everything of Weft that a program uses. (Tests of programs include weft/sim.h too.)
#pragma once

#include "weft/bulk.h"
#include "weft/bytes.h"
#include "weft/channel.h"
#include "weft/connection.h"
#include "weft/engine.h"
#include "weft/fixed_layout.h"
#include "weft/function.h"
#include "weft/log.h"
#include "weft/memory.h"
#include "weft/metrics.h"
#include "weft/path.h"
#include "weft/remote_array.h"
#include "weft/remote_memory.h"
#include "weft/server.h"
#include "weft/service.h"
#include "weft/status.h"
