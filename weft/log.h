// Where the library's log lines go.
#pragma once

#include "core/log.h"
