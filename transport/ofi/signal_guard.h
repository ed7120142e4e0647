// Keeps the application's signal handling its own.
//
// libinfinipath, which Debian's libfabric brings along, handles SEGV, BUS, ILL, ABRT, INT and TERM
// from before main() and turns a crash into exit code 1 without a core.
//
// Threads: signal dispositions belong to the process; call it from one thread, early.
#pragma once

namespace weft {

// Resets handlers that belong to a library known to install them uninvited. Handlers of the
// application stay. Idempotent.
void RemoveForeignSignalHandlers();

}  // namespace weft
