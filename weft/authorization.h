// Who may call what: Authorizer.
#pragma once

#include "rpc/server/authorizer.h"
