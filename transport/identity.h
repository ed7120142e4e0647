// Who is at the other end of a connection, and how that is known. Where it is reached from stands
// beside it (PathInfo::peer).
//
// Over TLS it is the TLS peer: `authentication` is kCertificate or kPreSharedKey. Where the kernel
// knows the peer as well (Unix sockets, shared memory), its numbers stand beside that, and are what
// `authentication` says only of a peer that TLS knows nothing of.
//
// Threads: a plain value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

// What a peer's identity rests on.
enum class Authentication : uint8_t {
  kNone = 1,               // nothing: it is whoever reached the address
  kCertificate = 2,        // TLS: it has the key of a certificate that our trust roots vouch for
  kPreSharedKey = 3,       // TLS: it has the secret named `psk_name`
  kKernelCredentials = 4,  // the kernel says which process it is (Unix sockets, shared memory)
};

struct PeerIdentity {
  // A client of a server that does not require certificates is kNone when it has shown none.
  Authentication authentication = Authentication::kNone;
  // kCertificate. The subject as in RFC 2253 ("CN=store-7,O=Example"); the names that it may be
  // trusted by are the alternative names. One with a zero byte inside is left out. Where there is
  // neither a subject nor a DNS name or URI, the subject is "public key SHA-256 ..." (of the key's
  // SubjectPublicKeyInfo, in 64 hexadecimal digits): it tells two of these apart, and no subject of
  // a certificate reads like that, for each has a "=".
  std::string subject = {};
  std::vector<std::string> dns_names = {};
  std::vector<std::string> uris = {};  // a SPIFFE id is one of these
  // Alternative names that are IP addresses, as "10.1.2.3" or "2001:db8::1" (RFC 5952). They are
  // what somebody has signed, and not where the peer dials from. Clients are not told apart by
  // them: hosts of a fleet have one name, say, and an address each, and a certificate that is
  // issued again has the host's new address. Where there is nothing but addresses, the key tells
  // them apart.
  std::vector<std::string> ip_addresses = {};
  // kPreSharedKey.
  std::string psk_name = {};
  // By the kernel's word, as of the moment when the peer connected, or began to listen. process_id
  // 0: none that can be seen from here.
  uint32_t user_id = 0;
  uint32_t group_id = 0;
  int32_t process_id = 0;
};

// What it has proved over TLS to be called: the subject, the pre-shared key's name, DNS names and
// URIs (and not its addresses), each behind how long it is. So no two peers with different names
// make one text, whatever is in the names. For a code of who it is (HmacNonce()), and not for
// people: names may be long.
std::string ProvedNames(const PeerIdentity& identity);

// "none", "certificate", "pre_shared_key", "kernel_credentials".
std::string_view AuthenticationName(Authentication authentication);

// In one line, for people; whatever the peer's names have in them, it is printable ASCII.
//   certificate "CN=store-7", names store-7.example, spiffe://example/store-7; process 77 of user 0
//   pre-shared key "fleet"
//   process 77 of user 1000, by the kernel's word
//   nobody has proved who it is
std::string IdentityText(const PeerIdentity& identity);

}  // namespace weft
