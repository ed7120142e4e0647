// The client's end of a session (embed/nbdkit, embed/rocksdb; the server's: server_sessions.h), and
// operations that survive losses of the connection and restarts of the server: what was under way
// attaches again and is sent again, for as long as its patience.
//
//   SessionClient sessions(patience_us, [&](uint64_t timeout_us) { return AskTheServer(...); });
//   sessions.Operate("flush", [&](const SessionClient::Attempt& attempt) {
//     request.set_session(attempt.session.number);
//     return stub.Flush(request, &reply, {.timeout_us = attempt.timeout_us});
//   });
//
//   state       set by                              left for
//   kDetached   at first; whoever learns that the   kAttaching, by the next operation
//               session is over
//   kAttaching  one operation's thread, the others  kAttached, kDetached
//               wait
//   kAttached   the server's answer                 kDetached
//
// Threads: any, several at once; each operation blocks its own. Lifetime: no thread is in an
//   operation when it is destroyed.
// Errors: as said at each function.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/function.h"
#include "weft/channel.h"
#include "weft/coroutine.h"
#include "weft/stream.h"

namespace weft::embed {

class SessionClient {
 public:
  struct Session {
    uint64_t number = 0;
    uint64_t epoch = 0;
  };
  struct Attempt {
    Session session;
    uint64_t timeout_us;
    bool may_have_run;  // an earlier attempt
  };
  // Asks the server for a session, the earlier one being over. One thread at a time.
  using Ask = Function<absl::StatusOr<Session>(uint64_t timeout_us)>;
  using TryOnce = absl::FunctionRef<absl::Status(const Attempt&)>;

  // `patience_us`: of an operation, from its beginning.
  SessionClient(uint64_t patience_us, Ask ask) : patience_us_(patience_us), ask_(std::move(ask)) {}

  // One attempt to have a session, so that mistakes are told at once. Errors: the attempt's.
  absl::Status Attach();

  // Tries until an attempt is OK, or ends with an error that is the server's answer. These errors
  // are no answers, and it is tried again,
  //   in the same session, after a moment   RESOURCE_EXHAUSTED
  //   in a new one: this one is over, or    ABORTED, UNAVAILABLE, CANCELLED, DEADLINE_EXCEEDED,
  //   what was sent may come late           INTERNAL, and a DATA_LOSS of the way there (one that
  //                                         has a Delivery)
  // What has not succeeded within the patience has the last reason, with how long and how often it
  // was tried. Errors begin with `what`.
  absl::Status Operate(std::string_view what, TryOnce attempt) {
    return Operate(what, patience_us_, attempt);
  }
  absl::Status Operate(std::string_view what, uint64_t patience_us, TryOnce attempt);

  // True: nobody has begun to ask for the next one yet.
  bool IsCurrent(const Session& session);

 private:
  enum class State : uint8_t { kDetached = 1, kAttaching = 2, kAttached = 3 };

  absl::StatusOr<Session> AttachBy(uint64_t deadline_ns);
  void Detach(const Session& session);

  const uint64_t patience_us_;
  Ask ask_;  // of the thread in kAttaching

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  State state_ = State::kDetached;
  Session session_;
  std::string last_failure_;  // why the last one that asked had no answer
};

// By which a server knows a client again: secret, random, of so many bytes.
std::string NewClientId(size_t bytes);

// DATA_LOSS: an answer that breaks the protocol.
absl::Status WrongReply(std::string_view what);

// UNAVAILABLE: a server that is silent, and may be gone.
absl::Status NotInTime();

// The one message of a stream that lasts as long as its session: what the server says of the
// session when it has begun. Blocks. Errors: the server's; NotInTime(), or why `channel` has no
// connection: there was no answer within `timeout_us`; WrongReply(). The stream is over then.
template <class Reply>
absl::StatusOr<Reply> FirstReply(Channel& channel, ClientReader<Reply>& stream,
                                 uint64_t timeout_us) {
  Reply reply;
  Alarm deadline(channel.engine());
  deadline.Set(timeout_us, [&stream] { stream.Cancel(); });
  const bool got = stream.Read(&reply);
  const bool in_time = deadline.Cancel();
  if (got) return reply;
  absl::Status end = stream.Finish();
  if (!in_time) end = channel.path().status();
  if (!end.ok()) return end;
  return in_time ? WrongReply("a session that has ended before it began") : NotInTime();
}

}  // namespace weft::embed
