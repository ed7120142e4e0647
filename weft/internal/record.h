// Records that detect torn reads: for generated code.
#pragma once

#include "rpc/layout/record.h"
