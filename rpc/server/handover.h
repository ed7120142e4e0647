// How a server takes the place of another process, and how it is handed on to the next one, without
// a client being refused. Both sides talk over the socket at ServerOptions::handover_path
// (transport/handover_socket.h), in lines of text:
//
//   the next one      this one                          what it means
//   hello 1           hello 1, or refused WHY           the version of these lines
//   take ADDRESS      socket ADDRESS, with the socket;  both have it, only the old one accepts
//                     or none ADDRESS                   nobody listens there
//   ready             client ADDRESS, with a socket,    it came meanwhile, and nothing of it was
//                     for each                          read
//                     go                                the next one is to accept from here on
//   have                                                it does
//
// Until `have` the old process serves, and goes on with it whatever happens to the other one: its
// end, its silence, and every line that does not belong there, gives it up. Two of them at once:
// the second is refused. (Where `have` comes when it was given up already, both accept, until one
// of them is ended; clients then come to either.) At `go` the old process has no handshakes under
// way (their further sockets would find the other process), but for those that take longer than
// kHandshakeNs: they fail.
//
//   state    from                         to
//   alone    construction                 Ready() -> offering
//   taking   TakeListener() has found     Ready() -> offering
//            another process
//   offering Ready()                      a successor has accepted -> handed
//   handed   on_handed_over was called    (for ever: the path is the other process's)
//   stopped  Stop(), from each of these   (for ever)
//
// Threads: any, but for Stop() inside of on_handed_over: one waits for the other, for seconds at
//   most. A successor is served by a thread of its own; what it does with the server it does on the
//   engines, which have threads of their own (Server::Create() sees to that).
// Lifetime: belongs to the Server; Stop() before its cores end.
// Errors: as weft/server.h says. What successors do wrong is logged, at level warning.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rpc/server/server_core.h"
#include "transport/descriptor.h"
#include "transport/handover_socket.h"

namespace weft {

class Handover {
 public:
  using Cores = std::vector<std::unique_ptr<ServerCore>>;

  // `cores` outlive it, and there is at least one. Null: they have no handover_path.
  static std::unique_ptr<Handover> Make(const Cores& cores);
  ~Handover() { Stop(); }
  Handover(const Handover&) = delete;
  Handover& operator=(const Handover&) = delete;

  // The socket of the process that listens at `address`; invalid: there is none.
  absl::StatusOr<Descriptor> TakeListener(const std::string& address);
  absl::Status Ready();
  // Hands over no more. What is under way is given up, unless the successor was told to go.
  void Stop();

 private:
  using Clients = std::vector<std::pair<std::string, Descriptor>>;  // with what Listen() was told

  // How long the old process may take for each answer: it looks at once, unless its engine is busy
  // in a handler, and before `go` for kHandshakeNs.
  static constexpr int kAnswerMs = 5'000;
  // And for its first words, of one that comes beside a successor: it speaks at once. The successor
  // waits meanwhile.
  static constexpr int kOtherMs = 100;
  static constexpr int kPauseMs = 100;  // Pause(): a process is to be looked at, and not busy
  // So long handshakes may take that have begun before a successor was ready: they take some
  // milliseconds, but for clients that say nothing. Longer: whoever connects and is silent holds
  // clients up for so long at an upgrade; shorter: a slow client has to come again.
  static constexpr uint64_t kHandshakeNs = 1'000'000'000;

  Handover(std::string path, const Cores& cores);

  absl::Status CheckNotStopped() const;
  absl::Status FindPredecessor();
  // One question, one answer that begins with `word`, or is "refused WHY".
  absl::StatusOr<HandoverMessage> Ask(const std::string& question);
  absl::Status TakeClients();
  absl::Status Accept(Clients clients);

  // On its thread.
  void Offer();
  void Serve(const Descriptor& successor);
  absl::Status Answer(const Descriptor& successor, const std::string& line, bool* ready);
  absl::Status HandOver(const Descriptor& successor);
  absl::Status AwaitHandshakes(const Descriptor& successor);
  absl::Status GiveClients(const Descriptor& successor, const Clients& clients);
  // After what cannot be helped, such as a process without descriptors, which stays as it is.
  void Pause();
  // False: Stop() was called. True: `socket` has something to read. Others that come are refused.
  bool AwaitLine(const Descriptor& successor);
  void RefuseOther(const Descriptor& successor);

  const std::string path_;
  const Cores& cores_;
  std::mutex mutex_;        // of those who call
  Descriptor predecessor_;  // invalid: there is none, or it has gone
  bool looked_ = false;     // for it
  bool took_ = false;       // a socket of it
  bool ready_ = false;
  bool stopped_ = false;

  HandoverListener listener_;  // constant while thread_ runs
  Descriptor stop_;            // an eventfd: Stop() was called; constant from Ready() on
  bool gave_ = false;          // thread_'s: the successor has a socket of this server
  bool handed_ = false;        // thread_'s
  std::thread thread_;
};

}  // namespace weft
