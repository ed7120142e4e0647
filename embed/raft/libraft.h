// libraft's header, which does not say of itself that it is C.
#pragma once

// What it includes says so, and must not be seen for the first time in there.
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

extern "C" {
#include <raft.h>
}
