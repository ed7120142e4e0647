// Where code lies, for the few paths that every call takes.
//
// Each function on such a path costs some ten instructions for saving and restoring registers:
// steps that are called from one place only are folded into it. What rarely runs is kept out, so
// that it takes no registers, and no lines of the instruction cache, from what always does.
//
// Threads: none of its business.
#pragma once

// A step of a hot function: always part of its caller.
#define WEFT_INLINE inline __attribute__((always_inline))

// A hot function that is never inlined: inside its caller it would make that one save registers on
// its other hot paths, too, which do not need them.
#define WEFT_APART __attribute__((noinline))

// Rarely runs: never part of its caller, and away from hot code.
#define WEFT_COLD __attribute__((noinline, cold))
