// Who may call what: Authorizer, PolicyFile.
#pragma once

#include "rpc/server/authorizer.h"
#include "rpc/server/policy_file.h"
