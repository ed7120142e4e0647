// What the listeners of several engines at one address share. One engine, number 0, has the only
// socket that listens, and accepts. Each socket that it has accepted is handed to the engine that
// it is for, which makes a connection of it, as if it had accepted it itself:
//
//   a client            goes to the engine with the fewest connections, or to the one that it asks
//                       for (wanted_engine.h), modulo the engines; if kMaxWaitingClients wait for
//                       that one, or it has left, the socket is closed, and the client comes again
//   a link's socket     goes to the engine whose number is in its token: that is where the
//                       handshake is that waits for it (sockets/join.h)
//
// The number is a hint and no proof: the engine compares the whole token with those that it waits
// for, and who guesses a number has guessed six of 128 bits, which were no secret.
//
//   engine   from           to
//   taking   Join()         left: Leave()
//   left     Leave()        (for ever; its number is not used again)
//
// The listeners also count their connections together, and those of each client: what one of them
// can have is bounded over all engines (connection_quota.h).
//
// Threads: any; all functions lock, and are called for each connection, not for each call.
// Lifetime: shared by its listeners; a counter outlives its engine's Leave().
// Errors: Post() is false for an engine that has left, or has too many sockets to take: the socket
//   stays the caller's, who closes it. RESOURCE_EXHAUSTED from Join(): kMaxEngines; from
//   CheckRoom() and TakeConnection(): for the client.
// Invariants: sockets that wait for one engine <= kMaxWaiting. Clients that are counted <=
//   connections() <= ListenOptions::max_connections.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/client_shares.h"
#include "core/counters.h"
#include "transport/descriptor.h"
#include "transport/identity.h"
#include "transport/link.h"
#include "transport/transport.h"

namespace weft {

class SharedListener {
 public:
  // A token has six bits for the number.
  static constexpr int kNumberBits = 6;
  static constexpr uint32_t kMaxEngines = 1u << kNumberBits;
  // Sockets that were accepted for an engine and that it has not taken. It takes some in each of
  // its turns: so many wait for one that is busy in a handler, and no more descriptors are held for
  // it.
  static constexpr size_t kMaxWaiting = 128;
  // When so many wait no more clients are let in: strangers may ask for one engine all at once, and
  // the sockets of links, whose clients have a handshake there, find room all the same.
  static constexpr size_t kMaxWaitingClients = kMaxWaiting / 2;

  // `load`: what engine 0 has of connections.
  explicit SharedListener(const Counter* load);

  // The random first half of a token, with the number of the engine that it is for.
  static uint64_t WithNumber(uint64_t random, uint32_t number) {
    return random >> kNumberBits | uint64_t{number} << (64 - kNumberBits);
  }

  // One more engine takes clients. Its number, from 1 on.
  absl::StatusOr<uint32_t> Join(const Counter* load);
  // Readable while there may be something to take. Constant; of all but engine 0.
  int bell(uint32_t number) const;
  // The next socket for this engine; invalid: there is none.
  Descriptor Take(uint32_t number);
  // It has some to take.
  bool HasWaiting(uint32_t number) const;
  // It takes no more; what waits for it is closed.
  void Leave(uint32_t number);

  // --- for who accepts ---------------------------------------------------------------------------

  // Some engine has joined.
  bool is_shared() const { return is_shared_.load(std::memory_order_acquire); }
  // The engine with the fewest connections, those included that it has still to take; among those
  // that have room, and engine 0.
  uint32_t LeastLoaded() const;
  // How many there are, with those that have left: their numbers stay theirs.
  uint32_t engines() const;
  // Whom a token names; 0 if that is nobody: engine 0 then finds that it waits for no such token.
  uint32_t NumberIn(const Nonce128& token) const;
  // False: the engine has left, or has `most` to take. REQUIRES: number > 0, of an engine.
  [[nodiscard]] bool Post(uint32_t number, Descriptor* socket, size_t most = kMaxWaiting);

  // --- connections of all engines whose path is up -----------------------------------------------

  // A code for who a client is by what was proved, or by the kernel: its names by TLS, its user, or
  // else `host` (PeerHost()). Made with a secret of this process: nobody can find two clients that
  // have the same, and at all listeners one client has one. Any thread.
  static uint64_t KeyOf(const PeerIdentity& client, uint64_t host);
  // Whether this client can have one more, of those that `options` permit.
  absl::Status CheckRoom(const ListenOptions& options, uint64_t client_key) const;
  // The same, and it has it: until EndConnection().
  absl::Status TakeConnection(const ListenOptions& options, uint64_t client_key);
  void EndConnection(uint64_t client_key);
  uint32_t connections() const;

  // Constant once it listens: as Listener's.
  std::string address;
  bool is_beyond_host = false;

 private:
  struct Taker {
    const Counter* load = nullptr;  // null: it has left
    Descriptor bell;                // an eventfd, for other threads to end its sleep
    std::deque<Descriptor> waiting;
  };

  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Taker>> takers_;  // guarded by mutex_; [number]
  ClientShares connections_;                    // guarded by mutex_; by KeyOf()
  std::atomic<bool> is_shared_{false};
};

}  // namespace weft
