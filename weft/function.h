// A callable that is moved, not copied: Function.
#pragma once

#include "core/function.h"
