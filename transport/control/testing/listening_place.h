// Where a listener of the target of arrivals (arrivals_fuzz.cc) is, when it is elsewhere than at an
// address of its own: at a Unix socket, or at a socket of another process or of a service manager.
// It is refused first wherever it cannot be.
//
// Threads: the fuzzer's one. Lifetime: host and acceptor outlive it, and it the listener's socket.
#pragma once

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <string>

#include "core/check.h"
#include "core/testing/descriptors.h"
#include "transport/control/testing/arrivals_world.h"
#include "transport/descriptor.h"
#include "transport/sockets/address.h"
#include "transport/sockets/socket.h"
#include "transport/transport.h"

namespace weft::test {

class ListeningPlace {
 public:
  // `where` chooses it.
  ListeningPlace(const Host& host, Acceptor& acceptor, uint8_t where)
      : host_(host),
        acceptor_(acceptor),
        path_(host.folder + "/server"),
        is_unix_(where % 2 == 1),
        is_given_(where / 2 % 4 > 0),
        is_managed_(where / 2 % 4 == 3) {}

  // The address to listen at. Fills in `options`.
  std::string Go(ListenOptions* options) {
    BeRefused();
    if (is_given_) {
      given_ = is_unix_ ? UnixSocket(path_) : TcpSocket();
      options->socket = given_.get();
    } else if (is_unix_) {
      given_ = UnixSocket(path_);  // of a server that was killed: its file stays
      given_.Reset();
    }
    return is_managed_ ? "systemd:fuzz" : is_unix_ ? "unix:" + path_ : kListen;
  }
  // The listener is gone.
  void Leave() {
    given_.Reset();
    // The manager keeps what it has made. Else it goes with who has listened last.
    WEFT_CHECK(is_managed_ || ::access(path_.c_str(), F_OK) != 0);
    ::unlink(path_.c_str());
  }

 private:
  static Descriptor TcpSocket() {
    return *ListenInternet(Resolve(*ParseServerAddress(kListen))->front());
  }
  // Listens. "": at a name that the kernel makes up, and that is no path.
  static Descriptor UnixSocket(const std::string& path) {
    Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    WEFT_CHECK(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address),
                      path.empty() ? sizeof(sa_family_t) : sizeof(address)) == 0 &&
               ::listen(socket.get(), kListenBacklog) == 0);
    return socket;
  }
  // Each time with words, and nothing is kept.
  void BeRefused() {
    const Descriptor tcp = TcpSocket();
    const Descriptor at_path = UnixSocket(path_);
    const Descriptor at_no_path = UnixSocket("");
    const Descriptor no_socket(::eventfd(0, EFD_CLOEXEC));
    const struct {
      std::string address;
      int socket;
    } cases[] = {
        {LocalAddress(tcp.get())->text(), -1},  // somebody listens there
        {"unix:" + path_, -1},
        {"unix:" + path_ + "/server", -1},  // there is no such folder
        {"nowhere", -1},
        {"systemd:fuzz", -1},  // the service manager has given none
        {"unix:" + path_, tcp.get()},
        {"127.0.0.1:1", tcp.get()},
        {kListen, at_path.get()},
        {"unix:" + path_ + "2", at_path.get()},
        {"unix:" + path_, at_no_path.get()},
        {kListen, no_socket.get()},
        {kListen, host_.proofs.get()},  // of another type
        {"systemd:fuzz", no_socket.get()},
        {"systemd:fuzz", at_no_path.get()},
    };
    const int before = CountDescriptors();
    ListenOptions options;
    for (const auto& test : cases) {
      options.socket = test.socket;
      ExpectRefused(test.address, options);
    }
    options.socket = tcp.get();
    options.security = Secret();
    options.security->psk_secret.clear();  // that is none
    ExpectRefused(kListen, options);
    // What peers have sent may be closed meanwhile, by a thread: never more than before.
    WEFT_CHECK(CountDescriptors() <= before);
    ::unlink(path_.c_str());
  }
  void ExpectRefused(const std::string& address, const ListenOptions& options) {
    const absl::Status status =
        host_.engines[0]->transport().Listen(address, options, &acceptor_).status();
    WEFT_CHECK(!status.ok() && !status.message().empty());
  }

  const Host& host_;
  Acceptor& acceptor_;
  const std::string path_;  // for a Unix socket
  const bool is_unix_;
  const bool is_given_;    // by another process
  const bool is_managed_;  // which is the service manager
  Descriptor given_;
};

}  // namespace weft::test
