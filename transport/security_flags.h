// SecurityOptions from a command line: the same `--tls-...` flags for every program.
//
// Threads: in main(), before others are started.
// Errors: INVALID_ARGUMENT names the flag and what it may be; for a file with a secret also those
//   of reading it. Certificates and keys are read by the channel or server that gets the options.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "transport/security.h"

namespace weft {

// A line for each flag, for the --help of a program.
extern const char kSecurityFlagsHelp[];

// Takes these flags out of a command line, written "--tls-key=FILE" or "--tls-key FILE", up to a
// "--"; everything else stays as it was, in its order. Nothing where there is none: plain bytes.
absl::StatusOr<std::optional<SecurityOptions>> TakeSecurityFlags(
    std::vector<std::string>* arguments);
// The same of main(). Pointers are moved, and a null follows the last one, as it did.
absl::StatusOr<std::optional<SecurityOptions>> TakeSecurityFlags(int* argc, char** argv);

}  // namespace weft
