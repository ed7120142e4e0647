// What is counted: CounterSet, Histogram. What a channel tells of its state: ChannelState,
// ChannelWatch.
#pragma once

#include "core/counters.h"
#include "core/histogram.h"
#include "rpc/client/channel_watch.h"
