// What code written by protoc-gen-weft includes. Not for direct use.
#pragma once

#include "rpc/generated.h"
