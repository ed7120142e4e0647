// Calls, streams and remote memory in coroutines: Task, Start(), Wait(), WhenAll(), Await(),
// Sleep() and ResumeOn(), what the Co... forms of stubs return, and what a CoService's handlers
// are. Alarm, which is what Sleep() is for programs without coroutines.
#pragma once

#include "rpc/client/call_awaiter.h"
#include "rpc/coroutine/await.h"
#include "rpc/coroutine/task.h"
#include "rpc/operation/alarm.h"
#include "rpc/server/task_handlers.h"
