// How etcd is reached: by channels that ask it where servers stand (BalancingOptions), and by
// servers that register there (RegistrationOptions).
//
// Threads, lifetime: a plain value. Errors: INVALID_ARGUMENT from who takes it, with the option's
// name; what is wrong with a file or a password is known when etcd is asked.
#pragma once

#include <cstdint>
#include <string>

namespace weft {

struct EtcdOptions {
  // Certificates of who may have signed etcd's, a file in PEM. Set: etcd is spoken to by TLS, and
  // its certificate has to name the host of the target. Empty: in the clear, user and
  // password too.
  std::string ca_file = {};
  // This side's certificate and its key, both or none, where etcd wants one (--client-cert-auth).
  std::string certificate_file = {};
  std::string key_file = {};
  // A user of etcd, where it has authentication. (Over HTTP, a certificate's name is none.)
  std::string user = {};
  std::string password = {};
};

// Of Server::Register(), which puts the server's address, with its zone, into etcd: as the key
// /PREFIX/ADDRESS, under a lease that is kept alive. Call it after Listen(). It returns before etcd
// has it: etcd is tried until it has the key (ServerStats::registered counts those that it has, and
// the log says why it has none), and again when the lease is lost; a key that somebody deletes
// stays away until then. With ServerOptions::handover_path call it behind Ready(): before, nobody
// is served, and the key is still the predecessor's to take back. Shutdown() takes the key back
// before anybody is refused; if the server is killed, it goes when the lease is over. On an engine
// that others drive, a lease lives only as long as somebody does. A server may be registered any
// number of times.
//
// INVALID_ARGUMENT: a target, an address or an option is none, by name. FAILED_PRECONDITION: there
// is no address yet, or the server was shut down. UNAVAILABLE: libcurl is not installed. What etcd
// says is in the log.
struct RegistrationOptions {
  // What clients dial; empty: Server::address(), which they have to be able to dial then.
  std::string address = {};
  std::string zone = {};  // in which the server stands (BalancingOptions::zone); may be empty
  // So long, in microseconds, the key stays if the server is killed, or cannot reach etcd: 2 s to
  // 1 h, rounded up to seconds. Lower: clients hear sooner of a server that is dead (they notice
  // anyway that it does not answer); etcd is asked more often, three times in this. It has to be
  // longer than etcd takes to elect a leader, or the key goes and comes again.
  uint64_t lease_us = 10'000'000;
  EtcdOptions etcd = {};
};

}  // namespace weft
