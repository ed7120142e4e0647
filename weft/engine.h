// One thread's progress, and what it is made with: Engine, EngineOptions, Clock;
// OpenNetworkEngine(), NetworkOptions, and what explains paths.
#pragma once

#include "core/clock.h"
#include "transport/engine.h"
#include "transport/network.h"
