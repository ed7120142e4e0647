// A simulated network for tests: SimNetwork.
#pragma once

#include "transport/sim/sim_network.h"
