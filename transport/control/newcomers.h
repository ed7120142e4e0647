// Who has come to a server's listeners and is no client yet, and who of them is put out when there
// are too many: silent and half-open connections are bounded in number, in time and for each host.
//
//   standing    since                      at most        for at most
//   kStranger   it was accepted: what it   kMaxStrangers  LinkOptions::connect_timeout_ns
//               says is no hello and no
//               join yet. With security:
//               TLS's handshake, too
//   kHandshake  a right hello: its path    kPlaces, and   as long again
//               is not up yet              kReserved
//   kClient     its path is up             ListenOptions::max_connections, and what one client
//                                          may have of these (connection_quota.h)
//
// A host is what PeerHost() (sockets/socket.h) tells apart. Where there are too many, one of the
// host that most of them come from makes room, so that a host may have everything while nobody else
// wants it, and who fills the places loses its own. kReserved places are for hosts that have a
// client already: whoever comes from a thousand addresses does not keep them from coming again.
// On one host, 127.0.0.1 say, nothing tells an honest client from others but that it goes on: who
// has had kGraceNs goes first, then who tries no path yet, the oldest in each case. It is put out
// only if as many others as there are places come between its hello and its path, a millisecond.
//
// What they hold at most, over all listeners of a transport:
//   strangers    128 descriptors; 128 * ControlSocket::kMaxUnreadBytes = 40 MiB; with security
//                128 * TlsStream::kMaxHandshakeBytes = 8 MiB, and what OpenSSL has for a handshake,
//                128 * 400 KiB = 50 MiB
//   handshakes   1,152: of each its hello, which takes a place for each kBytesPerPlace and is held
//                as it came and as it was understood, 144 MiB in all; the ServerHello if it does
//                not read it, as long as the server's own and at most kMaxUnsentBytes; a handler
//                of the application; 5 descriptors: its socket, that of tcp, and of shm the
//                neighbour's doorbell, domain and link; and one link, whose slots and rings count
//                in NetworkOptions::max_pool_bytes; with security what OpenSSL has for its two
//                sockets, 256 KiB at most for that of tcp, and kMaxHandshakeBytes of it: 360 MiB.
//
// Threads: one engine's. Lifetime: a newcomer leaves before it is destroyed.
// Errors: RESOURCE_EXHAUSTED from BeginHandshake(), for the peer.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "core/counters.h"
#include "core/intrusive_list.h"

namespace weft {

class Newcomers;
struct NewcomerTag;

// One of them; a connection of a listener's.
class Newcomer : public ListNode<NewcomerTag> {
 protected:
  ~Newcomer() = default;

 private:
  friend class Newcomers;
  enum class Standing : uint8_t { kNobody = 1, kStranger = 2, kHandshake = 3, kClient = 4 };

  // There are too many, and it has to end, soon: not within this call. It is a kNobody.
  virtual void PutOut() = 0;
  // Its handshake has got so far that it tries a path.
  virtual bool tries_path() const = 0;
  // It has spoken, and what it said first waits for a turn of ours.
  virtual bool waits_for_us() const = 0;
  // Nothing of it was read, and nothing will be before it is somebody's: it can go to another
  // process as it came.
  virtual bool is_unread() const = 0;

  Standing standing_ = Standing::kNobody;
  uint32_t places_ = 0;  // of kHandshake
  uint64_t host_ = 0;
  uint64_t since_ns_ = 0;
};

class Newcomers {
 public:
  // A burst of honest clients passes through in a few milliseconds; more than these wait in the
  // kernel's queue.
  static constexpr size_t kMaxStrangers = 128;
  // As many clients as a server takes by default may come at one time, after its restart say.
  static constexpr uint32_t kPlaces = 1024;
  static constexpr uint32_t kReserved = 128;
  // Hellos are a few KiB; the largest, 256 KiB, takes 5 places.
  static constexpr size_t kBytesPerPlace = size_t{64} << 10;
  // An honest client's hello takes a round trip, and its path some more. A stranger that has had
  // less is not put out, nor one that waits for us: the next one waits.
  static constexpr uint64_t kGraceNs = 200'000'000;

  // `counters` outlives this.
  explicit Newcomers(CounterSet* counters);
  ~Newcomers();

  // Whether one more stranger may come in. If not, it is worth asking again in a while.
  bool MakeRoom(uint64_t now_ns);
  void AddStranger(Newcomer* newcomer, uint64_t host, uint64_t now_ns);
  // A stranger has said a hello of so many bytes. An error: there is no place for it.
  absl::Status BeginHandshake(Newcomer* newcomer, size_t hello_bytes, uint64_t now_ns);
  void BecomeClient(Newcomer* newcomer);
  // Also of who is none any more.
  void Leave(Newcomer* newcomer);
  // Some of them, at whichever listener, are to become clients of this process: handshakes, and
  // strangers that were read. Linear.
  bool HasHandshakes();

 private:
  struct Host {
    uint32_t places = 0;
    uint32_t clients = 0;
  };
  using List = IntrusiveList<Newcomer, NewcomerTag>;

  // Whom to put out so that `host` gets so many places more; nullptr: nobody holds more than it.
  Newcomer* Victim(uint64_t host, uint32_t places, bool without_clients, uint64_t now_ns);
  uint32_t PlacesOfHostsWithoutClients() const;
  void PutOut(Newcomer* victim, Counter* count);

  List strangers_;  // the oldest first
  size_t stranger_count_ = 0;
  List handshakes_;  // the oldest first
  uint32_t places_ = 0;
  absl::flat_hash_map<uint64_t, Host> hosts_;  // with handshakes or clients

  CounterSet* const counters_;
  Counter strangers_put_out_;
  Counter handshakes_put_out_;
};

}  // namespace weft
