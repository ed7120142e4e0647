// How two processes are connected: PathKind, PathInfo, PathCandidate.
#pragma once

#include "transport/path.h"
