// Plain sockets to numeric IPv4 addresses, as strangers use them.
//
// Threads: any. Errors: a descriptor that is not valid.
#pragma once

#include <netinet/in.h>

#include <cstdint>
#include <string>

#include "transport/descriptor.h"

namespace weft::bench {

// "127.0.0.1:4711". Port 0 where the text is none.
sockaddr_in ParseAddress(const std::string& text);
std::string AddressText(const sockaddr_in& address);

// Not blocking; the connection is being made. `from`: a source address, in the host's byte order;
// 0: the kernel's choice.
Descriptor StartConnect(const sockaddr_in& to, uint32_t from = 0);

// Its close() ends the connection by a reset, and leaves no port waiting.
void CloseByReset(const Descriptor& socket);

}  // namespace weft::bench
