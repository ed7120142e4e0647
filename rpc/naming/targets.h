// Targets of channels over many servers ("list:...", "file:...", "dns:...", "etcd:..."), and the
// sources that they name.
//
// Threads: any. Errors: INVALID_ARGUMENT quotes the target and says what is expected.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "rpc/client/address_source.h"
#include "rpc/operation/etcd_options.h"

namespace weft {

// `etcd`: of targets "etcd:", for which UNAVAILABLE says that libcurl is not there.
absl::StatusOr<std::unique_ptr<AddressSource>> MakeAddressSource(const std::string& target,
                                                                 const EtcdOptions& etcd = {});

// A file's, a list's or an etcd value's addresses, between any of `separators`; in lines, "#"
// begins a comment.
absl::StatusOr<std::vector<ListedServer>> ParseServerList(std::string_view text,
                                                          std::string_view separators);

}  // namespace weft
