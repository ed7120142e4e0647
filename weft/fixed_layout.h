// Messages as structs of fixed layout: FixedLayout, BytesOf().
#pragma once

#include "rpc/layout/fixed_layout.h"
