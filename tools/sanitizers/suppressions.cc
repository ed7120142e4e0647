// Reports that the sanitizers shall not make, each with its reason. Linked into every program
// of a sanitizer build (.bazelrc, --custom_malloc). A line names a library or function that we
// cannot change; a report in our own code is a bug and never belongs here.

// NOLINTBEGIN(readability-identifier-naming): the runtimes' names.

extern "C" const char* __lsan_default_suppressions() { return ""; }

// Lines are "<kind>:<pattern>"; see the runtime's documentation for the kinds.
extern "C" const char* __tsan_default_suppressions() { return ""; }

extern "C" const char* __ubsan_default_suppressions() { return ""; }

// NOLINTEND(readability-identifier-naming)
