// What we ask of each provider.
//
// All: messages and one-sided operations, sends ordered after sends and after writes, and no
// FI_CONTEXT mode bit: that is what allows integers as contexts. mr_mode is 0 for tcp: offsets from
// 0, our own 64-bit keys, no local registration needed.
//
// Threads: any.
#pragma once

#include <string>

#include "transport/ofi/fabric.h"

namespace weft {

InfoPtr TcpHints();
// verbs: memory is registered for local use too, addressed virtually, with keys of the device;
// `device` as verbs names it ("mlx5_0": its XRC variant has another name, and is not asked for).
// `host` is the address to bind to: its family has to be told apart from it.
InfoPtr VerbsHints(const std::string& device, const std::string& host);

}  // namespace weft
