// Views of raw bytes: ByteSpan, MutableByteSpan.
#pragma once

#include "core/bytes.h"
