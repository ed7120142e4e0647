// Targets of channels over many servers ("list:...", "file:...", "dns:..."), and the sources that
// they name.
//
// Threads: any. Errors: INVALID_ARGUMENT quotes the target and says what is expected.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "rpc/client/address_source.h"

namespace weft {

absl::StatusOr<std::unique_ptr<AddressSource>> MakeAddressSource(const std::string& target);

// A file's or a list's addresses, between any of `separators`; in lines, "#" begins a comment.
absl::StatusOr<std::vector<ListedServer>> ParseServerList(std::string_view text,
                                                          std::string_view separators);

}  // namespace weft
