// What is counted: CounterSet, Histogram.
#pragma once

#include "core/counters.h"
#include "core/histogram.h"
