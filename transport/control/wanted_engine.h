// The engine of a server that a client asks for (LinkOptions::server_engine), as it stands in the
// first bytes that the client sends: so the engine that accepts can hand the socket to that one
// before anything was read of it (arrival.h). It stands there in one of two ways:
//
//   plain     the first field of the ClientHello, which is the first frame: 5 bytes of protobuf
//   with TLS  one more name in the ALPN list of TLS's own hello, behind "weft/1": "weft-engine/N".
//             The hello's field is there as well, and encrypted
//
// A number is a wish and proves nothing. It is any 32 bits; the server takes it modulo its engines.
// Who listens alone, or is of an older release, skips both: an unknown field, and a name that a
// server does not choose. TLS's transcript covers the name: who is on the way can keep a client out
// by changing it, as by any other byte, and otherwise sees which engine was asked for.
//
// Threads: pure functions. Errors: none; bytes that are wrong ask for no engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/bytes.h"
#include "transport/path.h"

namespace weft {

// The field's number in hello.proto.
inline constexpr int kWantedEngineField = 12;
// Of TLS's hello so much is looked at. OpenSSL puts ALPN before all that is long: it ends within
// 500 bytes, with a name of the server of 255.
inline constexpr size_t kMostWantedBytes = 1024;

// What a ClientHello's body begins with; empty for kAnyEngine.
std::string EncodeWantedEngine(uint32_t engine);
// The name in the ALPN list. REQUIRES: not kAnyEngine.
std::string WantedEngineProtocol(uint32_t engine);

// What the first bytes of a socket ask for: `engine` is a number, or kAnyEngine. False: more of
// them have to come before it can be said, of kMostWantedBytes at the most; `engine` is kAnyEngine.
bool FindWantedEngine(ByteSpan first_bytes, uint32_t* engine);

}  // namespace weft
